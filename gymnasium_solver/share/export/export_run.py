"""`gsolve export`: writes the policy of a run to a file, after comparing it with the run.

exported = export_run("@last/@best", root, "onnx")
exported.path, exported.n_compared, exported.largest_difference
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.envs.treatment import Treatment
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.runs.files import cannot_write, write_atomic
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.share.export.comparison import observe
from gymnasium_solver.share.export.deployed import Deployed, deployed_policy
from gymnasium_solver.spaces.json_form import space_to_json
from gymnasium_solver.training.agents import load_agent, run_treatment
from gymnasium_solver.training.threads import limited_threads
from gymnasium_solver.version import __version__

SUFFIXES = {"onnx": ".onnx", "c": ".h"}
N_OBSERVATIONS = 1000


@dataclass(frozen=True)
class Exported:
    path: str
    format: str
    run: str
    checkpoint: str
    env_steps: int
    inputs: dict[str, str]
    outputs: dict[str, str]
    n_compared: int
    compared_on: str
    largest_difference: float
    size_bytes: int
    env_wrappers: list[str]
    """Wrappers of the run that the file does not hold: the environment must apply them."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def export_run(
    ref: str,
    root: Path,
    format: str = "onnx",
    out: Path | None = None,
    *,
    n_observations: int = N_OBSERVATIONS,
    trust: bool = False,
) -> Exported:
    """Write the policy of a checkpoint in one of `SUFFIXES`; default place: the run's folder.

    RunError, and no file, if the written form acts differently from the run's policy."""
    if format == "onnx":
        from gymnasium_solver.share.export.onnx_file import onnx_file as write
        from gymnasium_solver.share.export.onnx_file import require_onnx

        require_onnx()
    elif format == "c":
        from gymnasium_solver.share.export.c_header import c_header as write
    else:
        raise ConfigError(f"--format {format}: expected {' or '.join(SUFFIXES)}.")
    found = resolve_checkpoint(ref, root)
    env_steps = int(found.path.name)
    with limited_threads(1):
        agent = load_agent(f"{found.run.path.resolve()}/{found.path.name}", trust=trust)
        treatment = run_treatment(found.run, agent.config, agent.observation_space)
        observed = observe(agent.config, agent, treatment, n_observations)
        policy = deployed_policy(agent, treatment, observed.steps[0].mask is not None)
        about = {
            "run": found.run.id,
            "env_steps": env_steps,
            "compared": f"{observed.n} observations",
        }
        data, largest, inputs, outputs = write(
            policy, observed, _facts(agent, treatment, policy) | about
        )
    path = out or found.run.path / f"policy-{found.path.name}{SUFFIXES[format]}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    except OSError as error:
        raise cannot_write("the exported policy", path, error) from error
    return Exported(
        path=str(path),
        format=format,
        run=found.run.id,
        checkpoint=found.label,
        env_steps=env_steps,
        inputs=inputs,
        outputs=outputs,
        n_compared=observed.n,
        compared_on=observed.source,
        largest_difference=largest,
        size_bytes=len(data),
        env_wrappers=treatment.own_env,
    )


def _facts(agent: Agent, treatment: Treatment, policy: Deployed) -> dict[str, Any]:
    """What a reader of the file alone needs to know; nothing about this machine."""
    config, plain = agent.config, str | int | float | bool | None
    return {
        "gymnasium_solver": __version__,
        "env_id": config.env_id,
        "algo_id": config.algo_id,
        "observation_space": space_to_json(treatment.space),
        "action_space": space_to_json(agent.action_space),
        "carry_width": policy.carry_width,
        "env_wrappers": treatment.own_env,
        "env_kwargs": {k: v for k, v in (config.env_kwargs or {}).items() if isinstance(v, plain)},
    }
