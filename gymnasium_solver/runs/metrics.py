"""All metrics, declared once: meaning, unit, bounds, precision, direction, place in the console.

Names are `<train|val|test>/<group>/<metric>`. A row of metrics.jsonl is
    {"env_steps": int, "epoch": int, "wall_s": float, "<name>": number or null, ...}
A metric is a line of metrics.txt. Undeclared names may be logged too; `describe` then returns
neutral properties.

Names in other systems (metric_names.txt) mean ours: canonical("rollout/ep_rew_mean", logged) is
"train/roll/ep_rew/mean". Upper and lower case are the same. A name may mean one of several of ours
(SB3's `train/loss` is the total loss of PPO and the TD loss of DQN): the first that was logged is
taken.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, Self

Better = Literal["up", "down"]
Bounds = tuple[float | None, float | None]
Names = dict[str, tuple[str, ...]]
BOUNDS: dict[str, Bounds] = {"0..1": (0.0, 1.0), ">=0": (0.0, None), "<=1": (None, 1.0)}
UNITS = ("steps", "s", "steps/s", "1/s", "nats", "MB")
_STAGES = {"val": "the evaluation", "test": "the held-out test"}
_WORDS = {"val": "validation", "test": "test"}  # of labels

TRAIN, VAL, SPREAD = "train/roll/ep_rew/mean", "val/roll/ep_rew/mean", "val/roll/ep_rew/std"
"""Names of the returns that a chart shows."""
PANELS = (
    "train/opt/loss/policy",
    "train/opt/loss/value",
    "train/opt/loss/critic",
    "train/opt/loss/td",
    "train/opt/loss/imitation",
    "train/opt/loss/held_out",
    "train/opt/imitation/accuracy",
    "train/opt/q/mean",
    "train/opt/policy/entropy",
    "train/opt/policy/alpha",
    "train/opt/value/explained_var",
    "train/opt/ppo/approx_kl",
    "train/hp/epsilon",
    "train/roll/ep_len/mean",
)
"""Drawn below the returns of a single run, if they were logged and changed."""


@dataclass(frozen=True)
class Metric:
    name: str
    """`<train|val|test>/<group>/<metric>`. A part in angle brackets stands for any text:
    `train/hp/<field>`."""
    description: str
    label: str = ""  # what people call it: `validation return`
    precision: int = 4  # decimal places when printed
    better: Better | None = None  # which direction is better; None if neither is
    group: str = ""  # its section of the table: `train/roll`, `train/opt`, `val/roll`, ...
    unit: str = ""  # `steps`, `s`, `nats`, ...; empty for a plain number
    bounds: Bounds = (None, None)  # values outside are impossible and raise an alert
    priority: int | None = None
    """Place in the console table, the lowest first; None: not shown there."""
    may_be_null: bool = False
    """Whether a row may have null for it: where it is not defined, or not yet."""
    is_detail: bool = False  # computed only every few epochs (`log_details_freq_epochs`)

    @property
    def show(self) -> bool:
        """Whether the console table shows it."""
        return self.priority is not None

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        """The names that a name with angle brackets stands for; None for a single name."""
        if "<" not in self.name:
            return None
        return re.compile(re.sub(r"<(\w+)>", r"(?P<\1>.+)", self.name))

    @property
    def is_pattern(self) -> bool:
        return self._pattern is not None

    def of(self, name: str) -> Self | None:
        """The declaration for one name that this pattern stands for; None if it does not."""
        match = self._pattern.fullmatch(name) if self._pattern else None
        if match is None:
            return None
        text, label = self.description, self.label
        for part, value in match.groupdict().items():
            text, label = (t.replace(f"<{part}>", value) for t in (text, label))
        return replace(self, name=name, description=text, label=label)

    def format(self, value: float | None) -> str:
        return "-" if value is None else f"{value:,.{self.precision}f}"


def sections(path: Path) -> list[tuple[str, list[str]]]:
    """(name, lines) of a file of tables, whose names stand in brackets."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"\n +", " ", text)  # indented: continues the line
    found = re.findall(r"^\[(.*)\]\n((?:[^[].*\n)*)", text, re.MULTILINE)
    return [(group, lines.splitlines()) for group, lines in found]


def _declared() -> Iterator[Metric]:
    for group, lines in sections(Path(__file__).with_name("metrics.txt")):
        stages = _STAGES.items() if "STAGE" in group else [("", "")]
        for stage, subject in stages:
            for line in lines:
                name, label, marks, text = (part.strip() for part in line.split(" | "))
                place, label = group.replace("STAGE", stage), _label(label, stage)
                given = {"group": place, **_marked(marks)}
                if stage == "test":
                    given["priority"] = None
                stem, text = f"{place}/{name}".lstrip("/"), text.replace("SUBJECT", subject)
                if not name.endswith("mean+std"):
                    yield Metric(stem, text, label, **given)
                    continue
                stem = stem.removesuffix("mean+std")
                yield Metric(f"{stem}mean", f"Mean of {text}", f"{label}, mean", **given)
                spread, given = f"Standard deviation of {text}", given | {"bounds": BOUNDS[">=0"]}
                yield Metric(f"{stem}std", spread, f"{label}, spread", **given)


def _label(label: str, stage: str) -> str:
    return label.replace("STAGE", _WORDS.get(stage, stage))


def _marked(marks: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for mark in marks.split():
        if mark.isdecimal():
            fields["precision"] = int(mark)
        elif mark[0] == "#":
            fields["priority"] = int(mark[1:])
        elif mark in BOUNDS:
            fields["bounds"] = BOUNDS[mark]
        elif mark in UNITS:
            fields["unit"] = mark
        elif mark in ("up", "down"):
            fields["better"] = mark
        else:
            fields[{"null": "may_be_null", "detail": "is_detail"}[mark]] = True
    return fields


DECLARED = list(_declared())  # all metrics, in the order of the documentation
_SHOWN_LAST = 1_000

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in sorted(DECLARED, key=lambda m: _SHOWN_LAST if m.priority is None else m.priority)
}
"""Declared metrics; those of the console table first, in its order."""
_PATTERNS = [metric for metric in METRICS.values() if metric.is_pattern]


@lru_cache(maxsize=4096)
def describe(name: str) -> Metric:
    """The declaration of this metric, or neutral properties."""
    metric = METRICS.get(name)
    if metric is not None:
        return metric
    for pattern in _PATTERNS:
        if (found := pattern.of(name)) is not None:
            return found
    label = " ".join(name.split("/")[2:] or [name]).replace("_", " ")
    return Metric(name, "", label, group="/".join(name.split("/")[:2]))


def own_metrics(names: Iterable[str]) -> list[str]:
    """Those that a user logs."""
    return sorted(name for name in names if name.startswith("own/"))


def find_metrics(text: str | None = None) -> list[Metric]:
    """The declared metrics that have every word of `text` in their name, label or description."""
    words = (text or "").lower().split()
    texts = {m.name: f"{m.name} {m.label} {m.description}".lower() for m in METRICS.values()}
    return [m for m in METRICS.values() if all(word in texts[m.name] for word in words)]


# -- names in other systems ------------------------------------------------------------------------


def _names(lines: Iterable[str]) -> Names:
    pairs = [[part.strip().split(", ") for part in line.split(" = ")] for line in lines]
    return {name: tuple(here) for there, here in pairs for name in there}


_OTHERS = sections(Path(__file__).with_name("metric_names.txt"))
SYSTEMS = {system: _names(lines) for system, lines in _OTHERS}
OLDER = {there: here for there, (here,) in SYSTEMS.pop("older").items()}
STAGES = {"train": "train", "rollout": "train", "val": "val", "eval": "val", "test": "test"}
_FOREIGN = {other.lower(): ours for names in SYSTEMS.values() for other, ours in names.items()}


def canonical(name: str, logged: Collection[str]) -> str | None:
    """The logged metric that `name` means in another system; None if there is none."""
    return next((ours for ours in _candidates(name.strip().lower()) if ours in logged), None)


def aliases_of(metric: str) -> list[str]:
    """The names of a metric in other systems, older names included."""
    stage, _, rest = metric.partition("/")
    older = [f"{stage}/{other}" for other, ours in OLDER.items() if ours == rest]
    foreign = [other for names in SYSTEMS.values() for other in names if metric in names[other]]
    return [*foreign, *(name for name in older if name not in foreign)]


def _candidates(name: str) -> list[str]:
    stage, _, rest = name.partition("/")
    if stage not in STAGES:
        stage, rest = "train", name
    found = list(_FOREIGN.get(name, ()))
    if rest in OLDER:
        found.append(f"{STAGES[stage]}/{OLDER[rest]}")
    if rest == name:  # our own name without its stage
        found.append(f"train/{name}")
    return found
