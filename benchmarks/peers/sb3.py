"""A task of zoo.py in Stable-Baselines3 or in sbx (its JAX sibling), as a process of its own.

    .venv-peers/bin/python -m benchmarks.peers.sb3 sb3 CartPole-v1:ppo --steps 100000 --threads 1
    .venv-peers/bin/python -m benchmarks.peers.sb3 sbx CartPole-v1:ppo --eval-every 5000 \
        --eval-episodes 100 --threshold 475

sbx has SB3's loop, buffer and arguments; only its updates are jitted JAX, so both libraries fit in
one file. Prints one JSON line. `steps_per_s` leaves out start-up, random warm-up and compilation:
it counts from `WARM_STEPS` to the end. Nothing is logged or saved, the cheapest they can be.
"""

import argparse
import importlib
import json
import os
import time
from importlib.metadata import version
from typing import Any

from benchmarks.peers.goal import Goal, add_arguments
from benchmarks.peers.zoo import TASKS, WARM_STEPS

MODULES = {"sb3": "stable_baselines3", "sbx": "sbx"}
PACKAGES = {
    "sb3": ("stable-baselines3", "torch", "gymnasium", "mujoco", "numpy"),
    "sbx": ("sbx-rl", "jax", "flax", "optax", "gymnasium", "mujoco", "numpy"),
}
MAX_EVAL_ENVS = 50  # side by side, as ours: cheaper than one after the other


def train(args: argparse.Namespace) -> dict[str, Any]:
    # After the thread counts are set: the libraries read them when they are loaded.
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    library = importlib.import_module(MODULES[args.side])
    env_id, algo = args.task.split(":")
    arguments = {name: _value(value) for name, value in TASKS[args.task].items()}
    n_envs, total = arguments.pop("n_envs", 1), arguments.pop("total_steps")
    env = make_vec_env(env_id, n_envs=n_envs, seed=args.seed)
    if arguments.pop("normalize", False):
        env = VecNormalize(env, gamma=arguments.get("gamma", 0.99))
    threads = None
    if args.side == "sb3":
        import torch

        arguments["device"] = "cpu"  # what SB3 advises for an MLP
        if args.threads:
            torch.set_num_threads(args.threads)
        threads = torch.get_num_threads()
    model = getattr(library, algo.upper())("MlpPolicy", env, seed=args.seed, verbose=0, **arguments)
    watch = _watch(args, WARM_STEPS[algo])
    model.learn(total_timesteps=args.steps or total, callback=watch)
    watch.mark()
    (start, first), (end, last) = watch.marks[min(1, len(watch.marks) - 2)], watch.marks[-1]
    return {
        "env_steps": model.num_timesteps,
        "steps_per_s": (last - first) / (end - start - watch.eval_s),
        "threads": threads or args.threads,
        **watch.goal.record(),
    }


def _value(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("lin_"):
        start = float(value.removeprefix("lin_"))
        return lambda remaining: remaining * start
    return value


def _watch(args: argparse.Namespace, warm_steps: int) -> Any:
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize, sync_envs_normalization

    class Watch(BaseCallback):
        """Notes the times of the start, of the end of the warm-up and of the end; evaluates."""

        def __init__(self) -> None:
            super().__init__()
            self.marks: list[tuple[float, int]] = []
            self.goal = Goal(args, self.score)
            self.eval_envs: dict[int, Any] = {}
            self.eval_s_before = 0.0

        @property
        def eval_s(self) -> float:
            """Of evaluations since the warm-up ended."""
            return self.goal.eval_s - self.eval_s_before

        def mark(self) -> None:
            self.marks.append((time.perf_counter(), self.num_timesteps))

        def _on_rollout_start(self) -> None:
            # Called before each round of steps, so the updates before it are done.
            is_warm = self.num_timesteps >= warm_steps
            if not self.marks or (is_warm and len(self.marks) == 1):
                self.mark()
                self.eval_s_before = self.goal.eval_s

        def _on_step(self) -> bool:
            return not self.goal.reached(self.num_timesteps)

        def score(self, episodes: int) -> float:
            n_envs = min(MAX_EVAL_ENVS, episodes)
            if n_envs not in self.eval_envs:
                env = make_vec_env(args.task.split(":")[0], n_envs, seed=args.seed + 10_000)
                if isinstance(self.training_env, VecNormalize):
                    env = VecNormalize(env, training=False, norm_reward=False)
                self.eval_envs[n_envs] = env
            env = self.eval_envs[n_envs]
            if isinstance(self.training_env, VecNormalize):
                sync_envs_normalization(self.training_env, env)
            return float(evaluate_policy(self.model, env, episodes)[0])

    return Watch()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("side", choices=MODULES, help="which of the two libraries")
    parser.add_argument("task", choices=TASKS)
    add_arguments(parser)
    args = parser.parse_args()
    if args.threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    result: dict[str, Any] = {"versions": {name: version(name) for name in PACKAGES[args.side]}}
    if args.versions:
        importlib.import_module(MODULES[args.side])  # a library that cannot be loaded says so
    else:
        result |= train(args)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
