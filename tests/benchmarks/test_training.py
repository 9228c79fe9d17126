"""Training beside peers: the same work on all sides, paired ratios, and missing peers."""

from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import libraries, training
from benchmarks.libraries import CLEANRL, OURS, REJAX, SB3, SBX, How, Peer
from benchmarks.peers import zoo
from gymnasium_solver.bench.harness import FailedProcess, Options
from gymnasium_solver.config.schedule import Schedule
from gymnasium_solver.training.prepare import load_config

PPO, DQN, SAC = (cast(Any, load_config(training.CASES[a].config)) for a in ("ppo", "dqn", "sac"))
QUICK = Options(repeats=2, quick=True)

# Defaults of the peers' constructors that the script does not set.
SB3_DQN = {
    "tau": 1.0, "max_grad_norm": 10, "n_step": 1, "adam_eps": 1e-8, "loss": "huber", "n_envs": 1,
    "activation": "relu", "optimizer": "adam", "weight_decay": 0,
}  # fmt: skip
SB3_SAC = {
    "batch_size": 256, "buffer_size": 1_000_000, "learning_starts": 100, "gamma": 0.99,
    "tau": 0.005, "train_freq": 1, "updates_per_step": 1, "policy_delay": 1, "n_step": 1,
    "n_critics": 2, "ent_coef": "auto", "target_entropy": "auto", "max_grad_norm": None,
    "adam_eps": 1e-8, "hidden_dims": (256, 256), "critic_hidden_dims": None, "n_envs": 1,
    "activation": "relu", "optimizer": "adam", "weight_decay": 0, "critic_lr": None,
    "alpha_lr": None,
}  # fmt: skip
PLAIN = {"double": False, "dueling": False, "noisy": False, "distributional": False}
PLAIN |= {"prioritized": False, "combined_replay": False, "normalize_obs": False}


def test_our_dqn_has_the_peers_hyper_parameters() -> None:
    theirs = zoo.TASKS["CartPole-v1:dqn"]
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
    assert zoo.TASKS["HalfCheetah-v5:sac"].keys() == {"total_steps"}  # else the defaults
    assert SAC.policy_lr == Schedule.constant(3e-4)
    for name, value in SB3_SAC.items():
        assert getattr(SAC, name) == value, name


def test_our_ppo_has_the_peers_hyper_parameters() -> None:
    theirs = zoo.TASKS["CartPole-v1:ppo"]
    for name in ("n_envs", "n_steps", "batch_size", "n_epochs", "gae_lambda", "gamma"):
        assert getattr(PPO, name) == theirs[name], name
    assert PPO.policy_lr == Schedule.parse(theirs["learning_rate"])
    assert PPO.clip_range == Schedule.parse(theirs["clip_range"])
    assert PPO.ent_coef == Schedule.constant(theirs["ent_coef"])
    assert PPO.vf_coef == Schedule.constant(0.5)
    assert (PPO.hidden_dims, PPO.activation) == ((64, 64), "tanh")
    assert (PPO.max_grad_norm, PPO.normalize_advantages) == (0.5, "batch")


def test_rejax_and_cleanrl_do_the_same_work() -> None:
    rejax, cleanrl = zoo.REJAX_TASKS["zoo"], zoo.CLEANRL_ZOO
    assert rejax["num_envs"] == cleanrl["num-envs"] == PPO.n_envs
    assert rejax["num_steps"] == cleanrl["num-steps"] == PPO.n_steps
    assert rejax["num_epochs"] == cleanrl["update-epochs"] == PPO.n_epochs
    rows = PPO.n_envs * PPO.n_steps
    assert rows // rejax["num_minibatches"] == rows // cleanrl["num-minibatches"] == PPO.batch_size
    for name in ("gamma", "gae_lambda"):
        assert rejax[name] == cleanrl[name.replace("_", "-")] == getattr(PPO, name)


@pytest.mark.parametrize("algo", ["ppo", "dqn", "sac"])
def test_our_side_only_trains(algo: str) -> None:
    config = load_config(training.CASES[algo].config)
    assert f"{config.env_id}:{config.algo_id}" == training.CASES[algo].tasks[SB3]
    assert config.eval_freq_epochs is None
    assert config.early_stop_on_eval_threshold is False
    # Two epochs after the warm-up are needed to tell a speed, in a quick pass too.
    fewest = min(training.CASES[algo].peer_steps.values())
    assert fewest > zoo.WARM_STEPS[algo]
    left = training.CASES[algo].quick_steps - zoo.WARM_STEPS[algo]
    assert left > 2 * config.n_steps * config.n_envs


def test_speed_counts_from_the_first_row_after_the_warm_up() -> None:
    times = [(100, 9.0), (200, 10.0), (300, None), (400, 12.0), (600, 13.0)]
    assert libraries.rate(times, 200) == 400 / 3
    assert libraries.rate(times, 250) == 200
    assert libraries.rate(times, 500) is None


def fake_sides(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int | None, bool]]:
    """Runs that cost nothing; the list that is given back fills with who ran, with how many threads
    and whether on one core."""
    order: list[tuple[str, int | None, bool]] = []

    def ours(config: str, how: How, *flags: str, warm_steps: int) -> dict[str, Any]:
        order.append((OURS, how.n_threads, how.core is not None))
        return {"steps_per_s": 100.0, "wall_s": 1.0, "env_steps": 10, "threads": 1}

    def theirs(peer: Peer, task: str, how: How, *flags: str) -> dict[str, Any]:
        order.append((peer.name, how.n_threads, how.core is not None))
        return {"steps_per_s": 50.0, "wall_s": 1.0, "env_steps": 10, "threads": how.n_threads}

    monkeypatch.setattr(training, "run_ours", ours)
    monkeypatch.setattr(training, "run_peer", theirs)
    monkeypatch.setattr(training, "find", lambda name, options: Peer(name, "python", {}))
    return order


def test_sides_take_turns_in_alternating_order(monkeypatch: pytest.MonkeyPatch) -> None:
    order = fake_sides(monkeypatch)
    rows = training.measure(QUICK)
    turns = [[OURS, SB3, SBX, REJAX, CLEANRL], [OURS, SB3, SBX], [OURS, SB3, SBX]]
    turns = [turn for turn in turns for _ in training.THREADING]
    forth = [who for turn in turns for who in turn]
    back = [who for turn in turns for who in reversed(turn)]
    assert [who for who, *_ in order] == forth + back
    for name in {OURS, *training.CASES["ppo"].tasks}:  # its own threads, and one
        assert {tuple(how) for who, *how in order if who == name} == {(None, False), (1, True)}
    assert {row["algo"] for row in rows} == {"ppo", "dqn", "sac"}


def test_ours_failing_is_an_error_and_a_peer_failing_a_row() -> None:
    def fail() -> dict[str, Any]:
        raise FailedProcess("no memory")

    assert list(libraries.take_turns({SB3: fail})) == [{"who": "SB3", "error": "no memory"}]
    with pytest.raises(FailedProcess):
        list(libraries.take_turns({OURS: fail}))


def test_a_peer_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    gone = Options(repeats=1, peers_python=tmp_path / "no-python")
    assert "make peers" in str(libraries.find(SBX, gone).missing)
    with pytest.raises(FailedProcess, match="make peers"):
        libraries.run_peer(libraries.find(SBX, gone), "CartPole-v1:ppo", How(1))
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'no module named sbx'; exit 1\n")
    python.chmod(0o755)
    peer = libraries.find(SBX, Options(repeats=1, peers_python=python))
    assert peer.python is None
    assert "no module named sbx" in str(peer.missing)


def row(who: str, repeat: int, steps_per_s: float, **more: Any) -> dict[str, Any]:
    base = {"algo": "dqn", "threading": "one", "wall_s": 9.0, "env_steps": 20_000, "threads": 1}
    return base | {"who": who, "repeat": repeat, "steps_per_s": steps_per_s} | more


def told(rows: list[dict[str, Any]]) -> str:
    return "\n\n".join(training.sections(rows))


def test_the_table_pairs_ratios_by_repeat() -> None:
    speeds = {OURS: (900, 400, 1000), "SB3": (300, 200, 100), "sbx": (450, 800, 500)}
    rows = [row(who, i, s) for who, all_s in speeds.items() for i, s in enumerate(all_s)]
    text = told(rows)
    # Ours by SB3: 3, 2, 10; by sbx: 2, 0.5, 2. Ratios of medians would be 4.5 and 1.8.
    assert "| 900 (400–1,000) | 3.00 (2.00–10.00) | 2.00 (0.50–2.00) | – |" in text
    assert "| sbx | 1" in text
    assert "| 500 (450–800) | 4.00 (1.50–5.00) | 1 |" in text


def test_the_table_does_without_a_peer_and_tells_why() -> None:
    gone = {"algo": "dqn", "threading": "one", "repeat": 0, "who": "sbx", "error": "no wheel"}
    text = told([row(OURS, 0, 900.0), row("SB3", 0, 300.0), gone, gone])
    assert "| 900 | 3.00 | – | – |" in text
    assert "| sbx |" not in text
    assert text.count("sbx, DQN CartPole-v1: no wheel") == 1


def test_compiled_programs_count_as_our_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymnasium_solver.training.threads.cpu_share", lambda: 2)
    assert libraries.most_threads(PPO) == 2
