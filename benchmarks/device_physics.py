"""PPO on a physics simulator that lives on the GPU, beside the simulator's own rate.

    .venv/bin/python -m benchmarks.device_physics            (an NVIDIA GPU, jax with CUDA, brax)
    .venv/bin/python -m benchmarks.device_physics --env ant --backend spring --n-envs 4096

simulator   Brax alone: one jitted scan of rows of its own training wrapper (vectorised, time limit,
            autoreset) with random actions.
training    our PPO on `Brax/<env>` with as many environments: rollouts of 32 steps, `--epochs`
            passes of four minibatches, 2x256. All of a training counts: metrics, checks, files.

Their ratio says how much of the simulator's rate a training keeps. Results are printed, and written
to results/device_physics.json and .md. Most of the time goes into XLA's compiler.
"""

import argparse
import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.device_envs import train_for

NAME = "device_physics"
N_STEPS = 32
LIMIT = 1000  # steps of an episode, Brax's own


def simulated(env_name: str, backend: str, n_envs: int, seconds: float) -> dict[str, Any]:
    """Env steps a second of Brax alone."""
    import jax
    from brax import envs

    began = time.perf_counter()
    env = envs.create(env_name, episode_length=LIMIT, batch_size=n_envs, backend=backend)

    def row(state: Any, key: Any) -> tuple[Any, None]:
        actions = jax.random.uniform(key, (n_envs, env.action_size), minval=-1.0, maxval=1.0)
        return env.step(state, actions), None

    @jax.jit
    def rollout(state: Any, key: Any) -> Any:
        return jax.lax.scan(row, state, jax.random.split(key, N_STEPS))[0]

    key = jax.random.key(1)
    state = jax.jit(env.reset)(key)
    for _ in range(2):  # the second one may compile again, for the types that the first one gives
        state = jax.block_until_ready(rollout(state, key))
    setup_s, rates = time.perf_counter() - began, list[float]()
    while sum(rates) < seconds:
        key, inner = jax.random.split(key)
        before = time.perf_counter()
        state = jax.block_until_ready(rollout(state, inner))
        rates.append(time.perf_counter() - before)
    steps_per_s = n_envs * N_STEPS * len(rates) / sum(rates)
    return {"steps_per_s": steps_per_s, "setup_s": setup_s, "jax": jax.__version__}


def training(args: argparse.Namespace, n_epochs: int) -> dict[str, Any]:
    from gymnasium_solver.training.prepare import load_config

    config = load_config(f"Brax/{args.env}:ppo").replace(
        env_kwargs={"backend": args.backend},
        n_envs=args.n_envs,
        n_steps=N_STEPS,
        batch_size=args.n_envs * N_STEPS // 4,
        n_epochs=n_epochs,
        hidden_dims=[256, 256],
        max_env_steps=20_000_000_000,
        eval_freq_epochs=None,
        perf="fast",
        compile=True,
        device=args.device,
        seed=1,
    )
    return train_for(config, args.seconds)


def markdown(result: dict[str, Any]) -> str:
    from gymnasium_solver.bench.harness import describe, table

    own = result["rows"][0]["steps_per_s"]
    rows = [
        (row["way"], f"{row['steps_per_s'] / 1e6:.3f}M", f"{row['steps_per_s'] / own:.2f}")
        for row in result["rows"]
    ]
    head = f"{result['env']} ({result['backend']}), {result['n_envs']:,} environments"
    parts = ["# Physics on the GPU", describe(result), table((head, "steps/s", "of it"), rows)]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="device_physics.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--env", default="ant", help="one of Brax's environments")
    parser.add_argument("--backend", default="spring", help="spring, positional, generalized, mjx")
    parser.add_argument("--n-envs", type=int, default=4096)
    parser.add_argument("--epochs", type=int, nargs="+", default=[1], help="passes over a rollout")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each line")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # torch needs memory of the GPU too
    from gymnasium_solver.bench.harness import header, say, write

    result = header(shlex.join(["python", "-m", f"benchmarks.{NAME}", *sys.argv[1:]]))
    told = {"benchmark": NAME, "env": args.env, "backend": args.backend, "n_envs": args.n_envs}
    result |= {**told, "rows": []}
    ways: dict[str, Any] = {
        "the simulator alone": lambda: simulated(args.env, args.backend, args.n_envs, args.seconds),
        **{f"PPO, passes: {n}": lambda n=n: training(args, n) for n in args.epochs},
    }
    for way, measure in ways.items():
        found = measure()
        say(f"{way}: {json.dumps(found)}")
        result["rows"].append({"way": way, **found})
        write(args.out, NAME, result, markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main()
