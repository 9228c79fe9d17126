"""The config that every run has, and the one that every algorithm with a network has.

An algorithm declares its own config in algos/configs. It lists the blocks of fields that it
reads (blocks.py, learner_blocks.py) and adds its own:

    class PPOConfig(ActorCriticFields, MinibatchFields, LearnerConfig):
        clip_range: PositiveSchedule = Schedule.constant(0.2)
        "Clip the probability ratio to 1 +- this value. Higher: larger, riskier updates."

Invalid input raises ConfigError with one line per problem. A constructed config holds resolved
values: `n_envs: auto` is a number, a fractional batch size is a count, `model_id` has set
`hidden_dims`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Self

from pydantic import GetJsonSchemaHandler, PrivateAttr, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from gymnasium_solver.config import blocks
from gymnasium_solver.config.curriculum import CurriculumFields
from gymnasium_solver.config.explain import explain
from gymnasium_solver.config.learner_blocks import ActorCriticFields as ActorCriticFields
from gymnasium_solver.config.learner_blocks import LearningFields, NetworkFields, NormalizeFields
from gymnasium_solver.config.learner_blocks import MinibatchFields as MinibatchFields  # for plugins
from gymnasium_solver.config.nested import (
    CollectorFields,
    InterventionFields,
    IntrinsicFields,
    plateau_rule,
)
from gymnasium_solver.config.schedule import PLATEAU, Schedule, at_start
from gymnasium_solver.config.types import DEEPEST, is_too_deep
from gymnasium_solver.errors import ConfigError, told_as

# Other spellings of our own fields: read, never written.
ALIASES = {
    "max_timesteps": "max_env_steps",
    "max_steps": "max_env_steps",
    "grad_clip_norm": "max_grad_norm",
    "accelerator": "device",
    "plateau_interventions": "interventions",
}


# Fields of which a config has at most one: setting one in an upper layer removes the others.
_EXCLUSIVE = (("eval_freq_epochs", "eval_freq_steps"),)


class Config(
    InterventionFields,
    CollectorFields,
    blocks.SystemFields,
    blocks.LoggingFields,
    blocks.CheckpointFields,
    blocks.StopFields,
    blocks.EvalFields,
    CurriculumFields,
    blocks.EnvFields,
    blocks.SeedFields,
    blocks.BudgetFields,
    blocks.IdentityFields,
):
    """What every run has, whatever the algorithm: the fields that the training loop reads."""

    _notes: tuple[str, ...] = PrivateAttr(default=())

    def __init__(self, /, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise ConfigError(explain(type(self), error, data)) from None

    def replace(self, **changes: Any) -> Self:
        """A checked copy with some fields changed."""
        return type(self)(**layered(dict(self), changes)).with_notes(self._notes)

    def with_notes(self, notes: Iterable[str]) -> Self:
        """The config with notes about how it was read, for the user; not part of its value."""
        self._notes = tuple(notes)
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """How the config was read."""
        return self._notes

    def notices(self) -> list[str]:
        """What the user should know: how the config was read, and settings without effect."""
        return [*self._notes, *super().notices()]

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        return _standard_bounds(handler.resolve_ref_schema(schema))

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        named = canonical(data)
        for name, value in list(named.items()):
            if isinstance(value, Mapping) and value.get("schedule") == PLATEAU:
                named[name], rule = plateau_rule(name, value)
                rules = named.get("interventions") or []
                named["interventions"] = [*([rules] if isinstance(rules, Mapping) else rules), rule]
        return {k: v for k, v in named.items() if k in cls.model_fields or not _is_unset(k, v)}

    @model_validator(mode="after")
    def _check_schedules(self) -> Self:
        total = self.max_env_steps or (self.max_epochs or 0) * self.n_envs * self.n_steps
        for name, value in self:
            if isinstance(value, Schedule):
                with told_as(ValueError, name, ValueError):
                    value.check(total)
        return self


class LearnerConfig(IntrinsicFields, LearningFields, NetworkFields, NormalizeFields, Config):
    """What every algorithm that trains a network by gradients has."""

    @property
    def gradient_samples(self) -> int:
        """Samples in one gradient step: without minibatches the whole rollout."""
        return self.n_envs * self.rollout_rows

    @property
    def gradients_per_env_step(self) -> float:
        """Gradient steps for each env step: passes over every rollout, in minibatches."""
        n_passes: Any = getattr(self, "n_epochs", 1)
        return float(at_start(n_passes)) / self.gradient_samples

    @property
    def action_settings(self) -> dict[str, Any]:
        """How actions are distributed, where the algorithm leaves a choice."""
        return {}


# Fields that an earlier version saved in every run's config.yaml, with the values that meant "not
# used". Config classes without such a field still load those files. What replaces a field that was
# removed is in foreign.txt.
_UNUSED: dict[str, tuple[Any, ...]] = {
    "share_trunk": (False, "auto"),
    "log_std_init": (0.0,),
    "ent_coef": (0.0,),
    "overlap": (False,),
}


def _is_unset(name: str, value: Any) -> bool:
    return any(type(value) is type(unset) and value == unset for unset in _UNUSED.get(name, ()))


def _standard_bounds(schema: Any) -> Any:
    """Pydantic writes `ge: 1` for a bound outside a validator; JSON schema calls it `minimum`."""
    names = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
    if isinstance(schema, list):
        return [_standard_bounds(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {names.get(key, key): _standard_bounds(value) for key, value in schema.items()}


def canonical(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings under our field names; ConfigError if one is given under two names."""
    named: dict[str, Any] = {}
    spelt: dict[str, str] = {}
    for key, value in data.items():
        if is_too_deep(value):
            raise ConfigError(f"{key}: nested more than {DEEPEST} levels deep")
        name = ALIASES.get(key, key)
        if name in named:
            raise ConfigError(f"{spelt[name]} and {key} are the same setting: give one of them")
        named[name], spelt[name] = value, key
    return named


def layered(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """One set of config lines over another: a variant over its file's base, overrides over both.
    `above` wins. Both use our field names."""
    groups = [group for group in _EXCLUSIVE if any(above.get(name) is not None for name in group)]
    replaced = {name for group in groups for name in group}
    return {name: value for name, value in below.items() if name not in replaced} | dict(above)
