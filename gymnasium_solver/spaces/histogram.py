"""Which actions were taken, as fractions: one entry per action, button, or bin of a range."""

import numpy as np

from gymnasium_solver.spaces.action_base import ActionKind
from gymnasium_solver.spaces.actions import BoxBase, DiscreteActions, MultiBinaryActions

MOST_BINS = 32
BOX_BINS = 10


def action_histogram(kind: ActionKind, actions: np.ndarray) -> dict[str, float]:
    """Fractions by bin for actions [B, ...] in the policy's units; {} for other spaces, and for
    more than 32 actions.

    The numbers of a Box are pooled over its components; those beyond -1 and 1 are in the outer
    bins, as the environment gets them.
    """
    if len(actions) == 0:
        return {}
    if isinstance(kind, DiscreteActions) and kind.n <= MOST_BINS:
        fractions = np.bincount(actions.reshape(-1), minlength=kind.n) / len(actions)
    elif isinstance(kind, MultiBinaryActions) and kind.n_outputs <= MOST_BINS:
        fractions = actions.mean(axis=0)
    elif isinstance(kind, BoxBase):
        counts, _ = np.histogram(np.clip(actions, -1.0, 1.0), bins=BOX_BINS, range=(-1.0, 1.0))
        fractions = counts / actions.size
    else:
        return {}
    return {f"{i:02d}": fraction for i, fraction in enumerate(fractions.tolist())}
