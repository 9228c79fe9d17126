"""The `spec` block of a config file: what is known about its environment, in words and labels.

    spec:
      description: A pole stands on a cart.
      goal: Keep it upright for 500 steps.
      action_space: {labels: [push_left, push_right]}
      observation_space:
        components:
          - {name: cart_position, range: [-4.8, 4.8], unit: m}
      rewards: {description: 1 for every step, per_step: 1}
      returns: {range: [1, 500], threshold_solved: 475}

`read_spec(block)` checks it and gives a `Spec`; `Config` calls it, so a slip of the pen is an error
when the config is loaded. Everything is optional. In `rewards` any further key is an event and what
it pays (`on_goal: 1`, `per_point: +1/-1`). One key is a setting, `action_space.valid`: the actions
that are allowed (envs/wrappers/restrict_actions.py). An observation that depends on the config
(`obs_type`) is described by `default` and `variants`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from gymnasium_solver.config.spec_errors import or_list, problems
from gymnasium_solver.config.types import Count, Float, plain
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.suggest import did_you_mean


def _ordered(ends: tuple[Any, Any]) -> tuple[Any, Any]:
    low, high = ends
    if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
        raise ValueError(f"begins at {low} but ends at {high}: expected [lowest, highest]")
    return ends


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# Lowest and highest value; null where there is no end, text where it depends (n_arms).
Range = Annotated[
    tuple[Float | str | None, Float | str | None],
    BeforeValidator(_tuple),
    AfterValidator(_ordered),
]
Labels = list[str] | dict[str, str]


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        defer_build=True,  # 30 ms that only a config with a block should cost
    )


class ActionSpec(_Part):
    """What the agent can do."""

    labels: Labels = []
    """A name for each action, or for each number of a continuous one: a list, or index: label."""
    descriptions: dict[str, str] = {}
    """More about an action, by its label or index."""
    valid: list[int | str] | None = None
    """The actions that are allowed, by number or label. A setting: all others are masked."""
    discrete: Count | None = None
    """Number of actions, where they are Discrete."""
    multibinary: Count | None = None
    """Number of buttons, where any of them may be held at once."""
    multidiscrete: list[Count] | None = None
    """Number of choices in each part of the action."""
    shape: list[Count] | None = None
    range: Range | list[Range] | None = None
    """Bounds of a continuous action: one pair, or one for each label."""
    unit: str | None = None
    note: str | None = None
    full_space: dict[str, Any] | None = None
    """A larger action space that the environment has as an option."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        keys = list(self.labels) if isinstance(self.labels, dict) else []
        if not all(key.isdecimal() for key in keys):
            raise ValueError(f"labels has the keys {', '.join(keys)}, expected action numbers")
        names = self.label_list()
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"labels has {twice!r} twice")
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
    """One number of an observation, or `size` of them."""

    name: str
    range: Range | None = None
    values: Count | list[int | float | str] | None = None
    """The values it can take: how many (0 to values - 1), or which."""
    size: Count = 1
    """Numbers it stands for."""
    unit: str | None = None
    description: str | None = None


class ObservationView(_Part):
    """One form in which an environment can be seen."""

    components: list[Component] = []
    """Its numbers by name, in order."""
    shape: list[Count | str] | None = None
    dtype: str | None = None
    range: Range | None = None
    n: Count | None = None
    """Number of values, where the observation is Discrete."""
    description: str | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [part.name for part in self.components]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"components has {twice!r} twice")
        return self

    @property
    def size(self) -> int:
        """Numbers that the components stand for."""
        return sum(part.size for part in self.components)


class ObservationSpec(ObservationView):
    """What the agent sees."""

    default: str | None = None
    """Which of the variants it is unless the config says otherwise."""
    variants: dict[str, ObservationView] = {}

    @model_validator(mode="after")
    def _check_default(self) -> Self:
        if self.default and self.default not in self.variants:
            raise ValueError(f"default is {self.default!r}{or_list(self.default, self.variants)}")
        return self

    def view(self, name: str | None = None) -> ObservationView:
        """The variant of this name, or the default one; the block itself where it has none."""
        return self.variants.get(name or self.default or "") or self


class RewardPart(_Part):
    """Something that is paid for."""

    name: str
    value: Float | str | None = None
    sign: str | None = None
    range: Range | None = None
    description: str | None = None
    note: str | None = None


class Rewards(_Part):
    """What a step pays."""

    model_config = ConfigDict(
        json_schema_extra={"additionalProperties": {"type": ["number", "string"]}}
    )

    description: str | None = None
    range: Range | None = None
    """Lowest and highest reward of a step."""
    events: dict[str, Float | str] = {}
    """What happens: what it pays. Keys of `rewards` itself that are no field are events, too."""
    components: list[RewardPart] = []
    threshold_solved: Float | None = None
    """Return that counts as solved; better said in `returns`."""
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
                raise ValueError(f"{name}: got {value!r}, expected what it pays, a number or text")
        return known | ({"events": events | known.get("events", {})} if events else {})


class Returns(_Part):
    """What an episode sums up to."""

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
    """Settings to choose one from, such as a game's modes. `name: text` lines are the values and
    what they mean."""

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
    """More to read: name: address."""
    suite: str | None = None
    render_fps: Annotated[Float, Field(gt=0)] | None = None
    """Frames per second at which it looks natural."""
    action_space: ActionSpec = ActionSpec()
    observation_space: ObservationSpec = ObservationSpec()
    reward: str | None = None
    """Short for rewards.description."""
    rewards: Rewards = Rewards()
    episode: str | None = None
    """What ends an episode."""
    returns: Returns = Returns()
    options: dict[str, str] = {}
    """What can be set by env_kwargs: name: what it does."""
    modes: Choice = Choice()
    difficulties: Choice = Choice()
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
    """The checked block; ConfigError with one line a problem."""
    try:
        return Spec.model_validate(plain(block, "spec"))
    except ValidationError as error:
        raise ConfigError("\n".join(problems(error, block, _model))) from None
    except ValueError as error:
        raise ConfigError(str(error)) from None


# Which model describes the blocks under a key, for hints.
_MODELS: dict[str, type[BaseModel]] = {
    "action_space": ActionSpec,
    "observation_space": ObservationSpec,
    "variants": ObservationView,
    "components": Component,
    "rewards": Rewards,
    "returns": Returns,
    "modes": Choice,
    "difficulties": Choice,
}


def _model(keys: list[str]) -> type[BaseModel]:
    """The model of the block at a place."""
    known = [key for key in keys if key in _MODELS]
    if known[-2:] == ["rewards", "components"]:
        return RewardPart
    return _MODELS[known[-1]] if known else Spec
