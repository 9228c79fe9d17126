"""Recurrent DQN: targets, burn-in, rescaling and priorities against plain loops."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gymnasium_solver.algos.dqn import rescaled, sequence_errors, sequence_loss, unscaled
from gymnasium_solver.data.sequences import n_step_targets
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.training.agents import load_agent
from gymnasium_solver.training.evaluate import evaluate
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.prepare import build_config
from tests.acting import collecting

BURN_IN, LENGTH = 3, 6


def config_of(env_id: str = "Probe/MemoryParts-v0", **fields: Any) -> Any:
    return build_config(
        {
            "env_id": env_id, "algo_id": "dqn", "n_envs": 3, "n_steps": 40, "train_freq": 120,
            "hidden_dims": [6, 6], "recurrent": "gru", "recurrent_dim": 5, "burn_in": BURN_IN,
            "sequence_length": LENGTH, "batch_size": 24, "buffer_size": 300, "learning_starts": 10,
            "seed": 1, "normalize_obs": False, "normalize_reward": False, "gamma": 0.9,
            "prioritized": True, **fields,
        }
    )  # fmt: skip


def filled(**fields: Any) -> Any:
    """An agent whose replay has some rollouts, acted with its own network."""
    agent, collector = collecting(config_of(**fields))
    agent.policy.epsilon = 0.3
    for _ in range(2):
        agent.remember(collector.collect(0, None))
    return agent


def test_n_step_targets_stay_in_their_episode() -> None:
    rng = np.random.default_rng(0)
    for n_step in (1, 3, 9):
        reward = rng.normal(size=(8, 4)).astype(np.float32)
        terminated, truncated = rng.random((2, 8, 4)) < 0.15
        valid = np.ones((8, 4), bool)
        valid[1:] = ~(terminated | truncated)[:-1]  # a reset row follows an end
        terminated, truncated = terminated & valid, truncated & valid
        found = n_step_targets(reward, terminated, truncated, valid, n_step, 0.9)
        for t, b in np.argwhere(valid):
            total, discount, k = 0.0, 1.0, t
            while True:
                total += discount * reward[k, b]
                discount *= 0.9
                if terminated[k, b]:
                    discount = 0.0
                stops = terminated[k, b] or truncated[k, b] or k + 1 - t == n_step or k == 7
                if stops or not valid[k + 1, b]:
                    break
                k += 1
            got = [column[t, b] for column in found]
            assert got == pytest.approx([total, discount, k + 1], rel=1e-5)


def test_rescaling_and_its_inverse() -> None:
    x = torch.tensor([-1e4, -3.0, -0.1, 0.0, 0.5, 20.0, 1e4], dtype=torch.float64)
    y = rescaled(x)
    assert y[-1].item() == pytest.approx((1e4 + 1) ** 0.5 - 1 + 10)
    torch.testing.assert_close(unscaled(y), x, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("rescale", [False, True])
@pytest.mark.parametrize("double", [False, True])
def test_errors_equal_a_loop_over_rows(double: bool, rescale: bool) -> None:
    agent = filled(n_step=2)
    with torch.no_grad():
        for parameter in agent.target.parameters():
            parameter.add_(0.1)
    sample = agent.memory.sequences(4, BURN_IN + LENGTH, 0.5, crosses_episodes=True)
    batch = agent.on_device(sample)
    rows = agent.memory.replay.sequences(sample.index, BURN_IN + LENGTH)
    net = agent.net
    with torch.no_grad():
        q, errors = sequence_errors(net, agent.target, batch, BURN_IN, double, rescale)
        for b in range(4):
            values: dict[str, list[Any]] = {"online": [], "target": []}
            for name, head in (("online", net.q), ("target", agent.target)):
                carry = torch.from_numpy(rows.carry["core"][b : b + 1])
                for t in range(BURN_IN + LENGTH + 1):
                    obs = {k: torch.from_numpy(v[t, b][None]) for k, v in rows.obs.items()}
                    first = torch.from_numpy(rows.is_first[t, b : b + 1])
                    out, carry = head.step(net.encoder(obs), carry, first)
                    values[name].append(out[0])
            for t in range(BURN_IN, BURN_IN + LENGTH):
                if not rows.valid[t, b]:
                    assert errors[b, t - BURN_IN] == 0
                    continue
                total, discount, k = 0.0, 1.0, t
                for k in range(t, min(t + 2, BURN_IN + LENGTH)):
                    total += discount * rows.reward[k, b]
                    discount *= 0.9
                    if rows.terminated[k, b]:
                        discount = 0.0
                        break
                legal = torch.from_numpy(rows.mask[k + 1, b])
                choosing = values["online" if double else "target"][k + 1]
                best = choosing.masked_fill(~legal, -torch.inf).argmax()
                value = values["target"][k + 1][best]
                value = unscaled(value) if rescale else value
                wanted = total + discount * value
                wanted = rescaled(torch.as_tensor(wanted)) if rescale else wanted
                own = values["online"][t][int(rows.actions[t, b])]
                error = float(own - wanted)
                assert errors[b, t - BURN_IN].item() == pytest.approx(error, rel=1e-3, abs=1e-5)
                assert q[b, t - BURN_IN].item() == pytest.approx(float(own), rel=1e-4, abs=1e-6)


def test_the_priority_of_a_sequence_is_mostly_its_largest_error() -> None:
    agent = filled()
    batch = agent.on_device(agent.memory.sequences(2, BURN_IN + LENGTH, 0.5))
    valid = torch.tensor([[1.0, 1, 1, 0, 0, 0], [1.0] * 6])
    errors = torch.tensor([[1.0, -3, 2, 0, 0, 0], [0.5] * 6])
    batch = batch._replace(valid=valid, weight=torch.tensor([1.0, 0.5]))
    loss, priority = sequence_loss(errors, batch, is_huber=False)
    assert priority.tolist() == pytest.approx([0.9 * 3 + 0.1 * 2, 0.5])
    assert loss.item() == pytest.approx((14 / 3 + 0.5 * 0.25) / 2)


def test_sequences_never_pass_the_newest_row() -> None:
    agent = filled()
    replay = agent.memory.replay
    for _ in range(20):
        _, weight, index = agent.memory.sequences(16, BURN_IN + LENGTH, 0.4)
        assert (replay.row_of(index) + BURN_IN + LENGTH <= replay.n_added).all()
        assert replay.is_valid(index).all()
        assert weight.shape == (16,)
    chosen = index[0]
    agent.memory.update_priorities(np.arange(len(agent.memory.priorities.leaves)), np.full(
        len(agent.memory.priorities.leaves), 1e-6
    ))  # fmt: skip
    agent.memory.update_priorities(index[:1], np.array([1e6]))
    _, _, index = agent.memory.sequences(16, BURN_IN + LENGTH, 0.4)
    assert (index == chosen).mean() > 0.9


def test_updates_wait_for_a_whole_sequence() -> None:
    """Many envs reach learning_starts with few rows."""
    agent, collector = collecting(config_of(learning_starts=3, train_freq=3), 1)
    waited = updated = 0
    for _ in range(12):
        n_updates = agent.remember(collector.collect(0, None))
        if agent.memory.replay.n_added < BURN_IN + LENGTH:
            assert n_updates == 0
            waited += 1
        else:
            assert n_updates > 0
            assert len(list(agent.samples(1, {}))) == 1
            updated += 1
    assert waited > 3
    assert updated > 0


def test_burn_in_gets_no_gradient() -> None:
    agent = filled(compile=False)
    batch = agent.on_device(agent.memory.sequences(4, BURN_IN + LENGTH, 0.5))
    obs = {name: part.clone().requires_grad_() for name, part in batch.obs.items()}
    _, errors = sequence_errors(
        agent.net, agent.target, batch._replace(obs=obs), BURN_IN, False, False
    )
    errors.square().sum().backward()
    grad = obs["cue"].grad
    assert grad is not None
    assert (grad[:, :BURN_IN] == 0).all()
    assert (grad[:, BURN_IN:] != 0).any()


def test_the_gradient_is_recorded_and_priorities_are_set() -> None:
    agent = filled()
    before = agent.memory.priorities.leaves.copy()
    hp = agent.scheduled_values(0, 1000)
    agent.program(agent.samples(2, hp), hp)
    assert agent.descent.mode == "recorded"
    assert not np.array_equal(agent.memory.priorities.leaves, before)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"distributional": True}, "cannot be combined with distributional"),
        ({"combined_replay": True}, "cannot be combined with combined_replay"),
        ({"sequence_length": None}, "with a replay give a number"),
        ({"buffer_size": 20}, r"holds 6 rows of 3 envs.*= 9: raise buffer_size"),
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_of(**fields)


def test_it_remembers_the_cue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = config_of(
        "Probe/Memory-v0", n_envs=8, n_steps=64, train_freq=32, updates_per_step=0.25,
        hidden_dims=[16, 16], recurrent_dim=16, burn_in=4, sequence_length=8, batch_size=128,
        buffer_size=5000, learning_starts=500, max_env_steps=9_000, policy_lr=0.003, double=True,
        target_update_freq=200, epsilon={"start": 1.0, "end": 0.05, "to": 0.5},
        eval_freq_epochs=None, test_episodes=4,
    )  # fmt: skip
    agent = load_agent(train(config, runs_root=Path("runs")).id, "runs")
    env = make_vector_env("Probe/Memory-v0", 8)
    assert evaluate(agent.policy, env, 40, greedy=True, seed=5).mean == 1.0
