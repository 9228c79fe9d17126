"""What a run reports: rows of metrics, details, how updates run, `monitor`, `profile`. None of it
changes what is learnt."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from gymnasium_solver.algos.extensions.monitor import effective_rank
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast import recorded
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.metrics import describe
from gymnasium_solver.timing import Timer
from gymnasium_solver.training import loop
from gymnasium_solver.training.profile import rows, share_seconds, table, write_trace
from tests.loop.conftest import Heard, learning_rows, make_config, train, weight_hash

CONTINUOUS = ("sac", "td3", "ddpg", "crossq", "tdmpc2")


def env_of(algo_id: str) -> str:
    return "Pendulum-v1" if algo_id in CONTINUOUS else "CartPole-v1"


def test_counters_count() -> None:
    run = train("ppo", "CartPole-v1", n_envs=2, n_steps=8, max_epochs=3)
    rows = read_jsonl(run.metrics_path)
    for number, row in enumerate(rows, start=1):
        assert row["train/cnt/epoch"] == row["train/cnt/total_rollouts"] == number
        assert row["train/cnt/total_updates"] == number
        assert row["train/cnt/total_vec_steps"] == 8 * number
        assert row["train/roll/vec_steps"] == 8
        assert 0 < row["train/roll/env_steps"] <= 16
    assert sum(row["train/roll/env_steps"] for row in rows) == rows[-1]["env_steps"]
    assert sum(row["train/roll/episodes"] for row in rows) == rows[-1]["train/cnt/total_episodes"]


def test_episodes_are_told_by_how_they_ended() -> None:
    cut = train("ppo", "CartPole-v1", max_episode_steps=5, n_steps=20, max_epochs=1)
    [row] = read_jsonl(cut.metrics_path)
    assert row["train/roll/ep_truncated"] == 1.0
    assert row["train/roll/ep_len/last"] == 5
    assert row["train/roll/ep_rew/std"] == 0.0
    assert row["train/roll/ep_rew/min"] == row["train/roll/ep_rew/max"] == 5.0
    ended = train("ppo", "CartPole-v1", n_steps=60, max_epochs=1)
    [row] = read_jsonl(ended.metrics_path)
    assert row["train/roll/ep_truncated"] == 0.0


def test_the_plateau_is_counted_from_the_best_mean() -> None:
    same = {"max_episode_steps": 5, "n_envs": 20, "n_steps": 40}  # every return is 5
    rows = read_jsonl(train("reinforce", "CartPole-v1", max_epochs=4, **same).metrics_path)
    assert [row["train/roll/ep_rew/best"] for row in rows] == [5.0] * 4
    assert [row["train/plateau/epochs"] for row in rows] == [0, 1, 2, 3]
    assert [row["train/plateau/env_steps"] for row in rows] == [
        row["env_steps"] - rows[0]["env_steps"] for row in rows
    ]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "algo_id", ["ppo", "reinforce", "pqn", "sarsa", "dqn", "sac", "td3", "tdmpc2", "dreamerv3"]
)
def test_details_come_at_their_cadence_and_are_declared(algo_id: str) -> None:
    run = train(algo_id, env_of(algo_id), max_epochs=4, log_details_freq_epochs=3)
    rows = read_jsonl(run.metrics_path)
    detailed = [row["epoch"] for row in rows if "train/roll/obs/mean" in row]
    assert detailed == [1, 3]
    row = rows[2]
    assert "train/opt/activations/dead" in row
    assert "train/roll/actions/hist/00" in row
    undeclared = [name for name in row if not describe(name).description]
    assert undeclared == []
    outside = [
        name
        for name, value in row.items()
        if value is not None
        for low, high in [describe(name).bounds]
        if (low is not None and value < low) or (high is not None and value > high)
    ]
    assert outside == []


@pytest.mark.parametrize("algo_id", ["dqn", "sac", "td3", "ddpg", "crossq"])
def test_a_replay_reports_how_values_and_td_errors_are_spread(algo_id: str) -> None:
    run = train(algo_id, env_of(algo_id), max_epochs=2, log_details_freq_epochs=1)
    last = read_jsonl(run.metrics_path)[-1]
    shares = [last[f"train/opt/td_error/hist/{i:02}"] for i in range(12)]
    assert sum(shares) == pytest.approx(1)
    assert last["train/opt/td_error/std"] > 0
    percentiles = [last[f"train/opt/q/percentile/{p:02}"] for p in (5, 25, 50, 75, 95)]
    assert percentiles == sorted(percentiles)
    assert percentiles[0] < percentiles[-1]


@pytest.mark.parametrize("algo_id", ["ppo", "dqn", "sac"])
def test_logging_changes_nothing(algo_id: str) -> None:
    often = train(algo_id, env_of(algo_id), log_details_freq_epochs=1)
    never = train(algo_id, env_of(algo_id), log_details_freq_epochs=None)
    assert weight_hash(often) == weight_hash(never)
    assert not any("train/roll/obs/mean" in row for row in read_jsonl(never.metrics_path))


def test_values_that_were_clipped_are_counted() -> None:
    run = train("ppo", "CartPole-v1", clip_range_vf=1e-9, max_epochs=1)
    [row] = read_jsonl(run.metrics_path)
    assert row["train/opt/ppo/clip_fraction_vf"] > 0.9
    assert row["train/opt/loss/value_scaled"] == pytest.approx(0.5 * row["train/opt/loss/value"])
    assert row["train/opt/loss/entropy"] == -row["train/opt/policy/entropy"]


def test_prioritised_replay_reports_how_even_it_is() -> None:
    run = train("dqn", "CartPole-v1", prioritized=True, log_details_freq_epochs=1)
    last = read_jsonl(run.metrics_path)[-1]
    assert 0 < last["train/opt/replay/priority_evenness"] <= 1
    assert 0 < last["train/opt/replay/size"] <= 60


# -- the header says how updates run; a loss that cannot be recorded corrects it ------------------


@pytest.mark.parametrize("is_recordable", [True, False])
def test_a_fall_back_to_torch_is_reported(
    monkeypatch: pytest.MonkeyPatch, is_recordable: bool
) -> None:
    if not is_recordable:
        monkeypatch.setattr(recorded, "record_gradient", lambda *args, **options: None)
    heard = Heard()
    loop.train(make_config("ppo", "Bandit-v0"), runs_root=Path("runs"), observers=[heard])
    assert heard.info.update_mode == "recorded NumPy programs"
    corrections = [text for text in heard.notes if text.startswith("updates run in")]
    assert corrections == ([] if is_recordable else ["updates run in plain torch"])


# -- `monitor`: more metrics, and no other training -----------------------------------------------


@pytest.mark.parametrize("algo_id", ["ppo", "dqn", "sac"])
def test_a_monitored_run_trains_the_same(algo_id: str) -> None:
    names = ["weights", "updates", "rank"]
    plain = train(algo_id, "CartPole-v1", n_steps=32)
    seen = train(algo_id, "CartPole-v1", n_steps=32, monitor=names)
    assert weight_hash(seen) == weight_hash(plain)
    rows = [row for row in learning_rows(seen) if any("/opt/weights/norm/" in key for key in row)]
    assert rows
    keys = rows[-1].keys()
    assert any(key.startswith("train/opt/rank/") for key in keys)
    ratios = [value for key, value in rows[-1].items() if "updates/ratio" in key]
    assert ratios
    assert all(0 < value < 1 for value in ratios)


def test_effective_rank() -> None:
    assert effective_rank(torch.eye(5)) == pytest.approx(5.0)
    assert effective_rank(torch.ones(7, 3)) == pytest.approx(1.0)
    assert effective_rank(torch.zeros(4, 4)) == 0.0
    shares = [2 / 3, 1 / 3]
    expected = math.exp(-sum(p * math.log(p) for p in shares))
    assert effective_rank(torch.diag(torch.tensor([2.0, 1.0]))) == pytest.approx(expected)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="monitor"):
        make_config("ppo", "CartPole-v1", monitor=["wieghts"])


# -- `profile`: every moment is charged once, learning is not touched, and the trace is whole -----


ALGOS = {"ppo": "CartPole-v1", "pqn": "CartPole-v1", "dqn": "CartPole-v1", "sac": "Pendulum-v1"}


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_parts_of_an_update_stand_below_it() -> None:
    hand = Hand()
    timer = Timer(True, hand)
    hand.now += 0.5
    with timer.section("update"):
        hand.now += 3.0
        with timer.detail("gradient"):
            hand.now += 4.0
    timer.charge()
    assert rows(timer) == [
        ("update", 0, 1, 7.0),
        ("gradient", 1, 1, 4.0),
        ("rest of the update", 1, 1, 3.0),
        ("rest of the loop", 0, 0, 0.5),
    ]
    assert share_seconds(timer) == {"env": 0, "act": 0, "update": 7.0, "eval": 0}
    assert table(timer)[1].split() == ["update", "93.3%", "7.00", "1", "7000.000"]


def test_the_trace_of_a_long_run_has_its_beginning_and_its_end(tmp_path: Path) -> None:
    hand = Hand()
    timer = Timer(True, hand, n_first_spans=3, n_last_spans=2)
    for _ in range(100):
        with timer.section("env"):
            hand.now += 1.0
    trace = json.loads(write_trace(timer, tmp_path).read_text())
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [event["ts"] for event in spans] == [0, 1e6, 2e6, 98e6, 99e6]
    assert {event["dur"] for event in spans} == {1e6}
    [gap] = [event for event in trace["traceEvents"] if event["ph"] == "i"]
    assert "95 spans left out" in gap["name"]
    assert trace["otherData"]["parts"]["env"] == {"s": 100.0, "calls": 100}


@pytest.mark.parametrize("algo_id", ALGOS)
def test_a_run_learns_the_same_with_a_profile_and_tells_all_its_parts(algo_id: str) -> None:
    config = make_config(algo_id, ALGOS[algo_id], max_epochs=4, eval_freq_epochs=2)
    heard = Heard()
    plain = loop.train(config, runs_root=Path("plain"), observers=[heard])
    assert heard.tables == []
    assert not (plain.path / "trace.json").exists()
    run = loop.train(config.replace(profile=True), runs_root=Path("timed"), observers=[heard])
    assert weight_hash(run) == weight_hash(plain)
    [table] = heard.tables
    words = " ".join(" ".join(table).split())
    parts = {"env", "act", "store", "update", "eval", "log", "checkpoint"}
    assert all(f" {part} " in words for part in parts)
    trace = json.loads((run.path / "trace.json").read_text())
    names = {event["name"] for event in trace["traceEvents"]}
    assert {"collect", "update", "env", "act"} <= names
    found = trace["otherData"]["parts"]
    assert found["update"]["calls"] == found["store"]["calls"]
    assert found["act"]["calls"] == found["env"]["calls"]


@pytest.mark.parametrize("algo_id", ALGOS)
def test_an_update_is_split_into_its_parts(algo_id: str) -> None:
    timer = Timer(detailed=True)
    loop.train(make_config(algo_id, ALGOS[algo_id]), runs_root=Path("runs"), timer=timer)
    parts = {"gradient", "optimiser"}
    if algo_id in ("dqn", "sac"):
        parts |= {"sample", "store in the replay"}
    assert parts <= {row.name for row in rows(timer) if row.depth == 1}


@pytest.mark.parametrize(
    ("epochs", "wanted"), [([0, 2], True), ([2, 1], True), ([3, 5], True), ([9, 1], False)]
)
def test_operators_of_some_epochs_are_traced(epochs: Any, wanted: bool) -> None:
    plain: Any = make_config("ppo", "CartPole-v1", max_epochs=4, compile=False, perf="fast")
    heard = Heard()
    traced = plain.replace(profile="kineto", profile_epochs=epochs)
    run = loop.train(traced, runs_root=Path("traced"), observers=[heard])
    assert weight_hash(run) == weight_hash(loop.train(plain, runs_root=Path("plain")))
    assert (run.path / "trace.json").exists()
    path = run.path / "kineto.json"
    assert path.exists() == wanted
    if not wanted:
        assert any("ended before epoch 10" in text for text in heard.notes)
        return
    names = [event.get("name") for event in json.loads(path.read_text())["traceEvents"]]
    n_recorded = min(epochs[1], 4 - epochs[0])
    per_epoch = plain.n_epochs * plain.n_envs * plain.n_steps / plain.batch_size
    assert names.count("aten::_fused_adam_") == n_recorded * per_epoch


def test_a_run_that_breaks_off_is_profiled_too() -> None:
    class Broken(Heard):
        def on_epoch(self, row: dict[str, Any]) -> None:
            raise KeyboardInterrupt

    heard = Broken()
    config = make_config("ppo", "CartPole-v1", profile=True)
    with pytest.raises(KeyboardInterrupt):
        loop.train(config, runs_root=Path("runs"), observers=[heard])
    assert len(heard.tables) == 1
