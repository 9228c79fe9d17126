"""Numbers of a config that change during training: what learners read, and exact resume."""

from collections.abc import Callable
from typing import Any

import pytest

from gymnasium_solver.config.schedule import Schedule
from gymnasium_solver.errors import ConfigError

Call = Callable[..., Any]
RISING = {"start": 0.5, "end": 0.9}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": (
        "CartPole-v1",
        {
            "gamma": RISING,
            "gae_lambda": {"start": 0.9, "end": 0.5, "schedule": "cosine"},
            "n_epochs": {"start": 1, "end": 4},
            "target_kl": {"start": 0.5, "end": 0.1, "schedule": "exponential"},
            "max_grad_norm": {"start": 1.0, "end": 0.1, "schedule": "polynomial", "power": 2},
            "weight_decay": {"schedule": "piecewise", "points": [[0, 0.1], [0.5, 0.0], [1, 0.2]]},
        },
    ),
    "dqn": (
        "CartPole-v1",
        {
            "gamma": RISING,
            "tau": {"start": 0.5, "end": 0.1},
            "prioritized": True,
            "per_alpha": {"start": 0.9, "end": 0.2},
            "updates_per_step": {"start": 0.3, "end": 1.0},
        },
    ),
    "td3": (
        "Pendulum-v1",
        {"target_noise": {"start": 0.5, "end": 0.1}, "tau": {"start": 0.5, "end": 0.1}},
    ),
}


@pytest.mark.parametrize("algo_id", list(CASES))
def test_scheduled_numbers_are_followed_and_resumed_exactly(
    algo_id: str, exact_resume: Call, learning_rows: Call
) -> None:
    env_id, scheduled = CASES[algo_id]
    fields = {"max_epochs": 7, "max_episode_steps": 30, **scheduled}
    whole, _ = exact_resume(algo_id, env_id, at=6, every=4, **fields)
    rows = learning_rows(whole)
    for name, written in scheduled.items():
        if isinstance(written, dict):
            schedule, total = Schedule.parse(written), 7 * 3 * 16
            before = [0] + [row["env_steps"] for row in rows[:-1]]
            seen = [row[f"train/hp/{name}"] for row in rows]
            if algo_id == "ppo":  # one update an epoch, at the clock before it
                assert seen == pytest.approx([schedule.at(step, total) for step in before])
            assert len(set(seen)) > 1


def test_a_schedule_that_stays_at_a_value_learns_what_the_value_does(
    train: Call, weight_hash: Call
) -> None:
    """So it is the value of the schedule that learners read."""
    plain = train("ppo", "CartPole-v1", gamma=0.7, gae_lambda=0.6, n_epochs=3, max_grad_norm=0.1)
    flat = {"schedule": "piecewise", "points": [[0, 0.7], [1, 0.7]]}
    other = train(
        "ppo",
        "CartPole-v1",
        gamma=flat,
        gae_lambda={"start": 0.6, "end": 0.6},
        n_epochs={"start": 3, "end": 3},
        max_grad_norm={"start": 0.1, "end": 0.1},
    )
    assert weight_hash(plain) == weight_hash(other)


def test_the_number_of_epochs_is_rounded(train: Call, learning_rows: Call) -> None:
    counted = train("ppo", "CartPole-v1", n_epochs={"start": 1, "end": 3}, batch_size=1.0)
    assert [row["train/hp/n_epochs"] for row in learning_rows(counted)] == pytest.approx(
        [1.0, 1.5, 2.0, 2.5], abs=0.1
    )


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("gamma", 1.5, "gamma"),
        ("gamma", {"start": 0.9, "end": 1.5}, "<= 1"),
        ("n_epochs", 2.5, "n_epochs"),
        ("n_epochs", {"start": 0, "end": 3}, ">= 1"),
        ("gamma", {"start": 0.9, "end": 0.5, "schedule": "polynomial"}, "needs power"),
        ("gamma", "high", "expected a number"),
    ],
)
def test_wrong_values_are_refused(make_config: Call, field: str, value: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_config("ppo", "CartPole-v1", **{field: value})


def test_a_polynomial_schedule() -> None:
    schedule = Schedule.parse({"start": 1, "end": 0.2, "schedule": "polynomial", "power": 2})
    assert [schedule.at(step, 100) for step in (0, 50, 100)] == pytest.approx([1, 0.4, 0.2])
    assert Schedule.parse(schedule.dump()) == schedule
