"""What collectors send: their share of a rollout, and where their environments stand after it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.spaces.observations import Obs, map_obs, obs_arrays

CARRY, OBS = "carry.", "obs."
COLUMNS = ("actions", "reward", "terminated", "truncated", "valid", "is_first")
OPTIONAL = ("mask", "log_prob")


@dataclass
class EnvState:
    """Everything that the next rollout of a collector depends on, besides the weights."""

    seed: int  # of the last reset
    actions: np.ndarray  # since the last reset [T, N, ...]
    obs: Obs
    episode_return: np.ndarray
    episode_length: np.ndarray
    is_first: np.ndarray
    carry: dict[str, np.ndarray]
    rng: dict[str, Any]  # random stream of the policy

    def to_message(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        arrays = {
            "actions": self.actions,
            "episode_return": self.episode_return,
            "episode_length": self.episode_length,
            "is_first": self.is_first,
        }
        arrays |= {f"{CARRY}{name}": part for name, part in self.carry.items()}
        arrays |= {f"{OBS}{name}": part for name, part in obs_arrays(self.obs)}
        return {"seed": self.seed, "rng": self.rng}, arrays

    @classmethod
    def from_message(
        cls, fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> "EnvState":
        return cls(
            seed=fields["seed"],
            rng=fields["rng"],
            obs=_obs(arrays),
            carry=_named(CARRY, arrays),
            **{
                name: arrays[name]
                for name in ("actions", "episode_return", "episode_length", "is_first")
            },
        )

    def columns(self, part: slice) -> "EnvState":
        """Those of some of the envs."""
        return EnvState(
            seed=self.seed,
            rng=self.rng,
            actions=self.actions[:, part],
            obs=map_obs(lambda array: array[part], self.obs),
            episode_return=self.episode_return[part],
            episode_length=self.episode_length[part],
            is_first=self.is_first[part],
            carry={name: array[part] for name, array in self.carry.items()},
        )


def joined_states(states: Sequence[EnvState]) -> dict[str, np.ndarray]:
    """The arrays of all collectors, side by side."""
    each = [state.to_message()[1] for state in states]
    return {
        name: np.concatenate([arrays[name] for arrays in each], axis=int(name == "actions"))
        for name in each[0]
    }


def split_states(
    arrays: Mapping[str, np.ndarray], seeds: Sequence[int], rngs: Sequence[dict[str, Any]]
) -> list[EnvState]:
    """From the arrays of all collectors to the state of each."""
    whole = EnvState.from_message({"seed": 0, "rng": {}}, arrays)
    share = len(whole.is_first) // len(seeds)
    states = []
    for i, (seed, rng) in enumerate(zip(seeds, rngs, strict=True)):
        state = whole.columns(slice(i * share, (i + 1) * share))
        state.seed, state.rng = seed, rng
        states.append(state)
    return states


def rollout_arrays(rollout: Rollout) -> dict[str, np.ndarray]:
    """The columns of a rollout by name."""
    arrays = {name: getattr(rollout, name) for name in COLUMNS}
    arrays |= {name: column for name in OPTIONAL if (column := getattr(rollout, name)) is not None}
    arrays |= {f"{CARRY}{name}": part for name, part in rollout.carry.items()}
    return arrays | {f"{OBS}{name}": part for name, part in obs_arrays(rollout.obs)}


def joined_rollout(parts: Sequence[Mapping[str, np.ndarray]], version: int) -> Rollout:
    """One rollout of the envs of all collectors."""
    columns = {
        name: np.concatenate([arrays[name] for arrays in parts], axis=1) for name in parts[0]
    }
    named: dict[str, Any] = {name: columns.get(name) for name in (*COLUMNS, *OPTIONAL)}
    return Rollout(obs=_obs(columns), carry=_named(CARRY, columns), version=version, **named)


def cut_to(rollout: Rollout, budget: int | None) -> Rollout:
    """The rows up to this number of env steps; what exceeds it in the last row is not valid."""
    steps = rollout.valid.sum(axis=1).cumsum()
    if budget is None or len(steps) == 0 or steps[-1] < budget:
        return rollout
    row = int(np.argmax(steps >= budget))
    surplus = int(steps[row]) - budget
    if surplus:
        rollout.valid[row, np.flatnonzero(rollout.valid[row])[-surplus:]] = False
    return rollout.first(row + 1)


def _named(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def _obs(arrays: Mapping[str, np.ndarray]) -> Obs:
    parts = _named(OBS, arrays)
    return parts[""] if list(parts) == [""] else parts
