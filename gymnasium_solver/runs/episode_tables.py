"""What is read out of a recorded episode: notable steps, a table of steps, the first difference.

notable(episode)                    # [{"step": 41, "why": ["reward -100", "end: terminated"]}]
first_difference(one, other)        # {"step": 12, "what": "action", "same_start": True}
write_csv(episode, file)
"""

import csv
import re
from typing import Any, TextIO

import numpy as np

from gymnasium_solver.runs.episodes import DERIVED, Episode
from gymnasium_solver.runs.files import finite

FAR = 4.0  # robust deviations from the median at which a number stands out
SURE = 0.9  # probability of the best action above which another one is a surprise
MOST_NOTABLE = 200
_PART = re.compile(r"reward|cost|bonus|penalt|shaping", re.IGNORECASE)
_WHOLE = ("reward", "raw_reward")  # the reward itself, as some engines repeat it
_HIDDEN = ("terminated", "truncated", "is_greedy", "forced")


def notable(episode: Episode) -> list[dict[str, Any]]:
    """The steps worth a look, in order: unusual rewards, surprises (large TD errors), actions that
    are not the best one, ends of lives and of the episode."""
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


def _explored(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Steps whose action was not the best one; if sampled, only where that had most probability."""
    explored: np.ndarray = (columns["is_greedy"] == 0) & (columns["forced"] != 1)
    chances = columns.get("probabilities")
    if chances is not None and chances.ndim == 2 and columns["action"].ndim == 1:
        explored = explored & (np.nan_to_num(chances).max(axis=1) > SURE)
    elif "mean" in columns:  # a continuous action is never exactly the mean
        explored = explored & False
    return explored


def _unusual(reward: np.ndarray) -> np.ndarray:
    """Rewards that differ from the usual one, or where all differ, that are far from the middle."""
    reward = np.round(reward.astype(np.float64), 5)  # differences of sums have rounding errors
    known = reward[np.isfinite(reward)]
    if not known.size:
        return np.array([], int)
    values, counts = np.unique(known, return_counts=True)
    if counts.max() * 2 >= known.size:
        usual = values[counts.argmax()]
        return np.flatnonzero(np.isfinite(reward) & (reward != usual))
    return _far(reward)


def _far(numbers: np.ndarray) -> np.ndarray:
    """Far from the median, in units of the median distance from it."""
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


def table(episode: Episode) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The names of the columns, and a row for each state; None where there is no number."""
    columns, info = episode.columns(), episode.info()
    facts = [row.get("info") or {} for row in info]
    n = len(columns["terminated"])
    why = {entry["step"]: "; ".join(entry["why"]) for entry in notable(episode)}
    found: list[tuple[str, list[Any]]] = [
        ("step", list(range(n))),
        ("action", [row.get("action") for row in info]),
    ]
    for column in episode.layout:
        if column.name in _HIDDEN:
            continue
        label = "action value" if column.name == "action" else column.name
        numbers = columns[column.name]
        if column.width == 1:
            found.append((label, list(map(finite, numbers.tolist()))))
            continue
        known = column.labels if len(column.labels) == column.width else range(column.width)
        for name, part in zip(known, numbers.T, strict=True):
            found.append((f"{label} {name}", list(map(finite, part.tolist()))))
    found += [(n, list(map(finite, columns[n].tolist()))) for n in DERIVED if n in columns]
    for key in dict.fromkeys(key for row in facts for key in row):
        found.append((key, [row.get(key) for row in facts]))
    ends = ("terminated", "truncated")
    found.append(("ended", [" ".join(e for e in ends if columns[e][t] == 1) for t in range(n)]))
    found.append(("note", [why.get(t) for t in range(n)]))
    cells = zip(*((*values[:n], *[None] * (n - len(values))) for _, values in found), strict=True)
    return [name for name, _ in found], list(cells)


def write_csv(episode: Episode, file: TextIO) -> None:
    head, rows = table(episode)
    writer = csv.writer(file)
    writer.writerow(head)
    writer.writerows(["" if value is None else _safe(value) for value in row] for row in rows)


def _safe(value: Any) -> Any:
    """Text of an environment that a spreadsheet would take for a formula gets a quote."""
    is_number = isinstance(value, str) and re.fullmatch(r"[-+0-9.e …]+", value)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") and not is_number:
        return "'" + value
    return f"{value:.9g}" if isinstance(value, float) else value
