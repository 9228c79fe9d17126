"""Training and playing from Python, images, and starting from another run's weights."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import gymnasium_solver as gs
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.runs.checkpoint import load_checkpoint
from gymnasium_solver.training.prepare import changed_from_shipped, load_config
from tests.loop.conftest import Heard, SmallEnv, registered, train, weight_hash

SMALL: dict[str, Any] = {
    "n_envs": 3,
    "n_steps": 16,
    "max_epochs": 3,
    "eval_freq_epochs": 1,
    "eval_episodes": 2,
    "hidden_dims": [8],
    "early_stop_on_eval_threshold": None,
}


def greedy_by_torch(agent: Any, obs: np.ndarray) -> np.ndarray:
    """The best action, worked out from the network's outputs."""
    with torch.no_grad():
        outputs = agent.net.actor(torch.as_tensor(obs)).numpy()
    if isinstance(agent.action_space, gymnasium.spaces.Discrete):
        best: np.ndarray = outputs.argmax(1)
        return best
    low, high = agent.action_space.low, agent.action_space.high
    return low + (np.clip(outputs, -1, 1) + 1) / 2 * (high - low)


@pytest.mark.parametrize("target", ["CartPole-v1:ppo", "CartPole-v1:reinforce", "Pendulum-v1:ppo"])
def test_train_load_act(target: str) -> None:
    run = gs.train(target, seed=1, normalize_obs=True, max_episode_steps=30, **SMALL)
    assert run.path.parent == Path("runs")
    assert run.meta()["status"] == "finished"
    rng = np.random.default_rng(0)
    width = 4 if target.startswith("CartPole") else 3
    obs = rng.normal(size=(20, width)).astype(np.float32)
    for ref in ("@last/@best", "@last/@last", "@last", run.id, str(run.path)):
        agent = gs.load(ref)
        np.testing.assert_allclose(agent.act(obs), greedy_by_torch(agent, obs), atol=1e-5)
        np.testing.assert_allclose(agent.act(obs[0]), agent.act(obs)[0], rtol=1e-6)
    saved = load_checkpoint(run.checkpoints_dir / "best").tensors["model"]
    loaded = gs.load("@last/@best").net.state_dict()
    for name, values in saved.items():
        np.testing.assert_array_equal(loaded[name].numpy(), values, err_msg=name)


def test_an_agent_plays_gymnasium_itself() -> None:
    gs.train("CartPole-v1:ppo", seed=1, runs_dir="elsewhere", **SMALL)
    agent = gs.load("@last", runs_dir="elsewhere")
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=1)
    for _ in range(5):
        obs, *_ = env.step(agent.act(obs))
    env.close()


def test_a_config_object_and_fields_over_it() -> None:
    config = gs.load_config("CartPole-v1:ppo", overrides={"seed": 1, **SMALL})
    run = gs.train(config, max_epochs=1)
    assert run.meta()["epoch"] == 1
    assert gs.load_config(str(run.config_path)) == config.replace(max_epochs=1)


class Screen(SmallEnv):
    """Pixels that say which action pays."""

    observation_space = gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8)
    bright = False

    def see(self) -> np.ndarray:
        self.bright = bool(self.np_random.integers(2))
        return np.full((8, 8, 3), 230 if self.bright else 20, np.uint8)

    def pay(self, action: int) -> float:
        return 1.0 if action == self.bright else -1.0

    def ends(self) -> bool:
        return bool(self.np_random.random() < 0.2)


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", [False, "rolling", "static"])
@pytest.mark.parametrize("algo_id", ["ppo", "reinforce"])
def test_images_are_learnt_from(algo_id: str, mode: Any) -> None:
    run = train(
        *(algo_id, registered(Screen)),
        policy="mlp",  # flattened; tests/nets has convolutions
        normalize_obs=mode,
        n_envs=4,
        n_steps=32,
        batch_size=32,
        gamma=0.0,
        policy_lr=0.01,
        max_epochs=12,
    )
    agent = gs.load(run.id)
    assert agent.policy.observation_space.dtype == np.uint8
    dark, bright = np.full((2, 8, 8, 3), 20, np.uint8), np.full((2, 8, 8, 3), 230, np.uint8)
    assert agent.act(dark).tolist() == [0, 0]
    assert agent.act(bright).tolist() == [1, 1]


def test_starting_from_another_run_takes_what_fits_and_says_what_did_not() -> None:
    source = train("ppo", "Bandit-v0", normalize_obs="rolling")
    heard = Heard()
    ten, four = {"n_arms": 10}, {"n_arms": 4}
    same = train("ppo", "Bandit-v0", init_from_run=source.id, observer=heard, env_kwargs=ten)
    assert "tensors loaded" in heard.notes[0]
    assert source.id in heard.notes[0]
    assert "left at initial values" not in heard.notes[0]
    assert weight_hash(same) != weight_hash(train("ppo", "Bandit-v0", env_kwargs=ten))

    train("ppo", "Bandit-v0", init_from_run="@last/@last", observer=heard, env_kwargs=four)
    assert "left at initial values: actor_head.weight, actor_head.bias" in heard.notes[-1]
    train("reinforce", "Bandit-v0", init_from_run=source.id, observer=heard)
    assert "not used: critic_head.bias" in heard.notes[-1]


def test_the_weights_really_come_over() -> None:
    source = train("ppo", "Bandit-v0", policy_lr=0.05)
    # A step too small to see: what the new run ends with is what it started from.
    run = train("ppo", "Bandit-v0", seed=9, init_from_run=source.id, policy_lr=1e-30, max_epochs=1)
    own, theirs = (
        load_checkpoint(r.checkpoints_dir / "last").tensors["model"] for r in (run, source)
    )
    for name, values in theirs.items():
        np.testing.assert_array_equal(own[name], values, err_msg=name)


def moments_of(run: Any) -> dict[str, np.ndarray]:
    return load_checkpoint(run.checkpoints_dir / "last").tensors["optimizer"]


@pytest.mark.parametrize("optimizer", ["adam", "NAdam"])
def test_the_state_of_the_optimiser_comes_over_if_asked(optimizer: str) -> None:
    source = train("ppo", "Bandit-v0", policy_lr=0.05, optimizer=optimizer)
    steps = int(moments_of(source)["policy.n_steps"])
    heard, same = Heard(), {"optimizer": optimizer, "init_from_run": source.id, "max_epochs": 1}
    plain = train("ppo", "Bandit-v0", seed=9, **same)
    own = int(moments_of(plain)["policy.n_steps"])
    run = train("ppo", "Bandit-v0", seed=9, init_optimizer=True, observer=heard, **same)
    assert "optimiser state loaded: policy" in heard.notes[-1]
    assert int(moments_of(run)["policy.n_steps"]) == steps + own
    # The first steps are those of an optimiser that knows the size of gradients.
    assert not all(np.array_equal(a, moments_of(plain)[k]) for k, a in moments_of(run).items())


def test_the_state_of_an_optimiser_stays_where_a_part_of_its_parameters_is_new() -> None:
    source = train("ppo", "Bandit-v0", max_epochs=1)
    heard = Heard()
    new = {"init_from_run": source.id, "init_optimizer": True, "observer": heard, "max_epochs": 1}
    train("ppo", "Bandit-v0", env_kwargs={"n_arms": 4}, **new)
    assert "optimisers that start from zero: policy" in heard.notes[-1]
    train("ppo", "Bandit-v0", optimizer="sgd", **new)
    assert "not loaded: it is of adam, here the optimizer is sgd" in heard.notes[-1]
    with pytest.raises(ConfigError, match="init_optimizer needs init_from_run"):
        train("ppo", "Bandit-v0", init_optimizer=True)


def test_nothing_that_fits_is_an_error_and_leaves_no_run_behind() -> None:
    source = train("ppo", "CartPole-v1", max_epochs=1)
    n_runs = len(list(Path("runs").iterdir()))
    with pytest.raises(RunError, match=r"nothing in .* matches.*hidden_dims"):
        train("ppo", "Pendulum-v1", init_from_run=source.id, hidden_dims=[5])
    with pytest.raises(RunError, match="no run 'nobody'"):
        train("ppo", "CartPole-v1", init_from_run="nobody")
    assert len(list(Path("runs").iterdir())) == n_runs


def test_a_run_records_how_it_differs_from_the_shipped_config(tmp_path: Path) -> None:
    config = load_config("CartPole-v1:ppo", overrides={"policy_lr": 0.002, "seed": 3})
    assert changed_from_shipped(config) == {"policy_lr": [{"start": 0.003, "end": 0.0}, 0.002]}
    assert changed_from_shipped(load_config("CartPole-v1:ppo")) == {}
    assert changed_from_shipped(config.replace(variant="own")) is None
