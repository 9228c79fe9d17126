"""Probe environments: each isolates one thing that a learner must get right, with a known answer,
which docs/envs.md tells.

All ids begin with Probe/ and end with -v0. Observations are one number unless a class says more.
Episodes end by termination, except TruncatedReward's and Corridor's; action probes last one step,
Masked one or two.
BitFlip takes env_kwargs `bits` (8), which is also its time limit; Image `shape` (4, 84, 84).
Counting takes env_kwargs `length` (5) and `ends` (terminated, truncated, both, alternate): env i
has episodes of length + i steps, so that the envs are out of phase; `episode` counts from 0.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from gymnasium_solver.envs.spec import EnvRequest
from gymnasium_solver.envs.suites.own import Outcome, OwnEnv, refuse_unknown, whole_option
from gymnasium_solver.envs.vector import Info, Space, VectorEnv
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import ACHIEVED, DESIRED, GoalFunctions, Obs

Array = np.ndarray
ENDS = ("terminated", "truncated", "both", "alternate")
ONE, TWO = Box(-1.0, 1.0, (1,), np.float32), Box(-1.0, 1.0, (2,), np.float32)


class Probe(OwnEnv):
    """A probe whose observation is one number: constant, or drawn from {-1, 1} at the start."""

    observation: Space = ONE
    action: Space = Discrete(2)
    length = 1
    ends = "terminated"
    draws_obs = False
    _obs: Array

    def __init__(self, request: EnvRequest, action: Space | None = None) -> None:
        super().__init__(request, self.observation, action or self.action)

    def _new(self) -> dict[str, Array]:
        if not self.draws_obs:
            return {"_obs": np.zeros(self.n_envs, np.float32)}
        return {"_obs": self._rng.integers(0, 2, self.n_envs).astype(np.float32) * 2 - 1}

    def _reward(self, actions: Array) -> Array:
        """Reward of each row for the state before this step, which moves on where it changes."""
        return np.ones(self.n_envs)

    def _advance(self, actions: Array) -> Outcome:
        ended = self._length + 1 >= self.length
        terminates = self.ends == "terminated"
        reward = self._reward(actions).astype(np.float32)
        return reward, ended & terminates, ended & (not terminates)

    def _observe(self) -> Obs:
        return self._obs[:, None].copy()

    def _refuse_forbidden(self, actions: Array) -> None:
        legal = self._legal()
        assert legal is not None
        assert self._done is not None, "stepped, therefore reset"
        # Done rows ignore their action.
        wrong = np.flatnonzero(~legal[np.arange(self.n_envs), actions] & ~self._done)
        if len(wrong):
            row = wrong[0]
            raise EnvError(
                f"{self.spec.env_id}: env {row} was given action {actions[row]}, which its mask "
                f"forbids at observation {self._obs[row]:g}."
            )


def _sign(right: Array) -> Array:
    return np.where(right, 1.0, -1.0)


# -- the reward depends on the observation and the action alone -----------------------------------


def _components(obs: Array, actions: Array) -> Array:
    right = np.stack([actions[:, 0] == (obs > 0), actions[:, 1] == 2 * (obs > 0)], axis=1)
    return right.mean(axis=1, dtype=np.float32)


def _bits(obs: Array, actions: Array) -> Array:
    best = np.stack([obs > 0, obs <= 0, np.ones(len(obs), np.bool_)], axis=1)
    return (actions == best).mean(axis=1, dtype=np.float32)


def _go_and_how(obs: Array, actions: Array) -> Array:
    go, how = actions.T
    return _sign((go == 1) == (obs > 0)) - np.square(how - obs / 2)


def _side(obs: Array, actions: Array) -> Array:
    return _sign((actions == 1) == (obs > 0))


class ByRule(Probe):
    """Does the value function, or the policy, see the observation and each part of an action?"""

    def __init__(self, request: EnvRequest, rule: "Rule") -> None:
        action, self.draws_obs, self._rule = rule
        super().__init__(request, action)

    def _reward(self, actions: Array) -> Array:
        return self._rule(self._obs, actions)


Rule = tuple[Space, bool, Callable[[Array, Array], Array]]
"""Actions, whether the observation is drawn, and the reward for observations and actions."""
RULES: dict[str, Rule] = {
    "ObsDependentReward": (Discrete(2), True, lambda obs, a: obs),
    "ActionReward": (Discrete(2), False, lambda obs, a: _sign(a == 1)),
    "ObsActionReward": (Discrete(2), True, _side),
    "ActionRewardContinuous": (ONE, False, lambda obs, a: -np.square(a[:, 0] - 0.5)),
    "ObsActionRewardContinuous": (ONE, True, lambda obs, a: -np.square(a[:, 0] - obs / 2)),
    "MultiDiscrete": (MultiDiscrete([2, 3]), True, _components),
    "MultiBinary": (MultiBinary(3), True, _bits),
    "DictAction": (Dict({"go": Discrete(2), "how": ONE}), True, _go_and_how),
}


# -- episodes of several steps --------------------------------------------------------------------


class ConstantReward(Probe):
    """Can the value function learn a constant?"""


class TwoStepDiscount(Probe):
    """Is a later reward discounted once, and only once?"""

    length = 2

    def _reward(self, actions: Array) -> Array:
        self._obs = np.ones(self.n_envs, np.float32)
        return self._length >= 1


class TruncatedReward(Probe):
    """Is a cut episode bootstrapped? Taken for a termination, the value would stay below 4."""

    length = 4
    ends = "truncated"


class Memory(Probe):
    """Does the policy remember? Without memory it gets 0 on average."""

    draws_obs = True
    length = 4
    _cue: Array

    def _new(self) -> dict[str, Array]:
        new = super()._new()
        return {**new, "_cue": new["_obs"]}

    def _reward(self, actions: Array) -> Array:
        self._obs = np.zeros(self.n_envs, np.float32)
        return np.where(self._length + 1 >= self.length, _side(self._cue, actions), 0.0)


class MemoryParts(Memory):
    """Do memory, a Dict observation and masks work together? A forbidden action is an EnvError."""

    observation = Dict({"cue": ONE, "noise": TWO})
    action = Discrete(3)
    _steps: Array

    def _new(self) -> dict[str, Array]:
        return {**super()._new(), "_steps": np.zeros(self.n_envs, np.int64)}

    def _advance(self, actions: Array) -> Outcome:
        self._refuse_forbidden(actions)
        self._steps = self._steps + 1
        return super()._advance(actions)

    def _legal(self) -> Array:
        is_last = self._steps + 1 >= self.length
        return np.stack([is_last, is_last, ~is_last], axis=1)

    def _observe(self) -> Obs:
        noise = self._rng.uniform(-1.0, 1.0, (self.n_envs, 2)).astype(np.float32)
        return {"cue": self._obs[:, None].copy(), "noise": noise}


class Corridor(Probe):
    """Does the agent explore? In 60 steps a random walk hardly ever gets 30 cells far."""

    length = 60
    ends = "truncated"
    cells = 30

    def _new(self) -> dict[str, Array]:
        return {"_obs": np.full(self.n_envs, -1.0, np.float32)}

    def _advance(self, actions: Array) -> Outcome:
        step = np.where(actions == 1, 2.0, -2.0) / self.cells
        self._obs = np.clip(self._obs + step, -1.0, 1.0).astype(np.float32)
        arrived = self._obs > 1.0 - 1e-3
        _, _, truncated = super()._advance(actions)
        return arrived.astype(np.float32), arrived, truncated & ~arrived


# -- observations in parts, masks, goals, images --------------------------------------------------


class DictObs(Probe):
    """Does the policy see the one part of a Dict observation that matters?"""

    observation = Dict(
        {"kind": Discrete(3), "noise": Box(-1.0, 1.0, (4,), np.float32), "signal": ONE}
    )
    draws_obs = True
    _kind: Array
    _noise: Array

    def _new(self) -> dict[str, Array]:
        new = super()._new()
        noise = self._rng.uniform(-1.0, 1.0, (self.n_envs, 4)).astype(np.float32)
        return {**new, "_noise": noise, "_kind": self._rng.integers(0, 3, self.n_envs)}

    def _reward(self, actions: Array) -> Array:
        return _side(self._obs, actions)

    def _observe(self) -> Obs:
        signal = self._obs[:, None].copy()
        return {"kind": self._kind.copy(), "noise": self._noise.copy(), "signal": signal}


class Masked(Probe):
    """Are masks obeyed, in acting and in targets? Stepping with a forbidden action is an EnvError.

    obs -1 or 1   every action pays 2; action 3 ends the episode, the others lead to obs 0.
                  Forbidden: action 0 at obs -1, action 1 at obs 1.
    obs 0         action 2 pays -1, actions 0 and 1 pay -2; the episode ends. Forbidden: action 3.

    So V(-1) = V(1) = Q(-1 or 1, 3) = 2, V(0) = -1, the other Q(-1 or 1, a) = 2 - gamma, and the
    best return is 2, of action 3. Its value 2, learnt at -1 and 1, surrounds obs 0: a
    learner that bootstraps from it there expects more than 2 of the other actions, takes them, and
    gets 1."""

    action = Discrete(4)
    draws_obs = True

    def _advance(self, actions: Array) -> Outcome:
        self._refuse_forbidden(actions)
        is_first, leaves = self._obs != 0, actions == 3
        terminated = leaves | ~is_first
        reward = np.where(is_first, 2.0, np.where(actions == 2, -1.0, -2.0)).astype(np.float32)
        self._obs = np.where(terminated, self._obs, 0.0).astype(np.float32)
        return reward, terminated, np.zeros(self.n_envs, np.bool_)

    def _legal(self) -> Array:
        legal = np.ones((self.n_envs, 4), np.bool_)
        for obs, forbidden in ((-1, 0), (1, 1), (0, 3)):
            legal[self._obs == obs, forbidden] = False
        return legal


class BitFlip(OwnEnv):
    """Does hindsight replay make a sparse goal reachable (Andrychowicz et al. 2017)? An action
    flips one of n bits. Every step costs 1, but the one that reaches the desired bits, which ends
    the episode. It is cut after n steps. Start and goal are drawn and differ."""

    _bits: Array
    _goal: Array

    def __init__(self, request: EnvRequest) -> None:
        refuse_unknown(request, ("bits",))
        n_bits = whole_option(request, "bits", 8, most=62)
        bits = Box(0.0, 1.0, (n_bits,), np.float32)
        observation = Dict([(name, bits) for name in ("observation", ACHIEVED, DESIRED)])
        super().__init__(request, observation, Discrete(n_bits), limit=n_bits)
        self._n_bits = n_bits

    def _new(self) -> dict[str, Array]:
        start = self._rng.integers(0, 2, (self.n_envs, self._n_bits))
        # Differences from 1 to 2^n - 1: at least one bit differs.
        drawn = self._rng.integers(1, 2**self._n_bits, self.n_envs)
        goal = start ^ (drawn[:, None] >> np.arange(self._n_bits) & 1)
        return {"_bits": start.astype(np.float32), "_goal": goal.astype(np.float32)}

    def _advance(self, actions: Array) -> Outcome:
        bits, envs = self._bits.copy(), np.arange(self.n_envs)
        bits[envs, actions] = 1 - bits[envs, actions]
        self._bits = bits
        reached = _same_bits(bits, self._goal)
        return reached.astype(np.float32) - 1, reached, np.zeros(self.n_envs, np.bool_)

    def _observe(self) -> Obs:
        parts = {"observation": self._bits, ACHIEVED: self._bits, DESIRED: self._goal}
        return {name: part.copy() for name, part in parts.items()}

    def _info(self) -> Info:
        return {"is_success": _same_bits(self._bits, self._goal)}

    def goal_functions(self) -> GoalFunctions:
        return GoalFunctions(lambda a, d: _same_bits(a, d).astype(np.float32) - 1, _same_bits)


def _same_bits(achieved: Array, desired: Array) -> Array:
    same: Array = (achieved == desired).all(axis=1)
    return same


class Image(OwnEnv):
    """Does the policy see an image? A bright square is somewhere in its left or its right half;
    reward 1 for the action that names the side, else -1, and the episode ends. The mean of all
    pixels does not help. `shape` is [channels, height, width], the channels all alike (a stack of
    frames that stand still), or [height, width, channels]; see nets/cnn.py."""

    _frames: Array
    _side: Array

    def __init__(self, request: EnvRequest) -> None:
        refuse_unknown(request, ("shape",))
        shape = request.env_kwargs.get("shape", (4, 84, 84))
        if len(shape) != 3 or not all(isinstance(n, int) and n >= 1 for n in shape):
            raise EnvError(f"{request.env_id}: shape must be three ints >= 1, got {shape!r}.")
        super().__init__(request, Box(0, 255, tuple(shape), np.uint8), Discrete(2))
        self._has_channels_first = shape[0] <= shape[2]
        height, width = shape[1:] if self._has_channels_first else shape[:2]
        if width < 2:
            wrong = f"shape {list(shape)} has a width of {width}, less than 2"
            raise EnvError(f"{request.env_id}: {wrong}.")
        self._size = height, width

    def _new(self) -> dict[str, Array]:
        n_envs, (height, width) = self.n_envs, self._size
        size = max(1, min(height, width // 2) // 4)
        side = self._rng.integers(0, 2, n_envs)
        top = self._rng.integers(0, height - size + 1, n_envs)
        left = self._rng.integers(0, width // 2 - size + 1, n_envs) + side * (width - width // 2)
        frames = np.zeros((n_envs, height, width), np.uint8)
        for frame, y, x in zip(frames, top, left, strict=True):
            frame[y : y + size, x : x + size] = 255
        return {"_frames": frames, "_side": side}

    def _advance(self, actions: Array) -> Outcome:
        reward = _sign(actions == self._side).astype(np.float32)
        return reward, np.ones(self.n_envs, np.bool_), np.zeros(self.n_envs, np.bool_)

    def _observe(self) -> Array:
        frames = self._frames[:, None] if self._has_channels_first else self._frames[..., None]
        shape = self.observation_space.shape or ()
        return np.broadcast_to(frames, (self.n_envs, *shape)).copy()


class Counting(OwnEnv):
    """Observations that name their place: (episode index, step index)."""

    _episode: Array
    _steps: Array

    def __init__(self, request: EnvRequest) -> None:
        refuse_unknown(request, ("length", "ends"))
        length = whole_option(request, "length", 5)
        self._ends = request.env_kwargs.get("ends", "terminated")
        if self._ends not in ENDS:
            known = ", ".join(ENDS)
            raise EnvError(f"{request.env_id}: ends must be one of {known}, got {self._ends!r}.")
        super().__init__(request, Box(0.0, np.inf, (2,), np.float32), Discrete(2))
        self._lengths = length + np.arange(self.n_envs)

    def _reset(self, seed: int) -> tuple[Obs, Info]:
        self._episode = np.full(self.n_envs, -1)
        return super()._reset(seed)

    def _new(self) -> dict[str, Array]:
        return {"_episode": self._episode + 1, "_steps": np.zeros(self.n_envs, np.int64)}

    def _advance(self, actions: Array) -> Outcome:
        self._steps = self._steps + 1
        ended = self._steps >= self._lengths
        even = self._episode % 2 == 0
        terminates = even if self._ends == "alternate" else self._ends != "truncated"
        truncates = ~even if self._ends == "alternate" else self._ends != "terminated"
        return np.ones(self.n_envs, np.float32), ended & terminates, ended & truncates

    def _observe(self) -> Array:
        return np.stack([self._episode, self._steps], axis=1).astype(np.float32)


_CLASSES = (ConstantReward, TwoStepDiscount, TruncatedReward, Memory, Corridor, MemoryParts)
_WITH_OPTIONS = (BitFlip, Image, Counting)
_MAKERS: dict[str, Callable[[EnvRequest], VectorEnv]] = {
    **{probe.__name__: probe for probe in (*_CLASSES, DictObs, Masked, *_WITH_OPTIONS)},
    "TwoStepDiscountContinuous": partial(TwoStepDiscount, action=ONE),
    "TruncatedRewardContinuous": partial(TruncatedReward, action=ONE),
    **{name: partial(ByRule, rule=rule) for name, rule in RULES.items()},
}
PROBES = {f"Probe/{name}-v0": make for name, make in _MAKERS.items()}


def make_probe(request: EnvRequest) -> VectorEnv:
    """Build a probe from its id."""
    probe = PROBES.get(request.env_id)
    if probe is None:
        raise EnvError(f"Unknown environment {request.env_id!r}. Probes: {', '.join(PROBES)}.")
    if probe not in _WITH_OPTIONS:
        refuse_unknown(request, ())
    return probe(request)
