"""A small Hugging Face Hub for tests: repositories in memory, served by the standard library.

    with FakeHub() as hub: hub.url; hub.repos["models/ann/agent"].files

It answers what the real client (huggingface_hub) asks: accounts, creating repositories, commits
with and without LFS, listings and downloads. Private repositories need the token.
"""

import base64
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit

TOKEN, USER = "hf_" + "t" * 30, "ann"
KINDS = {"model": "models", "dataset": "datasets"}


@dataclass
class Repo:
    private: bool
    commits: list[tuple[str, str, dict[str, bytes]]] = field(default_factory=list)
    """(sha, message, all files)"""

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[-1][2] if self.commits else {}

    @property
    def sha(self) -> str:
        return self.commits[-1][0]

    def at(self, revision: str) -> dict[str, bytes] | None:
        if revision == "main":
            return self.files
        return next((files for sha, _, files in self.commits if sha.startswith(revision)), None)

    def add(self, message: str, files: dict[str, bytes]) -> str:
        sha = hashlib.sha1(f"{len(self.commits)}{message}".encode()).hexdigest()
        self.commits.append((sha, message, {**self.files, **files}))
        return sha


class FakeHub:
    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.lfs: dict[str, bytes] = {}
        self.requests: list[str] = []
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path == "/api/whoami-v2":
            if not self._is_user():
                return self._send(401, {"error": "Invalid token"})
            return self._send(200, {"name": USER, "type": "user", "orgs": []})
        if path == "/api/validate-yaml":  # of the card
            return self._send(200, {"errors": [], "warnings": []})
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if match := re.fullmatch(r"/lfs/([0-9a-f]{64})", path):
            self.hub.lfs[match[1]] = body
            return self._send(200, {})
        if match := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            return self._lfs(json.loads(body))
        if match := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)(/.*)?", path):
            return self._api(match[1], match[2], match[3] or "", body)
        if match := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            kind = "datasets" if match[1] else "models"
            return self._resolve(kind, match[2], match[3], match[4])
        return self._send(404, {"error": f"no route {path}"})

    do_HEAD = do_POST = do_PUT = do_GET

    def _is_user(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _create(self, given: dict[str, Any]) -> None:
        if not self._is_user():
            return self._send(401, {"error": "Invalid token"})
        owner = given.get("organization") or USER
        kind = KINDS[given.get("type") or "model"]
        name = f"{kind}/{owner}/{given['name']}"
        url = f"{self.hub.url}/{'' if kind == 'models' else kind + '/'}{owner}/{given['name']}"
        if owner != USER:
            return self._send(403, {"error": "no write access"})
        if name in self.hub.repos:
            return self._send(409, {"error": "exists", "url": url})
        is_private = given.get("private") or given.get("visibility") == "private"
        self.hub.repos[name] = Repo(bool(is_private))
        self.hub.repos[name].add("initial commit", {".gitattributes": b""})
        return self._send(200, {"url": url, "name": f"{owner}/{given['name']}"})

    def _lfs(self, given: dict[str, Any]) -> None:
        objects = [
            {**each, "actions": {"upload": {"href": f"{self.hub.url}/lfs/{each['oid']}"}}}
            for each in given["objects"]
        ]
        self._send(200, {"transfer": "basic", "objects": objects})

    def _repo(self, kind: str, name: str) -> Repo | None:
        repo = self.hub.repos.get(f"{kind}/{name}")
        return None if repo is None or (repo.private and not self._is_user()) else repo

    def _api(self, kind: str, name: str, rest: str, body: bytes) -> None:
        repo = self._repo(kind, name)
        if repo is None:
            return self._missing("RepoNotFound")
        if rest.startswith("/preupload/"):
            files = json.loads(body)["files"]
            modes = [
                {"path": f["path"], "uploadMode": _mode(f["path"]), "shouldIgnore": False}
                for f in files
            ]
            return self._send(200, {"files": modes})
        if rest.startswith("/commit/"):
            return self._commit(kind, name, repo, body)
        revision = rest.split("/")[2] if rest.startswith(("/revision/", "/tree/")) else "main"
        files = repo.at(revision)
        if files is None:
            return self._missing("RevisionNotFound")
        sha = next((s for s, _, f in repo.commits if f is files), repo.sha)
        if rest.startswith("/tree/"):
            return self._send(200, [_entry(path, data) for path, data in files.items()])
        siblings = [{"rfilename": path} for path in files]
        info = {"id": name, "sha": sha, "private": repo.private, "siblings": siblings}
        return self._send(200, {**info, "tags": [], "downloads": 0, "likes": 0})

    def _commit(self, kind: str, name: str, repo: Repo, body: bytes) -> None:
        if not self._is_user():
            return self._send(401, {"error": "Invalid token"})
        added: dict[str, bytes] = {}
        message = ""
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "header":
                message = value["summary"]
            elif line["key"] == "file":
                added[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                added[value["path"]] = self.hub.lfs[value["oid"]]
        sha = repo.add(message, added)
        prefix = "" if kind == "models" else f"{kind}/"
        url = f"{self.hub.url}/{prefix}{name}/commit/{sha}"
        return self._send(200, {"success": True, "commitUrl": url, "commitOid": sha})

    def _resolve(self, kind: str, name: str, revision: str, file: str) -> None:
        repo = self._repo(kind, name)
        if repo is None:
            return self._missing("RepoNotFound")
        data = (repo.at(revision) or {}).get(file)
        if data is None:
            return self._missing("EntryNotFound")
        headers = {"X-Repo-Commit": repo.sha if revision == "main" else revision}
        headers["ETag"] = f'"{hashlib.sha256(data).hexdigest()}"'
        self._reply(200, data, "application/octet-stream", headers)

    def _missing(self, code: str) -> None:
        self._send(404 if code != "RepoNotFound" or self._is_user() else 401, {}, code)

    def _send(self, status: int, value: Any, code: str | None = None) -> None:
        headers = {} if code is None else {"X-Error-Code": code}
        data = json.dumps(value).encode()
        self._reply(status, data, "application/json", headers)

    def _reply(self, status: int, data: bytes, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": len(data), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _mode(path: str) -> str:
    return "lfs" if path.endswith((".safetensors", ".png", ".mp4", ".onnx")) else "regular"


def _entry(path: str, data: bytes) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    return {"type": "file", "path": path, "size": len(data), "oid": blob}
