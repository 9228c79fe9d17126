"""What is read out of a recorded episode: notable steps, a table of steps, the first difference.

notable(episode)                    # [{"step": 41, "why": ["reward -100", "end: terminated"]}]
first_difference(one, other)        # {"step": 12, "what": "action", "same_start": True}
write_csv(episode, file)
"""

import csv
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

from gymnasium_solver.runs.episodes import DERIVED, Episode

if TYPE_CHECKING:
    import numpy as np

FAR = 4.0  # robust deviations from the median at which a number stands out
SURE = 0.9  # probability of the best action above which another one is a surprise
MOST_NOTABLE = 200
_PART = re.compile(r"reward|cost|bonus|penalt|shaping", re.IGNORECASE)
_WHOLE = ("reward", "raw_reward")  # the reward itself, as some engines repeat it
_HIDDEN = ("terminated", "truncated", "is_greedy", "forced")


def notable(episode: Episode) -> list[dict[str, Any]]:
    """The steps worth a look, in order: unusual rewards, surprises (large TD errors), actions that
    are not the best one, ends of lives and of the episode."""
    import numpy as np

    columns = episode.columns()
    found: dict[int, list[str]] = {}

    def note(steps: Any, text: Any) -> None:
        for t in steps:
            found.setdefault(int(t), []).append(text(int(t)) if callable(text) else text)

    reward = columns["reward"]
    note(_unusual(reward), lambda t: f"reward {reward[t]:.6g}")
    if "td_error" in columns:
        td_error = columns["td_error"]
        note(_far(td_error), lambda t: f"TD error {td_error[t]:+.3g}")
    note(np.flatnonzero(columns["forced"] == 1), "changed action")
    note(np.flatnonzero(_explored(columns)), "not the best action")
    for name in ("terminated", "truncated"):
        note(np.flatnonzero(columns[name] == 1), name)
    steps = sorted(found, key=lambda t: (-len(found[t]), t))[:MOST_NOTABLE]
    return [{"step": t, "why": found[t]} for t in sorted(steps)]


def _explored(columns: "dict[str, np.ndarray]") -> "np.ndarray":
    """Steps whose action was not the best one; of a policy that samples, only steps at which the
    best one had most of the probability."""
    import numpy as np

    explored: np.ndarray = (columns["is_greedy"] == 0) & (columns["forced"] != 1)
    chances = columns.get("probabilities")
    if chances is not None and chances.ndim == 2 and columns["action"].ndim == 1:
        explored = explored & (np.nan_to_num(chances).max(axis=1) > SURE)
    elif "mean" in columns:  # a continuous action is never exactly the mean
        explored = explored & False
    return explored


def _unusual(reward: "np.ndarray") -> "np.ndarray":
    """Rewards that differ from the usual one, or where all differ, that are far from the middle."""
    import numpy as np

    reward = np.round(reward.astype(np.float64), 5)  # differences of sums have rounding errors
    known = reward[np.isfinite(reward)]
    if not known.size:
        return np.array([], int)
    values, counts = np.unique(known, return_counts=True)
    if counts.max() * 2 >= known.size:
        usual = values[counts.argmax()]
        return np.flatnonzero(np.isfinite(reward) & (reward != usual))
    return _far(reward)


def _far(numbers: "np.ndarray") -> "np.ndarray":
    """Far from the median, in units of the median distance from it."""
    import numpy as np

    known = numbers[np.isfinite(numbers)]
    if known.size < 8:
        return np.array([], int)
    middle = np.median(known)
    spread = np.median(np.abs(known - middle)) * 1.4826
    # The deviation too: where most steps are nearly equal, the median distance is tiny.
    least = max(FAR * float(spread), 2 * float(known.std()))
    if least == 0:
        return np.array([], int)
    with np.errstate(invalid="ignore"):
        return np.flatnonzero(np.abs(numbers - middle) > least)


def first_difference(one: Episode, other: Episode) -> dict[str, Any]:
    """Where two episodes part: the first step with another action or another observation; `step`
    is None if the shorter one is the beginning of the longer one."""
    a, b = one.actions(), other.actions()
    seen_a, seen_b = one.digests(), other.digests()
    same_start = bool(seen_a and seen_b and seen_a[0] == seen_b[0])
    for t in range(min(len(seen_a), len(seen_b))):
        if seen_a[t] != seen_b[t]:
            return {"step": t, "what": "observation", "same_start": same_start}
        if t < min(len(a), len(b)) and (a[t].shape != b[t].shape or (a[t] != b[t]).any()):
            return {"step": t, "what": "action", "same_start": same_start}
    return {"step": None, "what": None, "same_start": same_start}


def reward_parts(episode: Episode) -> dict[str, list[float | None]]:
    """Numbers in the info whose names say that they are parts of a reward, by name."""
    rows = [row.get("info") or {} for row in episode.info()]
    names = dict.fromkeys(
        name
        for row in rows
        for name, value in row.items()
        if _PART.search(name) and name not in _WHOLE and isinstance(value, int | float)
    )
    return {name: [row.get(name) for row in rows] for name in names}


# -- a table ----------------------------------------------------------------------------------


def table_head(episode: Episode) -> list[str]:
    names = ["step", "action"]
    for column in episode.layout:
        if column.name in _HIDDEN:
            continue
        label = {"action": "action value"}.get(column.name, column.name)
        if column.width == 1:
            names.append(label)
        else:
            known = column.labels if len(column.labels) == column.width else range(column.width)
            names += [f"{label} {one}" for one in known]
    derived = [name for name in DERIVED if name in episode.derived()]
    return [*names, *derived, *_info_names(episode), "ended", "note"]


def table_rows(episode: Episode) -> Iterator[list[Any]]:
    """A row for each state, in the order of `table_head`; None where there is no number."""
    columns, info = episode.columns(), episode.info()
    shown = [column.name for column in episode.layout if column.name not in _HIDDEN]
    shown += [name for name in DERIVED if name in columns]
    keys = _info_names(episode)
    why = {entry["step"]: "; ".join(entry["why"]) for entry in notable(episode)}
    for t in range(episode.n_rows):
        told = info[t] if t < len(info) else {}
        row: list[Any] = [t, told.get("action")]
        for name in shown:
            column = columns[name]
            if t >= len(column):
                row.append(None)
            elif column.ndim == 1:
                row.append(_number(column[t]))
            else:
                row += [_number(number) for number in column[t]]
        facts = told.get("info") or {}
        ended = [name for name in ("terminated", "truncated") if columns[name][t] == 1]
        yield [*row, *(facts.get(key) for key in keys), " ".join(ended), why.get(t)]


def _number(value: Any) -> float | None:
    number = float(value)
    return number if number == number and abs(number) != float("inf") else None


def _info_names(episode: Episode) -> list[str]:
    rows = [row.get("info") or {} for row in episode.info()]
    return list(dict.fromkeys(name for row in rows for name in row))


def write_csv(episode: Episode, file: TextIO) -> None:
    writer = csv.writer(file)
    writer.writerow(table_head(episode))
    for row in table_rows(episode):
        writer.writerow(["" if value is None else _safe(value) for value in row])


def _safe(value: Any) -> Any:
    """Text of an environment that a spreadsheet would take for a formula gets a quote."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") and not _is_number(value):
        return "'" + value
    return f"{value:.9g}" if isinstance(value, float) else value


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-+0-9.e …]+", text) is not None
