"""Stable-Baselines3 PPO on CartPole-v1 with the rl-baselines3-zoo hyper-parameters.

Runs in the peers' environment, as a process of its own, and prints one JSON line:

    .venv-peers/bin/python benchmarks/peers/sb3_ppo.py --seed 1 --threads 1
    .venv-peers/bin/python benchmarks/peers/sb3_ppo.py --seed 1 --eval-every 5000 --threshold 475

`steps_per_s` leaves out start-up: it counts from the end of the first iteration to the end of the
last. Nothing is logged or saved, which is the cheapest SB3 can be.
"""

import argparse
import json
import time
from importlib.metadata import version
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

N_ENVS = 8
MAX_EVAL_ENVS = 16  # side by side, as ours: cheaper than one after the other


class Watch(BaseCallback):
    """Notes when iterations begin and, where asked for, evaluates and stops when solved."""

    def __init__(self, args: argparse.Namespace):
        super().__init__()
        self.args = args
        self.marks: list[tuple[float, int]] = []
        self.evals: list[dict[str, float]] = []
        self.eval_s = 0.0
        self.solved = False
        self.next_eval = max(args.eval_from, args.eval_every or 0)
        self.eval_env: Any = None
        if args.eval_every:
            n_envs = min(MAX_EVAL_ENVS, args.eval_episodes)
            self.eval_env = make_vec_env("CartPole-v1", n_envs=n_envs, seed=args.seed + 10_000)

    def _on_rollout_start(self) -> None:
        self.mark()

    def mark(self) -> None:
        self.marks.append((time.perf_counter(), self.num_timesteps))

    def _on_step(self) -> bool:
        if self.eval_env is None or self.num_timesteps < self.next_eval:
            return True
        while self.next_eval <= self.num_timesteps:
            self.next_eval += self.args.eval_every
        start = time.perf_counter()
        mean, _ = evaluate_policy(self.model, self.eval_env, self.args.eval_episodes)
        self.eval_s += time.perf_counter() - start
        self.evals.append({"env_steps": self.num_timesteps, "mean": float(mean)})
        self.solved = float(mean) >= self.args.threshold
        return not self.solved


def train(args: argparse.Namespace) -> dict[str, Any]:
    if args.threads:
        torch.set_num_threads(args.threads)
    model = PPO(
        "MlpPolicy",  # actor and critic of 2 x 64 tanh, as ours
        make_vec_env("CartPole-v1", n_envs=N_ENVS, seed=args.seed),
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gae_lambda=0.8,
        gamma=0.98,
        ent_coef=0.0,
        learning_rate=lambda remaining: remaining * 0.001,
        clip_range=lambda remaining: remaining * 0.2,
        seed=args.seed,
        device="cpu",  # what SB3 advises for PPO with an MLP
        verbose=0,
    )
    watch = Watch(args)
    model.learn(total_timesteps=args.steps, callback=watch)
    watch.mark()
    (start, first), (end, last) = watch.marks[min(1, len(watch.marks) - 2)], watch.marks[-1]
    return {
        "env_steps": model.num_timesteps,
        "steps_per_s": (last - first) / (end - start),
        "threads": torch.get_num_threads(),
        "solved": watch.solved,
        "evals": watch.evals,
        "eval_s": watch.eval_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=100_000, help="env steps in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--threads", type=int, help="torch threads; the library's choice if left out"
    )
    parser.add_argument("--eval-every", type=int, help="env steps between greedy evaluations")
    parser.add_argument("--eval-from", type=int, default=0, help="no evaluation before")
    parser.add_argument("--eval-episodes", type=int, default=20)
    parser.add_argument(
        "--threshold", type=float, default=475.0, help="stop when the mean is there"
    )
    parser.add_argument("--versions", action="store_true", help="print versions and leave")
    args = parser.parse_args()
    packages = ("stable-baselines3", "torch", "gymnasium", "numpy")
    result: dict[str, Any] = {"versions": {name: version(name) for name in packages}}
    if not args.versions:
        result |= train(args)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
