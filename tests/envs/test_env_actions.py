"""Bad actions are refused before an engine sees them, with the env, the value and the row named."""

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.envs.action_checks import action_checker
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.random_steps import RandomPolicy
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.space_types import to_native

spaces = gymnasium.spaces


@pytest.mark.parametrize("mode", ["envpool", "vector", "sync"])
@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0, 7, 0], r"CartPole-v1: action 7 of env 1 is not in Discrete\(2\)"),
        ([0, 0, -1], r"action -1 of env 2"),
        ([0.0, 1.0, 1.0], "whole numbers, got dtype float64"),
        ([True, False, True], "whole numbers, got dtype bool"),
        ([[0], [0], [0]], r"shape \(3, 1\), expected \(3,\)"),
        ([0, 1], r"shape \(2,\), expected \(3,\)"),
        ("left", "dtype <U4"),
        (None, "dtype object"),
    ],
)
def test_discrete(mode, actions, message):
    env = make_vector_env("CartPole-v1", 3, vectorization_mode=mode)
    env.reset(0)
    with pytest.raises(EnvError, match=message):
        env.step(np.array(actions))
    step = env.step([0, 1, 1])  # a refused action leaves the env as it was
    assert (step.episode_length == 1).all()


@pytest.mark.parametrize("mode", ["envpool", "sync"])
@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([[0.0], [np.nan]], r"Pendulum-v1: action \[nan\] of env 1 is not in Box"),
        ([[np.inf], [0.0]], r"action \[inf\] of env 0"),
        ([[np.inf], [-np.inf]], r"action \[inf\] of env 0"),
        ([0.0, 0.0], r"shape \(2,\), expected \(2, 1\)"),
        ([["a"], ["b"]], "numbers as actions, got dtype <U1"),
    ],
)
def test_box(mode, actions, message):
    env = make_vector_env("Pendulum-v1", 2, vectorization_mode=mode)
    env.reset(0)
    with pytest.raises(EnvError, match=message):
        env.step(np.array(actions))


@pytest.mark.parametrize("mode", ["envpool", "sync"])
def test_box_actions_are_clipped_and_any_number_type_will_do(mode):
    env = make_vector_env("Pendulum-v1", 2, vectorization_mode=mode)
    results = []
    for actions in (
        np.array([[100.0], [-100.0]]),
        np.array([[2], [-2]]),
        np.array([[2], [-2]], np.float32),
        [[2.0], [-2.0]],
    ):
        env.reset(0)
        results.append(env.step(actions))
    for step in results[1:]:
        assert np.array_equal(step.obs, results[0].obs)
        assert np.array_equal(step.reward, results[0].reward)


def test_large_but_finite_box_actions_pass():
    check = action_checker(spaces.Box(-1, 1, (2,), np.float32), 2, "X")
    huge = np.full((2, 2), np.finfo(np.float32).max)  # their sum overflows
    assert np.array_equal(check(huge), np.ones((2, 2)))


def test_integer_types_and_offsets():
    check = action_checker(spaces.Discrete(3, start=5), 2, "X")
    for dtype in (np.int8, np.uint8, np.int32, np.uint64):
        assert check(np.array([5, 7], dtype)).dtype == np.int64
    for bad in ([4, 5], [5, 8], [0, 5]):
        with pytest.raises(EnvError, match="is not in Discrete"):
            check(np.array(bad))


def test_multi_discrete_and_multi_binary():
    check = action_checker(spaces.MultiDiscrete([2, 3]), 2, "X")
    assert check([[1, 2], [0, 0]]).tolist() == [[1, 2], [0, 0]]
    with pytest.raises(EnvError, match=r"action \[2, 0\] of env 1"):
        check([[1, 2], [2, 0]])
    check = action_checker(spaces.MultiBinary(2), 2, "X")
    assert check([[1, 0], [1, 1]]).tolist() == [[1, 0], [1, 1]]
    with pytest.raises(EnvError, match=r"action \[0, 2\] of env 0"):
        check([[0, 2], [0, 0]])


def test_other_action_spaces_are_refused():
    with pytest.raises(EnvError, match="actions of type Text are not supported"):
        action_checker(spaces.Text(2), 2, "X")
    with pytest.raises(EnvError, match="actions of type Text are not supported"):
        action_checker(spaces.Dict({"a": spaces.Text(2)}), 2, "X")


def test_actions_in_parts_are_one_row():
    """Leaves side by side, a Dict's in alphabetical order: whole numbers checked, reals clipped."""
    space = spaces.Dict(
        {
            "steer": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "gear": spaces.Discrete(3, start=1),
            "more": spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([2, 4])]),
        }
    )
    check = action_checker(space, 1, "X")
    row = [3, 0, 1, 1, 3, 0.5, -7.0]
    checked = check([row])
    assert checked.dtype == np.float64
    assert checked.tolist() == [[3, 0, 1, 1, 3, 0.5, -1.0]]
    native = to_native(space, checked[0])
    assert space.contains(native)
    assert native["gear"] == 3
    assert native["more"][1].tolist() == [1, 3]
    assert native["steer"].tolist() == [0.5, -1.0]
    batch = to_native(space, np.repeat(checked, 2, axis=0))
    assert batch["gear"].tolist() == [3, 3]
    assert batch["more"][0].shape == (2, 2)
    for column, value in ((0, 0), (0, 4), (0, 1.5), (1, 2), (4, 4), (5, np.nan)):
        bad = list(row)
        bad[column] = value
        with pytest.raises(EnvError, match="of env 0 is not in Dict"):
            check([bad])
    with pytest.raises(EnvError, match=r"shape \(1, 3\), expected \(1, 7\)"):
        check([[1, 2, 3]])


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("seed", [0, 3])
def test_actions_in_parts_reach_the_env(mode, seed, record):
    """GsolveTest/Echo-v0 shows the action that it was given, and checks it against its space."""
    env = make_vector_env("GsolveTest/Echo-v0", 2, vectorization_mode=mode)
    policy = RandomPolicy(env.action_space, 2, seed)
    env.reset(seed)
    for _ in range(20):
        actions = policy.act()
        step = env.step(actions)
        rows = ~step.is_reset
        np.testing.assert_allclose(step.obs[rows], actions[rows].astype(np.float32))
    journal = JournaledEnv(env)
    journal.reset(seed)
    for _ in range(5):
        journal.step(policy.act())
    assert journal.state()["actions"].dtype == np.float64
    assert np.array_equal(journal.restore(journal.state()), journal._last["obs"])  # type: ignore[index]
