"""`normalize_obs: auto` and `normalize_reward: auto`: decided once, from random steps; recorded.

The rule is the one that `gsolve doctor env` advises by.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.envs.checks.env import examine
from gymnasium_solver.training.prepare import load_config, settle_scales
from tests.loop.conftest import Notes

Call = Callable[..., Any]
SPACES: dict[str, spaces.Space[Any]] = {
    "floats": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "bytes": spaces.Box(0, 1, (2, 2), np.uint8),
    "codes": spaces.Box(0, 255, (7, 7, 3), np.uint8),
    "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
}


class Scaled(gymnasium.Env[Any, Any]):
    """Numbers and rewards of a given size."""

    action_space = spaces.Discrete(2)

    def __init__(self, kind: str = "floats", size: Any = 1.0, reward: float = 1.0) -> None:
        self.observation_space = SPACES[kind]
        self.size, self.reward = np.asarray(size), reward

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.n_steps = 0
        return self._obs(), {}

    def step(self, action: int) -> Any:
        self.n_steps += 1
        return self._obs(), self.reward * action, self.n_steps >= 30, False, {}

    def _obs(self) -> np.ndarray:
        space = self.observation_space
        if space.dtype == np.uint8:
            return self.np_random.integers(0, 2, space.shape).astype(np.uint8)
        return (self.size * self.np_random.uniform(-1, 1, space.shape)).astype(np.float32)


SCALED = "GsolveLoop/Scaled-v0"
if SCALED not in gymnasium.registry:
    made: Any = Scaled
    gymnasium.register(SCALED, entry_point=made)

CASES: list[tuple[dict[str, Any], Any, Any]] = [
    ({}, False, False),
    ({"size": 1e6}, "rolling", False),
    ({"size": [1.0, 1e-3]}, "rolling", False),  # uneven
    ({"size": 1e-3}, "rolling", False),
    ({"reward": 1e4}, False, True),
    ({"reward": 9.0}, False, False),
    ({"size": 1e6, "reward": -1e4}, "rolling", True),
    ({"kind": "bytes"}, False, False),  # scaled by the bounds of the space
    ({"kind": "codes"}, "rolling", False),  # 1 of 255 is nearly nothing
    ({"kind": "image"}, False, False),
]


@pytest.mark.parametrize(("kwargs", "obs", "reward"), CASES, ids=lambda case: str(case)[:40])
def test_auto_is_what_doctor_env_advises(
    kwargs: dict[str, Any], obs: Any, reward: Any, make_config: Call
) -> None:
    asked = make_config("dqn", SCALED, env_kwargs=kwargs)
    assert (asked.normalize_obs, asked.normalize_reward) == ("auto", "auto"), "the default"
    config, notes = settle_scales(asked)
    assert isinstance(config, LearnerConfig)
    assert (config.normalize_obs, config.normalize_reward) == (obs, reward)
    assert len(notes) == (obs is not False) + reward
    found = {finding.name: finding for finding in examine(SCALED, kwargs, 600)}
    assert ("normalize_obs: rolling" in found["scale"].fix) == (obs == "rolling")
    assert ("normalize_reward: true" in found["reward"].fix) == reward


def test_large_returns_of_small_rewards() -> None:
    config = load_config("Pendulum-v1:sac", overrides={"normalize_reward": "auto"})
    settled, [note] = settle_scales(config)
    assert isinstance(settled, LearnerConfig)
    assert settled.normalize_reward is True
    assert note.startswith("normalize_reward: auto is true here, rewards are up to 1")


def test_what_is_given_is_kept(make_config: Call) -> None:
    fields = {"normalize_obs": "static", "normalize_reward": False}
    config = make_config("sac", SCALED, env_kwargs={"size": 1e6, "reward": 1e4}, **fields)
    assert settle_scales(config) == (config, [])


@pytest.mark.parametrize("algo_id", ["ppo", "sac"])
def test_the_decision_is_recorded_and_kept(
    algo_id: str, train: Call, resume: Call, weight_hash: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"env_kwargs": {"size": 1e6, "reward": 1e4}, "n_steps": 24}
    heard = Notes()
    whole = train(algo_id, SCALED, observer=heard, max_epochs=6, **fields)
    assert [n for n in heard.notes if n.startswith("normalize_obs: auto is rolling here")]
    assert [n for n in heard.notes if n.startswith("normalize_reward: auto is true here")]
    saved = load_config(str(whole.config_path))
    assert isinstance(saved, LearnerConfig)
    assert (saved.normalize_obs, saved.normalize_reward) == ("rolling", True)
    given = {"normalize_obs": "rolling", "normalize_reward": True}
    assert weight_hash(train(algo_id, SCALED, max_epochs=6, **fields, **given)) == weight_hash(
        whole
    )
    half = train(algo_id, SCALED, max_epochs=3, **fields)
    with monkeypatch.context() as patch:
        patch.setattr("gymnasium_solver.envs.checks.scale.record", None)  # not asked again
        resume(half.id, max_epochs=6)
    assert weight_hash(half) == weight_hash(whole)


def test_weights_that_are_taken_over_keep_their_normalisation(train: Call) -> None:
    first = train("ppo", SCALED, env_kwargs={"size": 1e6})
    other = train("ppo", SCALED, env_kwargs={"size": 1.0}, init_from_run=first.id)
    saved = load_config(str(other.config_path))
    assert isinstance(saved, LearnerConfig)
    assert (saved.normalize_obs, saved.normalize_reward) == ("rolling", False)
