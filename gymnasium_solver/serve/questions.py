"""Questions: what a page or an agent may ask, as functions with typed parameters.

    def get_log(desk: Desk, run: OneRun, lines: Limit = 40) -> dict[str, Any]:
        '''The last lines of a run's log.'''

The first parameter is the desk that answers: the folder of runs and what is kept of it. The others
say what may be given. The web server makes a route of such a function (web/handling.py) and the MCP
server a tool (mcp/server.py); both read the arguments here, so a run, a number or a list means the
same and has the same limits whoever asks. An answer is a mapping of JSON types, or what the server
itself returns: a file, a picture.
"""

import inspect
import json
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import NoneType
from typing import (
    Annotated,
    Any,
    Generic,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from gymnasium_solver.errors import GsolveError, RunError
from gymnasium_solver.experiments.compare import MARGIN, compare
from gymnasium_solver.experiments.groups import Group, Member, member_of
from gymnasium_solver.runs import query
from gymnasium_solver.runs.query import OF_EVENTS, RunSummary
from gymnasium_solver.runs.resolve import resolve_run, run_name
from gymnasium_solver.runs.run import Run, is_run
from gymnasium_solver.runs.select import select, sort
from gymnasium_solver.runs.series import Array, MetricTable, read_series
from gymnasium_solver.runs.store import RunStore, stamp

Question = Callable[..., Any]
Answer = dict[str, Any]
Fields = dict[str, Any]  # fields of a config to change
Value = TypeVar("Value")
MOST_TABLE_BYTES = 200_000_000
MOST_COMPARISONS = 32
MOST_CONFIGS = 2_000
NO_FIELDS: Fields = {}


class BadRequest(GsolveError):
    """An argument is missing or wrong."""


class Desk:
    """The folder of runs that questions are about, and what is worth keeping between them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = RunStore(root)
        self.tables = Tables()
        self.configs: Kept[dict[str, Any]] = Kept(MOST_CONFIGS)
        """Configs of runs by path and stamp of the file."""
        self._comparisons: Kept[dict[str, Any]] = Kept(MOST_COMPARISONS)

    def run(self, ref: Any, folder: Path | None = None) -> Run:
        """A run of the folder: @last, an id or a unique part of one. Never a path."""
        return resolve_run(plain_name(ref, "run"), folder or self.root, allow_paths=False)

    def summary(self, run: Run) -> RunSummary:
        """A run as it is now, under the name that finds it here."""
        return replace(query.get_run(run), id=run_name(run, self.root))

    def select(self, filter: str, sort_by: str | None = None) -> list[RunSummary]:
        """The runs that a filter accepts (runs/select.py), newest first or sorted; with
        `search=ID` those of a search."""
        words = filter.split()
        searches = [word for word in words if word.startswith("search=")]
        if not searches:
            return self.store.select(words, sort_by)
        from gymnasium_solver.experiments.search.sweep_folder import find_sweep  # slow to import

        folder = find_sweep(plain_name(searches[0][7:], "search"), self.root, allow_paths=False)
        runs = [Run(path) for path in sorted(folder.path.glob("*/*/*")) if is_run(path)]
        rest = [word for word in words if word not in searches]
        found = select(list(map(self.summary, runs)), rest, self.config)
        return found if sort_by is None else sort(found, sort_by, self.config)

    def config(self, run: RunSummary) -> dict[str, Any]:
        """The config of a run that `select` has found."""
        is_plain = Path(run.path).parent == self.store.root
        return self.store.config(run) if is_plain else query.get_config(Run(Path(run.path)))

    def member(self, run: Run) -> Member:
        """A run for a comparison, as of the last refresh of the list, which is kept in memory."""
        known = self.store.find(run.id) if run.path.parent == self.store.root else None
        if known is None:
            return member_of(str(run.path), self.root)
        config = self.store.known_config(run.id) or self.config_of(run)
        return Member(known, config, query.get_meta(run))

    def config_of(self, run: Run) -> dict[str, Any]:
        """The config of a run; parsing takes long, so it is kept while the file is the same."""
        key = (str(run.path), *(stamp(str(run.config_path)) or ()))
        return self.configs.get(key, lambda: query.get_config(run))

    def compared(self, groups: Sequence[Group], margin: str = MARGIN) -> dict[str, Any]:
        """The comparison as `gsolve compare --json` prints it, kept while the runs do not change.
        `margin`: the smallest difference that matters."""
        paths = [(group.label, member.summary.path) for group in groups for member in group.members]
        files = ("meta.json", "metrics.jsonl", "events.jsonl")
        key = tuple(
            (label, path, *(tuple(stamp(f"{path}/{name}") or ()) for name in files))
            for label, path in paths
        )
        return self._comparisons.get((margin, key), lambda: compare(groups, margin).to_dict())


class Kept(Generic[Value]):
    """Results by what they were computed from; the oldest are dropped."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: dict[Any, Value] = {}
        self._lock = threading.Lock()

    def get(self, key: Any, make: Callable[[], Value]) -> Value:
        found = self._values.get(key)
        if found is None:
            found = make()
            with self._lock:
                while len(self._values) >= self.most:
                    del self._values[next(iter(self._values))]
                self._values[key] = found
        return found


class Tables:
    """The metric tables of the runs that were asked about, the least recently used ones dropped."""

    def __init__(self, most_bytes: int = MOST_TABLE_BYTES) -> None:
        self.most_bytes = most_bytes
        self._tables: OrderedDict[str, MetricTable] = OrderedDict()
        self._n_bytes = 0  # of all tables, as of their last refresh
        self._lock = threading.Lock()

    def column(self, run: Run, name: str, x: str) -> tuple[Array, Array]:
        """One metric over a clock: from the table of the run if it is there, else read alone, which
        is much faster than making the table."""
        if str(run.path) in self._tables or name.startswith(OF_EVENTS):
            return self.of(run).series(name, x)
        return read_series(run, name, x)

    def of(self, run: Run) -> MetricTable:
        """The table of a run, up to date. Called from several threads, so one at a time."""
        key = str(run.path)
        with self._lock:
            table = self._tables.pop(key, None) or MetricTable(run)
            self._n_bytes -= table.n_bytes
            try:
                table.refresh()
            finally:
                self._n_bytes += table.n_bytes
                self._tables[key] = table
            while len(self._tables) > 1 and self._n_bytes > self.most_bytes:
                self._n_bytes -= self._tables.popitem(last=False)[1].n_bytes
            return table


# --- parameters


@dataclass(frozen=True)
class Within:
    """A number within limits: one outside of them is refused, or moved to the limit."""

    low: float
    high: float
    clamps: bool = False

    def __call__(self, name: str, value: float, asked: Mapping[str, Any]) -> float:
        if self.clamps:
            return min(max(self.low, value), self.high)  # the lower limit for NaN
        if not self.low <= value <= self.high:
            raise BadRequest(f"{name!r} is {value}, expected {self.low} to {self.high:,}")
        return value


@dataclass(frozen=True)
class Runs:
    """Several runs, each once."""

    most: int

    def __call__(self, name: str, refs: Sequence[str], asked: Mapping[str, Any]) -> list[Run]:
        if not refs:
            raise BadRequest(f"{name!r} is empty: no run is given")
        if len(refs) > self.most:
            raise BadRequest(f"{len(refs)} runs given, at most {self.most} at once")
        return list({run.path: run for run in map(asked["desk"].run, refs)}.values())


def _seed(name: str, value: Any, asked: Mapping[str, Any]) -> int | str:
    text = str(value)[:40]
    if text in ("test", "val", "train"):
        return text
    if not text.isdecimal() or int(text) >= 2**31:
        expected = "expected test, val, train or a number below 2^31"
        raise BadRequest(f"{name!r} is {text!r}, {expected}")
    return int(text)


Seed = Annotated[int | str, _seed]
OneRun = Annotated[Run, lambda name, ref, asked: asked["desk"].run(ref)]
SomeRuns = Annotated[Sequence[Run], Runs(500)]
ManyRuns = Annotated[Sequence[Run], Runs(20_000)]
"""Those that are selected in a table, which may be all that it shows."""
Limit = Annotated[int, Within(1, 200, clamps=True)]  # how many items of a list are returned


class Parameter(NamedTuple):
    name: str
    kind: Any
    """The type of the value as it is given: str, int, float, bool, list or dict; Any: whatever
    `check` accepts."""
    default: Any
    is_optional: bool
    check: Callable[[str, Any, Mapping[str, Any]], Any] | None

    @property
    def word(self) -> str:
        """The name in a request: `from` of `from_`, which Python does not allow."""
        return self.name.rstrip("_")


# What each kind is called, and whether a JSON value is one. A default may be a tuple.
_KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    str: ("text", lambda value: isinstance(value, str)),
    int: ("a whole number", lambda value: type(value) is int),
    float: ("a number", lambda value: type(value) in (int, float)),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    dict: ("an object", lambda value: isinstance(value, dict)),
    list: (
        "a list of texts",
        lambda value: isinstance(value, list | tuple) and all(isinstance(v, str) for v in value),
    ),
}
_ANYTHING = ("a value", lambda value: True)


def given_kind(kind: Any) -> Any:
    """The type of a parameter as it is given: runs by their names."""
    return {Run: str, Sequence[Run]: Sequence[str]}.get(kind, kind)


@cache
def parameters(question: Question) -> list[Parameter]:
    """What a question takes, in its order, without the desk."""
    hints = get_type_hints(question, include_extras=True)
    found = []
    for name, one in list(inspect.signature(question).parameters.items())[1:]:
        hint, check = hints[name], None
        if get_origin(hint) is Annotated:
            hint, check = get_args(hint)[:2]
        options = get_args(hint) if NoneType in get_args(hint) else ()
        kind = given_kind(next((option for option in options if option is not NoneType), hint))
        kind = get_origin(kind) or kind
        kind = list if kind is Sequence else kind
        found.append(Parameter(name, kind, one.default, bool(options), check))
    return found


def arguments(question: Question, desk: Desk, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a question from JSON values, checked; BadRequest names what is wrong."""
    asked: dict[str, Any] = {"desk": desk}
    for one in parameters(question):
        if one.word in given:
            asked[one.name] = _checked(one, given[one.word], asked)
        elif one.default is inspect.Parameter.empty:
            what, _ = _KINDS.get(one.kind, _ANYTHING)
            raise BadRequest(f"{one.word!r} is missing: expected {what}")
        else:
            asked[one.name] = one.default
    del asked["desk"]
    return asked


def _checked(one: Parameter, value: Any, asked: Mapping[str, Any]) -> Any:
    if value is None and one.is_optional:
        return None
    what, fits = _KINDS.get(one.kind, _ANYTHING)
    if not fits(value):
        raise BadRequest(f"{one.word!r} must be {what}")
    return value if one.check is None else one.check(one.word, value, asked)


def parsed(question: Question, texts: Mapping[str, str]) -> dict[str, Any]:
    """The texts of a URL as JSON values; one that does not fit is left for the check."""
    given: dict[str, Any] = {o.word: texts[o.word] for o in parameters(question) if o.word in texts}
    for one in parameters(question):
        text = given.get(one.word, "")
        if one.kind is list and one.word in given:
            given[one.word] = [part for part in text.split(",") if part]
        elif one.kind is int and text.isdecimal() and len(text) <= 15:
            given[one.word] = int(text)
        elif one.kind is float and text:
            with suppress(ValueError):
                given[one.word] = float(text)
    return given


def plain_name(value: Any, what: str) -> str:
    """A short text without control characters, such as the name of a run."""
    if not isinstance(value, str) or not value.strip():
        raise RunError(f"{what} is empty")
    if len(value) > 300 or any(ord(c) < 32 or 0xD800 <= ord(c) < 0xE000 for c in value):
        raise RunError(f"{value[:60]!r} is not the name of a {what}")
    return value.strip()


def json_text(value: Any) -> str:
    """Strict JSON: what is not finite becomes null."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), separators=(",", ":"), ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
