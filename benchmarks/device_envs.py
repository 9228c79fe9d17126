"""CartPole with environments that live on the GPU, beside one jitted JAX program of the same work.

    .venv/bin/python -m benchmarks.device_envs               (an NVIDIA GPU, and jax with CUDA)
    .venv/bin/python -m benchmarks.device_envs --quick --n-envs 1024 --skip parts solve

1,024, 4,096 and 16,384 environments, 32 steps, four passes of four minibatches, 2x64 tanh, equal
hyper-parameters (configs/cartpole_device.yaml, peers/jax_ppo.py). Every line is a process of its
own, which is timed by itself and killed after `--timeout` seconds:

graphs   our training with all that belongs to it (metrics, checks, files): rollout and update are a
         CUDA graph each. Set-up: from the start of the imports to the epoch after the capture.
fused    the same with `compile: fused`: kernels are fused by torch's compiler first.
jax      the JAX program; set-up: from the start of its imports to the end of the first call.
parts    where the time of `graphs` goes: the two graphs alone, and the kernels of one rollout and
         of one update.
solve    seconds from the start of a process until CartPole is solved (100 test episodes, 475): ours
         on the GPU and on the CPU, and the JAX program.

Results are printed as they come, and written to results/device_envs.json and .md. All of it takes
about three minutes, `--quick` half of that.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()
CONFIG = "benchmarks/configs/cartpole_device.yaml"
NAME = "device_envs"
SIZES = (1024, 4096, 16384)
WAYS = ("graphs", "fused", "jax", "parts", "solve")
N_PLAIN = 5  # epochs before and with the capture of the graphs
CHILD = "--child"


# -- one training, in a process of its own ------------------------------------------------------


def config_for(n_envs: int, device: str, **changes: Any) -> Any:
    from gymnasium_solver.training.prepare import load_config

    sizes = {"n_envs": n_envs, "batch_size": n_envs * 8}
    return load_config(CONFIG).replace(**sizes, device=device, seed=1, **changes)


def train_for(config: Any, seconds: float) -> dict[str, Any]:
    """Train for this long after the set-up."""
    from gymnasium_solver.training.loop import train
    from gymnasium_solver.training.observer import Control, Observer

    class Clock(Observer):
        marks: list[tuple[int, float]] = []
        control: Control
        mode = ""

        def on_start(self, run: Any, config: Any, info: Any) -> None:
            self.control, self.mode = info.control, info.update_mode

        def on_epoch(self, row: dict[str, Any]) -> None:
            self.marks.append((row["env_steps"], time.perf_counter()))
            if len(self.marks) > N_PLAIN and self.marks[-1][1] - self.marks[N_PLAIN][1] > seconds:
                self.control.stop("measured")

    clock = Clock()
    with tempfile.TemporaryDirectory() as runs:
        train(config, runs_root=Path(runs), observers=[clock])
    (first, began), (last, ended) = clock.marks[N_PLAIN], clock.marks[-1]
    return {
        "steps_per_s": (last - first) / (ended - began),
        "setup_s": clock.marks[N_PLAIN - 1][1] - STARTED,
        "first_epoch_s": clock.marks[0][1] - STARTED,
        "epochs": len(clock.marks),
        "updates": clock.mode,
    }


def parts(n_envs: int, device: str) -> dict[str, Any]:
    """Milliseconds of a rollout and of an update, and their kernels."""
    import torch

    from gymnasium_solver.envs.make import training_env
    from gymnasium_solver.training.agents import build_agent
    from gymnasium_solver.training.collect import collector_for

    torch.backends.cuda.matmul.allow_tf32 = True  # perf: fast, which the training sets
    config = config_for(n_envs, device, compile=True)
    env = training_env(config)
    agent: Any = build_agent(config, env.observation_space, env.action_space)
    collector: Any = collector_for(config, env, agent)
    found: dict[str, Any] = {}

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def roll() -> Any:
        return collector.collect(0, None)

    def update() -> None:
        agent.update(collector._rollout, 0, 10**9)

    for _ in range(2):
        roll()
        update()
    for name, function in (("rollout", roll), ("update", update)):
        found |= {f"{name}_{key}": value for key, value in kernels(function, wait).items()}
    for _ in range(N_PLAIN):
        roll()
        update()
    for name, function in (("rollout", roll), ("update", update)):
        wait()
        began, n = time.perf_counter(), 50 if device == "cuda" else 2
        for _ in range(n):
            function()
        queued = time.perf_counter()
        wait()
        found[f"{name}_ms"] = (time.perf_counter() - began) / n * 1e3
        found[f"{name}_host_ms"] = (queued - began) / n * 1e3
    collector.metrics()
    found["failures"] = [
        owner.failure for owner in (collector._recurring, agent.device_update.recurring)
    ]
    return found


def kernels(function: Any, wait: Any) -> dict[str, Any]:
    """The kernels of a plain call: how many, their time, and the ten that take most of it."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    if not torch.cuda.is_available():
        return {}
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        function()
        wait()
    rows = [e for e in seen.key_averages() if e.device_type == torch.autograd.DeviceType.CUDA]
    rows.sort(key=lambda e: -e.self_device_time_total)
    return {
        "kernels": sum(e.count for e in rows),
        "kernels_ms": sum(e.self_device_time_total for e in rows) / 1e3,
        "top": [[e.key[:60], e.count, round(e.self_device_time_total)] for e in rows[:12]],
    }


def solved(device: str, target: str) -> dict[str, Any]:
    from gymnasium_solver.runs import query
    from gymnasium_solver.training.loop import train
    from gymnasium_solver.training.prepare import load_config

    if device == "cuda":
        changes = {"eval_freq_epochs": 4, "early_stop_on_eval_threshold": True}
        config = config_for(1024, device, compile=True, max_env_steps=20_000_000, **changes)
    else:
        config = load_config(target).replace(seed=1, device=device)
    with tempfile.TemporaryDirectory() as runs:
        meta = query.get_run(train(config, runs_root=Path(runs)))
    took_s = time.perf_counter() - STARTED
    return {"solve_s": took_s if meta.solved else None, "env_steps": meta.env_steps}


def child(args: argparse.Namespace) -> dict[str, Any]:
    if args.child == "parts":
        return parts(args.n_envs[0], args.device)
    if args.child.startswith("solve"):
        return solved(args.child.partition(" ")[2], "CartPole-v1:fast")
    form = {"graphs": True, "fused": "fused"}[args.child]
    return train_for(config_for(args.n_envs[0], args.device, compile=form), args.seconds)


# -- all of them --------------------------------------------------------------------------------


def measured(command: list[str], timeout: float) -> dict[str, Any]:
    """The JSON line that a process prints; {"error": ...} if it fails or takes too long."""
    began = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"error": f"no result after {timeout:.0f} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        tail = (done.stderr or done.stdout).strip().splitlines()[-6:]
        return {"error": " | ".join(tail)[-1500:] or f"exit {done.returncode}"}
    found: dict[str, Any] = json.loads(lines[-1])
    return found | {"wall_s": round(time.perf_counter() - began, 2)}


def commands(args: argparse.Namespace) -> list[tuple[str, int, list[str]]]:
    """What is measured: its name, the number of environments, the command."""
    own = [sys.executable, "-m", "benchmarks.device_envs", "--device", args.device]
    own += ["--seconds", str(args.seconds)]
    peer = [args.peer_python, "-m", "benchmarks.peers.jax_ppo", "--seconds", str(args.seconds)]
    wanted = [way for way in WAYS if way not in args.skip]
    found: list[tuple[str, int, list[str]]] = []
    for n in args.n_envs:
        for way in ("graphs", "jax", "fused"):
            if way in wanted:
                to = peer if way == "jax" else [*own, CHILD, way]
                found.append((way, n, [*to, "--n-envs", str(n)]))
    if "parts" in wanted:
        found += [("parts", n, [*own, CHILD, "parts", "--n-envs", str(n)]) for n in args.n_envs[:2]]
    if "solve" in wanted:
        found.append(("solve, ours on the GPU", 1024, [*own, CHILD, f"solve {args.device}"]))
        found.append(("solve, jax", 1024, [*peer, "--solve", "--test-every", "4"]))
        found.append(("solve, ours on the CPU", 0, [*own, CHILD, "solve cpu"]))
    return found


def rates_table(result: dict[str, Any]) -> str:
    """Env steps a second of each way, and their share of the JAX program's."""
    from gymnasium_solver.bench.harness import table

    found = [row for row in result["rows"] if "steps_per_s" in row]
    peers = {row["n_envs"]: row["steps_per_s"] for row in found if row["way"] == "jax"}
    rows = []
    for row in found:
        peer = peers.get(row["n_envs"])
        ratio = f"{row['steps_per_s'] / peer:.2f}" if peer else "-"
        speed = f"{row['steps_per_s'] / 1e6:.2f}M"
        rows.append((f"{row['n_envs']:,}", row["way"], speed, ratio, f"{row['setup_s']:.1f}"))
    return table(("environments", "", "steps/s", "of JAX", "set-up, s"), rows)


def parts_table(result: dict[str, Any]) -> str:
    """Milliseconds of one rollout and one update: of graphs, the host, the kernels."""
    from gymnasium_solver.bench.harness import table

    rows = [
        (
            f"{row['n_envs']:,}",
            name,
            *(f"{row[f'{name}_{key}']:.2f}" for key in ("ms", "host_ms", "kernels_ms")),
            f"{row[f'{name}_kernels']:,}",
        )
        for row in result["rows"]
        if row["way"] == "parts" and "rollout_kernels" in row
        for name in ("rollout", "update")
    ]
    head = ("environments", "part", "ms", "of the host", "of its kernels", "kernels")
    return table(head, rows) if rows else ""


def solve_table(result: dict[str, Any]) -> str:
    from gymnasium_solver.bench.harness import table

    rows = [
        (row["way"].removeprefix("solve, "), f"{row['solve_s']:.1f}", f"{row['env_steps']:,}")
        for row in result["rows"]
        if row["way"].startswith("solve") and row.get("solve_s")
    ]
    return table(("CartPole solved by", "s", "env steps"), rows) if rows else ""


def markdown(result: dict[str, Any]) -> str:
    from gymnasium_solver.bench.harness import describe

    notes = "\n".join(f"- {note}" for note in result.get("notes", []))
    failed = [
        f"- {row['way']}, {row['n_envs']:,} environments: {row['error']}"
        for row in result["rows"]
        if "error" in row
    ]
    tables = [make(result) for make in (rates_table, parts_table, solve_table)]
    head = describe(result) + (f"\n{notes}" if notes else "")
    return "\n\n".join(filter(None, ["# CartPole on the GPU", head, *tables, "\n".join(failed)]))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="device_envs.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--n-envs", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=5.0, help="of each training")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="2 s each, and nothing fused")
    parser.add_argument("--skip", nargs="+", choices=WAYS, default=[])
    parser.add_argument("--timeout", type=float, default=90.0, help="seconds of one process")
    parser.add_argument("--peer-python", default=sys.executable, help="one that has jax")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument(CHILD, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(args)), flush=True)
        return
    from gymnasium_solver.bench.harness import header, say, write

    if args.quick:
        args.seconds, args.skip = min(args.seconds, 2.0), [*args.skip, "fused"]
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # both sides share the GPU's memory
    result = header(shlex.join(["python", "-m", "benchmarks.device_envs", *sys.argv[1:]]))
    result |= {"benchmark": NAME, "rows": []}
    for way, n_envs, command in commands(args):
        found = measured(command, args.timeout)
        say(f"{way}, {n_envs:,} environments: {json.dumps(found)}")
        result["rows"].append({"way": way, "n_envs": n_envs, **found})
        write(args.out, NAME, result, markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main()
