"""Shell to solved: one rule for all, peers stopped in time, and bounds told as bounds."""

import argparse
from typing import Any

import pytest

from benchmarks import solve
from benchmarks.libraries import OURS, REJAX, SB3, SBX, How, Peer
from benchmarks.peers import goal, zoo
from gymnasium_solver.bench.harness import Options
from gymnasium_solver.training.prepare import load_config


@pytest.mark.parametrize("env_id", solve.CASES)
def test_every_case_has_a_config_of_ours_and_known_tasks(env_id: str) -> None:
    name = solve.our_config(env_id)
    config = load_config(name)
    assert config.env_id == env_id
    for peer, task in solve.CASES[env_id].tasks.items():
        known = {SB3: zoo.TASKS, SBX: zoo.TASKS, REJAX: zoo.REJAX_TASKS}.get(peer, {task: {}})
        assert task in known
        assert task.startswith(env_id)


def fake_runs(monkeypatch: pytest.MonkeyPatch, late: set[str]) -> list[tuple[str, str, tuple]]:
    ran: list[tuple[str, str, tuple]] = []

    def ours(config: str, how: How, *flags: str) -> dict[str, Any]:
        ran.append((OURS, config, flags))
        means = [{"env_steps": 100, "mean": 400.0}, {"env_steps": 200, "mean": 1000.0}]
        return {"wall_s": 10.0, "env_steps": 200, "evals": means, "eval_s": 1.0, "test": 480.0}

    def theirs(peer: Peer, task: str, how: How, *flags: str) -> dict[str, Any]:
        ran.append((peer.name, task, flags))
        is_late = peer.name in late
        return {
            "wall_s": 40.0,
            "env_steps": 999,
            "eval_s": 2.0,
            "solved": not is_late,
            "late": is_late,
        }

    monkeypatch.setattr(solve, "run_ours", ours)
    monkeypatch.setattr(solve, "run_peer", theirs)
    monkeypatch.setattr(solve, "find", lambda name, options: Peer(name, "python", {}))
    shown = '{"eval_freq_epochs": 10, "n_envs": 8, "n_steps": 64}'
    done = argparse.Namespace(stdout=shown)
    monkeypatch.setattr(solve, "timed", lambda command: done)
    return ran


def test_one_rule_for_all_and_a_limit_for_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = fake_runs(monkeypatch, late=set())
    rows = solve.measure(Options(repeats=1, quick=True))
    (who, _, our_flags), *peers = ran
    assert who == OURS
    rule = {"--eval-deterministic=true", "--eval-episodes=100"}
    assert set(our_flags) == {*rule, "--early-stop-on-eval-threshold=475.0"}
    assert [name for name, *_ in peers] == list(solve.CASES["CartPole-v1"].tasks)
    rule = {"--eval-every=5120", "--eval-episodes=100", "--threshold=475.0", "--limit-s=80"}
    assert all(set(flags) == rule for *_, flags in peers)
    assert all(solve.is_solved(row) for row in rows)


def test_ours_is_solved_by_its_held_out_test_alone() -> None:
    run = {"who": OURS, "env_id": "CartPole-v1", "evals": [{"env_steps": 9, "mean": 500.0}]}
    assert solve.is_solved(run | {"test": 475.0})
    assert not solve.is_solved(run | {"test": 471.3})
    assert not solve.is_solved(run | {"test": None})


def test_a_peer_that_was_stopped_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = fake_runs(monkeypatch, late={SB3})
    solve.measure(Options(repeats=2))
    times = [who for who, task, _ in ran if task.startswith("Acrobot-v1")]
    assert (times.count(OURS), times.count(SB3), times.count(REJAX)) == (2, 1, 2)
    assert sum((who, task) == (SB3, "LunarLander-v3:ppo") for who, task, _ in ran) == 2


def row(who: str, wall_s: float, solved: bool = True, **more: Any) -> dict[str, Any]:
    base = {"env_id": "CartPole-v1", "repeat": 0, "env_steps": 5000, "eval_s": 0.5, "test": 500.0}
    return base | {"who": who, "wall_s": wall_s, "solved": solved, "late": not solved} | more


def test_a_bound_is_told_as_one() -> None:
    rows = [row(OURS, 4.0, config="CartPole-v1:fast"), row(SB3, 20.0), row(SBX, 32.0, False)]
    text = "\n\n".join(
        solve.sections([*rows, {"env_id": "CartPole-v1", "who": REJAX, "error": "x"}])
    )
    assert "| `CartPole-v1:fast` | 475 | 1 of 1 | 5,000 | 4.0 | 0.5 | – | 1 |" in text
    assert "| 1 of 1 | 5,000 | 20.0 | 0.5 | – | 5.0 |" in text
    assert "| 0 of 1 | – | > 32.0 | 0.5 | – | > 8.0 |" in text
    assert "- rejax, CartPole-v1: x" in text


def make_goal(means: dict[int, list[float]], **more: Any) -> tuple[goal.Goal, list[int]]:
    """A goal whose scores are written beforehand, by number of episodes."""
    asked: list[int] = []

    def score(episodes: int) -> float:
        asked.append(episodes)
        return means[episodes].pop(0)

    given = {"eval_every": 100, "eval_from": 0, "eval_episodes": 100, "threshold": 475.0}
    args = argparse.Namespace(**(given | {"limit_s": None} | more))
    return goal.Goal(args, score), asked


def test_a_peer_is_asked_by_few_episodes_first() -> None:
    found, asked = make_goal({10: [100.0, 480.0, 490.0], 100: [470.0, 476.0]})
    assert not found.reached(50)  # none due
    assert [found.reached(steps) for steps in (100, 150, 200, 300)] == [False, False, False, True]
    assert asked == [10, 10, 100, 10, 100]
    assert found.solved
    assert [e["mean"] for e in found.evals] == [100.0, 470.0, 476.0]


def test_a_peer_out_of_time_stops_unsolved() -> None:
    found, asked = make_goal({}, limit_s=1e-9)
    assert found.reached(10)
    assert (found.solved, found.is_late, asked) == (False, True, [])


def test_without_a_threshold_all_episodes_are_played() -> None:
    found, asked = make_goal({100: [900.0]}, threshold=None)
    assert not found.reached(100)
    assert asked == [100]
