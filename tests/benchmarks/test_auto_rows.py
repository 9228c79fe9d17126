"""`solve` beside its peers: rows of several machines in one table, and failed ones stay."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import auto

ENV = "CartPole-v1"


def row(who: str, seed: int, score: float | None, **more: Any) -> dict[str, Any]:
    found = {"env": ENV, "who": who, "seed": seed, "steps": 50_000, "commit": "a", "cpu": "x"}
    if score is None:
        return found | {"error": "it broke"} | more
    own = {"verdict": "solved", "preset": "ppo_discrete", "random": 20.0, "first_steps": 1000}
    return found | {"score": score} | (own if who == auto.SOLVE else {}) | more


def saved(folder: Path, *rows: dict[str, Any]) -> Path:
    folder.mkdir()
    path = folder / "auto.json"
    path.write_text(json.dumps({"rows": rows}))
    return path


def test_rows_of_another_machine_are_added_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "here", row(auto.SOLVE, 21, 480.0))
    there = saved(tmp_path / "there", row(auto.SOLVE, 21, 0.0), row("ppo", 21, 450.0, cpu="y"),
                  row("dqn", 21, None))  # fmt: skip
    words = ["auto", "--merge", str(there), str(there), "--out", str(tmp_path / "here")]
    monkeypatch.setattr(sys, "argv", words)
    assert auto.main() == 0
    rows = json.loads((tmp_path / "here/auto.json").read_text())["rows"]
    assert [(r["who"], r.get("score")) for r in rows] == [
        (auto.SOLVE, 480.0), ("ppo", 450.0), ("dqn", None)
    ]  # fmt: skip
    text = (tmp_path / "here/auto.md").read_text()
    assert "CPUs: x, y" in text
    assert f"- {ENV} dqn seed 21: it broke" in text


@pytest.mark.parametrize(("own", "is_ahead"), [((500.0, 410.0), "yes"), ((500.0, 390.0), "no")])
def test_means_over_seeds_are_compared_with_the_better_peer(
    own: tuple[float, float], is_ahead: str
) -> None:
    rows = [row(auto.SOLVE, seed, score) for seed, score in enumerate(own)]
    rows += [row("ppo", 0, 440.0), row("ppo", 1, 460.0), row("dqn", 0, 30.0)]
    for more in ([], [row("sbx-dqn", 0, 449.0)]):
        line = auto._row([*rows, *more], ENV)
        assert dict(zip(auto.HEAD, line, strict=True))["at or above the better peer"] == is_ahead
    line = auto._row([*rows, row("sbx-dqn", 0, 456.0)], ENV)
    assert dict(zip(auto.HEAD, line, strict=True))["at or above the better peer"] == "no"


def test_a_peer_is_called_by_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        called.append(command)
        return SimpleNamespace(returncode=1, stderr="no JAX here", stdout="")

    monkeypatch.setattr(auto.subprocess, "run", run)
    for who in auto.peers_of(auto.TASKS[ENV]):
        assert auto.peer(Path("python"), ENV, auto.TASKS[ENV], who, 1)["error"] == "no JAX here"
    assert [("sbx" in command, f"{ENV}:dqn" in command) for command in called] == [
        (False, False), (False, True), (True, True)
    ]  # fmt: skip
