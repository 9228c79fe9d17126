"""Fields that are decided or change in the course of a run: schedules, and `normalize_*: auto`."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.algos import algo_class
from gymnasium_solver.config.schedule import Schedule
from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.envs.env_findings import examine
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.training.live import edited
from gymnasium_solver.training.prepare import load_config, settle_scales
from tests.loop.conftest import (
    Heard,
    SmallEnv,
    exact_resume,
    learning_rows,
    make_config,
    registered,
    resume,
    train,
    weight_hash,
)

RISING = {"start": 0.5, "end": 0.9}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": (
        "CartPole-v1",
        {
            "gamma": RISING,
            "gae_lambda": {"start": 0.9, "end": 0.5, "schedule": "cosine"},
            "n_epochs": {"start": 1, "end": 4},
            "target_kl": {"start": 0.5, "end": 0.1, "schedule": "exponential"},
            "max_grad_norm": {"start": 1.0, "end": 0.1, "schedule": "polynomial", "power": 2},
            "weight_decay": {"schedule": "piecewise", "points": [[0, 0.1], [0.5, 0.0], [1, 0.2]]},
            "policy_lr": {"schedule": "OneCycleLR", "start": 0.1, "options": {"max_lr": 0.01}},
        },
    ),
    "dqn": (
        "CartPole-v1",
        {
            "gamma": RISING,
            "tau": {"start": 0.5, "end": 0.1},
            "prioritized": True,
            "per_alpha": {"start": 0.9, "end": 0.2},
            "updates_per_step": {"start": 0.3, "end": 1.0},
        },
    ),
    "td3": (
        "Pendulum-v1",
        {"target_noise": {"start": 0.5, "end": 0.1}, "tau": {"start": 0.5, "end": 0.1}},
    ),
}


@pytest.mark.parametrize("algo_id", list(CASES))
def test_scheduled_numbers_are_followed_and_resumed_exactly(algo_id: str) -> None:
    env_id, scheduled = CASES[algo_id]
    fields = {"max_epochs": 7, "max_episode_steps": 30, **scheduled}
    whole, _ = exact_resume(algo_id, env_id, at=6, every=4, **fields)
    rows = learning_rows(whole)
    for name, written in scheduled.items():
        if isinstance(written, dict):
            schedule, total = Schedule.parse(written), 7 * 3 * 16
            before = [0] + [row["env_steps"] for row in rows[:-1]]
            seen = [row[f"train/hp/{name}"] for row in rows]
            if algo_id == "ppo":  # one update an epoch, at the clock before it
                assert seen == pytest.approx([schedule.at(step, total) for step in before])
            assert len(set(seen)) > 1


def test_a_schedule_that_stays_at_a_value_learns_what_the_value_does() -> None:
    """So it is the value of the schedule that learners read."""
    plain = train("ppo", "CartPole-v1", gamma=0.7, gae_lambda=0.6, n_epochs=3, max_grad_norm=0.1)
    flat = {"schedule": "piecewise", "points": [[0, 0.7], [1, 0.7]]}
    other = train(
        "ppo",
        "CartPole-v1",
        gamma=flat,
        gae_lambda={"start": 0.6, "end": 0.6},
        n_epochs={"start": 3, "end": 3},
        max_grad_norm={"start": 0.1, "end": 0.1},
    )
    assert weight_hash(plain) == weight_hash(other)


def test_the_number_of_epochs_is_rounded() -> None:
    counted = train("ppo", "CartPole-v1", n_epochs={"start": 1, "end": 3}, batch_size=1.0)
    assert [row["train/hp/n_epochs"] for row in learning_rows(counted)] == pytest.approx(
        [1.0, 1.5, 2.0, 2.5], abs=0.1
    )


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("gamma", 1.5, "gamma"),
        ("gamma", {"start": 0.9, "end": 1.5}, "<= 1"),
        ("n_epochs", 2.5, "n_epochs"),
        ("n_epochs", {"start": 0, "end": 3}, ">= 1"),
        ("gamma", {"start": 0.9, "end": 0.5, "schedule": "polynomial"}, "needs power"),
        ("gamma", "high", "expected a number"),
    ],
)
def test_wrong_values_are_refused(field: str, value: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_config("ppo", "CartPole-v1", **{field: value})


def test_a_plateau_of_torch_is_a_rule() -> None:
    options = {"factor": 0.5, "patience": 3, "min_lr": 1e-4}
    written = {"schedule": "ReduceLROnPlateau", "start": 0.01, "options": options}
    config = make_config("ppo", "CartPole-v1", policy_lr=written)
    assert config.policy_lr == Schedule.constant(0.01)
    (rule,) = config.interventions
    assert (rule.patience, rule.max_times, rule.mode) == (4, None, "max")
    assert rule.change == {"policy_lr": {"multiply": 0.5, "min": 1e-4}}
    assert type(config)(**config.model_dump(mode="json")) == config
    with pytest.raises(ConfigError, match="ReduceLROnPlateau has no eps here"):
        make_config("ppo", "CartPole-v1", policy_lr={**written, "options": {"eps": 1}})
    wrong = make_config("ppo", "CartPole-v1", policy_lr={"schedule": "StpLR", "start": 0.1})
    with pytest.raises(ConfigError, match="no scheduler 'StpLR'"):
        algo_class("ppo")(wrong, spaces.Box(-1, 1, (3,)), spaces.Discrete(2), seed=0)


def test_a_polynomial_schedule() -> None:
    schedule = Schedule.parse({"start": 1, "end": 0.2, "schedule": "polynomial", "power": 2})
    assert [schedule.at(step, 100) for step in (0, 50, 100)] == pytest.approx([1, 0.4, 0.2])
    assert Schedule.parse(schedule.dump()) == schedule


# -- `normalize_obs: auto` and `normalize_reward: auto`: decided once, from random steps; recorded


SPACES: dict[str, spaces.Space[Any]] = {
    "floats": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "bytes": spaces.Box(0, 1, (2, 2), np.uint8),
    "codes": spaces.Box(0, 255, (7, 7, 3), np.uint8),
    "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
}


class Scaled(SmallEnv):
    """Numbers and rewards of a given size."""

    def __init__(self, kind: str = "floats", size: Any = 1.0, reward: float = 1.0) -> None:
        self.observation_space = SPACES[kind]
        self.size, self.reward = np.asarray(size), reward

    def see(self) -> np.ndarray:
        space = self.observation_space
        if space.dtype == np.uint8:
            return self.np_random.integers(0, 2, space.shape).astype(np.uint8)
        return (self.size * self.np_random.uniform(-1, 1, space.shape)).astype(np.float32)

    def pay(self, action: int) -> float:
        return self.reward * action

    def ends(self) -> bool:
        return self.t >= 30


SCALED = registered(Scaled)
AUTO = {"normalize_obs": "auto", "normalize_reward": "auto"}  # the default
SCALES: list[tuple[dict[str, Any], Any, Any]] = [
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


@pytest.mark.parametrize(("kwargs", "obs", "reward"), SCALES, ids=lambda case: str(case)[:40])
def test_auto_is_what_doctor_env_advises(kwargs: dict[str, Any], obs: Any, reward: Any) -> None:
    asked = make_config("dqn", SCALED, env_kwargs=kwargs, **AUTO)
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


def test_what_is_given_is_kept() -> None:
    fields = {"normalize_obs": "static", "normalize_reward": False}
    config = make_config("sac", SCALED, env_kwargs={"size": 1e6, "reward": 1e4}, **fields)
    assert settle_scales(config) == (config, [])


@pytest.mark.parametrize(
    ("fields", "gamma"),
    [
        ({"max_episode_steps": 500}, 0.99),
        ({"max_episode_steps": 500, "frame_skip": 2}, 0.98),
        (
            {"max_episode_steps": 400,
             "env_wrappers": [{"id": "FrameSkipWrapper", "skip": [1, 3]}]},
            0.975,
        ),
        ({"max_episode_steps": 20}, 0.95),
        ({"max_episode_steps": 5000}, 0.995),
    ],
)  # fmt: skip
def test_gamma_follows_from_the_time_limit(fields: dict[str, Any], gamma: float) -> None:
    config, [note] = settle_scales(make_config("td3", "Pendulum-v1", gamma="auto", **fields))
    assert isinstance(config, LearnerConfig)
    assert config.gamma == pytest.approx(gamma)
    assert note.startswith(f"gamma: auto is {gamma:g} here")
    assert settle_scales(config) == (config, [])


def test_gamma_auto_needs_a_limit() -> None:
    config = make_config("dqn", "Probe/ConstantReward-v0", gamma="auto")
    with pytest.raises(ConfigError, match="has none: give a number"):
        settle_scales(config)
    with pytest.raises(ConfigError, match="a number >= 0 and <= 1, auto, or a schedule"):
        make_config("dqn", "CartPole-v1", gamma="auto_0.9")
    with pytest.raises(ConfigError, match="gamma: auto is decided before a run starts"):
        edited(make_config("dqn", "CartPole-v1"), {"gamma": "auto"})


@pytest.mark.parametrize("algo_id", ["ppo", "sac"])
def test_the_decision_is_recorded_and_kept(algo_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"env_kwargs": {"size": 1e6, "reward": 1e4}, "n_steps": 24, **AUTO}
    heard = Heard()
    whole = train(algo_id, SCALED, observer=heard, max_epochs=6, **fields)
    assert [n for n in heard.notes if n.startswith("normalize_obs: auto is rolling here")]
    assert [n for n in heard.notes if n.startswith("normalize_reward: auto is true here")]
    saved = load_config(str(whole.config_path))
    assert isinstance(saved, LearnerConfig)
    assert (saved.normalize_obs, saved.normalize_reward) == ("rolling", True)
    given = {"normalize_obs": "rolling", "normalize_reward": True}
    assert weight_hash(train(algo_id, SCALED, max_epochs=6, **{**fields, **given})) == weight_hash(
        whole
    )
    half = train(algo_id, SCALED, max_epochs=3, **fields)
    with monkeypatch.context() as patch:
        patch.setattr("gymnasium_solver.envs.random_steps.record", None)  # not asked again
        resume(half.id, max_epochs=6)
    assert weight_hash(half) == weight_hash(whole)


def test_weights_that_are_taken_over_keep_their_normalisation() -> None:
    first = train("ppo", SCALED, env_kwargs={"size": 1e6}, **AUTO)
    other = train("ppo", SCALED, env_kwargs={"size": 1.0}, init_from_run=first.id, **AUTO)
    saved = load_config(str(other.config_path))
    assert isinstance(saved, LearnerConfig)
    assert (saved.normalize_obs, saved.normalize_reward) == ("rolling", False)
