"""Declared benchmarks: configs x seeds x budgets, and a table made from run folders only.

    # classics.yaml
    name: classics
    seeds: 5
    entries:
      - CartPole-v1:ppo
      - config: Acrobot-v1:ppo
        set: {max_env_steps: 100_000}
        reference: {score: -81.3, source: "SLM-Lab 5.3"}
      - suite: toy_text                       # its configs that are not listed

A benchmark is an experiment (`<runs>/experiments/benchmark-<name>/`): running it again does what is
left, and its table can be made anew at any time.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gymnasium_solver.config.find import find_configs
from gymnasium_solver.config.yaml_file import read_file
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.experiment import CONFIGS, Experiment
from gymnasium_solver.experiments.groups import Group, Member, experiment_groups
from gymnasium_solver.experiments.progress import Progress, counts
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS, Estimate, interval, mean
from gymnasium_solver.runs.files import finite, write_atomic
from gymnasium_solver.runs.words import ScoreText
from gymnasium_solver.suggest import did_you_mean

KEYS = ("name", "description", "seeds", "set", "entries")
ENTRY_KEYS = ("config", "suite", "set", "threshold", "reference", "label")
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
    top = _mapping(content, KEYS, str(path))
    rows = top.get("entries")
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"{path}: entries: expected a list of configs")
    shared = _changes(top.get("set"), f"{path}: set")
    named = {row.get("config") if isinstance(row, dict) else row for row in rows}
    entries = [
        entry
        for row in rows
        for entry in _entries(row, shared, str(path))
        # A suite stands for its configs that are not listed by name.
        if not (isinstance(row, dict) and "suite" in row and entry.config in named)
    ]
    labels = [entry.label for entry in entries]
    twice = [label for label in dict.fromkeys(labels) if labels.count(label) > 1]
    if twice:
        raise ConfigError(f"{path}: given twice: {', '.join(twice)}; add `label: ...` to one")
    name = str(top.get("name") or path.stem)
    return Declared(name, str(top.get("description") or ""), _seeds(top, path), entries)


def _mapping(value: Any, keys: Sequence[str], where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        given = "but it is empty" if value is None else f"not {value!r}"
        raise ConfigError(f"{where}: expected `key: value` lines, {given}")
    for key in value:
        if key not in keys:
            hint = did_you_mean(str(key), keys) or f"Expected {', '.join(keys)}."
            raise ConfigError(f"{where}: {key}: unknown key. {hint}")
    return value


def _seeds(top: Mapping[str, Any], path: Path) -> list[int]:
    seeds = top.get("seeds", 5)
    if isinstance(seeds, int) and not isinstance(seeds, bool) and seeds > 0:
        return list(range(1, seeds + 1))
    if isinstance(seeds, list) and seeds and all(type(seed) is int for seed in seeds):
        return seeds
    raise ConfigError(f"{path}: seeds: expected a number or a list of seeds, not {seeds!r}")


def _changes(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: expected fields and values, not {value!r}")
    if "seed" in value:
        raise ConfigError(f"{where}: seed: use `seeds` at the top of the file")
    return {str(key): item for key, item in value.items()}


def _entries(row: Any, shared: Mapping[str, Any], path: str) -> list[Entry]:
    if isinstance(row, str):
        row = {"config": row}
    row = _mapping(row, ENTRY_KEYS, f"{path}: entries")
    changes = {**shared, **_changes(row.get("set"), f"{path}: {row.get('config')}: set")}
    if "suite" in row:
        found = [entry for entry in find_configs() if entry.suite == row["suite"]]
        if not found:
            known = sorted({entry.suite for entry in find_configs()})
            hint = did_you_mean(str(row["suite"]), known) or f"Suites: {', '.join(known)}."
            raise ConfigError(f"{path}: suite: there is no suite {row['suite']!r}. {hint}")
        return [Entry(entry.name, entry.name, dict(changes)) for entry in found]
    if not isinstance(row.get("config"), str):
        raise ConfigError(f"{path}: an entry needs `config: NAME` or `suite: NAME`, got {row!r}")
    score, source = _reference(row, path)
    threshold = row.get("threshold")
    if threshold is not None and finite(threshold) is None:
        raise ConfigError(f"{path}: {row['config']}: threshold: expected a number")
    label = str(row.get("label") or row["config"])
    return [Entry(label, row["config"], changes, threshold, score, source)]


def _reference(row: Mapping[str, Any], path: str) -> tuple[float | None, str]:
    reference = row.get("reference")
    if reference is None:
        return None, ""
    where = f"{path}: {row['config']}: reference"
    if not isinstance(reference, dict):
        reference = {"score": reference}
    reference = _mapping(reference, ("score", "source"), where)
    if finite(reference.get("score")) is None:
        raise ConfigError(f"{where}: expected {{score: NUMBER, source: TEXT}}")
    return float(reference["score"]), str(reference.get("source") or "")


# --- the table


@dataclass(frozen=True)
class Row:
    """One line of the table, read from run folders."""

    label: str
    env_id: str
    status: str
    seeds: int
    settings: str
    score: Estimate | None
    mean: float | None
    threshold: float | None
    n_solved: int
    reference: float | None
    source: str
    verdict: str
    env_steps: float | None
    """Median over seeds of the env steps trained."""
    wall_s: float | None
    command: str
    commits: list[str]
    runs: list[str]


def rows_of(declared: Declared, experiment: Experiment) -> list[Row]:
    """The table of a benchmark, as far as it has been run."""
    groups = {group.label: group for group in experiment_groups(experiment)}
    progress = Progress(experiment).rows()
    return [
        _row(entry, groups.get(entry.label), experiment,
             counts([row for row in progress if row.member.group == entry.label]))
        for entry in declared.entries
    ]  # fmt: skip


def _row(entry: Entry, group: Group | None, experiment: Experiment, status: str) -> Row:
    members: tuple[Member, ...] = group.members if group is not None else ()
    tested = [m for m in members if m.is_tested and m.score is not None]
    scores = [float(m.score) for m in tested if m.score is not None]
    config = next(m.config for m in experiment.members if m.group == entry.label)
    content, _ = read_file(experiment.path / CONFIGS / config)
    threshold = entry.threshold
    if threshold is None and group is not None:
        threshold = group.threshold
    estimate = interval(scores) if scores else None
    steps = sorted(m.summary.env_steps for m in tested)
    walls = sorted(m.summary.wall_s for m in tested)
    git = [m.meta.get("git") or {} for m in members]
    commits = [f"{str(g.get('commit'))[:7]}{'+' * bool(g.get('dirty'))}" for g in git if g]
    flags = " ".join(f"--{k.replace('_', '-')} {_text(v)}" for k, v in entry.changes.items())
    return Row(
        label=entry.label,
        env_id=str(content.get("env_id")),
        status=status,
        seeds=len(scores),
        settings=", ".join(f"{n} {_text(content[n])}" for n in SETTINGS if content.get(n)),
        score=estimate,
        mean=float(interval(scores, mean, repeats=2).value) if scores else None,
        threshold=threshold,
        n_solved=0 if threshold is None else sum(score >= threshold for score in scores),
        reference=entry.reference,
        source=entry.source,
        verdict=verdict(estimate, entry.reference),
        env_steps=steps[len(steps) // 2] if steps else None,
        wall_s=walls[len(walls) // 2] if walls else None,
        command=f"gsolve train {entry.config}{f' {flags}' if flags else ''} --seed <seed>",
        commits=list(dict.fromkeys(commits)),
        runs=[m.summary.id for m in members],
    )


def verdict(score: Estimate | None, reference: float | None) -> str:
    """The score against a published one, which has no interval of its own."""
    if score is None or reference is None:
        return ""
    if score.n < FEWEST_SEEDS:
        return f"cannot tell: {score.n} seed{'s' * (score.n != 1)}"
    if score.low > reference:
        return "above"
    return "below" if score.high < reference else "within the interval"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


HEADS = (
    *("config", "status", "seeds", "IQM", "95 % interval", "mean", "threshold", "solved"),
    *("reference", "against it", "env steps", "time"),
)


def cells(row: Row) -> tuple[str, ...]:
    known = [v for v in (row.reference, row.mean) if v is not None]
    score = ScoreText(row.threshold, known)
    has_interval = row.score is not None and row.score.n > 1
    reference = "" if row.reference is None else f"{score(row.reference)} ({row.source})"
    return (
        row.label,
        row.status,
        str(row.seeds),
        "" if row.score is None else score(row.score.value),
        f"{score(row.score.low)} to {score(row.score.high)}" if row.score and has_interval else "",
        "" if row.mean is None else score(row.mean),
        "" if row.threshold is None else f"{row.threshold:g}",
        "" if row.threshold is None or not row.seeds else f"{row.n_solved} of {row.seeds}",
        reference.removesuffix(" ()"),
        row.verdict,
        "" if row.env_steps is None else f"{row.env_steps:,.0f}",
        "" if row.wall_s is None else f"{row.wall_s:,.0f} s",
    )


def write_tables(declared: Declared, experiment: Experiment, folder: Path) -> list[Path]:
    """Write <name>.md, .csv, .json and .png; returns the files."""
    rows = rows_of(declared, experiment)
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{declared.name}{suffix}" for suffix in (".md", ".csv", ".json", ".png")]
    picture = _draw(declared, experiment, files[3])
    write_atomic(files[0], _markdown(declared, experiment, rows, picture).encode())
    write_atomic(files[1], _csv(rows).encode())
    data = {"name": declared.name, "description": declared.description, "seeds": declared.seeds,
            "experiment": experiment.id, "rows": [asdict(row) for row in rows]}  # fmt: skip
    write_atomic(files[2], (json.dumps(data, indent=1, default=str) + "\n").encode())
    return files if picture else files[:3]


def _draw(declared: Declared, experiment: Experiment, path: Path) -> bool:
    found = {group.label: group for group in experiment_groups(experiment) if any(group.scores)}
    groups = [found[entry.label] for entry in declared.entries if entry.label in found]
    if not groups:
        return False
    try:
        from gymnasium_solver.experiments.pictures import draw

        draw(groups, path)
    except ImportError:
        return False
    return True


def _markdown(
    declared: Declared, experiment: Experiment, rows: Sequence[Row], picture: bool
) -> str:
    metas = [m.meta for group in experiment_groups(experiment) for m in group.members]
    machines = dict.fromkeys(_machine(meta) for meta in metas)
    versions = dict.fromkeys(_versions(meta) for meta in metas)
    lines = [
        f"# {declared.name}",
        "",
        declared.description,
        "",
        "Made from run folders by `gsolve benchmark`. Score: mean return of the best checkpoint on "
        "held-out test episodes; the unit is the seed. Intervals are percentile bootstraps of the "
        "IQM over seeds. Time and env steps are medians.",
        "",
        "| " + " | ".join(HEADS) + " |",
        "| " + " | ".join(["---"] * len(HEADS)) + " |",
    ]
    lines += ["| " + " | ".join(c.replace("|", "\\|") for c in cells(row)) + " |" for row in rows]
    lines += ["", f"![Learning curves]({declared.name}.png)\n"] if picture else [""]
    lines += ["## Settings", ""]
    lines += [f"- {row.label}: {row.settings}" for row in rows]
    lines += ["", "## Commands", ""]
    lines += [f"- `{row.command}`, commit {', '.join(row.commits) or 'unknown'}" for row in rows]
    lines += ["", "## Machines", "", *(f"- {name}" for name in machines)]
    lines += [f"- {name}" for name in versions]
    return "\n".join(lines) + "\n"


def _machine(meta: Mapping[str, Any]) -> str:
    machine = meta.get("machine") or {}
    return f"{machine.get('cpu')}, {machine.get('cpu_count')} CPUs"


def _versions(meta: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {v}" for name, v in (meta.get("versions") or {}).items() if v)


def _csv(rows: Sequence[Row]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = ("label", "env_id", "status", "seeds", "mean", "threshold", "n_solved", "reference",
             "source", "verdict", "env_steps", "wall_s", "settings", "command")  # fmt: skip
    writer.writerow((*names, "iqm", "low", "high", "commits", "runs"))
    for row in rows:
        score = row.score
        ends = ("", "", "") if score is None else (score.value, score.low, score.high)
        writer.writerow((*(getattr(row, n) for n in names), *ends, " ".join(row.commits),
                         " ".join(row.runs)))  # fmt: skip
    return out.getvalue()
