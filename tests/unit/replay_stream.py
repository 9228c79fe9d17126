"""A counting stream of rollouts under the vector contract, for the tests of replay.

Observation (env, episode, t); the step from t gives reward t + 1 and has action t % 3. Episode
lengths and endings are drawn; `endings` tells of every (env, episode) that is over at which t it
ended and how: "terminated", "truncated", or "cut" (by a restart of all envs).
"""

from collections import namedtuple
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces

from gymnasium_solver.data.memory import Memory, split
from gymnasium_solver.data.replay import Replay, Transitions
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.spaces.actions import action_kind
from gymnasium_solver.spaces.observations import Obs, obs_of, space_of

OBS_SPACE = spaces.Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = action_kind(spaces.Discrete(3))
N_FRAMES = 4


def plain(obs: Obs) -> np.ndarray:
    """Observations that are one array."""
    assert isinstance(obs, np.ndarray)
    return obs


def batch_class(*more: str) -> Any:
    """Transitions with more columns, a named tuple."""
    return namedtuple("Batch", (*Transitions._fields, *more))


Batch = batch_class("weight", "index")


def batches(memory: Memory, *given: Any, **options: Any) -> Iterator[Any]:
    """The batches of `memory.samples`: the columns of their rows, with weights and indices."""
    for sample in memory.samples(*given, **options):
        for one in split(sample, memory.batch_size):
            yield Batch(*one.rows, one.weight, one.index)


class Stream:
    space: spaces.Space = OBS_SPACE
    frame_stacks: dict[str, int] = {}

    def __init__(self, n_envs: int, seed: int = 0, max_length: int = 7) -> None:
        self.n_envs, self.max_length = n_envs, max_length
        self.rng = np.random.default_rng(seed)
        self.endings: dict[tuple[int, int], tuple[int, str]] = {}
        self.episode = np.full(n_envs, -1)
        self.t = np.zeros(n_envs, int)
        self.length = np.zeros(n_envs, int)
        self.is_done = np.zeros(n_envs, bool)
        for env in range(n_envs):
            self._open(env)
        self.is_restart = True

    def _open(self, env: int) -> None:
        self.episode[env] += 1
        self.t[env] = 0
        self.length[env] = self.rng.integers(1, self.max_length + 1)
        self.is_done[env] = False

    def restart(self) -> None:
        for env in range(self.n_envs):
            if not self.is_done[env]:
                self.endings[env, int(self.episode[env])] = (int(self.t[env]), "cut")
            self._open(env)
        self.is_restart = True

    def obs(self) -> np.ndarray:
        envs = np.arange(self.n_envs)
        return np.stack([envs, self.episode, self.t], axis=1).astype(np.float32)

    def replay(self, capacity: int, **options: Any) -> Replay:
        """An empty one for this stream."""
        options = {"frame_stacks": self.frame_stacks, **options}
        return Replay(capacity, self.n_envs, self.space, ACTIONS, **options)

    def rollout(self, n_steps: int) -> Rollout:
        rows = Rollout.allocate(n_steps, self.n_envs, OBS_SPACE, ACTIONS)
        rows.is_restart, self.is_restart = self.is_restart, False
        assert isinstance(rows.obs, np.ndarray)
        rows.obs[0], rows.is_first[0] = self.obs(), self.t == 0
        for t in range(n_steps):
            for env in range(self.n_envs):
                self._step(rows, t, env)
            rows.obs[t + 1], rows.is_first[t + 1] = self.obs(), self.t == 0
        return rows

    def _step(self, rows: Rollout, t: int, env: int) -> None:
        if self.is_done[env]:  # a reset row: its action, here one the policy never takes, is void
            rows.actions[t, env] = 2 - self.t[env] % 3
            self._open(env)
            return
        rows.valid[t, env] = True
        rows.actions[t, env] = self.t[env] % 3
        rows.reward[t, env] = self.t[env] + 1
        self.t[env] += 1
        if self.t[env] == self.length[env]:
            self.is_done[env] = True
            how = "terminated" if self.rng.random() < 0.5 else "truncated"
            getattr(rows, how)[t, env] = True
            self.endings[env, int(self.episode[env])] = (int(self.t[env]), how)


class Stacker:
    """Frames of noise, stacked and padded as engines do it, for every (env, episode, t)."""

    def __init__(
        self,
        n_envs: int,
        padding: str,
        rng: np.random.Generator,
        n_frames: int = N_FRAMES,
        channels: int = 1,
    ) -> None:
        self.padding, self.rng, self.frame = padding, rng, (channels, 3, 2)
        self.space = spaces.Box(0, 255, (n_frames * channels, 3, 2), np.uint8)
        self.stacks: dict[tuple[int, ...], np.ndarray] = {}
        self._last = [np.zeros((n_frames, *self.frame), np.uint8) for _ in range(n_envs)]

    def all(self, counters: np.ndarray) -> np.ndarray:
        """The stacks for counters [T + 1, N, 3]."""
        stacks = np.zeros((*counters.shape[:2], *self.space.shape), np.uint8)
        for t, env in np.ndindex(counters.shape[:2]):
            stacks[t, env] = self._stack(env, tuple(counters[t, env].astype(int).tolist()))
        return stacks

    def _stack(self, env: int, key: tuple[int, ...]) -> np.ndarray:
        if key not in self.stacks:
            frame = self.rng.integers(0, 256, self.frame, np.uint8)
            before = self._last[env]
            if key[2] == 0:
                if self.padding == "zeros":
                    before = np.zeros_like(before)
                elif self.padding == "repeat":
                    before = np.broadcast_to(frame, before.shape)
                # "goes on": a lost life opens an episode without touching the stack
            self._last[env] = np.concatenate([before[1:], frame[None]])
            self.stacks[key] = self._last[env].reshape(self.space.shape)
        return self.stacks[key]


class StackStream(Stream):
    """The counting stream seen through stacks of frames: one array, or named parts, which are two
    stacks of different depth, the counters as floats, and t as a Discrete."""

    def __init__(
        self, n_envs: int, padding: str, seed: int = 0, max_length: int = 7,
        channels: int = 1, is_dict: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(n_envs, seed, max_length)
        self.frame_stacks = {"camera": 4, "radar": 2} if is_dict else {"": N_FRAMES}
        self.stackers = {
            name: Stacker(n_envs, padding, self.rng, n, channels)
            for name, n in self.frame_stacks.items()
        }
        parts = {name: stacker.space for name, stacker in self.stackers.items()}
        more = {"state": OBS_SPACE, "t": spaces.Discrete(100)} if is_dict else {}
        self.space = space_of({**parts, **more})

    def rollout(self, n_steps: int) -> Rollout:
        """The next rows, with stacks for observations."""
        rows = super().rollout(n_steps)
        counters = plain(rows.obs)
        obs = {name: stacker.all(counters) for name, stacker in self.stackers.items()}
        if "" not in obs:
            obs |= {"state": counters, "t": counters[..., 2].astype(np.int64)}
        return replace(rows, obs=obs_of(obs))
