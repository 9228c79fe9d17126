"""A folder of runs, two configs with four seeds each; and Chromium, or a reason why the tests are
skipped.

GSOLVE_CHROMIUM names the program; otherwise it is searched on the PATH. With
GSOLVE_REQUIRE_BROWSER=1, which CI sets where it can install one, a missing browser is a failure.
"""

import os
import shutil
from collections.abc import Iterator
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
