"""The profile of updates: every moment is charged once, to the innermost part that runs."""

from typing import Any

import pytest

from benchmarks import harness, profile_updates
from benchmarks.profile_updates import LOOP, ORDER, SAMPLE, UPDATE, Clock
from gymnasium_solver.algos.batch import Batch
from gymnasium_solver.config.load import load_config
from gymnasium_solver.data.memory import Memory

SMALL: dict[str, Any] = {"seed": 1, "n_threads": 1, "hidden_dims": (8,), "n_steps": 64}


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, s: float) -> None:
        self.now += s


def test_the_innermost_part_is_charged() -> None:
    hand = Hand()
    clock = Clock(hand)
    inner = clock.around(lambda: hand.wait(4.0), "gradient")

    def update() -> None:
        hand.wait(1.0)
        inner()
        hand.wait(2.0)

    hand.wait(0.5)
    clock.around(update, "update")()
    hand.wait(0.25)
    clock.charge()
    assert clock.seconds == {LOOP: 0.75, "update": 3.0, "gradient": 4.0}


def test_an_error_leaves_the_part() -> None:
    hand = Hand()
    clock = Clock(hand)
    with pytest.raises(ZeroDivisionError):
        clock.around(lambda: 1 / 0, "update")()
    hand.wait(1.0)
    clock.charge()
    assert clock.seconds[LOOP] == 1.0


def test_an_iterators_items_are_charged_and_not_what_is_done_with_them() -> None:
    hand = Hand()
    clock = Clock(hand)

    def batches(n: int) -> Any:
        for i in range(n):
            hand.wait(1.0)
            yield i

    got = []
    for item in clock.around_each(batches, SAMPLE)(3):
        got.append(item)
        hand.wait(10.0)
    clock.charge()
    assert got == [0, 1, 2]
    assert clock.seconds == {LOOP: 30.0, SAMPLE: 3.0}


@pytest.mark.parametrize(("name", "algo"), [("CartPole-v1:dqn", "dqn"), ("Pendulum-v1:sac", "sac")])
def test_a_training_is_split_into_parts(name: str, algo: str) -> None:
    before = (Memory.batches, Memory.add, Batch.__dict__["of"])
    config = load_config(name).replace(
        **SMALL, max_env_steps=256, learning_starts=32, train_freq=16, eval_freq_epochs=None
    )
    found = profile_updates.profile(config, warm_steps=60)
    assert (Memory.batches, Memory.add, Batch.__dict__["of"]) == before
    assert list(found["us_a_step"]) == ORDER
    assert all(us > 0 for us in found["us_a_step"].values())
    assert found["steps_per_s"] == pytest.approx(1e6 / sum(found["us_a_step"].values()))


def test_too_short_a_training_is_refused() -> None:
    config = load_config("CartPole-v1:dqn").replace(
        **SMALL, max_env_steps=64, learning_starts=32, train_freq=16, eval_freq_epochs=None
    )
    with pytest.raises(ValueError, match="raise max_env_steps"):
        profile_updates.profile(config, warm_steps=1_000)


def test_the_table_has_shares() -> None:
    us = dict.fromkeys(ORDER, 0.0) | {"env": 25.0, UPDATE: 75.0}
    found = {"dqn": {"env_steps": 100, "us_a_step": us, "steps_per_s": 10_000.0}}
    text = profile_updates.markdown(harness.header("x") | {"profiles": found, "others_cores": None})
    assert "| env | 25 | 25.0% |" in text
    assert f"| {UPDATE} | 75 | 75.0% |" in text
    assert "| steps/s with the clock | 10,000 |" in text
