"""The config class of an algorithm, also where torch is not installed.

    config_class("ppo")

An algorithm's file holds its config, its losses and its update. Where torch is not installed, the
file cannot be imported, but its configs can still be read, checked and sent to other machines: the
class statement is taken from the file, with the few names it uses, and executed alone. Names that
lead to torch are left out; only methods that no config of a light install calls use them. A test
compares the result with the real class.
"""

import ast
import functools
import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gymnasium_solver.errors import missing_training
from gymnasium_solver.registry import ALGOS, algorithms

if TYPE_CHECKING:
    from gymnasium_solver.config.schema import Config

_PACKAGE = "gymnasium_solver."


def config_class(algo_id: str) -> "type[Config]":
    """It needs none of the packages that training needs."""
    try:
        return algorithms.get(algo_id).Config
    except ModuleNotFoundError as error:
        if missing_training(error) is None or algo_id not in ALGOS:
            raise
    return declared_config(algo_id)


@functools.cache
def declared_config(algo_id: str) -> "type[Config]":
    """A class with the fields, documentation and checks of the algorithm's `Config`."""
    module, _, name = ALGOS[algo_id].partition(":")
    agent = _file(module).classes[name]
    [value] = [
        node.value
        for node in agent.body
        if isinstance(node, ast.Assign) and _targets(node) == ["Config"]
    ]
    assert isinstance(value, ast.Name)
    found: type[Config] = _define(module, value.id)
    return found


class _File:
    """What a module declares and imports at its top level."""

    def __init__(self, module: str) -> None:
        spec = importlib.util.find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        self.name, self.path = module, spec.origin
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        self.classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
        self.statements: dict[str, ast.stmt] = {}
        self.imports: dict[str, tuple[str, str | None]] = {}
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                self.statements[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                self.statements |= dict.fromkeys(_targets(node), node)
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = (node.module, alias.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = (alias.name, None)
        self.space: dict[str, Any] = {"__name__": module, "__file__": spec.origin}


_file = functools.cache(_File)


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    given = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in given if isinstance(target, ast.Name)]


def _define(module: str, name: str) -> Any:
    """The value of a name in a module's file: what its statement makes when it runs alone."""
    file = _file(module)
    if name in file.space:
        return file.space[name]
    node = file.statements[name]
    used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id != name}
    for other in sorted(used):
        if other in file.statements:
            _define(module, other)
        elif other in file.imports and other not in file.space:
            found = _imported(*file.imports[other])
            if found is not None:
                file.space[other] = found
    exec(compile(ast.Module([node], []), file.path, "exec"), file.space)
    return file.space[name]


def _imported(module: str, name: str | None) -> Any:
    """An import of the file; None if it leads to a package that is not installed here."""
    try:
        found: ModuleType = importlib.import_module(module)
        return found if name is None else getattr(found, name)
    except ModuleNotFoundError as error:
        if missing_training(error) is None:
            raise
    is_declared = module.startswith(_PACKAGE) and name in _file(module).statements
    return _define(module, str(name)) if is_declared else None
