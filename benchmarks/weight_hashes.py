"""Does this checkout learn the same weights as another one, bit for bit?

    .venv/bin/python -m benchmarks.weight_hashes aae2af4
    .venv/bin/python -m benchmarks.weight_hashes aae2af4 --only CartPole-v1:ppo --compile native

Shipped configs are trained for a few thousand steps in both, and the hashes of their final weights,
optimiser moments and target networks are compared. The other checkout is a commit or a folder. The
same machine must run both: compiled programs round differently on other CPUs. Exits with 1 if a
hash differs.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.before_after import checked_out
from gymnasium_solver.bench.harness import ROOT, say

CASES = {
    "CartPole-v1:ppo": 20_000,
    "CartPole-v1:ppo_zoo": 5_000,
    "CartPole-v1:ppo_memory": 10_000,
    "CartPole-v1:a2c": 5_000,
    "CartPole-v1:reinforce": 10_000,
    "CartPole-v1:reinforce_rloo": 10_000,
    "CartPole-v1:dqn": 5_000,
    "CartPole-v1:sac": 2_000,
    "CartPole-v1:pqn": 20_000,
    "CartPole-v1:sarsa": 5_000,
    "MountainCar-v0:ppo_count": 20_000,
    "MountainCarContinuous-v0:sac_sde": 2_000,
    "Pendulum-v1:ppo": 20_000,
    "Pendulum-v1:ppo_beta": 10_000,
    "Pendulum-v1:ppo_sde": 10_000,
    "Pendulum-v1:sac": 2_000,
    "Pendulum-v1:td3": 2_000,
    "Pendulum-v1:ddpg": 2_000,
    "Pendulum-v1:crossq": 1_500,
    "LunarLander-v3:ddqn_per": 3_000,
    "FetchReach-v4:sac": 1_500,
    "MiniGrid-DoorKey-5x5-v0:a2c_sil": 8_000,
    "Taxi-v3:ppo": 20_000,
}
FORMS = ("auto", "false", "numpy", "native")
FLAGS = ["--seed", "1", "--device", "cpu", "--eval-freq-epochs", "null", "-q"]


def weights_hash(checkout: Path, config: str, steps: int, form: str) -> str:
    """The hash of the last checkpoint of a training in a checkout."""
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", "gymnasium_solver", "train", config, *FLAGS]
        command += ["--max-env-steps", str(steps), "--compile", form, "--runs-dir", runs]
        command += ["--test-episodes", "1"]
        done = subprocess.run(
            command,
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode not in (0, 1):
            return f"exit {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"
        (last,) = Path(runs).glob("*-*/checkpoints/last")
        found = hashlib.sha256()
        for name in ("model", "optimizer", "target"):
            file = last / f"{name}.safetensors"
            found.update(file.read_bytes() if file.exists() else b"")
    return found.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("older", help="a commit, or the folder of another checkout")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--compile", nargs="+", choices=FORMS, default=["auto"])
    parser.add_argument("--keep", type=Path, help="a file with the hashes of the older checkout")
    args = parser.parse_args()
    kept = json.loads(args.keep.read_text()) if args.keep and args.keep.exists() else {}
    n_different = 0
    with checked_out(args.older) as older:
        for config in args.only:
            for form in args.compile:
                name = f"{config} {form}"
                if name not in kept:
                    kept[name] = weights_hash(older, config, CASES[config], form)
                    if args.keep:
                        args.keep.write_text(json.dumps(kept, indent=1))
                now = weights_hash(ROOT, config, CASES[config], form)
                n_different += now != kept[name]
                say(f"{'same' if now == kept[name] else 'DIFFERENT'} {name}: {kept[name]} {now}")
    sys.exit(min(1, n_different))


if __name__ == "__main__":
    main()
