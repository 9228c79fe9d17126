"""Legal actions, as environments give them: `info["action_mask"]`, 1 where an action is legal.

`MaskReader` makes bool[N, columns] of what an engine's infos hold. Discrete actions have a column
for each action: column j stands for action `start + j`. MultiDiscrete actions have the columns of
their components side by side, and an env may give them as a tuple with one mask for each component,
as `MultiDiscrete.sample` takes them. Gymnasium's vector envs set a flag `_action_mask` for the rows
that gave a mask; the other rows are all legal. The first reset decides whether an env has masks, so
that storage and networks can be built after it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.space_types import choices

KEY = "action_mask"


class MaskReader:
    """Reads the masks of one vector env, and refuses those that no policy could obey."""

    def __init__(self, action_space: Any, n_envs: int, env_id: str) -> None:
        sizes = choices(action_space)
        self._shape = None if sizes is None else (n_envs, sum(sizes))
        self._firsts = np.cumsum([0, *(sizes or [])[:-1]])
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
        """The masks of the observations after a step, a fresh array."""
        if not self._has_masks:
            if self._shape is not None and KEY in info:
                raise EnvError(
                    f"{self._env_id}: info[{KEY!r}] came later than the first reset. Put it into "
                    "the info of reset() too, so that the first action can obey it."
                )
            return None
        mask = self._read(info)
        # Of each choice something must be legal.
        empty = ~np.logical_or.reduceat(mask, self._firsts, axis=1).all(axis=1)
        return legal_at_ends(
            mask,
            empty,
            done,
            True,
            lambda row: (
                f"{self._env_id}: info[{KEY!r}] of env {row} forbids every action after step "
                f"{episode_length[row]} of its episode. Leave one legal, or end the episode."
            ),
        )

    def _read(self, info: Mapping[str, Any]) -> np.ndarray:
        assert self._shape is not None
        given = info.get(KEY)
        if given is None:
            return np.ones(self._shape, np.bool_)
        if isinstance(given, tuple) and len(given) == len(self._firsts) > 1:
            given = np.concatenate([np.asarray(part) for part in given], axis=1)
        rows = np.asarray(given)
        if rows.dtype == np.object_:  # lists or tuples, and None where a row gave nothing
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
            return np.array([all_legal if row is None else _joined(row) for row in rows])
        except ValueError as error:
            raise self._misshapen("has rows of different lengths") from error

    def _misshapen(self, what: str) -> EnvError:
        return EnvError(
            f"{self._env_id}: info[{KEY!r}] {what}, expected {self._shape}: a 0 or 1 for each "
            "action, in each env."
        )


def legal_at_ends(
    mask: np.ndarray,
    empty: Any,
    done: np.ndarray,
    legal: Any,
    problem: Callable[[int], str],
) -> np.ndarray:
    """The mask, with `legal` in its empty rows; EnvError(problem(row)) where an episode goes on.

    Nobody acts at a final observation, so an env may forbid everything there. Some actions are
    marked legal at such rows, so that a maximum over the legal actions is defined."""
    if empty.any():
        for row in np.flatnonzero(empty & ~done):
            raise EnvError(problem(int(row)))
        mask[empty] = legal
    return mask


def _joined(row: Any) -> Any:
    """A tuple of masks, one for each component, as one row."""
    if isinstance(row, tuple | np.ndarray | list) and len(row) and np.ndim(row[0]) == 1:
        return np.concatenate([np.asarray(part) for part in row])
    return row
