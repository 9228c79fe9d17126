"""Suggestions for misspelled names, used by every error message that has one.

nearest("polcy_lr", fields)        ["policy_lr"]
did_you_mean("polcy_lr", fields)   "Did you mean policy_lr?"
"""

import difflib
from collections.abc import Iterable

CUTOFF = 0.65
"""Least similarity of a suggestion, between 0 and 1. Below it, unrelated names that share a few
letters would be suggested."""


def nearest(name: str, known: Iterable[str], n: int = 3, cutoff: float = CUTOFF) -> list[str]:
    """Return up to `n` known names that are similar to `name`, best first. Case is ignored."""
    lower = {item.lower(): item for item in known}
    return [lower[match] for match in difflib.get_close_matches(name.lower(), lower, n, cutoff)]


def did_you_mean(name: str, known: Iterable[str], n: int = 1, cutoff: float = CUTOFF) -> str:
    """Return "Did you mean x?" ("x, y or z" for up to `n` names), or "" if none is similar."""
    return ask(nearest(name, known, n, cutoff))


def check_known(
    kind: type[Exception], name: object, known: Iterable[str], what: str, word: str = "Expected"
) -> None:
    """Raise an error of this kind, with a suggestion or all names, unless the name is known."""
    names = list(known)
    if name not in names:
        hint = did_you_mean(str(name), names) or f"{word} {', '.join(names) or 'none'}."
        raise kind(f"{what}. {hint}")


def ask(names: list[str]) -> str:
    """Return "Did you mean x, y or z?" for these names, or "" for none."""
    if not names:
        return ""
    *others, last = names
    return f"Did you mean {', '.join(others)} or {last}?" if others else f"Did you mean {last}?"
