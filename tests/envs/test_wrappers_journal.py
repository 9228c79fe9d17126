"""Every wrapper with a state: the same under a seed, and back where it was after a restore."""

from typing import Any

import numpy as np
import pytest

from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.wrappers.shaping import EPISODE_PARTS
from tests.envs.scripted import BUTTONS

CAR = "MountainCar-v0"
CASES: dict[str, tuple[str, list[dict[str, Any]], str]] = {
    "CartPole shaper": ("CartPole-v1", [{"id": "CartPoleV1_RewardShaper"}], "auto"),
    "MountainCar shaper": (CAR, [{"id": "MountainCarV0_RewardShaper"}], "auto"),
    "count bonus": (CAR, [{"id": "MountainCarV0_StateCountBonus", "position_bins": 8}], "auto"),
    "sticky": (BUTTONS, [{"id": "StickyActions", "sticky_buttons": {"0": 0.5}}], "sync"),
    "skip, EnvPool": (CAR, [{"id": "FrameSkipWrapper", "skip": [1, 4]}], "envpool"),
    "skip, sync": (CAR, [{"id": "FrameSkipWrapper", "skip": [1, 4]}], "sync"),
    "skip, async": (CAR, [{"id": "FrameSkipWrapper", "skip": [1, 4]}], "async"),
    "Pong": ("ALE/Pong-v5", [{"id": "PongV5_RewardShaper"}, {"id": "PongV5_FeatureExtractor"}],
             "envpool"),
    "Breakout": ("ALE/Breakout-v5", [{"id": "BreakoutV5_FeatureExtractor"}], "envpool"),
    "pixels": ("CartPole-v1", [{"id": "PixelObservation",
                                "render_kwargs": {"height": 20, "width": 30}}], "auto"),
    "action reward": ("CartPole-v1", [{"id": "ActionRewardShaper", "rewards": [1, 2]}], "auto"),
}  # fmt: skip


def journaled(name: str) -> JournaledEnv:
    env_id, wrappers, mode = CASES[name]
    env = make_vector_env(
        env_id,
        2,
        env_kwargs={"obs_type": "ram", "noop_max": 1} if env_id.startswith("ALE/") else {},
        env_wrappers=wrappers,
        vectorization_mode=mode,
        max_episode_steps=17,
    )
    return JournaledEnv(env)


def rows(env: JournaledEnv, actions: list[np.ndarray]) -> list:
    steps = [env.step(a) for a in actions]
    return [[*step[:7], *step.info.get(EPISODE_PARTS, {}).values()] for step in steps]


def same(left: list, right: list) -> bool:
    return all(
        len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
        for a, b in zip(left, right, strict=True)
    )


@pytest.mark.parametrize("name", CASES)
def test_same_seed_same_rows_and_exact_restore(name):
    env = journaled(name)
    env.reset(11)
    env.action_space.seed(0)
    actions = [
        np.stack([np.asarray(env.action_space.sample()) for _ in range(2)]) for _ in range(50)
    ]
    before = rows(env, actions[:25])
    state = env.state()
    after = rows(env, actions[25:])
    assert any(row[4].any() for row in before)  # an episode was opened before the restore
    env.reset(11)
    assert same(rows(env, actions[:25]), before)
    other = journaled(name)
    other.reset(99)
    other.step(actions[0])
    assert np.array_equal(other.restore(state), before[-1][0])
    assert same(rows(other, actions[25:]), after)
    env.close()
    other.close()
