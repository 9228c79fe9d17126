"""Imports run one way: a room imports only from the rooms below it.

Imports inside functions count like those at the top of a module. Imports under `TYPE_CHECKING` do
not: they are never run.
"""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import gymnasium_solver

ROOT = Path(gymnasium_solver.__file__).parent
PACKAGE = ROOT.name
# From the bottom to the top. Rooms of one level do not import each other. A module may stand on
# another level than its room.
LEVELS = (
    (PACKAGE,),  # for its version: it imports nothing until a name of it is used
    ("errors", "printable", "suggest", "timing", "tree", "lanes", "chart_style"),
    ("registry", "paths"),
    ("plugins",),
    ("config",),
    ("spaces", "runs"),
    ("fast.native.build",),  # compiles a C file; environments have some too
    ("envs", "nets", "data", "fast"),
    ("policies",),
    ("algos",),
    ("training",),
    ("media",),
    ("backends",),  # run an argv in a folder; experiments, the web app and agents start runs
    ("experiments",),
    ("share", "serve"),
    ("bench",),
    ("cli",),
    ("api",),  # for the console; the package loads it where a name of it is used
    ("__main__",),
)
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
# Below, but not for algorithms: they are given environments and never see a run folder.
FORBIDDEN = {"algos": ("envs.make", "runs")}
# "importer -> imported": the reason why it is allowed.
ALLOWED: dict[str, str] = {}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imported_names(source: str) -> Iterator[tuple[str, list[str]]]:
    """The imports that can run: modules, each with the names taken from it."""
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield str(node.module), [alias.name for alias in node.names]
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            todo.extend(getattr(node, block, ()))  # statements only: expressions import nothing


def imports_of(source: str) -> set[str]:
    """The modules of this package that a source imports."""
    found: set[str] = set()
    for module, names in imported_names(source):
        inner = [f"{module}.{name}" for name in names]
        found |= {name if name in MODULES else module for name in inner or [module]}
    return found & MODULES.keys()


@cache
def graph() -> dict[str, set[str]]:
    """The modules that each module imports. Not at import: every worker of the suite collects."""
    return {
        name: imports_of(path.read_text(encoding="utf-8")) - {name}
        for name, path in MODULES.items()
    }


def short(module: str) -> str:
    """Without the name of the package."""
    return module.removeprefix(f"{PACKAGE}.")


def level_of(module: str) -> int:
    name = short(module)
    while name not in LEVEL:
        assert "." in name, f"{module} is on no level: add its room to LEVELS"
        name = name.rpartition(".")[0]
    return LEVEL[name]


def is_upward(importer: str, imported: str) -> bool:
    a, b = short(importer), short(imported)
    room_a, room_b = a.partition(".")[0], b.partition(".")[0]
    if any(f"{b}.".startswith(f"{name}.") for name in FORBIDDEN.get(room_a, ())):
        return True
    levels = level_of(importer), level_of(imported)
    return levels[0] < levels[1] or (levels[0] == levels[1] and room_a != room_b)


def test_no_module_imports_upwards() -> None:
    edges = {f"{short(a)} -> {short(b)}" for a in graph() for b in graph()[a] if is_upward(a, b)}
    assert not edges - ALLOWED.keys(), "imports against the direction"
    assert not ALLOWED.keys() - edges, "no longer needed in ALLOWED"


def test_no_modules_import_each_other() -> None:
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        raise AssertionError("a cycle: " + " -> ".join(map(short, error.args[1]))) from None


def test_the_rule_is_noticed_when_it_is_broken() -> None:
    source = (
        "def f():\n"
        "    from gymnasium_solver.cli import main\n"
        "    import gymnasium_solver.runs.run\n"
    )
    assert imports_of(source) == {f"{PACKAGE}.cli.main", f"{PACKAGE}.runs.run"}
    typed = "if TYPE_CHECKING:\n    from gymnasium_solver.cli import main\nelse:\n    import sys\n"
    assert imports_of(typed) == set()
    for importer, imported in (
        ("config.load", "envs.make"),
        ("envs.make", "nets.mlp"),
        ("algos.ppo", "runs.run"),
        ("algos.ppo", "envs.make"),
        ("envs.make", "experiments.pool"),
    ):
        assert is_upward(f"{PACKAGE}.{importer}", f"{PACKAGE}.{imported}")
    for importer, imported in (
        ("config.load", "config.schema"),
        ("envs.catalogue", "config.spec"),
        ("algos.ppo", "envs.spec"),
        ("runs.machine", ""),
    ):
        assert not is_upward(f"{PACKAGE}.{importer}", f"{PACKAGE}.{imported}".rstrip("."))
