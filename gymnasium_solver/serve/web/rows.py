"""A run as a row of the table, short: thousands of them travel at once."""

from typing import Any

from gymnasium_solver.runs.summary import RunSummary

COLUMNS = (
    "n", "id", "env_id", "algo_id", "variant", "seed", "created_at", "status", "stop_reason",
    "solved", "test", "stderr", "episodes_tested", "best", "env_steps", "max_env_steps", "episodes",
    "wall_s", "threshold", "tags", "note",
)  # fmt: skip
LONGEST_NOTE = 200


def row(number: int, run: RunSummary) -> list[Any]:
    """The values of COLUMNS."""
    test = run.test
    return [
        number, run.id, run.env_id, run.algo_id, run.variant, run.seed, run.created_at, run.status,
        run.stop_reason, run.solved, test["mean"] if test else None,
        test["stderr"] if test else None, test["episodes"] if test else None,
        run.best["score"] if run.best else None, run.env_steps, run.max_env_steps, run.episodes,
        run.wall_s, run.threshold, run.tags, run.note[:LONGEST_NOTE],
    ]  # fmt: skip
