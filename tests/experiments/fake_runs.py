"""A backend whose trainings end at once: the score is a function of the config."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gymnasium_solver.config.yaml_file import read_file
from gymnasium_solver.runs.run import Run

Score = Callable[[Mapping[str, Any], int], float]
VAL = "val/roll/ep_rew/mean"


def score(config: Mapping[str, Any], seed: int) -> float:
    """Best at a learning rate of 1e-3 and 10 epochs, with a little noise by the seed."""
    lr = config["policy_lr"]
    lr = lr["start"] if isinstance(lr, Mapping) else lr
    noise = (seed % 97) / 97
    return 300.0 - 80 * abs(math.log10(lr) + 3) - 5 * abs(config["n_epochs"] - 10) + noise


class FakeBackend:
    """`crash_after`: the coordinator dies after so many starts, before or after the training."""

    def __init__(self, score: Score = score, crash_after: int | None = None) -> None:
        self.score, self.crash_after = score, crash_after
        self.started: list[str] = []

    def start(self, argv: Sequence[str], folder: Path, *, cpus: int | None = None) -> None:
        words = list(argv)
        if self.crash_after is not None and len(self.started) >= self.crash_after:
            raise KeyboardInterrupt
        self.started.append("/".join(folder.parts[-3:]))
        config, _ = read_file(Path(words[words.index("train") + 1]))
        train(folder, config, int(words[words.index("--seed") + 1]), self.score)

    def is_running(self, folder: Path) -> bool:
        return False

    def exit_code(self, folder: Path) -> int | None:
        return 0

    def stuck(self, folder: Path) -> int:
        return 0

    def stop(self, folder: Path) -> None:
        pass  # nothing runs

    def tail(self, folder: Path, lines: int = 20) -> list[str]:
        return []


def finished(root: Path, name: str, score: float, seed: int = 1, **meta: Any) -> Run:
    """A tested run without a curve."""
    identity = {"env_id": "CartPole-v1", "algo_id": "ppo", "seed": seed}
    run = Run.create("env_id: CartPole-v1\nalgo_id: ppo\n", identity, root, name=name)
    test = {"mean": score, "stderr": 0.0, "episodes": 9, "greedy": True}
    run.update_meta(**{"status": "finished", "test": test, **meta})
    return run


def train(folder: Path, config: Mapping[str, Any], seed: int, score: Score = score) -> None:
    """Write the folder of a finished run whose curve rises to its score."""
    identity = {"env_id": config["env_id"], "algo_id": config["algo_id"], "seed": seed,
                "reward_threshold": 475.0}  # fmt: skip
    folder.parent.mkdir(parents=True, exist_ok=True)
    value = score(config, seed)
    with Run.create(
        f"env_id: {config['env_id']}\n", identity, folder.parent, name=folder.name
    ) as run:
        budget = config["max_env_steps"]
        if math.isnan(value):
            run.update_meta(status="failed", stop_reason="diverged", stop_detail="not finite")
            return
        (run.checkpoints_dir / "100").mkdir()
        for part in range(1, 11):
            row = {"env_steps": budget * part // 10, VAL: value * part / 10}
            run.log_metrics(row | {"train/roll/ep_rew/mean": value * part / 10 - 1})
        test = {"mean": value, "stderr": 1.0, "episodes": 100, "greedy": True}
        best = {"score": value, "env_steps": budget, "epoch": 10}
        run.update_meta(
            status="finished", stop_reason="max_env_steps", env_steps=budget, wall_s=1.0,
            test=test, best=best, solved=value >= 475, last_eval={"mean": value},
        )  # fmt: skip
