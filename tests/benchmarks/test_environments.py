"""The benchmarks that try many environments: what they choose, and how they judge."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import envpool_families, newcomer
from gymnasium_solver.bench import harness


def test_ids_are_spaced_over_each_family() -> None:
    ids = envpool_families.chosen_ids(7, [])
    families = list(ids.values())
    assert len(set(families)) == 17
    assert all(families.count(family) == 7 for family in families)
    assert len(envpool_families.chosen_ids(None, ["box2d"])) == 8
    with pytest.raises(SystemExit, match=r"unknown family nope; there are .*pgx"):
        envpool_families.chosen_ids(1, ["nope"])


def test_an_id_is_trained_refused_or_missing() -> None:
    trained = envpool_families.try_id({"env_id": "CartPole-v1", "algo_id": "ppo"})
    assert (trained["status"], trained["reason"]) == ("trained", "")
    refused = envpool_families.try_id({"env_id": "Hex-v1", "algo_id": "ppo"})
    assert refused["status"] == "refused"
    assert "2 players" in refused["reason"]


def run(ours: float, random: float, se: float = 1.0) -> dict[str, object]:
    return {
        "status": "trained",
        "test": {"mean": ours, "se": se, "n": 30},
        "random": {"mean": random, "se": se, "n": 30},
    }


def test_better_than_random_is_clearly_better() -> None:
    assert newcomer.beats(run(13.0, 10.0))
    assert not newcomer.beats(run(12.0, 10.0))
    assert not newcomer.beats(run(5.0, 10.0))


@pytest.mark.parametrize(
    ("max_env_steps", "verdict"), [(60_000, "1 of 2"), (3_000, "too few steps to judge")]
)
def test_a_short_training_is_not_judged(max_env_steps: int, verdict: str) -> None:
    facts = {"seed": 1, "engine": "x", "env_steps": max_env_steps}
    runs = [{**run(13.0, 10.0), **facts}, {**run(5.0, 10.0), **facts}]
    case = vars(newcomer.Case("A-v0", "a", max_env_steps))
    assert newcomer.row("A-v0", case, runs)[-1] == verdict


def test_a_refusal_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = newcomer.try_case({"env_id": "no_such_package:X-v0", "fields": {"seed": 1}})
    assert answer["status"] == "refused"
    assert "cannot import 'no_such_package'" in answer["reason"]


def test_a_broken_off_pass_trains_only_what_is_missing(tmp_path: Path, monkeypatch: Any) -> None:
    trained: list[tuple[str, int]] = []

    def run_case(python: Path, case: newcomer.Case, seed: int, scale: float) -> dict[str, object]:
        trained.append((case.env_id, seed))
        if len(trained) == 2:
            raise KeyboardInterrupt
        facts = {"seed": seed, "engine": "x", "env_steps": 10, "notes": []}
        return {**run(9.0, 1.0), **facts}

    one, other = newcomer.Case("A-v0", "a", 10, seeds=2), newcomer.Case("B-v0", "b", 10)
    monkeypatch.setattr(newcomer, "CASES", (one, other))
    monkeypatch.setattr(newcomer, "run_case", run_case)
    monkeypatch.setattr(newcomer, "venv_python", lambda folder, name: folder)
    monkeypatch.setattr(harness, "_commit", lambda: "abc1234")
    monkeypatch.setattr("sys.argv", ["newcomer", "--out", str(tmp_path), "--resume"])
    with pytest.raises(KeyboardInterrupt):
        newcomer.main()
    newcomer.main()
    assert trained == [("A-v0", 1), ("A-v0", 2), ("A-v0", 2), ("B-v0", 1)]
    result = json.loads((tmp_path / "newcomer.json").read_text())
    assert [len(entry["runs"]) for entry in result["cases"]] == [2, 1]
