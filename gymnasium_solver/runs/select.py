"""Selects and sorts runs by what a user writes.

    select(runs, ["CartPole", "solved", "test>400", "seed=1", "tag=paper", "policy_lr<0.01"])
    sort(runs, "test")        # highest first; "-test" lowest first

A word must occur in the id, env, algorithm, variant, status or a tag; "solved" selects solved runs.
A condition compares a field: id (a part of one is enough), env, algo, variant, seed, status, test,
val, steps, episodes, time, tag, experiment, or any field of the config; a schedule counts as its
start. A field that no run has is an error. A minus before either excludes what it accepts, and `or`
between them starts an alternative: "CartPole -solved or tag=paper".
"""

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.summary import RunSummary
from gymnasium_solver.suggest import did_you_mean

OR = "or"
_COMPARE = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}
Config = Callable[[RunSummary], dict[str, Any]]
_CONDITION = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(?P<sign>>=|<=|!=|=|>|<)(?P<value>.*)", re.S)

FIELDS: dict[str, Callable[[RunSummary], Any]] = {
    "id": lambda run: run.id,
    "env": lambda run: run.env_id,
    "algo": lambda run: run.algo_id,
    "variant": lambda run: run.variant,
    "seed": lambda run: run.seed,
    "status": lambda run: run.status,
    "created": lambda run: run.created_at,
    "solved": lambda run: run.solved,
    "test": lambda run: run.test_mean,
    "val": lambda run: run.best_score,
    "steps": lambda run: run.env_steps,
    "episodes": lambda run: run.episodes,
    "time": lambda run: run.wall_s,
    "fps": lambda run: run.env_steps_per_s,
    "threshold": lambda run: run.threshold,
    "tag": lambda run: list(run.tags),
    "note": lambda run: run.note,
    "experiment": lambda run: run.experiment,
}


def select(
    runs: Sequence[RunSummary], words: Iterable[str], config: Config | None = None
) -> list[RunSummary]:
    """The runs that all words and conditions of an alternative accept; `config` reads a config."""
    # Several words may come as one text; the value of a condition may have spaces.
    given = [
        part for word in words for part in ([word] if _CONDITION.fullmatch(word) else word.split())
    ]
    for condition in filter(None, (_CONDITION.fullmatch(_plain(word)) for word in given)):
        check_column(condition["name"], runs, config)
    alternatives: list[list[Callable[[RunSummary], bool]]] = [[]]
    for word in given:
        if word == OR:
            alternatives.append([])
        else:
            alternatives[-1].append(_test(word, config))
    either = [tests for tests in alternatives if tests]
    if not either:
        return list(runs)
    return [run for run in runs if any(all(test(run) for test in tests) for tests in either)]


def sort(runs: Sequence[RunSummary], name: str, config: Config | None = None) -> list[RunSummary]:
    """Highest value first, or lowest first for `-name`; runs without the value come last."""
    wanted, is_up = name.removeprefix("-"), name.startswith("-")
    values = [(value_of(run, wanted, config), run) for run in runs]
    if runs and all(value is None for value, _ in values) and wanted not in FIELDS:
        raise RunError(_unknown(wanted, runs, config))
    known = [(_key(value), run) for value, run in values if value is not None]
    rest = [run for value, run in values if value is None]
    return [run for _, run in sorted(known, key=lambda p: p[0], reverse=not is_up)] + rest


def value_of(run: RunSummary, name: str, config: Config | None = None) -> Any:
    """A field of the run or of its config; `spec.goal` reaches inside a field."""
    if name in FIELDS:
        return FIELDS[name](run)
    value: Any = config(run) if config is not None else None
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _plain(word: str) -> str:
    """Without the minus that excludes."""
    return word[1:] if len(word) > 1 and word[0] == "-" else word


def _test(word: str, config: Config | None) -> Callable[[RunSummary], bool]:
    if _plain(word) != word:
        accepts = _test(_plain(word), config)
        return lambda run: not accepts(run)
    match = _CONDITION.fullmatch(word)
    if match is None:
        return lambda run: word.lower() in searchable(run)
    name, sign, text = match["name"], match["sign"], match["value"].strip()
    if not text:
        raise RunError(f"{word!r} has no value; write for example {name}{sign}1")
    if sign not in ("=", "!=") and _number(text) is None:
        raise RunError(f"{word!r}: {sign} needs a number, got {text!r}")
    if name == "id" and sign in ("=", "!="):
        return lambda run: (text.lower() in run.id.lower()) == (sign == "=")
    return lambda run: _holds(value_of(run, name, config), sign, text)


def _holds(value: Any, sign: str, text: str) -> bool:
    if sign in ("=", "!="):
        values = value if isinstance(value, list) else [value]
        return any(_equal(one, text) for one in values) == (sign == "=")
    number, bound = _number(value), _number(text)
    return number is not None and bound is not None and bool(_COMPARE[sign](number, bound))


def _equal(value: Any, text: str) -> bool:
    number, wanted = _number(value), _number(text)
    if number is not None and wanted is not None:
        return number == wanted
    return ("null" if value is None else str(value)).lower() == text.lower()


def _number(value: Any) -> float | None:
    """A number, also written as text; of a schedule its start."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, dict):
        points = value.get("points")
        first = points[0] if isinstance(points, list) and points else None
        value = first[-1] if isinstance(first, list) and first else value.get("start")
    try:
        return float(str(value).removeprefix("lin_").replace("_", ""))
    except ValueError:
        return None


def _key(value: Any) -> tuple[int, float, str]:
    """Numbers among themselves, texts among themselves."""
    number = float(value) if isinstance(value, bool) else _number(value)
    return (1, number, "") if number is not None else (0, 0.0, str(value).lower())


def searchable(run: RunSummary) -> str:
    solved = "solved" if run.solved else ""
    fields = (run.id, run.env_id, run.algo_id, run.variant, run.status, solved, *run.tags)
    return " ".join(str(field).lower() for field in fields)


def check_column(name: str, runs: Sequence[RunSummary], config: Config | None) -> None:
    """RunError if no run has a field of this name."""
    if name in FIELDS or not runs or config is None:
        return
    block, dot, _ = name.partition(".")
    if any(block in config(run) and (not dot or value_of(run, name, config) is not None)
           for run in runs):  # fmt: skip
        return
    raise RunError(_unknown(name, runs, config))


def _unknown(name: str, runs: Sequence[RunSummary], config: Config | None) -> str:
    names = [*FIELDS, *(config(runs[0]) if config is not None and runs else {})]
    hint = did_you_mean(name, names) or f"Expected {', '.join(FIELDS)} or a field of the config."
    return f"no run has {name!r}. {hint}"
