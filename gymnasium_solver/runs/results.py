"""The results of a run, for users in Python. Each access reads the folder as it is now.

run = gs.train("CartPole-v1:ppo")
run.solved, run.test.mean, run.best.score
run.agent().act(obs)
pandas.DataFrame(run.metrics())
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.checkpoint import CheckpointInfo, list_checkpoints
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.summary import Fields, test_score

if TYPE_CHECKING:
    from gymnasium_solver.algos.agent import Agent


@dataclass(frozen=True)
class HeldOutTest:
    """The held-out test of the selected checkpoint."""

    mean: float
    stderr: float | None
    """Standard error of the mean; None with one episode."""
    episodes: int
    greedy: bool
    success: float | None = None
    """Share of the episodes that ended in success, where the env reports it."""


class RunResults(ABC):
    """The read-only part of a Run."""

    path: Path
    id: str

    @abstractmethod
    def meta(self) -> dict[str, Any]:
        """The content of meta.json."""

    def __repr__(self) -> str:
        try:
            return f"Run({str(self.path)!r}, {self._state()})"
        except (RunError, OSError, KeyError):  # a damaged folder
            return f"Run({str(self.path)!r})"

    def _state(self) -> str:
        test, best, solved = self.test, self.best, self.solved
        parts = [self.status, f"{self._fields().count('env_steps') or 0:,} env steps"]
        if solved is not None:
            parts.append("solved" if solved else "not solved")
        if test is not None:
            stderr = "" if test.stderr is None else f" ± {test.stderr:.3g}"
            parts.append(f"test {test.mean:.4g}{stderr}")
        elif best is not None and best.score is not None:
            parts.append(f"best val {best.score:.4g}")
        return ", ".join(parts)

    def _fields(self) -> Fields:
        return Fields(self.meta(), self.path / "meta.json")

    @property
    def status(self) -> str:
        """created, running, finished, interrupted or failed."""
        return self._fields().text("status") or ""

    @property
    def solved(self) -> bool | None:
        """Whether the test reached the threshold; None if the environment has none."""
        return self._fields().flag("solved")

    @property
    def test(self) -> HeldOutTest | None:
        """The held-out test of the best checkpoint; None until the run has been tested."""
        test = self._fields().mapping("test")
        return None if test is None else HeldOutTest(**test_score(test.values))

    @property
    def best(self) -> CheckpointInfo | None:
        """The checkpoint with the best validation score; None if nothing was evaluated."""
        return next((c for c in self._checkpoints() if c.is_best), None)

    @property
    def last(self) -> CheckpointInfo | None:
        """The newest checkpoint."""
        return next((c for c in self._checkpoints() if c.is_last), None)

    def _checkpoints(self) -> list[CheckpointInfo]:
        return list_checkpoints(self.path / "checkpoints")

    def agent(
        self, checkpoint: str = "@best", device: str = "cpu", *, trust: bool = False
    ) -> "Agent":
        """The trained agent: of @best (the last one if nothing was evaluated), @last or
        <env_steps>. `trust`: also import code that the config of a run made elsewhere names."""
        # The package itself loads this name where it is used: `runs` is below `training`.
        import gymnasium_solver as gs

        if checkpoint == "@best" and self.best is None:
            checkpoint = "@last"
        return gs.load(f"{self.path.resolve()}/{checkpoint}", device=device, trust=trust)

    def metrics(self) -> dict[str, list[Any]]:
        """Metrics in columns of the same length, one entry per epoch: {"env_steps": [...], ...}.
        None where an epoch has no value. `pandas.DataFrame(run.metrics())` takes them."""
        rows = read_jsonl(self.path / "metrics.jsonl")
        names = dict.fromkeys(["env_steps", *(name for row in rows for name in row)])
        return {name: [row.get(name) for row in rows] for name in names}
