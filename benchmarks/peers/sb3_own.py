"""The defaults of Stable-Baselines3 or sbx on an environment (own_tasks.py, auto.py), as its own
process.

    .venv-peers/bin/python -m benchmarks.peers.sb3_own Grid-v0:ppo --steps 50000 --seed 1
    .venv-peers/bin/python -m benchmarks.peers.sb3_own Grid-v0:dqn --peer sbx --seed 1

Nothing is set but the policy class that the spaces require. Prints one JSON line with the score of
the last policy over whole greedy episodes.
"""

import argparse
import json
import time
from importlib import import_module
from importlib.metadata import version

import gymnasium
import numpy as np

import benchmarks.own_tasks  # noqa: F401  (registers the environments)

DISTRIBUTIONS = {"stable_baselines3": "stable-baselines3", "sbx": "sbx-rl"}
LONGEST = 1000  # steps of an episode without a limit: a greedy policy may go round in circles


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("task", help="ENV:ALGO")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--peer", choices=tuple(DISTRIBUTIONS), default="stable_baselines3")
    args = parser.parse_args()
    peer = import_module(args.peer)
    packages = {"stable-baselines3", DISTRIBUTIONS[args.peer]}
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    name, _, algo = args.task.rpartition(":")
    module, _, env_id = name.rpartition(":")
    if module:
        import_module(module)
    limit = gymnasium.spec(env_id).max_episode_steps or LONGEST
    env = gymnasium.make(env_id, max_episode_steps=limit)
    is_dict = isinstance(env.observation_space, gymnasium.spaces.Dict)
    policy = "MultiInputPolicy" if is_dict else "MlpPolicy"
    began = time.perf_counter()
    model = getattr(peer, algo.upper())(policy, env, seed=args.seed, device="cpu", verbose=0)
    model.learn(args.steps)
    wall_s = time.perf_counter() - began
    eval_env = Monitor(gymnasium.make(env_id, max_episode_steps=limit))
    eval_env.reset(seed=args.seed + 10_000)
    returns, _ = evaluate_policy(
        model, eval_env, args.episodes, deterministic=True, return_episode_rewards=True
    )
    print(
        json.dumps(
            {
                "env_steps": model.num_timesteps,
                "wall_s": wall_s,
                "score": float(np.mean(returns)),
                "stderr": float(np.std(returns, ddof=1) / len(returns) ** 0.5),
                "versions": {name: version(name) for name in packages},
            }
        )
    )


if __name__ == "__main__":
    main()
