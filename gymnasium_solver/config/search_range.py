"""The range in which a search varies a field.

`gsolve sweep CONFIG` searches the main fields of the algorithm, `--param FIELD` any other with a
range. The text is that of `--param` (experiments/search/ranges.py). A field states its range where it
is declared:

    td_lambda: Annotated[float, searched("0.0..0.95", main=True)] = 0.65

A class that declares a field again, without a range, keeps that of the classes it derives from;
`searched("")` takes it away.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema


@dataclass(frozen=True)
class searched:  # lower case: it is used like a function, Annotated[Float, searched("0..1")]
    """The default search range of a field."""

    text: str
    """The distribution, e.g. log:1e-5..1e-2. Empty: the field is not searched by default."""
    main: bool = False
    """Searched when no parameters are named."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return handler(source)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "x-search": self.text} if self.text else handler(schema)


def search_range(config: type[BaseModel], field: str) -> searched | None:
    """The range that the class, or the nearest one that it derives from, declares for the field."""
    for owner in config.__mro__:
        info = getattr(owner, "model_fields", {}).get(field)
        declared = [mark for mark in (info.metadata if info else ()) if isinstance(mark, searched)]
        if declared:
            return declared[0] if declared[0].text and field in config.model_fields else None
    return None


def search_ranges(config: type[BaseModel]) -> dict[str, searched]:
    """All fields of a config that have a range, in the order of the config."""
    found = {name: search_range(config, name) for name in config.model_fields}
    return {name: item for name, item in found.items() if item is not None}
