"""The program of the pages: its files, served from memory, and the page that loads them.

A browser learns what a module imports only when it has that module. So the page lists all modules
that its address needs, from the imports in the files, and the browser asks for them at once.
"""

import gzip
import hashlib
import mimetypes
import posixpath
import re
from html import escape
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from gymnasium_solver.serve.web.handling import answer

STATIC = Path(__file__).parent / "static"
START, PAGES = "app.js", "pages/index.js"
SMALLEST_PACKED = 1_500
_PAGE = re.compile(rb'path: "([^"]+)".*import\("\./([^"]+)"\)')
_IMPORT = re.compile(rb'^(?:import|export)\b[^;]*?"(\.[^"]+\.js)";', re.MULTILINE)


class File(NamedTuple):
    changed_ns: int
    body: bytes
    packed: bytes | None
    """With gzip; None of a file that is too small for it."""
    kind: str
    etag: str
    imports: list[str]
    """The modules that a module imports."""


class Program:
    def __init__(self, folder: Path = STATIC) -> None:
        self.folder = folder
        self._files: dict[str, File] = {}
        self._paths = {
            path.relative_to(folder).as_posix(): path
            for path in folder.rglob("*")
            if path.is_file()
        }
        self._pages = [
            (re.compile(re.sub(r":\w+", "[^/]+", path.decode())), f"pages/{module.decode()}")
            for path, module in _PAGE.findall(self._known(PAGES).body)
        ]

    def file(self, name: str) -> File | None:
        """A file by its path below the folder; it is read again when it has changed."""
        path = self._paths.get(name)
        if path is None:
            return None
        changed_ns = path.stat().st_mtime_ns
        known = self._files.get(name)
        if known is None or known.changed_ns != changed_ns:
            body = path.read_bytes()
            packed = gzip.compress(body, mtime=0) if len(body) >= SMALLEST_PACKED else None
            kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            near = posixpath.dirname(name)
            imports = [
                posixpath.normpath(posixpath.join(near, path.decode()))
                for path in _IMPORT.findall(body if name.endswith(".js") else b"")
            ]
            known = File(changed_ns, body, packed, kind, etag, imports)
            self._files[name] = known
        return known

    def _known(self, name: str) -> File:
        found = self.file(name)
        assert found is not None, name
        return found

    def modules(self, address: str) -> list[str]:
        """What the page of an address loads: its own module first, and all that these import."""
        own = [module for pattern, module in self._pages if pattern.fullmatch(address)]
        found = dict.fromkeys([START, *own])
        waiting = list(found)
        while waiting:
            imports = self._known(waiting.pop(0)).imports
            waiting += [path for path in imports if path not in found]
            found |= dict.fromkeys(imports)
        return list(found)

    def page(self, address: str, base: str) -> Response:
        """The page of every address: the program in it shows what the address names."""
        links = [
            f'<link rel="modulepreload" href="static/{name}">' for name in self.modules(address)
        ]
        text = self._known("index.html").body.decode().replace("{{base}}", escape(base))
        return HTMLResponse(text.replace("{{modules}}", "\n".join(links)))

    async def serve(self, request: Request) -> Response:
        found = self.file(request.path_params["path"])
        if found is None:
            return answer({"error": f"there is no {request.url.path}"}, 404)
        headers = {"etag": found.etag, "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == found.etag:
            return Response(status_code=304, headers=headers)
        if found.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
            return Response(found.packed, media_type=found.kind, headers=headers)
        return Response(found.body, media_type=found.kind, headers=headers)
