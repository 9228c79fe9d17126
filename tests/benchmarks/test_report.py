"""`gsolve bench` as a whole: parts merge into one file, busy machines are told, wheels do without
peers."""

import json
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.bench import engines, harness, report, scaling, startup
from gymnasium_solver.errors import GsolveError

QUICK = harness.Options(repeats=1, quick=True)
STARTED = [{"command": "gsolve --help", "limit_s": 0.3, "seconds": [0.1, 0.2, 0.9]}]


def run(tmp_path: Path, part: str) -> dict[str, Any]:
    return report.run([part], QUICK, tmp_path, "x", tmp_path, f"gsolve bench --only {part}")


def engine_row(raw: float, ours: float, n_envs: int = 8) -> dict[str, Any]:
    rates = {"raw_steps_per_s": [raw], "ours_steps_per_s": [ours]}
    return {"env_id": "CartPole-v1", "engine": "envpool", "n_envs": n_envs} | rates


def test_parts_measured_one_by_one_end_up_in_one_file(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(engines, "measure", lambda options: [engine_row(100.0, 99.0)])
    monkeypatch.setattr(startup, "measure", lambda options: STARTED)
    run(tmp_path, "startup")
    run(tmp_path, "engines")
    found = json.loads((tmp_path / "x.json").read_text())
    assert list(found["parts"]) == ["engines", "startup"]  # in the order of the report
    assert found["parts"]["startup"]["command"] == "gsolve bench --only startup"
    assert found["parts"]["startup"]["data"] == STARTED
    text = (tmp_path / "x.md").read_text()
    assert "| gsolve --help | 0.20 (0.10–0.90) | 0.3 | yes |" in text
    assert "kept in all 1 cases" in text


def test_a_quick_pass_and_a_full_one_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"quick": True, "parts": {"engines": {}}}))
    assert report.read(path, quick=False)["parts"] == {}
    assert report.read(path, quick=True)["parts"] == {"engines": {}}


def test_the_contract_may_lose_five_percent() -> None:
    assert "kept in all 2" in engines.verdict([engine_row(100, 96), engine_row(100, 150, 64)])
    said = engines.verdict([engine_row(100, 94), engine_row(100, 50, 1024)])
    assert "not kept by CartPole-v1 × 8 (0.94)" in said
    assert "1024" not in said


def test_engines_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "QUICK", [engines.Case("CartPole-v1", "vector", 4)])
    [row] = engines.measure(QUICK)
    assert row["raw_steps_per_s"][0] > 0
    assert row["ours_steps_per_s"][0] > 0


@pytest.mark.parametrize("sweep", scaling.SWEEPS)
def test_a_point_changes_one_thing(sweep: str) -> None:
    a, b = (dict(scaling.point_config(sweep, x)) for x in (16, 256))
    changed = {name for name in a if a[name] != b[name]}
    name = "hidden_dims" if sweep == "hidden" else sweep
    assert name in changed
    assert changed <= {name, "n_steps"}  # with more envs a rollout has fewer rows of each


def test_scaling_is_measured_and_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    points = {"n_envs": [2, 4], "batch_size": [256], "hidden": [16]}
    monkeypatch.setattr(scaling, "QUICK", points)
    result = scaling.measure(QUICK)
    assert [(row["sweep"], row["x"]) for row in result["rows"]] == [
        ("n_envs", 2),
        ("n_envs", 4),
        ("batch_size", 256),
        ("hidden", 16),
    ]
    assert all(0 < r["steps_per_s"][0] < r["collect_steps_per_s"][0] for r in result["rows"])
    scaling.draw(result, tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_a_busy_machine_is_told() -> None:
    record: dict[str, Any] = {"others_cores": 0.0, "data": [{"others_cores": 0.01}]}
    assert report.busy(record) == []
    record["data"][0]["others_cores"] = 0.8
    assert "the machine was busy" in report.busy(record)[0]


def test_a_wheel_says_what_needs_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "IN_CHECKOUT", False)
    with pytest.raises(GsolveError, match=r"source checkout.*--only engines scaling startup"):
        report.part_module("solve")
    assert report.part_module("engines") is engines


def test_the_first_line_is_timed_and_a_failure_told() -> None:
    assert startup.first_line_s(("--version",)) > 0
    with pytest.raises(harness.FailedProcess, match="unknown verb"):
        startup.first_line_s(("no-such-verb",))
