"""A recorded episode that plays without a server: inside a report, or as one file.

    episode_page(episode)                # a whole HTML document
    parts = player_parts()               # parts.css, parts.script: once in a document
    episode_element(episode)             # an element that the script turns into the player
    with_episodes(report, [episode])     # a report of runs/report.py with episodes in it

Everything is in the document: numbers as base64 of float32, frames as their packs. It makes no
requests, so it opens from disk. Text of the run is JSON that the script inserts as text.
"""

import base64
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.episode_tables import notable, reward_parts
from gymnasium_solver.runs.episodes import CHUNK, VIEWS, Episode
from gymnasium_solver.serve.questions import json_text

STATIC = Path(__file__).parent / "static"
SCRIPTS = ("data.js", "charts.js", "panels.js", "view.js")
MOST_BYTES = 200_000_000
# Whatever runs is in the document; nothing is loaded.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_IMPORT = re.compile(r"^import .*?;\n", re.MULTILINE | re.DOTALL)

BOOT = """
const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
function mountEmbedded(root) {
  const given = JSON.parse(root.querySelector("script").textContent);
  const data = new EpisodeData(given.facts);
  data.addRows(bytesOf(given.rows));
  data.setDerived(bytesOf(given.derived));
  data.info = given.info;
  const frames = new Frames(async (view, chunk) => bytesOf(given.packs[view][chunk]), given.facts);
  return new EpisodeView(root.querySelector("div"), data, frames);
}
const mounted = [...document.querySelectorAll(".gsolve-episode")].map(mountEmbedded);
let current = mounted[0];
mounted.forEach((view) => view.root.addEventListener("pointerdown", () => { current = view; }));
if (current) bindKeys(() => clockKeys(() => current));
"""


class PlayerParts(NamedTuple):
    css: str
    script: str
    """A module without imports, to stand after the elements of the episodes."""


def player_parts() -> PlayerParts:
    """What a document needs once, however many episodes it shows."""
    folder = STATIC / "inspect"
    sources = [(folder / name).read_text(encoding="utf-8") for name in SCRIPTS]
    script = "\n".join(_IMPORT.sub("", source).replace("\nexport ", "\n") for source in sources)
    css = (folder / "inspect.css").read_text(encoding="utf-8")
    return PlayerParts(_colours() + css, f"{{\n{script}\n{BOOT}\n}}")


def _colours() -> str:
    """The colours of the app, for the episodes alone."""
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    rules = style[style.index(":root") : style.index("* {")]
    return re.sub(r":root(:not\([^)]*\)|\[[^]]*\])?", _scope, rules)


def _scope(match: re.Match[str]) -> str:
    chosen = (match[1] or "").startswith("[")  # a theme that a visitor of the app has chosen
    return ".gsolve-episode[data-theme]" if chosen else ".gsolve-episode"


def with_episodes(document: str, episodes: Sequence[Episode]) -> str:
    """An HTML document with playable episodes at the end of its <main>."""
    if not episodes:
        return document
    parts = player_parts()
    elements = "".join(f"<h2>{escape(one.id)}</h2>{episode_element(one)}" for one in episodes)
    before, end, after = document.rpartition("</main>")
    head, closing, rest = before.partition("</head>")
    script = f'<script type="module">{parts.script}</script>'
    return f"{head}<style>{parts.css}</style>{closing}{rest}{elements}{end}{script}{after}"


def episode_element(episode: Episode) -> str:
    """`episode` as an element; RunError if it is too large to be sent."""
    if episode.is_running:
        raise RunError(f"{episode.id} is being played; wait for its end.")
    packs = {view: _packs(episode, view) for view in VIEWS if episode.n_frames(view)}
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
    safe = (
        json_text(content)
        .replace("<", "\\u003c")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )
    return (
        '<section class="gsolve-episode"><div></div>'
        f'<script type="application/json">{safe}</script></section>'
    )


def episode_page(episode: Episode) -> str:
    """One file."""
    parts = player_parts()
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    title = escape(f"{episode.facts.get('env_id')}: {episode.id}")
    what = escape(str(episode.facts.get("title") or ""))
    body = f'<h1>{title}</h1><p class="quiet">{what}</p>{episode_element(episode)}'
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{style}\n{parts.css}</style></head><body>"
        f'<main id="main">{body}</main>'
        f'<script type="module">{parts.script}</script></body></html>\n'
    )


def _packs(episode: Episode, view: str) -> list[str]:
    n_chunks = -(-episode.n_frames(view) // CHUNK)
    return [_base64(episode.pack(view, chunk)) for chunk in range(n_chunks)]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
