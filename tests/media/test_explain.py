"""`gsolve explain`: the explained numbers of every kind of agent, and the verb on tiny runs."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import gymnasium_solver as gs
from gymnasium_solver.cli.main import main
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.media.drawing import plane_groups
from gymnasium_solver.media.explain_step import METHODS, View, look, methods_of, subject_of
from gymnasium_solver.media.player import Moment, PolicyActor
from gymnasium_solver.spaces.observations import image_layout
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.prepare import build_config
from gymnasium_solver.tree import map_tree
from tests.small import WORLD_MODELS

IMAGE = spaces.Box(0, 255, (2, 12, 12), np.uint8)
VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
MIXED = spaces.Dict({"camera": IMAGE, "kind": spaces.Discrete(3), "speed": VECTOR})
DISCRETE, BOX = spaces.Discrete(4), spaces.Box(-1.0, 1.0, (2,), np.float32)
SMALL: dict[str, Any] = {"n_envs": 2, "cnn_channels": [4, 4, 4], "cnn_hidden_dims": [8]}


def decided(
    algo_id: str, space: spaces.Space, action_space: spaces.Space, **fields: Any
) -> tuple[Any, Moment]:
    """An untrained agent, and its second decision."""
    small = {} if space is VECTOR else SMALL
    base = {"env_id": "Probe/Image-v0", "algo_id": algo_id, "seed": 1, **small}
    agent = build_agent(build_config({**base, **fields}), space, action_space)
    actor = PolicyActor(agent, greedy=False, explains=True)
    actor.start(1, 0)
    space.seed(3)
    for is_first in (True, False):
        obs = space.sample()
        batch = map_tree(lambda part: np.asarray(part)[None], obs)
        (decision,) = actor.decide(batch, np.array([is_first]), None)
    return agent, Moment(0, 1, None, obs, None, None, decision=decision)


AGENTS: dict[str, tuple[str, spaces.Space, spaces.Space, dict[str, Any]]] = {
    "ppo": ("ppo", IMAGE, DISCRETE, {}),
    "ppo, own critic": ("ppo", IMAGE, DISCRETE, {"share_trunk": False}),
    "ppo, recurrent": ("ppo", IMAGE, DISCRETE, {"recurrent": "gru"}),
    "ppo, dict": ("ppo", MIXED, DISCRETE, {}),
    "dqn": ("dqn", IMAGE, DISCRETE, {"dueling": True}),
    "dqn, vector": ("dqn", VECTOR, DISCRETE, {}),
    "sac": ("sac", IMAGE, BOX, {}),
    "sac, discrete": ("sac", IMAGE, DISCRETE, {}),
    "td3": ("td3", VECTOR, BOX, {}),
    "tdmpc2": ("tdmpc2", IMAGE, BOX, {"model_size": "1M", "n_samples": 64, "compile": False}),
}


@pytest.mark.parametrize("name", AGENTS)
def test_the_explained_numbers_are_those_of_the_policy(name: str) -> None:
    algo_id, space, action_space, fields = AGENTS[name]
    agent, moment = decided(algo_id, space, action_space, **fields)
    decision: Any = moment.decision
    value = subject_of(agent, moment, "value").number
    action = subject_of(agent, moment, "action").number
    if algo_id in ("ppo", "dqn"):
        assert value == pytest.approx(decision.value, rel=1e-4)
    if algo_id == "dqn":
        assert action == pytest.approx(decision.q_values[decision.chosen], rel=1e-4)
    elif action_space is DISCRETE:
        chance = decision.probabilities[decision.chosen]
        assert action == pytest.approx(math.log(chance / (1 - chance)), rel=1e-3)
    elif algo_id != "tdmpc2":  # its mean is that of the plan
        assert action == pytest.approx(float(np.linalg.norm(decision.mean)), rel=1e-4)
    view = look(agent, moment, ("gradient", "gradcam"))
    assert bool(view.images) == (space is not VECTOR)
    for image in view.images:
        assert image.maps["gradient"].any()
        assert image.maps["gradcam"].shape == (12, 12)
    if space is not IMAGE:
        assert any(number for _, number in view.contributions)


def test_the_carry_of_a_recurrent_agent_is_held() -> None:
    """The same observation, remembered or as the first one, is another number."""
    agent, moment = decided("ppo", IMAGE, DISCRETE, recurrent="lstm")
    decision: Any = moment.decision
    assert np.any(decision.carry["core"])
    none = {"core": np.zeros_like(decision.carry["core"])}
    first = replace(moment, decision=replace(decision, carry=none))
    assert subject_of(agent, moment, "value").number != subject_of(agent, first, "value").number


def test_parts_of_a_dict_are_named() -> None:
    view = seen(MIXED)
    assert [image.name for image in view.images] == ["camera"]
    names = [name for name, _ in view.contributions]
    assert names == ["speed[0]", "speed[1]", "speed[2]", "kind=0", "kind=1", "kind=2"]


def seen(space: spaces.Space) -> View:
    return look(*decided("ppo", space, DISCRETE), ("gradient",))


def test_a_value_of_an_agent_without_a_critic_is_refused() -> None:
    agent, moment = decided("reinforce", VECTOR, DISCRETE)
    with pytest.raises(ConfigError, match="no value function"):
        subject_of(agent, moment, "value")


@pytest.mark.parametrize(
    ("shape", "stacked", "planes", "labels"),
    [
        ((3, 84, 84), 3, [[0], [1], [2]], ["2 before", "1 before", "newest frame"]),
        ((4, 84, 84), 1, [[0], [1], [2], [3]], ["plane 1", "plane 2", "plane 3", "plane 4"]),
        ((84, 84, 3), 1, [[0, 1, 2]], ["image"]),
        ((84, 84, 6), 2, [[0, 1, 2], [3, 4, 5]], ["1 before", "newest frame"]),
        ((2, 64, 64, 3), 2, [[0, 1, 2], [3, 4, 5]], ["1 before", "newest frame"]),
        ((84, 84), 1, [[0]], ["image"]),
    ],
)
def test_a_stack_is_shown_by_frame(
    shape: tuple[int, ...], stacked: int, planes: list[list[int]], labels: list[str]
) -> None:
    layout = image_layout(spaces.Box(0, 255, shape, np.uint8))
    assert layout is not None
    groups = plane_groups(layout, shape, stacked)
    assert [group.planes for group in groups] == planes
    assert [group.label for group in groups] == labels


def test_names_of_methods() -> None:
    assert methods_of([]) == methods_of(["all"]) == METHODS
    assert methods_of(["Grad-CAM++", "gradient"]) == ("gradient", "gradcam++")
    with pytest.raises(ConfigError, match="Did you mean gradcam"):
        methods_of(["grdcam"])


# -- the verb ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def image_run(tmp_path_factory: pytest.TempPathFactory) -> gs.Run:
    fields = {"n_steps": 8, "batch_size": 16, "n_epochs": 1, "max_epochs": 1, "n_threads": 1}
    config = build_config(
        {
            "env_id": "Probe/Image-v0",
            "env_kwargs": {"shape": [2, 16, 16]},
            "algo_id": "ppo",
            "seed": 1,
            "eval_freq_epochs": None,
            **SMALL,
            **fields,
        }
    )
    return gs.train(config, runs_dir=tmp_path_factory.mktemp("image") / "runs")


def explained(run: gs.Run, capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    code = main(["explain", run.id, "--runs-dir", str(run.path.parent), "--json", *argv])
    out = capsys.readouterr()
    assert code == 0, out.err
    result: dict[str, Any] = json.loads(out.out)
    return result


def refused(run: gs.Run, capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    code = main(["explain", run.id, "--runs-dir", str(run.path.parent), *argv])
    assert code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def check_page(result: dict[str, Any]) -> str:
    """One file: no script, every picture inside."""
    page = Path(result["page"]).read_text()
    assert "<script" not in page
    assert "://" not in page
    assert page.count("<img src=") == page.count('src="data:image/png;base64,')
    assert page.count("<img src=") == len(result["files"])
    for file in result["files"]:
        assert (Path(result["folder"]) / file).read_bytes().startswith(b"\x89PNG")
    return page


def test_explain_writes_a_page_of_an_image_agent(
    image_run: gs.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    result = explained(image_run, capsys)
    assert Path(result["folder"]).parent == image_run.path / "explain"
    page = check_page(result)
    for word in ("Receptive field", "Grad-CAM", "Occlusion", "Activations of conv 3"):
        assert word.lower() in page.lower(), word
    assert "cannot be drawn" in " ".join(result["notes"])
    names = " ".join(result["files"])
    for kind in ("filters-conv-1", "input", "gradient", "occlusion", "cams", "patches-conv-1"):
        assert kind in names


def test_explain_takes_methods_target_layer_and_folder(
    image_run: gs.Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    argv = ["--method", "gradcam", "--target", "value", "--layer", "2", "--step", "0"]
    result = explained(
        image_run, capsys, *argv, "--episode-seed", "5", "--out", str(tmp_path / "o")
    )
    assert (result["seed"], result["target"]) == (5, "value")
    assert result["steps"][0]["number"] == pytest.approx(result["steps"][0]["value"], rel=1e-4)
    page = check_page(result)
    assert "maps of conv 2" in page
    assert "Occlusion" not in page


def test_explain_refuses_in_one_line(image_run: gs.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert "steps 0 to 0" in refused(image_run, capsys, "--step", "9")
    assert "layers 1 to 3" in refused(image_run, capsys, "--layer", "7")


def test_explain_a_vector_agent_shows_frames_and_named_components(
    shared_run: gs.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    result = explained(shared_run, capsys, "--step", "0", "1")
    assert [step["step"] for step in result["steps"]] == [0, 1]
    assert set(result["steps"][0]["contributions"]) == {"count", "luck"}
    assert result["files"] == [
        f"step-000{t}-{kind}.png" for t in (0, 1) for kind in ("frame", "contributions")
    ]
    assert "gradient x input" in " ".join(result["notes"])
    check_page(result)
    assert "no convolution layers" in refused(shared_run, capsys, "--layer", "1")


@pytest.mark.parametrize("algo_id", WORLD_MODELS)
@pytest.mark.parametrize("greedy", [True, False])
def test_explaining_a_world_model_changes_nothing_that_it_does(algo_id: str, greedy: bool) -> None:
    """A planner draws numbers for greedy actions too, which must not be those of the episode."""
    small = WORLD_MODELS[algo_id]
    fields: dict[str, Any] = {"env_id": "x", "algo_id": algo_id, "compile": False, **small}
    agent = build_agent(build_config({**fields, "seed": 1}), VECTOR, BOX)
    taken = []
    for explains in (False, True):
        actor = PolicyActor(agent, greedy=greedy, explains=explains)
        actor.start(2, seed=5)
        obs, first = np.ones((2, *VECTOR.shape), np.float32), np.ones(2, bool)
        steps = [actor.decide(obs, first if t == 0 else ~first, None) for t in range(4)]
        taken.append([[row.action.tolist() for row in step] for step in steps])
    assert taken[0] == taken[1]
    assert steps[0][0].value is not None
    assert steps[0][0].std is not None
