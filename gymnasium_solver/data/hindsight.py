"""Hindsight experience replay (Andrychowicz et al. 2017): sampled transitions with other goals.

    hindsight = Hindsight(Her(strategy="future", k=4), goals)
    new = hindsight.draw(replay, index, rng)              # which of a batch, and their goals
    batch = replay.transitions(index, n_step, gamma, new_goals=new)

docs/replay.md#hindsight-goals has the rules. Rewards and terminations are computed for the new goal
at every step of an n-step return.
"""

import numpy as np

from gymnasium_solver.config.nested import Her
from gymnasium_solver.data.ring import Ring
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.spaces.observations import ACHIEVED, DESIRED, GoalFunctions, Obs

CHECKED_STEPS = 100


class NewGoals:
    """Goals for some transitions of a batch."""

    def __init__(self, functions: GoalFunctions, at: np.ndarray, goals: np.ndarray) -> None:
        """`at`: positions in the batch; `goals`: one for each of them."""
        self._functions, self._at, self._goals = functions, at, goals

    def set_outcomes(
        self, replay: Ring, chain: np.ndarray, reward: np.ndarray, terminated: np.ndarray
    ) -> None:
        """Replace raw rewards and terminations of the steps at indices `chain` [..., B], in
        place."""
        if len(self._at) == 0:
            return
        steps = chain[..., self._at]
        shape, flat = steps.shape, steps.reshape(-1)
        achieved = replay.part(ACHIEVED, flat + replay.n_envs)
        desired = replay.part(DESIRED, flat)
        goals = np.broadcast_to(self._goals, (*shape, *self._goals.shape[1:]))
        goals = goals.reshape(len(flat), *self._goals.shape[1:])
        change = self._functions.reward(achieved, goals) - self._functions.reward(achieved, desired)
        reward[..., self._at] += change.reshape(shape)
        if (is_over := self._functions.terminated) is not None:
            by_goal = is_over(achieved, desired).reshape(shape)
            otherwise = terminated[..., self._at] & ~by_goal
            terminated[..., self._at] = is_over(achieved, goals).reshape(shape) | otherwise

    def set_goals(self, obs: Obs) -> None:
        """Replace the desired goals of a batch of observations, in place."""
        assert isinstance(obs, dict)
        obs[DESIRED][self._at] = self._goals


class Hindsight:
    def __init__(self, settings: Her, functions: GoalFunctions) -> None:
        self.settings, self.functions = settings, functions
        self._is_checked = False

    def draw(self, replay: Ring, index: np.ndarray, rng: np.random.Generator) -> NewGoals:
        """Draw which transitions get a new goal, and the goals."""
        self.check(replay)
        at = np.flatnonzero(rng.random(len(index)) < self.settings.share)
        return NewGoals(
            self.functions, at, replay.part(ACHIEVED, self.goal_index(replay, index[at], rng))
        )

    def goal_index(self, replay: Ring, index: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The index of the observation whose achieved goal each transition gets."""
        assert replay.episodes is not None
        first, final = replay.episodes.of(index)
        strategy = self.settings.strategy
        if strategy == "final":
            row = final
        else:
            before = replay.row_of(index)
            if strategy == "episode":
                before = np.maximum(first, replay.oldest_whole_row)
            # The observations after `before`, up to and including the final one.
            row = before + 1 + (rng.random(len(index)) * (final - before)).astype(np.int64)
        return row % replay.n_rows * replay.n_envs + index % replay.n_envs

    def check(self, replay: Ring) -> None:
        """ConfigError if the rewards of the first steps are not those of compute_reward."""
        if self._is_checked or replay.n_valid < 1:
            return
        self._is_checked = True
        index = replay.leaves(replay.oldest_row, replay.n_added)
        index = index[replay.is_valid(index)][-CHECKED_STEPS:]
        given = replay.rewards(index)
        achieved = replay.part(ACHIEVED, index + replay.n_envs)
        computed = self.functions.reward(achieved, replay.part(DESIRED, index))
        wrong = np.flatnonzero(~np.isclose(given, computed, rtol=1e-3, atol=1e-3))
        if len(wrong) > len(index) / 2:
            raise ConfigError(
                f"her: in {len(wrong)} of {len(index)} steps the reward is not what the env's "
                f"compute_reward gives: {given[wrong[0]]:g}, not {computed[wrong[0]]:g}. Replaced "
                "goals would get other rewards. Remove wrappers that change rewards or skip "
                "frames, or make compute_reward agree with step."
            )


def with_achieved_goals(obs: Obs) -> Obs:
    """Observations [n, ...] once as they are and once with achieved goals for desired ones, for
    the statistics of normalisation: networks see both kinds of goals."""
    assert isinstance(obs, dict)
    doubled = {name: np.concatenate([part, part]) for name, part in obs.items()}
    doubled[DESIRED][len(obs[DESIRED]) :] = obs[ACHIEVED]
    return doubled
