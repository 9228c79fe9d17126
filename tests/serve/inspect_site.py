"""A server over one run of the counting environment, for tests of the inspector."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium_solver as gs
from tests.media.counting import counting_config
from tests.serve.pausing_env import FILE, PAUSING

LENGTH = 90  # steps of an episode: two packs


class Site:
    """What a test knows: the run, the folder of runs, the address, and calls of the API."""

    def __init__(self, run: gs.Run, url: str, token: str, app: Any) -> None:
        self.run, self.url, self.token, self.app = run, url, token, app
        self.base = f"api/runs/{run.id}/episodes"

    def get(self, path: str = "") -> Any:
        return self._call(urllib.request.Request(f"{self.url}{self.base}{path}"))

    def post(self, path: str = "", /, **body: Any) -> Any:
        headers = {"x-gsolve-token": self.token, "content-type": "application/json"}
        data = json.dumps(body).encode()
        return self._call(
            urllib.request.Request(f"{self.url}{self.base}{path}", data, headers, method="POST")
        )

    def _call(self, request: urllib.request.Request) -> Any:
        """(status, JSON or bytes)"""
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                status, kind, data = answer.status, answer.headers["content-type"], answer.read()
        except urllib.error.HTTPError as error:
            status, kind, data = error.code, error.headers["content-type"], error.read()
        return status, json.loads(data) if "json" in kind else data

    def wait(self, episode: str) -> dict[str, Any]:
        """The facts of an episode when it is no longer played."""
        import time

        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            _, facts = self.get(f"/{episode}")
            if facts["status"] != "running":
                return dict(facts)
            time.sleep(0.05)
        raise AssertionError(f"{episode} is still being played")


@contextmanager
def open_site(folder: Path) -> Iterator[Site]:
    """`folder` gets the runs; the file `folder / "pause"` slows the environment down."""
    from gymnasium_solver.serve.web.app import BackgroundServer
    from gymnasium_solver.serve.web.security import Settings

    config = counting_config(
        env_id=PAUSING,
        plugins=["tests.serve.pausing_env"],
        env_kwargs={"length": LENGTH},
        n_steps=100,
        eval_episodes=1,
        test_episodes=1,
    )
    before = os.environ.get(FILE)
    os.environ[FILE] = str(folder / "pause")
    try:
        run = gs.train(config, runs_dir=folder / "runs")
        settings = Settings(root=folder / "runs", port=0, token="secret")
        with BackgroundServer(settings, any_port=False) as server:
            app = server.server.config.app
            yield Site(run, f"http://127.0.0.1:{server.settings.port}/", "secret", app)
    finally:
        if before is None:
            del os.environ[FILE]
        else:
            os.environ[FILE] = before
