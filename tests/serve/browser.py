"""Chromium for the tests: found, or a reason why the tests are skipped.

GSOLVE_CHROMIUM names the program; otherwise it is searched on the PATH. With
GSOLVE_REQUIRE_BROWSER=1, which CI sets where it can install one, a missing browser is a failure.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def _missing(path: str | None) -> str | None:
    """Why there is no browser here."""
    try:
        import axe_playwright_python  # noqa: F401
        import playwright  # noqa: F401
    except ImportError as error:
        return f"{error.name} is not installed"
    if path is None:
        return "no chromium: install one (apt-get install chromium) or set GSOLVE_CHROMIUM"
    return None


@contextmanager
def open_browser() -> Iterator[Any]:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    path = os.environ.get("GSOLVE_CHROMIUM") or found
    if reason := _missing(path):
        if os.environ.get("GSOLVE_REQUIRE_BROWSER") == "1":
            pytest.fail(f"GSOLVE_REQUIRE_BROWSER=1, but {reason}")
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()
