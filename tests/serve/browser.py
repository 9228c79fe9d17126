"""Chromium for the tests: found, or a reason why the tests are skipped.

GSOLVE_CHROMIUM names the program; otherwise it is searched on the PATH. With
GSOLVE_REQUIRE_BROWSER=1, which CI sets where it can install one, a missing browser is a failure.
"""

import os
import shutil
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def chromium() -> str | None:
    given = os.environ.get("GSOLVE_CHROMIUM")
    return given or next((path for name in NAMES if (path := shutil.which(name))), None)


def missing() -> str | None:
    """Why there is no browser here."""
    try:
        import axe_playwright_python  # noqa: F401
        import playwright  # noqa: F401
    except ImportError as error:
        return f"{error.name} is not installed"
    if chromium() is None:
        return "no chromium: install one (apt-get install chromium) or set GSOLVE_CHROMIUM"
    return None


def require() -> None:
    reason = missing()
    if reason is not None:
        if os.environ.get("GSOLVE_REQUIRE_BROWSER") == "1":
            pytest.fail(f"GSOLVE_REQUIRE_BROWSER=1, but {reason}")
        pytest.skip(reason)


def launch(playwright: Any) -> Any:
    return playwright.chromium.launch(executable_path=chromium())
