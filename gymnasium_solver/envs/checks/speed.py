"""How fast an environment steps."""

import time

from gymnasium_solver.envs.random_policy import RandomPolicy
from gymnasium_solver.envs.vector import VectorEnv

WARM_UP_S, MEASURED_S = 0.05, 0.1


def steps_per_s(env: VectorEnv) -> float:
    """Env steps per second with fixed random actions, after a warm-up.

    The first steps build and allocate, so they are not measured."""
    env.reset(0)
    actions = RandomPolicy(env.action_space, env.n_envs, seed=0).act(env.action_mask)
    speed = 0.0
    for span_s in (WARM_UP_S, MEASURED_S):
        begun_s, n_steps, took_s = time.perf_counter(), 0, 0.0
        while took_s < span_s:
            env.step(actions)
            n_steps += 1
            took_s = time.perf_counter() - begun_s
        speed = n_steps * env.n_envs / took_s
    return speed
