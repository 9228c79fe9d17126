"""A folder of runs, two configs with four seeds each; and Chromium, or a reason why the tests are
skipped.

GSOLVE_CHROMIUM names the program; otherwise it is searched on the PATH. With
GSOLVE_REQUIRE_BROWSER=1, which CI sets where it can install one, a missing browser is a failure.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.serve.made_runs import made_run

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template")
    for lr, base in ((0.001, 480.0), (0.0003, 300.0)):
        for seed in range(4):
            made_run(root, f"cart-{lr}-{seed}", seed=seed, lr=lr, score=base + seed)
    return root


@pytest.fixture
def runs(tmp_path: Path, template: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "runs", symlinks=True))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    path, reason = os.environ.get("GSOLVE_CHROMIUM") or found, ""
    try:
        import axe_playwright_python  # noqa: F401
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        reason = f"{error.name} is not installed"
    if not reason and path is None:
        reason = "no chromium: install one (apt-get install chromium) or set GSOLVE_CHROMIUM"
    if reason:
        if os.environ.get("GSOLVE_REQUIRE_BROWSER") == "1":
            pytest.fail(f"GSOLVE_REQUIRE_BROWSER=1, but {reason}")
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Any]]:
    """A function that starts a server; it ends after the pages have closed."""
    from gymnasium_solver.serve.web.app import BackgroundServer
    from gymnasium_solver.serve.web.security import Settings

    with ExitStack() as servers:
        yield lambda root, **settings: servers.enter_context(
            BackgroundServer(Settings(root=root, port=0, **settings))
        )


@pytest.fixture
def server(serve: Callable[..., Any], runs: Path) -> Any:
    return serve(runs)


@pytest.fixture
def open_page(chromium: Any, server: Any) -> Iterator[Callable[..., Any]]:
    """A function that opens a path; the test fails if the page logged an error."""
    contexts, problems = [], []

    def open_path(path: str = "", url: str | None = None, **options: Any) -> Any:
        context = chromium.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console",
            lambda m: (
                problems.append(m.text) if m.type == "error" and "404" not in m.text else None
            ),
        )
        page.goto(url or f"{server.settings.url}{path}")
        return page

    yield open_path
    for context in contexts:
        context.close()
    assert not problems, problems
