"""The profile of updates: a training without its warm-up, split into parts."""

from typing import Any

import pytest

from benchmarks import profile_start, profile_updates
from benchmarks.profile_updates import ORDER
from gymnasium_solver.training.prepare import load_config

SMALL: dict[str, Any] = {"seed": 1, "n_threads": 1, "hidden_dims": (8,), "n_steps": 64}


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("CartPole-v1:dqn", set()),
        ("Pendulum-v1:sac", {"target network"}),  # it moves in the pass of the optimiser
    ],
)
def test_a_training_is_split_into_parts(name: str, absent: set[str]) -> None:
    config = load_config(name).replace(
        **SMALL, max_env_steps=256, learning_starts=32, train_freq=16, eval_freq_epochs=None
    )
    found = profile_updates.profile(config, warm_steps=60)
    assert list(found["us_a_step"]) == ORDER
    assert {part for part, us in found["us_a_step"].items() if us <= 0} == absent
    assert found["steps_per_s"] == pytest.approx(1e6 / sum(found["us_a_step"].values()))


def test_too_short_a_training_is_refused() -> None:
    config = load_config("CartPole-v1:dqn").replace(
        **SMALL, max_env_steps=64, learning_starts=32, train_freq=16, eval_freq_epochs=None
    )
    with pytest.raises(ValueError, match="raise max_env_steps"):
        profile_updates.profile(config, warm_steps=1_000)


def test_the_parts_of_a_short_run_add_up() -> None:
    seconds = {
        "interpreter": (0.1, 0.01),
        "torch": (1.1, 0.3),
        "imports": (1.5, 0.4),
        "training": (2.5, 0.5),
    }
    found = profile_start.parts(seconds)
    assert list(found.values()) == pytest.approx([0.1, 1.0, 0.4, 1.0, 0.3, 0.2])
    assert sum(found.values()) == pytest.approx(2.5 + 0.5)


def test_cpu_seconds_tell_work_from_exit() -> None:
    burn = "import time\nt = time.process_time()\nwhile time.process_time() < t + 0.2: pass\n"
    work, leave = profile_start.cpu_seconds(burn)
    assert work > 0.2
    at_exit = f"import atexit\natexit.register(lambda: exec({burn!r}))"
    _, later = profile_start.cpu_seconds(at_exit)
    assert later > leave + 0.1
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        profile_start.cpu_seconds("1 / 0")
