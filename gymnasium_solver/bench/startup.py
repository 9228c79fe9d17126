"""Start-up times: `gsolve --help`, and `gsolve train` up to its first env step.

The clock runs in the process that starts the command, until its first line of output arrives.
`train` prints that line when everything is built and the envs are about to be stepped.
"""

import subprocess
import tempfile
import time
from typing import Any

from gymnasium_solver.bench import harness
from gymnasium_solver.bench.harness import Options

TINY = ("--max-env-steps=64", "--eval-freq-epochs=0", "--seed=1", "-q")
TRAIN = ("train", "CartPole-v1:ppo", *TINY)
CASES = {  # the arguments, and the limit in seconds
    "gsolve --help": (("--help",), 0.3),
    "gsolve train, first env step, without EnvPool": (
        (*TRAIN, "--vectorization-mode=vector"),
        3.0,
    ),
    "gsolve train, first env step, with EnvPool": ((*TRAIN, "--vectorization-mode=envpool"), 4.5),
}


def measure(options: Options) -> list[dict[str, Any]]:
    """One row per command; all take turns in each repeat, after one that warms the caches."""
    n_repeats = 1 if options.quick else max(5, options.repeats)
    seconds: dict[str, list[float]] = {title: [] for title in CASES}
    harness.say(f"startup: {len(CASES)} commands, {n_repeats} times each")
    for _ in range(n_repeats + 1):
        for title, (args, _) in CASES.items():
            seconds[title].append(first_line_s(args))
    return [
        {"command": title, "limit_s": limit_s, "seconds": seconds[title][1:]}
        for title, (_, limit_s) in CASES.items()
    ]


def first_line_s(args: tuple[str, ...]) -> float:
    """Seconds from starting `gsolve` to its first line of output; the process then runs on."""
    with tempfile.TemporaryDirectory() as runs_dir:
        start = time.perf_counter()
        with subprocess.Popen(
            [harness.GSOLVE, *args],
            env=harness.own_environment() | {"GSOLVE_RUNS": runs_dir},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            took_s = time.perf_counter() - start
            _, errors = process.communicate()
    if process.returncode != 0 or not line:
        raise harness.FailedProcess(f"gsolve {' '.join(args)}: {errors.strip()}")
    return took_s


def sections(rows: list[dict[str, Any]]) -> list[str]:
    cells = [
        (
            row["command"],
            harness.spread(row["seconds"], 2),
            f"{row['limit_s']:g}",
            "yes" if sorted(row["seconds"])[len(row["seconds"]) // 2] <= row["limit_s"] else "no",
        )
        for row in rows
    ]
    return [
        "## Start-up",
        "From the shell to the first line of output; for `train` that is when everything is built "
        "and the envs are about to be stepped. Files are in the system's cache.",
        harness.table(("command", "s", "limit, s", "kept"), cells),
    ]
