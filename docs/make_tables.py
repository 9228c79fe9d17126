"""Writes the generated tables of the documentation from code and raw results.

    .venv/bin/python -m docs.make_tables

A page marks the place of a table, and what stands between the two marks is replaced:

    <!-- generated: fields (docs/make_tables.py) -->
    <!-- end of generated -->

tests/docs fails when a page is stale.
"""

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from benchmarks import alerts_healthy, alerts_ill, device_envs, learning, rewrite, solve, verdicts
from benchmarks.libraries import OURS
from docs.walk import walk
from gymnasium_solver.algos import ALGOS, algo_class
from gymnasium_solver.bench.harness import unpublishable
from gymnasium_solver.config.explain import describe
from gymnasium_solver.config.field_groups import block_titles
from gymnasium_solver.config.find import SHIPPED, ConfigEntry, find_configs
from gymnasium_solver.config.foreign import NAMES, OLD_CONFIGS
from gymnasium_solver.config.marks import search_ranges
from gymnasium_solver.config.schedule import EXPECTED, Schedule
from gymnasium_solver.config.schema import ALIASES, Config, LearnerConfig
from gymnasium_solver.config.yaml_file import parse_value
from gymnasium_solver.data.replay import Replay
from gymnasium_solver.envs.wrappers.options import words_for
from gymnasium_solver.envs.wrappers.wrapping import wrapper_catalog
from gymnasium_solver.runs.alerts.judge import RULES
from gymnasium_solver.runs.metrics import DECLARED, SYSTEMS, Metric
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.spaces.actions import action_kind
from gymnasium_solver.training.observer import EvalResult
from gymnasium_solver.training.prepare import load_config

WIDTH = 100
ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PLACE = re.compile(
    r"(<!-- generated: (?P<name>\w+) \(docs/make_tables\.py\) -->\n).*?(<!-- end of generated -->)",
    re.DOTALL,
)
ABLATIONS = "ablations"  # the suite of configs that change one part at a time
# Shape and dtype of the observation, numbers in an action, frames in a stack.
REPLAYS: dict[str, tuple[tuple[int, ...], Any, int, int]] = {
    "Pendulum-v1": ((3,), np.float32, 1, 1),
    "HalfCheetah-v5": ((17,), np.float32, 6, 1),
    "Humanoid-v5": ((348,), np.float32, 17, 1),
    "stacks of four frames": ((4, 84, 84), np.uint8, 1, 4),
    "the same, `replay_frame_stack: 1`": ((4, 84, 84), np.uint8, 1, 1),
}
SCHEDULES = (
    "0.001",
    "lin_0.001",
    "{start: 0.001, end: 0.0001}",
    "{start: 0.001, end: 0.0001, schedule: cosine}",
    "{start: 0.001, end: 0.0001, schedule: exponential}",
    "{start: 0.001, end: 0.0001, schedule: polynomial, power: 2}",
    "{start: 0.001, end: 0.0001, from: 0.25, to: 0.75}",
    "{start: 0.001, end: 0.0, warmup: 0.25}",
    "{start: 0.001, end: 0.0001, schedule: rate, rate: 0.5, every: 0.25}",
    "{start: 0.001, end: 0.0, schedule: periodic, cycles: 2}",
    "{points: [[0, 0.001], [0.25, 0.0004], [1.0, 0.0]]}",
)


def main() -> None:
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        new = rendered(old)
        if new != old:
            page.write_text(new, encoding="utf-8")
            print(page.relative_to(ROOT))


def rendered(text: str) -> str:
    """The page with all its tables made anew."""
    return PLACE.sub(lambda m: f"{m[1]}{TABLES[m['name']]()}\n{m[3]}", text)


def table(heads: list[str], rows: Iterable[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def code(text: object) -> str:
    return f"`{text}`"


def one_line(text: str) -> str:
    return " ".join(text.split())


# -- config ---------------------------------------------------------------------------------


def field_rows(cls: type[Config], names: list[str]) -> Iterator[list[str]]:
    schema = cls.model_json_schema()["properties"]
    for name in names:
        yield [
            code(name),
            default(cls, name),
            takes(schema[name]),
            one_line(schema[name]["description"]),
        ]


def takes(schema: dict[str, Any]) -> str:
    """The values a field takes, in words; how a schedule is written has a section of its own."""
    words = describe(schema).replace(str(2**31), "2^31")
    words = words.replace(", or a schedule", ", or a [schedule](config.md#schedules)")
    return words.replace(EXPECTED, "a [schedule](config.md#schedules)")


def default(cls: type[Config], name: str) -> str:
    field = cls.model_fields[name]
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True)
    if isinstance(value, Schedule):
        value = value.dump()
    return code(value if isinstance(value, str) and value else json.dumps(value))


FIELD_HEADS = ["field", "default", "takes", "what it does"]


def common_fields() -> str:
    parts = []
    by_group: dict[str, list[str]] = {}
    for name, title in block_titles(LearnerConfig).items():
        by_group.setdefault(title, []).append(name)
    for title, names in by_group.items():
        parts += [f"**{title.capitalize()}**", table(FIELD_HEADS, field_rows(LearnerConfig, names))]
    return "\n" + "\n\n".join(parts) + "\n"


def added_fields(cls: type[Config]) -> str:
    """The fields that a config class adds to its parent (its blocks too), then those it changes."""
    (parent,) = (base for base in cls.__bases__ if issubclass(base, Config))
    inherited = {row[0]: row for row in field_rows(parent, list(parent.model_fields))}
    rows = list(field_rows(cls, list(cls.model_fields)))
    added = [row for row in rows if row[0] not in inherited]
    changed = [row for row in rows if row[0] in inherited and row != inherited[row[0]]]
    return table(FIELD_HEADS, [*added, *changed])


def config_classes() -> dict[str, type[Config]]:
    """The config classes of all algorithms, and those that several of them share."""
    classes: dict[str, type[Config]] = {id_: algo_class(id_).Config for id_ in ALGOS}
    for cls in list(classes.values()):
        if not issubclass(cls, LearnerConfig):  # random has no network
            continue
        between = cls.__mro__[1 : cls.__mro__.index(LearnerConfig)]
        classes |= {
            snake_case(base.__name__.removesuffix("Config")): base
            for base in between
            if issubclass(base, LearnerConfig)
        }
    return classes


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def aliases() -> str:
    return table(["also read as", "field"], [[code(k), code(v)] for k, v in ALIASES.items()])


def foreign_names() -> str:
    rows = [[code(ours), ", ".join(map(code, names.split()))] for ours, names in NAMES.items()]
    return table(["field", "names elsewhere"], rows)


def old_configs() -> str:
    rows = [[code(old), code(f"gsolve train {new}")] for old, new in OLD_CONFIGS.items()]
    return table(["config there", "here"], rows)


def schedule_values() -> str:
    places = (0, 12_500, 25_000, 50_000, 75_000, 100_000)
    rows = []
    for written in SCHEDULES:
        schedule = Schedule.parse(parse_value(written))
        values = [f"{round(schedule.at(place, 100_000), 6):g}" for place in places]
        rows.append([code(written), *values])
    return table(["written", *(f"at {place / 1000:g}%" for place in places)], rows)


def shipped() -> list[ConfigEntry]:
    return [entry for entry in find_configs() if entry.path.is_relative_to(SHIPPED)]


def shipped_configs() -> str:
    rows = []
    for suite, of_suite in groupby(shipped(), key=lambda entry: entry.suite):
        names = []
        for env, of_env in groupby(of_suite, key=lambda entry: entry.name.rpartition(":")[0]):
            names.append(f"{env} ({', '.join(code(entry.variant) for entry in of_env)})")
        rows.append([suite, ", ".join(names)])
    return table(["suite", "environments (variants)"], rows)


def configs_of(algo_id: str) -> str:
    """The shipped configs of one algorithm; ablations have a table of their own."""
    rows = [
        [code(entry.name), f"{load_config(entry.name).max_env_steps:,}", entry.description]
        for entry in shipped()
        if entry.algo_id == algo_id and entry.suite != ABLATIONS
    ]
    return table(["config", "env steps", "about"], rows) if rows else "None yet."


def ablations() -> str:
    rows = [[code(e.name), e.description] for e in shipped() if e.suite == ABLATIONS]
    return table(["config", "about"], rows)


def replay_memory() -> str:
    """What a replay takes, as `gsolve train` prints it."""
    rows = []
    for name, (shape, dtype, n_actions, frame_stack) in REPLAYS.items():
        low, high = (0, 255) if dtype is np.uint8 else (-1, 1)
        observations = spaces.Box(low, high, shape, dtype)
        actions = action_kind(spaces.Box(-1, 1, (n_actions,), np.float32))
        stacks = {"": frame_stack}
        sizes = [
            Replay.estimate_bytes(n, 1, observations, actions, frame_stacks=stacks) / 2**20
            for n in (100_000, 1_000_000)
        ]
        rows.append([name, " x ".join(map(str, shape)), *(f"{size:,.1f} MB" for size in sizes)])
    return table(["environment", "observation", "100,000 transitions", "1,000,000"], rows)


# -- runs -----------------------------------------------------------------------------------


def metrics() -> str:
    """A table per group, in the order of the declarations."""
    parts = []
    for group, members in groupby(DECLARED, key=lambda metric: metric.group):
        rows = [
            [
                code(metric.name),
                metric.label,
                metric.unit,
                _bounds(metric),
                metric.description + (" (detail)" if metric.is_detail else ""),
            ]
            for metric in members
        ]
        title = f"`{group}/`" if group else "The clock"
        parts.append(
            f"**{title}**\n\n{table(['metric', 'name', 'unit', 'within', 'meaning'], rows)}"
        )
    return "\n\n".join(parts)


def _bounds(metric: Metric) -> str:
    low, high = metric.bounds
    if low is None and high is None:
        return ""
    if high is None:
        return f"≥ {low:g}"
    return f"≤ {high:g}" if low is None else f"{low:g} to {high:g}"


def raw_result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())
    return found


def alert_rules() -> str:
    rows = [
        [code(rule.name), code(rule.metric), rule.when, rule.meaning] for rule in RULES.values()
    ]
    return table(["alert", "metric", "raised when", "what it usually means"], rows)


def metric_aliases() -> str:
    rows = [
        [system, code(other), " or ".join(code(name) for name in ours)]
        for system, names in SYSTEMS.items()
        for other, ours in names.items()
    ]
    return table(["library", "name there", "name here"], rows)


def field_names(cls: type) -> str:
    names = ", ".join(code(field.name) for field in fields(cls))
    return textwrap.fill(f"{names}.", WIDTH)


# -- speed ----------------------------------------------------------------------------------


def speed() -> str:
    """Training of the same work compared with other libraries: medians, and ratios of pairs."""
    part = result_of("speed")["parts"]["training"]
    runs = {
        (row["algo"], row["threading"], row["who"], row["repeat"]): row["steps_per_s"]
        for row in part["data"]
        if "error" not in row
    }
    peers = [who for who in dict.fromkeys(key[2] for key in runs) if who != OURS]
    lines = []
    for algo, threading in dict.fromkeys(key[:2] for key in runs):
        ours = {key[3]: n for key, n in runs.items() if key[:3] == (algo, threading, OURS)}
        ratios = []
        for who in peers:
            pairs = [n / runs[algo, threading, who, repeat] for repeat, n in ours.items()
                     if (algo, threading, who, repeat) in runs]  # fmt: skip
            ratios.append(f"{np.median(pairs):.1f}" if pairs else "–")
        lines.append([algo, threading, f"{np.median(list(ours.values())):,.0f}", *ratios])
    measured = f"Measured {part['date']} at commit {part['versions']['commit']}."
    head = ["algorithm", "threads", "steps/s", *(f"× {who}" for who in peers)]
    return f"{table(head, lines)}\n\n{measured}"


def measured(name: str) -> str:
    """The page of a benchmark's last result without its title; how to make it, if there is none."""
    path = ROOT / f"benchmarks/results/{name}.json"
    if not path.exists():
        return f"Not measured yet: `python -m benchmarks.{name}`."
    page = rewrite.page(json.loads(path.read_text()))
    return page.partition("\n\n")[2].strip()


# -- results --------------------------------------------------------------------------------

# Scores over seeds; where a config is in several files, the last one counts.
LEARNING = (
    "learning-cartpole",
    "learning-classics",
    "learning-lunarlander",
    "learning-pqn",
    "learning-crossq",
    "learning-fetchreach",
    "learning-fast",
    "learning-fast-retuned",
    "learning-pendulum",
    "off_policy",
    "off_policy_pendulum",
)


def result_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())
    return found


def learning_results(folder: str, only_published: bool) -> str:
    """Held-out test scores over seeds; `folder` leads from the page to the results."""
    of_config: dict[str, tuple[str, list[dict[str, Any]]]] = {}
    for name in LEARNING:
        result = result_of(name)
        if only_published and unpublishable(result):
            continue
        for config in dict.fromkeys(run["config"] for run in result["runs"]):
            runs = [run for run in result["runs"] if run["config"] == config]
            of_config[config] = (name, runs)
    rows = [
        learning_row(config, runs, f"[{name}]({folder}/{name}.md)")
        for config, (name, runs) in of_config.items()
    ]
    heads = ["config", "seeds", "test score, IQM", "95 % interval", "threshold", "solved"]
    return table([*heads, "env steps, median", "evidence"], rows)


def learning_row(config: str, runs: list[dict[str, Any]], evidence: str) -> list[str]:
    stats, threshold = learning.statistics(runs), runs[0]["threshold"]
    assert stats is not None
    solved = sum(map(learning.is_solved, runs))
    return [
        code(config),
        str(len(runs)),
        number(stats["iqm"]),
        f"{number(stats['low'])} to {number(stats['high'])}",
        "none" if threshold is None else f"{threshold:g}",
        "–" if threshold is None else f"{solved} of {len(runs)}",
        f"{np.median([run['env_steps'] for run in runs]):,.0f}",
        evidence,
    ]


def classics() -> str:
    """The table of `gsolve benchmark benchmarks/classics.yaml`, shortened."""
    rows = []
    for row in result_of("classics")["rows"]:
        score, threshold = row["score"], row["threshold"]
        rows.append(
            [
                code(row["label"]),
                number(score["value"]),
                f"{number(score['low'])} to {number(score['high'])}",
                "none" if threshold is None else f"{threshold:g}",
                "–" if threshold is None else f"{row['n_solved']} of {row['seeds']}",
                f"{row['env_steps']:,.0f}",
                f"{row['wall_s']:,.0f} s",
            ]
        )
    heads = ["config", "test score, IQM", "95 % interval", "threshold", "solved"]
    return table([*heads, "env steps, median", "time, median"], rows)


def number(value: float) -> str:
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:,.2f}"


def solve_times() -> str:
    """Seconds from the shell to solved beside other libraries, if it was measured properly."""
    part = result_of("speed")["parts"].get("solve")
    if part is None or unpublishable(part):
        return "Not measured: `make bench`."
    rows = [row for row in part["data"] if "error" not in row]
    names = list(dict.fromkeys(row["who"] for row in rows))
    lines = []
    for env_id in dict.fromkeys(row["env_id"] for row in rows):
        runs = {who: [r for r in rows if (r["env_id"], r["who"]) == (env_id, who)] for who in names}
        if any(runs[who] for who in names if who != OURS):
            lines.append([code(f"{env_id}"), *(solve_cell(runs[who]) for who in names)])
    measured = f"Measured {part['date']} at commit {part['versions']['commit']}."
    return f"{table(['environment', *names], lines)}\n\n{measured}"


def solve_cell(runs: list[dict[str, Any]]) -> str:
    if not runs:
        return "–"
    seconds = np.median([run["wall_s"] for run in runs])
    n_solved = sum(map(solve.is_solved, runs))
    return f"{solve.more_than(runs)}{seconds:.1f} s ({n_solved} of {len(runs)})"


# -- wrappers -------------------------------------------------------------------------------


def wrappers() -> str:
    rows = []
    for entry in wrapper_catalog():
        if entry.is_shipped:
            options = [
                f"`{o.name}`: {words_for(o.annotation)}"
                + ("" if o.default is o.empty else f" (`{json.dumps(o.default)}`)")
                for o in entry.options
            ]
            rows.append([code(entry.id), "; ".join(options), entry.about])
    return table(["id", "options (default)", "what it does"], rows)


def wrapper_aliases() -> str:
    rows = [[code(alias), code(entry.id)] for entry in wrapper_catalog() for alias in entry.aliases]
    return table(["also read", "means"], sorted(rows))


def search_table() -> str:
    """The search range that each field declares, with the algorithms that have it."""
    rows: dict[tuple[str, str, bool], list[str]] = {}
    for algo_id in ALGOS:
        for name, item in search_ranges(algo_class(algo_id).Config).items():
            rows.setdefault((name, item.text, item.main), []).append(algo_id)
    learners = [algo_id for algo_id in ALGOS if search_ranges(algo_class(algo_id).Config)]
    return table(
        ["field", "range", "without `--param`", "algorithms"],
        [
            [f"`{name}`", f"`{text}`", "yes" if is_main else "",
             "all" if found == learners else ", ".join(found)]
            for (name, text, is_main), found in sorted(rows.items())
        ],
    )  # fmt: skip


TABLES: dict[str, Callable[[], str]] = {
    "search_ranges": search_table,
    "verdicts": lambda: verdicts.tables(
        json.loads((rewrite.RESULTS / "verdicts.json").read_text(encoding="utf-8"))
    ),
    "fields": common_fields,
    **{f"fields_{name}": partial(added_fields, cls) for name, cls in config_classes().items()},
    **{
        f"configs_{algo_id}": partial(configs_of, algo_id)
        for algo_id in ALGOS
        if algo_id not in ("bc", "random")
    },
    "aliases": aliases,
    "foreign_names": foreign_names,
    "old_configs": old_configs,
    "schedules": schedule_values,
    "configs": shipped_configs,
    "ablations": ablations,
    "replay_memory": replay_memory,
    "metrics": metrics,
    "metric_aliases": metric_aliases,
    "alert_rules": alert_rules,
    "ill_runs": lambda: alerts_ill.ill_table(raw_result("alerts_ill")),
    "healthy_runs": lambda: alerts_healthy.healthy_table(raw_result("alerts_healthy")),
    "device_rates": lambda: device_envs.rates_table(raw_result("device_envs")),
    "device_solve": lambda: device_envs.solve_table(raw_result("device_envs")),
    "wrappers": wrappers,
    "wrapper_aliases": wrapper_aliases,
    "run_summary": lambda: field_names(RunSummary),
    "eval_result": lambda: field_names(EvalResult),
    "speed": speed,
    "walk": walk,
    "learning": partial(learning_results, "benchmarks/results", only_published=True),
    "classics": classics,
    "learning_all": partial(learning_results, "../benchmarks/results", only_published=False),
    "solve_times": solve_times,
    **{
        name: partial(measured, name)
        for name in rewrite.PAGES
        if name not in ("own_envs", "pong_speed", "memory_speed", "before_after", "device_envs")
    },
    **{name: partial(measured, name) for name in ("envpool_families", "newcomer", "stack_cuda")},
}


if __name__ == "__main__":
    main()
