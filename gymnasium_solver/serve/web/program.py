"""The page that loads the program of the web app.

A browser learns what a module imports only when it has that module. So the page lists all modules
that its address needs, from the imports in the files, and the browser asks for them at once.
"""

import posixpath
import re
from functools import cache
from html import escape
from pathlib import Path

from starlette.responses import HTMLResponse, Response

STATIC = Path(__file__).parent / "static"
START, PAGES = "app.js", "pages/index.js"
_PAGE = re.compile(r'path: "([^"]+)".*import\("\./([^"]+)"\)')
_IMPORT = re.compile(r'^(?:import|export)\b[^;]*?"(\.[^"]+\.js)";', re.MULTILINE)


def page(address: str, base: str) -> Response:
    """The page of every address: the program in it shows what the address names."""
    links = [f'<link rel="modulepreload" href="static/{name}">' for name in _modules(address)]
    text = _text("index.html").replace("{{base}}", escape(base))
    return HTMLResponse(text.replace("{{modules}}", "\n".join(links)))


def _modules(address: str) -> list[str]:
    """What the page of an address loads: its own module first, and all that these import."""
    own = [
        f"pages/{module}"
        for path, module in _PAGE.findall(_text(PAGES))
        if re.fullmatch(re.sub(r":\w+", "[^/]+", path), address)
    ]
    found = [START, *own]
    for name in found:  # which grows
        found += [module for module in _imports(name) if module not in found]
    return found


@cache
def _imports(name: str) -> list[str]:
    paths = dict.fromkeys(_IMPORT.findall(_text(name)))
    return [posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) for path in paths]


def _text(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")
