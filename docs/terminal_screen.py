"""What a terminal shows after some output: the codes that gsolve and rich write, and no others.

screen = Screen()
screen.feed("...\x1b[2Aover it\x1b[0m")
screen.text(), screen.ansi()
"""

import re

_LINKS = re.compile(r"\x1b\]8;[^\x1b]*\x1b\\")
_PARTS = re.compile(r"\x1b\[(?P<code>[?0-9;]*)(?P<letter>[a-zA-Z])|(?P<text>[^\x1b])", re.DOTALL)
PLAIN = "0"


class Screen:
    """Lines without an end: nothing scrolls out. A cell is a character and its style."""

    def __init__(self) -> None:
        self.lines: list[list[tuple[str, str]]] = [[]]
        self._x = self._y = 0
        self._style = PLAIN

    def feed(self, output: str) -> None:
        for part in _PARTS.finditer(_LINKS.sub("", output)):
            if part["text"]:
                self._write(part["text"])
            else:
                self._obey(part["letter"], part["code"])

    def _obey(self, letter: str, code: str) -> None:
        if letter == "A":
            self._y = max(0, self._y - int(code or 1))
        elif letter == "K":
            self.lines[self._y] = []
        elif letter == "m":
            self._style = code or PLAIN
        elif letter not in "hl":  # cursor shown or hidden
            raise ValueError(f"unknown code {code}{letter}")

    def _write(self, char: str) -> None:
        if char == "\r":
            self._x = 0
        elif char == "\n":
            self._x, self._y = 0, self._y + 1
            if self._y == len(self.lines):
                self.lines.append([])
        else:
            line = self.lines[self._y]
            line.extend([(" ", PLAIN)] * (self._x + 1 - len(line)))
            line[self._x] = (char, self._style)
            self._x += 1

    def text(self) -> str:
        return "\n".join("".join(char for char, _ in line).rstrip() for line in self.lines)

    def ansi(self) -> str:
        """The lines with their styles, as codes."""
        shown = []
        for line in self.lines:
            parts, style = [], PLAIN
            for char, own in line:
                if own != style:
                    parts.append(f"\x1b[0m\x1b[{own}m")
                    style = own
                parts.append(char)
            shown.append("".join(parts) + "\x1b[0m")
        return "\n".join(shown)
