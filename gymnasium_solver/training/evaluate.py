"""Evaluation on exactly N whole episodes, balanced over envs, with raw returns.

An env that has finished its share is still stepped but no longer counted, so that short episodes
are not over-represented. Normalisation statistics are frozen. The environments are reset with
`seed`: the same policy and seed give the same numbers.
"""

import logging

import numpy as np

from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.goals import successes
from gymnasium_solver.envs.spec import eval_envs, task_rows, task_sizes
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import DivergedError
from gymnasium_solver.policies.policy import Policy
from gymnasium_solver.training.activity import Activity
from gymnasium_solver.training.finite import ENV_ADVICE
from gymnasium_solver.training.observer import EvalResult, eval_result, task_scores

log = logging.getLogger(__name__)

MOST_EVAL_ENVS = 64
MOST_IN_NUMPY = 256  # for envs vectorised in NumPy: a step of 100 envs costs as much as one of 50


def episode_shares(episodes: int, n_envs: int) -> np.ndarray:
    """Number of episodes per env; the numbers differ by at most one."""
    return np.full(n_envs, episodes // n_envs) + (np.arange(n_envs) < episodes % n_envs)


def row_shares(episodes: int, env: VectorEnv) -> np.ndarray:
    """Number of episodes per env, balanced over the tasks as well."""
    n_tasks = len(env.spec.tasks)
    if not n_tasks:
        return episode_shares(episodes, env.n_envs)
    sizes = [size for size in task_sizes(n_tasks, env.n_envs) if size]
    of_task = zip(episode_shares(episodes, len(sizes)), sizes, strict=True)
    return np.concatenate([episode_shares(int(share), size) for share, size in of_task])


def n_eval_envs(config: Config, episodes: int) -> int:
    """Number of envs for an evaluation: as few rounds of episodes as possible, in full rounds.

    For vectorised envs, stepping 50 costs little more than stepping 10. This does not hold if each
    env is a process or an emulator (envs/spec.py).
    """
    most = {
        "array": MOST_IN_NUMPY,
        "many": MOST_EVAL_ENVS,
        "as_training": config.n_envs,
        "one": 1,
    }[eval_envs(config.env_id, config.vectorization_mode)]
    rounds = -(-episodes // most)
    n_envs = config.n_eval_envs or -(-episodes // rounds)
    return min(episodes, max(n_envs, len(config.tasks)))


def evaluate(
    policy: Policy,
    env: VectorEnv,
    episodes: int,
    *,
    greedy: bool,
    seed: int,
    env_steps: int = 0,
    epoch: int = 0,
    activity: Activity | None = None,
) -> EvalResult:
    """`activity`: receives the progress of the evaluation."""
    with policy.still():
        return _evaluate(
            policy, env, episodes, greedy, seed, env_steps, epoch, activity or Activity()
        )


def _evaluate(
    policy: Policy,
    env: VectorEnv,
    episodes: int,
    greedy: bool,
    seed: int,
    env_steps: int,
    epoch: int,
    activity: Activity,
) -> EvalResult:
    began_s, choose = activity.clock_s(), policy.greedy if greedy else policy.sample
    open_share = row_shares(episodes, env)
    tasks, task_of = env.spec.tasks, np.array(task_rows(len(env.spec.tasks) or 1, env.n_envs))
    which: list[int] = []
    returns: list[float] = []
    lengths: list[int] = []
    reached: list[bool] = []
    # Sampling must neither advance the random stream of training nor use its random warm-up.
    before = policy.rng, policy.is_random
    policy.rng, policy.is_random = np.random.default_rng(seed), False
    try:
        obs, carry = env.reset(seed), policy.initial_carry(env.n_envs)
        is_first = np.ones(env.n_envs, bool)
        while len(returns) < episodes:
            if activity.is_paused:
                activity.wait_while_paused()
            actions, carry, *_ = choose(obs, carry, is_first, env.action_mask)
            step = env.step(policy.to_env(actions))
            obs, is_first = step.obs, step.is_reset
            activity.eval_rows += 1
            finished = step.is_over & (open_share > 0)
            if finished.any():
                open_share[finished] -= 1
                which += task_of[finished].tolist()
                returns += step.episode_return[finished].tolist()
                if not np.isfinite(returns[-1]):
                    raise DivergedError(
                        f"{env.spec.env_id}: the return of an episode is {returns[-1]}, so the "
                        f"policy has no score. {ENV_ADVICE}"
                    )
                lengths += step.episode_length[finished].tolist()
                activity.eval_episodes_done = len(returns)
                if (success := successes(step.info, env.n_envs)) is not None:
                    reached += success[finished].tolist()
    finally:
        policy.rng, policy.is_random = before
    took_s = activity.clock_s() - began_s
    log.debug("%d episodes in %d envs took %.2f s", episodes, env.n_envs, took_s)
    return eval_result(
        returns,
        lengths,
        greedy=greedy,
        seed=seed,
        env_steps=env_steps,
        epoch=epoch,
        success=float(np.mean(reached)) if reached else None,
        protocol=env.spec.protocol,
        tasks=task_scores(tasks, which, returns) if tasks else None,
    )
