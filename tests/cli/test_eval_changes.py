"""`gsolve eval` in a changed environment."""

from pathlib import Path

import pytest

import gymnasium_solver as gs
from gymnasium_solver.runs import query
from tests.cli.conftest import Gsolve


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


def test_changes_are_in_force_and_told(run: gs.Run, gsolve: Gsolve, tmp_path: Path) -> None:
    plain = gsolve.json("eval @last", "--greedy", "--episodes", "8", "--seed", "3")
    assert (plain["changed"], plain["kept"]) == ({}, True)
    before = run.config_path.read_bytes()
    flags = ("--max-episode-steps", "2", "--env-kwargs", "is_slippery=false", "map_name=8x8")
    args = ("--greedy", "--episodes", "8", "--seed", "3")
    with pytest.raises(AssertionError, match="has the observations Discrete"):
        gsolve.json("eval @last", *args, *flags)
    changed = gsolve.json("eval --max-episode-steps", "2", "@last", *args, *flags[2:4])
    assert changed["changed"]["max_episode_steps"] == 2
    assert changed["changed"]["env_kwargs"]["is_slippery"] is False
    assert max(changed["scores"]["greedy"]["lengths"]) == 2
    assert changed["scores"] != plain["scores"]
    assert run.config_path.read_bytes() == before
    assert "changed: max_episode_steps null → 2" in gsolve(
        "eval @last --max-episode-steps 2 --episodes 2"
    )
    dotted = gsolve.json("eval @last", *args, "--set", "env_kwargs.is_slippery=false")
    assert dotted["changed"]["env_kwargs"]["is_slippery"] is False
    # What was measured is part of the run; its verdict and its curves are not touched.
    details = query.get_details(run)
    assert [event["changed"] for event in details.later][:2] == [{}, changed["changed"]]
    assert details.later[0]["mean"] == plain["scores"]["greedy"]["mean"]
    n = len(details.later)
    assert gsolve.json("eval @last", *args, "--no-keep")["kept"] is False
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
def test_bad_flags_are_one_line(flags: tuple[str, ...], message: str, gsolve: Gsolve) -> None:
    error = gsolve("eval @last", *flags, code=2)
    assert message in error
    assert len(error.strip().splitlines()) == 1, error
