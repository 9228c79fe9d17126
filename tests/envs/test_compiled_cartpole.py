"""CartPole stepped in C has the bits of Gymnasium's class."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv

from gymnasium_solver.envs.engines.c import cartpole
from gymnasium_solver.envs.engines.c.cartpole import CompiledSingle, compile_single
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
    step = cartpole.compiled_batch(own)
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
        assert cartpole.compiled_batch(env) is None


@needs_compiler
@pytest.mark.parametrize(("is_sutton", "integrator"), [(False, "euler"), (True, "semi-implicit")])
def test_a_single_pole_has_the_bits_of_gymnasium(is_sutton: bool, integrator: str) -> None:
    own, plain = (
        gymnasium.make("CartPole-v1", sutton_barto_reward=is_sutton, max_episode_steps=60)
        for _ in range(2)
    )
    for env in (own, plain):
        env.unwrapped.kinematics_integrator = integrator  # type: ignore[attr-defined]
    compile_single(own)
    assert isinstance(own.unwrapped.step, CompiledSingle)
    rng, n_over = np.random.default_rng(0), 0
    for env in (own, plain):
        env.reset(seed=5)
    for _ in range(400):
        action = rng.integers(2) if n_over else np.int64(n_over)
        (obs, *rest), (wanted, *others) = own.step(action), plain.step(action)
        same(obs, wanted)
        assert rest == others
        assert [type(x) for x in rest] == [type(x) for x in others]
        same(own.unwrapped.state, plain.unwrapped.state)  # type: ignore[attr-defined]
        if rest[1] or rest[2]:
            n_over += 1
            for env in (own, plain):
                env.reset()
    assert n_over > 3


@needs_compiler
def test_a_step_after_the_end_is_gymnasiums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gymnasium.logger, "min_level", gymnasium.logger.WARN)  # not `train -q`
    own, plain = (gymnasium.make("CartPole-v1").unwrapped for _ in range(2))
    compile_single(own)
    with pytest.raises(AssertionError, match="reset"):
        own.step(1)
    for env in (own, plain):
        env.reset(seed=1)
        while not env.step(1)[2]:
            pass
    with pytest.warns(UserWarning, match="already returned terminated"):
        (obs, *rest), (wanted, *others) = own.step(1), plain.step(1)
    same(obs, wanted)
    assert rest == others

    class Heavier(CartPoleEnv):
        pass

    other = Heavier()
    compile_single(other)
    assert "step" not in vars(other)


def engine() -> GymnasiumEngine:
    return GymnasiumEngine(EnvRequest("CartPole-v1", 6, mode="vector"), "")


@needs_compiler
def test_the_engine_compiles_if_the_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_is_preferred", False)
    plain, own = engine(), engine()
    plain.reset(5)
    own.reset(5)
    rng = np.random.default_rng(0)
    kept = []
    for t in range(80):
        actions = rng.integers(2, size=6)
        wanted = plain.step(actions)
        monkeypatch.setattr(build, "_is_preferred", t > 10)  # also in the middle of an episode
        got = own.step(actions)
        monkeypatch.setattr(build, "_is_preferred", False)
        kept.append((got, wanted))
    for got, wanted in kept:  # arrays of a step are fresh: none was overwritten by the next
        for a, b in zip(got[:-1], wanted[:-1], strict=True):
            same(a, b)
    assert own.compiled is not None
    assert plain.compiled is None


def test_without_a_compiler_numpy_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_is_preferred", True)
    monkeypatch.setattr(cartpole, "_program", lambda: None)
    env = engine()
    env.reset(1)
    env.step(np.zeros(6, np.int64))
    assert env.compiled is None
