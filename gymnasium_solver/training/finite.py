"""Checks for NaN and infinity: reports them in the epoch they appear, with values and advice.

The cost is one pass over the rollout and a check of a few scalars per epoch. Weights are restored
from a copy made before the update, so the last good state is never lost.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import DivergedError, EnvValueError
from gymnasium_solver.spaces.observations import obs_arrays

ENV_ADVICE = "The environment or a wrapper produced it: check its physics, divisions and logarithms"
LEARNER_ADVICE = (
    "Lower policy_lr or max_grad_norm, or turn on normalize_obs / normalize_reward; then resume "
    "from the last good state."
)


def check_rollout(rollout: Rollout, env_id: str) -> None:
    """Raise DivergedError if an observation or a reward is not finite."""
    parts = [
        (f"observation {name!r}" if name else "observation", part)
        for name, part in obs_arrays(rollout.obs)
    ]
    for name, values in (*parts, ("reward", rollout.reward)):
        if values.dtype.kind != "f" or np.isfinite(values).all():
            continue
        bad = np.argwhere(~np.isfinite(values))
        row, env = int(bad[0][0]), int(bad[0][1])
        shown = np.array2string(np.asarray(values[row, env]), threshold=12)
        raise EnvValueError(
            f"{env_id}: {len(bad)} value(s) of the {name} are not finite; the first is in env "
            f"{env} at row {row} of the rollout: {shown}. {ENV_ADVICE}{_bound(name, values)}."
        )


def _bound(name: str, values: np.ndarray) -> str:
    """The wrapper that helps against values that explode. None repairs a NaN."""
    if np.isnan(values).any():
        return ""
    wrapper, what = ("RewardClip", "a reward") if name == "reward" else ("ObservationClip", "them")
    return f"; `env_wrappers: [{{id: {wrapper}, ...}}]` bounds {what} that should stay finite"


def check_weights(weights: Sequence[torch.Tensor]) -> None:
    """Raise DivergedError if a weight is not finite: a step can overflow even if its gradient did
    not."""
    # A sum takes a tenth of the time. One that overflows by itself is looked at more closely.
    if all(math.isfinite(float(flat.sum())) for flat in weights):
        return
    if not all(bool(torch.isfinite(flat).all()) for flat in weights):
        n_bad = sum(int((~torch.isfinite(flat)).sum()) for flat in weights)
        n_all = sum(flat.numel() for flat in weights)
        raise DivergedError(
            f"{n_bad} of {n_all} weights are not finite after the update. " + LEARNER_ADVICE
        )


def check_metrics(metrics: Mapping[str, float]) -> None:
    """Raise DivergedError if a loss or the gradient norm is not finite."""
    watched = {k: v for k, v in metrics.items() if k.startswith(("opt/loss/", "opt/grads/"))}
    bad = {name: value for name, value in watched.items() if not np.isfinite(value)}
    if bad:
        values = ", ".join(f"{name} = {value}" for name, value in bad.items())
        raise DivergedError(f"the update is not finite: {values}. {LEARNER_ADVICE}")


def dump_rollout(rollout: Rollout, folder: Path) -> None:
    """Save the offending rollout as diverged.safetensors in the run folder."""
    from safetensors.numpy import save

    arrays = {
        name: np.ascontiguousarray(value)
        for name, value in vars(rollout).items()
        if isinstance(value, np.ndarray)
    }
    if isinstance(rollout.obs, dict):
        arrays |= {f"obs.{name}": np.ascontiguousarray(part) for name, part in rollout.obs.items()}
    (folder / "diverged.safetensors").write_bytes(save(arrays))
