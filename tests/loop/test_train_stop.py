"""Early stops: by evaluation, by training episodes; true, a number, null.

Probe/Counting gives returns that are known: env i has episodes of `length` + i steps, reward 1.
"""

from collections.abc import Callable
from typing import Any

import pytest

from gymnasium_solver.training.prepare import load_config
from tests.loop.conftest import Notes

Call = Callable[..., Any]
# One evaluation env: every evaluation and every test scores 5.
EVAL: dict[str, Any] = {"eval_freq_epochs": 2, "eval_episodes": 2, "n_eval_envs": 1}


@pytest.mark.parametrize(
    ("setting", "threshold", "stop", "solved"),
    [
        (True, 5, ("solved", 2), True),
        (True, 5.01, ("max_epochs", 5), False),
        (True, None, ("max_epochs", 5), None),  # the env has no threshold of its own
        (5, 1000, ("goal_reached_eval", 2), False),  # a goal of one's own is not the env's
        (5, 4, ("goal_reached_eval", 2), True),
        (5, 5, ("solved", 2), True),
        (5, None, ("goal_reached_eval", 2), None),
        (5.01, 5, ("max_epochs", 5), True),
        (0, 1000, ("goal_reached_eval", 2), False),
        (None, 1, ("max_epochs", 5), True),
        (False, 1, ("max_epochs", 5), True),
    ],
)
def test_by_evaluation(
    setting: Any, threshold: Any, stop: tuple[str, int], solved: bool | None, train: Call
) -> None:
    run = train(
        *("ppo", "Probe/Counting-v0"),
        max_epochs=5,
        reward_threshold=threshold,
        early_stop_on_eval_threshold=setting,
        **EVAL,
    )
    meta = run.meta()
    assert (meta["stop_reason"], meta["epoch"]) == stop
    assert meta["status"] == "finished"
    assert meta["solved"] is solved
    assert {"mean": 5, "stderr": 0, "episodes": 2, "greedy": True}.items() <= meta["test"].items()


def test_the_registered_threshold_counts_where_none_is_set(train: Call) -> None:
    run = train("ppo", "CartPole-v1", max_epochs=2, **EVAL)
    assert run.meta()["threshold"] == 475
    assert run.meta()["solved"] is False


# Three envs with episodes of 5, 6 and 7 steps: the mean return of training is just below 6.
@pytest.mark.parametrize(
    ("setting", "threshold", "reason", "solved"),
    [
        (5.5, None, "goal_reached_train", None),
        (5.5, 1000, "goal_reached_train", False),
        (5.5, 4, "goal_reached_train", True),
        (True, 5.5, "max_epochs", False),  # the test scores 5: training continues
        (5.5, 5.3, "max_epochs", False),
        (True, 5, "solved", True),
        (7, 5.5, "max_epochs", False),
        (True, 7, "max_epochs", False),
        (True, None, "max_epochs", None),
        (None, 1, "max_epochs", True),
        (False, 1, "max_epochs", True),
    ],
)
def test_by_training_episodes_once_the_window_is_full(
    setting: Any,
    threshold: Any,
    reason: str,
    solved: bool | None,
    train: Call,
    learning_rows: Call,
) -> None:
    run = train(
        *("ppo", "Probe/Counting-v0"),
        n_steps=32,
        max_epochs=10,
        reward_threshold=threshold,
        early_stop_on_train_threshold=setting,
        n_eval_envs=1,
    )
    counts = [row["train/cnt/total_episodes"] for row in learning_rows(run)]
    full = next(i for i, n in enumerate(counts) if n >= 100)
    assert 3 < full < 9, "both the wait and the stop must be visible"
    meta = run.meta()
    assert (meta["stop_reason"], meta["solved"]) == (reason, solved)
    assert len(counts) == (10 if reason == "max_epochs" else full + 1)
    assert (meta["test"] is None) == (threshold is None), "no evaluation: the last one is tested"


def test_a_good_start_is_not_enough(train: Call) -> None:
    """Every episode reaches the goal, but a hundred are asked for."""
    run = train("ppo", "Probe/Counting-v0", max_epochs=5, early_stop_on_train_threshold=1)
    meta = run.meta()
    assert 0 < meta["episodes"] < 100
    assert meta["stop_reason"] == "max_epochs"


@pytest.mark.parametrize(
    ("overrides", "stop", "notes"),
    [
        ({"max_epochs": 6}, ("max_epochs", 6), 1),
        ({}, ("max_epochs", 5), 1),
        ({"early_stop_on_eval_threshold": True}, ("solved", 4), 0),  # as asked for
        ({"reward_threshold": 4.9}, ("solved", 4), 0),  # another goal
    ],
)
def test_a_solved_run_that_is_resumed_trains_on(
    overrides: dict[str, Any], stop: tuple[str, int], notes: int, train: Call, resume: Call
) -> None:
    """It would stop again at its next evaluation."""
    run = train("ppo", "Probe/Counting-v0", max_epochs=5, reward_threshold=5, **EVAL)
    assert (run.meta()["stop_reason"], run.meta()["epoch"]) == ("solved", 2)
    heard = Notes()
    resume(run.id, observer=heard, **overrides)
    meta = run.meta()
    assert (meta["stop_reason"], meta["epoch"]) == stop
    assert (meta["status"], meta["solved"]) == ("finished", True)
    told = [note for note in heard.notes if "early_stop_on_eval_threshold: false" in note]
    assert len(told) == notes
    saved = load_config(str(run.config_path))
    assert saved.early_stop_on_eval_threshold is (notes == 0), "recorded, so a resume repeats it"
