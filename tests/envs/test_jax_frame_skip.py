"""JAX environments hold actions inside their compiled step."""

from typing import Any

import numpy as np
import pytest

from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.errors import EnvError

pytest.importorskip("gymnax", reason="the extra jax is not installed")


def steps(skip: int, n_steps: int) -> list[Any]:
    env = make_vector_env("Gymnax/CartPole-v1", 3, frame_options={"frame_skip": skip})
    env.reset(1)
    return [env.step(np.ones(3, np.int64)) for _ in range(n_steps)]


def test_rewards_are_added_up_and_an_end_stops_the_frames() -> None:
    """Pushed to one side the pole falls after 9 or 10 frames, with a reward of 1 each."""
    single = steps(1, 12)
    ends = [min(t + 1 for t, step in enumerate(single) if step.is_over[i]) for i in range(3)]
    held = steps(4, 4)
    for i, end in enumerate(ends):
        totals = [step.reward[i] for step in held]
        assert totals[0] == totals[1] == 4.0
        over = next(t for t, step in enumerate(held) if step.is_over[i])
        assert held[over].episode_return[i] == end
        assert over == (end - 1) // 4


def test_a_random_number_of_frames_is_refused() -> None:
    with pytest.raises(EnvError, match="fixed number of frames"):
        make_vector_env("Gymnax/CartPole-v1", 1, env_wrappers=[{"id": "FrameSkip", "skip": [2, 4]}])
