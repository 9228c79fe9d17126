"""A recorded episode that plays without a server: as one file, or inside a report.

    episode_page(episode)                # a whole HTML document
    with_episodes(report, [episode])     # a report of runs/report.py with episodes in it

Everything is in the document: numbers as base64 of float32, frames as their packs. It makes no
requests, so it opens from disk. Text of the run is JSON that the script inserts as text.
"""

import base64
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.episode_tables import notable, reward_parts
from gymnasium_solver.runs.episodes import CHUNK, VIEWS, Episode
from gymnasium_solver.serve.questions import json_text

STATIC = Path(__file__).parent / "static"
SCRIPTS = ("data.js", "charts.js", "panels.js", "view.js", "embedded.js")
MOST_BYTES = 200_000_000
# Whatever runs is in the document; nothing is loaded.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_IMPORT = re.compile(r"^import .*?;\n", re.MULTILINE | re.DOTALL)


def episode_page(episode: Episode) -> str:
    """One file."""
    title = escape(f"{episode.facts.get('env_id')}: {episode.id}")
    what = escape(str(episode.facts.get("title") or ""))
    return _with_player(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_static('style.css')}</style></head><body>"
        f'<main id="main"><h1>{title}</h1><p class="quiet">{what}</p></main></body></html>\n',
        _element(episode),
    )


def with_episodes(document: str, episodes: Sequence[Episode]) -> str:
    """An HTML document with playable episodes at the end of its <main>."""
    elements = [f"<h2>{escape(one.id)}</h2>{_element(one)}" for one in episodes]
    return _with_player(document, "".join(elements)) if episodes else document


def _with_player(document: str, elements: str) -> str:
    """The document with the elements, and with the program that turns them into players."""
    sources = (_IMPORT.sub("", _static(f"inspect/{name}")) for name in SCRIPTS)
    script = "\n".join(source.replace("\nexport ", "\n") for source in sources)
    css = _colours() + _static("inspect/inspect.css")
    before, end, after = document.rpartition("</main>")
    head, closing, rest = before.partition("</head>")
    return (
        f"{head}<style>{css}</style>{closing}{rest}{elements}{end}"
        f'<script type="module">{{\n{script}\n}}</script>{after}'
    )


def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _colours() -> str:
    """The colours of the app, for the episodes alone."""
    style = _static("style.css")
    rules = style[style.index(":root") : style.index("* {")]
    # :root[...] is a theme that a visitor of the app has chosen.
    rules = re.sub(r":root\[[^]]*\]", ".gsolve-episode[data-theme]", rules)
    return re.sub(r":root(:not\([^)]*\))?", ".gsolve-episode", rules)


def _element(episode: Episode) -> str:
    """`episode` as an element; RunError if it is too large to be sent."""
    if episode.is_running:
        raise RunError(f"{episode.id} is being played; wait for its end.")
    packs = {
        view: [_base64(episode.pack(view, chunk)) for chunk in range(-(-n_frames // CHUNK))]
        for view in VIEWS
        if (n_frames := episode.n_frames(view))
    }
    size = sum(len(pack) for chunks in packs.values() for pack in chunks)
    if size > MOST_BYTES:
        raise RunError(
            f"{episode.id}: its frames take {size / 1e6:.0f} MB. Record a shorter one: --max-steps"
        )
    extra = {"notable": notable(episode), "reward_parts": reward_parts(episode), "chunk": CHUNK}
    content: dict[str, Any] = {
        "facts": {**episode.to_dict(), **extra},
        "rows": _base64(episode.rows()),
        "derived": _base64(episode.derived_bytes()),
        "info": episode.info(),
        "packs": packs,
    }
    # No text of the run can end the script element that holds it.
    safe = re.sub("[<\u2028\u2029]", lambda one: f"\\u{ord(one[0]):04x}", json_text(content))
    return (
        '<section class="gsolve-episode"><div></div>'
        f'<script type="application/json">{safe}</script></section>'
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
