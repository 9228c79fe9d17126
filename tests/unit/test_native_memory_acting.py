"""Compiled acting, values and metrics of policies with memory: the results of NumPy and torch, with
carries that reset where an episode starts, and the same form after a resume."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.fast.native import build
from gymnasium_solver.training.collect import Collector
from tests.acting import values_by_torch
from tests.unit.test_learner_state import (
    BOX,
    DISCRETE,
    agent_for,
    array_of,
    assert_same_weights,
    prepared,
    random_rollout,
)
from tests.unit.test_native_acting import copied, observations

pytestmark = pytest.mark.skipif(not build.can_compile(), reason="needs a C compiler")
KINDS = ["gru", "lstm", "rnn"]
N = 5


def made(algo_id: str, space: Any, kind: str, **fields: Any) -> Any:
    own = {"recurrent": kind, "recurrent_dim": 4, "sequence_length": 4, "normalize_obs": "rolling"}
    return agent_for(algo_id, space, **{"compile": "native", **own, **fields})


def remembered(agent: Any, space: Any, seed: int) -> Rollout:
    """A rollout with the carries and distributions of this agent."""
    rollout = random_rollout(space, seed)
    obs, outputs = array_of(rollout), []
    carry = agent.policy.initial_carry(obs.shape[1])
    rollout.carry = {"core": np.zeros((len(obs), *carry["core"].shape), np.float32)}
    for t, rows in enumerate(obs):
        rollout.carry["core"][t] = carry["core"]
        acted = agent.policy.greedy(rows, carry, rollout.is_first[t])
        outputs.append(acted.outputs)
        carry = acted.carry
    rollout.outputs, rollout.log_std = np.stack(outputs[:-1]), agent.policy.log_std()
    return rollout


def learn(agent: Any, space: Any, seed: int) -> None:
    agent.update(remembered(agent, space, seed), 24, 100)


def move(agent: Any) -> None:
    """Weights and statistics of observations as after some updates."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in agent.net.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    agent.encoder.observe(observations(7, 50))


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("space", [DISCRETE, BOX], ids=["discrete", "box"])
@pytest.mark.parametrize("kind", KINDS)
def test_samples_and_carries_are_those_of_the_same_random_numbers(kind: str, space: Any) -> None:
    ours = made("ppo", space, kind)
    plain = made("ppo", space, kind, compile=False)
    firsts = np.random.default_rng(1).random((6, N)) < 0.4
    firsts[0] = True
    for agent in (ours, plain):
        move(agent)
    carries = [agent.policy.initial_carry(N) for agent in (ours, plain)]
    for t, first in enumerate(firsts):
        obs = observations(t, N)
        mine, other = (
            agent.policy.sample(obs, carry, first)
            for agent, carry in zip((ours, plain), carries, strict=True)
        )
        greedy = ours.policy.greedy(obs, carries[0], first)  # evaluation sees the same network
        for found in (other, greedy):
            close(mine.outputs, found.outputs)
            close(mine.carry["core"], found.carry["core"])
        close(mine.actions, other.actions)
        log_prob, _ = plain.actions.log_prob_entropy(
            torch.from_numpy(other.outputs), plain.net.log_std, torch.from_numpy(other.actions)
        )
        close(mine.log_prob, log_prob.detach())
        carries = [mine.carry, other.carry]
    assert ours.policy.rng.bit_generator.state == plain.policy.rng.bit_generator.state
    assert ours.policy.state() == {"sampler": "compiled"}
    assert plain.policy.state() == {"sampler": "torch"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_carry_is_reset_where_an_episode_starts_and_kept_elsewhere(kind: str) -> None:
    agent = made("a2c", BOX, kind)
    obs, zero = observations(0, N), agent.policy.initial_carry(N)
    old = {"core": np.random.default_rng(0).normal(size=zero["core"].shape).astype(np.float32)}
    first = np.array([True, False, True, False, False])
    state = agent.policy.rng.bit_generator.state
    results = []
    for carry, starts in ((old, first), (zero, first)):
        agent.policy.rng.bit_generator.state = state
        results.append(agent.policy.sample(obs, carry, starts))
    assert agent.policy.state() == {"sampler": "compiled"}
    mixed, fresh = results
    np.testing.assert_array_equal(mixed.log_prob[first], fresh.log_prob[first])
    for a, b in ((mixed.outputs, fresh.outputs), (mixed.actions, fresh.actions)):
        np.testing.assert_array_equal(a[first], b[first])
        assert (a[~first] != b[~first]).all()
    np.testing.assert_array_equal(mixed.carry["core"][first], fresh.carry["core"][first])
    assert (mixed.carry["core"][~first] != fresh.carry["core"][~first]).any(axis=1).all()
    assert not np.shares_memory(mixed.carry["core"], fresh.carry["core"])  # a rollout keeps both


@pytest.mark.parametrize(
    ("algo_id", "kind"),
    [("ppo", "gru"), ("ppo", "lstm"), ("a2c", "lstm"), ("a2c", "rnn"), ("reinforce", "gru")],
)
def test_values_have_the_carry_of_acting_also_at_a_truncation(algo_id: str, kind: str) -> None:
    fields = {"baseline": "value"} if algo_id == "reinforce" else {}
    agent = made(algo_id, DISCRETE, kind, **fields)
    move(agent)
    rollout = remembered(agent, DISCRETE, 1)
    wanted = values_by_torch(agent, rollout)
    found = agent.values(rollout)
    assert agent.forwards["value"].mode == "compiled"
    close(found, wanted)
    # Row 7 of env 1 is the final observation of a truncated episode, row 8 starts the next one.
    assert rollout.truncated[6, 1]
    assert rollout.is_first[8, 1]
    rollout.carry["core"][7:9, 1] += 1.0
    changed = agent.values(rollout) != found
    assert changed[7, 1]
    assert changed.sum() == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_metrics_of_an_update_are_torchs(kind: str) -> None:
    agent = made("ppo", DISCRETE, kind, ent_coef=0.1)
    move(agent)
    hp = agent.scheduled_values(0, 100)
    coefficients = {name: hp[name] for name in agent.numbers}
    data = prepared(agent, remembered(agent, DISCRETE, 1))
    moved = torch.linspace(-0.6, 0.6, data.batch.log_prob.numel())
    data.batch.log_prob.sub_(moved.view(data.batch.log_prob.shape))
    found = agent._measure(data, coefficients)
    with torch.no_grad():
        wanted = agent.measured(data.batch, [torch.tensor(v) for v in coefficients.values()])
    for got, torchs in zip(found.values(), wanted, strict=True):
        torch.testing.assert_close(got, torchs, rtol=1e-4, atol=1e-5)
    assert agent.forwards["measure"].mode == "compiled"
    assert 0 < float(found["opt/ppo/clip_fraction"]) < 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_learner_goes_on_in_the_same_form(kind: str) -> None:
    one = made("ppo", DISCRETE, kind)
    carry, first = one.policy.initial_carry(N), np.ones(N, bool)
    carry = one.policy.sample(observations(0, N), carry, first).carry
    learn(one, DISCRETE, 1)
    saved = one.state()
    two = made("ppo", DISCRETE, kind, seed=99, compile="numpy")
    two.load_state(copied(saved[0]), json.loads(json.dumps(saved[1])))
    for seed in range(2):
        obs = observations(seed, N)
        mine, other = (a.policy.sample(obs, carry, ~first) for a in (one, two))
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_equal(a, b)
        carry = mine.carry
        for agent in (one, two):
            learn(agent, DISCRETE, seed)
        assert_same_weights(one, two)
    assert {f.mode for f in two.forwards.values()} == {"compiled"}
    assert two.policy.state() == {"sampler": "compiled"}


def test_a_run_of_an_older_version_acts_in_numpy() -> None:
    one = made("ppo", DISCRETE, "gru")
    tensors, extra = one.state()
    extra["policy"] = {"sampler": "torch"}
    two = made("ppo", DISCRETE, "gru")
    two.load_state(copied(tensors), extra)
    acted = two.policy.sample(observations(0, N), two.policy.initial_carry(N), np.ones(N, bool))
    assert acted.log_prob is None


def test_values_come_from_acting_while_the_network_is_the_one_that_acted() -> None:
    env = make_vector_env("CartPole-v1", N)
    spaces = {"observation_space": env.observation_space, "normalize_obs": False}
    agent = made("ppo", env.action_space, "gru", **spaces)
    collector = Collector(JournaledEnv(env), agent.policy, 12, seed=1, boundary_steps=10**9)
    try:
        for _ in range(3):
            rollout = collector.collect(0, None, version=agent.n_updates)
            assert rollout.value is not None
            wanted = values_by_torch(agent, rollout)
            close(agent.values(rollout), wanted)
            rollout.value[0] += 1.0  # taken from there, but not for a network that has changed
            assert abs(agent.values(rollout) - wanted).max() > 0.9
            close(agent.values(rollout, is_new=False), wanted)
            rollout.value[0] -= 1.0
            agent.update(rollout, 0, 1000)
            moved = values_by_torch(agent, rollout)
            assert not np.allclose(moved, wanted, rtol=1e-4, atol=1e-5)
            close(agent.values(rollout), moved)
    finally:
        collector.close()


def test_weights_are_packed_once_a_rollout_and_again_after_it() -> None:
    agent, other = made("ppo", DISCRETE, "gru"), made("ppo", DISCRETE, "gru", compile=False)
    obs, first = observations(0, 7), np.ones(7, bool)
    carry = agent.policy.initial_carry(7)

    def seen() -> Any:
        return agent.policy.sample(obs, carry, first).outputs

    before = seen()
    agent.policy.begin_rollout()
    held = [seen(), seen()]
    agent.policy.end_rollout()
    for found in held:
        np.testing.assert_array_equal(found, before)
    for one in (agent, other):
        move(one)
    wanted = other.policy.sample(obs, carry, first).outputs
    assert not np.allclose(wanted, before, rtol=1e-4, atol=1e-5)
    close(seen(), wanted)
    agent.policy.begin_rollout()
    close(seen(), wanted)
    # Few rows need no packed weights; more of them do.
    agent.policy.sample(obs[:2], agent.policy.initial_carry(2), first[:2])
    close(seen(), wanted)
    agent.policy.end_rollout()


def test_a_rollout_that_fails_does_not_hold_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    env = JournaledEnv(make_vector_env("CartPole-v1", N))
    agent = made("ppo", env.action_space, "gru", observation_space=env.observation_space)
    collector = Collector(env, agent.policy, 4, seed=1, boundary_steps=10**9)
    try:
        collector.collect(0, None)
        ended: list[None] = []
        monkeypatch.setattr(agent.policy, "end_rollout", lambda: ended.append(None))
        monkeypatch.setattr(env, "step", lambda actions: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            collector.collect(0, None)
        assert len(ended) == 1
    finally:
        collector.close()
