"""Shared by the measurements of `gsolve ui`: a server on a folder of runs, clients, Chromium."""

import asyncio
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

POLL_S, LONGEST_S = 0.02, 600.0


class Server(NamedTuple):
    process: subprocess.Popen[Any]
    port: int
    started: float
    """time.monotonic() just before the process was started."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving(command: Sequence[str], port: int, **options: Any) -> Iterator[Server]:
    """A server process until the end of the block."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | options
    started = time.monotonic()
    with subprocess.Popen(command, **quiet) as process:
        try:
            yield Server(process, port, started)
        finally:
            process.terminate()


@contextmanager
def gsolve_ui(root: Path) -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, "-m", "gymnasium_solver", "ui", "--runs-dir", str(root)]
    with serving([*command, "--port", str(port)], port) as server:
        yield server


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def get(url: str, data: Any = None) -> Any:
    """JSON, or the bytes of anything else; None if nobody answers. `data` is posted."""
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            found = response.read()
    except (urllib.error.URLError, OSError):
        return None
    return json.loads(found) if found[:1] in (b"{", b"[") else found


def wait(ready: Callable[[], bool], server: Server | None = None, poll_s: float = POLL_S) -> float:
    """Seconds until `ready`, from now."""
    begun = time.monotonic()
    while not ready():
        if time.monotonic() - begun > LONGEST_S:
            raise TimeoutError(f"not ready after {LONGEST_S:g} s")
        if server is not None and server.process.poll() is not None:
            raise RuntimeError(f"the server ended with code {server.process.returncode}")
        time.sleep(poll_s)
    return time.monotonic() - begun


def tree_mib(pid: int) -> float:
    """Resident memory of a process and of all that it started."""
    process = psutil.Process(pid)
    every = [process, *process.children(recursive=True)]
    return sum(one.memory_info().rss for one in every) / 2**20


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser, or None where there is none."""
    program = os.environ.get("GSOLVE_CHROMIUM") or shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        yield None
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        yield browser
        browser.close()


def drawn_s(
    browser: Any, server: Server, path: str, visible: str, *, since: float | None = None
) -> float | None:
    """Seconds from `since` (of time.monotonic), or from the request, until a page of the server
    shows an element."""
    if browser is None:
        return None
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    try:
        begun = time.monotonic() if since is None else since
        page.goto(server.url + path, wait_until="commit", timeout=1000 * LONGEST_S)
        page.locator(visible).first.wait_for(timeout=1000 * LONGEST_S)
        return time.monotonic() - begun
    finally:
        page.close()


def clicked_s(browser: Any, server: Server, path: str, visible: str, first: str) -> float | None:
    """The same for a link in the list of runs, which shows `first` and has loaded: the program is
    there already."""
    if browser is None:
        return None
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    try:
        page.goto(f"{server.url}/", timeout=1000 * LONGEST_S)
        page.locator(first).first.wait_for(timeout=1000 * LONGEST_S)
        page.wait_for_timeout(1000)
        add = (
            "path => document.body.append(Object.assign(document.createElement('a'), {href: path}))"
        )
        page.evaluate(add, path)
        begun = time.monotonic()
        page.evaluate("document.body.lastChild.click()")
        page.locator(visible).first.wait_for(timeout=1000 * LONGEST_S)
        return time.monotonic() - begun
    finally:
        page.close()


class Percentiles(NamedTuple):
    n: int
    p50: float
    p95: float
    p99: float
    max: float


def percentiles(values: Sequence[float], scale: float = 1000.0) -> Percentiles:
    """In ms, from seconds."""
    ordered = sorted(values)
    picks = [ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in (0.5, 0.95, 0.99)]
    found = [round(scale * value, 2) for value in (*picks, ordered[-1])]
    return Percentiles(len(ordered), *found)


def median_of(rows: Sequence[dict[str, float | None]]) -> dict[str, float | None]:
    """The median of each figure over repeats."""
    names = dict.fromkeys(name for row in rows for name in row)
    known = {name: [v for row in rows if (v := row.get(name)) is not None] for name in names}
    return {name: statistics.median(v) if v else None for name, v in known.items()}


class Client:
    """A keep-alive HTTP client of one connection, small enough not to be what is measured."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def get(self, path: str) -> bytes:
        status, body = await self.call(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        if status != 200:
            raise RuntimeError(f"{path}: {status} {body[:200]!r}")
        return body

    async def post(self, path: str, content: Any, token: str) -> tuple[int, Any]:
        body = json.dumps(content)
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nx-gsolve-token: {token}\r\n"
        status, answer = await self.call(f"{head}Content-Length: {len(body)}\r\n\r\n{body}")
        return status, json.loads(answer)

    async def call(self, text: str) -> tuple[int, bytes]:
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        assert self.reader is not None
        self.writer.write(text.encode())
        head = await self.reader.readuntil(b"\r\n\r\n")
        lengths = [
            line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
        ]
        body = await self.reader.readexactly(int(lengths[0].split(b":")[1]))
        return int(head.split(b" ", 2)[1]), body
