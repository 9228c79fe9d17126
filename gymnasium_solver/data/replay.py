"""Replay buffer: n-step transitions and sequences, sampled from a ring of rows x envs.

    replay = Replay(100_000, n_envs, observation_space, action_space)
    replay.add(rollout)
    index = replay.sample(256, rng)
    batch = replay.transitions(index, n_step=3, gamma=0.99)

ring.py stores the rows. An n-step return continues while the following row is `valid`. The first
invalid row (a reset row, the head, a break) holds the observation to bootstrap from, unless the
step before it `terminated`. This alone keeps episodes apart. Every step can be sampled as soon as
it is added, with fewer than n steps if there are no more yet.
"""

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from gymnasium_solver.data.columns import column_name
from gymnasium_solver.data.hindsight import NewGoals
from gymnasium_solver.data.ring import Ring
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.spaces.observations import Obs, map_obs


class Transitions(NamedTuple):
    """B transitions of up to n steps: target = reward + discount * value(next_obs)."""

    obs: Obs  # [B, ...]
    actions: np.ndarray  # int64[B] if discrete, float32[B, A] otherwise
    reward: np.ndarray  # float32[B]: discounted sum
    discount: np.ndarray  # float32[B]: gamma ** steps, 0 if terminated
    next_obs: Obs  # [B, ...]
    next_mask: np.ndarray | None  # bool[B, A]: legal actions at next_obs, if the env provides masks


class ReplayBatch(NamedTuple):
    """A batch of transitions, as tensors."""

    obs: Any  # tree of tensors [B, ...]
    actions: Tensor  # [B] discrete, or [B, A]
    reward: Tensor  # discounted n-step reward [B]
    discount: Tensor  # of the bootstrapped value, 0 after a termination [B]
    next_obs: Any
    weight: Tensor  # importance weight of prioritised replay, or one [B]
    next_mask: Tensor | None = None  # legal actions at next_obs [B, A], if the env provides masks
    noise: Tensor | None = None  # standard normal noise for the loss [B, A]
    mask: Tensor | None = None  # legal actions at obs, if the learner reads them


class Sequences(NamedTuple):
    """B sequences of L rows, which can span several episodes (`is_first`)."""

    obs: Obs  # [L + 1, B, ...]
    actions: np.ndarray  # [L, B, ...]
    reward: np.ndarray  # float32[L, B]
    terminated: np.ndarray  # bool[L, B]
    truncated: np.ndarray  # bool[L, B]
    valid: np.ndarray  # bool[L, B]: rows to learn from, without reset rows and breaks
    is_first: np.ndarray  # bool[L + 1, B]: this observation starts an episode
    carry: dict[str, np.ndarray]  # of the acting policy, before the first row or another, [B, ...]
    mask: np.ndarray | None  # bool[L + 1, B, A]
    bonus: np.ndarray | None = None  # float32[L, B]: rewards of extensions

    def within_episode(self) -> "Sequences":
        """Without the rows after the end of the first row's episode."""
        over = np.cumsum(self.terminated | self.truncated | ~self.valid, axis=0)
        before = np.vstack([np.zeros((1, over.shape[1]), over.dtype), over[:-1]])
        return self._replace(valid=self.valid & (before == 0))


class Replay(Ring):
    """A ring that can be sampled."""

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Sample n indices uniformly, with replacement, from the stored transitions."""
        self.check_not_empty()
        n_leaves = min(self.n_added, self.n_rows) * self.n_envs
        found: list[np.ndarray] = []
        while n > 0:
            n_drawn = n
            if self.n_valid < n_leaves:
                n_drawn = min(int(1.05 * n * n_leaves / self.n_valid) + 8, 2**20)
            # rng.integers takes twice the time per batch. The product stays below n_leaves.
            index = (rng.random(n_drawn) * n_leaves).astype(np.int64)
            if self.n_valid < n_leaves:
                index = index[self.is_valid(index)][:n]
            found.append(index)
            n -= len(index)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def check_not_empty(self) -> None:
        if self.n_valid == 0:
            raise ConfigError(
                "the replay buffer has no transitions to sample. Collect env steps before the "
                "first update (learning_starts)."
            )

    def newest(self) -> np.ndarray:
        """Indices of the newest row with transitions, one for each env that took a step."""
        for row in range(self.n_added - 1, self.oldest_row - 1, -1):
            index = self.leaves(row, row + 1)
            if (is_valid := self.is_valid(index)).any():
                return index[is_valid]
        return np.empty(0, np.int64)

    def transitions(
        self,
        index: np.ndarray,
        n_step: int,
        gamma: float,
        reward_scale: float = 1.0,
        reward_clip: float | None = None,
        new_goals: NewGoals | None = None,
    ) -> Transitions:
        """The transitions at valid indices, each over at most n_step steps of one episode.

        The environment's rewards are scaled, then clipped to +-reward_clip, before they are summed;
        rewards of extensions are added as they are. `new_goals`: of hindsight replay; rewards and
        terminations are computed for them first."""
        flat, n_envs = self._flat, self.n_envs
        chain = index if n_step == 1 else index + np.arange(0, n_step * n_envs, n_envs)[:, None]
        reward = flat["reward"].take(chain, mode="wrap")  # [n, B], or [B] for one step
        terminated = flat["terminated"].take(chain, mode="wrap")
        if new_goals is not None:
            new_goals.set_outcomes(self, chain, reward, terminated)
        reward = _shaped(reward, reward_scale, reward_clip)
        if "bonus" in flat:
            reward += flat["bonus"].take(chain, mode="wrap")
        if n_step == 1:
            last = index
            discount = np.logical_not(terminated) * np.float32(gamma)
        else:
            goes_on = flat["valid"].take(chain, mode="wrap")
            # Reset rows are invalid. A lost life has no reset row, but `terminated` is set.
            goes_on[1:] &= ~terminated[:-1]
            np.logical_and.accumulate(goes_on, axis=0, out=goes_on)
            n_steps = goes_on.sum(axis=0)
            last = index + (n_steps - 1) * n_envs
            powers = (gamma ** np.arange(n_step + 1)).astype(np.float32)
            reward *= powers[:-1, None]
            reward = np.where(goes_on, reward, np.float32(0)).sum(axis=0)
            discount = powers.take(n_steps)
            discount[(terminated & goes_on).any(axis=0)] = 0
        following = last + n_envs  # may exceed the end: every gather wraps around
        actions = flat["actions"].take(index, axis=0)
        obs, next_obs = self.observations(index), self.observations(following)
        if new_goals is not None:
            new_goals.set_goals(obs)
            new_goals.set_goals(next_obs)
        return Transitions(
            obs,
            actions.astype(self._action_dtype, copy=False),
            reward,
            discount,
            next_obs,
            flat["mask"].take(following, axis=0, mode="wrap") if "mask" in flat else None,
        )

    def masks(self, index: np.ndarray) -> np.ndarray | None:
        """Legal actions bool[B, A] at the observations, if the env provides masks."""
        return self._flat["mask"].take(index, axis=0) if "mask" in self._flat else None

    # -- sequences --------------------------------------------------------------------------

    def sample_sequences(self, n: int, length: int, rng: np.random.Generator) -> np.ndarray:
        """Sample n start indices, uniformly with replacement, of sequences of `length` rows.

        A sequence never wraps from the newest row into the oldest ones. Its first row is a step."""
        self.check_not_empty()
        first, n_starts = self.oldest_row, self.n_added - length - self.oldest_row + 1
        n_places, found = max(0, n_starts) * self.n_envs, np.empty(0, np.int64)
        while len(found) < n and n_places:  # not a list of all steps: it takes longer than a batch
            place = (rng.random(n + n // 4 + 8) * n_places).astype(np.int64)
            index = (place + first * self.n_envs) % self._n_leaves
            index = index[self.is_valid(index)]
            if len(index) == 0 and not self.is_valid(self.leaves(first, first + n_starts)).any():
                break
            found = np.concatenate([found, index])
        if len(found) < n:
            raise ConfigError(
                f"the replay buffer has no sequence of {length} rows yet: collect more env steps "
                "before the first update (learning_starts), or use shorter sequences."
            )
        return found[:n]

    def sequences(self, index: np.ndarray, length: int, carry_row: int = 0) -> Sequences:
        """The rows from `index` on, with the acting policy's carry before the first row, or before
        a later one, `carry_row`."""
        flat, n_envs = self._flat, self.n_envs
        rows = (index + np.arange(length + 1)[:, None] * n_envs) % self._n_leaves  # [L + 1, B]
        grid = rows.reshape(-1)

        def shaped(array: np.ndarray) -> np.ndarray:
            return array.reshape(*rows.shape, *array.shape[1:])

        steps = rows[:-1]
        return Sequences(
            obs=map_obs(shaped, self.observations(grid)),
            actions=flat["actions"].take(steps, axis=0).astype(self._action_dtype, copy=False),
            **{
                name: flat[name].take(steps)
                for name in ("reward", "terminated", "truncated", "valid")
            },
            is_first=flat["is_first"].take(rows),
            carry={
                name: flat[column_name("carry", name)].take(rows[carry_row], axis=0)
                for name in self._carry_names
            },
            mask=flat["mask"].take(rows, axis=0) if "mask" in flat else None,
            bonus=flat["bonus"].take(steps) if "bonus" in flat else None,
        )


def _shaped(reward: np.ndarray, scale: float, clip: float | None) -> np.ndarray:
    """Scale, then clip, in place."""
    if scale != 1.0:
        reward *= scale
    if clip is not None:
        np.clip(reward, -clip, clip, out=reward)
    return reward
