"""Environments of other packages, trained as a new user would: an id, PPO, the defaults.

    .venv/bin/python -m benchmarks.newcomer                       # all of them, hours on two cores
    .venv/bin/python -m benchmarks.newcomer --only minigrid highway --seeds 1
    .venv/bin/python -m benchmarks.newcomer --venvs build/newcomer --resume

The packages are installed into environments of their own (`VENVS`, one for each version of MuJoCo
that they need), which see the packages of this one. Each environment is trained by

    gsolve train ID --max-env-steps N --seed S

and its test on held-out episodes is compared with episodes of random actions in the same
environment. It `beats` random if the difference is more than two standard errors in every seed. An
environment that cannot be trained is `refused`, with the line that says why. Raw figures go to
results/newcomer.json, the table to results/newcomer.md, rewritten after each training; `--resume`
keeps the trainings that are there from the same commit.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.bench.harness import ROOT, describe, earlier, header, say, table, write

NAME = "newcomer"
EPISODES = 30
CLEARLY = 2.0  # standard errors of the difference
TOO_SHORT = 3_000  # env steps: slow environments, and those that show only that they train
# A venv: what pip installs in order; the last ones without what they declare, which would replace
# packages that are there (pygame-ce by pygame).
VENVS: dict[str, tuple[list[str], list[str]]] = {
    "mujoco3": (
        ["minigrid", "highway-env", "gymnasium-robotics", "mujoco==3.3.7", "gym-anytrading"],
        ["flappy-bird-gymnasium", "gym-pusht", "miniworld", "pyglet==1.5.31"],
    ),
    "dm_control": (["dm_control==1.0.50", "mujoco==3.17.0", "scipy"], ["Shimmy"]),
    "mujoco4": (["gymnasium-robotics"], []),
}
MORE = {"mujoco3": ["pymunk<7", "opencv-python-headless", "shapely", "scikit-image"]}


@dataclass(frozen=True)
class Case:
    """An environment and the budget it is tried with."""

    env_id: str
    package: str
    max_env_steps: int
    venv: str = "mujoco3"
    seeds: int = 1
    args: dict[str, Any] = field(default_factory=dict)
    """Fields besides the defaults, where the point of the case is to use them."""
    variables: dict[str, str] = field(default_factory=dict)
    """Variables of the process, as the user would set them."""


CASES = (
    Case("minigrid:MiniGrid-Empty-5x5-v0", "minigrid", 40_000, seeds=3),
    Case(
        "minigrid:MiniGrid-Empty-5x5-v0",
        "minigrid",
        60_000,
        seeds=3,
        args={"obs_keys": ["image", "direction"]},
    ),
    Case("gymnasium_robotics:FetchReachDense-v4", "gymnasium-robotics", 40_000, seeds=3),
    Case("parking-v0", "EnvPool's highway", 60_000, seeds=3),
    Case("shimmy:dm_control/cartpole-balance-v0", "dm_control", 60_000, "dm_control", seeds=3),
    # 80 steps/s, and episodes of 500 steps: an own time limit, as its users set it.
    Case(
        "highway_env:parking-v0",
        "highway-env",
        12_000,
        seeds=3,
        args={"max_episode_steps": 100},
    ),
    Case("highway-fast-v0", "EnvPool's highway", 30_000),
    Case("highway_env:highway-fast-v0", "highway-env", 2_000),
    Case("gymnasium_robotics:AdroitHandDoor-v1", "gymnasium-robotics", 20_000),
    Case("gymnasium_robotics:PointMaze_UMazeDense-v3", "gymnasium-robotics", 40_000),
    Case("gymnasium_robotics:FrankaKitchen-v1", "gymnasium-robotics", 3_000),
    Case("flappy_bird_gymnasium:FlappyBird-v0", "flappy-bird-gymnasium", 60_000),
    Case("gym_pusht:gym_pusht/PushT-v0", "gym-pusht", 30_000),
    Case("gym_anytrading:stocks-v0", "gym-anytrading", 30_000),
    Case("shimmy:dm_control/walker-walk-v0", "dm_control", 40_000, "dm_control"),
    Case("miniworld:MiniWorld-OneRoom-v0", "miniworld", 1_000),
    Case(
        "miniworld:MiniWorld-OneRoom-v0",
        "miniworld",
        10_000,
        variables={"PYGLET_HEADLESS": "1"},
    ),
    Case("gymnasium_robotics:FetchReach-v4", "gymnasium-robotics", 1_000, "mujoco4"),
    Case("PandaPickCube-v1", "EnvPool's playground", 20_000),
    Case("Go1Handstand-v1", "EnvPool's playground", 20_000),
    Case("FrankaKitchen-v1", "EnvPool's robotics", 20_000),
    Case("PongNoFrameskip-v4", "EnvPool's Atari", 3_000),
)


def main() -> int:
    args = parse_args()
    if args.one:
        print(json.dumps(try_case(json.loads(args.one))))
        return 0
    cases = [case for case in CASES if not args.only or any(o in case.env_id for o in args.only)]
    result = header(f"python -m benchmarks.{NAME}") | {"cases": []}
    before = earlier(args.out, NAME, result) if args.resume else None
    done = {key(entry["case"]): entry["runs"] for entry in before["cases"]} if before else {}
    for case in cases:
        runs = done.setdefault(key(vars(case)), [])
        for seed in range(1, (args.seeds or case.seeds) + 1):
            if any(run["seed"] == seed or run["status"] != "trained" for run in runs):
                continue
            run = run_case(venv_python(args.venvs, case.venv), case, seed, args.scale)
            runs.append(run)
            say(f"{case.env_id} seed {seed}: {run_text(run)}")
            result["cases"] = [
                {"case": vars(each), "runs": done[key(vars(each))]}
                for each in CASES
                if done.get(key(vars(each)))
            ]
            write(args.out, NAME, result, markdown(result))
    print(markdown(result))
    return 0


def key(case: Mapping[str, Any]) -> str:
    """What identifies a case."""
    return json.dumps([case["env_id"], case["venv"], case["args"], case["variables"]])


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], help="ids that contain one of these")
    parser.add_argument("--seeds", type=int, help="seeds of each case (each has its own number)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of all budgets (1)")
    parser.add_argument("--venvs", type=Path, default=ROOT / "build/newcomer", metavar="FOLDER")
    parser.add_argument("--resume", action="store_true", help="train only what has no result")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def venv_python(folder: Path, name: str) -> Path:
    """The Python of a venv with its packages; made on first use."""
    home = folder / name
    python, done = home / "bin/python", home / "installed"
    if not done.exists():
        say(f"installing {name}")
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        # What is installed here is seen there; what pip installs there comes first.
        site = next((home / "lib").glob("python*/site-packages"))
        (site / "base.pth").write_text(sysconfig.get_path("purelib") + "\n")
        wanted, bare = VENVS[name]
        subprocess.run([*pip, *wanted, *MORE.get(name, [])], check=True)
        if bare:
            subprocess.run([*pip, "--no-deps", *bare], check=True)
        done.touch()
    return python


def run_case(python: Path, case: Case, seed: int, scale: float) -> dict[str, Any]:
    """Train one seed in a process of its own."""
    fields = {
        **case.args,
        "seed": seed,
        "max_env_steps": max(1, int(case.max_env_steps * scale)),
        "test_episodes": EPISODES,
    }
    job = json.dumps({"env_id": case.env_id, "fields": fields})
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.run(
            [str(python), "-m", f"benchmarks.{NAME}", "--one", job],
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **case.variables},
        )
    lines = process.stdout.strip().splitlines()
    if process.returncode != 0 or not lines:
        last = (process.stderr.strip().splitlines() or ["no output"])[-1]
        return {"seed": seed, "status": "crashed", "reason": last}
    answer: dict[str, Any] = json.loads(lines[-1])
    return {"seed": seed, **answer}


def try_case(job: dict[str, Any]) -> dict[str, Any]:
    """Train, test, and play at random; the answer of the process that `run_case` starts."""
    from gymnasium_solver.envs.make import env_from_config
    from gymnasium_solver.envs.random_steps import random_episodes
    from gymnasium_solver.errors import GsolveError
    from gymnasium_solver.training.loop import train
    from gymnasium_solver.training.prepare import load_config

    try:
        config = load_config(job["env_id"], overrides=job["fields"])
        env = env_from_config(config, min(EPISODES, 10))
        rounds = [random_episodes(env, 1000 + i)[0] for i in range(EPISODES // env.n_envs)]
        spec = env.spec
        env.close()
        begun_s = time.perf_counter()
        meta = train(config, runs_root=Path("runs")).meta()
    except GsolveError as error:
        text = re.sub(r"/\S+/site-packages/", "", str(error))  # where it is installed is no result
        return {"status": "refused", "reason": " ".join(text.split())}
    return {
        "status": "trained",
        "engine": spec.engine,
        "notes": list(spec.notes),
        "wall_s": round(time.perf_counter() - begun_s, 1),
        "env_steps": meta["env_steps"],
        "random": score(np.concatenate(rounds)),
        "test": {"mean": meta["test"]["mean"], "se": meta["test"]["stderr"], "n": EPISODES},
    }


def score(returns: Any) -> dict[str, float]:
    array = np.asarray(returns, np.float64)
    return {
        "mean": float(array.mean()),
        "se": float(array.std(ddof=1) / np.sqrt(len(array))),
        "n": len(array),
    }


def beats(run: dict[str, Any]) -> bool:
    ours, random = run["test"], run["random"]
    spread = float(np.hypot(ours["se"], random["se"]))
    return bool(ours["mean"] - random["mean"] > CLEARLY * spread)


def run_text(run: dict[str, Any]) -> str:
    if run["status"] != "trained":
        return f"{run['status']}: {run['reason']}"
    verb = "beats" if beats(run) else "does not beat"
    return f"{run['test']['mean']:.2f} {verb} random {run['random']['mean']:.2f}"


def markdown(result: dict[str, Any]) -> str:
    trained, others = [], []
    for entry in result["cases"]:
        case, runs = entry["case"], entry["runs"]
        asked = "".join(f" `{key}: {json.dumps(v)}`" for key, v in case["args"].items())
        asked += "".join(f" `{key}={v}`" for key, v in case["variables"].items())
        name = f"`{case['env_id']}`{asked}"
        done = [run for run in runs if run["status"] == "trained"]
        others += [
            [name, case["venv"], run["status"], run["reason"].replace("|", "\\|")]
            for run in runs
            if run["status"] != "trained"
        ]
        if done:
            trained.append(row(name, case, done))
    head = ["environment", "package", "engine", "steps", "random", "PPO, by seed", "beats random"]
    parts = [
        "# Environments of other packages, with the defaults",
        f"PPO by `gsolve train` with its defaults; means over {EPISODES} episodes ± standard "
        "error, greedy, held out. The packages are in venvs of their own, with the MuJoCo they "
        f"need. {len(result['cases'])} of {len(CASES)} cases were tried.",
        describe(result),
        table(head, trained),
    ]
    if others:
        what = ["environment", "venv", "", "what it says"]
        parts += ["### Not trained", table(what, others)]
    return "\n\n".join(parts)


def row(name: str, case: dict[str, Any], runs: list[dict[str, Any]]) -> list[str]:
    random = runs[0]["random"]
    scores = ", ".join(f"{run['test']['mean']:.2f} ± {run['test']['se']:.2f}" for run in runs)
    n_beating = sum(map(beats, runs))
    verdict = "yes" if n_beating == len(runs) else f"{n_beating} of {len(runs)}"
    if case["max_env_steps"] <= TOO_SHORT:
        verdict = "too few steps to judge"
    return [
        name,
        case["package"],
        runs[0]["engine"],
        f"{runs[0]['env_steps']:,}",
        f"{random['mean']:.2f} ± {random['se']:.2f}",
        scores,
        verdict,
    ]


if __name__ == "__main__":
    sys.exit(main())
