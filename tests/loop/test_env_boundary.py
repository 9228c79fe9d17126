"""When all envs are reset: often enough for a quick resume, never before a game can end."""

from dataclasses import replace

import pytest

from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.training.collect import boundary_steps
from gymnasium_solver.training.prepare import load_config

SPEC = make_vector_env("Probe/ConstantReward-v0", 1).spec


@pytest.mark.parametrize(
    ("limit", "n_envs", "given", "expected"),
    [
        (500, 8, "auto", 250_000),
        (27_000, 64, "auto", 1_728_000),  # Pong: a cut after 3,906 steps would end no game
        (None, 64, "auto", 250_000),
        (2**31 - 1, 16, "auto", 480_000),
        (27_000, 64, 1000, 1000),
    ],
)
def test_boundary_waits_for_the_longest_episode(limit, n_envs, given, expected):
    config = load_config("CartPole-v1:ppo").replace(n_envs=n_envs, env_boundary_steps=given)
    assert boundary_steps(config, replace(SPEC, max_episode_steps=limit)) == expected
