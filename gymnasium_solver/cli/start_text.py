"""The description of a run that is about to start: environment, agent, budget."""

from typing import TYPE_CHECKING

from gymnasium_solver.runs.words import ScoreText

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config
    from gymnasium_solver.training.observer import TrainInfo


def header(config: "Config", info: "TrainInfo") -> list[tuple[str, list[str]]]:
    """(label, parts) of each line, the most important part first."""
    spec = info.env_spec
    env = [f"{spec.env_id} × {config.n_envs} on {spec.engine}"]
    if spec.engine_reason:
        env.append(spec.engine_reason)
    agent = [config.algo_id, f"seed {config.seed}", f"{info.n_parameters:,} parameters"]
    agent += [info.device, info.update_mode]
    aim = ScoreText(info.threshold).threshold
    goal = "no threshold" if info.threshold is None else f"solved at {aim}"
    limits = [budget(config, info), goal]
    if info.test_episodes is not None:
        limits.append(f"test of {info.test_episodes:,} {_plural('episode', info.test_episodes)}")
    lines = [("env", env), ("agent", agent), ("budget", limits)]
    if info.resumed_from is not None:
        lines.append(("resumed", [f"at {info.resumed_from:,} env steps"]))
    return lines


def budget(config: "Config", info: "TrainInfo") -> str:
    """The budget that ends the run: epochs or env steps, whichever is reached first."""
    epochs = f"{info.planned_epochs:,} {_plural('epoch', info.planned_epochs)}"
    if ends_by_epochs(config, info):
        return epochs
    return f"{config.max_env_steps:,} env steps (about {epochs})"


def ends_by_epochs(config: "Config", info: "TrainInfo") -> bool:
    """Whether `max_epochs` is reached before `max_env_steps`."""
    return config.max_env_steps is None or info.planned_epochs == config.max_epochs


def _plural(word: str, n: int) -> str:
    return word if n == 1 else f"{word}s"
