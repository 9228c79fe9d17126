"""Kernels as C functions of their arrays. Equal kernels are one function, which keeps the time to
compile short: the steps of a sequence differ in their arrays only."""

import re

from gymnasium_solver.fast.native.arrays import Storage
from gymnasium_solver.fast.native.kernels import Kernel
from gymnasium_solver.fast.native.memory import used_by

# An array, or a part of one at an offset, as nest.py writes it.
_PART = re.compile(r"\(((s\d+)(?: \+ (?:\d+|\(\d+ \* r\)|r))+)\)\[")


class Functions:
    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # text of a kernel -> name of its function

    def texts(self) -> list[str]:
        return [text.replace("NAME", name, 1) for text, name in self._names.items()]

    def declarations(self) -> list[str]:
        return [text.partition(" {\n")[0] + ";" for text in self.texts()]

    def call(self, kernel: Kernel, body: str) -> str:
        """The call of the function that has this body."""
        # A part of an array has a pointer of its own: the compiler does not vectorise two reads of
        # one array, such as the mean and the deviation of each action, if it sees that they are.
        parts: dict[str, str] = {}

        def part(found: re.Match[str]) -> str:
            return parts.setdefault(found[1], f"{found[2]}o{len(parts)}") + "["

        body = _PART.sub(part, body)
        storages = {s.name: s for s in used_by(kernel)}
        order = list(dict.fromkeys(re.findall(r"\bs\d+(?:o\d+)?\b", body)))
        names = {name: f"p{i}" for i, name in enumerate(order)}
        locals_ = list(dict.fromkeys(re.findall(r"\ba\d+\b", body)))
        names |= {name: f"x{i}" for i, name in enumerate(locals_)}
        body = re.sub(r"\b[as]\d+(?:o\d+)?\b", lambda m: names[m[0]], body)
        kinds = [_pointer(storages[name.partition("o")[0]]) for name in order]
        places = "".join(f", {kind} *p{i}" for i, kind in enumerate(kinds))
        text = f"HIDDEN void NAME(const double N, long r, int first{places}) {{\n{body}\n}}"
        name = self._names.setdefault(text, f"kernel_{len(self._names)}")
        whole = {short: long for long, short in parts.items()}
        given = [whole.get(short, short) for short in order]
        return f"{name}({', '.join(['N', 'r', 'first', *given])});"


def _pointer(storage: Storage) -> str:
    is_input = storage.place in ("tensor", "number")
    return f"const {storage.ctype}" if is_input else storage.ctype
