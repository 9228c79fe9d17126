"""The Python of docs/python.md is run as a reader would: all of it in order, with tiny budgets."""

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import gymnasium_solver as gs

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
CODE = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
TINY: dict[str, Any] = {
    "max_env_steps": 150,
    "n_envs": 2,
    "n_steps": 32,
    "eval_episodes": 2,
    "test_episodes": 2,
    "max_episode_steps": 30,
}


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pygame", reason="the page draws frames")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GSOLVE_RUNS", raising=False)
    train = gs.train
    monkeypatch.setattr(gs, "train", lambda target, **given: train(target, **{**given, **TINY}))
    assert len(CODE) == 8
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for i, content in enumerate(CODE):
            exec(compile(content, f"python.md, block {i}", "exec"), names)
    assert "EvalResult(mean" in capsys.readouterr().out


def test_every_name_of_the_package_is_on_the_page() -> None:
    text = PAGE.read_text("utf-8")
    hidden = {"__version__", "Observer", "Run", "EvalResult"}
    for name in set(gs.__all__) - hidden:
        assert f"gs.{name}" in text or name.startswith("register_"), name
