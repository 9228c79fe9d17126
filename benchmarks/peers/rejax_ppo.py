"""rejax's PPO on gymnax (envs and updates one jitted program), as a process of its own.

    .venv-peers-jax/bin/python -m benchmarks.peers.rejax_ppo zoo --steps 100000
    .venv-peers-jax/bin/python -m benchmarks.peers.rejax_ppo CartPole-v1 --eval-every 5000 \
        --eval-episodes 100 --threshold 475

Prints one JSON line. The time to compile is told apart (`compile_s`): `steps_per_s` leaves it out,
the time from the shell has it. Without evaluations the whole training is one compiled program, the
fastest rejax can be; with them a program a round, since it has to look at the scores in between.
Not as in the other libraries: the learning rate and the clip range stay as they start, gradients
are clipped by value, the value loss is clipped. None of these changes the cost.
"""

import argparse
import json
import os
import time
from importlib.metadata import version
from typing import Any

from benchmarks.peers.goal import Goal, add_arguments
from benchmarks.peers.zoo import REJAX_TASKS

PACKAGES = ("rejax", "gymnax", "jax", "flax", "optax", "numpy")


def train(args: argparse.Namespace) -> dict[str, Any]:
    from rejax import get_algo

    config = dict(REJAX_TASKS[args.task])
    per_round = config["num_envs"] * config["num_steps"]
    total = args.steps or config["total_timesteps"]
    n_rounds = -(-total // per_round)
    config |= {
        "total_timesteps": n_rounds * per_round,
        "eval_freq": n_rounds * per_round,
        "skip_initial_evaluation": True,
    }
    algo = get_algo("ppo").create(**config)
    algo = algo.replace(eval_callback=lambda algo, ts, rng: ())  # nothing but training
    if args.eval_every:
        return solve(algo, args, per_round, n_rounds)
    return whole(algo, args, n_rounds * per_round)


def whole(algo: Any, args: argparse.Namespace, env_steps: int) -> dict[str, Any]:
    import jax

    key = jax.random.PRNGKey(args.seed)
    start = time.perf_counter()
    program = jax.jit(algo.train).lower(key).compile()
    compile_s = time.perf_counter() - start
    start = time.perf_counter()
    jax.block_until_ready(program(key))
    run_s = time.perf_counter() - start
    return {
        "env_steps": env_steps,
        "steps_per_s": env_steps / run_s,
        "compile_s": compile_s,
        "threads": args.threads,
    }


def solve(algo: Any, args: argparse.Namespace, per_round: int, n_rounds: int) -> dict[str, Any]:
    import jax
    import numpy as np

    start = time.perf_counter()
    ts = jax.jit(algo.init_state)(jax.random.PRNGKey(args.seed))
    learn = jax.jit(algo.train_iteration).lower(ts).compile()
    play = jax.jit(lambda ts, key: returns(algo, ts, key, args.eval_episodes))
    play = play.lower(ts, jax.random.PRNGKey(0)).compile()
    compile_s = time.perf_counter() - start

    def score(episodes: int) -> float:
        key = jax.random.PRNGKey(args.seed + 10_000 + int(ts.global_step))
        return float(np.mean(play(ts, key)))

    # All episodes at once: a second program for few of them would take longer to compile.
    goal, env_steps = Goal(args, score, screen_episodes=args.eval_episodes), 0
    start = time.perf_counter()
    for _ in range(n_rounds):
        ts = jax.block_until_ready(learn(ts))
        env_steps += per_round
        if goal.reached(env_steps):
            break
    run_s = time.perf_counter() - start - goal.eval_s
    return {
        "env_steps": env_steps,
        "steps_per_s": env_steps / run_s,
        "compile_s": compile_s,
        "threads": args.threads,
        **goal.record(),
    }


def returns(algo: Any, ts: Any, key: Any, episodes: int) -> Any:
    """Returns of greedy episodes; rejax's own evaluation draws its actions."""
    from jax import numpy as jnp
    from rejax.evaluate import evaluate

    def act(obs: Any, rng: Any) -> Any:
        if algo.normalize_observations:
            obs = algo.normalize_obs(ts.obs_rms_state, obs)
        dist = algo.actor.apply(ts.actor_ts.params, obs[None], method="_action_dist")
        if algo.discrete:
            return dist.mode()[0]
        low, high = algo.action_space.low, algo.action_space.high
        return jnp.clip(dist.mode()[0], low, high)

    return evaluate(act, key, algo.env, algo.env_params, episodes)[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("task", choices=REJAX_TASKS)
    add_arguments(parser)
    args = parser.parse_args()
    if args.threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    result: dict[str, Any] = {"versions": {name: version(name) for name in PACKAGES}}
    if args.versions:
        import rejax  # noqa: F401  (a library that cannot be loaded says so)
    else:
        result |= train(args)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
