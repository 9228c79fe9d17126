"""The same trainings on the CPU, and on a GPU eager, compiled and as CUDA graphs.

    .venv/bin/python -m benchmarks.gpu                     (on a machine with an NVIDIA GPU)

Cases: PPO with rl-zoo's CartPole setting, the same with 1,024 envs and larger minibatches, SAC on
HalfCheetah-v5 with SB3's defaults. For comparison a plain PyTorch loop of the same work on the same
GPU, in the style of CleanRL's single files (peers/plain_torch.py). All take turns, `--repeats`
times, in this process. Steps/s count after the warm-up, without compilation; the total seconds are
in a column of their own. What is slow, everything but CUDA graphs, does a quarter of the steps. Raw
figures go to results/gpu.json, the table to results/gpu.md. Three repeats of all ways take about
five minutes; `--ways cpu "cuda graphs" "plain PyTorch on cuda"` takes two.
"""

import argparse
import shlex
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

from benchmarks.peers import plain_torch
from gymnasium_solver.bench.harness import ROOT, describe, header, say, spread, table, write
from gymnasium_solver.fast import recorded
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.observer import Observer
from gymnasium_solver.training.prepare import load_config

ZOO, SB3_SAC = (
    f"{ROOT}/benchmarks/configs/{name}"
    for name in ("cartpole_zoo.yaml:ppo", "halfcheetah_sb3.yaml:sac")
)
WAYS = ("cpu", "cuda eager", "cuda compiled", "cuda graphs", "plain PyTorch on cuda")
FASTEST, SLOW = "cuda graphs", 4  # the others do a quarter of the steps


class Case(NamedTuple):
    title: str
    config: str
    changes: dict[str, Any]
    env_steps: int
    warm_steps: int  # not counted
    plain: Callable[[int, int, str], float]  # (env steps, warm steps, device) -> steps/s


CASES = {
    "ppo_zoo": Case(
        "PPO CartPole-v1, 8 envs", ZOO, {}, 40_960, 10_240,
        lambda *a: plain_torch.ppo(*a, n_envs=8, n_steps=32, batch_size=256),
    ),
    "ppo_1024": Case(
        "PPO CartPole-v1, 1,024 envs", ZOO, {"n_envs": 1024, "batch_size": 8192, "n_epochs": 4},
        2_000_000, 400_000,
        lambda *a: plain_torch.ppo(*a, n_envs=1024, n_steps=32, batch_size=8192, n_epochs=4),
    ),
    "sac": Case("SAC HalfCheetah-v5", SB3_SAC, {}, 4_000, 1_000, plain_torch.sac),
}  # fmt: skip


class Clock(Observer):
    """Env steps and the time, at the end of each epoch."""

    def __init__(self) -> None:
        self.marks: list[tuple[int, float]] = []

    def on_epoch(self, row: dict[str, Any]) -> None:
        self.marks.append((row["env_steps"], time.perf_counter()))

    def rate(self, warm_steps: int) -> float:
        warm = [mark for mark in self.marks if mark[0] >= warm_steps]
        return (warm[-1][0] - warm[0][0]) / (warm[-1][1] - warm[0][1])


@contextmanager
def compiled_losses() -> Iterator[None]:
    """Gradients by torch.compile instead of our CUDA graphs."""
    torch._dynamo.reset()

    def start(self: Any, loss: Any, params: Sequence[Tensor], **options: Any) -> None:
        original(self, torch.compile(loss, dynamic=False), params, **(options | {"record": False}))

    original = recorded.LossGradient.__init__
    with mock.patch.object(recorded.LossGradient, "__init__", start):
        yield


def measure(case: Case, way: str, quick: bool) -> dict[str, float]:
    shrink = (4 if quick else 1) * (1 if way == FASTEST else SLOW)
    env_steps, warm_steps = case.env_steps // shrink, case.warm_steps // shrink
    started = time.perf_counter()
    if way == WAYS[-1]:
        rate = case.plain(env_steps, warm_steps, "cuda")
        return {"steps_per_s": rate, "wall_s": time.perf_counter() - started}
    changes = {"device": "cpu" if way == "cpu" else "cuda", "max_env_steps": env_steps, "seed": 1}
    compile_ = {"cuda eager": False, "cuda compiled": False}.get(way, "auto")
    config = load_config(case.config).replace(**case.changes, **changes, compile=compile_)
    clock = Clock()
    with tempfile.TemporaryDirectory() as runs_dir:
        if way == "cuda compiled":
            with compiled_losses():
                train(config, runs_root=Path(runs_dir), observers=[clock])
        else:
            train(config, runs_root=Path(runs_dir), observers=[clock])
    return {"steps_per_s": clock.rate(warm_steps), "wall_s": time.perf_counter() - started}


def markdown(result: dict[str, Any]) -> str:
    rows = []
    for name, case in CASES.items():
        of_case = [row for row in result["rows"] if row["case"] == name]
        plain = [r["steps_per_s"] for r in of_case if r["way"] == WAYS[-1] and "error" not in r]
        for way in WAYS:
            runs = [row for row in of_case if row["way"] == way]
            rates = [row["steps_per_s"] for row in runs if "error" not in row]
            if not rates:
                rows += [(case.title, way, row["error"], "–", "–") for row in runs[:1]]
                continue
            ratio = f"{statistics.median(rates) / statistics.median(plain):.2f}" if plain else "–"
            walls = [row["wall_s"] for row in runs]
            rows.append((case.title, way, spread(rates), ratio, spread(walls, 1)))
    head = ("task", "how", "training, steps/s", "× plain PyTorch", "total, s")
    return "\n\n".join(["# On a GPU", f"{describe(result)}\n- {result['gpu']}", table(head, rows)])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="gpu.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a quarter of the steps")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("gpu: torch sees no CUDA GPU on this machine.")
    flags = f" --repeats {args.repeats}" + (" --quick" if args.quick else "")
    for name, chosen, every in (("only", args.only, CASES), ("ways", args.ways, WAYS)):
        flags += f" --{name} {shlex.join(chosen)}" if list(chosen) != list(every) else ""
    result = header(f"python -m benchmarks.gpu{flags}") | {
        "gpu": torch.cuda.get_device_name(),
        "rows": [],
    }
    for repeat in range(args.repeats):
        for name in args.only:
            for way in args.ways:
                row: dict[str, Any] = {"case": name, "way": way, "repeat": repeat}
                try:
                    row |= measure(CASES[name], way, args.quick)
                except Exception as error:  # a failure is a result too
                    row["error"] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
                say(f"gpu: {row}")
                result["rows"].append(row)
                write(args.out, "gpu", result, markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main()
