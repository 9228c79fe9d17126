"""A server over one run of the counting environment, for tests of the inspector."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

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
        return self.read(f"{self.base}{path}")

    def read(self, path: str) -> Any:
        return self._told(httpx.get(f"{self.url}{path}", timeout=120))

    def post(self, path: str = "", /, **body: Any) -> Any:
        url, headers = f"{self.url}{self.base}{path}", {"x-gsolve-token": self.token}
        return self._told(httpx.post(url, json=body, headers=headers, timeout=120))

    def _told(self, answer: httpx.Response) -> Any:
        """(status, JSON or bytes)"""
        is_json = "json" in answer.headers["content-type"]
        return answer.status_code, answer.json() if is_json else answer.content

    def wait(self, episode: str) -> dict[str, Any]:
        """The facts of an episode when it is no longer played."""
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

    env = {"env_id": PAUSING, "plugins": ["tests.serve.pausing_env"]}
    fields = {"env_kwargs": {"length": LENGTH}, "n_steps": 100}
    config = counting_config(**env, **fields, eval_episodes=1, test_episodes=1)
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
