"""DQN on CartPole-v1 or SAC on HalfCheetah-v5, in Stable-Baselines3 or in sbx (its JAX sibling).

Runs in the peers' environment, as a process of its own, and prints one JSON line:

    .venv-peers/bin/python benchmarks/peers/off_policy.py sb3 dqn --seed 1 --threads 1
    .venv-peers/bin/python benchmarks/peers/off_policy.py sbx sac --steps 100000 --eval-every 5000

sbx has SB3's loop, buffer and arguments; only its updates are jitted JAX, so both libraries fit in
one file. DQN has the rl-baselines3-zoo's hyper-parameters, SAC the defaults of both libraries.
`steps_per_s` leaves out start-up, random warm-up and compilation: it counts from `WARM_STEPS` to
the end. Nothing is logged or saved, which is the cheapest the libraries can be.
"""

import argparse
import importlib
import json
import os
import time
from importlib.metadata import version
from typing import Any

MODULES = {"sb3": "stable_baselines3", "sbx": "sbx"}
PACKAGES = {
    "sb3": ("stable-baselines3", "torch", "gymnasium", "mujoco", "numpy"),
    "sbx": ("sbx-rl", "jax", "flax", "optax", "gymnasium", "mujoco", "numpy"),
}
ENV_IDS = {"dqn": "CartPole-v1", "sac": "HalfCheetah-v5"}
STEPS = {"dqn": 50_000, "sac": 3_000}
# Past the random actions and the first rounds of updates, in which sbx compiles.
WARM_STEPS = {"dqn": 2_048, "sac": 600}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "dqn": {
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "buffer_size": 100_000,
        "learning_starts": 1_000,
        "gamma": 0.99,
        "target_update_interval": 10,
        "train_freq": 256,
        "gradient_steps": 128,
        "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04,
        "policy_kwargs": {"net_arch": [256, 256]},
    },
    "sac": {},
}


def train(args: argparse.Namespace) -> dict[str, Any]:
    # After the thread counts are set: the libraries read them when they are loaded.
    from stable_baselines3.common.env_util import make_vec_env

    library = importlib.import_module(MODULES[args.library])
    env_id = ENV_IDS[args.algo]
    arguments = dict(ARGUMENTS[args.algo])
    if args.library == "sb3":
        import torch

        arguments["device"] = "cpu"
        if args.threads:
            torch.set_num_threads(args.threads)
    model = getattr(library, args.algo.upper())(
        "MlpPolicy", make_vec_env(env_id, seed=args.seed), seed=args.seed, verbose=0, **arguments
    )
    watch = _watch(args)
    model.learn(total_timesteps=args.steps, callback=watch)
    watch.mark()
    (start, first), (end, last) = watch.marks[min(1, len(watch.marks) - 2)], watch.marks[-1]
    return {
        "env_steps": model.num_timesteps,
        "steps_per_s": (last - first) / (end - start - watch.eval_s),
        "threads": args.threads,
        "evals": watch.evals,
        "eval_s": watch.eval_s,
    }


def _watch(args: argparse.Namespace) -> Any:
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    class Watch(BaseCallback):
        """Notes the times of the start, of the end of the warm-up and of the end; evaluates."""

        def __init__(self) -> None:
            super().__init__()
            self.marks: list[tuple[float, int]] = []
            self.evals: list[dict[str, float]] = []
            self.eval_s = 0.0  # since the warm-up ended
            self.next_eval = args.eval_every or float("inf")
            self.eval_env: Any = None
            if args.eval_every:
                n_envs = min(16, args.eval_episodes)
                self.eval_env = make_vec_env(
                    ENV_IDS[args.algo], n_envs=n_envs, seed=args.seed + 10_000
                )

        def mark(self) -> None:
            self.marks.append((time.perf_counter(), self.num_timesteps))

        def _on_rollout_start(self) -> None:
            # Called before each `train_freq` steps, so the updates before it are done.
            is_warm = self.num_timesteps >= WARM_STEPS[args.algo]
            if not self.marks or (is_warm and len(self.marks) == 1):
                self.mark()
                self.eval_s = 0.0

        def _on_step(self) -> bool:
            if self.num_timesteps >= self.next_eval:
                self.next_eval += args.eval_every
                start = time.perf_counter()
                mean, _ = evaluate_policy(self.model, self.eval_env, args.eval_episodes)
                self.eval_s += time.perf_counter() - start
                self.evals.append({"env_steps": self.num_timesteps, "mean": float(mean)})
            return True

    return Watch()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("library", choices=MODULES)
    parser.add_argument("algo", choices=ENV_IDS)
    parser.add_argument("--steps", type=int, help="env steps in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, help="the library's choice if left out")
    parser.add_argument("--eval-every", type=int, help="env steps between greedy evaluations")
    parser.add_argument("--eval-episodes", type=int, default=10)
    parser.add_argument("--versions", action="store_true", help="print versions and leave")
    args = parser.parse_args()
    args.steps = args.steps or STEPS[args.algo]
    if args.threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    result: dict[str, Any] = {"versions": {name: version(name) for name in PACKAGES[args.library]}}
    if args.versions:
        importlib.import_module(MODULES[args.library])  # a library that cannot be loaded says so
    else:
        result |= train(args)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
