"""Exported policies act as the run does: ONNX and C, for every kind of policy."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.run import Run
from gymnasium_solver.share.export.c_header import c_header
from gymnasium_solver.share.export.deployed import Deployed, Observed, deployed_policy, observe
from gymnasium_solver.share.export.export_run import OnnxPolicy, check_same, export_run
from gymnasium_solver.training.agents import load_agent, run_treatment
from tests.share.kinds import KINDS, train_kind

NOT_IN_C = {"dqn-gru", "ppo-gru", "ppo-lstm", "ppo-image", "sac-lstm"}
needs_onnx = pytest.mark.skipif(
    not all(find_spec(name) for name in ("onnx", "onnxruntime", "onnxscript")),
    reason="needs gymnasium-solver[onnx]",
)
DOCS = Path(__file__).parents[2] / "docs" / "share.md"


def loaded(run: Run) -> tuple[Agent, Deployed, Observed]:
    agent = load_agent(run)
    treatment = run_treatment(run, agent.config, agent.observation_space)
    observed = observe(agent.config, agent, treatment, 64)
    return agent, deployed_policy(agent, treatment, observed.steps[0].mask is not None), observed


IN_SHORT = ("ppo-dict-obs", "ppo-dict-action", "ppo-masked", "dqn-rainbow", "crossq", "encoded")
IN_C = [
    kind if kind in IN_SHORT else pytest.param(kind, marks=pytest.mark.services)
    for kind in sorted(KINDS.keys() - NOT_IN_C)
]


@pytest.mark.parametrize("kind", IN_C)
def test_the_c_header_acts_as_the_run(kind: str, tmp_path: Path) -> None:
    run = train_kind(kind, tmp_path)
    exported = export_run(str(run.path), tmp_path, "c", n_observations=200)
    text = Path(exported.path).read_text(encoding="utf-8")
    assert "#include <math.h>" in text
    assert text.count("#include") == 1
    assert exported.n_compared >= 200
    assert str(tmp_path) not in text


def test_what_c_cannot_hold_is_refused_in_one_line(tmp_path: Path) -> None:
    run = train_kind("ppo-gru", tmp_path)
    with pytest.raises(RunError, match=r"recurrent core\. Use --format onnx"):
        export_run(str(run.path), tmp_path, "c")
    assert not list(run.path.glob("policy*"))


def test_a_header_that_differs_is_refused(tmp_path: Path) -> None:
    _, policy, observed = loaded(train_kind("ppo-box", tmp_path))
    c_header(policy, observed, {})
    with torch.no_grad():
        policy.net.get_parameter("actor_head.bias").add_(0.01)
    with pytest.raises(RunError, match="acts differently"):
        c_header(policy, observed, {})


def test_an_env_that_cannot_be_built_is_replaced_by_its_space(tmp_path: Path) -> None:
    run = train_kind("ppo-masked", tmp_path)
    agent = load_agent(run)
    treatment = run_treatment(run, agent.config, agent.observation_space)
    seen = observe(agent.config.replace(env_id="Probe/Gone-v0"), agent, treatment, 50)
    assert seen.n >= 50
    assert "random points" in seen.source


@needs_onnx
def test_onnx_plays_the_docs_loop_without_torch(tmp_path: Path) -> None:
    """Export, read the metadata, run the loop of docs/share.md where torch cannot be imported."""
    import onnx

    run = train_kind("wrapped", tmp_path, max_env_steps=4000)
    out = tmp_path / "policy.onnx"
    exported = export_run(str(run.path), tmp_path, "onnx", out, n_observations=200)
    assert exported.inputs["obs"] == "tensor(float) ['batch', 4]"
    meta = {entry.key: entry.value for entry in onnx.load(out).metadata_props}
    assert meta["env_id"] == "CartPole-v1"
    assert json.loads(meta["action_space"])["n"] == 2
    assert str(Path.home()).encode() not in out.read_bytes()
    block = "import sys; sys.modules['torch'] = None\n" + docs_loop()
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    import gymnasium

    import gymnasium_solver as gs

    env, agent = gymnasium.make("CartPole-v1"), gs.load(run)
    obs, _ = env.reset(seed=0)
    total, is_over = 0.0, False
    while not is_over:
        obs, reward, terminated, truncated, _ = env.step(agent.act(obs))
        total, is_over = total + float(reward), terminated or truncated
    assert float(done.stdout) == total
    check_refused_if_different(run, out.read_bytes())


def check_refused_if_different(run: Run, data: bytes) -> None:
    """The file of one policy, compared with another: the same network with its head negated."""
    agent, policy, observed = loaded(run)
    onnx_policy = OnnxPolicy(data)
    assert check_same(policy, onnx_policy, observed) == 0.0
    with torch.no_grad():
        for name in ("actor_head.weight", "actor_head.bias"):
            agent.net.get_parameter(name).neg_()
    treatment = run_treatment(run, agent.config, agent.observation_space)
    with pytest.raises(RunError, match="acts differently"):
        check_same(policy, onnx_policy, observe(agent.config, agent, treatment, 64))


def docs_loop() -> str:
    """The code after the heading "Run it" of docs/share.md."""
    after = DOCS.read_text(encoding="utf-8").partition("### Run it")[2]
    code = after.partition("```py\n")[2].partition("```")[0]
    assert len(code.strip().splitlines()) <= 15
    return code


@pytest.mark.services
@needs_onnx
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_onnx_file_acts_as_the_run(kind: str, tmp_path: Path) -> None:
    run = train_kind(kind, tmp_path)
    exported = export_run(str(run.path), tmp_path, "onnx", n_observations=1000)
    assert exported.n_compared >= 1000
    assert np.isfinite(exported.largest_difference)


IN_TORCH = [
    kind if kind in ("ppo-masked", "ppo-gru") else pytest.param(kind, marks=pytest.mark.services)
    for kind in sorted(KINDS)
]


@pytest.mark.parametrize("kind", IN_TORCH)
def test_the_program_of_torch_acts_as_the_run(kind: str, tmp_path: Path) -> None:
    run = train_kind(kind, tmp_path)
    exported = export_run(str(run.path), tmp_path, "torch", n_observations=200)
    assert exported.n_compared >= 200
    data = Path(exported.path).read_bytes()
    assert str(Path(torch.__file__).parent).encode() not in data
    extra = {"gymnasium_solver.json": ""}
    program = torch.export.load(exported.path, extra_files=extra).module()
    facts = json.loads(extra["gymnasium_solver.json"])
    assert facts["inputs"] == list(exported.inputs)
    assert facts["env_id"] == load_agent(run).config.env_id
    # Loaded in another place, for another number of rows, it acts as the agent does.
    _, policy, observed = loaded(run)
    step = observed.steps[0]
    arrays = policy.arrays(step.obs, step.mask, None, step.is_first)
    rows = [torch.from_numpy(arrays[name][:3].copy()) for name in facts["inputs"]]
    for own, given in zip(policy(*rows), program(*rows), strict=True):
        torch.testing.assert_close(own, given)


def test_bad_formats_and_runs_are_one_line(tmp_path: Path) -> None:
    from gymnasium_solver.errors import GsolveError

    run = train_kind("ppo-box", tmp_path)
    for ref, form in ((str(run.path), "pt2"), ("nothing", "c"), (f"{run.path}/77777", "c")):
        with pytest.raises(GsolveError):
            export_run(ref, tmp_path, form)
