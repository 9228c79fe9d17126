"""Learners: what is saved goes on exactly; what does not fit is refused; targets of the update."""

import json
from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymnasium_solver.algos import algo_class
from gymnasium_solver.algos.ppo import PPO
from gymnasium_solver.algos.reinforce import Reinforce
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import RunError
from gymnasium_solver.spaces.actions import action_kind

OBS = spaces.Box(-10, 10, (3,), np.float32)
DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)
N_ENVS, N_STEPS = 2, 12


NUMBERS = {"clip_range": torch.tensor(0.2), "vf_coef": torch.tensor(0.5)}


def prepared(agent: Any, rollout: Any) -> Any:
    """What a learner makes of a rollout before its gradient steps."""
    if agent.config.algo_id == "ppo":
        return agent._prepare(rollout, agent.rewards(rollout), agent.values(rollout))
    return agent._prepare(rollout)


def agent_for(
    algo_id: str,
    action_space: Any = DISCRETE,
    observation_space: Any = OBS,
    seed: int = 0,
    **fields: Any,
) -> Any:
    algo = algo_class(algo_id)
    small = {"n_envs": N_ENVS, "n_steps": N_STEPS, "hidden_dims": [6], "policy_lr": 0.01}
    config = algo.Config(env_id="x", algo_id=algo_id, **{**small, **fields})
    return algo(config, observation_space, action_space, seed=seed)


def array_of(rollout: Rollout) -> np.ndarray:
    assert isinstance(rollout.obs, np.ndarray)
    return rollout.obs


def acted(agent: Any, rollout: Rollout) -> Rollout:
    """The rollout with the distribution that this agent's policy acts by."""
    obs, (n_rows, n_envs) = array_of(rollout)[:-1], rollout.valid.shape
    flat = obs.reshape(n_rows * n_envs, *obs.shape[2:])
    outputs = agent.policy.greedy(flat, {}, np.ones(len(flat), bool)).outputs
    rollout.outputs = outputs.reshape(n_rows, n_envs, -1)
    rollout.log_std = agent.policy.log_std()
    return rollout


def random_rollout(action_space: Any, seed: int, n_steps: int = N_STEPS) -> Rollout:
    rng = np.random.default_rng(seed)
    actions = action_kind(action_space)
    rollout = Rollout.allocate(n_steps, N_ENVS, OBS, actions, n_outputs=actions.n_outputs)
    obs = array_of(rollout)
    obs[:] = rng.normal(1, 2, obs.shape)
    if isinstance(action_space, spaces.Discrete):
        rollout.actions[:] = rng.integers(0, 3, rollout.actions.shape)
    else:
        rollout.actions[:] = rng.normal(size=rollout.actions.shape)
        rollout.log_std = np.zeros(actions.n_log_std, np.float32)
    rollout.reward[:] = rng.normal(size=rollout.reward.shape)
    rollout.valid[:] = True
    rollout.terminated[4, 0] = rollout.truncated[6, 1] = True
    rollout.valid[5, 0] = rollout.valid[7, 1] = False
    rollout.is_first[[0, 6], 0] = rollout.is_first[[0, 8], 1] = True
    return rollout


def sampled(agent: Any, obs: np.ndarray) -> np.ndarray:
    actions: np.ndarray = agent.policy.sample(obs, {}, np.ones(len(obs), bool)).actions
    return actions


def assert_same_weights(a: Any, b: Any) -> None:
    for name, value in a.net.state_dict().items():
        assert torch.equal(value, b.net.state_dict()[name]), name


def test_seeds_decide_weights_and_draws() -> None:
    same, again, other = (agent_for("ppo", seed=seed) for seed in (3, 3, 4))
    assert_same_weights(same, again)
    assert not torch.equal(same.descent.optimizer.flat, other.descent.optimizer.flat)
    obs = np.zeros((100, 3), np.float32)
    draws = [sampled(a, obs) for a in (same, again, other)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()


def model_of(agent: Any) -> dict[str, np.ndarray]:
    return {name: value.numpy().copy() for name, value in agent.net.state_dict().items()}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"hidden_dims": [5]}, r"actor_torso\.0\.weight"),
        ({"hidden_dims": [6, 6]}, r"actor_torso\.2\.weight"),
        ({"share_trunk": True}, r"critic_torso\.0\.weight"),
        ({"action_space": spaces.Discrete(4)}, r"actor_head\.weight"),
        ({"action_space": BOX}, r"log_std"),
        ({"observation_space": spaces.Box(-1, 1, (9,), np.float32)}, r"normalizer\.mean"),
    ],
    ids=str,
)
def test_weights_of_another_shape_are_refused_by_name(fields: dict[str, Any], named: str) -> None:
    source, target = agent_for("ppo", **fields), agent_for("ppo")
    with pytest.raises(RunError, match=named):
        target.load_weights(model_of(source))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(value: float) -> None:
    model = {name: w.numpy().copy() for name, w in agent_for("ppo").net.state_dict().items()}
    model["critic_head.bias"][...] = value
    with pytest.raises(RunError, match=r"critic_head\.bias"):
        agent_for("ppo").load_weights(model)


def test_what_fits_is_taken_and_the_rest_named() -> None:
    source = agent_for("ppo", spaces.Discrete(5), seed=1, normalize_obs="rolling")
    source.update(random_rollout(DISCRETE, 1), 24, 100)
    target = agent_for("ppo", DISCRETE, seed=2, normalize_obs="rolling")
    head = target.net.actor_head.weight.detach().clone()
    skipped = target.load_matching_weights(model_of(source))
    assert skipped == ["actor_head.weight", "actor_head.bias"]
    assert torch.equal(target.net.actor_head.weight, head)
    assert torch.equal(target.net.actor_torso[0].weight, source.net.actor_torso[0].weight)
    assert torch.equal(target.encoder.normalizer.mean, source.encoder.normalizer.mean)
    # In place: the optimiser goes on with the very numbers the policy has.
    own = torch.cat([p.reshape(-1) for p in target.descent.optimizer.params])
    assert torch.equal(own, target.descent.optimizer.flat)


def test_statistics_are_taken_together_or_not_at_all() -> None:
    """The count fits everything: taken alone it would keep the mean from ever moving."""
    wide = spaces.Box(-1, 1, (9,), np.float32)
    source = agent_for("ppo", observation_space=wide, normalize_obs="rolling")
    source.encoder.observe(np.ones((1000, 9), np.float32))
    target = agent_for("ppo", normalize_obs="rolling")
    skipped = target.load_matching_weights(model_of(source))
    assert "encoder.normalizer.count" in skipped
    assert float(target.encoder.normalizer.count) == 0


def values_of(agent: PPO, obs: np.ndarray) -> np.ndarray:
    flat = torch.as_tensor(obs.reshape(-1, 3))
    with torch.no_grad():
        return agent.net(flat)[1].numpy().reshape(obs.shape[:-1])


def crafted_rollout() -> Rollout:
    """Env 0 is cut at row 1, env 1 terminates there; row 2 resets both; row 3 is a first step."""
    rollout = Rollout.allocate(4, N_ENVS, OBS, action_kind(DISCRETE), n_outputs=3)
    obs = array_of(rollout)
    obs[:] = np.random.default_rng(0).normal(size=obs.shape) * 3
    rollout.actions[:] = [[0, 1], [2, 0], [1, 1], [0, 2]]
    rollout.reward[:] = [[1, 2], [3, 4], [0, 0], [5, 6]]
    rollout.valid[:] = True
    rollout.valid[2] = False
    rollout.truncated[1, 0] = rollout.terminated[1, 1] = True
    rollout.is_first[[0, 3]] = True
    return rollout


def test_ppo_bootstraps_a_truncation_from_its_final_observation() -> None:
    gamma, lam = 0.9, 0.5
    agent = agent_for("ppo", gamma=gamma, gae_lambda=lam, normalize_advantages="off")
    rollout = crafted_rollout()
    v = values_of(agent, array_of(rollout))
    assert np.abs(v).min() > 1e-3, "a value of zero would prove nothing"
    batch = prepared(agent, rollout).batch

    cut = 3 + gamma * v[2, 0] - v[1, 0]  # obs[2] is the final observation
    ended = 4 - v[1, 1]
    expected = {
        (0, 0): 1 + gamma * v[1, 0] - v[0, 0] + gamma * lam * cut,
        (0, 1): 2 + gamma * v[1, 1] - v[0, 1] + gamma * lam * ended,
        (1, 0): cut,
        (1, 1): ended,
        (3, 0): 5 + gamma * v[4, 0] - v[3, 0],
        (3, 1): 6 + gamma * v[4, 1] - v[3, 1],
    }
    rows = list(expected)
    advantage = np.array(list(expected.values()))
    value = np.array([v[row] for row in rows])
    np.testing.assert_allclose(batch.advantage.numpy(), advantage, rtol=1e-5)
    np.testing.assert_allclose(batch.value.numpy(), value, rtol=1e-5)
    np.testing.assert_allclose(batch.returns.numpy(), advantage + value, rtol=1e-5)
    np.testing.assert_array_equal(batch.obs.numpy(), [array_of(rollout)[row] for row in rows])
    assert batch.actions.tolist() == [rollout.actions[row] for row in rows]


def test_what_follows_a_reset_does_not_reach_the_episode_before() -> None:
    agent = agent_for("ppo", normalize_advantages="off")
    before = prepared(agent, crafted_rollout()).batch
    other = crafted_rollout()
    array_of(other)[3:] += 100
    other.reward[3] += 100
    after = prepared(agent, other).batch
    np.testing.assert_array_equal(before.advantage[:4], after.advantage[:4])
    other = crafted_rollout()
    array_of(other)[2] += 1  # the final observations
    changed = (prepared(agent, other).batch.advantage != before.advantage).tolist()
    assert changed == [True, False, True, False, False, False], "env 1 terminated"


def test_the_first_ratio_is_one() -> None:
    agent = agent_for("ppo", BOX, normalize_obs="rolling")
    batch = prepared(agent, acted(agent, random_rollout(BOX, 1))).batch
    terms = agent._terms(batch, NUMBERS)
    zeros = torch.zeros_like(batch.log_prob)
    torch.testing.assert_close(terms.log_ratio, zeros, rtol=0, atol=1e-5)


def test_the_ratio_is_to_the_policy_that_acted() -> None:
    """Weights that changed since, in another process or by an update, do not change its base."""
    agent = agent_for("ppo", BOX)
    rollout = acted(agent, random_rollout(BOX, 1))
    before = prepared(agent, rollout).batch.log_prob.clone()
    assert rollout.log_std is not None
    mean, std = rollout.outputs, np.exp(rollout.log_std)
    z = (rollout.actions - mean) / std
    expected = (-0.5 * z**2 - np.log(std) - 0.5 * np.log(2 * np.pi)).sum(-1)[rollout.valid]
    np.testing.assert_allclose(before.numpy(), expected, rtol=1e-4, atol=1e-4)
    agent.descent.optimizer.flat.add_(0.1)
    batch = prepared(agent, rollout).batch
    torch.testing.assert_close(batch.log_prob, before)
    terms = agent._terms(batch, NUMBERS)
    assert terms.log_ratio.abs().max() > 0.01


@pytest.mark.parametrize("mode", ["rollout", "batch", "off"])
def test_advantages_are_standardised_over_the_valid_rows_alone(mode: str) -> None:
    rollout = random_rollout(DISCRETE, 1)
    rollout.reward[~rollout.valid] = 1e6
    batch = prepared(agent_for("ppo", normalize_advantages=mode), rollout).batch
    mean, std = float(batch.advantage.mean()), float(batch.advantage.std(correction=0))
    assert ((mean, std) == pytest.approx((0, 1), abs=1e-5)) == (mode == "rollout")
    assert len(batch.obs) == rollout.env_steps == int(rollout.valid.sum())


def test_a_policy_that_moved_too_far_ends_the_update() -> None:
    rollout = random_rollout(DISCRETE, 1)
    free = agent_for("ppo", policy_lr=0.1)
    held = agent_for("ppo", policy_lr=0.1, target_kl=1e-6)
    acted(free, rollout)
    assert free.update(rollout, 24, 100)["opt/ppo/kl_stop_triggered"] == 0
    assert held.update(rollout, 24, 100)["opt/ppo/kl_stop_triggered"] == 1
    assert free.descent.optimizer.n_steps == 10
    assert held.descent.optimizer.n_steps == 1, "the first step moves, the second is refused"


def weights_of(batch: Any) -> Sequence[float]:
    weights: list[float] = batch.advantage.tolist()
    return weights


def test_reinforce_weighs_actions_by_what_followed() -> None:
    rollout = crafted_rollout()
    plain: dict[str, Any] = {"normalize_returns": False, "gamma": 0.5}
    to_go = agent_for("reinforce", **plain)._prepare(rollout).batch
    assert weights_of(to_go) == pytest.approx([1 + 1.5, 2 + 2, 3, 4, 5, 6])
    whole = agent_for("reinforce", returns_type="mc:episode", **plain)._prepare(rollout).batch
    assert weights_of(whole) == pytest.approx([2.5, 4, 2.5, 4, 5, 6])
    agent: Reinforce = agent_for("reinforce", policy_targets="advantages", **plain)
    baseline = prepared(agent, rollout).batch
    with torch.no_grad():
        value = agent.net(baseline.obs)[1]
    torch.testing.assert_close(baseline.advantage, to_go.advantage - value)
    torch.testing.assert_close(baseline.returns, to_go.advantage)
    scaled = agent_for("reinforce", gamma=0.5)._prepare(rollout).batch.advantage
    assert float(scaled.mean()) == pytest.approx(0, abs=1e-6)
    assert float(scaled.std(correction=0)) == pytest.approx(1, abs=1e-5)


def test_schedules_are_read_at_the_clock() -> None:
    agent = agent_for("ppo", policy_lr="lin_0.01", clip_range={"start": 0.4, "end": 0.2})
    metrics = agent.update(random_rollout(DISCRETE, 1), 50, 100)
    assert metrics["hp/policy_lr"] == pytest.approx(0.005)
    assert metrics["hp/clip_range"] == pytest.approx(0.3)


def test_returns_of_rewards_begin_anew_where_the_envs_were_reset() -> None:
    """At a boundary all envs are reset: the running return of the reward normaliser is over."""
    fields: dict[str, Any] = {"normalize_reward": True}
    for algo_id in ("ppo", "reinforce"):
        agent, fresh = agent_for(algo_id, **fields), agent_for(algo_id, **fields)
        agent.rewards(random_rollout(DISCRETE, 1))
        assert np.abs(agent.reward_normalizer.running_return).min() > 1e-3
        rollout = random_rollout(DISCRETE, 2)
        rollout.is_restart = True
        agent.rewards(rollout)
        fresh.rewards(rollout)
        np.testing.assert_allclose(
            agent.reward_normalizer.running_return, fresh.reward_normalizer.running_return
        )


def test_the_mode_of_a_gradient_is_saved_and_resumed() -> None:
    one, two = agent_for("ppo"), agent_for("ppo", seed=9)
    _, extra = one.state()
    assert extra["gradients"] == {"policy": None}
    one.update(random_rollout(DISCRETE, 1), 24, 100)
    one.descent.gradient.mode = "torch"  # as if its first batch had tipped on a tie
    tensors, extra = one.state()
    assert extra["gradients"] == {"policy": "torch"}
    two.load_state(tensors, json.loads(json.dumps(extra)))
    two.update(random_rollout(DISCRETE, 2), 48, 100)
    assert two.descent.mode == "torch"
    assert two.update_mode == "plain torch"
    assert two.n_updates == 2


# -- plugins ----------------------------------------------------------------------------------


class Kept(PPO):
    """As a plugin: state in attributes of its own."""

    def build(self) -> None:
        super().build()
        self.counts = np.arange(3)
        self.table: dict[str, Any] = {"a": [1, 2.5]}
        self.recent: deque[float] = deque([0.5], maxlen=4)
        self.best = np.float32(1.5)
        self.moving = torch.zeros(2)
        self.own_rng = np.random.default_rng(3)
        self.draws = torch.Generator().manual_seed(3)


class Opaque(Kept):
    def build(self) -> None:
        super().build()
        self.tree = SimpleNamespace(size=3)


class Declared(Kept):
    def state(self) -> Any:
        return super().state()


def plugin(kind: type[PPO]) -> Any:
    config: Any = algo_class("ppo").Config(env_id="X-v0", algo_id="ppo", hidden_dims=[4], n_envs=2)
    return kind(config, OBS, DISCRETE, 0)


def test_attributes_of_a_plugin_are_saved() -> None:
    first, second = plugin(Kept), plugin(Kept)
    first.counts[0], first.table["b"], first.best = 9, None, np.float32(2.5)
    first.recent.append(7.0)
    first.moving += 1
    first.own_rng.normal()
    torch.rand(1, generator=first.draws)
    kept = second.moving
    tensors, extra = first.state()
    second.load_state(
        {file: {k: v.numpy() for k, v in part.items()} for file, part in tensors.items()},
        json.loads(json.dumps(extra)),
    )
    assert second.counts.tolist() == [9, 1, 2]
    assert (second.table, second.best) == ({"a": [1, 2.5], "b": None}, 2.5)
    assert (list(second.recent), second.recent.maxlen) == ([0.5, 7.0], 4)
    assert second.moving is kept or second.moving.data_ptr() == kept.data_ptr()
    assert second.moving.tolist() == [1, 1]
    assert first.own_rng.normal() == second.own_rng.normal()
    assert torch.equal(torch.rand(2, generator=first.draws), torch.rand(2, generator=second.draws))


def test_what_cannot_be_saved_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    agent = plugin(Opaque)
    agent.state()
    agent.state()
    (record,) = caplog.records
    assert "self.tree" in record.getMessage()
    assert "self.counts" not in record.getMessage()


def test_a_plugin_that_saves_its_state_itself_is_left_alone() -> None:
    tensors, extra = plugin(Declared).state()
    assert "attributes" not in tensors
    assert "attributes" not in extra
    assert "attributes" not in agent_for("ppo").state()[1]
