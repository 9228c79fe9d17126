"""Two halves of the environments: one steps while the policy acts for the other."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.envs.halves import HalvedEnv
from gymnasium_solver.envs.make import training_env
from gymnasium_solver.envs.vector import Step
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.collect import Collector
from gymnasium_solver.training.demo_feed import collector_for
from gymnasium_solver.training.loop import resume, train
from gymnasium_solver.training.overlap import OverlappedCollector
from gymnasium_solver.training.prepare import load_config

SMALL: dict[str, Any] = {
    "overlap": True,
    "seed": 1,
    "n_envs": 4,
    "n_steps": 8,
    "batch_size": 16,
    "hidden_dims": [8],
    "eval_freq_epochs": None,
    "test_episodes": 2,
    "max_env_steps": 300,
}
MEMORY = {"sequence_length": 4, "recurrent_dim": 8}
REPLAY = {"learning_starts": 64, "train_freq": 16}


def config_of(target: str = "CartPole-v1:ppo", **changes: Any) -> Any:
    return load_config(target, overrides={**SMALL, **changes})


def collector_of(config: Any) -> Collector:
    env = training_env(config)
    return collector_for(config, env, build_agent(config, env.observation_space, env.action_space))


def halves_of(collector: Collector) -> HalvedEnv:
    env = collector.env.env
    assert isinstance(env, HalvedEnv)
    return env


def weights(run: Run) -> bytes:
    return (run.path / "checkpoints" / "last" / "model.safetensors").read_bytes()


def test_a_rollout_is_what_the_environments_say() -> None:
    """Every row, replayed step by step: nothing is shifted between halves or rows."""
    config = config_of()
    collector = collector_of(config)
    assert isinstance(collector, OverlappedCollector)
    rollout = collector.collect(0, None)
    assert isinstance(rollout.obs, np.ndarray)
    plain = training_env(config)
    assert np.array_equal(plain.reset(collector.env.state()["seed"]), rollout.obs[0])
    assert not np.array_equal(rollout.obs[0, :2], rollout.obs[0, 2:]), "seeds of their own"
    for t, row in enumerate(rollout.actions):
        step = plain.step(row)
        assert np.array_equal(step.obs, rollout.obs[t + 1])
        assert np.array_equal(step.reward, rollout.reward[t])
        assert np.array_equal(~step.is_reset, rollout.valid[t])
        assert np.array_equal(step.is_reset, rollout.is_first[t + 1])
    collector.close()
    plain.close()


@pytest.mark.parametrize(
    ("target", "changes"),
    [("CartPole-v1:ppo", {}), ("CartPole-v1:ppo_memory", MEMORY), ("CartPole-v1:dqn", REPLAY)],
)
def test_twice_the_same_and_resumed_exactly(
    target: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    config = config_of(target, checkpoint_freq_epochs=1, **changes)
    whole = train(config, runs_root=tmp_path / "a")
    again = train(config, runs_root=tmp_path / "b")
    assert weights(whole) == weights(again)
    short = train(config.replace(max_epochs=4), runs_root=tmp_path / "c")
    resumed = resume(short.id, runs_root=tmp_path / "c", overrides={"max_epochs": None})
    assert weights(resumed) == weights(whole)


def test_one_half_is_stepped_while_the_policy_acts() -> None:
    """Each waits for the other: without overlap neither would go on."""
    collector = collector_of(config_of())
    first = halves_of(collector).envs[0]
    stepping, acting = threading.Event(), threading.Event()
    inner, sample = first.step, collector.policy.sample
    calls = 0

    def step(actions: Any) -> Step:
        stepping.set()
        assert acting.wait(10), "the policy did not act meanwhile"
        return inner(actions)

    def act(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:  # for the second half
            assert stepping.wait(10), "the first half was not being stepped"
            acting.set()
        return sample(*args)

    first.step = step  # type: ignore[method-assign]
    collector.policy.sample = act  # type: ignore[method-assign, assignment]
    collector.collect(0, None)
    assert calls == 2 * 8
    collector.close()


def test_the_budget_is_kept() -> None:
    collector = collector_of(config_of())
    assert collector.collect(0, 13).env_steps == 13
    assert len(collector.collect(13, None).reward) == 8
    collector.close()


def test_an_error_of_one_half_is_the_error_of_the_step() -> None:
    collector = collector_of(config_of())
    collector.collect(0, None)

    def broken(actions: Any) -> Step:
        time.sleep(0.01)
        raise EnvError("the pole broke")

    halves_of(collector).envs[1].step = broken  # type: ignore[method-assign]
    with pytest.raises(EnvError, match="the pole broke"):
        collector.collect(32, None)
    collector.close()


def test_masks_of_both_halves() -> None:
    collector = collector_of(
        config_of("Taxi-v3:ppo", env_id="Taxi-v4", vectorization_mode="sync", max_episode_steps=5)
    )
    rollout = collector.collect(0, None)
    assert rollout.mask is not None
    assert rollout.mask.shape == (9, 4, 6)
    chosen = np.take_along_axis(rollout.mask[:-1], rollout.actions[..., None], 2)[..., 0]
    assert chosen[rollout.valid].all()
    assert not rollout.mask.all()
    collector.close()


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"n_envs": 5}, "needs an even n_envs"), ({"collectors": 2}, "together with collectors")],
)
def test_what_it_cannot_do(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_of(**changes)
