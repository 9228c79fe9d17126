"""Curves beside a peer: one grid for both sides, ranges over seeds, and what differs is told."""

from typing import Any

import pytest

from benchmarks import curves
from benchmarks.libraries import OURS, SB3, Peer
from benchmarks.peers import zoo
from gymnasium_solver.bench import harness
from gymnasium_solver.config.schedule import Schedule
from gymnasium_solver.training.prepare import load_config


def record(**more: Any) -> dict[str, Any]:
    """Two seeds of both, a third that SB3 failed; ours evaluates five steps early."""
    runs: list[dict[str, Any]] = [
        {"who": who, "seed": seed, "evals": [{"env_steps": s, "mean": m} for s, m in evals]}
        for who, seed, evals in (
            (OURS, 1, [(95, 0.0), (195, 100.0), (200, 120.0)]),
            (OURS, 2, [(95, 20.0), (195, 200.0), (200, 220.0)]),
            (OURS, 3, [(95, 900.0), (195, 900.0), (200, 900.0)]),
            (SB3, 1, [(100, 10.0), (200, 90.0)]),
            (SB3, 2, [(100, 30.0), (200, 70.0)]),
        )
    ]
    runs.append({"who": SB3, "seed": 3, "error": "exit code 1"})
    base = {
        "env_id": "HalfCheetah-v5",
        "algo_id": "sac",
        "config": "c",
        "peers": [{"name": SB3, "versions": {"torch": "2"}, "missing": None}],
        "env_steps": 200,
        "eval_every": 100,
        "eval_episodes": 10,
        "differs": {},
        "runs": runs,
    }
    return harness.header("x") | base | more


def test_both_sides_are_read_at_the_same_steps() -> None:
    grid, by_who = curves.curves(record())
    assert grid.tolist() == [100, 200]
    # 5 of the 100 steps between 0 and 100, and between 20 and 200.
    assert by_who[OURS].tolist() == [[5.0, 120.0], [29.0, 220.0]]
    assert by_who[SB3].tolist() == [[10.0, 90.0], [30.0, 70.0]]


def test_the_table_has_mean_and_range_and_tells_failures() -> None:
    text = curves.markdown(record())
    assert "| 100 | 17.0 (5.0 to 29.0) | 20.0 (10.0 to 30.0) |" in text
    assert "SB3 seed 3: exit code 1" in text
    assert "Seeds of both: 1, 2 (of one side only and left out: 3)" in text
    assert curves.FEW_SEEDS in text


def test_differing_hyper_parameters_are_told() -> None:
    assert curves.differences(load_config("benchmarks/configs/halfcheetah_sb3.yaml:sac")) == {}
    shipped = curves.differences(load_config("HalfCheetah-v5:sac"))
    assert shipped == {"learning_starts": ["10000", "100"]}
    assert "learning_starts 10000 (peer: 100)" in curves.markdown(record(differs=shipped))


def test_our_a2c_has_the_peers_hyper_parameters() -> None:
    ours: Any = load_config(curves.SAME_WORK["a2c"])
    theirs = zoo.TASKS[curves.TASKS["a2c"]]
    assert ours.max_env_steps == theirs["total_steps"]
    assert (ours.n_envs, ours.rollout_steps) == (theirs["n_envs"], theirs["n_steps"])
    assert ours.gamma == theirs["gamma"]
    assert ours.policy_lr == Schedule.parse(theirs["learning_rate"])
    assert ours.ent_coef == Schedule.constant(theirs["ent_coef"])
    # SB3's defaults.
    assert (ours.gae_lambda, ours.max_grad_norm, ours.normalize_advantages) == (1.0, 0.5, "off")
    assert (ours.optimizer, ours.adam_eps) == ("rmsprop", 1e-5)
    assert ours.vf_coef == Schedule.constant(0.5)
    assert (ours.hidden_dims, ours.activation) == ((64, 64), "tanh")
    assert curves.differences(ours) == {}


def test_evaluations_come_after_whole_epochs_nearest_to_what_was_asked() -> None:
    config = load_config("CartPole-v1:dqn").replace(n_steps=1024, n_envs=1)
    assert curves.eval_cadence(config, 5_000, 50_000) == {"epochs": 5, "env_steps": 5_120}
    many = config.replace(n_envs=8)
    assert curves.eval_cadence(many, 5_000, 50_000) == {"epochs": 1, "env_steps": 8_192}
    with pytest.raises(SystemExit, match="no evaluation"):
        curves.eval_cadence(many, 5_000, 8_000)


def test_what_the_peers_do_not_have_is_refused() -> None:
    with pytest.raises(
        SystemExit, match="CartPole-v1:dqn, HalfCheetah-v5:sac, LunarLander-v3:a2c only"
    ):
        curves.checked_config("Pendulum-v1:sac")
    assert curves.checked_config("CartPole-v1:dqn").algo_id == "dqn"


def test_both_sides_get_the_same_steps_seed_thread_and_evaluation(monkeypatch: Any) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(
        curves, "run_ours", lambda config, how, *flags: given.setdefault(OURS, (how, flags)) and {}
    )
    monkeypatch.setattr(
        curves,
        "run_peer",
        lambda peer, algo, how, *flags: given.setdefault(SB3, (how, flags)) and {},
    )
    monkeypatch.setattr("sys.argv", ["curves", "HalfCheetah-v5:sac", "--steps", "7000"])
    args, cadence = curves.parse_args(), {"epochs": 5, "env_steps": 5_000}
    for who in (OURS, SB3):
        curves.train(who, 2, args, cadence, Peer(SB3, "python", {}))
    (our_how, ours), (their_how, theirs) = given[OURS], given[SB3]
    assert our_how == their_how
    assert (our_how.seed, our_how.n_threads) == (2, 1)
    assert {"--max-env-steps=7000", "--eval-freq-epochs=5", "--eval-episodes=10"} <= set(ours)
    assert "--early-stop-on-eval-threshold=false" in ours
    assert set(theirs) == {"--steps=7000", "--eval-every=5000", "--eval-episodes=10"}
    assert "--eval-deterministic=true" in ours  # SB3's evaluate_policy is greedy
