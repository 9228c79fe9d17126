"""Every algorithm: weights exported flat and imported elsewhere; losses under other parameters."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from gymnasium_solver.algos import ALGOS, algo_class
from gymnasium_solver.algos.policy_loss import Batch, evaluate_actions
from gymnasium_solver.algos.ppo import ppo_loss
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import RunError
from gymnasium_solver.fast.recorded import LossGradient
from gymnasium_solver.spaces.actions import DiscreteActions, action_kind
from gymnasium_solver.tree import leaves_of, map_tree, structure_of, unflatten
from tests.small import WORLD_MODELS

PARTS = spaces.Dict(
    [
        ("x", spaces.Box(-10, 10, (3,), np.float32)),
        ("room", spaces.Discrete(4)),
        ("map", spaces.Box(0, 4, (2, 2), np.uint8)),
    ]
)
BOX, DISCRETE = spaces.Box(-2, 2, (2,), np.float32), spaces.Discrete(3)
MULTI = spaces.MultiDiscrete([2, 3])
N_ENVS, N_STEPS = 2, 12
PLANNER = {**WORLD_MODELS["tdmpc2"], "pretrain_updates": 2}
DREAMER = {**WORLD_MODELS["dreamerv3"], "batch_size": 2, "updates_per_step": 0.1}
CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "ppo": ("ppo", DISCRETE, {"ent_coef": 0.01}),
    "ppo box": ("ppo", BOX, {"share_trunk": True}),
    "ppo multi discrete": ("ppo", MULTI, {}),
    "a2c": ("a2c", DISCRETE, {}),
    "reinforce": ("reinforce", DISCRETE, {"policy_targets": "advantages"}),
    "dqn": ("dqn", DISCRETE, {"double": True}),
    "rainbow": (
        "dqn",
        DISCRETE,
        {"double": True, "dueling": True, "noisy": True, "distributional": True},
    ),
    "pqn": ("pqn", DISCRETE, {}),
    "sarsa": ("sarsa", DISCRETE, {}),
    "sac": ("sac", BOX, {}),
    "sac discrete": ("sac", DISCRETE, {"entropy_penalty_coef": 0.5}),
    "sac spectral": ("sac", BOX, {"spectral_norm": True}),
    "td3": ("td3", BOX, {}),
    "ddpg": ("ddpg", BOX, {}),
    "crossq": ("crossq", BOX, {"critic_hidden_dims": [7]}),
    "tdmpc2": ("tdmpc2", BOX, PLANNER),
    "dreamerv3": ("dreamerv3", DISCRETE, DREAMER),
    "bc": ("bc", BOX, {"ent_coef": 0.01}),
    "bc discrete": ("bc", DISCRETE, {}),
}


def test_every_algorithm_is_here() -> None:
    # Random has no weights; MBIE's table is not for these observations (test_mbie.py).
    others = {"random", "mbie"}
    assert {algo_id for algo_id, _, _ in CASES.values()} | others == set(ALGOS)


def agent_for(case: str, seed: int = 0, **more: Any) -> Any:
    algo_id, space, fields = CASES[case]
    algo = algo_class(algo_id)
    small: dict[str, Any] = {
        "n_envs": N_ENVS,
        "hidden_dims": [6, 5],
        "batch_size": 8,
        "policy_lr": 0.01,
        "normalize_obs": "rolling",
        "compile": False,
    }
    if algo.Config.model_fields.get("learning_starts") is not None:
        small |= {"learning_starts": 4, "buffer_size": 200}
    else:
        small["n_steps"] = N_STEPS
    if algo_id in WORLD_MODELS:
        del small["hidden_dims"]
        own = "mlp_dim" if algo_id == "tdmpc2" else "units"
        more = {own if k == "hidden_dims" else k: v for k, v in more.items()}
        more = {k: v[-1] if k == own else v for k, v in more.items()}
    small = {k: v for k, v in small.items() if k in algo.Config.model_fields}
    config = algo.Config(env_id="x", algo_id=algo_id, **{**small, **fields, **more})
    return algo(config, PARTS, space, seed=seed)


def observations(lead: tuple[int, ...], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.normal(1, 2, (*lead, 3)).astype(np.float32),
        "room": rng.integers(0, 4, lead),
        "map": rng.integers(0, 5, (*lead, 2, 2)).astype(np.uint8),
    }


def rollout_for(case: str, seed: int = 0) -> Rollout:
    rng = np.random.default_rng(seed)
    actions = action_kind(CASES[case][1])
    rollout = Rollout.allocate(N_STEPS, N_ENVS, PARTS, actions, n_outputs=actions.n_outputs)
    rollout.obs = observations((N_STEPS + 1, N_ENVS), seed)
    drawn = actions.uniform(N_STEPS * N_ENVS, rng)
    rollout.actions[:] = drawn.reshape(rollout.actions.shape)
    rollout.reward[:] = rng.normal(size=rollout.reward.shape)
    rollout.valid[:] = True
    rollout.is_first[0] = True
    if actions.n_log_std:
        rollout.log_std = np.zeros(actions.n_log_std, np.float32)
    policy = agent_for(case).policy
    for name, part in policy.recorded_carry(policy.initial_carry(N_ENVS)).items():
        rollout.carry[name] = np.zeros((N_STEPS + 1, *part.shape), part.dtype)
    return rollout


def trained(case: str, seed: int = 0, **more: Any) -> Any:
    agent = agent_for(case, seed, **more)
    agent.before_rollout(1000, 2000)
    for i in range(2):
        agent.update(rollout_for(case, seed=i), 1000 + 24 * i, 2000)
    return agent


# -- flat weights ---------------------------------------------------------------------------------


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", CASES)
def test_another_agent_acts_by_what_was_exported(case: str) -> None:
    one, two = trained(case), agent_for(case, seed=5)
    obs, is_first = observations((16,), 3), np.ones(16, bool)
    two.policy.greedy(obs, two.policy.initial_carry(16), is_first)  # whatever it recorded before
    arrays = one.export_flat()
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    two.import_flat(arrays)
    assert two.n_updates == one.n_updates > 0
    for name, value in one.net.state_dict().items():
        assert torch.equal(value, two.net.state_dict()[name]), name
    for each in (one, two):
        each.policy.rng = np.random.default_rng(0)
        each.policy.is_random = False
        each.before_rollout(1000, 2000)
    carry = one.policy.initial_carry(16)
    for choose in ("greedy", "sample"):
        ours, theirs = (getattr(a.policy, choose)(obs, carry, is_first) for a in (one, two))
        np.testing.assert_array_equal(ours.actions, theirs.actions)
        if ours.outputs is not None:
            np.testing.assert_array_equal(ours.outputs, theirs.outputs)
    # In place: the optimisers hold the very numbers that the network has.
    for optimizer in two.optimizers.values():
        own = torch.cat([p.detach().reshape(-1) for p in optimizer.params])
        assert torch.equal(own, optimizer.flat)


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", CASES)
def test_an_export_is_a_copy(case: str) -> None:
    agent = trained(case)
    arrays = agent.export_flat()
    kept = copy.deepcopy(arrays)
    agent.update(rollout_for(case, seed=7), 1048, 2000)
    changed = False
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, kept[name], err_msg=name)
        changed |= not np.array_equal(array, agent.export_flat()[name])
    assert changed


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", CASES)
def test_weights_of_another_shape_are_refused_and_nothing_changes(case: str) -> None:
    wide, agent = agent_for(case, hidden_dims=[6, 7]), agent_for(case)
    before = [flat.clone() for flat in agent.learnt_weights()]
    with pytest.raises(RunError, match=r"weights\..* is missing or has a different shape"):
        agent.import_flat(wide.export_flat())
    arrays = agent.export_flat()
    del arrays[next(name for name in arrays if name.startswith("buffer."))]
    with pytest.raises(RunError, match=r"buffer\..* is missing"):
        agent.import_flat(arrays)
    assert all(map(torch.equal, before, agent.learnt_weights()))


# -- losses under other parameters ---------------------------------------------------------------


class LossOf(nn.Module):
    """A loss as a module around the network it reads, as torch.func takes it."""

    def __init__(self, net: nn.Module, gradient: LossGradient):
        super().__init__()
        self.net = net
        self.gradient = gradient

    def forward(self, batch: Any, coefficients: Any) -> Tensor:
        loss, _ = self.gradient.loss(batch, [torch.as_tensor(float(c)) for c in coefficients])
        return loss


def losses(case: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, dict[str, Any]]:
    """An agent, and what its update gave to each of its losses last."""
    agent, given = agent_for(case), {}
    original = LossGradient.__call__

    def spy(self: LossGradient, batch: Any, coefficients: Any) -> Any:
        name = next(name for name, own in agent.gradients.items() if own is self)
        numbers = [float(c) for c in coefficients]
        given[name] = (map_tree(torch.clone, batch), numbers)
        return original(self, batch, coefficients)

    monkeypatch.setattr(LossGradient, "__call__", spy)
    agent.before_rollout(1000, 2000)
    for i in range(2):
        agent.update(rollout_for(case, seed=i), 1000 + 24 * i, 2000)
    assert given.keys() == agent.gradients.keys()
    return agent, given


def moved(net: nn.Module, seed: int) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {
        name: p.detach() + 0.1 * torch.randn(p.shape, generator=g)
        for name, p in net.named_parameters()
    }


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", CASES)
def test_a_loss_under_other_parameters_is_that_of_a_network_which_has_them(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, given = losses(case, monkeypatch)
    original = {name: p.detach().clone() for name, p in agent.net.named_parameters()}
    for name, (batch, coefficients) in given.items():
        module = LossOf(agent.net, agent.gradients[name])
        other = moved(agent.net, seed=1)
        before = module(batch, coefficients).detach()
        parameters = {f"net.{key}": value.requires_grad_() for key, value in other.items()}
        got = functional_call(module, parameters, (batch, coefficients))
        got_grads = torch.autograd.grad(got, list(other.values()), allow_unused=True)
        torch.testing.assert_close(module(batch, coefficients).detach(), before)
        with torch.no_grad():
            for key, p in agent.net.named_parameters():
                p.copy_(other[key])
        expected = module(batch, coefficients)
        grads = torch.autograd.grad(expected, list(agent.net.parameters()), allow_unused=True)
        torch.testing.assert_close(got.detach(), expected.detach())
        assert not torch.allclose(before, expected.detach())
        for a, b in zip(got_grads, grads, strict=True):
            assert (a is None) == (b is None)
            if a is not None and b is not None:
                torch.testing.assert_close(a, b)
        with torch.no_grad():
            for key, p in agent.net.named_parameters():
                p.copy_(original[key])


# DreamerV3's scan has a gradient of its own, which vmap does not take.
@pytest.mark.sample(4)
@pytest.mark.parametrize("case", [case for case in CASES if case != "dreamerv3"])
def test_a_loss_mapped_over_stacked_parameters(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several members of a population in one pass."""
    agent, given = losses(case, monkeypatch)
    for name, (batch, coefficients) in given.items():
        module = LossOf(agent.net, agent.gradients[name])
        members = [moved(agent.net, seed) for seed in range(3)]
        stacked = {f"net.{key}": torch.stack([m[key] for m in members]) for key in members[0]}
        got = vmap(lambda p: functional_call(module, p, (batch, coefficients)))(stacked)  # noqa: B023
        for member, loss in zip(members, got, strict=True):
            named = {f"net.{key}": value for key, value in member.items()}
            alone = functional_call(module, named, (batch, coefficients))
            torch.testing.assert_close(loss, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("space", [DISCRETE, BOX, MULTI], ids=["discrete", "box", "multi"])
def test_ppo_losses_and_gradients_of_several_networks_at_once(space: Any) -> None:
    """Parameters and batches both stacked: each network learns from its own."""
    algo, actions = algo_class("ppo"), action_kind(space)
    config = algo.Config(env_id="x", algo_id="ppo", n_envs=1, hidden_dims=[6])
    agents: list[Any] = [algo(config, PARTS, space, seed=seed) for seed in range(3)]
    nets = [agent.net for agent in agents]
    names = ("clip_range", "vf_coef", "ent_coef", "clip_range_vf")
    c = dict(zip(names, torch.tensor([0.2, 0.5, 0.01, 0.3]).unbind(), strict=True))

    def batch_of(seed: int) -> Batch:
        g = torch.Generator().manual_seed(seed)
        columns = {
            name: torch.randn(20, generator=g)
            for name in ("log_prob", "advantage", "returns", "value")
        }
        drawn = actions.uniform(20, np.random.default_rng(seed))
        obs = map_tree(torch.as_tensor, observations((20,), seed))
        mask = None
        if isinstance(actions, DiscreteActions):
            mask = torch.ones(20, 3, dtype=torch.bool)
            mask[::2, 2] = False
            drawn = drawn % 2
        return Batch(obs=obs, actions=torch.as_tensor(drawn), mask=mask, **columns)

    class Ppo(nn.Module):
        def __init__(self, net: Any):
            super().__init__()
            self.net = net

        def forward(self, batch: Batch) -> Tensor:
            return ppo_loss(self.net, evaluate_actions(self.net, actions, batch), batch, c).total

    batches = [batch_of(seed) for seed in range(3)]
    structure = structure_of(batches[0])
    columns = [torch.stack(group) for group in zip(*map(leaves_of, batches), strict=True)]
    parameters, buffers = stack_module_state([Ppo(net) for net in nets])

    def loss(p: dict[str, Tensor], b: dict[str, Tensor], leaves: list[Tensor]) -> Tensor:
        found: Tensor = functional_call(Ppo(nets[0]), (p, b), (unflatten(structure, leaves),))
        return found

    grads, got = vmap(torch.func.grad_and_value(loss))(parameters, buffers, columns)
    for i, net in enumerate(nets):
        expected = ppo_loss(net, evaluate_actions(net, actions, batches[i]), batches[i], c).total
        torch.testing.assert_close(got[i], expected)
        own = torch.autograd.grad(expected, list(net.parameters()))
        for (name, _), grad in zip(net.named_parameters(), own, strict=True):
            torch.testing.assert_close(grads[f"net.{name}"][i], grad, rtol=1e-4, atol=1e-5)
