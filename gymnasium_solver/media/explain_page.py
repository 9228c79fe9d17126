"""index.html of `gsolve explain`: one file with style and pictures inside, without scripts."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from gymnasium_solver.runs.html_page import html_page

OWN_STYLE = """
figure img { image-rendering: pixelated; border-radius: 4px; } .note { color: var(--bad); }
"""


@dataclass
class Figure:
    file: str
    """Name of the PNG beside the page."""
    caption: str


@dataclass
class Section:
    title: str
    text: str = ""
    table: list[Sequence[str]] = field(default_factory=list)
    """Rows; the first one is the head."""
    figures: list[Figure] = field(default_factory=list)


def page(
    title: str,
    facts: Sequence[tuple[str, str]],
    notes: Sequence[str],
    parts: Sequence[Section],
    folder: Path,
) -> str:
    """The pictures are read from `folder`."""
    body = [f"<h1>{escape(title)}</h1>", _facts(facts)]
    body += [f'<p class="note">{escape(note)}</p>' for note in notes]
    body += [_section(part, folder) for part in parts]
    return html_page(title, body, OWN_STYLE)


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts
    )
    return f'<div class="wide"><table>{rows}</table></div>'


def _section(part: Section, folder: Path) -> str:
    lines = [f"<h2>{escape(part.title)}</h2>"]
    if part.text:
        lines.append(f'<p class="quiet">{escape(part.text)}</p>')
    if part.table:
        head, *rows = part.table
        cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        lines.append(f'<div class="wide"><table><tr>{cells}</tr>{body}</table></div>')
    lines += [_figure(figure, folder) for figure in part.figures]
    return "\n".join(lines)


def _figure(figure: Figure, folder: Path) -> str:
    data = base64.b64encode((folder / figure.file).read_bytes()).decode()
    caption = escape(figure.caption)
    return (
        f'<figure><img src="data:image/png;base64,{data}" alt="{caption}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )
