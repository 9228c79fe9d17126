"""`gs.ui()` in a notebook."""

import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

import gymnasium_solver as gs
from gymnasium_solver.runs.run import Run


def test_a_notebook_shows_the_app_in_a_frame(runs: Path) -> None:
    page = gs.ui(Run(runs / "cart-0.001-0"))
    try:
        assert f'<iframe src="{page.url}"' in page._repr_html_()
        assert page.url.endswith("/runs/cart-0.001-0")
        with urllib.request.urlopen(page.url) as response:
            assert "http://localhost:*" in response.headers["content-security-policy"]
        again = gs.ui(runs_dir=runs)
        assert again.url == page.url.removesuffix("runs/cart-0.001-0")  # the same server
    finally:
        page.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(page.url, timeout=2)
