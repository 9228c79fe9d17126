"""A journaled env comes back to exactly where it was, on every engine and in every phase."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.envs.journal import CHUNK_STEPS, JournaledEnv, journal_dtype
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.vector import VectorWrapper
from gymnasium_solver.envs.wrappers.shaping import EPISODE_PARTS
from gymnasium_solver.errors import EnvError
from gymnasium_solver.fast.native.build import can_compile
from tests.envs.scripted import BUTTONS

needs_compiler = pytest.mark.skipif(not can_compile(), reason="needs a C compiler")
CASES = [
    ("CartPole-v1", "envpool", None),
    ("CartPole-v1", "envpool", 9),  # cut by the time limit, row by row
    ("CartPole-v1", "vector", 9),
    ("CartPole-v1", "sync", None),
    ("CartPole-v1", "async", 9),
    ("Pendulum-v1", "envpool", 20),
    ("FrozenLake-v1", "envpool", None),
    ("LunarLander-v3", "envpool", 40),
    ("BipedalWalker-v3", "envpool", None),
    ("Hopper-v5", "envpool", None),
    ("Hopper-v5", "sync", None),
    ("Bandit-v0", "auto", None),
    ("Probe/Counting-v0", "auto", None),
    pytest.param("c:cartpole", "auto", 9, marks=needs_compiler),
    ("Probe/ObsActionRewardContinuous-v0", "auto", None),
]


def journaled(env_id: str, mode: str, limit: int | None, **more) -> JournaledEnv:
    env = make_vector_env(env_id, 3, vectorization_mode=mode, max_episode_steps=limit, **more)
    return JournaledEnv(env)


def drive(env: JournaledEnv, actions: list[np.ndarray]) -> list[list[np.ndarray]]:
    return [list(env.step(a)[:7]) for a in actions]


@pytest.mark.parametrize(("env_id", "mode", "limit"), CASES)
def test_restore_is_exact(env_id, mode, limit, request):
    if (env_id, mode) == ("Hopper-v5", "sync"):
        request.getfixturevalue("gymnasium_mujoco")
    env = journaled(env_id, mode, limit)
    env.action_space.seed(0)
    actions = [np.stack([env.action_space.sample() for _ in range(3)]) for _ in range(94)]
    env.reset(8)
    drive(env, actions[:5])
    env.reset(9)  # the journal begins again here
    drive(env, actions[:54])
    for phase in range(3):  # one of them falls into an episode, or on its end
        state = env.state()
        expected = drive(env, actions[54:])
        other = journaled(env_id, mode, limit)
        obs = other.restore(state)
        assert np.array_equal(obs, state["obs"])
        assert other.state()["actions"].shape == state["actions"].shape
        got = drive(other, actions[54:])
        for one, two in zip(expected, got, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
        env.restore(state)
        drive(env, actions[54 + phase : 55 + phase])


def test_the_state_is_small_and_plain():
    env = journaled("CartPole-v1", "vector", None)
    env.reset(3)
    assert env.state()["actions"].shape == (0, 3)
    for _ in range(CHUNK_STEPS + 5):
        env.step([0, 1, 1])
    state = env.state()
    assert state["seed"] == 3
    assert state["actions"].dtype == np.uint8
    assert state["actions"].shape == (CHUNK_STEPS + 5, 3)
    assert (state["actions"] == [0, 1, 1]).all()
    assert all(isinstance(v, np.ndarray | int) for v in state.values())
    assert np.array_equal(env.restore(state), state["obs"])


def test_a_saved_state_does_not_change_afterwards():
    env = journaled("CartPole-v1", "vector", None)
    env.reset(3)
    env.step([0, 1, 1])
    state = env.state()
    before = {name: np.array(value) for name, value in state.items()}
    env.step([1, 0, 0])
    env.reset(4)
    env.step([1, 0, 0])
    assert all(np.array_equal(before[name], state[name]) for name in state)


class HashObs(VectorWrapper):
    """Observations that depend on the last bit of an action, as a wrapper's might."""

    def step(self, actions):
        step = self.env.step(actions)
        return step._replace(obs=step.obs + (np.asarray(actions, np.float64) * 1e6 % 1))


def test_float64_actions_replay_exactly():
    """The journal keeps float32, so the env is stepped with float32 too."""
    env = JournaledEnv(HashObs(make_vector_env("Pendulum-v1", 3)))
    env.reset(0)
    for t in range(20):
        env.step(np.full((3, 1), np.sin(t) * 1.123456789, np.float64))
    state = env.state()
    assert state["actions"].dtype == np.float32
    assert np.array_equal(env.restore(state), state["obs"])


def test_a_refused_action_is_not_recorded():
    env = journaled("CartPole-v1", "vector", None)
    env.reset(0)
    with pytest.raises(EnvError):
        env.step([0, 1, 300])
    assert len(env.state()["actions"]) == 0


def test_an_env_that_is_not_deterministic_is_told():
    env = journaled("GsolveTest/Drifting-v0", "sync", None)
    env.reset(0)
    env.step([0, 0, 0])
    with pytest.raises(EnvError, match="not deterministic under its seed: obs differs"):
        env.restore(env.state())


def test_misuse_is_told():
    env = journaled("CartPole-v1", "vector", None)
    with pytest.raises(EnvError, match="no state to save before reset"):
        env.state()
    env.reset(0)
    more = JournaledEnv(make_vector_env("CartPole-v1", 4))
    with pytest.raises(EnvError, match=r"shape \(3,\), this env takes \(4,\)"):
        more.restore(env.state())


@pytest.mark.parametrize(
    ("space", "dtype"),
    [
        (spaces.Discrete(256), np.uint8),
        (spaces.Discrete(257), np.int16),
        (spaces.Discrete(3, start=-1), np.int16),
        (spaces.Discrete(100_000), np.int32),
        (spaces.Discrete(2**40), np.int64),
        (spaces.MultiBinary(3), np.uint8),
        (spaces.MultiDiscrete([3, 400]), np.int16),
        (spaces.Box(-1, 1, (2,)), np.float32),
    ],
)
def test_journal_dtype_keeps_every_legal_action(space, dtype):
    assert journal_dtype(space) == np.dtype(dtype)


# -- every wrapper with a state ------------------------------------------------------------------

CAR = "MountainCar-v0"
WRAPPED: dict[str, tuple[str, list[dict[str, Any]], str]] = {
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


def wrapped(name: str) -> JournaledEnv:
    env_id, wrappers, mode = WRAPPED[name]
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


@pytest.mark.parametrize("name", WRAPPED)
def test_same_seed_same_rows_and_exact_restore(name):
    env = wrapped(name)
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
    other = wrapped(name)
    other.reset(99)
    other.step(actions[0])
    assert np.array_equal(other.restore(state), before[-1][0])
    assert same(rows(other, actions[25:]), after)
