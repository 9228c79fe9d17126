"""The off-policy comparison: the same work on all sides, paired ratios, and missing peers."""

from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import bench, harness, off_policy
from benchmarks.peers import off_policy as peers
from benchmarks.training import OURS, SB3, How, Peer
from gymnasium_solver.config.load import load_config
from gymnasium_solver.config.schedule import Schedule

DQN, SAC = (cast(Any, load_config(off_policy.CASES[algo].config)) for algo in ("dqn", "sac"))

# Defaults of the peers' constructors that the script does not set.
SB3_DQN = {
    "tau": 1.0,
    "max_grad_norm": 10,
    "n_step": 1,
    "adam_eps": 1e-8,
    "loss": "huber",
    "activation": "relu",
    "optimizer": "adam",
    "weight_decay": 0,
    "n_envs": 1,
}
SB3_SAC = {
    "batch_size": 256,
    "buffer_size": 1_000_000,
    "learning_starts": 100,
    "gamma": 0.99,
    "tau": 0.005,
    "train_freq": 1,
    "updates_per_step": 1,
    "policy_delay": 1,
    "n_step": 1,
    "n_critics": 2,
    "ent_coef": "auto",
    "target_entropy": "auto",
    "max_grad_norm": None,
    "adam_eps": 1e-8,
    "hidden_dims": (256, 256),
    "critic_hidden_dims": None,
    "activation": "relu",
    "optimizer": "adam",
    "weight_decay": 0,
    "critic_lr": None,
    "alpha_lr": None,
    "n_envs": 1,
}
PLAIN = {"double": False, "dueling": False, "noisy": False, "distributional": False}
PLAIN |= {"prioritized": False, "combined_replay": False, "normalize_obs": False}


def test_our_dqn_has_the_peers_hyper_parameters() -> None:
    theirs = peers.ARGUMENTS["dqn"]
    for name in ("batch_size", "buffer_size", "learning_starts", "gamma", "train_freq"):
        assert getattr(DQN, name) == theirs[name], name
    assert DQN.policy_lr == Schedule.constant(theirs["learning_rate"])
    assert DQN.updates_per_step == theirs["gradient_steps"] / theirs["train_freq"]
    assert DQN.target_update_freq == theirs["target_update_interval"]
    assert list(DQN.hidden_dims) == theirs["policy_kwargs"]["net_arch"]
    epsilon = {"start": 1.0, "end": theirs["exploration_final_eps"]}
    assert DQN.epsilon == Schedule.parse(epsilon | {"to": theirs["exploration_fraction"]})
    for name, value in {**SB3_DQN, **PLAIN}.items():
        assert getattr(DQN, name) == value, name


def test_our_sac_has_the_peers_hyper_parameters() -> None:
    assert peers.ARGUMENTS["sac"] == {}  # the defaults of the libraries
    assert SAC.policy_lr == Schedule.constant(3e-4)
    for name, value in SB3_SAC.items():
        assert getattr(SAC, name) == value, name


@pytest.mark.parametrize("algo", ["dqn", "sac"])
def test_our_side_only_trains(algo: str) -> None:
    config = load_config(off_policy.CASES[algo].config)
    assert (config.env_id, config.algo_id) == (peers.ENV_IDS[algo], algo)
    assert config.eval_freq_epochs is None
    assert config.early_stop_on_eval_threshold is False
    # Two epochs after the warm-up are needed to tell a speed, in a quick pass too.
    left = off_policy.CASES[algo].quick_steps - peers.WARM_STEPS[algo]
    assert left > 2 * config.n_steps * config.n_envs


def test_speed_counts_from_the_first_row_after_the_warm_up() -> None:
    times = [(100, 9.0), (200, 10.0), (300, None), (400, 12.0), (600, 13.0)]
    assert off_policy.rate(times, 200) == 400 / 3
    assert off_policy.rate(times, 250) == 200
    assert off_policy.rate(times, 500) is None


def fake_sides(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs that cost nothing; the list that is given back fills with who ran."""
    order: list[str] = []

    def ours(config: str, how: How, *flags: str, warm_steps: int) -> dict[str, Any]:
        order.append(OURS)
        return {"steps_per_s": 100.0, "wall_s": 1.0, "env_steps": 10, "threads": 1}

    def theirs(peer: Peer, algo: str, how: How, *flags: str) -> dict[str, Any]:
        order.append(peer.name)
        return {"steps_per_s": 50.0, "wall_s": 1.0, "env_steps": 10, "threads": how.n_threads}

    monkeypatch.setattr(off_policy, "run_ours", ours)
    monkeypatch.setattr(off_policy, "run_peer", theirs)
    return order


def test_sides_take_turns_in_alternating_order(monkeypatch: pytest.MonkeyPatch) -> None:
    order = fake_sides(monkeypatch)
    found = [Peer(name, "python", {}) for name in off_policy.LIBRARIES]
    rows = off_policy.measure(found, repeats=2, quick=True)
    forth = [OURS, "SB3", "sbx"]
    assert order == 4 * forth + 4 * forth[::-1]  # two tasks by two threadings
    assert {(r["algo"], r["threading"]) for r in rows} == {
        (algo, threading) for algo in ("dqn", "sac") for threading in ("one", "default")
    }


def test_ours_failing_is_an_error_and_a_peer_failing_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> dict[str, Any]:
        raise harness.FailedProcess("no memory")

    monkeypatch.setattr(off_policy, "run_ours", fail)
    monkeypatch.setattr(off_policy, "run_peer", fail)
    row = off_policy.run_side(Peer(SB3, "python", {}), "sac", How(1), 10)
    assert row == {"who": "SB3", "error": "no memory"}
    with pytest.raises(harness.FailedProcess):
        off_policy.run_side(None, "sac", How(1), 10)


def test_a_peer_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    assert "make peers" in str(off_policy.find_peer("sbx", tmp_path / "no-python").missing)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'no module named sbx'; exit 1\n")
    python.chmod(0o755)
    peer = off_policy.find_peer("sbx", python)
    assert peer.python is None
    assert "no module named sbx" in str(peer.missing)


def row(who: str, repeat: int, steps_per_s: float, **more: Any) -> dict[str, Any]:
    base = {"algo": "dqn", "threading": "one", "wall_s": 9.0, "env_steps": 20_000, "threads": 1}
    return base | {"who": who, "repeat": repeat, "steps_per_s": steps_per_s} | more


def test_the_table_pairs_ratios_by_repeat() -> None:
    speeds = {OURS: (900, 400, 1000), "SB3": (300, 200, 100), "sbx": (450, 800, 500)}
    rows = [row(who, i, s) for who, all_s in speeds.items() for i, s in enumerate(all_s)]
    text = off_policy.markdown(rows)
    # Ours by SB3: 3, 2, 10; by sbx: 2, 0.5, 2. Ratios of medians would be 4.5 and 1.8.
    assert "| 900 (400–1,000) | 3.00 (2.00–10.00) | 2.00 (0.50–2.00) |" in text
    assert "| sbx | 1" in text
    assert "| 500 (450–800) | 4.00 (1.50–5.00) | 1 |" in text


def test_the_table_does_without_a_peer_and_tells_why() -> None:
    gone = {"algo": "dqn", "threading": "one", "repeat": 0, "who": "sbx", "error": "no wheel"}
    text = off_policy.markdown([row(OURS, 0, 900.0), row("SB3", 0, 300.0), gone, gone])
    assert "| 900 | 3.00 | – |" in text
    assert "| sbx |" not in text
    assert text.count("sbx, DQN CartPole-v1: no wheel") == 1


def test_default_threads_are_told_where_known() -> None:
    rows = [
        row(OURS, 0, 9.0, threading="default"),
        row("SB3", 0, 3.0, threading="default", threads=None),
    ]
    text = off_policy.markdown(rows)
    assert "| gymnasium-solver | its default: 1 |" in text
    assert "| SB3 | its default |" in text


def test_bench_shows_the_part_and_a_busy_machine() -> None:
    record = harness.header("make bench") | {
        "quick": False,
        "others_cores": {"off_policy": 0.0},
        "peers": [{"name": "sbx", "versions": {}, "missing": "gone"}],
        "off_policy": [row(OURS, 0, 900.0, others_cores=0.0)],
    }
    text = bench.markdown(record)
    assert "## DQN and SAC, the same work" in text
    assert "sbx: gone" in text
    assert "busy" not in text
    record["off_policy"][0]["others_cores"] = 0.9
    assert "the machine was busy" in bench.markdown(record)
