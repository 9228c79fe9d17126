"""Self-imitation: what is kept, its loss by hand, exact on resume."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from gymnasium_solver.algos.extensions.extension import Learnt
from gymnasium_solver.algos.extensions.self_imitation import sil_loss
from gymnasium_solver.algos.policy_loss import Batch
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError
from tests.unit.test_learner_state import (
    DISCRETE,
    acted,
    agent_for,
    assert_same_weights,
    random_rollout,
)

SIL: dict[str, Any] = {
    "sil": True, "sil_updates": 2, "sil_batch_size": 16, "sil_buffer_size": 40, "gamma": 0.5,
}  # fmt: skip


def rollout_of(agent: Any, seed: int) -> Rollout:
    return acted(agent, random_rollout(DISCRETE, seed))


def test_finished_good_episodes_are_kept_with_their_returns() -> None:
    agent = agent_for("ppo", **{**SIL, "sil_buffer_size": 500})
    (imitation,) = agent.extensions
    wanted: list[tuple[float, float]] = []
    open_rows: dict[int, list[tuple[float, float]]] = {}
    for seed in range(4):
        rollout = rollout_of(agent, seed)
        rollout.is_restart = seed == 2  # what was open is lost
        if rollout.is_restart:
            open_rows = {}
        values = np.full((len(rollout.reward) + 1, rollout.reward.shape[1]), 7.0, np.float32)
        imitation.add(Learnt(rollout, rollout.reward, values, 0.1))
        obs: Any = rollout.obs
        for env in range(rollout.valid.shape[1]):
            rows = open_rows.setdefault(env, [])
            for t in np.flatnonzero(rollout.valid[:, env]):
                rows.append((float(obs[t, env].ravel()[0]), float(rollout.reward[t, env])))
                if rollout.done[t, env]:
                    running = 0.0 if rollout.terminated[t, env] else 7.0  # a truncation goes on
                    found = []
                    for seen, reward in reversed(rows):
                        running = reward + 0.5 * running
                        found.append((seen, running))
                    if any(reward > 0 for _, reward in rows):
                        wanted += found
                    rows.clear()
    assert len(wanted) > 10
    n = len(imitation)
    stored = zip(
        imitation.columns["obs."][:n].reshape(n, -1)[:, 0], imitation.columns["returns"][:n],
        strict=True,
    )  # fmt: skip
    np.testing.assert_allclose(sorted(stored), sorted(wanted), rtol=1e-5, atol=1e-6)


def test_the_loss_counts_only_what_was_better_than_expected() -> None:
    agent = agent_for("ppo", **SIL)
    rng = np.random.default_rng(0)
    n = 200
    obs = torch.from_numpy(rng.normal(size=(n, *agent.observation_space.shape))).float()
    actions = torch.from_numpy(rng.integers(0, DISCRETE.n, n))
    returns = torch.from_numpy(rng.normal(0, 2, n)).float()
    batch = Batch(obs, actions, returns, returns, returns, returns)
    found, gain = sil_loss(agent.net, agent.actions, batch, torch.tensor(0.1), torch.tensor(0.01))
    with torch.no_grad():
        outputs, value = agent.net(obs)
        log_prob = torch.log_softmax(outputs, 1).gather(1, actions[:, None])[:, 0]
    better = [(r - v, p) for r, v, p in zip(
        returns.tolist(), value.tolist(), log_prob.tolist(), strict=True
    ) if r > v]  # fmt: skip
    total = sum(-p * g + 0.01 * 0.5 * g * g for g, p in better)
    assert len(better) > 64
    assert found.item() == pytest.approx(0.1 * total / len(better), rel=1e-4)
    assert int((gain > 0).sum()) == len(better)
    few = batch._replace(returns=torch.where(torch.arange(n) < 5, returns + 50, -50.0))
    found, gain = sil_loss(agent.net, agent.actions, few, torch.tensor(1.0), torch.tensor(0.0))
    wanted = -(log_prob[:5] * (few.returns - value)[:5]).sum() / 64
    assert found.item() == pytest.approx(wanted.item(), rel=1e-4)


def test_elites_are_the_best_of_recent_episodes() -> None:
    agent = agent_for("ppo", **SIL, sil_elite=0.25)
    (imitation,) = agent.extensions
    kept = []
    for total in (1.0, 2.0, 3.0, 4.0, 5.0, 0.5, 4.5, 6.0):
        before = imitation.n_added
        imitation._finish({
            "obs.": np.zeros((1, 3), np.float32), "actions": np.zeros(1, np.int64),
            "reward": np.array([total], np.float32), "given": np.array([total], np.float32),
        }, 0.0)  # fmt: skip
        kept.append(imitation.n_added > before)
    assert kept == [True, True, True, True, True, False, True, True]


@pytest.mark.parametrize("algo_id", ["ppo", "a2c"])
def test_a_resume_is_exact(algo_id: str) -> None:
    one, two = (agent_for(algo_id, seed=seed, **SIL) for seed in (0, 5))
    for seed in (1, 2):
        metrics = one.update(rollout_of(one, seed), 24, 100)
    assert metrics["opt/sil/rows"] > 0
    assert one.gradients["sil"].mode == "recorded"
    tensors, extra = one.state()
    copied = {name: {k: v.clone() for k, v in part.items()} for name, part in tensors.items()}
    two.load_state(copied, json.loads(json.dumps(extra)))
    for seed in (3, 4):
        ours, theirs = (agent.update(rollout_of(agent, seed), 48, 100) for agent in (one, two))
        assert ours == pytest.approx(theirs, rel=0, abs=0, nan_ok=True)
    assert_same_weights(one, two)


def test_it_has_no_memory_networks() -> None:
    with pytest.raises(ConfigError, match="sil repeats single steps"):
        agent_for("ppo", sil=True, recurrent="gru")
