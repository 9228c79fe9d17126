"""What `monitor` adds to the rows with details: weights, updates and the rank of features.

    weights   norm of the weights of each part of the networks
    updates   size of the epoch's update, relative to the weights; about 1e-3 is healthy with Adam
    rank      effective rank of the last hidden layers: the exponential of the entropy of their
              singular values; a fall means that features collapse

Gradient norms by part, activation statistics and dead units are in those rows anyway. Nothing here
changes training. The cost, in epochs with details only: a copy of the weights, and for `rank` a
forward pass over at most 512 observations and a singular value decomposition.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos.extensions.extension import Extension
from gymnasium_solver.algos.units import watch_units
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.fast.cuda_graph import on_device
from gymnasium_solver.nets.describe import use_network
from gymnasium_solver.spaces.observations import join_obs, map_obs, obs_len
from gymnasium_solver.tree import map_tree

MOST_ROWS, FEWEST_ROWS = 512, 16


class Monitor(Extension):
    name = "monitor"
    _before: dict[str, Tensor] | None = None  # the weights at the start of the epoch
    _obs: list[Any]

    def follow(self, env_steps: int, total_steps: int) -> None:
        """At the start of an epoch with details, keep the weights."""
        if self.learner.wants_details:
            optimizers = self.learner.optimizers
            self._before = {name: own.flat.clone() for name, own in optimizers.items()}
            self._obs = []

    @torch.no_grad()
    def report(self, rollout: Rollout) -> dict[str, float]:
        """Metrics, or {} until enough was collected and learnt."""
        if self._before is None:
            return {}
        before, names = self._before, self.learner.config.monitor
        optimizers = self.learner.optimizers
        self._obs.append(map_obs(np.copy, rollout.valid_obs()))
        has_changed = any(not own.flat.equal(before[k]) for k, own in optimizers.items())
        if not has_changed or sum(map(obs_len, self._obs)) < FEWEST_ROWS:
            return {}
        found: dict[str, float] = {}
        for name, own in optimizers.items():
            prefix = "" if len(optimizers) == 1 else f"{name}."
            norms = own.part_norms(own.flat)
            moved = own.part_norms(own.flat - before[name])
            for part, norm in norms.items():
                if "weights" in names:
                    found[f"opt/weights/norm/{prefix}{part}"] = norm
                if "updates" in names and norm > 0:
                    found[f"opt/updates/ratio/{prefix}{part}"] = moved[part] / norm
        if "rank" in names:
            found |= self._ranks()
        self._before, self._obs = None, []
        return found

    def _ranks(self) -> dict[str, float]:
        net, shape = self.learner.net, self.learner.actions.shape
        obs = join_obs(np.concatenate, self._obs)
        rows = map_tree(lambda part: on_device(part[-MOST_ROWS:], self.learner.device), obs)
        with watch_units(net) as units:
            use_network(net, rows, math.prod(shape) if shape else 0)
        last: dict[str, tuple[str, Tensor]] = {}
        for name, output in units.outputs.items():
            if output.ndim == 2:
                last[name.partition(".")[0]] = (name, output)
        return {f"opt/rank/{part}": effective_rank(y) for part, (_, y) in last.items()}


def effective_rank(features: Tensor) -> float:
    """exp(entropy of the normalised singular values) of features [n, width] (Roy and Vetterli)."""
    values = torch.linalg.svdvals(features.double())
    total = float(values.sum())
    if total <= 0:
        return 0.0
    shares = values / total
    shares = shares[shares > 0]
    return math.exp(float(-(shares * shares.log()).sum()))
