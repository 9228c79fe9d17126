"""Evaluation: exactly N whole episodes, balanced over envs, raw returns, statistics frozen.

An env that is done with its share goes on being stepped but is no longer counted, so that short
episodes are not favoured over long ones. The environments are reset from `seed`, so the same
policy and seed give the same numbers again.
"""

import numpy as np

from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.make import VECTOR_IS_FASTEST
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.policies.policy import Policy
from gymnasium_solver.training.observer import EvalResult

MOST_EVAL_ENVS = 64
MOST_IN_NUMPY = 256  # where one array holds all envs: a step of 100 costs what one of 50 does


def episode_shares(episodes: int, n_envs: int) -> np.ndarray:
    """How many episodes each env contributes: they differ by one at most."""
    return np.full(n_envs, episodes // n_envs) + (np.arange(n_envs) < episodes % n_envs)


def n_eval_envs(config: Config, episodes: int) -> int:
    """Envs an evaluation uses: as few rounds of episodes as can be, and the rounds full.

    Stepping 50 envs of a batch costs little more than stepping 10. Not so where each env is a
    process: `async` and VizDoom get as many as training has, and a console game one emulator.
    """
    most = MOST_EVAL_ENVS
    if config.env_id in VECTOR_IS_FASTEST and config.vectorization_mode in ("auto", "vector"):
        most = MOST_IN_NUMPY
    if config.vectorization_mode == "async" or config.env_id.startswith("VizDoom-"):
        most = config.n_envs
    if closes_between(config):
        most = 1
    rounds = -(-episodes // most)
    return min(episodes, config.n_eval_envs or -(-episodes // rounds))


def closes_between(config: Config) -> bool:
    """Whether the evaluation envs exist only while an evaluation lasts: emulators are heavy."""
    return config.env_id.startswith("Retro/")


def evaluate(
    policy: Policy,
    env: VectorEnv,
    episodes: int,
    *,
    greedy: bool,
    seed: int,
    env_steps: int = 0,
    epoch: int = 0,
) -> EvalResult:
    choose = policy.greedy if greedy else policy.sample
    open_share = episode_shares(episodes, env.n_envs)
    returns: list[float] = []
    lengths: list[int] = []
    # Sampling must not disturb the training's random stream, nor act randomly as a warm-up does.
    before = policy.rng, policy.is_random
    policy.rng, policy.is_random = np.random.default_rng(seed), False
    try:
        obs, carry = env.reset(seed), policy.initial_carry(env.n_envs)
        is_first = np.ones(env.n_envs, bool)
        while len(returns) < episodes:
            actions, carry, _ = choose(obs, carry, is_first, env.action_mask)
            step = env.step(policy.to_env(actions))
            obs, is_first = step.obs, step.is_reset
            finished = step.is_over & (open_share > 0)
            if finished.any():
                open_share[finished] -= 1
                returns += step.episode_return[finished].tolist()
                lengths += step.episode_length[finished].tolist()
    finally:
        policy.rng, policy.is_random = before
    return EvalResult(
        env_steps=env_steps,
        epoch=epoch,
        episodes=episodes,
        greedy=greedy,
        seed=seed,
        mean=float(np.mean(returns)),
        std=float(np.std(returns)),
        min=float(np.min(returns)),
        max=float(np.max(returns)),
        length_mean=float(np.mean(lengths)),
        returns=returns,
        lengths=lengths,
        protocol=env.spec.protocol,
    )
