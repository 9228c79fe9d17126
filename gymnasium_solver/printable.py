"""Text from files, made safe to show on a terminal, in Markdown and in JSON output.

A run folder may come from a stranger. Escape sequences in it could rewrite the terminal's screen or
title, and characters that reverse the direction of text could disguise what is shown.
"""

import re

# Control characters (with ESC and the 8-bit CSI), line and paragraph separators, characters that
# change the direction of text, and lone surrogates, which cannot be encoded.
_UNSAFE = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_A_LINE = re.compile(f"[{_UNSAFE}]")
_IN_A_TEXT = re.compile(f"(?!\n)[{_UNSAFE}]")
_MARKDOWN = re.compile(r"[\\`*\[\]|$]")


def printable(text: object) -> str:
    """One line without control characters."""
    return _IN_A_LINE.sub("", str(text))


def printable_lines(text: object) -> str:
    """The same for a text that may have several lines."""
    return _IN_A_TEXT.sub("", str(text).expandtabs())


def escaped(json_text: str) -> str:
    """JSON with the unsafe characters in its strings written as escapes."""
    return _IN_A_TEXT.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


def markdown_text(text: object) -> str:
    """One line that Markdown shows as it is: no links, no HTML, no new cell of a table."""
    line = printable(" ".join(str(text).split()))
    html = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN.sub(r"\\\g<0>", html)
