"""The `spec` block of a config file: facts about its environment (docs/specs.md).

    spec:
      goal: Keep it upright for 500 steps.
      action_space: {labels: [push_left, push_right]}

`read_spec(block)` checks it and returns a `Spec`. `Config` calls it, so a misspelled key is an
error when the config is loaded. Everything is optional. In `rewards` any other key is an event with
its reward (`on_goal: 1`, `per_point: +1/-1`). One key is a setting: `action_space.valid` restricts
the actions (envs/wrappers/actions.py). Observations that depend on the config (`obs_type`)
are described by `default` and `variants`.
"""

from collections.abc import Iterable, Iterator, Mapping
from inspect import isclass
from typing import Annotated, Any, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from gymnasium_solver.config.field_docs import Documented
from gymnasium_solver.config.types import Count, Float, plain
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.suggest import did_you_mean

# Error messages for invalid `spec` blocks: one line per problem, with its place.
#
# spec.action_space.lables: unknown key. Did you mean labels?

_KINDS = {
    "string_type": "text",
    "dict_type": "a block of key: value lines",
    "model_type": "a block of key: value lines",
    "list_type": "a list",
    "tuple_type": "a pair [lowest, highest]",
    "too_long": "a pair [lowest, highest]",
    "missing_item": "a pair [lowest, highest]",
    "float_type": "a number",
    "int_type": "a whole number",
}


def problems(error: ValidationError, block: Mapping[str, Any]) -> Iterator[str]:
    """The lines."""
    expected: dict[str, list[str]] = {}  # a union reports what each of its branches expects
    for problem in error.errors(include_url=False):
        keys, value = _place(problem["loc"], block)
        where = ".".join(("spec", *keys))
        if problem["type"] == "extra_forbidden":
            yield f"{where}: unknown key{or_list(keys[-1], _model(keys[:-1]).model_fields)}"
        elif problem["type"] == "missing":
            yield f"{where}: needs a {problem['loc'][-1]}"
        elif problem["type"] == "value_error":
            yield f"{where}: {problem['ctx']['error']}"
        else:
            wanted = expected.setdefault(f"{where}: got {value!r}", [])
            wanted.append(_KINDS.get(problem["type"], "another value"))
    for given, wanted in expected.items():
        yield f"{given}, expected {' or '.join(dict.fromkeys(wanted))}"


def _place(loc: tuple[int | str, ...], block: Any) -> tuple[list[str], Any]:
    """The keys of `loc` that the user wrote (a union adds the names of its branches), and the value
    there."""
    keys: list[str] = []
    for key in loc:
        if isinstance(block, Mapping):
            found = next((name for name in block if str(name) == str(key)), None)
            if found is None:
                break
            block = block[found]
        elif isinstance(block, list) and isinstance(key, int):
            block = block[key]
        else:
            continue
        keys.append(str(key))
    return keys, block


def or_list(name: str, known: Iterable[str]) -> str:
    """A suggestion, or the list of known names if none is similar."""
    names = list(known)
    hint = did_you_mean(name, names) or (f"There are: {', '.join(names)}." if names else "")
    return f". {hint}" if hint else ""


def _ordered(ends: tuple[Any, Any]) -> tuple[Any, Any]:
    low, high = ends
    if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
        raise ValueError(f"starts at {low} but ends at {high}: expected [lowest, highest]")
    return ends


def _check_unique(what: str, names: list[str]) -> None:
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{what} has {twice[0]!r} twice")


# Lowest and highest value; null for no bound, text if it depends on a setting (n_arms).
Range = Annotated[
    tuple[Float | str | None, Float | str | None],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
    AfterValidator(_ordered),
]
Labels = list[str] | dict[str, str]


class _Part(Documented):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        defer_build=True,  # saves 30 ms for configs without a spec
    )


class ActionSpec(_Part):
    """What the agent can do."""

    labels: Labels = []
    """A name per action, or per component of a continuous action: a list, or index: label."""
    descriptions: dict[str, str] = {}
    """Descriptions of actions, by label or index."""
    valid: list[int | str] | None = None
    """The allowed actions, by number or label. This is a setting: all others are masked."""
    discrete: Count | None = None
    """Number of actions of a Discrete space."""
    multibinary: Count | None = None
    """Number of buttons of a MultiBinary space."""
    multidiscrete: list[Count] | None = None
    """Number of choices of each component of a MultiDiscrete space."""
    shape: list[Count] | None = None
    range: Range | list[Range] | None = None
    """Bounds of a continuous action: one pair, or one for each label."""
    unit: str | None = None
    note: str | None = None
    full_space: dict[str, Any] | None = None
    """A larger action space that the environment offers as an option."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        keys = list(self.labels) if isinstance(self.labels, dict) else []
        if not all(key.isdecimal() for key in keys):
            raise ValueError(f"labels has the keys {', '.join(keys)}, expected action numbers")
        names = self.label_list()
        _check_unique("labels", names)
        count = self.discrete or self.multibinary
        if names and count and len(names) != count:
            raise ValueError(f"has {len(names)} labels, but {count} actions")
        for key in self.descriptions:
            if key not in names and not (key.isdecimal() and int(key) < len(names)):
                raise ValueError(f"descriptions has {key!r}{or_list(key, names)}")
        self._check_valid(names)
        return self

    def _check_valid(self, names: list[str]) -> None:
        if self.valid is None:
            return
        if not self.valid:
            raise ValueError("valid is empty: list at least one action, or leave it out")
        for item in self.valid:
            if isinstance(item, str) and item not in names:
                raise ValueError(f"valid has {item!r}, which is not a label{or_list(item, names)}")
            if isinstance(item, int) and item < 0:
                raise ValueError(f"valid has {item}: action numbers start at 0")
        repeated = [item for item in self.valid if self.valid.count(item) > 1]
        if repeated:
            raise ValueError(f"valid has {repeated[0]!r} more than once")

    def label_list(self) -> list[str]:
        """The labels in the order of the actions."""
        if isinstance(self.labels, dict):
            return [self.labels[key] for key in sorted(self.labels, key=int)]
        return list(self.labels)

    def description_of(self, index: int) -> str:
        label = self.label_list()[index]
        return self.descriptions.get(label) or self.descriptions.get(str(index), "")


class Component(_Part):
    """One number of an observation, or `size` numbers."""

    name: str
    range: Range | None = None
    values: Count | list[int | float | str] | None = None
    """The values it can take: their number (0 to values - 1), or a list."""
    size: Count = 1
    """How many numbers it describes."""
    unit: str | None = None
    description: str | None = None


class ObservationView(_Part):
    """One form of an environment's observations."""

    components: list[Component] = []
    """Its numbers, in order."""
    shape: list[Count | str] | None = None
    dtype: str | None = None
    range: Range | None = None
    n: Count | None = None
    """Number of values of a Discrete observation."""
    description: str | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        _check_unique("components", [part.name for part in self.components])
        return self

    @property
    def size(self) -> int:
        """How many numbers the components describe."""
        return sum(part.size for part in self.components)


class ObservationSpec(ObservationView):
    """What the agent sees."""

    default: str | None = None
    """The variant used unless the config selects another."""
    variants: dict[str, ObservationView] = {}

    @model_validator(mode="after")
    def _check_default(self) -> Self:
        if self.default and self.default not in self.variants:
            raise ValueError(f"default is {self.default!r}{or_list(self.default, self.variants)}")
        return self

    def view(self, name: str | None = None) -> ObservationView:
        """The variant of this name, or the default one; the block itself if there are none."""
        return self.variants.get(name or self.default or "") or self


class RewardPart(_Part):
    """One component of the reward."""

    name: str
    value: Float | str | None = None
    sign: str | None = None
    range: Range | None = None
    description: str | None = None
    note: str | None = None


class Rewards(_Part):
    """The rewards of a step."""

    model_config = ConfigDict(
        json_schema_extra={"additionalProperties": {"type": ["number", "string"]}}
    )

    description: str | None = None
    range: Range | None = None
    """Lowest and highest reward of a step."""
    events: dict[str, Float | str] = {}
    """Event: its reward. Other keys of `rewards` itself are events, too."""
    components: list[RewardPart] = []
    threshold_solved: Float | None = None
    """Return that counts as solved. Prefer `returns.threshold_solved`."""
    note: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _gather_events(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        known = {name: value for name, value in data.items() if name in cls.model_fields}
        events = {name: value for name, value in data.items() if name not in known}
        for name, value in events.items():
            if hint := did_you_mean(str(name), cls.model_fields, cutoff=0.75):
                raise ValueError(f"{name}: unknown key. {hint}")
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                raise ValueError(f"{name}: got {value!r}, expected its reward, a number or text")
        return known | ({"events": events | known.get("events", {})} if events else {})


class Returns(_Part):
    """The return of an episode."""

    range: Range | None = None
    threshold_solved: Float | None = None
    """Mean return that counts as solved."""
    reference: Float | None = None
    """A return to measure against where no threshold is defined."""
    reference_source: str | None = None
    """Where that one comes from."""
    human: Float | None = None
    """What a person reaches."""
    episodic: str | None = None
    description: str | None = None
    note: str | None = None


class Choice(_Part):
    """A setting with a choice of values, such as a game's modes. `name: text` lines are the values
    and their meaning."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": {"type": "string"}})

    values: list[Any] = []
    default: Any = None
    descriptions: dict[str, str] = {}
    note: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _gather_values(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or set(data) & set(cls.model_fields):
            return data
        return {"values": list(data), "descriptions": dict(data)}


class Spec(_Part):
    """The whole block."""

    description: str | None = None
    """What the environment is."""
    goal: str | None = None
    """What the agent should achieve."""
    source: str | None = None
    """Where it is documented."""
    links: dict[str, str] = {}
    """Links, as name: address."""
    suite: str | None = None
    render_fps: Annotated[Float, Field(gt=0)] | None = None
    """Natural frame rate, in frames per second."""
    action_space: ActionSpec = Field(default_factory=ActionSpec)
    observation_space: ObservationSpec = Field(default_factory=ObservationSpec)
    reward: str | None = None
    """Short for rewards.description."""
    rewards: Rewards = Field(default_factory=Rewards)
    episode: str | None = None
    """What ends an episode."""
    returns: Returns = Field(default_factory=Returns)
    options: dict[str, str] = {}
    """Options of env_kwargs, as name: effect."""
    modes: Choice = Field(default_factory=Choice)
    difficulties: Choice = Field(default_factory=Choice)
    versions: dict[str, str] = {}
    note: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.reward and self.rewards.description:
            raise ValueError("reward and rewards.description say the same: give one of them")
        first, second = self.returns.threshold_solved, self.rewards.threshold_solved
        if first is not None and second is not None and first != second:
            raise ValueError(f"threshold_solved is {first} in returns, but {second} in rewards")
        return self

    @property
    def threshold(self) -> float | None:
        """Mean return that counts as solved."""
        own = self.returns.threshold_solved
        return self.rewards.threshold_solved if own is None else own

    @property
    def reward_text(self) -> str | None:
        return self.reward or self.rewards.description


def read_spec(block: Mapping[str, Any]) -> Spec:
    """The checked block; ConfigError with one line per problem."""
    try:
        return Spec.model_validate(plain(block, "spec"))
    except ValidationError as error:
        raise ConfigError("\n".join(problems(error, block))) from None
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _model(keys: list[str]) -> type[BaseModel]:
    """The model of the block at a place, for suggestions."""
    model: type[BaseModel] = Spec
    for key in keys:
        annotation = model.model_fields[key].annotation if key in model.model_fields else None
        kinds = [annotation, *get_args(annotation)]
        model = next((k for k in kinds if isclass(k) and issubclass(k, BaseModel)), model)
    return model
