"""Rewards as functions of goals: EnvPool's by formula, Gymnasium's by compute_reward."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.envs.goals import goal_functions_of, successes
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.vector import SUCCEEDED, VectorEnv
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import ACHIEVED, DESIRED, check_goal_space

POOLS: list[tuple[str, dict[str, Any], int]] = [
    ("FetchReach-v4", {}, 30),
    ("FetchReach-v4", {"distance_threshold": 0.2}, 15),
    ("FetchReachDense-v4", {}, 15),
    ("FetchPush-v4", {}, 10),
    ("HandReachDense-v3", {}, 5),
    ("PointMaze_UMaze-v3", {}, 250),
    ("PointMaze_UMaze-v3", {"continuing_task": False}, 250),
    ("PointMaze_OpenDense-v3", {}, 100),
]


def goal_space(width: int = 2) -> gymnasium.spaces.Dict:
    box = gymnasium.spaces.Box(-10, 10, (width,), np.float64)
    return gymnasium.spaces.Dict({"observation": box, ACHIEVED: box, DESIRED: box})


class Line(gymnasium.Env[Any, Any]):
    """A point on a line; `compute_reward` takes one pair of goals only."""

    observation_space = goal_space(1)
    action_space = gymnasium.spaces.Discrete(2)
    place = 0.0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = 0.0
        return self._obs(), {}

    def _obs(self) -> dict[str, np.ndarray]:
        here = np.array([self.place])
        return {"observation": here, ACHIEVED: here.copy(), DESIRED: np.array([3.0])}

    def step(self, action: Any) -> Any:
        self.place += 1 if action else -1
        obs = self._obs()
        reward = self.compute_reward(obs[ACHIEVED], obs[DESIRED], {})
        return obs, reward, reward == 0, False, {"is_success": reward == 0}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> float:
        return 0.0 if abs(float(achieved[0]) - float(desired[0])) < 0.5 else -1.0


class BatchLine(Line):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -(np.abs(achieved - desired)[..., 0] >= 0.5).astype(np.float32)

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> Any:
        return np.linalg.norm(achieved - desired) < 0.5  # one number, whatever it is given


class ReadsInfo(Line):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -1.0 - info.get("cost", 0.0)


class ManyNumbers(Line):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return np.zeros(3)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("env_id", "kwargs", "n_steps"), POOLS)
def test_formulas_give_the_rewards_of_the_pools(
    env_id: str, kwargs: dict[str, Any], n_steps: int
) -> None:
    env = make_vector_env(env_id, 4, env_kwargs=kwargs)
    goals, obs, rng = env.goal_functions(), env.reset(3), np.random.default_rng(0)
    seen = set()
    for _ in range(n_steps):
        actions = rng.uniform(-1, 1, (4, *(env.action_space.shape or ())))
        if "Reach-" in env_id or "Maze" in env_id:  # straight to the goal, to see both rewards
            toward = obs[DESIRED] - obs[ACHIEVED]
            actions[:3, : toward.shape[1]] = np.clip(toward[:3] * 10, -1, 1)
        step = env.step(actions)
        counts = ~step.is_reset
        computed = goals.reward(step.obs[ACHIEVED], obs[DESIRED])
        np.testing.assert_allclose(computed[counts], step.reward[counts], atol=1e-6)
        ended = (
            np.zeros(4, bool)
            if goals.terminated is None
            else goals.terminated(step.obs[ACHIEVED], obs[DESIRED])
        )
        np.testing.assert_array_equal(ended[counts], step.terminated[counts])
        seen |= set(step.reward[counts].tolist())
        obs = step.obs
    assert "Dense" in env_id or "Push" in env_id or len(seen) == 2


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [("HandManipulateBlock-v1", {}), ("PointMaze_Open-v3", {"reset_target": True})],
)
def test_a_pool_without_a_formula_is_refused(env_id: str, kwargs: dict[str, Any]) -> None:
    env = make_vector_env(env_id, 1, env_kwargs=kwargs)
    with pytest.raises(EnvError, match="is not known as a function of goals"):
        env.goal_functions()


def test_single_pairs_and_batches_give_the_same() -> None:
    achieved, desired = np.array([[2.8], [1.0], [3.0], [9.0]]), np.full((4, 1), 3.0)
    one, many = goal_functions_of(Line(), "Line"), goal_functions_of(BatchLine(), "BatchLine")
    assert one.reward(achieved, desired).tolist() == [0, -1, 0, -1]
    assert many.reward(achieved, desired).tolist() == [0, -1, 0, -1]
    assert one.reward(achieved[:1], desired[:1]).dtype == np.float32
    assert one.terminated is None
    assert many.terminated is not None
    assert many.terminated(achieved, desired).tolist() == [True, False, True, False]


def test_as_many_rows_as_numbers_in_a_goal_are_no_batch_by_chance() -> None:
    class ByColumn(Line):
        def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
            return -np.linalg.norm(achieved - desired, axis=0)

    achieved, desired = np.array([[3.0, 0.0], [0.0, 4.0]]), np.zeros((2, 2))
    assert goal_functions_of(ByColumn(), "x").reward(achieved, desired).tolist() == [-3, -4]


class Raises(Line):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        raise KeyError("goal")


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Raises(), "compute_reward raised KeyError: 'goal' .*line"),
        (gymnasium.make("CartPole-v1"), "has no compute_reward"),
        (ReadsInfo(), "compute_reward reads info, which the replay does not keep"),
        (ManyNumbers(), "compute_reward returned .* expected a number"),
    ],
)
def test_what_cannot_be_computed_is_refused(env: Any, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        goal_functions_of(env, "X").reward(np.zeros((4, 1)), np.zeros((4, 1)))


@pytest.fixture
def line() -> Any:
    gymnasium.register("GoalLine-v0", lambda **kwargs: BatchLine(**kwargs), max_episode_steps=6)
    yield "GoalLine-v0"
    del gymnasium.registry["GoalLine-v0"]


def test_the_functions_are_those_of_another_copy(line: str) -> None:
    env = make_vector_env(line, 2)
    assert env.goal_functions().reward(np.zeros((2, 1)), np.zeros((2, 1))).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ({"id": "ObservationScale", "scale": 2.0}, "ObservationScale changes .*_goal"),
        ({"id": "FrameStackObservation", "stack_size": 2}, "FrameStackObservation changes .*_goal"),
        ({"id": "ObservationScale", "scale": 2.0, "key": "observation"}, None),
    ],
)
def test_goals_reach_the_reward_function_unchanged(
    wrapper: dict[str, Any], message: str | None, line: str
) -> None:
    env = make_vector_env(line, 2, env_wrappers=[wrapper])
    if message is None:
        env.goal_functions()
    else:
        with pytest.raises(EnvError, match=message):
            env.goal_functions()


def test_observations_without_two_goals_alike_are_refused() -> None:
    box = gymnasium.spaces.Box(-1, 1, (2,))
    with pytest.raises(EnvError, match=r"not a goal environment.* but has Box observations"):
        check_goal_space(box, "X")
    with pytest.raises(EnvError, match="but has desired_goal, observation"):
        check_goal_space(gymnasium.spaces.Dict({"observation": box, DESIRED: box}), "X")
    wider = gymnasium.spaces.Box(-1, 1, (3,))
    with pytest.raises(EnvError, match="expected the same shape"):
        check_goal_space(gymnasium.spaces.Dict({ACHIEVED: wider, DESIRED: box}), "X")


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"is_success": np.array([1.0, 0.0])}, [True, False]),
        ({"success": np.array([True, False])}, [True, False]),
        ({"is_success": np.array([np.True_, None], object)}, [True, False]),
        ({"success": np.array(["yes", "no"])}, None),
        ({"success": np.array([{}, None], object)}, None),
        ({"success": 1.0}, None),
        ({"success": None}, None),
        ({}, None),
    ],
)
def test_success_is_read_in_whichever_form_it_is_told(
    info: dict[str, Any], expected: list[bool] | None
) -> None:
    told = successes(info, 2)
    assert (None if told is None else told.tolist()) == expected


def test_one_env_that_reports_nothing_has_no_success() -> None:
    assert successes({}, 1) is None


class Passing(gymnasium.Env[Any, Any]):
    """Reports success at one step of an episode, as PointMaze does where the agent drifts off."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {"success": False}

    def step(self, action: Any) -> Any:
        self.t += 1
        reached = self.t == 2 and bool(action)
        return np.zeros(1, np.float32), 0.0, self.t == 4, False, {"success": reached}


def test_success_counts_at_any_step_of_the_episode() -> None:
    if "GsolvePassing-v0" not in gymnasium.registry:
        made: Any = Passing
        gymnasium.register("GsolvePassing-v0", entry_point=made, disable_env_checker=True)
    env = make_vector_env("GsolvePassing-v0", 2)
    env.reset(1)
    told = [env.step(np.array([1, 0])).info[SUCCEEDED].tolist() for _ in range(6)]
    reached = [True, False]
    assert told == [[False, False], reached, reached, reached, [False, False], [False, False]]


def best_flip(obs: Any) -> np.ndarray:
    flips: np.ndarray = np.abs(obs[ACHIEVED] - obs[DESIRED]).argmax(axis=1)
    return flips


def test_flipping_the_bits_that_differ_scores_best() -> None:
    env: VectorEnv = make_vector_env("Probe/BitFlip-v0", 16, env_kwargs={"bits": 5})
    obs = env.reset(1)
    n_over = 0
    for _ in range(40):
        start = np.abs(obs[ACHIEVED] - obs[DESIRED]).sum(axis=1)
        step = env.step(best_flip(obs))
        opened = step.is_reset
        assert (start[~opened] >= 1).all()
        over = step.is_over
        np.testing.assert_array_equal(step.info["is_success"][over], True)
        np.testing.assert_array_equal(step.episode_return[over], 1 - step.episode_length[over])
        n_over += int(over.sum())
        obs = step.obs
    assert n_over > 100
    with pytest.raises(EnvError, match="bits must be an int from 1 to 62"):
        make_vector_env("Probe/BitFlip-v0", 1, env_kwargs={"bits": 0})
