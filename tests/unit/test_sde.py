"""State-dependent exploration: its distribution, its noise, acting, learning, resume."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from gymnasium_solver.algos import algo_class
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.actor_critics import squash_sde
from gymnasium_solver.nets.sde import SdeHead
from gymnasium_solver.policies.noise import AGE, MATRIX, StateNoise
from gymnasium_solver.runs.checkpoint import load_checkpoint
from gymnasium_solver.spaces.action_dists import chosen_kind
from gymnasium_solver.training import loop
from gymnasium_solver.training.prepare import build_config

OBS, BOX = spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-2, 2, (2,), np.float32)
SMALL: dict[str, Any] = {
    "env_id": "Pendulum-v1", "seed": 3, "n_envs": 4, "n_steps": 16, "max_episode_steps": 20,
    "eval_freq_epochs": None, "test_episodes": 2, "sde": True, "hidden_dims": [8, 6],
}  # fmt: skip
SAC = {"learning_starts": 20, "train_freq": 8, "batch_size": 16}


def head(log_std: float = -0.5, **options: Any) -> SdeHead:
    torch.manual_seed(0)
    made = SdeHead(nn.Linear(5, 2), 5, 2, log_std, **options)
    with torch.no_grad():
        made.log_std.add_(0.3 * torch.randn(5, 2))
    return made


def agent_of(algo_id: str = "ppo", **fields: Any) -> Any:
    algo = algo_class(algo_id)
    given = {"env_id": "x", "algo_id": algo_id, "n_envs": 3, "n_steps": 8, "sde": True}
    given |= {"hidden_dims": [6, 5]} | fields
    return algo(algo.Config(**given), OBS, BOX, seed=0)


# -- the distribution -------------------------------------------------------------------------


@pytest.mark.parametrize("dist", ["gaussian", "squashed"])
def test_log_probs_and_entropies_as_torch_has_them(dist: str) -> None:
    layer, latent = head(), torch.randn(7, 5)
    std = (latent.square() @ layer.log_std.exp().square() + 1e-6).sqrt()
    expected: Any = Independent(Normal(layer.mean(latent), std), 1)
    kind = chosen_kind(BOX, dist, sde=True)
    inside = expected.sample()
    log_prob, entropy = kind.log_prob_entropy(layer(latent), None, inside)
    if dist == "gaussian":
        torch.testing.assert_close(log_prob, expected.log_prob(inside))
        torch.testing.assert_close(entropy, expected.entropy())
        return
    squashed = TransformedDistribution(expected, [TanhTransform()])
    found = squashed.log_prob(torch.tanh(inside))
    torch.testing.assert_close(log_prob, found, rtol=1e-3, atol=1e-3)
    many = squashed.sample((40_000,))
    estimate = -squashed.log_prob(many.clamp(-1 + 1e-6, 1 - 1e-6)).mean(0)
    torch.testing.assert_close(entropy, estimate, rtol=0.05, atol=0.05)


def test_noise_over_all_matrices_has_the_stated_deviation() -> None:
    layer, rng = head(learns_features=True), np.random.default_rng(0)
    latent = torch.randn(4, 5)
    draws = []
    for _ in range(4000):
        layer.draw.copy_(torch.from_numpy(rng.standard_normal((5, 2), dtype=np.float32)))
        draws.append(layer.noise(latent))
    noise = torch.stack(draws).detach()
    torch.testing.assert_close(
        noise.std(0), layer(latent)[:, 2:].exp().detach(), rtol=0.05, atol=0.01
    )
    assert float(noise.mean(0).abs().max()) < 0.1


def test_squashed_actions_of_sac_against_torch() -> None:
    layer, latent = head(learns_features=True, clip_mean=0.4), torch.randn(7, 5)
    layer.draw.copy_(torch.randn(5, 2))
    actions, log_prob = squash_sde(layer(latent), layer.noise(latent))
    mean = layer.mean(latent).clamp(-0.4, 0.4)
    std = (latent.square() @ layer.log_std.exp().square() + 1e-6).sqrt()
    u = mean + latent @ (layer.log_std.exp() * layer.draw)
    torch.testing.assert_close(actions, torch.tanh(u))
    normal = Independent(Normal(mean.double(), std.double()), 1)
    squashed = TransformedDistribution(normal, [TanhTransform(cache_size=1)])
    base = normal.log_prob(u.double()) - (1 - torch.tanh(u.double()) ** 2).log().sum(1)
    torch.testing.assert_close(log_prob.double(), base, rtol=1e-4, atol=1e-4)
    assert squashed.event_shape == (2,)


@pytest.mark.parametrize("learns", [False, True])
def test_features_get_the_gradient_of_the_deviation_only_where_they_learn_it(learns: bool) -> None:
    layer = head(learns_features=learns)
    latent = torch.randn(3, 5, requires_grad=True)
    layer(latent)[:, 2:].sum().backward()
    assert layer.log_std.grad is not None
    assert bool(layer.log_std.grad.any())
    assert (latent.grad is not None and bool(latent.grad.any())) == learns


# -- acting -----------------------------------------------------------------------------------


def test_when_a_matrix_is_drawn() -> None:
    noise, rng = StateNoise(head(), 3), np.random.default_rng(0)
    carry, features = noise.initial(2), np.ones((2, 5), np.float32)
    seen = []
    for step in range(8):
        if step == 4:
            noise.begin_rollout()
        _, carry = noise(features, carry, rng)
        seen.append(carry[MATRIX])
    new = [i for i in range(1, 8) if not np.array_equal(seen[i], seen[i - 1])]
    assert new == [3, 4, 7]  # after three steps, at the start of a rollout, after three steps
    assert not np.array_equal(seen[0][0], seen[0][1])  # each env has its own
    assert carry[AGE].tolist() == [1, 1]
    lasting = StateNoise(head(), -1)
    first, carry = lasting(features, lasting.initial(2), rng)
    for _ in range(50):
        again, carry = lasting(features, carry, rng)
        np.testing.assert_array_equal(again, first)


@pytest.mark.parametrize("more", [{}, {"recurrent": "gru"}, {"action_dist": "squashed"}])
def test_a_policy_explores_by_its_matrix_and_evaluates_by_its_mean(more: dict[str, Any]) -> None:
    agent = agent_of(**more)
    policy, obs = agent.policy, OBS.sample()[None].repeat(3, axis=0)
    first = np.ones(3, bool)
    carry = policy.initial_carry(3)
    acted = policy.sample(obs, carry, first)
    np.testing.assert_array_equal(policy.greedy(obs, carry, first).actions, acted.outputs[:, :2])
    features = (acted.actions - acted.outputs[:, :2])[:, None]
    assert features.shape == (3, 1, 2)
    assert not np.allclose(acted.actions[0], acted.actions[1])  # one matrix per env
    if not more.get("recurrent"):
        again = policy.sample(obs, acted.carry, ~first)
        np.testing.assert_allclose(again.actions, acted.actions, atol=1e-6)  # a function of s
    policy.begin_rollout()
    other = policy.sample(obs, acted.carry, ~first)
    assert not np.allclose(other.actions, acted.actions)
    env_actions = policy.to_env(100 * other.actions)
    assert (np.abs(env_actions) <= 2).all()  # inside the bounds of the env


def test_sac_acts_the_same_way() -> None:
    agent = agent_of("sac")
    obs, first = OBS.sample()[None].repeat(3, axis=0), np.ones(3, bool)
    acted = agent.policy.sample(obs, agent.policy.initial_carry(3), first)
    again = agent.policy.sample(obs, acted.carry, ~first)
    np.testing.assert_allclose(again.actions, acted.actions, atol=1e-6)
    assert (np.abs(acted.actions) < 1).all()
    agent.policy.begin_rollout()
    other = agent.policy.sample(obs, acted.carry, ~first)
    assert not np.allclose(other.actions, acted.actions)


# -- learning ---------------------------------------------------------------------------------


@pytest.mark.parametrize("algo_id", ["ppo", "a2c", "sac"])
def test_updates_are_recorded_and_move_the_deviations(algo_id: str, tmp_path: Path) -> None:
    more: dict[str, Any] = SAC if algo_id == "sac" else {}
    fields = SMALL | more | {"algo_id": algo_id, "max_epochs": 3}
    run = loop.train(build_config(fields), runs_root=tmp_path)
    saved = load_checkpoint(run.path / "checkpoints/last")
    assert set(saved.state["agent"]["gradients"].values()) == {"recorded"}
    model = saved.tensors["model"]
    (name,) = (key for key in model if key.endswith("log_std"))
    start = -3.0 if algo_id == "sac" else -2.0
    assert np.abs(model[name] - start).max() > 1e-6


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"env_id": "CartPole-v1", "algo_id": "ppo"}, "needs real-valued actions"),
        ({"env_id": "CartPole-v1", "algo_id": "sac"}, "needs real-valued actions"),
        ({"algo_id": "ppo", "action_dist": "beta"}, "must be gaussian or squashed, not beta"),
        ({"algo_id": "ppo", "sde_sample_freq": 0}, "use -1 for once per rollout"),
        ({"algo_id": "sac", "noise_correlation": 0.5}, "remove noise_correlation"),
    ],
)
def test_mistakes(fields: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=why):
        loop.train(build_config(SMALL | fields), runs_root=tmp_path)


def test_the_deviation_is_not_clamped() -> None:
    kind = chosen_kind(BOX, sde=True)
    outputs = torch.tensor([[0.0, 0.0, 5.0, -15.0]])
    log_prob, _ = kind.log_prob_entropy(outputs, None, torch.zeros(1, 2))
    assert float(log_prob) == pytest.approx(10 - math.log(2 * math.pi), rel=1e-5)
