"""Classic control stepped in C has the bits of Gymnasium's classes."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv

from gymnasium_solver.envs.engines.c import classics
from gymnasium_solver.envs.engines.c.classics import compiled_singles
from gymnasium_solver.envs.engines.gymnasium import GymnasiumEngine
from gymnasium_solver.envs.spec import EnvRequest
from gymnasium_solver.fast.native import build

needs_compiler = pytest.mark.skipif(not build.can_compile(), reason="no C compiler")


def same(a: np.ndarray, b: np.ndarray) -> None:
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    assert a.tobytes() == b.tobytes()


def run_both(n: int, n_steps: int, **kwargs: Any) -> int:
    """Step both with the same actions, with a reset in between; returns the episodes that ended."""
    own, plain = (CartPoleVectorEnv(n, **kwargs) for _ in range(2))
    step = classics.compiled_vector(own)
    assert step is not None
    rng, n_done = np.random.default_rng(n), 0
    for seed in (1, 2):
        for env in (own, plain):
            env.reset(seed=seed, options={"low": -0.1, "high": 0.1} if seed == 2 else None)
        for _ in range(n_steps):
            actions = rng.integers(2, size=n)
            *got, info = step(actions)
            *wanted, _ = plain.step(actions)
            assert info == {}
            for a, b in zip(got, wanted, strict=True):
                same(a, b)
            for name in ("state", "steps", "prev_done"):
                np.testing.assert_array_equal(getattr(own, name), getattr(plain, name))
            n_done += int(plain.prev_done.sum())
    return n_done


@needs_compiler
@pytest.mark.parametrize("n", [1, 3, 8, 33])
def test_the_steps_have_the_bits_of_gymnasium(n: int) -> None:
    assert run_both(n, 150) > n


@needs_compiler
def test_truncated_episodes() -> None:
    assert run_both(5, 60, max_episode_steps=7) > 60


class Heavier(CartPoleVectorEnv):
    pass


def test_other_equations_are_left_to_gymnasium() -> None:
    changed = CartPoleVectorEnv(2)
    changed.gravity = 11.0
    for env in (Heavier(2), CartPoleVectorEnv(2, sutton_barto_reward=True), changed):
        assert classics.compiled_vector(env) is None


IDS = {
    "CartPole-v1": {},
    "Acrobot-v1": {"max_episode_steps": 90},
    "MountainCar-v0": {"max_episode_steps": 90},
    "MountainCarContinuous-v0": {"max_episode_steps": 90},
    "Pendulum-v1": {"max_episode_steps": 90},
}


def single_envs(env_id: str, n_envs: int = 5, **kwargs: Any) -> GymnasiumEngine:
    limit = kwargs.pop("max_episode_steps", None)
    request = EnvRequest(env_id, n_envs, kwargs, mode="sync", max_episode_steps=limit)
    return GymnasiumEngine(request, "")


def prefer(monkeypatch: pytest.MonkeyPatch, is_preferred: bool) -> None:
    monkeypatch.setattr(build, "_is_preferred", is_preferred)


@needs_compiler
@pytest.mark.parametrize("env_id", IDS)
def test_single_envs_have_the_bits_of_gymnasium(
    env_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they are compiled in the middle of an episode."""
    plain, own = single_envs(env_id, **IDS[env_id]), single_envs(env_id, **IDS[env_id])
    rng, n_over = np.random.default_rng(0), 0
    kept: list[Any] = []
    for seed in (5, 6):
        prefer(monkeypatch, False)
        same(own.reset(seed), plain.reset(seed))
        for t in range(200):
            space = own.action_space
            actions = (
                rng.uniform(-2.5, 2.5, (5, *space.shape)).astype(np.float32)
                if space.shape
                else rng.integers(space.n, size=5)  # type: ignore[attr-defined]
            )
            if env_id.startswith("MountainCar") and t % 90 > 10:  # with its speed, to the goal
                way = np.where(kept[-1][0].obs[:, 1] < 0, 0, 2)
                actions = way if not space.shape else (way - 1.0).astype(np.float32)[:, None]
            prefer(monkeypatch, False)
            wanted = plain.step(actions)
            prefer(monkeypatch, t > 20)
            kept.append((own.step(actions), wanted))
            n_over += int(wanted.is_over.sum())
    for found, wanted in kept:  # arrays of a step are fresh: none was overwritten by the next
        for a, b in zip(found[:-1], wanted[:-1], strict=True):
            same(a, b)
    assert own.compiled is not None
    assert n_over > 15


class Slower(CartPoleEnv):
    pass


class Same(gymnasium.Wrapper):
    pass


@needs_compiler
@pytest.mark.parametrize(
    "envs",
    [
        lambda: [gymnasium.make("Pendulum-v1", g=9.8)],
        lambda: [gymnasium.make("CartPole-v1", sutton_barto_reward=True)],
        lambda: [gymnasium.make("Acrobot-v1", render_mode="rgb_array")],
        lambda: [gymnasium.make("Pendulum-v1"), gymnasium.make("CartPole-v1")],
        lambda: [Same(gymnasium.make("MountainCar-v0"))],
        lambda: [Slower()],
    ],
)
def test_other_single_envs_step_by_themselves(envs: Any) -> None:
    assert compiled_singles(envs()) is None


def engine() -> GymnasiumEngine:
    return GymnasiumEngine(EnvRequest("CartPole-v1", 6, mode="vector"), "")


@needs_compiler
def test_the_engine_compiles_if_the_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, False)
    plain, own = engine(), engine()
    plain.reset(5)
    own.reset(5)
    rng = np.random.default_rng(0)
    kept = []
    for t in range(80):
        actions = rng.integers(2, size=6)
        wanted = plain.step(actions)
        prefer(monkeypatch, t > 10)  # also in the middle of an episode
        got = own.step(actions)
        prefer(monkeypatch, False)
        kept.append((got, wanted))
    for got, wanted in kept:  # arrays of a step are fresh: none was overwritten by the next
        for a, b in zip(got[:-1], wanted[:-1], strict=True):
            same(a, b)
    assert own.compiled is not None
    assert plain.compiled is None


def test_without_a_compiler_python_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, True)
    monkeypatch.setattr(classics, "can_compile", lambda: False)
    classics._program.cache_clear()
    try:
        for env in (engine(), single_envs("Pendulum-v1", 6)):
            env.reset(1)
            env.step(np.zeros((6, *(env.action_space.shape or ())), env.action_space.dtype))
            assert env.compiled is None
    finally:
        classics._program.cache_clear()
