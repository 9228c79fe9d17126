"""Compiled acting, values and metrics, with and without memory: the results of NumPy and torch from
the same random numbers, with carries that reset where an episode starts, in a form that resumes."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.errors import Unsupported
from gymnasium_solver.fast import execution, forward, recorded
from gymnasium_solver.fast.native import build
from gymnasium_solver.training.collect import Collector
from tests.acting import values_by_torch
from tests.unit.test_learner_state import (
    BOX,
    DISCRETE,
    OBS,
    acted,
    agent_for,
    array_of,
    assert_same_weights,
    prepared,
    random_rollout,
)

needs_compiler = pytest.mark.skipif(not build.can_compile(), reason="needs a C compiler")
N = 5
FIRST = np.ones(N, bool)
MEMORY = ["gru", "lstm", "rnn"]
ALL_TERMS = {"ent_coef": 0.1, "clip_range_vf": 0.1, "dual_clip": 3.0, "normalize_values": True}


def observations(seed: int, n: int = N) -> np.ndarray:
    return np.random.default_rng(seed).normal(1, 2, (n, 3)).astype(np.float32)


def made(algo_id: str, space: Any = DISCRETE, kind: str | None = None, **fields: Any) -> Any:
    """An agent that compiles, with this kind of memory or none."""
    own: dict[str, Any] = {"compile": "native", "normalize_obs": "rolling"}
    if kind is not None:
        own |= {"recurrent": kind, "recurrent_dim": 4, "sequence_length": 4}
    return agent_for(algo_id, space, **{**own, **fields})


def remembered(agent: Any, space: Any, seed: int) -> Rollout:
    """A rollout with the carries and distributions of this agent."""
    rollout = random_rollout(space, seed)
    if agent.net.core is None:
        return acted(agent, rollout)
    obs, outputs = array_of(rollout), []
    carry = agent.policy.initial_carry(obs.shape[1])
    rollout.carry = {"core": np.zeros((len(obs), *carry["core"].shape), np.float32)}
    for t, rows in enumerate(obs):
        rollout.carry["core"][t] = carry["core"]
        found = agent.policy.greedy(rows, carry, rollout.is_first[t])
        outputs.append(found.outputs)
        carry = found.carry
    rollout.outputs, rollout.log_std = np.stack(outputs[:-1]), agent.policy.log_std()
    return rollout


def learn(agent: Any, space: Any, seed: int) -> None:
    agent.update(remembered(agent, space, seed), 24, 100)


def move(agent: Any, seed: int = 5) -> None:
    """Weights and statistics of observations as after some updates."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in agent.net.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    agent.encoder.observe(observations(seed + 2, 50))


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@needs_compiler
@pytest.mark.sample(3)
@pytest.mark.parametrize("space", [DISCRETE, BOX], ids=["discrete", "box"])
@pytest.mark.parametrize("kind", [None, *MEMORY])
def test_samples_and_carries_are_those_of_the_same_random_numbers(
    kind: str | None, space: Any
) -> None:
    ours, plain = made("ppo", space, kind), made("ppo", space, kind, compile=False)
    for seed, n in enumerate((N, 2)):  # what it keeps follows the number of rows
        for agent in (ours, plain):
            move(agent, seed)
        carries = [agent.policy.initial_carry(n) for agent in (ours, plain)]
        firsts = np.random.default_rng(1).random((6, n)) < 0.4
        firsts[0] = True
        for t, first in enumerate(firsts):
            obs = observations(t, n)
            mine, other = (
                agent.policy.sample(obs, carry, first)
                for agent, carry in zip((ours, plain), carries, strict=True)
            )
            greedy = ours.policy.greedy(obs, carries[0], first)  # an evaluation sees the same
            for found in (other, greedy):
                close(mine.outputs, found.outputs)
                for name, part in mine.carry.items():
                    close(part, found.carry[name])
            close(mine.actions, other.actions)
            assert mine.actions.dtype == other.actions.dtype
            assert other.log_prob is None
            log_prob, _ = plain.actions.log_prob_entropy(
                torch.from_numpy(other.outputs), plain.net.log_std, torch.from_numpy(other.actions)
            )
            close(mine.log_prob, log_prob.detach())
            carries = [mine.carry, other.carry]
    assert ours.policy.rng.bit_generator.state == plain.policy.rng.bit_generator.state
    assert ours.policy.state() == {"sampler": "compiled"}
    assert plain.policy.state() == {"sampler": "torch"}


@needs_compiler
@pytest.mark.parametrize("kind", MEMORY)
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


@needs_compiler
@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("algo_id", "space", "kind"),
    [
        *(("ppo", DISCRETE, None), ("a2c", BOX, None)),
        *(("ppo", DISCRETE, "gru"), ("ppo", DISCRETE, "lstm"), ("a2c", DISCRETE, "lstm")),
        *(("a2c", DISCRETE, "rnn"), ("reinforce", DISCRETE, "gru")),
    ],
)
def test_values_are_torchs_with_the_carry_of_acting_also_at_a_truncation(
    algo_id: str, space: Any, kind: str | None
) -> None:
    fields = {"baseline": "value"} if algo_id == "reinforce" else {}
    agent = made(algo_id, space, kind, **fields)
    move(agent)
    rollout = remembered(agent, space, 1)
    found = agent.values(rollout)
    assert agent.forwards["value"].mode == "compiled"
    close(found, values_by_torch(agent, rollout))
    if kind is None:
        return
    # Row 7 of env 1 is the final observation of a truncated episode, row 8 starts the next one.
    assert rollout.truncated[6, 1]
    assert rollout.is_first[8, 1]
    rollout.carry["core"][7:9, 1] += 1.0
    changed = agent.values(rollout) != found
    assert changed[7, 1]
    assert changed.sum() == 1


@needs_compiler
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("kind", "space", "fields"),
    [
        *((None, space, fields) for space in (DISCRETE, BOX) for fields in ({}, ALL_TERMS)),
        *((kind, DISCRETE, {"ent_coef": 0.1}) for kind in MEMORY),
    ],
)
def test_the_metrics_of_an_update_are_torchs(
    kind: str | None, space: Any, fields: dict[str, Any]
) -> None:
    """Compiled metrics of the policy after the update, on as many rows as each rollout has."""
    agent = made("ppo", space, kind, **fields)
    move(agent)
    hp = agent.scheduled_values(0, 100)
    coefficients = {name: hp[name] for name in agent.numbers}
    numbers = [torch.tensor(value) for value in coefficients.values()]
    seen = set()
    for seed in (7, 8) if kind is None else (7,):
        rollout = remembered(agent, space, seed)
        data = prepared(agent, rollout.first(len(rollout.valid) - (seed == 8)))
        log_prob = data.batch.log_prob
        log_prob.sub_(torch.linspace(-0.6, 0.6, log_prob.numel()).view(log_prob.shape))
        found = agent._measure(data, coefficients)  # some ratios are clipped
        with torch.no_grad():
            wanted = agent.measured(data.batch, numbers)
        assert len(found) == len(wanted) == (8 if "clip_range_vf" in fields else 7)
        for got, torchs in zip(found.values(), wanted, strict=True):
            torch.testing.assert_close(got, torchs, rtol=1e-4, atol=1e-5)
        assert 0 < float(found["opt/ppo/clip_fraction"]) < 1
        seen.add(data.batch.n)
    assert agent.forwards["measure"].mode == "compiled"
    assert len(seen) == (2 if kind is None else 1)


@needs_compiler
@pytest.mark.parametrize(
    ("space", "fields"),
    [
        (BOX, {"sde": True}),
        (BOX, {"action_dist": "beta"}),
        (spaces.MultiDiscrete([2, 3]), {}),
        (DISCRETE, {"compile": "numpy"}),
    ],
    ids=["sde", "beta", "multidiscrete", "numpy"],
)
def test_other_policies_act_as_before(space: Any, fields: dict[str, Any]) -> None:
    ours, plain = (agent_for("ppo", space, **{"compile": c} | fields) for c in ("native", False))
    for seed in range(3):
        found = []
        for agent in (ours, plain):
            carry = agent.policy.initial_carry(5)
            found.append(agent.policy.sample(observations(seed), carry, FIRST))
        np.testing.assert_array_equal(found[0].actions, found[1].actions)
        assert found[0].log_prob is None
        assert found[0].outputs is not None


@needs_compiler
def test_masked_actions_are_sampled_in_c() -> None:
    ours, plain = (agent_for("ppo", DISCRETE, compile=c) for c in ("native", False))
    rng = np.random.default_rng(0)
    for seed in range(4):
        legal = rng.random((5, 3)) < 0.5
        legal[np.arange(5), rng.integers(3, size=5)] = True
        masks = None if seed == 3 else legal  # without one all actions are legal
        for act in ("sample", "greedy"):
            got, wanted = (
                getattr(agent.policy, act)(observations(seed), {}, FIRST, masks)
                for agent in (ours, plain)
            )
            np.testing.assert_array_equal(got.actions, wanted.actions)
            np.testing.assert_allclose(got.outputs, wanted.outputs, rtol=1e-4, atol=1e-5)
            assert (got.log_prob is None) == (act == "greedy")
        assert masks is None or legal[np.arange(5), got.actions].all()
    assert ours.policy.takes_masks
    late = agent_for("ppo", DISCRETE, compile="native").policy
    late.sample(observations(0), {}, FIRST)
    found = late.sample(observations(0), {}, FIRST, legal)  # compiled without masks
    assert legal[np.arange(5), found.actions].all()


def copied(tensors: Any) -> Any:
    return {
        file: {name: value.numpy().copy() for name, value in named.items()}
        for file, named in tensors.items()
    }


@needs_compiler
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("kind", "space"), [(None, DISCRETE), (None, BOX), *((kind, DISCRETE) for kind in MEMORY)]
)
def test_a_loaded_learner_goes_on_in_the_same_form(kind: str | None, space: Any) -> None:
    one = made("ppo", space, kind)
    carry = one.policy.sample(observations(0), one.policy.initial_carry(N), FIRST).carry
    learn(one, space, 1)
    saved = one.state()
    two = made("ppo", space, kind, seed=99, compile="numpy")
    two.load_state(copied(saved[0]), json.loads(json.dumps(saved[1])))
    for seed in range(2):
        obs = observations(seed)
        mine, other = (a.policy.sample(obs, carry, ~FIRST) for a in (one, two))
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_equal(a, b)
        carry = mine.carry
        for agent in (one, two):
            learn(agent, space, seed)
        assert_same_weights(one, two)
    assert {f.mode for f in two.forwards.values()} == {"compiled"}
    assert two.policy.state() == {"sampler": "compiled"}


@needs_compiler
@pytest.mark.parametrize("kind", [None, "gru"])
def test_a_run_of_an_older_version_goes_on_without_compiled_passes(kind: str | None) -> None:
    one, two = made("ppo", kind=kind), made("ppo", kind=kind)
    tensors, extra = one.state()
    del extra["forwards"]
    extra["policy"] = {}
    two.load_state(copied(tensors), extra)
    sampled = two.policy.sample(observations(0), two.policy.initial_carry(N), FIRST)
    assert sampled.log_prob is None
    learn(two, DISCRETE, 1)
    assert {f.mode for f in two.forwards.values()} == {"torch"}
    assert two.descent.mode == "compiled"


def test_without_a_compiler_it_acts_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (execution, recorded, forward):
        monkeypatch.setattr(module, "can_compile", lambda: False)
    ours, plain = (agent_for("ppo", compile=c) for c in ("native", "numpy"))
    for agent in (ours, plain):
        learn(agent, DISCRETE, 1)
    assert_same_weights(ours, plain)
    mine, other = (a.policy.sample(observations(0), {}, FIRST) for a in (ours, plain))
    np.testing.assert_array_equal(mine.actions, other.actions)
    assert mine.log_prob is None
    tensors, extra = plain.state()
    extra["forwards"] = dict.fromkeys(extra["forwards"], "compiled")
    extra["policy"] = {"sampler": "compiled"}
    resumed = agent_for("ppo", compile="native")
    resumed.load_state(copied(tensors), extra)
    assert sum("continues with NumPy" in note for note in resumed.notes) == 1
    learn(resumed, DISCRETE, 2)
    assert resumed.policy.sample(observations(0), {}, FIRST).log_prob is None


@needs_compiler
def test_what_cannot_be_compiled_is_computed_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: Any) -> None:
        raise Unsupported("no C form")

    monkeypatch.setattr(forward, "NativeForward", unsupported)
    ours, plain = (agent_for("ppo", compile=c) for c in ("native", False))
    for seed in range(2):
        mine, other = (a.policy.sample(observations(seed), {}, FIRST) for a in (ours, plain))
        np.testing.assert_array_equal(mine.actions, other.actions)
    assert ours.policy.state() == {"sampler": "torch"}
    rollout = acted(ours, random_rollout(DISCRETE, 1))
    wanted = values_by_torch(ours, rollout)
    np.testing.assert_array_equal(ours.values(rollout), wanted)


@needs_compiler
def test_observations_of_several_parts() -> None:
    parts = spaces.Dict({"x": OBS, "task": spaces.Discrete(4)})
    ours, plain = (agent_for("ppo", observation_space=parts, compile=c) for c in ("native", False))
    rng = np.random.default_rng(0)
    for seed in range(3):
        obs = {"x": observations(seed), "task": rng.integers(0, 4, 5)}
        mine, other = (a.policy.sample(obs, {}, FIRST) for a in (ours, plain))
        np.testing.assert_array_equal(mine.actions, other.actions)
        np.testing.assert_allclose(mine.outputs, other.outputs, rtol=1e-4, atol=1e-6)
    assert ours.policy.state() == {"sampler": "compiled"}


@needs_compiler
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


@needs_compiler
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


@needs_compiler
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
