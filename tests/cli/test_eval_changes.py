"""`gsolve eval` in a changed environment."""

import json
from pathlib import Path
from typing import Any

import pytest

import gymnasium_solver as gs
from gymnasium_solver.cli.main import main
from gymnasium_solver.runs import query


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> gs.Run:
    return gs.train(
        "FrozenLake-v1:ppo",
        runs_dir=tmp_path_factory.mktemp("eval") / "runs",
        seed=1,
        n_envs=2,
        n_steps=16,
        batch_size=16,
        max_epochs=1,
        eval_episodes=2,
        test_episodes=2,
        hidden_dims=[8],
    )


@pytest.fixture(autouse=True)
def _runs(run: gs.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GSOLVE_RUNS", str(run.path.parent))


def read(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert main(["eval", *args, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_changes_are_in_force_and_told(
    run: gs.Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plain = read(capsys, "@last", "--greedy", "--episodes", "8", "--seed", "3")
    assert (plain["changed"], plain["kept"]) == ({}, True)
    before = run.config_path.read_bytes()
    flags = ("--max-episode-steps", "2", "--env-kwargs", "is_slippery=false", "map_name=8x8")
    args = ("--greedy", "--episodes", "8", "--seed", "3")
    with pytest.raises(AssertionError, match="has the observations Discrete"):
        read(capsys, "@last", *args, *flags)
    changed = read(capsys, "--max-episode-steps", "2", "@last", *args, *flags[2:4])
    assert changed["changed"]["max_episode_steps"] == 2
    assert changed["changed"]["env_kwargs"]["is_slippery"] is False
    assert max(changed["scores"]["greedy"]["lengths"]) == 2
    assert changed["scores"] != plain["scores"]
    assert run.config_path.read_bytes() == before
    assert main(["eval", "@last", "--max-episode-steps", "2", "--episodes", "2"]) == 0
    assert "changed: max_episode_steps null → 2" in capsys.readouterr().out
    dotted = read(capsys, "@last", *args, "--set", "env_kwargs.is_slippery=false")
    assert dotted["changed"]["env_kwargs"]["is_slippery"] is False
    # What was measured is part of the run; its verdict and its curves are not touched.
    details = query.get_details(run)
    assert [event["changed"] for event in details.later][:2] == [{}, changed["changed"]]
    assert details.later[0]["mean"] == plain["scores"]["greedy"]["mean"]
    n = len(details.later)
    assert read(capsys, "@last", *args, "--no-keep")["kept"] is False
    assert len(query.get_details(run).later) == n
    assert len(details.tests) == len(query.get_details(run).tests)
    # Nothing is written through a link.
    kept, other = run.evaluations_path.read_bytes(), tmp_path / "other"
    other.write_text("")
    run.evaluations_path.unlink()
    run.evaluations_path.symlink_to(other)
    assert run.record_evaluation(mean=1.0, env_steps=1) is False
    assert other.read_text() == ""
    run.evaluations_path.unlink()
    run.evaluations_path.write_bytes(kept)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--policy-lr", "1"), "policy_lr has no effect outside training"),
        (("--n-envs", "1"), "n_envs has no effect outside training"),
        (("--max-episode-step", "1"), "unknown flag '--max-episode-step'. Did you mean"),
        (("--episods", "1"), "unknown flag '--episods'. Did you mean --episodes?"),
        (("--max-episode-steps", "0"), "max_episode_steps: got 0"),
        (("--env-kwargs", "size"), "KEY=VALUE"),
        (("--env-kwargs", "sice=3"), "sice"),
        (("--episodes", "-3"), "--episodes -3: expected a whole number of at least 1"),
        (("--seed", "x"), "seed 'x': expected test, val, train"),
        (("other",), "expected one run, got @last, other"),
    ],
)
def test_bad_flags_are_one_line(flags: tuple[str, ...], message: str, capsys: Any) -> None:
    assert main(["eval", "@last", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1, error
