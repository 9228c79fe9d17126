"""Fields that are documented by the text under them, which is read when somebody asks.

    class Options(Documented):
        frame_skip: int = 4
        "Frames that an action is held for."

    Options.model_json_schema()["properties"]["frame_skip"]["description"]

Pydantic can do this too, but reads the source of every class when the class is made: half of the
time that importing all configs takes, for texts that only help pages and editors show.
"""

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Documented(BaseModel):
    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in field_docs(cls).items():
            if name in properties:
                properties[name].setdefault("description", text)
        return schema


@cache
def field_docs(cls: type[BaseModel]) -> dict[str, str]:
    """The text under each field of a class that has one, inherited fields included."""
    own, declared, found = _own_docs(cls), inspect.get_annotations(cls), {}
    bases = [base for base in cls.__bases__ if issubclass(base, BaseModel)]
    for name in cls.model_fields:
        if name in declared:
            text = own.get(name)
        else:  # like pydantic, which takes a field from the first base that has it
            text = next((field_docs(b).get(name) for b in bases if name in b.model_fields), None)
        if text:
            found[name] = text
    return found


@cache
def _own_docs(cls: type[BaseModel]) -> dict[str, str]:
    """The same for the fields that a class declares itself."""
    node: ast.AST | None = _source(cls.__module__)
    for name in cls.__qualname__.replace("<locals>.", "").split("."):
        inner = () if node is None else ast.walk(node)
        kinds = ast.ClassDef | ast.FunctionDef
        node = next((n for n in inner if isinstance(n, kinds) and n.name == name), None)
    found: dict[str, str] = {}
    body = node.body if isinstance(node, ast.ClassDef) else []
    for field, below in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            found[field.target.id] = inspect.cleandoc(below.value.value)
    return found


@cache
def _source(module: str) -> ast.Module | None:
    """The file of a module; None without a file, such as for a class typed into a terminal."""
    path = getattr(sys.modules.get(module), "__file__", None)
    try:
        return ast.parse(Path(path or "").read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return None
