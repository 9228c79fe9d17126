"""SAC, TD3 and DDPG with a recurrent core: sequences, burn-in, masks and acting, against plain
updates and plain loops."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gymnasium_solver.algos.batch_rows import rows_of
from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.data.sequences import SequenceBatch
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.native.build import can_compile
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.prepare import build_config
from gymnasium_solver.tree import map_tree
from tests.acting import collecting

BURN_IN, LENGTH, DIM = 2, 5, 4
PENDULUM = {"env_id": "Pendulum-v1", "max_episode_steps": 9}
CARTPOLE = {"env_id": "CartPole-v1", "max_episode_steps": 9}


def config_of(algo_id: str = "sac", **fields: Any) -> Any:
    small = {
        "n_envs": 3, "n_steps": 40, "train_freq": 120, "hidden_dims": [6, 6], "batch_size": 20,
        "buffer_size": 400, "learning_starts": 10, "seed": 1, "normalize_obs": False,
        "normalize_reward": False, "updates_per_step": 3 / 120, "compile": False,
    }  # fmt: skip
    memory = {
        "recurrent": "gru", "recurrent_dim": DIM, "burn_in": BURN_IN, "sequence_length": LENGTH
    }  # fmt: skip
    return build_config({"algo_id": algo_id, **PENDULUM, **small, **memory, **fields})


def filled(algo_id: str = "sac", n_rollouts: int = 1, **fields: Any) -> Any:
    """An agent whose replay has rollouts that its own network acted."""
    agent, collector = collecting(config_of(algo_id, **fields))
    for _ in range(n_rollouts):
        agent.last = collector.collect(0, None)
        agent.remember(agent.last)
    return agent


def sequences_of(agent: Any, n: int = 6) -> SequenceBatch:
    found: SequenceBatch = agent.on_device(
        agent.memory.sequences(n, agent.sequences.n_rows, 1.0, True)
    )
    if not hasattr(agent, "n_actions") or not agent.n_actions:
        shape = found.actions.shape
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        found = found._replace(noise=noise)
    return found


def losses_of(agent: Any, batch: Any, actor_batch: Any) -> list[tuple[Tensor, dict[str, Tensor]]]:
    numbers = {
        "sac": {"alpha": torch.tensor(0.3), "penalty_coef": torch.tensor(0.0)},
        "td3": {"noise_std": torch.tensor(0.2), "noise_clip": torch.tensor(0.5)},
    }.get(agent.config.algo_id, {})
    return [agent.critic_loss(batch, numbers), agent.actor_loss(actor_batch, numbers)]


def transitions_as_sequences(batch: ReplayBatch) -> SequenceBatch:
    """Sequences of a single row, without burn-in."""
    n = len(batch.reward)
    cores = {name: torch.zeros(n, DIM) for name in ("core", "critic_core")}

    def as_rows(column: Tensor) -> Tensor:
        return column.unsqueeze(1)

    return SequenceBatch(
        obs=torch.stack([batch.obs, batch.next_obs], 1),
        is_first=torch.zeros(n, 2, dtype=torch.bool),
        carry=cores,
        actions=as_rows(batch.actions),
        reward=as_rows(batch.reward),
        discount=as_rows(batch.discount),
        place=torch.ones(n, 1, dtype=torch.int64),
        valid=torch.ones(n, 1),
        weight=batch.weight,
        noise=None if batch.noise is None else as_rows(batch.noise),
    )


def without_core(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Parameters, or their gradients, as those of the same network without memory: the columns of
    the first layers that read the core are left out."""
    found = {}
    for name, value in tensors.items():
        wide = [d for d, size in enumerate(value.shape) if size in (3 + DIM, 4 + DIM)]
        if name.endswith("weight") and "layers.0" in name and wide:
            kept = [*range(3), *range(3 + DIM, value.shape[wide[0]])]
            value = value.index_select(wide[0], torch.tensor(kept))
        found[name] = value
    return found


def gradients_of(module: torch.nn.Module, loss: Tensor) -> dict[str, Tensor]:
    named = dict(module.named_parameters())
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {name: g for name, g in zip(named, found, strict=True) if g is not None}


@pytest.mark.parametrize("algo_id", ["sac", "td3", "ddpg"])
def test_a_core_that_says_nothing_is_the_plain_update(algo_id: str) -> None:
    """With weights of 0 a GRU puts out 0 from a carry of 0: losses, errors and gradients are those
    of the network without it."""
    config = config_of(algo_id, burn_in=0, sequence_length=1)
    env = env_from_config(config, 1)
    agent: Any = build_agent(config, env.observation_space, env.action_space)
    plain: Any = build_agent(
        config.replace(recurrent=None), env.observation_space, env.action_space
    )
    with torch.no_grad():
        for optimizer in agent.optimizers.values():
            for module in [g.module for g in optimizer.groups]:
                for parameter in getattr(module, "core", torch.nn.Module()).parameters():
                    parameter.zero_()
            optimizer.copy_to_targets()
        weights = without_core(dict(agent.net.named_parameters()))
        for name, value in plain.net.named_parameters():
            value.copy_(weights[name])
        for optimizer in plain.optimizers.values():
            optimizer.copy_to_targets()
    rng = torch.Generator().manual_seed(3)
    obs, next_obs = torch.randn(2, 7, 3, generator=rng)
    actions, noise = torch.rand(7, 1, generator=rng) * 2 - 1, torch.randn(7, 1, generator=rng)
    reward, discount = torch.randn(7, generator=rng), torch.tensor([0.9] * 6 + [0.0])
    weight = torch.rand(7, generator=rng)
    batch = ReplayBatch(obs, actions, reward, discount, next_obs, weight, noise=noise)
    several = transitions_as_sequences(batch)
    found = losses_of(agent, several, several)
    expected = losses_of(plain, batch, batch)
    for part, own, other in zip(("critic", "policy"), found, expected, strict=True):
        torch.testing.assert_close(own[0], other[0])
        for name, value in other[1].items():
            torch.testing.assert_close(own[1][name], value)
        modules = [a.descents[part].optimizer.module for a in (agent, plain)]
        gradients = without_core(gradients_of(modules[0], own[0]))
        for name, gradient in gradients_of(modules[1], other[0]).items():
            torch.testing.assert_close(gradients[name], gradient)


@pytest.mark.parametrize(
    ("algo_id", "fields"),
    [("sac", {}), ("td3", {"n_step": 2}), ("sac", CARTPOLE), ("sac", {"recurrent": "lstm"})],
)  # fmt: skip
def test_rows_after_the_end_of_an_episode_count_nothing(
    algo_id: str, fields: dict[str, Any]
) -> None:
    agent = filled(algo_id, **fields)
    batch = sequences_of(agent, 8)
    assert 0 < (batch.valid == 0).sum() < batch.valid.numel()
    other = batch._replace(
        reward=torch.where(batch.valid > 0, batch.reward, 1e3),
        actions=torch.where(
            (batch.valid > 0).view(*batch.valid.shape, *[1] * (batch.actions.ndim - 2)),
            batch.actions,
            torch.zeros_like(batch.actions),
        ),
    )
    for own, changed in zip(
        losses_of(agent, batch, batch), losses_of(agent, other, other), strict=True
    ):
        torch.testing.assert_close(own[0], changed[0])
        if "errors" in own[1]:
            torch.testing.assert_close(own[1]["errors"], changed[1]["errors"])


@pytest.mark.parametrize("algo_id", ["sac", "td3"])
def test_burn_in_moves_the_carry_without_a_gradient(algo_id: str) -> None:
    agent = filled(algo_id)
    batch = sequences_of(agent)
    obs = batch.obs.clone().requires_grad_()
    for part in (agent.net.actor, agent.net.critic):
        y = rows_of(agent.net, batch._replace(obs=obs), BURN_IN).now(part)
        (gradient,) = torch.autograd.grad(y.square().sum(), obs)
        assert not gradient[:, :BURN_IN].any()
        assert gradient[:, BURN_IN:-1].any()
        moved = batch._replace(obs=torch.cat([batch.obs[:, :1] + 1, batch.obs[:, 1:]], 1))
        with torch.no_grad():
            other = rows_of(agent.net, moved, BURN_IN).now(part)
        assert not torch.equal(other, y)


@pytest.mark.parametrize(("algo_id", "kind"), [("sac", "gru"), ("td3", "lstm")])
def test_the_networks_see_what_they_saw_when_they_acted(algo_id: str, kind: str) -> None:
    """With the weights unchanged, rows of the replay give the outputs of the acting policy: carries
    are stored, and start anew with every episode."""
    agent = filled(algo_id, recurrent=kind)
    net, rollout = agent.net, agent.last
    index = np.arange(3, dtype=np.int64)  # the first row of each env
    rows = agent.memory.replay.sequences(index, 30)
    sample = agent.memory.sequences(3, 30, 1.0, True)._replace(rows=rows, index=index)
    batch = map_tree(torch.from_numpy, agent.columns(sample))
    with torch.no_grad():
        seen = {
            part.carry_name: rows_of(net, batch, BURN_IN).now(part).unflatten(0, (3, -1))
            for part in (net.actor, net.critic)
        }
        for part in (net.actor, net.critic):
            for t in range(BURN_IN, 30):
                x = net.encoder(torch.from_numpy(rollout.obs[t]))
                carry = torch.from_numpy(rollout.carry[part.carry_name][t])
                y, _ = part.remembered(x, carry, torch.from_numpy(rollout.is_first[t]))
                torch.testing.assert_close(seen[part.carry_name][:, t - BURN_IN], y)
    assert rollout.is_first[BURN_IN:30].any()


@pytest.mark.parametrize(
    ("algo_id", "fields"),
    [
        ("sac", {"critic_head": "c51", "n_atoms": 7, "prioritized": True}),
        ("td3", {"recurrent": "lstm"}),
        ("sac", {**CARTPOLE, "n_step": 3}),
    ],
)
def test_every_form_learns_the_same(algo_id: str, fields: dict[str, Any]) -> None:
    found = []
    for form in ("native", "numpy", False):
        agent = filled(algo_id, compile=form, adam_eps=0.01, policy_lr=0.01, **fields)
        agent.update(agent.last, 200, 10_000)
        assert agent.n_updates >= 3
        modes = {gradient.mode for gradient in agent.gradients.values()}
        if form == "native" and can_compile():
            assert modes == {"compiled"}
        found.append(torch.cat([w.clone() for w in agent.learnt_weights()]))
    for other in found[:-1]:
        torch.testing.assert_close(other, found[-1], rtol=1e-3, atol=1e-4)


def test_acting_keeps_a_carry_and_a_new_episode_starts_anew() -> None:
    agent = filled("td3")
    policy = agent.policy
    obs = np.array([[0.3, 0.2, 1.0], [-0.5, 0.1, -1.0]], np.float32)
    nothing, first = np.zeros(2, bool), np.ones(2, bool)
    start = policy.initial_carry(2)
    acted = policy.greedy(obs, start, first)
    again = policy.greedy(obs, acted.carry, nothing)
    assert not np.array_equal(acted.actions, again.actions)
    np.testing.assert_array_equal(policy.greedy(obs, again.carry, first).actions, acted.actions)
    assert policy.recorded_carry(start).keys() == {"core", "critic_core"}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"norm": "batch"}, "norm: layer"),
        ({"block": "flash"}, "block: simba"),
        ({"sde": True}, "sde"),
        ({"combined_replay": True}, "combined_replay"),
        ({"sequence_length": None}, "sequence_length"),
        ({"buffer_size": 9}, "buffer_size"),
    ],
)
def test_what_memory_does_not_go_with_is_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        config_of(**fields)
