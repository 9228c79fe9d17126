"""Rollouts and rounds of gradient steps in one compiled call: the same bits as in Python."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.envs.make import training_env
from gymnasium_solver.fast.descent import Descent
from gymnasium_solver.fast.native.build import can_compile, prefer_compiled
from gymnasium_solver.fast.native.rollout import CompiledRows
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training import collect, loop
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.collect import Collector, CompiledCollector, collector_for
from gymnasium_solver.training.prepare import load_config
from tests.loop.conftest import learning_rows, train, weight_hash

pytestmark = pytest.mark.skipif(not can_compile(), reason="needs a C compiler")
SMALL: dict[str, Any] = {
    "seed": 1,
    "n_envs": 4,
    "n_steps": 16,
    "batch_size": 32,
    "hidden_dims": [8],
    "compile": "native",
    "eval_freq_epochs": 3,
    "eval_episodes": 4,
    "test_episodes": 2,
    "max_env_steps": 1_000,
}


def config_of(target: str = "CartPole-v1:ppo", **changes: Any) -> Any:
    return load_config(target, overrides={**SMALL, **changes})


@pytest.fixture
def rows_in_c(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the rows that are collected by C."""
    found = [0]
    collect = CompiledRows.collect

    def counted(self: CompiledRows, n_rows: int) -> np.ndarray:
        found[0] += n_rows
        return collect(self, n_rows)

    monkeypatch.setattr(CompiledRows, "collect", counted)
    return found


def plain_training(
    monkeypatch: pytest.MonkeyPatch, config: Any, root: Path, rows_in_c: list[int]
) -> Run:
    with monkeypatch.context() as patch:
        patch.setattr(collect, "CompiledCollector", Collector)
        before = rows_in_c[0]
        run = loop.train(config, runs_root=root)
        assert rows_in_c[0] == before
    return run


MEMORY = {"recurrent_dim": 8, "sequence_length": 8}
PPO = "CartPole-v1:ppo"
PARTS = Path(__file__).parents[1] / "envs/parts.c"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("target", "changes"),
    [
        pytest.param(PPO, {}, marks=pytest.mark.optimized),
        (PPO, {"max_episode_steps": 7}),  # truncations
        (PPO, {"env_boundary_steps": 192}),  # resets of all envs
        (PPO, {"normalize_obs": "rolling"}),
        (PPO, {"recurrent": "gru", **MEMORY}),
        (PPO, {"recurrent": "lstm", **MEMORY, "max_episode_steps": 7}),
        *(("CartPole-v1:a2c", {}), ("CartPole-v1:reinforce", {}), ("Pendulum-v1:ppo", {})),
        *((f"{PARTS}:ppo", {}), (f"{PARTS}:ppo", {"recurrent": "gru", **MEMORY})),
        *(("c:cartpole:ppo", {}), ("c:pendulum:ppo", {}), ("c:2048:ppo", {})),
    ],
    ids=str,
)
def test_a_training_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_in_c: list[int], target: str,
    changes: dict[str, Any],
) -> None:  # fmt: skip
    given = SMALL if "a2c" not in target else {k: v for k, v in SMALL.items() if k != "batch_size"}
    config = load_config(target, overrides={**given, **changes})
    run = loop.train(config, runs_root=tmp_path / "compiled")
    assert rows_in_c[0] > 100
    plain = plain_training(monkeypatch, config, tmp_path / "plain", rows_in_c)
    assert weight_hash(run) == weight_hash(plain)
    assert learning_rows(run) == learning_rows(plain)


@pytest.mark.parametrize(
    "changes", [{}, {"recurrent": "gru", "recurrent_dim": 8, "sequence_length": 8}]
)
def test_rows_episodes_and_the_journal(
    monkeypatch: pytest.MonkeyPatch, rows_in_c: list[int], changes: dict[str, Any]
) -> None:
    """Two collectors with the same seeds, rollout by rollout; one rollout is cut by its budget."""
    prefer_compiled()
    config = config_of(max_episode_steps=9, **changes)
    collectors = []
    for is_plain in (False, True):
        env = training_env(config)
        agent = build_agent(config, env.observation_space, env.action_space)
        made = collector_for(config, env, agent)
        assert type(made) is CompiledCollector
        if is_plain:
            monkeypatch.setattr(made, "_arrays_for", lambda n_rows, budget: None)
        collectors.append(made)
    clock = 0
    for budget in (None, None, 1_000, 30, 64, None):
        ours, plain = (made.collect(clock, budget) for made in collectors)
        for name in ("obs", "actions", "reward", "terminated", "truncated", "valid", "is_first",
                     "outputs", "log_prob"):  # fmt: skip
            np.testing.assert_array_equal(getattr(ours, name), getattr(plain, name), name)
        np.testing.assert_array_equal(ours.value, plain.value)
        assert (ours.value is None) == (not changes)
        for name, kept in ours.carry.items():
            np.testing.assert_array_equal(kept, plain.carry[name], name)
        clock += ours.env_steps
        states = [made.state() for made in collectors]
        assert states[0][1] == states[1][1]
        for name, array in states[0][0].items():
            np.testing.assert_array_equal(array, states[1][0][name], name)
    # All but the first rollout, at which the policy is compiled, and the cut one.
    assert rows_in_c[0] == 4 * 16
    for made in collectors:
        made.close()


def test_where_python_is_between_policy_and_environment_it_steps(rows_in_c: list[int]) -> None:
    config = config_of(env_wrappers=[{"id": "RewardScale", "scale": 0.5}])
    env = training_env(config)
    agent = build_agent(config, env.observation_space, env.action_space)
    assert type(collector_for(config, env, agent)) is Collector


def test_after_an_interrupt_the_policy_acts_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer_compiled()
    config = config_of()
    env = training_env(config)
    agent = build_agent(config, env.observation_space, env.action_space)
    collector = collector_for(config, env, agent)
    seen: Any = collector.collect(0, None).obs
    obs, other = seen[0].copy(), seen[5].copy()

    def outputs(obs: np.ndarray) -> Any:
        return agent.policy.greedy(obs, {}, np.zeros(len(obs), bool)).outputs

    before = outputs(obs)
    assert (outputs(other) != before).any()
    collect = CompiledRows.collect

    def interrupted(self: CompiledRows, n_rows: int) -> np.ndarray:
        collect(self, 5)
        raise KeyboardInterrupt

    monkeypatch.setattr(CompiledRows, "collect", interrupted)
    with pytest.raises(KeyboardInterrupt):
        collector.collect(64, None)
    np.testing.assert_array_equal(outputs(obs), before)
    collector.close()


# -- dQN's gradient steps of a round in one compiled call (fast/descent.py) -----------------------


FIELDS = {"compile": "native", "max_epochs": 5, "train_freq": 8, "updates_per_step": 0.4}


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps of each compiled call."""
    counted: list[int] = []
    call = Descent._in_one_call

    def spy(self: Descent, batch: Any, numbers: Any, lr: Any, parts: Any, stop: Any) -> Any:
        counted.append(len(parts))
        return call(self, batch, numbers, lr, parts, stop)

    monkeypatch.setattr(Descent, "_in_one_call", spy)
    return counted


def test_the_same_bits_as_one_step_after_another(
    rounds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = train("dqn", "CartPole-v1", **FIELDS)
    assert len(rounds) > 5
    assert min(rounds) > 1
    monkeypatch.setattr(Descent, "_in_one_call", lambda *arguments: None)
    separate = train("dqn", "CartPole-v1", **FIELDS)
    assert weight_hash(joined) == weight_hash(separate)
    for a, b in zip(learning_rows(joined), learning_rows(separate), strict=True):
        assert a["train/opt/q/mean"] == pytest.approx(b["train/opt/q/mean"], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("special", [{"prioritized": True}, {"noisy": True}, {"compile": "numpy"}])
def test_not_where_python_is_needed_between_steps(
    special: dict[str, Any], rounds: list[int]
) -> None:
    train("dqn", "CartPole-v1", **(FIELDS | special))
    assert not rounds
