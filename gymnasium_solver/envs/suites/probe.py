"""Probe environments: each isolates one thing that a learner must get right, with a known answer.

All ids begin with Probe/ and end with -v0. Observations are one number unless the table names more.

ConstantReward              obs 0, reward 1, one step                    V = 1
ObsDependentReward          obs -1 or 1, reward = obs, one step          V(obs) = obs
TwoStepDiscount             obs 0 then 1, reward 0 then 1, two steps     V(1) = 1, V(0) = gamma
TruncatedReward             obs 0, reward 1, truncated every 4 steps     V = 1 / (1 - gamma)
ActionReward                obs 0, reward 1 for action 1, else -1        action 1
ObsActionReward             obs -1 or 1, reward 1 if action 1 <=> obs 1  action = obs > 0
ActionRewardContinuous      obs 0, reward -(a - 0.5)^2                   a = 0.5
ObsActionRewardContinuous   obs -1 or 1, reward -(a - obs / 2)^2         a = obs / 2
TwoStepDiscountContinuous, TruncatedRewardContinuous: as above, with actions that change nothing
Memory                      obs -1 or 1, then 0; reward at the last of   action = first obs > 0;
                            4 steps: 1 if action 1 <=> first obs 1,      return 1, without memory 0
                            else -1
Corridor                    obs from -1 to 1; actions lead left and      action 1; return 1,
                            right; reward 1 at the right end, after      0 without exploration
                            30 steps at least; 60 steps at most
MemoryParts                 the same with a Dict: cue and noise;         as Memory; return 1
                            action 2 is legal before the last step
                            only, and there the only one
DictObs                     signal -1 or 1, noise and kind at random;    action = signal > 0
                            reward 1 if action 1 <=> signal 1, else -1
MultiDiscrete               obs -1 or 1, actions [2, 3]; 1/2 for each    [1, 2] at obs 1,
                            right component                              [0, 0] at -1; return 1
MultiBinary                 obs -1 or 1, three bits; 1/3 for each right  [1, 0, 1] at obs 1,
                            bit                                          [0, 1, 1] at -1; return 1
DictAction                  obs -1 or 1, actions {go: Discrete(2), how:  go = obs > 0,
                            Box(1)}; +-1 for go, -(how - obs / 2)^2      how = obs / 2; return 1
Masked                      some actions forbidden, see the class        action 3, V = 2
BitFlip                     goal environment: an action flips a bit;     flip the bits that differ
                            -1 until the bits are the desired ones
Image                       a bright square on the left or the right     action 0 left, 1 right
Counting                    obs = (episode, step), reward 1              for tests of accounting

Episodes end by termination, except TruncatedReward's; action probes last one step, Masked one or
two.
BitFlip takes env_kwargs `bits` (8), which is also its time limit.
Counting takes env_kwargs `length` (5) and `ends` (terminated, truncated, both, alternate): env i
has episodes of length + i steps, so that the envs are out of phase; `episode` counts from 0.
"""

from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.suites.own import OwnEnv, refuse_unknown
from gymnasium_solver.envs.vector import Info, Space, VectorEnv
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.goals import ACHIEVED, DESIRED, GoalFunctions
from gymnasium_solver.spaces.observations import Obs

Outcome = tuple[np.ndarray, np.ndarray, np.ndarray]


class Probe(OwnEnv):
    """A probe whose observation is one number: constant, or drawn from {-1, 1} at the start."""

    observation: Space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action: Space = gymnasium.spaces.Discrete(2)
    length = 1
    ends = "terminated"
    draws_obs = False

    def __init__(self, env_id: str, n_envs: int, max_episode_steps: int | None) -> None:
        super().__init__(
            env_id, n_envs, self.observation, self.action, max_episode_steps=max_episode_steps
        )
        self._obs = np.zeros(n_envs, np.float32)

    def _begin(self, rows: np.ndarray) -> None:
        if self.draws_obs:
            drawn = self._rng.integers(0, 2, self.n_envs) * 2 - 1
            self._obs = np.where(rows, drawn, self._obs).astype(np.float32)

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        """Reward of each row for the state before this step; a fresh array."""
        return np.ones(self.n_envs, np.float32)

    def _advance(self, actions: np.ndarray) -> Outcome:
        ended = self._length + 1 >= self.length
        neither = np.zeros(self.n_envs, np.bool_)
        flags = (ended, neither) if self.ends == "terminated" else (neither, ended)
        return self._reward(actions), *flags

    def _observe(self) -> Obs:
        return self._obs[:, None].copy()


class ConstantReward(Probe):
    """Can the value function learn a constant?"""


class ObsDependentReward(Probe):
    """Does the value function see the observation?"""

    draws_obs = True

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        return self._obs.copy()


class TwoStepDiscount(Probe):
    """Is a later reward discounted once, and only once?"""

    length = 2

    def _begin(self, rows: np.ndarray) -> None:
        self._obs = np.where(rows, 0.0, self._obs).astype(np.float32)

    def _advance(self, actions: np.ndarray) -> Outcome:
        reward = (self._length >= 1).astype(np.float32)
        _, terminated, truncated = super()._advance(actions)
        self._obs = np.ones(self.n_envs, np.float32)
        return reward, terminated, truncated


class TruncatedReward(Probe):
    """Is a cut episode bootstrapped? Taken for a termination, the value would stay below 4."""

    length = 4
    ends = "truncated"


class ActionReward(Probe):
    """Does the policy find the better action?"""

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        return np.where(actions == 1, 1.0, -1.0).astype(np.float32)


class ObsActionReward(Probe):
    """Does the policy see the observation?"""

    draws_obs = True

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        return np.where((actions == 1) == (self._obs > 0), 1.0, -1.0).astype(np.float32)


class ActionRewardContinuous(Probe):
    """Does a continuous policy find the best action?"""

    action = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        return (-np.square(actions[:, 0] - 0.5)).astype(np.float32)


class ObsActionRewardContinuous(Probe):
    """Does a continuous policy see the observation?"""

    action = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    draws_obs = True

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        return (-np.square(actions[:, 0] - self._obs / 2)).astype(np.float32)


class TwoStepDiscountContinuous(TwoStepDiscount):
    """The same question for continuous actions."""

    action = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)


class TruncatedRewardContinuous(TruncatedReward):
    """The same question for continuous actions."""

    action = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)


class Memory(Probe):
    """Does the policy remember? The first observation decides which action pays at the last step;
    the observations in between are all 0, so a policy without memory gets 0 on average."""

    draws_obs = True
    length = 4

    def __init__(self, env_id: str, n_envs: int, max_episode_steps: int | None) -> None:
        super().__init__(env_id, n_envs, max_episode_steps)
        self._cue = np.zeros(n_envs, np.float32)

    def _begin(self, rows: np.ndarray) -> None:
        super()._begin(rows)
        self._cue = np.where(rows, self._obs, self._cue)

    def _advance(self, actions: np.ndarray) -> Outcome:
        _, terminated, truncated = super()._advance(actions)
        right = (actions == 1) == (self._cue > 0)
        reward = np.where(terminated, np.where(right, 1.0, -1.0), 0.0).astype(np.float32)
        self._obs = np.zeros(self.n_envs, np.float32)
        return reward, terminated, truncated


class Corridor(Probe):
    """Does the agent explore? The reward is at the end of a corridor of 30 cells; an episode has 60
    steps, in which a random walk hardly ever gets there."""

    length = 60
    ends = "truncated"
    cells = 30

    def _begin(self, rows: np.ndarray) -> None:
        self._obs = np.where(rows, -1.0, self._obs).astype(np.float32)

    def _advance(self, actions: np.ndarray) -> Outcome:
        step = np.where(actions == 1, 2.0, -2.0) / self.cells
        self._obs = np.clip(self._obs + step, -1.0, 1.0).astype(np.float32)
        arrived = self._obs > 1.0 - 1e-3
        _, _, truncated = super()._advance(actions)
        return arrived.astype(np.float32), arrived, truncated & ~arrived


class MemoryParts(Memory):
    """Do memory, a Dict observation and masks work together? As Memory; action 2, the only legal
    one before the last step, is forbidden there. Stepping with a forbidden action is an
    EnvError."""

    observation = gymnasium.spaces.Dict(
        {
            "cue": gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32),
            "noise": gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32),
        }
    )
    action = gymnasium.spaces.Discrete(3)

    def __init__(self, env_id: str, n_envs: int, max_episode_steps: int | None) -> None:
        super().__init__(env_id, n_envs, max_episode_steps)
        self._step_in_episode = np.zeros(n_envs, np.int64)

    def _begin(self, rows: np.ndarray) -> None:
        super()._begin(rows)
        self._step_in_episode[rows] = 0

    def _advance(self, actions: np.ndarray) -> Outcome:
        assert self._done is not None, "stepped, therefore reset"
        legal = self._legal()[np.arange(self.n_envs), actions]
        if not (legal | self._done).all():
            raise EnvError(f"{self.spec.env_id}: an action that its mask forbids.")
        self._step_in_episode += 1
        return super()._advance(actions)

    def _legal(self) -> np.ndarray:
        is_last = self._step_in_episode + 1 >= self.length
        return np.stack([is_last, is_last, ~is_last], axis=1)

    def _observe(self) -> Obs:
        noise = self._rng.uniform(-1.0, 1.0, (self.n_envs, 2)).astype(np.float32)
        return {"cue": self._obs[:, None].copy(), "noise": noise}


class DictObs(Probe):
    """Does the policy see the one part of a Dict observation that matters?"""

    observation = gymnasium.spaces.Dict(
        {
            "kind": gymnasium.spaces.Discrete(3),
            "noise": gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32),
            "signal": gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32),
        }
    )
    draws_obs = True

    def __init__(self, env_id: str, n_envs: int, max_episode_steps: int | None) -> None:
        super().__init__(env_id, n_envs, max_episode_steps)
        self._kind = np.zeros(n_envs, np.int64)
        self._noise = np.zeros((n_envs, 4), np.float32)

    def _begin(self, rows: np.ndarray) -> None:
        super()._begin(rows)
        noise = self._rng.uniform(-1.0, 1.0, self._noise.shape)
        self._kind = np.where(rows, self._rng.integers(0, 3, self.n_envs), self._kind)
        self._noise = np.where(rows[:, None], noise, self._noise).astype(np.float32)

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        return np.where((actions == 1) == (self._obs > 0), 1.0, -1.0).astype(np.float32)

    def _observe(self) -> Obs:
        return {
            "kind": self._kind.copy(),
            "noise": self._noise.copy(),
            "signal": self._obs[:, None].copy(),
        }


class MultiDiscrete(Probe):
    """Does the policy learn every component of a MultiDiscrete action?"""

    action = gymnasium.spaces.MultiDiscrete([2, 3])
    draws_obs = True

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        is_up = self._obs > 0
        right = np.stack([actions[:, 0] == is_up, actions[:, 1] == 2 * is_up], axis=1)
        return right.mean(axis=1, dtype=np.float32)


class MultiBinary(Probe):
    """Does the policy learn every bit of a MultiBinary action?"""

    action = gymnasium.spaces.MultiBinary(3)
    draws_obs = True

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        is_up = self._obs > 0
        best = np.stack([is_up, ~is_up, np.ones_like(is_up)], axis=1)
        return (actions == best).mean(axis=1, dtype=np.float32)


class DictAction(Probe):
    """Does the policy learn the choice and the real number of a Dict action?"""

    action = gymnasium.spaces.Dict(
        {
            "go": gymnasium.spaces.Discrete(2),
            "how": gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32),
        }
    )
    draws_obs = True

    def _reward(self, actions: np.ndarray) -> np.ndarray:
        go, how = actions.T
        chosen = np.where((go == 1) == (self._obs > 0), 1.0, -1.0)
        return (chosen - np.square(how - self._obs / 2)).astype(np.float32)


class Masked(Probe):
    """Are masks obeyed, in acting and in targets? Stepping with a forbidden action is an EnvError.

    obs -1 or 1   every action pays 2; action 3 ends the episode, the others lead to obs 0.
                  Forbidden: action 0 at obs -1, action 1 at obs 1.
    obs 0         action 2 pays -1, actions 0 and 1 pay -2; the episode ends. Forbidden: action 3.

    So V(-1) = V(1) = Q(-1 or 1, 3) = 2, V(0) = -1, the other Q(-1 or 1, a) = 2 - gamma, and the
    best return is 2, of action 3. Its value 2, learnt at -1 and 1, surrounds obs 0: a
    learner that bootstraps from it there expects more than 2 of the other actions, takes them, and
    gets 1."""

    action = gymnasium.spaces.Discrete(4)
    draws_obs = True

    def _advance(self, actions: np.ndarray) -> Outcome:
        self._refuse_forbidden(actions)
        is_first, leaves = self._obs != 0, actions == 3
        second_reward = np.where(actions == 2, -1.0, -2.0)
        terminated = leaves | ~is_first
        reward = np.where(is_first, 2.0, second_reward).astype(np.float32)
        self._obs = np.where(terminated, self._obs, 0.0).astype(np.float32)
        return reward, terminated, np.zeros(self.n_envs, np.bool_)

    def _legal(self) -> np.ndarray:
        legal = np.ones((self.n_envs, 4), np.bool_)
        legal[self._obs == -1, 0] = False
        legal[self._obs == 1, 1] = False
        legal[self._obs == 0, 3] = False
        return legal

    def _refuse_forbidden(self, actions: np.ndarray) -> None:
        assert self._done is not None, "stepped, therefore reset"
        is_legal = self._legal()[np.arange(self.n_envs), actions]
        forbidden = np.flatnonzero(~is_legal & ~self._done)  # done rows ignore their action
        if len(forbidden):
            row = forbidden[0]
            raise EnvError(
                f"{self.spec.env_id}: env {row} was given action {actions[row]}, which its mask "
                f"forbids at observation {self._obs[row]:g}."
            )


class Image(OwnEnv):
    """Does the policy see an image? A bright square is somewhere in its left or its right half;
    reward 1 for the action that names the side, else -1, and the episode ends. The mean of all
    pixels is no help. `shape` is [channels, height, width], the channels all alike (a stack of
    frames that stand still), or [height, width, channels]; see nets/cnn.py."""

    def __init__(
        self, env_id: str, n_envs: int, max_episode_steps: int | None, shape: tuple[int, ...]
    ) -> None:
        observation = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        action = gymnasium.spaces.Discrete(2)
        super().__init__(env_id, n_envs, observation, action, max_episode_steps=max_episode_steps)
        self._has_channels_first = shape[0] <= shape[2]
        height, width = shape[1:] if self._has_channels_first else shape[:2]
        if width < 2:
            raise EnvError(f"{env_id}: shape {list(shape)} has a width of {width}, less than 2.")
        self._frames = np.zeros((n_envs, height, width), np.uint8)
        self._side = np.zeros(n_envs, np.int64)

    def _begin(self, rows: np.ndarray) -> None:
        n_envs, height, width = self._frames.shape
        size = max(1, min(height, width // 2) // 4)
        side = self._rng.integers(0, 2, n_envs)
        top = self._rng.integers(0, height - size + 1, n_envs)
        left = self._rng.integers(0, width // 2 - size + 1, n_envs) + side * (width - width // 2)
        self._side = np.where(rows, side, self._side)
        for row in np.flatnonzero(rows):
            self._frames[row] = 0
            y, x = top[row], left[row]
            self._frames[row, y : y + size, x : x + size] = 255

    def _advance(self, actions: np.ndarray) -> Outcome:
        reward = np.where(actions == self._side, 1.0, -1.0).astype(np.float32)
        return reward, np.ones(self.n_envs, np.bool_), np.zeros(self.n_envs, np.bool_)

    def _observe(self) -> np.ndarray:
        frames = self._frames[:, None] if self._has_channels_first else self._frames[..., None]
        shape = self.observation_space.shape or ()
        return np.broadcast_to(frames, (self.n_envs, *shape)).copy()


class BitFlip(OwnEnv):
    """Does hindsight replay make a sparse goal reachable (Andrychowicz et al. 2017)? An action
    flips one of n bits. Every step costs 1, but the one that reaches the desired bits, which ends
    the episode. It is cut after n steps. Start and goal are drawn and differ."""

    def __init__(
        self, env_id: str, n_envs: int, max_episode_steps: int | None, n_bits: int
    ) -> None:
        bits = gymnasium.spaces.Box(0.0, 1.0, (n_bits,), np.float32)
        names = ("observation", ACHIEVED, DESIRED)
        observation = gymnasium.spaces.Dict([(name, bits) for name in names])
        action = gymnasium.spaces.Discrete(n_bits)
        limit = max_episode_steps or n_bits
        super().__init__(env_id, n_envs, observation, action, max_episode_steps=limit)
        self._bits = np.zeros((n_envs, n_bits), np.float32)
        self._goal = np.ones((n_envs, n_bits), np.float32)

    def _begin(self, rows: np.ndarray) -> None:
        shape = self._bits.shape
        start = self._rng.integers(0, 2, shape)
        # Differences from 1 to 2^n - 1: at least one bit differs.
        differs = self._rng.integers(1, 2 ** shape[1], shape[0])[:, None] >> np.arange(shape[1])
        goal = start ^ (differs & 1)
        self._bits = np.where(rows[:, None], start, self._bits).astype(np.float32)
        self._goal = np.where(rows[:, None], goal, self._goal).astype(np.float32)

    def _advance(self, actions: np.ndarray) -> Outcome:
        bits, envs = self._bits.copy(), np.arange(self.n_envs)
        bits[envs, actions] = 1 - bits[envs, actions]
        self._bits = bits
        reached = _same_bits(bits, self._goal)
        return reached.astype(np.float32) - 1, reached, np.zeros(self.n_envs, np.bool_)

    def _observe(self) -> Obs:
        return {
            "observation": self._bits.copy(),
            ACHIEVED: self._bits.copy(),
            DESIRED: self._goal.copy(),
        }

    def _info(self) -> Info:
        return {"is_success": _same_bits(self._bits, self._goal)}

    def goal_functions(self) -> GoalFunctions:
        return GoalFunctions(lambda a, d: _same_bits(a, d).astype(np.float32) - 1, _same_bits)


def _same_bits(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
    same: np.ndarray = (achieved == desired).all(axis=1)
    return same


class Counting(OwnEnv):
    """Observations that name their place: (episode index, step index)."""

    def __init__(
        self, env_id: str, n_envs: int, max_episode_steps: int | None, length: int, ends: str
    ) -> None:
        observation = gymnasium.spaces.Box(0.0, np.inf, (2,), np.float32)
        action = gymnasium.spaces.Discrete(2)
        super().__init__(env_id, n_envs, observation, action, max_episode_steps=max_episode_steps)
        self._lengths = length + np.arange(n_envs)
        self._ends = ends
        self._episode = np.full(n_envs, -1)
        self._steps = np.zeros(n_envs, np.int64)

    def _reset(self, seed: int) -> tuple[Obs, Info]:
        self._episode[:] = -1
        return super()._reset(seed)

    def _begin(self, rows: np.ndarray) -> None:
        self._episode[rows] += 1
        self._steps[rows] = 0

    def _advance(self, actions: np.ndarray) -> Outcome:
        self._steps += 1
        ended = self._steps >= self._lengths
        even = self._episode % 2 == 0
        terminates = even if self._ends == "alternate" else self._ends != "truncated"
        truncates = ~even if self._ends == "alternate" else self._ends != "terminated"
        return np.ones(self.n_envs, np.float32), ended & terminates, ended & truncates

    def _observe(self) -> np.ndarray:
        return np.stack([self._episode, self._steps], axis=1).astype(np.float32)


PROBES: dict[str, type[Probe]] = {
    f"Probe/{probe.__name__}-v0": probe
    for probe in (
        ConstantReward,
        ObsDependentReward,
        TwoStepDiscount,
        TruncatedReward,
        ActionReward,
        ObsActionReward,
        ActionRewardContinuous,
        ObsActionRewardContinuous,
        TwoStepDiscountContinuous,
        TruncatedRewardContinuous,
        Memory,
        Corridor,
        MemoryParts,
        DictObs,
        MultiDiscrete,
        MultiBinary,
        DictAction,
        Masked,
    )
}
IMAGE_SHAPE = (4, 84, 84)
ENDS = ("terminated", "truncated", "both", "alternate")


def make_probe(
    env_id: str, n_envs: int, max_episode_steps: int | None, env_kwargs: dict[str, Any]
) -> VectorEnv:
    """Build a probe from its id."""
    if env_id == "Probe/Counting-v0":
        refuse_unknown(env_id, env_kwargs, ("length", "ends"))
        length, ends = env_kwargs.get("length", 5), env_kwargs.get("ends", "terminated")
        if not isinstance(length, int) or length < 1:
            raise EnvError(f"{env_id}: length must be an int >= 1, got {length!r}.")
        if ends not in ENDS:
            raise EnvError(f"{env_id}: ends must be one of {', '.join(ENDS)}, got {ends!r}.")
        return Counting(env_id, n_envs, max_episode_steps, length, ends)
    if env_id == "Probe/BitFlip-v0":
        refuse_unknown(env_id, env_kwargs, ("bits",))
        bits = env_kwargs.get("bits", 8)
        if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 62:
            raise EnvError(f"{env_id}: bits must be an int from 1 to 62, got {bits!r}.")
        return BitFlip(env_id, n_envs, max_episode_steps, bits)
    if env_id == "Probe/Image-v0":
        refuse_unknown(env_id, env_kwargs, ("shape",))
        shape = env_kwargs.get("shape", IMAGE_SHAPE)
        if len(shape) != 3 or not all(isinstance(n, int) and n >= 1 for n in shape):
            raise EnvError(f"{env_id}: shape must be three ints >= 1, got {shape!r}.")
        return Image(env_id, n_envs, max_episode_steps, tuple(shape))
    if env_id not in PROBES:
        known = ", ".join([*PROBES, *(f"Probe/{n}-v0" for n in ("BitFlip", "Image", "Counting"))])
        raise EnvError(f"Unknown environment {env_id!r}. Probes: {known}.")
    refuse_unknown(env_id, env_kwargs, ())
    return PROBES[env_id](env_id, n_envs, max_episode_steps)
