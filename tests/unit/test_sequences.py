"""Rollouts cut into sequences: what a recurrent policy learns from, row by row."""

from typing import Any

import numpy as np
import pytest
import torch

from gymnasium_solver.algos.policy_loss import evaluate_actions
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.data.sequences import Cut
from gymnasium_solver.training.prepare import build_config
from tests.acting import collecting, values_by_torch
from tests.unit.test_learner_state import prepared


@pytest.mark.parametrize("length", [1, 3, 4, 7, 9])
def test_every_row_is_in_one_sequence(length: int) -> None:
    n_rows, n_envs = 7, 2
    rows = torch.arange(n_rows * n_envs).view(n_rows, n_envs)
    cut = Cut(n_rows, length)
    pieces, valid = cut(rows), cut.valid(torch.ones(n_rows, n_envs, dtype=torch.bool))
    assert pieces.shape == valid.shape == (-(-n_rows // length) * n_envs, length)
    assert sorted(pieces[valid].tolist()) == list(range(n_rows * n_envs))
    for piece, kept in zip(pieces.tolist(), valid.tolist(), strict=True):
        own = [row for row, is_kept in zip(piece, kept, strict=True) if is_kept]
        assert own == list(range(own[0], own[0] + n_envs * len(own), n_envs)), "one env, in order"
    assert cut.starts(rows).tolist() == pieces[:, 0].tolist()


def collected(env_id: str, **fields: Any) -> tuple[Any, Rollout]:
    config: Any = build_config(
        {
            "env_id": env_id, "algo_id": "ppo", "n_envs": 3, "n_steps": 22, "hidden_dims": [6],
            "recurrent": "gru", "recurrent_dim": 5, "seed": 1, "device": "cpu",
            "normalize_obs": False, "normalize_reward": False, **fields,
        },
    )  # fmt: skip
    agent, collector = collecting(config)
    collector.collect(0, None)
    return agent, collector.collect(66, None)  # the second begins inside episodes


ENVS = ["Probe/Memory-v0", "Probe/MemoryParts-v0", "Probe/MultiDiscrete-v0", "Probe/DictAction-v0"]


@pytest.mark.parametrize("length", [4, 5, 22, None])
@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("env_id", ENVS)
def test_before_an_update_the_ratio_is_one(env_id: str, kind: str, length: int | None) -> None:
    """Learning recomputes what acting did: with resets, masks, parts and any length."""
    agent, rollout = collected(env_id, recurrent=kind, sequence_length=length)
    batch = prepared(agent, rollout).batch
    with torch.no_grad():
        log_prob, _, value = evaluate_actions(agent.net, agent.actions, batch)
    valid = batch.valid.flatten()
    assert int(valid.sum()) == rollout.env_steps
    torch.testing.assert_close(log_prob[valid], batch.log_prob.flatten()[valid])
    assert value is not None
    torch.testing.assert_close(value[valid], batch.value.flatten()[valid])


def test_a_truncated_episode_bootstraps_with_its_own_carry() -> None:
    agent, rollout = collected("CartPole-v1", max_episode_steps=5, vectorization_mode="vector")
    values = values_by_torch(agent, rollout)
    assert rollout.truncated.any()
    obs: Any = rollout.obs
    carry = rollout.carry["core"][0]
    with torch.no_grad():
        for t in range(len(rollout.valid) + 1):
            first = torch.from_numpy(rollout.is_first[t])
            row = torch.from_numpy(obs[t])
            np.testing.assert_allclose(
                agent.net.value(row, torch.from_numpy(carry), first), values[t], rtol=1e-5
            )
            if t < len(rollout.valid):
                carry = agent.net.step(row, torch.from_numpy(carry), first)[1].numpy()
                np.testing.assert_allclose(carry, rollout.carry["core"][t + 1], atol=1e-6)
    # The row after a truncation has the carry of the episode that ended, not a fresh one.
    t, env = np.argwhere(rollout.truncated)[0]
    assert not rollout.is_first[t + 1, env]
    assert np.abs(rollout.carry["core"][t + 1, env]).max() > 0


def test_copies_and_reset_rows_do_not_count() -> None:
    """The gradient is that of the valid rows, however they are cut."""
    grads = []
    for length in (22, 8):
        agent, rollout = collected(
            "Probe/Memory-v0", sequence_length=length, compile=False,
            normalize_advantages="off",
        )  # fmt: skip
        batch = prepared(agent, rollout).batch
        for column in (batch.advantage, batch.returns):
            column[~batch.valid] = 1e6
        agent.descent._given = ("clip_range", "vf_coef")
        grads.append(agent.descent.gradient(batch, [0.2, 0.5])[0].clone())
        # Shorter sequences lose only the gradient through their starts: the heads' stay the same.
    assert torch.isfinite(grads[0]).all()
    parts = [agent.descent.optimizer.part_norms(grad) for grad in grads]
    for name in ("actor_head", "critic_head"):
        assert parts[0][name] == pytest.approx(parts[1][name], rel=1e-4)
    assert parts[0]["core"] != pytest.approx(parts[1]["core"], rel=1e-4)


def test_minibatches_are_whole_sequences() -> None:
    agent, rollout = collected("Probe/Memory-v0", sequence_length=4)
    data = prepared(agent, rollout)
    rows = data.batch.minibatches(agent.descent, 8, np.random.default_rng(0), 66)
    parts = [data.batch.take(torch.from_numpy(r)) for r in rows if r is not None]
    assert [len(part.advantage) for part in parts] == [2] * 9
    assert all(part.advantage.shape[1] == 4 for part in parts)
    together = torch.cat([part.advantage for part in parts])
    assert sorted(together.flatten().tolist()) == sorted(data.batch.advantage.flatten().tolist())


def test_recurrent_gradients_are_recorded() -> None:
    agent, rollout = collected("Probe/MemoryParts-v0", sequence_length=8, batch_size=32)
    agent.update(rollout, 66, 1000)
    assert agent.descent.mode == "recorded"


def test_pqn_learns_what_it_acted_with() -> None:
    """Q of the stored carries, of sequences and of acting agree; so do their targets."""
    agent, rollout = collected(
        "Probe/MemoryParts-v0", algo_id="pqn", sequence_length=5, epsilon=0.0, td_lambda=0.0,
        gamma=0.5,
    )  # fmt: skip
    q = agent.fit.values(rollout)
    batch = agent.fit.batch(rollout, agent._targets(rollout))
    valid = batch.valid
    with torch.no_grad():
        values = agent.net.sequence(batch.obs, batch.carry, batch.is_first)
    cut = Cut(len(rollout.valid), 5)
    torch.testing.assert_close(
        values.view(*valid.shape, -1)[valid], cut(torch.from_numpy(q[:-1]))[valid]
    )
    mask = rollout.mask
    assert mask is not None
    greedy = np.where(mask[:-1], q[:-1], -np.inf).argmax(2)
    assert (greedy == rollout.actions)[rollout.valid].all(), "acting was greedy and legal"
    best = np.where(mask[1:], q[1:], -np.inf).max(2)
    wanted = rollout.reward + 0.5 * ~rollout.terminated * best
    torch.testing.assert_close(
        batch.returns[valid], cut(torch.from_numpy(wanted.astype(np.float32)))[valid]
    )
    agent.update(rollout, 66, 1000)
    assert agent.fit.descent.mode == "recorded"
