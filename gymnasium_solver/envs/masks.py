"""Legal actions, as environments tell them: `info["action_mask"]`, 1 where an action is legal.

`MaskReader` makes bool[N, A] of what an engine's infos hold. Gymnasium's vector envs set a flag
`_action_mask` for the rows that told a mask; the other rows are all legal. The first reset decides
whether an env has masks, so that storage and networks can be built after it. Discrete actions only:
column j stands for action `start + j`.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.errors import EnvError

KEY = "action_mask"


class MaskReader:
    """Reads the masks of one vector env, and refuses those that nobody could obey."""

    def __init__(self, action_space: Any, n_envs: int, env_id: str) -> None:
        is_discrete = isinstance(action_space, gymnasium.spaces.Discrete)
        self._shape = (n_envs, int(action_space.n)) if is_discrete else None
        self._env_id = env_id
        self._has_masks: bool | None = None

    def at_reset(self, info: Mapping[str, Any]) -> np.ndarray | None:
        """The masks of the first observations; None where the env has none."""
        if self._has_masks is None:
            self._has_masks = self._shape is not None and KEY in info
        n_envs = self._shape[0] if self._shape else 0
        return self.at_step(info, np.zeros(n_envs, np.bool_), np.zeros(n_envs, np.int64))

    def at_step(
        self, info: Mapping[str, Any], done: np.ndarray, episode_length: np.ndarray
    ) -> np.ndarray | None:
        """The masks of the observations after a step, a fresh array.

        Nobody acts at a final observation, so an env may forbid everything there; it is made all
        legal, lest a maximum over no action spoils a target that would not have used it."""
        if not self._has_masks:
            if self._shape is not None and KEY in info:
                raise EnvError(
                    f"{self._env_id}: info[{KEY!r}] came later than the first reset. Put it into "
                    "the info of reset() too, so that the first action can obey it."
                )
            return None
        mask = self._told(info)
        empty = ~mask.any(axis=1)
        if empty.any():
            stuck = np.flatnonzero(empty & ~done)
            if len(stuck):
                row = stuck[0]
                raise EnvError(
                    f"{self._env_id}: info[{KEY!r}] of env {row} forbids every action after step "
                    f"{episode_length[row]} of its episode. Leave one legal, or end the episode."
                )
            mask[empty] = True
        return mask

    def _told(self, info: Mapping[str, Any]) -> np.ndarray:
        assert self._shape is not None
        told = info.get(KEY)
        if told is None:
            return np.ones(self._shape, np.bool_)
        rows = np.asarray(told)
        if rows.dtype == np.object_:  # lists, or tuples, and None where a row told nothing
            rows = self._stack(rows)
        if rows.shape != self._shape:
            raise self._misshapen(f"has shape {rows.shape}")
        mask = rows.astype(np.bool_)
        if not np.array_equal(mask, rows):
            raise EnvError(
                f"{self._env_id}: info[{KEY!r}] holds values other than 0 and 1, such as "
                f"{rows[mask != rows][0]}. Give 1 for a legal action and 0 for a forbidden one."
            )
        flags = info.get(f"_{KEY}")
        if flags is not None:
            mask[~np.asarray(flags, np.bool_)] = True
        return mask

    def _stack(self, rows: np.ndarray) -> np.ndarray:
        assert self._shape is not None
        all_legal = [1] * self._shape[1]
        try:
            return np.array([all_legal if row is None else row for row in rows])
        except ValueError as error:
            raise self._misshapen("has rows of different lengths") from error

    def _misshapen(self, what: str) -> EnvError:
        return EnvError(
            f"{self._env_id}: info[{KEY!r}] {what}, expected {self._shape}: a 0 or 1 for each "
            "action, in each env."
        )
