"""The benchmarks that try many environments: what they choose, and how they judge."""

from pathlib import Path

import pytest

from benchmarks import envpool_families, newcomer


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


def test_a_refusal_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = newcomer.try_case({"env_id": "no_such_package:X-v0", "fields": {"seed": 1}})
    assert answer["status"] == "refused"
    assert "cannot import 'no_such_package'" in answer["reason"]
