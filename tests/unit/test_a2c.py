"""A2C: its update against the textbook, written out in plain torch."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from gymnasium_solver.algos.a2c import A2C, A2CConfig
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.spaces.actions import action_kind

BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)
N, T = 4, 5


def agent_for(**fields: Any) -> A2C:
    config = A2CConfig(
        env_id="x", algo_id="a2c", n_envs=N, hidden_dims=(6,), normalize_obs=False,
        normalize_reward=False, max_grad_norm=None, **fields,
    )  # fmt: skip
    return A2C(config, BOX, spaces.Discrete(2), 1)


def rollout_for(agent: A2C) -> Rollout:
    rng = np.random.default_rng(0)
    rows = Rollout.allocate(T, N, BOX, action_kind(spaces.Discrete(2)), n_outputs=2)
    rows.obs[...] = rng.normal(size=rows.obs.shape)  # type: ignore[index,union-attr]
    rows.actions[...] = rng.integers(0, 2, (T, N))
    rows.reward[...] = rng.normal(size=(T, N))
    rows.valid[...] = True
    rows.terminated[2, 0] = True
    rows.truncated[1, 1] = True
    for t, env in ((3, 0), (2, 1)):  # the rows after an end are reset rows
        rows.valid[t, env] = False
        rows.is_first[t + 1, env] = True
    return rows


def returns_by_hand(
    rows: Rollout, values: np.ndarray, gamma: float
) -> dict[tuple[int, int], float]:
    """n-step returns, up to the end of the episode or of the rollout."""
    found = {}
    for env in range(N):
        for t in range(T):
            if not rows.valid[t, env]:
                continue
            total, discount, k = 0.0, 1.0, t
            while True:
                total += discount * float(rows.reward[k, env])
                discount *= gamma
                if rows.terminated[k, env]:
                    break
                if rows.truncated[k, env] or k == T - 1:
                    total += discount * float(values[k + 1, env])
                    break
                k += 1
            found[t, env] = total
    return found


def test_one_update_is_the_textbook_gradient() -> None:
    agent = agent_for(optimizer="sgd", policy_lr=0.1, ent_coef=0.02, vf_coef=0.3, gamma=0.9)
    twin = agent_for(optimizer="sgd")
    rows = rollout_for(agent)
    net: Any = twin.net
    obs = torch.from_numpy(np.asarray(rows.obs))
    with torch.no_grad():
        values = net.value(obs.flatten(0, 1)).view(T + 1, N).numpy()
    wanted = returns_by_hand(rows, values, 0.9)
    losses = []
    for (t, env), target in wanted.items():
        outputs, value = net(obs[t, env][None])
        policy = torch.distributions.Categorical(logits=outputs[0])
        advantage = target - float(values[t, env])
        action = torch.tensor(int(rows.actions[t, env]))
        losses.append(
            -policy.log_prob(action) * advantage
            + 0.3 * (value[0] - target) ** 2
            - 0.02 * policy.entropy()
        )
    grads = torch.autograd.grad(torch.stack(losses).mean(), list(net.parameters()))
    metrics = agent.update(rows, 0, 100)
    for ours, before, grad in zip(agent.net.parameters(), net.parameters(), grads, strict=True):
        torch.testing.assert_close(ours, before - 0.1 * grad, rtol=1e-4, atol=1e-6)
    norm = float(torch.cat([g.flatten() for g in grads]).norm())
    assert np.isclose(metrics["opt/grads/norm/all"], norm, rtol=1e-4)


def test_an_epoch_has_many_updates() -> None:
    config = A2CConfig(env_id="x", algo_id="a2c", n_envs=N)
    assert (config.n_steps, config.rollout_rows, config.optimizer) == (500, 5, "rmsprop_tf")
    assert config.replace(n_steps=3).rollout_rows == 3
