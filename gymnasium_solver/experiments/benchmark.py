"""Files that declare experiments: benchmarks (configs x seeds x budgets), with a table that is made
from run folders only, and ablations.

    # classics.yaml
    name: classics
    seeds: 5
    entries:
      - CartPole-v1:ppo
      - config: Acrobot-v1:ppo
        set: {max_env_steps: 100_000}
        reference: {score: -81.3, source: "SLM-Lab 5.3"}
      - {config: "Hopper-v5:sac", overlay: xqc}
      - suite: toy_text                       # its configs that are not listed

A benchmark is an experiment (`<runs>/experiments/benchmark-<name>/`): running it again does what is
left, and its table can be made anew at any time.

    # ablations.yaml: overlays, each of which changes some fields; {name: overlay} means the same
    - {name: no clipping, clip_range: null}
    - {gae_lambda: 1.0}                       # named after its fields
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shlex import quote
from statistics import fmean, median_high
from typing import TYPE_CHECKING, Any

from gymnasium_solver.config.find import find_configs
from gymnasium_solver.config.yaml_file import read_file
from gymnasium_solver.errors import ConfigError, told_as
from gymnasium_solver.experiments import experiment as experiments
from gymnasium_solver.experiments.comparison_report import csv_lines, draw, value_text
from gymnasium_solver.experiments.experiment import CONFIGS, FILE, FOLDER, Experiment
from gymnasium_solver.experiments.groups import VAL, Group, Member, experiment_groups, short_text
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS, Estimate, interval
from gymnasium_solver.runs import query
from gymnasium_solver.runs.files import finite, jsonable, write_atomic
from gymnasium_solver.runs.metrics import TRAIN
from gymnasium_solver.runs.report import Table, block_markdown
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.words import ScoreText
from gymnasium_solver.suggest import check_known, did_you_mean

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config

KEYS = ("name", "description", "seeds", "set", "entries")
ENTRY_KEYS = ("config", "suite", "overlay", "set", "threshold", "reference", "label")
REFERENCE = ("score", "source")
CURVE_POINTS = 100  # of a seed
SETTINGS = ("max_env_steps", "n_envs", "n_steps", "batch_size", "policy_lr", "hidden_dims")


@dataclass(frozen=True)
class Entry:
    """One row of the table: a config, what is changed in it, and what it is measured against."""

    label: str
    config: str
    changes: dict[str, Any] = field(default_factory=dict)
    threshold: float | None = None
    reference: float | None = None
    source: str = ""
    overlays: tuple[str, ...] = ()


@dataclass(frozen=True)
class Declared:
    """The content of a benchmark file."""

    name: str
    description: str
    seeds: list[int]
    entries: list[Entry]

    @property
    def experiment_name(self) -> str:
        return f"benchmark-{self.name}"


def read_benchmark(path: Path) -> Declared:
    """Read and check a benchmark file."""
    content, _ = read_file(path)
    with told_as(ConfigError, path, ValueError):
        return _declared(content, path.stem)


def _declared(content: Any, stem: str) -> Declared:
    top = _mapping(content, KEYS)
    rows, seeds = top.get("entries"), top.get("seeds", 5)
    if not isinstance(rows, list) or not rows:
        raise ValueError("entries: expected a list of configs")
    if type(seeds) is int and seeds > 0:
        seeds = list(range(1, seeds + 1))
    if not isinstance(seeds, list) or not seeds or any(type(seed) is not int for seed in seeds):
        raise ValueError(f"seeds: expected a number or a list of seeds, not {seeds!r}")
    rows = [_mapping({"config": r} if isinstance(r, str) else r, ENTRY_KEYS) for r in rows]
    # A suite stands for its configs that are not listed by name.
    named, shared = {row.get("config") for row in rows}, _changes(top)
    entries = [
        entry
        for row in rows
        for entry in _entries(row, shared)
        if not ("suite" in row and entry.config in named)
    ]
    labels = [entry.label for entry in entries]
    if twice := [label for label in dict.fromkeys(labels) if labels.count(label) > 1]:
        raise ValueError(f"given twice: {', '.join(twice)}; add `label: ...` to one")
    return Declared(str(top.get("name") or stem), str(top.get("description") or ""), seeds, entries)


def take_up(
    declared: Declared, root: Path, trust: bool = False, is_new_allowed: bool = True
) -> Experiment:
    """The experiment of a benchmark, created at the first call."""
    from gymnasium_solver.config.load import dump_config
    from gymnasium_solver.training.prepare import load_config

    path = root / FOLDER / declared.experiment_name
    exists = (path / FILE).is_file()
    if not exists and not is_new_allowed:
        raise ConfigError(f"{declared.name} has not been run in {root}; leave out --table")
    configs = [
        (e.label, load_config(e.config, overrides=e.changes, overlays=e.overlays, trust=trust))
        for e in declared.entries
    ]
    if not exists:
        command = ["gsolve", "benchmark", declared.name]
        name = declared.experiment_name
        return experiments.create(configs, declared.seeds, root, name=name, command=command)
    found = experiments.load(path)
    kept = {m.group: (path / CONFIGS / m.config).read_text() for m in found.members}
    wanted = {label: dump_config(config.replace(seed=None)) for label, config in configs}
    seeds = list(dict.fromkeys(member.seed for member in found.members))
    other = [label for label in {**kept, **wanted} if kept.get(label) != wanted.get(label)]
    if (other or seeds != declared.seeds) and is_new_allowed:
        what = f"other settings of {', '.join(other[:5])}" if other else f"seeds {seeds}"
        raise ConfigError(
            f"{path} was begun with {what}. Give the benchmark another name in its file, or write "
            "the table of what there is with --table"
        )
    return found


def _mapping(value: Any, keys: Sequence[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        given = "but it is empty" if value is None else f"not {value!r}"
        raise ValueError(f"expected `key: value` lines, {given}")
    for key in value:
        check_known(ValueError, key, keys, f"{key}: unknown key")
    return value


def _changes(block: Mapping[str, Any]) -> dict[str, Any]:
    fields = block.get("set") or {}
    if not isinstance(fields, dict):
        raise ValueError(f"set: expected fields and values, not {fields!r}")
    if "seed" in fields:
        raise ValueError("set: seed: use `seeds` at the top of the file")
    return {str(key): item for key, item in fields.items()}


def _entries(row: Mapping[str, Any], shared: Mapping[str, Any]) -> list[Entry]:
    given, changes = row.get("overlay") or [], {**shared, **_changes(row)}
    overlays = (given,) if isinstance(given, str) else given
    if not isinstance(overlays, list | tuple) or not all(isinstance(n, str) for n in overlays):
        raise ValueError(f"overlay: expected a name or a list of names, not {given!r}")
    overlays = tuple(overlays)
    if "suite" in row:
        found = [entry for entry in find_configs() if entry.suite == row["suite"]]
        if not found:
            known = sorted({entry.suite for entry in find_configs()})
            hint = did_you_mean(str(row["suite"]), known) or f"Suites: {', '.join(known)}."
            raise ValueError(f"suite: there is no suite {row['suite']!r}. {hint}")
        return [
            Entry(" ".join((entry.name, *overlays)), entry.name, dict(changes), overlays=overlays)
            for entry in found
        ]
    name, reference, threshold = row.get("config"), row.get("reference"), row.get("threshold")
    if not isinstance(name, str):
        raise ValueError(f"an entry needs `config: NAME` or `suite: NAME`, got {row!r}")
    if reference is not None and not isinstance(reference, dict):
        reference = {"score": reference}
    score = None if reference is None else finite(_mapping(reference, REFERENCE).get("score"))
    if reference is not None and score is None:
        raise ValueError(f"{name}: reference: expected {{score: NUMBER, source: TEXT}}")
    if threshold is not None and finite(threshold) is None:
        raise ValueError(f"{name}: threshold: expected a number")
    source = str((reference or {}).get("source") or "")
    label = str(row.get("label") or " ".join((name, *overlays)))
    return [Entry(label, name, changes, threshold, score, source, overlays)]


def read_ablations(path: Path) -> dict[str, dict[str, Any]]:
    """The overlays of an ablation file by name."""
    expected = "expected a list of overlays such as `- {name: no clipping, clip_range: null}`"
    content, _ = read_file(path)
    if isinstance(content, dict):
        content = [
            {"name": name, **(overlay if isinstance(overlay, dict) else {"": overlay})}
            for name, overlay in content.items()
        ]
    if not isinstance(content, list) or not content:
        raise ConfigError(f"{path}: {expected}")
    overlays: dict[str, dict[str, Any]] = {}
    for entry in content:
        if not isinstance(entry, dict) or not set(entry) - {"name"} or "" in entry:
            raise ConfigError(f"{path}: {json.dumps(entry, default=str)[:80]}: {expected}")
        fields = {str(key): value for key, value in entry.items() if key != "name"}
        texts = (f"{name}={short_text(value)}" for name, value in fields.items())
        name = str(entry.get("name") or ", ".join(texts))
        if name in overlays:
            raise ConfigError(f"{path}: two overlays are called {name!r}; give one another name")
        overlays[name] = fields
    return overlays


def ablated(
    label: str,
    target: str,
    path: Path,
    overrides: Mapping[str, Any],
    fill: Mapping[str, str],
    trust: bool,
) -> "list[tuple[str, Config]]":
    """A config once with each overlay of an ablation file, with its label."""
    from gymnasium_solver.training.prepare import load_config

    found = []
    for name, overlay in read_ablations(path).items():
        fields = {**overrides, **overlay}
        with told_as(ConfigError, f"{path}: {name}", ConfigError):
            config = load_config(target, overrides=fields, fill=fill, trust=trust, chooses=True)
            found.append((f"{label} {name}", config))
    return found


# --- the table

Row = dict[str, Any]
"""One line of the table as it is in the JSON. `scores` are the held-out tests of the seeds in their
order, of the best checkpoints; `finals` the last validations of the same seeds, of the final
policies; env_steps and wall_s are medians."""


def rows_of(declared: Declared, experiment: Experiment) -> list[Row]:
    """The table of a benchmark, read from run folders, as far as it has been run."""
    groups = {group.label: group for group in experiment_groups(experiment)}
    progress = experiments.Progress(experiment).rows()
    found = []
    for entry in declared.entries:
        own = [row for row in progress if row.member.group == entry.label]
        found.append(_row(entry, groups.get(entry.label), experiment, experiments.counts(own)))
    return found


def _row(entry: Entry, group: Group | None, experiment: Experiment, status: str) -> Row:
    members: tuple[Member, ...] = group.members if group is not None else ()
    tested = [m for m in members if m.is_tested and m.score is not None]
    tested.sort(key=lambda member: member.summary.seed or 0)
    scores = [float(m.score) for m in tested if m.score is not None]
    config = next(m.config for m in experiment.members if m.group == entry.label)
    content, _ = read_file(experiment.path / CONFIGS / config)
    threshold = entry.threshold
    if threshold is None and group is not None:
        threshold = group.threshold
    estimate = interval(scores) if scores else None
    git = [m.meta.get("git") or {} for m in members]
    commits = [f"{str(g.get('commit'))[:7]}{'+' * bool(g.get('dirty'))}" for g in git if g]
    changes = entry.changes.items()
    flags = f" --overlay {' '.join(entry.overlays)}" if entry.overlays else ""
    flags += "".join(f" --{name.replace('_', '-')} {quote(value_text(v))}" for name, v in changes)
    return {
        "label": entry.label,
        "env_id": str(content.get("env_id")),
        "status": status,
        "seeds": len(scores),
        "mean": fmean(scores) if scores else None,
        "threshold": threshold,
        "n_solved": 0 if threshold is None else sum(score >= threshold for score in scores),
        "reference": entry.reference,
        "source": entry.source,
        "verdict": verdict(estimate, entry.reference),
        "env_steps": median_high(m.summary.env_steps for m in tested) if tested else None,
        "wall_s": median_high(m.summary.wall_s for m in tested) if tested else None,
        "settings": ", ".join(f"{n} {value_text(content[n])}" for n in SETTINGS if content.get(n)),
        "command": f"gsolve train {entry.config}{flags} --seed <seed>",
        "score": None if estimate is None else asdict(estimate),
        "scores": scores,
        "finals": [_final(m, score) for m, score in zip(tested, scores, strict=True)],
        "engines": [*dict.fromkeys(str(m.meta["engine"]) for m in tested if m.meta.get("engine"))],
        "commits": list(dict.fromkeys(commits)),
        "runs": [m.summary.id for m in members],
    }


def _final(member: Member, score: float) -> float:
    """The last validation; without one the test is of the final policy, too."""
    if (last := member.summary.last_eval) is None:
        return score
    found = finite(last.get("score"))
    return math.nan if found is None else found  # null in a file: its returns were not finite


def verdict(score: Estimate | None, reference: float | None) -> str:
    """The score against a published one, which has no interval of its own."""
    if score is None or reference is None:
        return ""
    if score.n < FEWEST_SEEDS:
        return f"cannot tell: {score.n} seed{'s' * (score.n != 1)}"
    if score.low > reference:
        return "above"
    return "below" if score.high < reference else "within the interval"


HEADS = (
    *("config", "status", "scores by seed", "IQM", "95 % interval", "mean", "final policies"),
    *("threshold", "solved", "reference", "against it", "env steps", "time"),
)


def cells(row: Row) -> tuple[str, ...]:
    threshold, reference, found = row["threshold"], row["reference"], row["score"]
    score = ScoreText(threshold, [v for v in (reference, row["mean"]) if v is not None])
    source = f" ({row['source']})" if row["source"] else ""
    return (
        row["label"],
        row["status"],
        " ".join(map(score, row["scores"])),
        score(found["value"]) if found else "",
        f"{score(found['low'])} to {score(found['high'])}" if found and found["n"] > 1 else "",
        "" if row["mean"] is None else score(row["mean"]),
        score(fmean(row["finals"])) if row["finals"] else "",
        "" if threshold is None else f"{threshold:g}",
        "" if threshold is None or not row["seeds"] else f"{row['n_solved']} of {row['seeds']}",
        "" if reference is None else f"{score(reference)}{source}",
        row["verdict"],
        "" if row["env_steps"] is None else f"{row['env_steps']:,.0f}",
        "" if row["wall_s"] is None else f"{row['wall_s']:,.0f} s",
    )


def write_tables(declared: Declared, experiment: Experiment, folder: Path) -> list[Path]:
    """Write <name>.md, .csv, .json, -curves.csv and .png; returns the files."""
    rows = rows_of(declared, experiment)
    found = {group.label: group for group in experiment_groups(experiment)}
    groups = [found[entry.label] for entry in declared.entries if entry.label in found]
    data = {"name": declared.name, "description": declared.description, "seeds": declared.seeds,
            "experiment": experiment.id, "rows": rows}  # fmt: skip
    scored = [group for group in groups if group.scores]
    texts = {
        ".md": _markdown(declared, groups, rows, bool(scored)),
        ".csv": _csv(rows),
        ".json": json.dumps(jsonable(data), indent=1) + "\n",
        "-curves.csv": _curves(groups),
    }
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{declared.name}{suffix}" for suffix in texts]
    for path, text in zip(files, texts.values(), strict=True):
        write_atomic(path, text.encode())
    if scored:
        files.append(folder / f"{declared.name}.png")
        draw(scored, files[-1], metric=VAL if any(_has_evaluations(g) for g in scored) else TRAIN)
    return files


def _has_evaluations(group: Group) -> bool:
    return any(group.curve_set(VAL))


def _markdown(
    declared: Declared, groups: Sequence[Group], rows: Sequence[Row], has_picture: bool
) -> str:
    machines: dict[str, None] = {}  # each once, in their order
    packages: dict[str, None] = {}
    for meta in (member.meta for group in groups for member in group.members):
        machine, versions = meta.get("machine") or {}, (meta.get("versions") or {}).items()
        machines[f"{machine.get('cpu')}, {machine.get('cpu_count')} CPUs"] = None
        packages[", ".join(f"{name} {version}" for name, version in versions if version)] = None
    lists = {
        "Settings": [", ".join([f"{r['label']}: {r['settings']}", *r["engines"]]) for r in rows],
        "Commands": [
            f"`{r['command']}`, commit {', '.join(r['commits']) or 'unknown'}" for r in rows
        ],
        "Machines": [*machines, *packages],
    }
    parts = [
        f"# {declared.name}",
        declared.description,
        "Made from run folders by `gsolve benchmark`. Score: mean return of the best checkpoint on "
        "held-out test episodes; the unit is the seed. Intervals are 95 % intervals of the IQM "
        "over seeds. Final policies: mean of the last validations. Time and env steps are "
        f"medians. Every seed's curves: [{declared.name}-curves.csv]({declared.name}-curves.csv).",
        block_markdown(Table(HEADS, [cells(row) for row in rows])),
        f"![Learning curves]({declared.name}.png)\n" if has_picture else "",
        *(f"## {title}\n\n" + "\n".join(f"- {line}" for line in lines)
          for title, lines in lists.items()),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def _curves(groups: Sequence[Group]) -> str:
    """Returns of training and validation of every seed, at most CURVE_POINTS each."""
    names = ("env_steps", "wall_s", TRAIN, VAL)
    lines: list[tuple[Any, ...]] = [("label", "seed", "env_steps", "wall_s", "train", "val")]
    for group in groups:
        for member in group.members:
            rows = query.get_columns(Run(Path(member.summary.path)), names)
            validated = [row for row in rows if finite(row.get(VAL)) is not None]
            kept = validated or rows
            step = -(-len(kept) // CURVE_POINTS) or 1
            for row in kept[(len(kept) - 1) % step :: step]:  # with the last one
                values = (finite(row.get(name)) for name in names)
                numbers = ("" if value is None else f"{value:.6g}" for value in values)
                lines.append((group.label, member.summary.seed, *numbers))
    return csv_lines(lines)


def _csv(rows: Sequence[Row]) -> str:
    lines: list[Row] = []
    for row in rows:
        plain = {name: value for name, value in row.items() if not isinstance(value, list | dict)}
        score = plain.pop("score", None) or row["score"] or {}
        plain |= {"iqm": score.get("value"), "low": score.get("low"), "high": score.get("high")}
        lists = {
            n: " ".join(map(str, value)) for n, value in row.items() if isinstance(value, list)
        }
        lines.append(plain | lists)
    return csv_lines([list(lines[0]), *(list(line.values()) for line in lines)])
