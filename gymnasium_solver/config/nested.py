"""Blocks inside a config: `collectors`, `her`, `intrinsic`, `interventions`.

Such a block is a frozen, strict class of fields like the config itself. A problem in it is reported
in one line that names the key.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    InstanceOf,
    PlainSerializer,
    ValidationError,
    field_validator,
    model_validator,
)

from gymnasium_solver.config.blocks import Fields
from gymnasium_solver.config.explain import explain
from gymnasium_solver.config.marks import live
from gymnasium_solver.config.schedule import PLATEAU, NonNegativeSchedule, Schedule
from gymnasium_solver.config.types import (
    BLOCK,
    COUNT,
    NULL,
    Block,
    Count,
    Float,
    HiddenDims,
    NonNegativeInt,
    PositiveFloat,
    takes,
    whole,
)
from gymnasium_solver.errors import told_as

B = TypeVar("B", bound=Fields)


def read_block(cls: type[B], value: Any, shorthand: str | None = None) -> B:
    """The block written as `value`; ValueError says what is wrong. `shorthand`: the key that plain
    text sets."""
    if isinstance(value, cls):
        return value
    if shorthand is not None and isinstance(value, str):
        value = {shorthand: value}
    if not isinstance(value, Mapping):
        keys = ", ".join(cls.model_fields)
        raise ValueError(f"expected a block with the keys {keys}")
    try:
        return cls(**{str(key): item for key, item in value.items()})
    except ValidationError as error:
        lines = explain(cls, error, dict(value)).splitlines()
        raise ValueError("; ".join(lines)) from None


def read_optional(cls: type[B], value: Any, shorthand: str | None = None) -> B | None:
    """The block; None for null and false, which switch it off."""
    return None if value is None or value is False else read_block(cls, value, shorthand)


def read_blocks(
    cls: type[B], value: Any, what: str, expected: str, shorthand: str | None = None
) -> list[B]:
    """The blocks of a list; an error names the entry, as `what` and its number."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a list of {expected}")
    blocks = []
    for place, item in enumerate(value):
        with told_as(ValueError, f"{what} {place + 1}", ValueError):
            blocks.append(read_block(cls, item, shorthand))
    return blocks


def dump_block(block: Fields | None) -> dict[str, Any] | None:
    """What a block was set to, without its defaults."""
    return None if block is None else block.model_dump(mode="json", exclude_defaults=True)


# ------------------------------------------------------------------------------------------
# The field `collectors`: actors on a Ray cluster that act while the learner learns.


class Collectors(Fields):
    backend: Literal["ray"] = "ray"
    """Actors on the Ray cluster at RAY_ADDRESS, or on one that is started on this machine."""
    n: Count = 2
    """How many. Each has n_envs / n of the environments. More: faster where environments are slow,
    one CPU each."""
    max_staleness: NonNegativeInt = 0
    """Updates that the weights of a collector may be behind the learner's. 0: collectors and
    learner take turns; the run is deterministic and resumes exactly. 1 or more: they work at the
    same time, and a run depends on how fast each of them is."""
    cpus: PositiveFloat = 1.0
    """CPUs that the cluster reserves for each."""


def _collectors(value: Any) -> Collectors | None:
    number = whole(value)
    if isinstance(number, int) and not isinstance(number, bool):
        value = {"n": number}
    if isinstance(value, Mapping) and value.get("backend") == "process":
        raise ValueError(
            "backend: process was removed. On one machine use collectors: null and "
            "vectorization_mode: async, which is faster; backend: ray uses several"
        )
    return read_optional(Collectors, value)


class CollectorFields(Fields):
    title = "collectors"

    collectors: Annotated[
        InstanceOf[Collectors] | None,
        BeforeValidator(_collectors),
        PlainSerializer(
            lambda block: block and {"n": block.n} | block.model_dump(exclude_defaults=True)
        ),
        takes("a number of actors, or a block {n: 4, max_staleness: 1}", COUNT, BLOCK, NULL),
    ] = None
    """Let several actors on a Ray cluster act in the environments for one learner: a number, or a
    block {n, max_staleness, cpus}. null: the learner's process acts itself."""


# ------------------------------------------------------------------------------------------
# The field `her`: hindsight experience replay (docs/replay.md).


class Her(Fields):
    """Which goals take the place of desired ones, and how often."""

    strategy: Literal["future", "final", "episode"] = "future"
    """future: an achieved goal from later in the episode. final: its last. episode: any of it."""
    k: Count = 4
    """Replaced goals for each one that is kept: a share of k / (k + 1)."""

    @property
    def share(self) -> float:
        """Share of the sampled transitions that get another goal."""
        return self.k / (self.k + 1)


def _her(value: Any) -> Her | None:
    if not isinstance(value, bool | Her | Mapping | None):
        raise ValueError("expected true, false or {strategy: future, k: 4}")
    return read_optional(Her, {} if value is True else value)


HerField = Annotated[
    InstanceOf[Her] | None,
    BeforeValidator(_her),
    PlainSerializer(lambda her: her and her.model_dump()),
    takes(
        "true, false or {strategy: future, final or episode, k: a whole number}",
        {"type": "boolean"},
        NULL,
        BLOCK
        | {
            "properties": {"strategy": {"enum": ["future", "final", "episode"]}, "k": COUNT},
            "additionalProperties": False,
        },
    ),
]


# ------------------------------------------------------------------------------------------
# The field `intrinsic`: a reward for what is new, added to the environment's (docs/exploration.md).


class Intrinsic(Fields):
    kind: Literal["rnd", "count", "episodic", "episodic_count"]
    """rnd: error of predicting a random network's output (Burda et al. 2018), new over the whole
    run. count: 1 / sqrt(visits) of a state, counted over the whole run. episodic: new within the
    episode, by the nearest states seen in it (as in NGU). episodic_count: 1 / sqrt(visits) of a
    state, counted within the episode."""
    coef: NonNegativeSchedule = Schedule.constant(0.1)
    """Weight of the intrinsic reward. Higher: explores more, follows the task less."""
    normalize: bool | Literal["auto"] = "auto"
    """Divide by the running standard deviation of the intrinsic return. auto: for rnd only; the
    others are within [0, 1] and fade by themselves."""
    clip: PositiveFloat | None = 5.0
    """Clip the intrinsic reward to this value, before `coef`. null: no clipping."""
    gamma: Annotated[Float, Field(ge=0, le=1)] = 0.99
    """Discount of the intrinsic return, for `normalize`."""
    first_visit: bool = False
    """Reward only the first visit of a state in an episode, so that going back and forth earns
    nothing."""
    difference: Annotated[Float, Field(ge=0, le=1)] | None = None
    """rnd, count: reward the rise of novelty, max(novelty after the step - difference x novelty
    before it, 0), so that only the way into the unknown pays (NovelD: 0.5, with first_visit). null:
    the novelty itself."""
    # --- rnd
    lr: PositiveFloat = 1e-4
    """rnd: learning rate of the predictor. Higher: novelty fades faster."""
    hidden_dims: HiddenDims = (128, 128)
    """rnd: hidden layers of both networks, after the convolutions of an image."""
    embed_dim: Count = 64
    """rnd, episodic: width of a state's embedding."""
    batch_size: Count = 256
    """rnd: samples per gradient step; one pass over each rollout."""
    # --- states that are counted
    by: Literal["auto", "exact", "bins", "simhash"] = "auto"
    """What counts as one state. exact: equal observations. bins: each number in `n_bins` bins.
    simhash: signs of `n_signs` random projections. auto: exact for whole numbers, bins for up to 8
    numbers, else simhash."""
    n_bins: Count = 16
    """bins: bins per number, over its bounds. More: finer states."""
    n_signs: Annotated[Count, Field(le=62)] = 24
    """simhash: projections. More: finer states."""
    table_bits: Annotated[Count, Field(ge=8, le=24)] = 16
    """Size of the table of counts: 2^bits entries. States may share an entry."""
    # --- episodic
    neighbors: Count = 10
    """episodic: nearest states compared with."""
    capacity: Count = 512
    """episodic: states remembered per environment; older ones of a longer episode are replaced."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.difference is not None and self.kind not in ("rnd", "count"):
            raise ValueError(
                f"difference: {self.kind} has no novelty over the whole run; use rnd or count"
            )
        return self


class IntrinsicFields(Fields):
    """For algorithms that can add an intrinsic reward."""

    title = "intrinsic reward"

    intrinsic: Annotated[
        InstanceOf[Intrinsic] | None,
        BeforeValidator(lambda value: read_optional(Intrinsic, value, shorthand="kind")),
        PlainSerializer(dump_block),
        takes(
            "rnd, count, episodic, episodic_count, or a block {kind: rnd, ...}",
            {"enum": ["rnd", "count", "episodic", "episodic_count"]},
            BLOCK,
            NULL,
        ),
        live(),
    ] = None
    """Reward for what is new, added to the environment's reward for learning; scores stay those of
    the environment. rnd, count, episodic, episodic_count, or a block with more settings. null:
    none."""


# ------------------------------------------------------------------------------------------
# The field `interventions`: change fields when a metric stalls (docs/live.md).


_OPERATIONS = ("multiply", "add")
_LIMITS = ("min", "max")
_PLATEAU = {"factor": 0.1, "patience": 10, "mode": "max", "threshold": 0.0, "cooldown": 0}


class Intervention(Fields):
    name: str = ""
    """Name in the events. Unset: its place in the list."""
    metric: str = "val/roll/ep_rew/mean"
    """Metric that is watched."""
    mode: Literal["max", "min"] = "max"
    """Whether a higher or a lower value is an improvement."""
    patience: Count = 5
    """Values in a row without an improvement before the change is made."""
    min_delta: Annotated[Float, Field(ge=0)] = 0.0
    """Least difference that counts as an improvement."""
    change: Block | list[Block]
    """New values by field: a value, {multiply: X} or {add: X}, both with min and max as limits. A
    list of such blocks: they take turns, one each time."""
    cooldown: NonNegativeInt = 0
    """Values after a change that are not counted as stalled."""
    max_times: Count | None = 1
    """How often the change is made. null: without limit."""
    revert_after: Count | None = None
    """Return to the old values after this many further values. null: never."""
    revert_on_improvement: bool = False
    """Return to the old values as soon as the metric improves."""
    revert_on_worse: bool = False
    """Return to the old values as soon as the metric is worse than when the change was made, by
    more than min_delta."""

    @field_validator("change")
    @classmethod
    def _check_change(cls, change: Any) -> Any:
        for block in change if isinstance(change, list) and change else [change]:
            if not block:
                text = "expected at least one field, such as {policy_lr: {multiply: 0.5}}"
                raise ValueError(text)
            for name, rule in block.items():
                if isinstance(rule, Mapping) and set(rule) & {*_OPERATIONS, *_LIMITS}:
                    _check_rule(name, rule)
        return change

    @property
    def changes(self) -> list[dict[str, Any]]:
        """The changes that take turns."""
        return self.change if isinstance(self.change, list) else [self.change]

    @property
    def may_revert(self) -> bool:
        return self.revert_after is not None or self.revert_on_improvement or self.revert_on_worse

    def new_values(self, config: Mapping[str, Any], times: int = 0) -> dict[str, Any]:
        """The values after the change, which was made `times` times before; `config`: all fields as
        JSON values."""
        change = self.changes[times % len(self.changes)]
        return {name: _changed(name, rule, config) for name, rule in change.items()}


def _check_rule(name: str, rule: Mapping[str, Any]) -> None:
    unknown = [str(key) for key in rule if key not in (*_OPERATIONS, *_LIMITS)]
    if unknown or sum(key in rule for key in _OPERATIONS) != 1:
        raise ValueError(f"{name}: expected {{multiply: X}} or {{add: X}}, with min and max")
    for key, value in rule.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name}: {key} must be a number, not {value!r}")


def _changed(name: str, rule: Any, config: Mapping[str, Any]) -> Any:
    if not (isinstance(rule, Mapping) and set(rule) & set(_OPERATIONS)):
        return rule
    old = config.get(name)
    if old is None or isinstance(old, bool | list):
        raise ValueError(f"{name} is {old!r}, which cannot be multiplied or added to")
    factor, plus = rule.get("multiply", 1.0), rule.get("add", 0.0)
    low, high = rule.get("min", -float("inf")), rule.get("max", float("inf"))
    new = Schedule.parse(old).changed(factor, plus, low, high).dump()
    return round(new) if isinstance(old, int) and isinstance(new, float) else new


def _as_rule(plateau: Mapping[str, Any]) -> dict[str, Any]:
    """The rule that the old key `plateau_interventions` means: {monitor, patience, actions:
    [{param, operation, factor or value, min, max, revert_on_worse}]}, which take turns."""
    rule = {("metric" if key == "monitor" else key): item for key, item in plateau.items()}
    actions = rule.pop("actions")
    if not isinstance(actions, list) or not all(isinstance(one, Mapping) for one in actions):
        raise ValueError(
            "actions: expected a list of {param: FIELD, operation: multiply, factor: X}"
        )
    changes, reverts = [], False
    for action in actions:
        left = dict(action)
        name, operation = left.pop("param", None), left.pop("operation", "multiply")
        amount = left.pop("factor", left.pop("value", None))
        reverts = bool(left.pop("revert_on_worse", False)) or reverts
        if name is None or amount is None or operation not in (*_OPERATIONS, "set"):
            raise ValueError(
                "actions: expected {param: FIELD, operation: multiply, add or set, value: X}, not "
                f"{dict(action)!r}"
            )
        changes.append({str(name): amount if operation == "set" else {operation: amount, **left}})
    return {"max_times": None, **rule, "change": changes, "revert_on_worse": reverts}


def plateau_rule(name: str, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The start value and the intervention that torch's ReduceLROnPlateau means for a field: it
    multiplies by `factor` when the metric has not improved more than `patience` times."""
    unknown = [str(key) for key in given if key not in ("schedule", "start", "options")]
    options = given.get("options", {})
    if unknown or "start" not in given or not isinstance(options, Mapping):
        raise ValueError(f"{name}: {PLATEAU} takes start and options")
    known = (*_PLATEAU, "metric", "min_lr")
    if other := [str(key) for key in options if key not in known]:
        raise ValueError(
            f"{name}: {PLATEAU} has no {', '.join(other)} here; it takes {', '.join(known)}"
        )
    o = {**_PLATEAU, **options}
    patience = o["patience"] + 1 if isinstance(o["patience"], int) else o["patience"]
    rule = {
        "name": f"{name} on a plateau",
        "patience": patience,
        "mode": o["mode"],
        "min_delta": o["threshold"],
        "cooldown": o["cooldown"],
        "max_times": None,
        "change": {name: {"multiply": o["factor"], "min": o.get("min_lr", 0.0)}},
    }
    return given["start"], rule | ({"metric": o["metric"]} if "metric" in o else {})


def _interventions(value: Any) -> list[Intervention]:
    if isinstance(value, Mapping):
        value = [_as_rule(value) if "actions" in value else value]
    rules = [
        rule if rule.name else rule.model_copy(update={"name": str(place + 1)})
        for place, rule in enumerate(
            read_blocks(Intervention, value, "entry", "{patience: N, change: {field: ...}}")
        )
    ]
    names = [rule.name for rule in rules]
    if len(set(names)) < len(names):
        raise ValueError(f"two entries have the same name: {', '.join(names)}")
    return rules


class InterventionFields(Fields):
    title = "interventions"

    interventions: Annotated[
        list[InstanceOf[Intervention]],
        BeforeValidator(_interventions),
        PlainSerializer(lambda rules: [dump_block(rule) for rule in rules]),
        takes(
            "a list of {patience: N, change: {field: value or {multiply: X}}}",
            {"type": "array", "items": BLOCK},
        ),
    ] = []
    """Changes to make when a metric stalls, each {metric, patience, change: {field: value or
    {multiply: X}}, cooldown, max_times, revert_on_worse, ...}. Recorded as events."""
