"""What other libraries (SB3, CleanRL, RLlib, Tianshou, SLM-Lab, PufferLib) call our fields.

An unknown field with such a name gets our name as the suggestion, and a note on how to convert the
value where the meaning differs. A name without a counterpart here has a note only. foreign.txt has
them all.
"""

import re
from collections.abc import Collection
from pathlib import Path


def table(name: str) -> dict[str, str]:
    """The lines `key: value` under [name]."""
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    lines = re.sub(r"\n +", " ", text).split(f"[{name}]\n")[1].split("\n[")[0].splitlines()
    return dict(line.split(": ", 1) for line in lines)


NAMES = table("names")  # our field: its names elsewhere
FOREIGN: dict[str, tuple[str, ...]] = {}
for _ours, _theirs in NAMES.items():
    for _name in _theirs.split():
        FOREIGN[_name] = (*FOREIGN.get(_name, ()), _ours)
NOTES = {name: text for names, text in table("notes").items() for name in names.split()}
OLD_CONFIGS = table("configs")  # configs of tsilva/gymnasium-solver whose names are others here


def our_names(name: str, known: Collection[str]) -> list[str]:
    """Return the fields in `known` that another library calls `name`."""
    return [field for field in FOREIGN.get(name, ()) if field in known]


def foreign_names(known: Collection[str]) -> list[str]:
    """Return the names in other libraries of the fields in `known`."""
    return [name for name in FOREIGN if our_names(name, known)]
