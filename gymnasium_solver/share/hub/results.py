"""The scores of a run for its model card and results.json, with statistics over seeds.

Runs beside it whose configs differ only by the seed are its siblings (experiments/groups.py).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.experiments.groups import Group, group_runs
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS, Estimate, interval, iqm, mean
from gymnasium_solver.runs.query import RunSummary, get_events, list_runs
from gymnasium_solver.runs.run import Run


@dataclass(frozen=True)
class Results:
    mean: float | None
    std: float | None
    stderr: float | None
    episodes: int
    is_greedy: bool
    at: str
    """When it was tested."""
    solved: bool | None
    threshold: float | None
    env_steps: int
    seeds: dict[str, Any] | None
    """Statistics over the seeds of this config, if several were trained."""

    @property
    def text(self) -> str:
        """As the zoo writes it: the mean and the standard deviation of the episodes."""
        if self.mean is None:
            return "not tested"
        return f"{self.mean:.2f} +/- {0.0 if self.std is None else self.std:.2f}"

    def to_dict(self) -> dict[str, Any]:
        """results.json: the zoo's names, then ours."""
        return {
            "mean_reward": self.mean,
            "std_reward": self.std,
            "is_deterministic": self.is_greedy,
            "n_eval_episodes": self.episodes,
            "eval_datetime": self.at,
            "stderr_reward": self.stderr,
            "solved": self.solved,
            "threshold": self.threshold,
            "env_steps": self.env_steps,
            "seeds": self.seeds,
        }


def read_results(run: Run, summary: RunSummary, root: Path) -> Results:
    """The held-out test of the run; without one its best validation."""
    events = get_events(run, "eval")
    tests = [event for event in events if event.get("stage") == "test"]
    judged = [e for e in tests if summary.test and e.get("greedy") == summary.test["greedy"]]
    best = None if summary.best is None else summary.best["env_steps"]
    shown = judged or tests or [e for e in events if e.get("env_steps") == best] or events
    event = shown[-1] if shown else {}
    return Results(
        mean=event.get("mean"),
        std=event.get("std"),
        stderr=event.get("stderr"),
        episodes=int(event.get("episodes") or 0),
        is_greedy=bool(event.get("greedy", True)),
        at=str(event.get("at", "")),
        solved=summary.solved,
        threshold=summary.threshold,
        env_steps=int(event.get("env_steps") or summary.env_steps),
        seeds=_seeds(run, summary, root),
    )


def _seeds(run: Run, summary: RunSummary, root: Path) -> dict[str, Any] | None:
    group = siblings(run, summary, root)
    if group is None or len(group.scores) < 2:
        return None
    scores = group.scores
    found: dict[str, Any] = {
        "n": len(scores),
        "n_solved": group.n_solved,
        "scores": scores,
        "mean": interval(scores, mean).to_dict(),
    }
    if len(scores) >= FEWEST_SEEDS:
        found["iqm"] = interval(scores, iqm).to_dict()
    return found


def siblings(run: Run, summary: RunSummary, root: Path) -> Group | None:
    """The finished runs of the same config, this one included."""
    if run.path.resolve().parent != root.resolve():
        return None
    same = [
        other.id
        for other in list_runs(root)
        if (other.env_id, other.algo_id) == (summary.env_id, summary.algo_id)
        and other.status == "finished"
    ]
    try:
        groups = group_runs([str(root / name) for name in same], root)
    except GsolveError:  # a sibling that cannot be read is no reason not to publish
        return None
    for group in groups:
        if any(member.summary.id == summary.id for member in group.members):
            return group
    return None


def estimate_text(estimate: dict[str, Any]) -> str:
    value = Estimate(**estimate)
    return f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"
