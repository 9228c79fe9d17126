"""`gsolve doctor env ID`: checks an environment and gives advice."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli import format as fmt
from gymnasium_solver.cli.flags import Parser, UsageError

if TYPE_CHECKING:
    from gymnasium_solver.envs.checks.env import Finding

ENGINES = ("auto", "envpool", "vector", "sync")
N_ENVS = 8
FASTER = 1.3  # how much faster another engine must be before it is recommended


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "doctor env",
        "Check an environment with random actions: spaces, NaN, the scale of observations and\n"
        "rewards, how episodes end, seeding, autoreset, speed by engine, rendering. Exits with 1\n"
        "if an agent could not learn correctly from it.",
        "examples:\n  gsolve doctor env LunarLander-v3\n"
        "  gsolve doctor env my_module:MyEnv-v0 --env-kwargs size=8 --steps 5000 --json",
    )
    parser.add_argument("env_id", metavar="ID", help="as for gsolve train, or my_module:MyEnv-v0")
    parser.add_argument("--env-kwargs", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--steps", type=int, default=2000, metavar="N", help="steps to check (2000)"
    )
    parser.add_json()
    args = parser.read(argv)
    if args.steps < 8:
        raise UsageError(f"--steps must be 8 or more, got {args.steps}")
    kwargs = _env_kwargs(args.env_kwargs)

    from gymnasium_solver.plugins import see_working_folder

    see_working_folder()
    findings = [] if args.json else _Printed(args.env_id)
    to_come = all_findings(args.env_id, kwargs, args.steps)
    while True:
        with _silence():
            finding = next(to_come, None)
        if finding is None:
            break
        findings.append(finding)
    failed = any(finding.level == "problem" for finding in findings)
    if args.json:
        from gymnasium_solver.cli.tables import print_json

        rows = [asdict(finding) for finding in findings]
        print_json({"env_id": args.env_id, "healthy": not failed, "findings": rows})
    else:
        _print_advice(findings)
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


def all_findings(env_id: str, env_kwargs: dict[str, Any], n_steps: int) -> Iterator["Finding"]:
    from gymnasium_solver.envs.catalogue import space_text
    from gymnasium_solver.envs.checks.env import Finding, examine, raw_findings
    from gymnasium_solver.envs.make import make_vector_env

    env = make_vector_env(env_id, 1, env_kwargs=env_kwargs)
    seen, acts = space_text(env.observation_space), space_text(env.action_space)
    yield Finding("made", "ok", f"observes {seen}, acts {acts}, {env.spec.engine}")
    yield from _spec_findings(env_id, env)
    env.close()
    yield from raw_findings(env_id, env_kwargs)
    yield from examine(env_id, env_kwargs, n_steps)
    yield speed_finding(env_id, env_kwargs)
    yield render_finding(env_id, env_kwargs)


def _spec_findings(env_id: str, env: Any) -> Iterator["Finding"]:
    from gymnasium_solver.envs.catalogue import find_environment
    from gymnasium_solver.envs.checks.env import Finding
    from gymnasium_solver.envs.checks.spec_block import spec_mismatches

    entry = find_environment(env_id)
    if entry is None:
        return
    problems = spec_mismatches(entry.spec, env)
    for problem in problems:
        yield Finding("spec", "advice", problem, "fix the spec block of its config")
    if not problems:
        yield Finding("spec", "ok", "the labels in its config match the spaces")


def speed_finding(env_id: str, env_kwargs: dict[str, Any]) -> "Finding":
    """Steps per second with 8 envs, on every engine that has the environment."""
    from gymnasium_solver.envs.checks.env import Finding, steps_per_s
    from gymnasium_solver.envs.make import make_vector_env
    from gymnasium_solver.errors import EnvError

    speeds: dict[str, float] = {}
    auto = ""
    for mode in ENGINES:
        try:
            env = make_vector_env(env_id, N_ENVS, env_kwargs=env_kwargs, vectorization_mode=mode)
        except EnvError:
            continue  # this engine does not have it
        try:
            auto = auto or env.spec.engine
            if env.spec.engine not in speeds:
                speeds[env.spec.engine] = steps_per_s(env)
        finally:
            env.close()
    listed = ", ".join(f"{name} {fmt.steps_per_second(speed)}" for name, speed in speeds.items())
    text = f"{N_ENVS} envs: {listed}; auto uses {auto}"
    best = max(speeds, key=lambda name: speeds[name])
    if speeds[best] > FASTER * speeds[auto]:
        return Finding("speed", "advice", text, f"vectorization_mode: {best}")
    return Finding("speed", "ok", text)


def render_finding(env_id: str, env_kwargs: dict[str, Any]) -> "Finding":
    from gymnasium_solver.cli.frames import render_frame
    from gymnasium_solver.envs.checks.env import Finding

    frame, drawn = render_frame(env_id, env_kwargs)
    if frame is None:
        return Finding("rendering", "advice", f"no frame: {drawn}", "rendering will not work")
    height, width = frame.shape[:2]
    return Finding("rendering", "ok", f"{width} × {height} pixels by {drawn}")


def _env_kwargs(words: Sequence[str]) -> dict[str, Any]:
    from gymnasium_solver.config.yaml_file import parse_value

    pairs = [word.partition("=") for word in words]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise UsageError(f"--env-kwargs takes KEY=VALUE, but got '{key}'")
    return {key: parse_value(value) for key, _, value in pairs}


class _Printed(list[Any]):
    """Findings, printed as they are added: some checks take seconds."""

    def __init__(self, env_id: str) -> None:
        from gymnasium_solver.cli.tables import make_console

        super().__init__()
        self.console, self.env_id = make_console(), env_id

    def append(self, finding: Any) -> None:
        from rich.text import Text

        from gymnasium_solver.cli.colours import GREEN, ORANGE
        from gymnasium_solver.cli.tables import print_pairs

        if not self:
            self.console.print(self.env_id, style="bold", markup=False)
        super().append(finding)
        mark = {"ok": ("✓ ", GREEN), "advice": ("! ", ORANGE)}.get(finding.level, ("✗ ", "red"))
        text = Text.assemble(mark, finding.text)
        print_pairs(self.console, [(f"{finding.name:<10}", text)])


def _print_advice(findings: Any) -> None:
    from rich.text import Text

    from gymnasium_solver.cli.colours import GREEN, ORANGE
    from gymnasium_solver.cli.tables import print_pairs

    console = findings.console
    advised = [finding for finding in findings if finding.level != "ok" and finding.fix]
    if not advised:
        console.print(Text("nothing to fix", style=GREEN))
        return
    console.print(Text("advice", style="bold"))
    colours = {"advice": ORANGE, "problem": "red"}
    rows = [(f"{f.name:<10}", Text(f.fix, style=colours[f.level])) for f in advised]
    print_pairs(console, rows)
