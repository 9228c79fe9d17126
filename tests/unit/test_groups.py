"""Leave-one-out baselines against a loop, and environments that start alike."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.algos.advantages import elite_rows, leave_one_out
from gymnasium_solver.envs.joined import GroupedEnv
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import make_vector_env, training_env
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.training import loop
from gymnasium_solver.training.collect import Collector, boundary_steps
from gymnasium_solver.training.prepare import build_config

SCORE = "train/roll/ep_rew/mean"


def by_hand(returns: Any, done: Any, valid: Any, size: int, is_whole: bool) -> np.ndarray:
    n_rows, n_envs = returns.shape
    n_groups = n_envs // size
    episodes: list[list[list[tuple[int, float]]]] = []
    for env in range(n_envs):
        own: list[list[tuple[int, float]]] = [[]]
        for t in range(n_rows):
            if valid[t, env]:
                own[-1].append((t, float(returns[t, env])))
                if done[t, env]:
                    own.append([])
        episodes.append([episode for episode in own if episode])
    found = np.zeros(returns.shape)
    for env in range(n_envs):
        others = [e for e in range(n_envs) if e != env]
        elsewhere = np.mean([r for e in others for ep in episodes[e] for _, r in ep])
        mates = [e for e in others if e % n_groups == env % n_groups]
        for j, episode in enumerate(episodes[env]):
            there = [episodes[e][j] for e in mates if len(episodes[e]) > j]
            for s, (t, _) in enumerate(episode):
                at = [ep[0 if is_whole else s][1] if is_whole or s < len(ep) else 0 for ep in there]
                found[t, env] = np.mean(at) if at else elsewhere
    return found


@pytest.mark.parametrize("is_whole", [False, True])
def test_the_baseline_is_the_mean_of_the_others(is_whole: bool) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        valid = np.ones((15, 6), bool)
        done = rng.random((15, 6)) < 0.2
        for t, env in np.argwhere(done):
            if t + 1 < 15:
                valid[t + 1, env] = False
        done &= valid
        returns = rng.normal(size=(15, 6))
        if is_whole:
            from gymnasium_solver.algos.ops import episode_returns

            returns = episode_returns(returns, done, valid, 0.9)
        np.testing.assert_allclose(
            leave_one_out(returns, done, valid, 3, is_whole),
            by_hand(returns, done, valid, 3, is_whole),
            rtol=1e-5,
            atol=1e-6,
        )


def test_rloo_equals_the_published_form() -> None:
    """R_i - mean of the others = K / (K - 1) * (R_i - mean of all)."""
    returns = np.array([[3.0, 5.0, 10.0, -2.0]])
    ones = np.ones((1, 4), bool)
    advantage = returns - leave_one_out(returns, ones, ones, 4, True)
    np.testing.assert_allclose(advantage, 4 / 3 * (returns - returns.mean()))


@pytest.mark.parametrize("mode", ["vector", "sync", "envpool"])
def test_a_group_starts_from_one_state(mode: str) -> None:
    env = GroupedEnv([make_vector_env("CartPole-v1", 2, vectorization_mode=mode) for _ in range(3)])
    assert (env.n_envs, env.n_groups) == (6, 2)
    obs = env.reset(7)
    for row in range(2):
        for copy in range(1, 3):
            np.testing.assert_array_equal(obs[row], obs[2 * copy + row])
    assert not np.array_equal(obs[0], obs[1])
    journaled = JournaledEnv(env)
    journaled.reset(3)
    step = journaled.step(np.array([0, 1, 0, 1, 1, 1]))
    assert step.reward.shape == step.is_over.shape == (6,)
    np.testing.assert_array_equal(step.obs[0], step.obs[2])
    assert not np.array_equal(step.obs[0], step.obs[4])
    np.testing.assert_array_equal(journaled.restore(journaled.state()), step.obs)


FIELDS: dict[str, Any] = {
    "algo_id": "reinforce", "env_id": "CartPole-v1", "n_envs": 4, "n_steps": 30, "seed": 1,
    "baseline": "rloo", "group_size": 2, "hidden_dims": [4],
}  # fmt: skip


def test_every_rollout_begins_with_a_group_in_one_state() -> None:
    from gymnasium_solver.training.agents import build_agent

    config: Any = build_config({**FIELDS, "normalize_obs": False, "normalize_reward": False})
    env = training_env(config)
    agent: Any = build_agent(config, env.observation_space, env.action_space)
    collector = Collector(JournaledEnv(env), agent.policy, 30, 1, boundary_steps(config, env))
    env_steps, starts = 0, []
    for _ in range(3):
        rollout = collector.collect(env_steps, None)
        assert rollout.is_restart
        obs: Any = rollout.obs
        np.testing.assert_array_equal(obs[0][:2], obs[0][2:])
        starts.append(obs[0][0].tolist())
        env_steps += rollout.env_steps
        agent.update(rollout, env_steps, 10_000)
    assert len({str(start) for start in starts}) == 3


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"n_envs": 5}, "n_envs 5 is not a multiple of group_size 2"),
        ({"policy_targets": "advantages"}, "remove policy_targets"),
        ({"baseline": "none", "n_epochs": 3}, "n_epochs 3 without clip_range"),
    ],
)
def test_settings_that_contradict_each_other(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_config({**FIELDS, **fields})


def test_reinforce_plus_plus_is_a_clipped_ratio(tmp_path: Path) -> None:
    import torch

    from gymnasium_solver.algos.policy_loss import policy_gradient_loss
    from tests.unit.test_learner_state import (
        DISCRETE,
        acted,
        agent_for,
        prepared,
        random_rollout,
    )

    agent = agent_for("reinforce", clip_range=0.2, n_epochs=3, normalize_returns=True)
    batch = prepared(agent, acted(agent, random_rollout(DISCRETE, 1))).batch
    moved = torch.linspace(-1, 1, len(batch.log_prob))
    batch = batch._replace(log_prob=batch.log_prob - moved)
    zero = torch.tensor(0.0)
    numbers = {"ent_coef": zero, "vf_coef": zero, "clip_range": torch.tensor(0.2)}
    found = -policy_gradient_loss(agent.net, agent.actions, batch, numbers)[1][
        "opt/loss/policy"
    ].item()
    outputs = agent.net.actor(batch.obs).detach()
    new = torch.log_softmax(outputs, 1).gather(1, batch.actions[:, None])[:, 0]
    wanted = [
        min(r * a, min(max(r, 0.8), 1.2) * a)
        for r, a in zip(
            (new - batch.log_prob).exp().tolist(), batch.advantage.tolist(), strict=True
        )
    ]
    assert found == pytest.approx(np.mean(wanted), rel=1e-4)
    assert batch.advantage.mean().item() == pytest.approx(0, abs=1e-5)


def test_centring_subtracts_the_mean() -> None:
    from tests.unit.test_learner_state import DISCRETE, agent_for, random_rollout

    fields: dict[str, Any] = {"normalize_returns": False}
    rollout = random_rollout(DISCRETE, 1)
    plain = agent_for("reinforce", **fields)._prepare(rollout).batch.advantage
    centred = agent_for("reinforce", baseline="mean", **fields)._prepare(rollout).batch.advantage
    assert centred.mean().item() == pytest.approx(0, abs=1e-5)
    assert (plain - centred).std().item() == pytest.approx(0, abs=1e-5)


# -- elites -----------------------------------------------------------------------------------


def test_only_the_best_episodes_that_end_are_learnt_from() -> None:
    reward = np.array([[1, 5], [1, 5], [9, 0], [2, 0], [7, 1]], np.float32)
    done = np.array([[0, 0], [1, 1], [0, 0], [1, 1], [0, 0]], bool)
    valid = np.ones((5, 2), bool)
    valid[2, 0] = False  # a reset row: its reward does not count
    # Returns by env: 2 and 2 (0 and 3), 10 and 0; the last rows are unfinished.
    half = elite_rows(reward, done, valid, 0.5)
    assert half[:, 0].tolist() == [True, True, False, True, False]
    assert half[:, 1].tolist() == [True, True, False, False, False]
    best = elite_rows(reward, done, valid, 0.1)
    assert best.any(axis=0).tolist() == [False, True]
    every = elite_rows(reward, done, valid, 1.0)
    assert every[:, 1].tolist() == [True, True, True, True, False]
    assert elite_rows(reward, np.zeros_like(done), valid, 0.5).tolist() == valid.tolist()


def test_reinforce_learns_from_elites(tmp_path: Path) -> None:
    fields = {"env_id": "CartPole-v1", "algo_id": "reinforce", "elite": 0.3, "seed": 1}
    fields |= {"n_envs": 8, "n_steps": 256, "max_epochs": 12, "eval_freq_epochs": None}
    run = loop.train(build_config(fields | {"test_episodes": 10}), runs_root=tmp_path)
    rows = [json.loads(line) for line in run.metrics_path.read_text().splitlines()]
    scores = [row[SCORE] for row in rows if SCORE in row]
    assert scores[-1] > 2 * scores[0]
