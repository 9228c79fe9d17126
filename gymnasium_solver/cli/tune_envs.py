"""`gsolve tune-envs CONFIG`: the fastest engine, number of environments and threads, measured."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.cli.flags import MANY, NONE, ONE, UsageError, load_target, parse_fields

if TYPE_CHECKING:
    from gymnasium_solver.bench.tune import Speed
    from gymnasium_solver.config.schema import Config

TASK = "gymnasium_solver.bench.tune:measure"
OPTIONS = {
    "help": NONE,
    "set": ONE,
    "try_envs": MANY,
    "engines": MANY,
    "threads": MANY,
    "seconds": ONE,
    "write": ONE,
    "json": NONE,
    "trust": NONE,
}
HELP = """\
usage: gsolve tune-envs <env>[:<variant>] [flags]

Measure how fast the environments of a config step on this machine: engine x number of
environments x threads, without learning, each in a process of its own.

flags:
  --try-envs N...          numbers of environments to try (default: the config's, half and double)
  --engines NAME...        engines to try: envpool vector sync async (default: all)
  --threads N...           threads of EnvPool to try (default: 1 and all CPUs)
  --seconds S              seconds for each case (default: 0.5)
  --write FILE.yaml        write the config with the fastest engine and number of environments;
                           n_steps is changed so that a rollout keeps its size
  --FIELD VALUE            change a field of the config first
  --json                   print JSON, for programs

examples:
  gsolve tune-envs CartPole-v1:ppo
  gsolve tune-envs HalfCheetah-v5:ppo --try-envs 8 16 --threads 1 2 4 --write tuned.yaml"""


def main(argv: Sequence[str]) -> int:
    args = parse_fields(argv, OPTIONS)
    if args.has("help") or not args.positionals:
        print(HELP)
        return 0 if args.has("help") else 2
    if len(args.positionals) > 1:
        raise UsageError(f"expected one config, got {', '.join(args.positionals)}")
    target = args.positionals[0]
    config = load_target(args, target, OPTIONS)
    from gymnasium_solver.cli.flags import changes_of

    overrides, fill = changes_of(args)
    output = _output(args.last("write"))
    speeds = run_cases(target, {**fill, **overrides}, config, args.options)
    if args.has("json"):
        _print_json(speeds, config)
    else:
        _print(speeds, config, target)
    if output is not None:
        write(config, speeds, output)
        print(f"wrote {output}; train it with gsolve train {output}")
    return 0 if any(speed.steps_per_s for speed in speeds) else 1


def run_cases(
    target: str, overrides: dict[str, Any], config: "Config", options: dict[str, list[str]]
) -> "list[Speed]":
    """Measure every case, one after the other."""
    from gymnasium_solver.bench.tune import ENGINES, Case, Speed, cases
    from gymnasium_solver.cli.workers import run_isolated
    from gymnasium_solver.config.cpus import cpu_count

    n = config.n_envs
    n_envs = _numbers(options, "try_envs") or sorted({max(1, n // 2), n, 2 * n})
    threads = _numbers(options, "threads") or sorted({1, cpu_count()})
    engines = options.get("engines") or list(ENGINES)
    unknown = [name for name in engines if name not in ENGINES]
    if unknown:
        raise UsageError(f"--engines {unknown[0]}: expected {', '.join(ENGINES)}")
    seconds = (options.get("seconds") or ["0.5"])[-1]
    try:
        span = float(seconds)
    except ValueError:
        raise UsageError(f"--seconds {seconds}: expected a number") from None
    if not 0.01 <= span <= 60:
        raise UsageError(f"--seconds {seconds}: expected 0.01 to 60")
    items = [
        {"target": target, "overrides": overrides, "seconds": span, **vars(case)}
        for case in cases(n_envs, engines, threads)
    ]
    found = []
    for outcome in run_isolated(TASK, items, jobs=1, timeout_s=60 + 4 * span):
        item = outcome.item
        case = Case(item["engine"], item["n_envs"], item["threads"])
        found.append(Speed(case, outcome.value, outcome.error or ""))
    return found


def _numbers(options: dict[str, list[str]], name: str) -> list[int]:
    words = options.get(name, [])
    if any(not word.isdecimal() or int(word) < 1 for word in words):
        raise UsageError(f"--{name.replace('_', '-')} {' '.join(words)}: expected numbers >= 1")
    return [int(word) for word in words]


def _output(name: str | None) -> Path | None:
    from gymnasium_solver.paths import output_file

    if name is None:
        return None
    if not name.endswith((".yaml", ".yml")):
        raise UsageError(f"--write {name}: expected a .yaml file")
    path = output_file(name, "the config")
    if path.exists():
        raise UsageError(f"--write {name}: the file exists; choose another name")
    return path


def _print(speeds: "Sequence[Speed]", config: "Config", target: str) -> None:
    from gymnasium_solver.bench.tune import best
    from gymnasium_solver.cli.tables import make_console, plain_table, print_table

    console = make_console()
    right = {"justify": "right", "no_wrap": True}
    table = plain_table("engine", ("envs", right), ("threads", right), ("steps/s", right), "")
    top, here = best(speeds), best(speeds, config.n_envs)
    for speed in sorted(speeds, key=lambda s: -(s.steps_per_s or 0.0)):
        mark = "fastest" if speed is top else "fastest for this config" if speed is here else ""
        case = speed.case
        shown = "-" if speed.steps_per_s is None else f"{speed.steps_per_s:,.0f}"
        threads = str(case.threads) if case.engine == "envpool" else ""
        table.add_row(case.engine, str(case.n_envs), threads, shown, speed.error or mark)
    print_table(console, table)
    if here is not None:
        text = f"gsolve train {target} --vectorization-mode {here.case.engine}"
        if here.case.engine == "envpool":
            text = f"GSOLVE_CPUS={here.case.threads} {text}"
        console.print(f"with its {config.n_envs} environments: {text}", markup=False)


def _print_json(speeds: "Sequence[Speed]", config: "Config") -> None:
    from gymnasium_solver.bench.tune import best
    from gymnasium_solver.cli.tables import print_json

    top, here = best(speeds), best(speeds, config.n_envs)
    print_json({
        "cases": [speed.to_dict() for speed in speeds],
        "fastest": top.to_dict() if top else None,
        "fastest_for_config": here.to_dict() if here else None,
    })  # fmt: skip


def write(config: "Config", speeds: "Sequence[Speed]", path: Path) -> None:
    """The config with the fastest case, and a rollout of the same size."""
    from gymnasium_solver.bench.tune import best
    from gymnasium_solver.config.load import config_dict
    from gymnasium_solver.config.yaml_file import dump_yaml
    from gymnasium_solver.paths import write_output

    rows = getattr(config, "n_steps", None)
    size = None if rows is None else rows * config.n_envs
    fitting = [s for s in speeds if size is None or size % s.case.n_envs == 0]
    top = best(fitting)
    if top is None:
        raise UsageError("nothing was measured, so nothing is written")
    data = config_dict(config)
    data |= {"vectorization_mode": top.case.engine, "n_envs": top.case.n_envs}
    if size is not None:
        data["n_steps"] = size // top.case.n_envs
    write_output(path, "the config", dump_yaml(data))
