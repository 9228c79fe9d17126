"""When each operation of a tape runs.

A pass runs the operations on samples block by block. A sum over samples is complete after the pass,
so an operation that reads it belongs to a later pass. Operations on values that do not depend on
the sample run once, before the pass.

Operations on samples run in the last pass possible: what is computed early would have to be kept
for all samples.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gymnasium_solver.fast.native.arrays import extents, is_by_rows
from gymnasium_solver.fast.tape import Call, Meta, Ref, Tape, Unsupported, refs_in

SUMS = {"sum.dim_IntList", "sum.default", "mm.default", "bmm.default"}


class When(NamedTuple):
    level: int
    is_rows: bool
    """Runs on samples; a sum over samples too."""
    is_sum: bool = False


def schedule(tape: Tape, metas: Mapping[Ref, Meta]) -> tuple[list[When], int]:
    """When each call runs, and the number of passes."""
    by_rows = {ref.variable: _is_rows(meta) for ref, meta in metas.items()}
    available: dict[str, int] = {}  # by variable: the first pass that can read it
    found: list[When] = []
    for call in tape.calls:
        inputs = {ref.variable for ref in refs_in(call)}
        level = max((available.get(v, 0) for v in inputs), default=0)
        reads_rows = any(by_rows[v] for v in inputs)
        is_rows = reads_rows or by_rows[call.variable]
        is_sum = reads_rows and not by_rows[call.variable]
        if is_sum and call.name not in SUMS:
            raise Unsupported(f"{call.name} over samples")
        available[call.variable] = level + is_sum
        found.append(When(level, is_rows, is_sum))
    n_passes = 1 + max((w.level for w in found if w.is_rows), default=0)
    return _as_late_as_possible(tape.calls, found, n_passes), n_passes


def _as_late_as_possible(calls: Sequence[Call], found: list[When], n_passes: int) -> list[When]:
    needed: dict[str, int] = {}  # by variable: the first pass that reads it
    late = list(found)
    for i in range(len(calls) - 1, -1, -1):
        when, first = found[i], needed.get(calls[i].variable, n_passes)
        if when.is_sum:
            late[i] = when._replace(level=min(first, n_passes) - 1)
        elif when.is_rows:
            late[i] = when._replace(level=min(first, n_passes - 1))
        for ref in refs_in(calls[i]):
            level = late[i].level
            needed[ref.variable] = min(needed.get(ref.variable, n_passes), level)
    return late


def _is_rows(meta: Meta) -> bool:
    return is_by_rows(extents(meta.shape))
