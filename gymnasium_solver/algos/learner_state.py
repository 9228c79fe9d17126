"""What a learner saves and hands on: checkpoints, snapshots before an update, flat weights."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos.agent import Snapshot, Tensors
from gymnasium_solver.algos.intrinsic import IntrinsicReward
from gymnasium_solver.errors import RunError
from gymnasium_solver.fast.compiled import CompiledForward
from gymnasium_solver.fast.optimizer import Optimizer
from gymnasium_solver.fast.recorded import LossGradient
from gymnasium_solver.nets.normalizer import RewardNormalizer
from gymnasium_solver.policies.policy import Policy
from gymnasium_solver.spaces.json_form import space_to_json
from gymnasium_solver.spaces.observations import Space


class LearnerState:
    """Saves and restores the parts that a learner (learner.py) has."""

    observation_space: Space
    action_space: Space
    net: Any
    policy: Policy
    rng: np.random.Generator
    optimizers: dict[str, Optimizer]
    gradients: dict[str, LossGradient]
    forwards: dict[str, CompiledForward]
    reward_normalizer: RewardNormalizer
    intrinsic: IntrinsicReward | None
    n_updates: int
    notes: list[str]
    _buffer_places: tuple[Any, list[tuple[str, dict[str, Tensor | None], str]]] | None = None

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        """Return tensors by file ("model", "optimizer") and the remaining state as JSON."""
        moments = {
            f"{name}.{key}": value
            for name, optimizer in self.optimizers.items()
            for key, value in optimizer.state().items()
        }
        extra = {
            "observation_space": space_to_json(self.observation_space),
            "action_space": space_to_json(self.action_space),
            "policy": self.policy.state(),
            "act_rng": self.policy.rng.bit_generator.state,
            "learn_rng": self.rng.bit_generator.state,
            "reward_normalizer": self.reward_normalizer.state(),
            "n_updates": self.n_updates,
            "gradients": {name: gradient.mode for name, gradient in self.gradients.items()},
            "forwards": {name: forward.mode for name, forward in self.forwards.items()},
        }
        tensors = {"model": dict(self.net.state_dict()), "optimizer": moments}
        if self.intrinsic is not None:
            tensors["intrinsic"], extra["intrinsic"] = self.intrinsic.state()
        return tensors, extra

    def load_state(self, tensors: dict[str, dict[str, Any]], extra: dict[str, Any]) -> None:
        self.load_weights(tensors["model"])
        for name, optimizer in self.optimizers.items():
            prefix = f"{name}."
            optimizer.load_state(
                {
                    key.removeprefix(prefix): value
                    for key, value in tensors["optimizer"].items()
                    if key.startswith(prefix)
                }
            )
        self.policy.load_state(extra["policy"])
        self.policy.rng.bit_generator.state = extra["act_rng"]
        self.rng.bit_generator.state = extra["learn_rng"]
        self.reward_normalizer.load_state(extra["reward_normalizer"])
        self.n_updates = extra.get("n_updates", 0)
        if self.intrinsic is not None:
            self.intrinsic.load_state(tensors["intrinsic"], extra["intrinsic"])
        modes = extra.get("gradients", {})
        resumed = [self.gradients[name].resume(mode) for name, mode in modes.items()]
        saved = extra.get("forwards", {})  # of an older version: in torch
        resumed += [own.resume(saved.get(name, "torch")) for name, own in self.forwards.items()]
        if not all(resumed):
            self.notes.append(
                "updates: the run was trained with compiled C programs, and there is no C compiler "
                "here. It continues with NumPy programs, which round differently."
            )

    def snapshot(self) -> Snapshot:
        """Copy weights, optimiser moments and statistics, to restore after an update with NaNs."""
        statistics = {name: value.clone() for name, value in self._buffers()}
        weights = [optimizer.snapshot() for optimizer in self.optimizers.values()]
        return [*weights, (torch.empty(0), statistics)]

    def restore(self, snapshot: Snapshot) -> None:
        *weights, (_, statistics) = snapshot
        for optimizer, saved in zip(self.optimizers.values(), weights, strict=True):
            optimizer.restore(saved)
        for name, value in self._buffers():
            value.copy_(statistics[name])

    def _buffers(self) -> list[tuple[str, Tensor]]:
        """The buffers of the network by name. Torch searches all modules for them, which takes as
        long as the copy of a small network."""
        if self._buffer_places is None or self._buffer_places[0] is not self.net:
            places = [
                (f"{prefix}.{name}" if prefix else name, module._buffers, name)
                for prefix, module in self.net.named_modules()
                for name in module._buffers
            ]
            self._buffer_places = (self.net, places)
        found = ((full, owner[name]) for full, owner, name in self._buffer_places[1])
        return [(name, value) for name, value in found if value is not None]

    def learnt_weights(self) -> list[Tensor]:
        """All trained parameters, as one flat vector per optimiser."""
        return [optimizer.flat for optimizer in self.optimizers.values()]

    # -- weights ----------------------------------------------------------------------------

    def export_flat(self) -> dict[str, np.ndarray]:
        """Flat weights and statistics: what another process needs to act like this agent."""
        arrays = {
            name: value.detach().cpu().numpy().copy()
            for name, value in self._flat_tensors().items()
        }
        return arrays | {"version": np.array(self.n_updates)}

    def import_flat(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Load what `export_flat` returned for an agent with the same config."""
        own = self._flat_tensors()
        for name, value in own.items():
            if name not in arrays or arrays[name].shape != tuple(value.shape):
                raise RunError(
                    f"the weights do not match this agent: {name} is missing or has a different "
                    "shape. Export them from an agent with the same config and spaces."
                )
        with torch.no_grad():
            for name, value in own.items():
                value.copy_(torch.as_tensor(arrays[name]))
        self.n_updates = int(arrays["version"])

    def _flat_tensors(self) -> dict[str, Tensor]:
        weights = {f"weights.{name}": o.flat for name, o in self.optimizers.items()}
        return weights | {f"buffer.{name}": value for name, value in self.net.named_buffers()}

    def load_weights(self, model: dict[str, Any]) -> None:
        """Load all weights and statistics in place; names and shapes must match exactly."""
        skipped = self.load_matching_weights(model)
        if skipped:
            raise RunError(
                f"the saved weights do not match this policy: {', '.join(skipped)}. Keep the "
                "spaces, hidden_dims and share_trunk they were trained with, or take over what "
                "fits with init_from_run."
            )

    def load_matching_weights(self, model: dict[str, Any]) -> list[str]:
        """Load the tensors that match by name and shape (transfer). Return the names, from either
        side, that did not match."""
        own = self.net.state_dict()
        fits = {
            name
            for name, target in own.items()
            if name in model and tuple(model[name].shape) == tuple(target.shape)
        }
        statistics = {name for name in own if ".normalizer." in name}
        if not statistics <= fits:  # a count without its mean would freeze the mean
            fits -= statistics
        with torch.no_grad():
            for name in fits:
                # copy_ instead of assignment: parameters are views into the optimiser's flat
                # vector.
                own[name].copy_(torch.as_tensor(model[name]))
        return sorted(set(model) - set(own)) + [name for name in own if name not in fits]
