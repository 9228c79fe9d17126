"""`gsolve doctor`: checks this installation. `gsolve doctor env ID` (doctor_env.py) checks an
environment, `gsolve doctor run RUN` (doctor_run.py) judges a run."""

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from gymnasium_solver.cli.flags import Parser
from gymnasium_solver.errors import TRAINING_PACKAGES, GsolveError

DISTRIBUTION = "gymnasium-solver"
PACKAGES = (
    "torch",
    "numpy",
    "gymnasium",
    "envpool",
    "pydantic",
    "rich",
    "safetensors",
    "matplotlib",
)
N_ENVS = 8
# One environment for each engine, then one for each suite with the engine that `auto` picks.
ENGINES = ("envpool", "vector", "sync", "async")
SUITES = {
    "classic_control": "CartPole-v1",
    "toy_text": "FrozenLake-v1",
    "box2d": "LunarLander-v3",
    "mujoco": "HalfCheetah-v5",
    "bandit": "Bandit-v0",
}


@dataclass
class Check:
    """The result of one check."""

    name: str
    ok: bool
    text: str
    needed: bool = True


def main(argv: Sequence[str]) -> int:
    if argv and argv[0] == "env":
        from gymnasium_solver.cli.doctor_env import main as check_env_main

        return check_env_main(argv[1:])
    if argv and argv[0] == "run":
        from gymnasium_solver.cli.doctor_run import main as judge_run_main

        return judge_run_main(argv[1:])
    parser = Parser(
        "doctor",
        "Check this installation: versions, engines, suites, devices, extras. Takes some seconds.\n"
        "`gsolve doctor env ID` checks one environment, `gsolve doctor run RUN` judges a run.",
    )
    parser.add_json()
    args = parser.read(argv)
    report = examine()
    healthy = all(check.ok for checks in report.values() for check in checks if check.needed)
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        sections = {title: [asdict(c) for c in checks] for title, checks in report.items()}
        print_json({"healthy": healthy, **sections})
    else:
        print_report(report, healthy)
    return 0 if healthy else 1


def examine() -> dict[str, list[Check]]:
    if not can_train():  # the light install: nothing to build or to step
        text = "not installed: pip install 'gymnasium-solver[train]'"
        training = [Check("training", False, text, needed=False)]
        return {"versions": versions(), "training": training, "extras": extras()}
    return {
        "versions": versions(),
        "engines": [check_env(engine, "CartPole-v1", engine) for engine in ENGINES],
        "suites": [check_env(suite, env_id, "auto") for suite, env_id in SUITES.items()],
        "devices": devices(),
        "extras": [*extras(), *conflicts()],
    }


def can_train() -> bool:
    """Whether the packages of the extra `train` are installed."""
    try:
        import gymnasium  # noqa: F401
        import torch  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def versions() -> list[Check]:
    from gymnasium_solver import __version__

    checks = [
        Check(DISTRIBUTION, True, __version__),
        Check("python", True, f"{platform.python_version()} on {platform.platform()}"),
    ]
    for package in PACKAGES:
        version = installed(package)
        text = version or f"missing: pip install {package}"
        needed = package not in TRAINING_PACKAGES or can_train()
        checks.append(Check(package, version is not None, text, needed))
    return checks


def installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_env(name: str, env_id: str, mode: str) -> Check:
    """Build a small vector env, step it, and report its speed."""
    from gymnasium_solver.envs.checks.env import steps_per_s
    from gymnasium_solver.envs.make import make_vector_env

    needed = mode == "auto" and name != "mujoco"
    try:
        env = make_vector_env(env_id, N_ENVS, vectorization_mode=mode)
    except (GsolveError, ImportError, OSError) as error:
        return Check(name, False, f"{env_id}: {_first_line(error)}", needed)
    try:
        speed = steps_per_s(env)
        return Check(
            name, True, f"{env_id} × {N_ENVS} on {env.spec.engine}, {speed:,.0f} steps/s", needed
        )
    except (GsolveError, OSError) as error:
        return Check(name, False, f"{env_id}: {_first_line(error)}", needed)
    finally:
        env.close()


def devices() -> list[Check]:
    import torch

    from gymnasium_solver.config.schema import cpu_count

    omp = os.environ.get("OMP_NUM_THREADS")
    threads = f"{cpu_count()} usable of {os.cpu_count()}, torch uses {torch.get_num_threads()}"
    checks = [Check("cpu", True, threads + (f", OMP_NUM_THREADS={omp}" if omp else ""))]
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            card = torch.cuda.get_device_properties(i)
            memory = f"{card.total_memory / 2**30:.0f} GiB"
            checks.append(Check(f"cuda:{i}", True, f"{card.name}, {memory}", needed=False))
    else:
        checks.append(Check("cuda", False, "torch sees no CUDA GPU", needed=False))
    if sys.platform == "darwin":
        seen = torch.backends.mps.is_available()
        checks.append(Check("mps", seen, "Apple GPU" if seen else "not usable", needed=False))
    return checks


def extras() -> list[Check]:
    """The extras of this version, from its own package metadata."""
    checks = []
    for extra, packages in extra_packages().items():
        missing = [package for package in packages if installed(package) is None]
        text = ", ".join(f"{p} {installed(p)}" for p in packages if p not in missing)
        if missing:
            command = f'pip install "{DISTRIBUTION}[{extra}]"'
            text = f"{', '.join(missing)} missing: {command}"
        checks.append(Check(extra, not missing, text, needed=False))
    return checks


def conflicts() -> list[Check]:
    """Installed packages that fail with the installed MuJoCo, though they declare no limit."""
    from gymnasium_solver.envs.env_bugs import mujoco_conflicts

    return [
        Check(package, False, advice, needed=False)
        for package, advice in mujoco_conflicts().items()
    ]


def extra_packages() -> dict[str, list[str]]:
    import re

    try:
        requirements = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # a source tree that was never installed
        return {}
    found: dict[str, dict[str, None]] = {}  # each package once: mujoco names gymnasium twice
    for requirement in requirements:
        package = re.match(r"[A-Za-z0-9._-]+", requirement)
        extra = re.search(r"""extra\s*==\s*['"]([^'"]+)['"]""", requirement)
        if package and extra and extra[1] != "dev":
            found.setdefault(extra[1], {})[package[0].lower()] = None
    return {extra: list(packages) for extra, packages in found.items()}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def print_report(report: dict[str, list[Check]], healthy: bool) -> None:
    from rich.text import Text

    from gymnasium_solver.cli.colours import GREEN, ORANGE
    from gymnasium_solver.cli.tables import make_console, print_pairs

    console = make_console()
    for title, checks in report.items():
        console.print(Text(title, style="bold"))
        rows: list[tuple[str, Any]] = []
        for check in checks:
            mark = ("✓ ", GREEN) if check.ok else ("✗ ", "red") if check.needed else ("- ", ORANGE)
            rows.append((check.name, Text.assemble(mark, check.text)))
        print_pairs(console, rows)
    word = Text("everything required works", style=GREEN)
    console.print(word if healthy else Text("something required does not work: see ✗", style="red"))
