"""The passes of an update over its minibatches, together with the other seeds of a stack.

On a GPU (fast/stacked_descent.py); a seed alone, and one that must look at its minibatches one by
one, makes them itself.
"""

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.algos.on_policy import Prepared
from gymnasium_solver.fast.optimizer import FlatOptimizer
from gymnasium_solver.fast.recorded import LossGradient
from gymnasium_solver.fast.stacked_descent import Descent, can_descend_together
from gymnasium_solver.lanes import current_lane


def passes_together(
    learner: Learner,
    gradient: LossGradient,
    n_passes: int,
    data: Prepared,
    n_rows: int,
    coefficients: Mapping[str, float],
    lr: float,
) -> Tensor | None:
    """Make the passes and return the norms of the gradients; None if they are to be made alone.

    `n_rows`: of the rollout, reset rows included, which the sizes of minibatches are derived from.
    """
    cfg, lane, optimizer = learner.config, current_lane(), learner.optimizers["policy"]
    if lane is None or "descent" not in lane.lanes.works:
        return None
    is_interrupted = cfg.target_kl is not None or cfg.recompute_advantages
    is_changed = cfg.normalize_advantages == "batch" or data.batch.is_sequence
    # A rollout that was cut short is not worth a program of its own.
    is_usual = (
        n_rows == cfg.n_envs * cfg.rollout_rows and n_rows % -(-n_rows // cfg.batch_size) == 0
    )
    if is_interrupted or is_changed or not is_usual:
        return None
    if not can_descend_together(gradient, optimizer):
        return None
    assert isinstance(optimizer, FlatOptimizer)
    before = learner.rng.bit_generator.state
    parts = list[np.ndarray]()
    for _ in range(n_passes):
        for rows in data.minibatch_rows(cfg.batch_size, learner.rng, n_rows):
            parts.append(np.arange(data.n) if rows is None else rows)
    asked = Descent(
        gradient,
        optimizer,
        data.batch,
        n_rows,
        np.stack(parts),
        list(coefficients.values()),
        lr,
        len(lane.lanes.active),
    )
    with learner.timer.detail("gradient"):
        norms: Tensor | None = lane.together("descent", asked)
    if norms is None:
        learner.rng.bit_generator.state = before
    return norms
