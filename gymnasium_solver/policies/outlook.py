"""What a policy computes about a state besides its action, for a viewer."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Outlook:
    """Of a batch of N states. None: the policy has no such numbers."""

    probabilities: np.ndarray | None = None
    """[N, outputs]: of each choice, or of each bit being set (`ActionKind.probabilities`)."""
    q_values: np.ndarray | None = None
    """[N, A]: of each discrete action; of several critics the lowest."""
    mean: np.ndarray | None = None
    """[N, width]: of continuous actions, in the policy's units."""
    std: np.ndarray | None = None
    """[N, width]: of the noise around `mean`, before a squashing to the bounds."""
    value: np.ndarray | None = None
    """[N]: expected return from here on."""
