"""The NumPy replay of a gradient is the torch gradient, for every loss and at every batch size."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymnasium_solver import tree
from gymnasium_solver.algos.policy_loss import Batch
from gymnasium_solver.algos.ppo import PPO, PPOConfig
from gymnasium_solver.algos.reinforce import Reinforce, ReinforceConfig
from gymnasium_solver.fast import aten, recorded
from gymnasium_solver.spaces.actions import action_kind

DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)
OBS = spaces.Box(-10, 10, (5,), np.float32)
PARTS = spaces.Dict(
    [
        ("x", spaces.Box(-10, 10, (5,), np.float32)),
        ("room", spaces.Discrete(4, start=1)),
        ("cells", spaces.MultiDiscrete([2, 3])),
        ("map", spaces.Box(0, 4, (2, 2), np.uint8)),
        ("word", spaces.Discrete(5000)),
    ]
)
ACTION_SPACES = {
    "discrete": DISCRETE,
    "box": BOX,
    "multi discrete": spaces.MultiDiscrete([2, 3]),
    "multi binary": spaces.MultiBinary(3),
    "product": spaces.Dict([("a", BOX), ("b", spaces.Tuple([DISCRETE, spaces.MultiBinary(2)]))]),
}


def loss_of(agent: Any) -> Any:
    """The loss of a learner as programs take it, with a list of numbers."""
    names = ("ent_coef", "vf_coef") if isinstance(agent, Reinforce) else agent.numbers
    agent.descent._given = tuple(names)
    return agent.descent._on_list


def ppo(action_space, observation_space=OBS, **fields):
    config = PPOConfig(env_id="x", algo_id="ppo", n_envs=1, n_steps=64, **fields)
    agent = PPO(config, observation_space, action_space, seed=0)
    # The head starts near zero, where every distribution looks alike.
    agent.net.get_parameter("actor_head.weight").data.normal_(
        generator=torch.Generator().manual_seed(1)
    )
    return agent


def parts_of(n, seed):
    rng = np.random.default_rng(seed)
    obs = {
        "x": rng.normal(size=(n, 5)).astype(np.float32),
        "room": rng.integers(1, 5, n),
        "cells": rng.integers(0, [2, 3], (n, 2)),
        "map": rng.integers(0, 5, (n, 2, 2)).astype(np.uint8),
        "word": rng.integers(0, 5000, n),
    }
    return tree.map_tree(torch.as_tensor, obs)


def batch_of(n, action_space, seed=0, observation_space=OBS, masked=False):
    g = torch.Generator().manual_seed(seed)
    actions = action_kind(action_space)
    normal = lambda *shape: torch.randn(*shape, generator=g)  # noqa: E731
    mask = None
    if masked:
        assert actions.n_mask is not None
        mask = torch.rand(n, actions.n_mask, generator=g) < 0.7
        mask[:, [0, -1]] = True  # each component has a legal action
    legal = None if mask is None else mask.numpy()
    return Batch(
        obs=normal(n, 5) if observation_space is OBS else parts_of(n, seed),
        actions=torch.as_tensor(actions.uniform(n, np.random.default_rng(seed), legal)),
        log_prob=-1.5 + 0.3 * normal(n),
        advantage=normal(n),
        returns=normal(n),
        value=normal(n),
        mask=mask,
    )


def on_columns(loss, batch):
    """A loss of a tree as one of its columns, as recordings take it."""
    structure = tree.structure_of(batch)
    return lambda columns, c: loss(tree.unflatten(structure, columns), c)


def record(agent, batch, coefficients):
    columns = tree.leaves_of(batch)
    return recorded.record_gradient(
        on_columns(loss_of(agent), batch), agent.descent.optimizer.params, columns, coefficients,
        list(agent.encoder.buffers()),
    )  # fmt: skip


def check(agent, make, coefficients):
    """The gradient is recorded, and at every size what torch computes."""
    gradient = recorded.LossGradient(
        loss_of(agent),
        agent.descent.optimizer.params,
        record=True,
        constants=list(agent.encoder.buffers()),
    )
    gradient(make(64, 0), coefficients)
    assert gradient.mode == "recorded", "this loss should be replayable"
    for n in (1, 2, 61, 100):
        batch = make(n, n)
        expected = recorded.eager(
            loss_of(agent), agent.descent.optimizer.params, batch, coefficients
        )
        got = gradient(batch, coefficients)
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


VARIANTS = [
    {},
    {"ent_coef": 0.01},
    {"clip_range_vf": 0.2, "ent_coef": 0.01},
    {"target_kl": 0.01},
    {"activation": "relu"},
    {"share_trunk": True},
    {"hidden_dims": []},
    {"hidden_dims": [61, 67]},  # the sizes that recording probes with
]


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
@pytest.mark.parametrize("action_space", [DISCRETE, BOX], ids=["discrete", "box"])
def test_replay_equals_torch(action_space, fields):
    agent = ppo(action_space, **fields)
    coefficients = [0.2, 0.5, 0.01, 0.3][: len(agent.numbers)]
    check(agent, lambda n, seed: batch_of(n, action_space, seed), coefficients)


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", ACTION_SPACES)
@pytest.mark.parametrize("observation_space", [OBS, PARTS], ids=["array", "dict"])
@pytest.mark.parametrize("normalize", [False, "rolling", "static"])
def test_replay_of_every_kind_of_action_and_observation(name, observation_space, normalize):
    space = ACTION_SPACES[name]
    agent = ppo(space, observation_space, ent_coef=0.01, normalize_obs=normalize)
    make = lambda n, seed: batch_of(n, space, seed, observation_space)  # noqa: E731
    agent.encoder.observe(tree.map_tree(lambda part: part.numpy(), make(50, 9).obs))
    check(agent, make, [0.2, 0.5, 0.01])


@pytest.mark.parametrize("name", ["discrete", "multi discrete"])
def test_replay_with_masks(name):
    space = ACTION_SPACES[name]
    agent = ppo(space, ent_coef=0.01)
    make = lambda n, seed: batch_of(n, space, seed, masked=True)  # noqa: E731
    check(agent, make, [0.2, 0.5, 0.01])


def test_replay_follows_weights_statistics_and_coefficients():
    agent = ppo(DISCRETE, ent_coef=0.01, normalize_obs="rolling")
    batch = batch_of(64, DISCRETE)
    gradient = recorded.LossGradient(
        loss_of(agent),
        agent.descent.optimizer.params,
        record=True,
        constants=list(agent.encoder.buffers()),
    )
    before = gradient(batch, [0.2, 0.5, 0.01])[0].clone()
    assert gradient.mode == "recorded"
    assert not torch.allclose(before, gradient(batch, [0.2, 0.1, 0.01])[0])
    agent.descent.optimizer.step(before, lr=0.1)
    agent.encoder.observe(np.random.default_rng(0).normal(3, 4, (50, 5)).astype(np.float32))
    after = gradient(batch, [0.2, 0.5, 0.01])[0]
    expected = recorded.eager(
        loss_of(agent), agent.descent.optimizer.params, batch, [0.2, 0.5, 0.01]
    )[0]
    torch.testing.assert_close(after, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("targets", ["returns", "advantages"])
def test_reinforce_replays_too(targets):
    config = ReinforceConfig(env_id="x", algo_id="reinforce", n_envs=1, policy_targets=targets)
    agent = Reinforce(config, OBS, DISCRETE, seed=0)
    check(agent, lambda n, seed: batch_of(n, DISCRETE, seed), [0.01, 0.5])


# -- the mode of a gradient ------------------------------------------------------------------------


def gradient_of(agent):
    return recorded.LossGradient(loss_of(agent), agent.descent.optimizer.params, record=True)


def test_the_mode_is_decided_by_the_first_batch():
    gradient = gradient_of(ppo(DISCRETE))
    assert gradient.mode is None
    gradient(batch_of(64, DISCRETE), [0.2, 0.5])
    assert gradient.mode == "recorded"
    plain = recorded.LossGradient(gradient.loss, gradient.params, record=False)
    assert plain.mode == "torch"


def test_a_resumed_gradient_does_not_decide_again(monkeypatch):
    """Whether a recording agrees with torch depends on the batch: the run after a resume begins
    with another one, and would compute in another way from there on."""
    agent, batch = ppo(DISCRETE), batch_of(64, DISCRETE)
    torch_first = gradient_of(agent)
    torch_first.resume("torch")
    got = torch_first(batch, [0.2, 0.5])
    assert torch_first.mode == "torch"
    expected = recorded.eager(loss_of(agent), agent.descent.optimizer.params, batch, [0.2, 0.5])
    assert torch.equal(got[0], expected[0])

    monkeypatch.setattr(recorded, "_agrees", lambda *_: False)
    undecided = gradient_of(agent)
    undecided(batch, [0.2, 0.5])
    assert undecided.mode == "torch"
    known = gradient_of(agent)
    known.resume("recorded")
    known(batch, [0.2, 0.5])
    assert known.mode == "recorded", "it was checked in the run before"
    unknown = gradient_of(agent)
    unknown.resume(None)
    assert unknown.mode is None


def test_resume_does_not_turn_off_what_the_config_asks_for():
    agent = ppo(DISCRETE)
    plain = recorded.LossGradient(loss_of(agent), agent.descent.optimizer.params, record=False)
    plain.resume("recorded")
    assert plain.mode == "torch"


# -- what is not used ------------------------------------------------------------------------------


@pytest.mark.parametrize("replay", [np.sin, lambda: None], ids=["wrong", "broken"])
def test_a_wrong_or_broken_replay_is_not_used(replay, monkeypatch):
    monkeypatch.setitem(aten.OPERATIONS, "tanh.default", replay)
    agent = ppo(DISCRETE)
    batch = batch_of(64, DISCRETE)
    assert record(agent, batch, [0.2, 0.5]) is None
    gradient = gradient_of(agent)
    got = gradient(batch, [0.2, 0.5])[0]
    assert gradient.mode == "torch"
    expected = recorded.eager(loss_of(agent), agent.descent.optimizer.params, batch, [0.2, 0.5])[0]
    torch.testing.assert_close(got, expected)
