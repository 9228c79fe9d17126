"""`gsolve doctor` checks this installation, `doctor env ID` an environment, `doctor run RUN` a run;
`check` finds what is wrong with config files, and `smoke` tries configs."""

import os
import platform
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.text import Text

from gymnasium_solver.cli import output as out
from gymnasium_solver.cli.flags import Args, UsageError, verb, yaml_values
from gymnasium_solver.config.env_ids import as_env_id
from gymnasium_solver.config.find import SHIPPED, SUFFIXES, config_files, find_configs
from gymnasium_solver.errors import TRAINING_PACKAGES, GsolveError, first_line
from gymnasium_solver.paths import is_file, is_folder, user_path
from gymnasium_solver.runs.machine import installed
from gymnasium_solver.version import __version__

DISTRIBUTION = "gymnasium-solver"
PACKAGES = ("torch", "numpy", "gymnasium", "envpool", "pydantic", "rich", "safetensors",
            "matplotlib")  # fmt: skip
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
SMOKE = "gymnasium_solver.training.config_tests:smoke"
MARKS = {"pass": "✓", "skip": "-", "fail": "✗"}
OK, ADVICE, PROBLEM, LESS = ("✓ ", out.GREEN), ("! ", out.ORANGE), ("✗ ", "red"), ("- ", out.ORANGE)


@dataclass
class Check:
    """The result of one check."""

    name: str
    ok: bool
    text: str
    needed: bool = True


@verb("""
doctor: Check this installation: versions, engines, suites, devices, extras. Takes some seconds.
`gsolve doctor env ID` checks one environment, `gsolve doctor run RUN` judges a run.

--json
""")
def doctor(args: Args) -> int:
    report = examine()
    healthy = all(check.ok for checks in report.values() for check in checks if check.needed)
    sections = {title: [asdict(c) for c in checks] for title, checks in report.items()}
    if out.told_json(args, {"healthy": healthy, **sections}):
        return 0 if healthy else 1
    for title, checks in report.items():
        marks = [OK if check.ok else PROBLEM if check.needed else LESS for check in checks]
        texts = [Text.assemble(m, check.text) for m, check in zip(marks, checks, strict=True)]
        names = [check.name for check in checks]
        out.show(Text(title, style="bold"), out.pairs(zip(names, texts, strict=True)))
    if healthy:
        out.show("everything required works", style=out.GREEN)
    else:
        out.show("something required does not work: see ✗", style="red")
    return 0 if healthy else 1


def examine() -> dict[str, list[Check]]:
    if not (find_spec("torch") and find_spec("gymnasium")):  # nothing to build or to step
        text = "not installed: pip install 'gymnasium-solver[train]'"
        training = [Check("training", False, text, needed=False)]
        return {"versions": versions(), "training": training, "extras": extras()}
    from gymnasium_solver.envs.env_bugs import mujoco_conflicts

    # Installed packages that fail with the installed MuJoCo, though they declare no limit.
    conflicts = [Check(name, False, fix, needed=False) for name, fix in mujoco_conflicts().items()]
    return {
        "versions": versions(),
        "engines": [check_env(engine, "CartPole-v1", engine) for engine in ENGINES],
        "suites": [check_env(suite, env_id, "auto") for suite, env_id in SUITES.items()],
        "devices": devices(),
        "extras": [*extras(), *conflicts],
    }


def versions() -> list[Check]:
    checks = [
        Check(DISTRIBUTION, True, __version__),
        Check("python", True, f"{platform.python_version()} on {platform.platform()}"),
    ]
    for package in PACKAGES:
        version = installed(package)
        text = version or f"missing: pip install {package}"
        needed = package not in TRAINING_PACKAGES or bool(find_spec("torch"))
        checks.append(Check(package, version is not None, text, needed))
    return checks


def check_env(name: str, env_id: str, mode: str) -> Check:
    """Build a small vector env, step it, and report its speed."""
    from gymnasium_solver.envs.env_findings import steps_per_s
    from gymnasium_solver.envs.make import make_vector_env

    needed, env = mode == "auto" and name != "mujoco", None
    try:
        env = make_vector_env(env_id, N_ENVS, vectorization_mode=mode)
        text = f"{env_id} × {N_ENVS} on {env.spec.engine}, {steps_per_s(env):,.0f} steps/s"
        return Check(name, True, text, needed)
    except (GsolveError, ImportError, OSError) as error:
        return Check(name, False, f"{env_id}: {first_line(error)}", needed)
    finally:
        if env is not None:
            env.close()


def devices() -> list[Check]:
    import torch

    from gymnasium_solver.config.cpus import cpu_count

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


def extra_packages() -> dict[str, list[str]]:
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


@verb("""
doctor env: Check an environment with random actions: spaces, NaN, the scale of observations and
rewards, how episodes end, seeding, autoreset, speed by engine, rendering. Exits with 1
if an agent could not learn correctly from it.

ID               as for gsolve train, my_module:MyEnv-v0 or my_env.c
--env-kwargs KEY=VALUE...     arguments of the environment
--steps N=2000   steps to check
--json

examples:
  gsolve doctor env LunarLander-v3
  gsolve doctor env my_module:MyEnv-v0 --env-kwargs size=8 --steps 5000
""")
def doctor_env(args: Args) -> int:
    if args.steps < 8:
        raise UsageError(f"--steps must be 8 or more, got {args.steps}")
    kwargs = yaml_values(args.env_kwargs, "--env-kwargs")

    from gymnasium_solver.envs.env_findings import all_findings
    from gymnasium_solver.plugins import see_working_folder

    see_working_folder()
    env_id, findings = as_env_id(args.id), []
    to_come = all_findings(env_id, kwargs, args.steps)
    while True:
        with _silence():
            finding = next(to_come, None)
        if finding is None:
            break
        findings.append(finding)
        if not args.json:  # at once: some checks take seconds
            title = [Text(env_id, style="bold")] if len(findings) == 1 else []
            mark = {"ok": OK, "advice": ADVICE}.get(finding.level, PROBLEM)
            text = Text.assemble(mark, finding.text)
            out.show(*title, out.pairs([(f"{finding.name:<10}", text)]))
    failed = any(finding.level == "problem" for finding in findings)
    data = {"env_id": env_id, "healthy": not failed, "findings": [asdict(f) for f in findings]}
    colours = {"advice": out.ORANGE, "problem": "red"}
    advised = [finding for finding in findings if finding.level != "ok" and finding.fix]
    fixes = [(f"{f.name:<10}", Text(f.fix, colours[f.level])) for f in advised]
    told = [Text("advice", style="bold"), out.pairs(fixes)]
    out.tell(args, data, *told if fixes else [Text("nothing to fix", style=out.GREEN)])
    return 1 if failed else 0


@contextmanager
def _silence() -> Iterator[None]:
    """Discard what compiled code prints (MuJoCo at every start), and MuJoCo's log file."""
    log = Path("MUJOCO_LOG.TXT")
    had_log = log.exists()
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        yield
    finally:
        for original, number in zip(kept, (1, 2), strict=True):
            os.dup2(original, number)
            os.close(original)
        os.close(nowhere)
        if not had_log:
            log.unlink(missing_ok=True)


@verb("""
doctor run: Judge a run, finished or running, from its metrics and events: the same alerts as while
training, with what they usually mean and what to try. Exits with 1 if one is active.

RUN
--json --runs-dir

examples:
  gsolve doctor run @last
""")
def doctor_run(args: Args) -> int:
    from gymnasium_solver.runs.alerts.alert import records
    from gymnasium_solver.runs.alerts.judge import judge_run

    run = args.resolved_run()
    alerts, judge = judge_run(run)
    found = records(alerts)
    healthy, n_rows = not any(record.is_active for record in found), judge.history.n_rows
    data = {
        "run": run.id,
        "healthy": healthy,
        "rows": n_rows,
        "alerts": [record.to_dict() for record in found],
        "not_judged": judge.not_judged,
    }
    if out.told_json(args, data):
        return 0 if healthy else 1
    out.show(run.id, style="bold")
    for record in found:
        mark = PROBLEM if record.is_active else LESS
        out.show(Text.assemble("  ", mark, (record.name, "bold"), f"  {record.span}"))
        about = [("seen", record.text), ("means", record.meaning), ("try", record.advice)]
        out.show(out.pairs(about, indent=6))
    n_silent = len(judge.watches) - len(found) - len(judge.not_judged)
    if n_rows:
        out.show(Text.assemble("  ", OK, f"{n_silent} rules found nothing in {n_rows:,} rows"))
    if judge.not_judged:
        names = f"{', '.join(judge.not_judged)} (not logged, or too early)"
        out.show(out.pairs([("  not judged", names)], indent=0))
    return 0 if healthy else 1


@verb("""
check: Find every problem in every config: fields, values, wrappers and their options, plugins,
observers, environment ids. Nothing is trained.

[PATH...]     files, or folders of them (default: ./configs, else the shipped ones)
--trust       import the code (plugins, module:Env-v0) that a file names; otherwise such a
              file is not checked
--json

examples:
  gsolve check
  gsolve check configs other/Mine.yaml
""")
def check(args: Args) -> int:
    """Exit code 1 if there is a problem."""
    files = list(_config_files(args.paths))
    if not files:
        raise UsageError(f"no config files in {', '.join(args.paths)}")

    from gymnasium_solver.training.config_tests import check_file

    def count(n: int, noun: str) -> str:
        return f"{n:,} {noun}{'s' * (n != 1)}"

    reports = [check_file(path, args.trust) for path in files]
    problems = [problem for report in reports for problem in report.problems]
    n_configs, n_bad = sum(r.configs for r in reports), sum(bool(r.problems) for r in reports)
    checked = f"{count(n_configs, 'config')} in {count(len(files), 'file')}"
    summary = f"{checked}: no problems"
    if problems:
        summary = f"{count(len(problems), 'problem')} in {count(n_bad, 'file')}; checked {checked}"
    data = {"files": len(files), "configs": n_configs, "problems": [asdict(p) for p in problems]}
    out.tell(args, data, *problems, summary)
    return 1 if problems else 0


def _file_of(name: str) -> Path:
    """The file of a config that is given by its name."""
    for entry in find_configs():
        if name in (entry.name, entry.name.rpartition(":")[0], entry.env_id):
            return entry.path
    raise UsageError(f"there is no file, folder or config {name}")


def _config_files(given: Sequence[str]) -> Iterator[Path]:
    """The files that are meant, each once."""
    default = Path("configs") if any(config_files(Path("configs"))) else SHIPPED
    seen = set()
    for path in [user_path(text) for text in given] or [default]:
        if not (is_folder(path) or is_file(path)):
            path = _file_of(str(path))
        if path.is_file() and path.suffix not in SUFFIXES:
            raise UsageError(f"{path}: config files end in {', '.join(SUFFIXES)}")
        for file in [path] if path.is_file() else config_files(path):
            if file not in seen:
                seen.add(file)
                yield file


@verb("""
smoke: Try configs briefly: random actions in the environment, then two tiny epochs of
training, each in a process of its own. Exits with 1 if one fails; configs whose package
is not installed are skipped.

[PATTERN]            only configs whose name, suite or description contains this
--limit N            only the first N
-j, --jobs N=1       processes at once
--steps N=100        random steps of each environment
--timeout S=120      seconds for each config
--json

examples:
  gsolve smoke
  gsolve smoke mujoco --jobs 4
""")
def smoke(args: Args) -> int:
    from gymnasium_solver.backends.isolated import run_isolated

    entries = find_configs(args.pattern)
    names = [entry.name for entry in entries if "<" not in entry.env_id][: args.limit]
    if not names:
        out.complain(f"no config matches '{args.pattern}'")
        return 1
    console, results = out.make_console(), {}
    colours = {"pass": out.GREEN, "skip": out.ORANGE, "fail": "red"}
    items = [{"name": name, "steps": args.steps} for name in names]
    for outcome in run_isolated(SMOKE, items, jobs=args.jobs, timeout_s=args.timeout):
        name = outcome.item["name"]
        found: dict[str, Any] = outcome.value or {"name": name, "status": "fail"}
        reason = found.setdefault("reason", outcome.error)
        results[name], status = found, found["status"]
        if args.json:
            continue
        width = max(map(len, names))
        line = Text.assemble((f"{MARKS[status]} {status} ", colours[status]), f"{name:<{width}}")
        if "wall_s" in found:
            line.append(f" {out.duration(found['wall_s']):>6}", out.GREY)
        if "engine" in found:
            speed = out.steps_per_second(found["env_steps_per_s"])
            line.append(f"  {found['engine']:<8}{speed:>16}", out.GREY)
        console.say(line)
        for part in textwrap.wrap(reason or "", console.width - 7):
            console.say(" " * 7 + part, colours[status])
    in_order = [results[name] for name in names]
    counts = Counter(found["status"] for found in in_order)
    data = {"counts": {name: counts[name] for name in MARKS}, "results": in_order}
    if not out.told_json(args, data):
        text = f"{counts['pass']} passed, {counts['skip']} skipped, {counts['fail']} failed"
        console.print()
        console.print(text, style="red" if counts["fail"] else out.GREEN)
    if counts["fail"] and not args.json:
        failed = next(found["name"] for found in in_order if found["status"] == "fail")
        console.print(f"retry: gsolve smoke '{failed}'", style=out.GREY)
    return 1 if counts["fail"] else 0
