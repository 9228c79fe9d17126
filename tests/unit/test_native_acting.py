"""Compiled acting and values: NumPy's and torch's results from the same random numbers, by steps
that resume in the same form."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymnasium_solver.errors import Unsupported
from gymnasium_solver.fast import execution, forward, recorded
from gymnasium_solver.fast.native import build
from tests.acting import values_by_torch
from tests.unit.test_learner_state import (
    BOX,
    DISCRETE,
    OBS,
    acted,
    agent_for,
    assert_same_weights,
    prepared,
    random_rollout,
)

needs_compiler = pytest.mark.skipif(not build.can_compile(), reason="needs a C compiler")
FIRST = np.ones(5, bool)


def observations(seed: int, n: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).normal(1, 2, (n, 3)).astype(np.float32)


def learn(agent: Any, space: Any, seed: int) -> None:
    agent.update(acted(agent, random_rollout(space, seed)), 24, 100)


@needs_compiler
@pytest.mark.parametrize("space", [DISCRETE, BOX], ids=["discrete", "box"])
def test_samples_are_those_of_the_same_random_numbers(space: Any) -> None:
    fields: dict[str, Any] = {"normalize_obs": "rolling", "n_epochs": 2}
    ours, plain = (agent_for("ppo", space, compile=c, **fields) for c in ("native", False))
    for seed in range(3):
        for agent in (ours, plain):
            learn(agent, space, seed)  # weights and statistics of observations move
        plain.load_weights({k: v.numpy().copy() for k, v in ours.net.state_dict().items()})
        for n in (5, 5, 2):  # memory follows the number of rows
            obs = observations(seed, n)
            mine, other = (a.policy.sample(obs, {}, FIRST[:n]) for a in (ours, plain))
            assert other.log_prob is None
            np.testing.assert_allclose(mine.actions, other.actions, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(mine.outputs, other.outputs, rtol=1e-4, atol=1e-5)
            assert mine.actions.dtype == other.actions.dtype
            log_prob, _ = plain.actions.log_prob_entropy(
                torch.from_numpy(other.outputs), plain.net.log_std, torch.from_numpy(other.actions)
            )
            np.testing.assert_allclose(mine.log_prob, log_prob.detach(), rtol=1e-4, atol=1e-5)
        assert ours.policy.rng.bit_generator.state == plain.policy.rng.bit_generator.state
    assert ours.policy.state() == {"sampler": "compiled"}
    assert plain.policy.state() == {"sampler": "torch"}


@needs_compiler
@pytest.mark.parametrize(
    ("algo_id", "space"), [("ppo", DISCRETE), ("a2c", BOX), ("reinforce", DISCRETE)]
)
def test_values_are_torchs(algo_id: str, space: Any) -> None:
    agent = agent_for(algo_id, space, compile="native", normalize_obs="rolling")
    for seed in range(2):
        learn(agent, space, seed)
    rollout = acted(agent, random_rollout(space, 9))
    wanted: Any
    if agent.net.critic_head is not None:
        wanted = values_by_torch(agent, rollout)
        np.testing.assert_allclose(agent.values(rollout), wanted, rtol=1e-4, atol=1e-5)
        assert agent.forwards["value"].mode == "compiled"


@needs_compiler
@pytest.mark.parametrize("space", [DISCRETE, BOX], ids=["discrete", "box"])
@pytest.mark.parametrize(
    "fields",
    [{}, {"ent_coef": 0.1, "clip_range_vf": 0.1, "dual_clip": 3.0, "normalize_values": True}],
    ids=["plain", "all terms"],
)
def test_the_metrics_of_an_update_are_torchs(space: Any, fields: dict[str, Any]) -> None:
    """Compiled metrics of the policy after the update, on as many rows as each rollout has."""
    agent = agent_for("ppo", space, compile="native", n_epochs=3, policy_lr=0.02, **fields)
    for seed in range(2):
        learn(agent, space, seed)
    seen = set()
    for seed in (7, 8, 9):
        rollout = acted(agent, random_rollout(space, seed))
        data = prepared(agent, rollout.first(len(rollout.valid) - (seed == 8)))
        data.batch.log_prob.sub_(torch.linspace(-0.6, 0.6, data.batch.n))  # some ratios are clipped
        hp = agent.scheduled_values(0, 100)
        coefficients = {name: hp[name] for name in agent.numbers}
        found = agent._measure(data, coefficients)
        numbers = [torch.tensor(value) for value in coefficients.values()]
        with torch.no_grad():
            wanted = agent.measured(data.batch, numbers)
        assert len(found) == len(wanted) == (8 if fields else 7)
        for got, torchs in zip(found.values(), wanted, strict=True):
            torch.testing.assert_close(got, torchs, rtol=1e-4, atol=1e-5)
        assert 0 < float(found["opt/ppo/clip_fraction"]) < 1
        seen.add(data.batch.n)
    assert agent.forwards["measure"].mode == "compiled"
    assert len(seen) > 1


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


@needs_compiler
@pytest.mark.parametrize("space", [DISCRETE, BOX], ids=["discrete", "box"])
def test_a_loaded_learner_goes_on_in_the_same_form(space: Any) -> None:
    one = agent_for("ppo", space, compile="native", normalize_obs="rolling")
    one.policy.sample(observations(0), {}, FIRST)
    learn(one, space, 1)
    saved = one.state()
    two = agent_for("ppo", space, seed=99, compile="numpy", normalize_obs="rolling")
    two.load_state(copied(saved[0]), json.loads(json.dumps(saved[1])))
    for seed in range(2):
        obs = observations(seed)
        mine, other = (a.policy.sample(obs, {}, FIRST) for a in (one, two))
        np.testing.assert_array_equal(mine.actions, other.actions)
        np.testing.assert_array_equal(mine.log_prob, other.log_prob)
        for agent in (one, two):
            learn(agent, space, seed)
        assert_same_weights(one, two)
    assert {f.mode for f in two.forwards.values()} == {"compiled"}


def copied(tensors: Any) -> Any:
    return {
        file: {name: value.numpy().copy() for name, value in named.items()}
        for file, named in tensors.items()
    }


@needs_compiler
def test_a_run_of_an_older_version_goes_on_without_compiled_passes() -> None:
    one = agent_for("ppo", compile="native")
    tensors, extra = one.state()
    del extra["forwards"]
    extra["policy"] = {}
    two = agent_for("ppo", compile="native")
    two.load_state(copied(tensors), extra)
    assert two.policy.sample(observations(0), {}, FIRST).log_prob is None
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


def test_observations_of_several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    if not build.can_compile():
        pytest.skip("needs a C compiler")
    parts = spaces.Dict({"x": OBS, "task": spaces.Discrete(4)})
    ours, plain = (agent_for("ppo", observation_space=parts, compile=c) for c in ("native", False))
    rng = np.random.default_rng(0)
    for seed in range(3):
        obs = {"x": observations(seed), "task": rng.integers(0, 4, 5)}
        mine, other = (a.policy.sample(obs, {}, FIRST) for a in (ours, plain))
        np.testing.assert_array_equal(mine.actions, other.actions)
        np.testing.assert_allclose(mine.outputs, other.outputs, rtol=1e-4, atol=1e-6)
    assert ours.policy.state() == {"sampler": "compiled"}
