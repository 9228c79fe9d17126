"""Runs as groups of seeds: runs whose configs differ only by the seed belong together."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.envs.baselines import game_settings, random_baseline
from gymnasium_solver.errors import GsolveError, RunError
from gymnasium_solver.experiments.experiment import Experiment, find, load
from gymnasium_solver.experiments.statistics import FEWEST_SEEDS, Array, band, iqm, on_grid
from gymnasium_solver.runs import query
from gymnasium_solver.runs.curves import Curve
from gymnasium_solver.runs.files import finite
from gymnasium_solver.runs.query import CheckpointSummary, RunSummary
from gymnasium_solver.runs.resolve import resolve_checkpoint, resolve_run, run_name
from gymnasium_solver.runs.run import Run, is_run

VAL = "val/roll/ep_rew/mean"
Points = Sequence[tuple[float, float | None]]
REACHED = ("solved", "goal_reached_eval", "goal_reached_train")
# Fields that do not make a run another experiment.
NOT_COMPARED = ("seed", "spec", "description", "project_id", "variant", "device", "observers")


@dataclass(frozen=True)
class Member:
    """One run of a group."""

    summary: RunSummary
    config: dict[str, Any]
    meta: dict[str, Any]
    checkpoint: CheckpointSummary | None = None
    """The checkpoint that was named, if it was one and not the run."""

    @property
    def score(self) -> float | None:
        """Mean of the held-out test; without a test the best validation. Of a checkpoint its own
        validation."""
        if self.checkpoint is not None:
            return self.checkpoint["score"]
        return self.summary.score

    @property
    def is_tested(self) -> bool:
        return self.checkpoint is None and self.summary.test is not None

    def normalized(self) -> float | None:
        """The score on a scale from random actions (0) to the threshold or reference (1)."""
        baseline = random_baseline(self.summary.env_id, game_settings(self.config))
        if baseline is None or self.score is None:
            return None
        return baseline.normalize(self.score, self.summary.threshold)


@dataclass(frozen=True)
class Center:
    """The IQM over the curves of several seeds, with the ends of its interval."""

    x: Array
    middle: Array
    low: Array
    high: Array
    has_interval: bool  # whether there are enough seeds for one
    n: Array  # seeds that were still training at x; the others had reached their goal


@dataclass(frozen=True)
class Group:
    """Seeds of one config in one environment."""

    label: str
    env_id: str
    members: tuple[Member, ...]  # one per seed and config
    repeats: tuple[str, ...] = ()  # ids of further runs of these seeds, which do not count

    @property
    def scores(self) -> list[float]:
        return [member.score for member in self.members if member.score is not None]

    @property
    def threshold(self) -> float | None:
        return next((m.summary.threshold for m in self.members if m.summary.threshold), None)

    @property
    def n_solved(self) -> int:
        return sum(bool(member.summary.solved) for member in self.members)

    @property
    def config(self) -> dict[str, Any]:
        return self.members[0].config

    def curve_set(self, name: str, x: str = "env_steps") -> list[Curve]:
        """The curve of each seed; empty where it was not logged."""
        runs = [Run(Path(member.summary.path)) for member in self.members]
        rows = [query.get_columns(run, (name, x)) for run in runs]
        return [[(r[x], finite(r[name])) for r in own if name in r and x in r] for own in rows]

    def center(
        self, curves: Sequence[Points], repeats: int = 2_000, *, with_interval: bool = True
    ) -> Center | None:
        """The middle of such curves; a run that reached its goal keeps its last value. None with
        fewer than two. The interval takes most of the time: ends are NaN without it."""
        n = sum(bool(curve) for curve in curves)
        if n < 2:
            return None
        reached = [member.summary.stop_reason in REACHED for member in self.members]
        grid, values = on_grid(curves, is_final=reached)
        ends = np.array([curve[-1][0] for curve in curves if curve])
        training = (ends[:, None] >= grid).sum(axis=0)
        if with_interval:
            return Center(grid, *band(values, repeats=repeats), n >= FEWEST_SEEDS, training)
        middle, none = iqm(values.T[..., None]), np.full(len(grid), np.nan)
        return Center(grid, middle, none, none, False, training)


def group_runs(refs: Sequence[str], root: Path) -> list[Group]:
    """Group runs by their config, in the order given. `label=run,run` makes a group of these runs
    whatever their configs are."""
    found: list[tuple[str, Member]] = []
    for ref in refs:
        label, equals, names = ref.partition("=")
        explicit = bool(equals) and not (root / ref).exists()
        for name in names.split(",") if explicit else [ref]:
            # An experiment has labels of its own for its groups.
            members = _members(name.strip(), root)
            found += [(label if explicit else group, member) for group, member in members]
    return group_members(found)


def group_members(
    labelled: Iterable[tuple[str, Member]], ignored: Collection[str] = ()
) -> list[Group]:
    """Groups of (label, run), in the order given; runs without a label by their config, without the
    fields that are `ignored`."""
    found: dict[tuple[str, str, str], list[Member]] = {}
    for label, member in labelled:
        config = "" if label else identity_of(member.config, ignored)
        members = found.setdefault((label, member.summary.env_id, config), [])
        if all(member.summary.id != other.summary.id for other in members):
            members.append(member)
    named = _labels([(key[0], members[0]) for key, members in found.items()], ignored)
    return [
        make_group(label, key[1], members, ignored)
        for label, (key, members) in zip(named, found.items(), strict=True)
    ]


def make_group(
    label: str, env_id: str, members: Sequence[Member], ignored: Collection[str] = ()
) -> Group:
    """A group with one member per seed and config: the newest with a score. A second run of a seed
    tells nothing new, and would make an interval too narrow."""
    newest: dict[tuple[str, object], Member] = {}
    for member in members:
        seed, config = member.summary.seed, identity_of(member.config, ignored)
        key = (config, member.summary.id if seed is None else f"seed {seed}")
        if key not in newest or _recency(member) > _recency(newest[key]):
            newest[key] = member
    kept = {member.summary.id for member in newest.values()}
    repeats = [m.summary.id for m in members if m.summary.id not in kept]
    return Group(label, env_id, tuple(m for m in members if m.summary.id in kept), tuple(repeats))


def _recency(member: Member) -> tuple[bool, str, str]:
    return (member.score is not None, str(member.summary.created_at), member.summary.id)


def siblings(run: Run) -> Group:
    """The finished runs of the config of a run, itself included, in the same folder."""
    root = run.path.resolve().parent
    own = member_of(str(run.path.resolve()), root)
    members, wanted = [own], identity_of(own.config)
    for other in query.list_runs(root):
        if other.id == own.summary.id or other.status != "finished":
            continue
        if (other.env_id, other.algo_id) == (own.summary.env_id, own.summary.algo_id):
            with suppress(GsolveError):  # one that cannot be read is none
                member = member_of(str(root / other.id), root)
                members += [member] if identity_of(member.config) == wanted else []
    return make_group(own.summary.name, own.summary.env_id, members)


def experiment_groups(experiment: Experiment) -> list[Group]:
    """The runs of an experiment that exist, grouped by config."""
    runs = [(m.group, str(experiment.folder(m))) for m in experiment.members]
    return labelled_groups(runs, experiment.root)


def _members(ref: str, root: Path) -> list[tuple[str, Member]]:
    """The runs that a reference names: a run, a checkpoint (labelled as one), an experiment."""
    path = None if ref.startswith("@") or is_run(root / ref) else find(ref, root)
    if path is not None:
        groups = experiment_groups(load(path))
        return [(group.label, member) for group in groups for member in group.members]
    _, slash, selector = ref.rpartition("/")
    is_checkpoint = slash and (selector in ("@best", "@last") or selector.isdecimal())
    if not is_checkpoint or is_run(Path(ref)):
        return [("", member_of(ref, root))]
    found = resolve_checkpoint(ref, root)
    env_steps = int(found.path.resolve().name)
    member = member_of(str(found.run.path.resolve()), root)
    kept = next(c for c in member.summary.checkpoints if c["env_steps"] == env_steps)
    return [(f"{member.summary.id}/{found.label}", replace(member, checkpoint=kept))]


def labelled_groups(runs: Sequence[tuple[str, str]], root: Path) -> list[Group]:
    """Groups of (label, run), in the order given; runs that do not exist yet are left out."""
    return group_members((label, member_of(ref, root)) for label, ref in runs if is_run(Path(ref)))


def member_of(ref: str, root: Path) -> Member:
    if not ref:
        raise RunError("a group has an empty run name; write label=run,run")
    run = resolve_run(ref, root)
    summary = replace(query.get_run(run), id=run_name(run, root))
    return Member(summary, query.get_config(run), query.get_meta(run))


def identity_of(config: Mapping[str, Any], ignored: Collection[str] = ()) -> str:
    out = {*NOT_COMPARED, *ignored}
    kept = {name: value for name, value in config.items() if name not in out}
    return json.dumps(kept, sort_keys=True, default=str)


def _labels(groups: Sequence[tuple[str, Member]], ignored: Collection[str] = ()) -> list[str]:
    """Given labels, otherwise the variant; groups of one variant are told apart by the fields that
    differ."""
    bases = [given or member.summary.name for given, member in groups]
    labels = []
    for (given, member), base in zip(groups, bases, strict=True):
        same = [other.config for (_, other), b in zip(groups, bases, strict=True) if b == base]
        if given or len(same) == 1:
            labels.append(base)
            continue
        fields = [name for name in differing_fields(same) if name not in ignored]
        texts = [f"{name}={short_text(member.config.get(name))}" for name in fields[:3]]
        labels.append(f"{base} ({', '.join(texts)})" if texts else base)
    return labels


def differing_fields(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of fields whose values are not the same in all configs."""
    every = list(configs)
    names = dict.fromkeys(name for config in every for name in config if name not in NOT_COMPARED)
    return [
        name
        for name in names
        if len({json.dumps(config.get(name), sort_keys=True, default=str) for config in every}) > 1
    ]


def short_text(value: Any) -> str:
    """A value of a config in at most 24 characters."""
    if isinstance(value, dict) and set(value) == {"start", "end"} and not value["end"]:
        return f"lin_{value['start']:g}"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 24 else text[:21] + "..."
