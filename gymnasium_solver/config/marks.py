"""What a field says about itself in addition to its type: whether it may change while a run trains,
and in which range a search varies it.

    batch_size: Annotated[BatchSize, live(), searched("pow2:32..1024", main=True)] = 64

A class that declares a field again keeps the marks of the classes it derives from.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

from gymnasium_solver.errors import ConfigError


@dataclass(frozen=True)
class live:  # lower case: it is used like a function, Annotated[Float, live()]
    """A field that may change while a run trains: it is read in every epoch, and decides nothing
    that is built at the start. A field that takes a schedule needs no such mark."""

    is_live = True


@dataclass(frozen=True)
class searched:
    """The default search range of a field: `gsolve sweep CONFIG` searches the main fields of the
    algorithm, `--param FIELD` any other with a range."""

    text: str
    """The distribution as in `--param` (experiments/search/ranges.py), e.g. log:1e-5..1e-2. Empty:
    the field is not searched by default, whatever the classes say that it derives from."""
    main: bool = False  # searched when no parameters are named

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return handler(source)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "x-search": self.text} if self.text else handler(schema)


def all_marks(field: FieldInfo) -> list[Any]:
    """The marks of one declaration; those of `X | None` are inside."""
    inner = [mark for part in get_args(field.annotation) for mark in get_args(part)]
    return [*field.metadata, *inner]


def _inherited_marks(config: type[BaseModel], field: str) -> Iterator[Any]:
    """The marks of all declarations of a field, of the nearest class first."""
    for owner in config.__mro__:
        info = getattr(owner, "model_fields", {}).get(field)
        yield from () if info is None else all_marks(info)


# -- search ranges --------------------------------------------------------------------------------


def search_range(config: type[BaseModel], field: str) -> searched | None:
    """The range that the class, or the nearest one that it derives from, declares for the field."""
    marks = (mark for mark in _inherited_marks(config, field) if isinstance(mark, searched))
    found = next(marks, None)
    return found if found and found.text and field in config.model_fields else None


def search_ranges(config: type[BaseModel]) -> dict[str, searched]:
    """All fields of a config that have a range, in the order of the config."""
    found = {name: search_range(config, name) for name in config.model_fields}
    return {name: item for name, item in found.items() if item is not None}


# -- changes while a run trains -------------------------------------------------------------------


def live_fields(config: type[BaseModel]) -> list[str]:
    """Fields of this class that may change while a run trains, in order."""
    return [
        name
        for name in config.model_fields
        if any(getattr(mark, "is_live", False) for mark in _inherited_marks(config, name))
    ]


def check_live(config: type[BaseModel], names: Iterable[str]) -> None:
    """ConfigError if one of the fields cannot change while a run trains."""
    may_change = live_fields(config)
    wrong = [name for name in names if name not in may_change]
    if wrong:
        known = ("policy_lr", "ent_coef", "clip_range", "epsilon", "gamma", "eval_freq_epochs")
        examples = ", ".join([name for name in known if name in may_change][:3])
        raise ConfigError(
            f"{', '.join(wrong)} cannot change while a run trains: only what is read in every "
            f"epoch can, such as {examples}. Start a new run for it."
        )
