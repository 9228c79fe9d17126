"""Imports run one way: a room imports only from the rooms below it.

Imports inside functions and those under `TYPE_CHECKING` count like those at the top of a module.
"""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import gymnasium_solver

ROOT = Path(gymnasium_solver.__file__).parent
PACKAGE = ROOT.name
# From the bottom to the top. Rooms of one level do not import each other. A module may stand on
# another level than its room.
LEVELS = (
    ("version", "printable", "suggest", "timing", "tree", "lanes", "chart_style"),
    ("errors",),
    ("registry", "paths", "processes"),
    ("config",),
    ("plugins",),
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
    (PACKAGE, "__main__"),  # the package imports nothing until a name of it is used
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


class Imports(NamedTuple):
    """Modules of this package that a source imports."""

    when_run: set[str]
    for_types: set[str]
    """Those under TYPE_CHECKING."""


def imports_of(source: str) -> Imports:
    found = Imports(set(), set())
    todo: list[tuple[ast.AST, bool]] = [(ast.parse(source), False)]
    while todo:
        node, is_typing = todo.pop()
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else str(node.module) for name in inner]
        found[is_typing].update(MODULES.keys() & names)
        is_check = isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            below = is_typing or (is_check and block == "body")
            # Statements only: expressions import nothing.
            todo.extend((child, below) for child in getattr(node, block, ()))
    return found


@cache
def imports() -> dict[str, Imports]:
    """By module. Not when this file is imported: every worker of the suite collects it."""
    return {name: imports_of(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def arrows() -> dict[str, set[str]]:
    """The modules that each module imports, also for types."""
    return {name: (when_run | types) - {name} for name, (when_run, types) in imports().items()}


def short(module: str) -> str:
    """Without the name of the package."""
    return module.removeprefix(f"{PACKAGE}.")


def room_of(module: str) -> str:
    """The entry of LEVELS that a module belongs to."""
    name = short(module)
    while name not in LEVEL:
        assert "." in name, f"{module} is on no level: add its room to LEVELS"
        name = name.rpartition(".")[0]
    return name


def is_upward(importer: str, imported: str) -> bool:
    a, b = room_of(importer), room_of(imported)
    if any(f"{short(imported)}.".startswith(f"{name}.") for name in FORBIDDEN.get(a, ())):
        return True
    return LEVEL[a] < LEVEL[b] or (LEVEL[a] == LEVEL[b] and a != b)


def test_no_module_imports_upwards() -> None:
    edges = {
        f"{short(a)} -> {short(b)}"
        for a, imported in arrows().items()
        for b in imported
        if is_upward(a, b)
    }
    assert not edges - ALLOWED.keys(), "imports against the direction"
    assert not ALLOWED.keys() - edges, "no longer needed in ALLOWED"


def check_no_cycle(graph: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError("a cycle: " + " -> ".join(map(short, error.args[1]))) from None


def test_no_modules_import_each_other() -> None:
    check_no_cycle({name: found.when_run - {name} for name, found in imports().items()})


def test_no_cycle_runs_through_several_rooms() -> None:
    rooms: dict[str, set[str]] = {}
    for importer, imported in arrows().items():
        room = room_of(importer)
        rooms.setdefault(room, set()).update({room_of(name) for name in imported} - {room})
    check_no_cycle(rooms)


def test_the_rule_is_noticed_when_it_is_broken() -> None:
    source = (
        "def f():\n"
        "    from gymnasium_solver.cli import main\n"
        "    import gymnasium_solver.runs.run\n"
    )
    assert imports_of(source) == ({f"{PACKAGE}.cli.main", f"{PACKAGE}.runs.run"}, set())
    typed = "if TYPE_CHECKING:\n    from gymnasium_solver.cli import main\nelse:\n    import sys\n"
    assert imports_of(typed) == (set(), {f"{PACKAGE}.cli.main"})
    with pytest.raises(AssertionError, match="a cycle: "):
        check_no_cycle({"config": {"algos"}, "algos": {"registry"}, "registry": {"config"}})
    for importer, imported in (
        ("config.load", "envs.make"),
        ("envs.make", "nets.blocks"),
        ("algos.ppo", "runs.run"),
        ("algos.ppo", "envs.make"),
        ("envs.make", "experiments.pool"),
        ("registry", "training.observer"),
        ("runs.machine", ""),
    ):
        assert is_upward(f"{PACKAGE}.{importer}", f"{PACKAGE}.{imported}".rstrip("."))
    for importer, imported in (
        ("config.load", "config.schema"),
        ("envs.catalogue", "config.spec"),
        ("algos.ppo", "envs.spec"),
        ("runs.machine", "version"),
    ):
        assert not is_upward(f"{PACKAGE}.{importer}", f"{PACKAGE}.{imported}")


# They import modules of this package, or of an extra, from tables of their own.
_OWN_TABLES = {
    "__init__", "backends.isolated", "backends.nursery", "bench.report", "cli.main", "cli.many",
    "envs.make", "envs.suites.own", "envs.wrappers.wrapping", "registry", "runs.resolve",
    "serve.mcp.timed", "share.trackers.follow",
}  # fmt: skip


def test_a_text_of_a_config_is_imported_by_one_function() -> None:
    """`import_code` refuses what strangers name: nothing else may turn a text into an import."""
    calls = {"import_module", "__import__", "run_module", "spec_from_file_location"}
    found = set()
    for path in MODULES.values():
        text = path.read_text(encoding="utf-8")
        if not any(call in text for call in calls):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in calls and not isinstance(node.args[0], ast.Constant):
                found.add(".".join(path.relative_to(ROOT).with_suffix("").parts))
    assert found - _OWN_TABLES == {"config.code"}
