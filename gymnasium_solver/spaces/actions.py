"""Action spaces: one object per space, with its distribution, storage, masks and conversion.

    actions = action_kind(env.action_space)
    actions.n_outputs, actions.n_log_std        # what an actor's head must provide
    actions.shape, actions.dtype                # how one action is stored
    action = actions.sample(outputs, log_std, rng)
    log_prob, entropy = actions.log_prob_entropy(outputs, log_std, action)
    env.step(actions.to_env(action))
    actions.from_env(demonstrated)              # the inverse, for actions that others chose

Actions are in the policy's units: class indices, bits, or real numbers in which a bounded Box is
[-1, 1], so that one initial exploration scale suits every environment. `to_env` converts a batch to
the environment's units, still as one array; `to_native` converts one row to what `step` of a single
environment takes (an int, an array, a dict, a tuple).

A Dict or Tuple of action spaces is a product of independent distributions. Its actions are stored
as one float array of the concatenated leaves.

Training needs log-probabilities and entropies with gradients (torch). Acting needs samples and
modes (NumPy, in which sampling for eight environments takes microseconds).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.spaces.action_base import (
    LOG_SQRT_2PI,
    TINY,
    ActionKind,
    Moments,
    gumbel_max,
    softmax,
)
from gymnasium_solver.spaces.native_actions import bounded
from gymnasium_solver.spaces.observations import Space


class DiscreteActions(ActionKind):
    """One of n actions: a categorical distribution over logits."""

    shape: tuple[int, ...] = ()
    dtype = np.int64

    def __init__(self, space: spaces.Discrete):
        self.space = space
        self.n, self.start = int(space.n), int(space.start)
        self.n_outputs = self.n_mask = self.n

    def log_prob_entropy(
        self, outputs: Tensor, log_std: Tensor | None, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        log_probs = torch.log_softmax(outputs, dim=-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return log_probs.gather(1, actions.unsqueeze(1)).squeeze(1), entropy

    def sample(
        self, outputs: np.ndarray, log_std: np.ndarray | None, rng: np.random.Generator
    ) -> np.ndarray:
        return gumbel_max(outputs, self.noise(len(outputs), rng))

    def noise(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_exponential((n, self.n), dtype=np.float32)

    def from_noise(self, outputs: Tensor, log_std: Tensor | None, noise: Tensor) -> Tensor:
        return (outputs - (noise + TINY).log()).argmax(-1)

    def mode(self, outputs: np.ndarray) -> np.ndarray:
        return outputs.argmax(axis=1)

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        return softmax(outputs)

    def uniform(
        self, n: int, rng: np.random.Generator, mask: np.ndarray | None = None
    ) -> np.ndarray:
        if mask is None:
            return rng.integers(self.n, size=n)
        return np.where(mask, rng.random(mask.shape), -1.0).argmax(axis=1)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        return actions + self.start if self.start else actions

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        return actions.reshape(-1).astype(np.int64) - self.start


class BoxBase(ActionKind):
    """Real numbers, in which a bounded Box is [-1, 1]; subclasses add the distribution."""

    dtype = np.float32
    is_real = True

    def __init__(self, space: spaces.Box):
        self.space = space
        self.width = math.prod(space.shape)
        self.shape = (self.width,)
        self.is_bounded = bool(bounded(space).all())
        if self.is_bounded:
            low, high = space.low.astype(np.float64), space.high.astype(np.float64)
            self.middle = ((high + low) / 2).astype(np.float32)
            self.half_width = ((high - low) / 2).astype(np.float32)

    def uniform(
        self, n: int, rng: np.random.Generator, mask: np.ndarray | None = None
    ) -> np.ndarray:
        if self.is_bounded:
            return rng.uniform(-1.0, 1.0, (n, self.width)).astype(np.float32)
        return rng.standard_normal((n, self.width), dtype=np.float32)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        shaped = actions.reshape(len(actions), *(self.space.shape or ()))
        if not self.is_bounded:
            return shaped
        return self.middle + self.half_width * np.clip(shaped, -1.0, 1.0)

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        if self.is_bounded:
            actions = (actions - self.middle) / np.where(self.half_width > 0, self.half_width, 1.0)
        return actions.reshape(len(actions), self.width).astype(np.float32)

    def mode_error(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        return (self._centre(outputs) - self._scaled(actions)).square().mean(-1)

    def spread_loss(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        return -self.log_prob_entropy(self._held(outputs), log_std, actions)[0]

    def _held(self, outputs: Tensor) -> Tensor:
        """The outputs with a mean that gets no gradient."""
        return outputs.detach()

    def _centre(self, outputs: Tensor) -> Tensor:
        """The most likely action, in units where a bounded Box is [-1, 1]."""
        return outputs

    def _scaled(self, actions: Tensor) -> Tensor:
        """Stored actions in these units."""
        return actions


class BoxActions(BoxBase):
    """Independent normals with a state-independent standard deviation."""

    def __init__(self, space: spaces.Box):
        super().__init__(space)
        self.n_outputs = self.n_log_std = self.width

    def log_prob_entropy(
        self, outputs: Tensor, log_std: Tensor | None, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        assert log_std is not None
        z = (actions - outputs) * (-log_std).exp()
        log_prob = -(0.5 * z.square() + log_std + LOG_SQRT_2PI).sum(-1)
        entropy = (log_std + (0.5 + LOG_SQRT_2PI)).sum()
        return log_prob, entropy

    def sample(
        self, outputs: np.ndarray, log_std: np.ndarray | None, rng: np.random.Generator
    ) -> np.ndarray:
        assert log_std is not None
        return outputs + np.exp(log_std) * self.noise(len(outputs), rng)

    def noise(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((n, self.width), dtype=np.float32)

    def from_noise(self, outputs: Tensor, log_std: Tensor | None, noise: Tensor) -> Tensor:
        assert log_std is not None
        return outputs + log_std.exp() * noise

    def mode(self, outputs: np.ndarray) -> np.ndarray:
        return outputs

    def moments(self, outputs: np.ndarray, log_std: np.ndarray | None) -> Moments:
        assert log_std is not None
        return outputs, np.broadcast_to(np.exp(log_std), outputs.shape)


class MultiDiscreteActions(ActionKind):
    """Several choices at once, each with its own categorical distribution."""

    dtype = np.int64

    def __init__(self, space: spaces.MultiDiscrete):
        self.space = space
        self.sizes = [int(n) for n in space.nvec.reshape(-1)]
        self.start = space.start.reshape(-1).astype(np.int64)
        self.shape = (len(self.sizes),)
        self.n_outputs = self.n_mask = sum(self.sizes)
        self._splits = np.cumsum(self.sizes)[:-1]

    def output_parts(self) -> dict[str, int]:
        return {str(i): size for i, size in enumerate(self.sizes)}

    def log_prob_entropy(
        self, outputs: Tensor, log_std: Tensor | None, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        log_prob, entropy = outputs.new_zeros(()), outputs.new_zeros(())
        for i, logits in enumerate(outputs.split(self.sizes, dim=1)):
            log_probs = torch.log_softmax(logits, dim=-1)
            log_prob = log_prob + log_probs.gather(1, actions[:, i : i + 1]).squeeze(1)
            entropy = entropy - (log_probs.exp() * log_probs).sum(-1)
        return log_prob, entropy

    def sample(
        self, outputs: np.ndarray, log_std: np.ndarray | None, rng: np.random.Generator
    ) -> np.ndarray:
        noise = rng.standard_exponential(outputs.shape, dtype=np.float32) + np.float32(1e-30)
        return self.mode(outputs - np.log(noise))

    def mode(self, outputs: np.ndarray) -> np.ndarray:
        parts = np.split(outputs, self._splits, axis=1)
        return np.stack([part.argmax(axis=1) for part in parts], axis=1)

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        parts = np.split(outputs, self._splits, axis=1)
        return np.concatenate([softmax(part) for part in parts], axis=1)

    def uniform(
        self, n: int, rng: np.random.Generator, mask: np.ndarray | None = None
    ) -> np.ndarray:
        scores = rng.random((n, self.n_outputs))
        return self.mode(scores if mask is None else np.where(mask, scores, -1.0))

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        return (actions + self.start).reshape(len(actions), *(self.space.shape or ()))

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        return actions.reshape(len(actions), -1).astype(np.int64) - self.start


class MultiBinaryActions(ActionKind):
    """Several bits at once, each with its own Bernoulli distribution."""

    dtype = np.int64

    def __init__(self, space: spaces.MultiBinary):
        self.space = space
        self.n_outputs = math.prod(space.shape)
        self.shape = (self.n_outputs,)

    def log_prob_entropy(
        self, outputs: Tensor, log_std: Tensor | None, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        signs = 2.0 * actions.to(outputs.dtype) - 1.0
        log_prob = -nn.functional.softplus(-signs * outputs).sum(-1)
        entropy = nn.functional.softplus(outputs) - outputs * torch.sigmoid(outputs)
        return log_prob, entropy.sum(-1)

    def sample(
        self, outputs: np.ndarray, log_std: np.ndarray | None, rng: np.random.Generator
    ) -> np.ndarray:
        # rng.random() < sigmoid(x), without the overflow of exp(-x)
        uniform = rng.random(outputs.shape)
        return (np.log(uniform) - np.log1p(-uniform) < outputs).astype(np.int64)

    def mode(self, outputs: np.ndarray) -> np.ndarray:
        return (outputs > 0).astype(np.int64)

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        return np.exp(-np.logaddexp(0.0, -outputs))  # the sigmoid, without overflow

    def uniform(
        self, n: int, rng: np.random.Generator, mask: np.ndarray | None = None
    ) -> np.ndarray:
        return rng.integers(2, size=(n, self.n_outputs))

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        return actions.reshape(len(actions), *(self.space.shape or ()))

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        return actions.reshape(len(actions), -1).astype(np.int64)


class ProductActions(ActionKind):
    """A Dict or Tuple of independent leaves, stored as one float array."""

    dtype = np.float32

    def __init__(
        self,
        space: spaces.Dict | spaces.Tuple,
        leaf_kind: Callable[[Space], ActionKind] | None = None,
    ):
        self.space = space
        inner = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        self.leaves = [(leaf_kind or action_kind)(part) for part in inner]
        self._widths = [math.prod(leaf.shape) for leaf in self.leaves]
        self.shape = (sum(self._widths),)
        self.n_outputs = sum(leaf.n_outputs for leaf in self.leaves)
        self.n_log_std = sum(leaf.n_log_std for leaf in self.leaves)
        self.is_real = any(leaf.is_real for leaf in self.leaves)

    def output_parts(self) -> dict[str, int]:
        """A leaf has the name of its key or place; its own parts follow a dot."""
        keys = self.space.spaces if isinstance(self.space, spaces.Dict) else range(len(self.leaves))
        found = {}
        for key, leaf in zip(keys, self.leaves, strict=True):
            inner = leaf.output_parts()
            if list(inner) == ["action"]:
                found[str(key)] = leaf.n_outputs
            else:
                found |= {f"{key}.{name}": width for name, width in inner.items()}
        return found

    def log_prob_entropy(
        self, outputs: Tensor, log_std: Tensor | None, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        log_prob, entropy = outputs.new_zeros(()), outputs.new_zeros(())
        for leaf, *given in self._by_leaf(outputs, log_std, actions):
            one_log_prob, one_entropy = leaf.log_prob_entropy(*given)
            log_prob, entropy = log_prob + one_log_prob, entropy + one_entropy
        return log_prob, entropy

    def mode_error(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        """The sum over the leaves."""
        total = outputs.new_zeros(())
        for leaf, *given in self._by_leaf(outputs, log_std, actions):
            total = total + leaf.mode_error(*given)
        return total

    def spread_loss(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        total = outputs.new_zeros(())
        for leaf, *given in self._by_leaf(outputs, log_std, actions):
            total = total + leaf.spread_loss(*given)
        return total

    def _by_leaf(
        self, outputs: Tensor, log_std: Tensor | None, actions: Tensor
    ) -> Iterator[tuple[Any, Tensor, Tensor | None, Tensor]]:
        """Each leaf with its outputs, log standard deviations and stored actions."""
        stds: Sequence[Tensor | None] = [None] * len(self.leaves)
        if log_std is not None:
            stds = log_std.split([leaf.n_log_std for leaf in self.leaves])
        parts = zip(
            self.leaves,
            outputs.split([leaf.n_outputs for leaf in self.leaves], dim=1),
            stds,
            actions.split(self._widths, dim=1),
            strict=True,
        )
        for leaf, out, std, action in parts:
            stored = action.long() if leaf.dtype is np.int64 else action
            yield leaf, out, std, stored if leaf.shape else stored.squeeze(1)

    def first_log_std(self, value: float) -> Tensor:
        return torch.cat([leaf.first_log_std(value) for leaf in self.leaves])

    def _joined(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        columns = [part.reshape(len(part), -1).astype(np.float32) for part in parts]
        return np.concatenate(columns, axis=1)

    def _outputs(self, outputs: np.ndarray) -> list[np.ndarray]:
        return _split(outputs, [leaf.n_outputs for leaf in self.leaves])

    def sample(
        self, outputs: np.ndarray, log_std: np.ndarray | None, rng: np.random.Generator
    ) -> np.ndarray:
        stds: Sequence[np.ndarray | None] = [None] * len(self.leaves)
        if log_std is not None:
            stds = _split(log_std, [leaf.n_log_std for leaf in self.leaves])
        parts = zip(self.leaves, self._outputs(outputs), stds, strict=True)
        return self._joined([leaf.sample(out, std, rng) for leaf, out, std in parts])

    def mode(self, outputs: np.ndarray) -> np.ndarray:
        parts = zip(self.leaves, self._outputs(outputs), strict=True)
        return self._joined([leaf.mode(out) for leaf, out in parts])

    def uniform(
        self, n: int, rng: np.random.Generator, mask: np.ndarray | None = None
    ) -> np.ndarray:
        return self._joined([leaf.uniform(n, rng) for leaf in self.leaves])

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        columns = []
        for leaf, part in zip(self.leaves, _split(actions, self._widths), strict=True):
            stored = part.reshape(len(part), *leaf.shape).astype(leaf.dtype)
            columns.append(leaf.to_env(stored).reshape(len(part), -1).astype(np.float64))
        return np.concatenate(columns, axis=1)

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        parts = zip(self.leaves, _split(actions, self._widths), strict=True)
        return self._joined(
            [
                leaf.from_env(part.reshape(len(part), *(leaf.space.shape or ())))
                for leaf, part in parts
            ]
        )


def _split(array: np.ndarray, widths: Sequence[int]) -> list[np.ndarray]:
    return np.split(array, np.cumsum(widths)[:-1], axis=-1)


_KINDS: dict[type, Any] = {
    spaces.Discrete: DiscreteActions,
    spaces.Box: BoxActions,
    spaces.MultiDiscrete: MultiDiscreteActions,
    spaces.MultiBinary: MultiBinaryActions,
    spaces.Dict: ProductActions,
    spaces.Tuple: ProductActions,
}


def action_kind(space: Space) -> ActionKind:
    """The object for an action space; raises EnvError for unsupported spaces."""
    for kind, make in _KINDS.items():
        if isinstance(space, kind):
            made: ActionKind = make(space)
            return made
    raise EnvError(
        f"actions of type {type(space).__name__} are not supported. Supported: Discrete, Box, "
        "MultiDiscrete, MultiBinary, and Dict and Tuple of these."
    )


# -- requirements of algorithms ---------------------------------------------------------------


def require_discrete(space: Space, algo_id: str, env_id: str) -> DiscreteActions:
    """Raise ConfigError unless the space is Discrete."""
    kind = action_kind(space)
    if not isinstance(kind, DiscreteActions):
        others = "ppo, sac or td3" if isinstance(kind, BoxActions) else "ppo or reinforce"
        raise ConfigError(
            f"algo_id: {algo_id} needs Discrete actions, but {env_id} has {space}; use {others}."
        )
    return kind


def require_bounded_box(
    space: Space, algo_id: str, env_id: str, needs: str = "continuous actions (a Box)"
) -> BoxActions:
    """Raise ConfigError unless the space is a Box with finite bounds."""
    kind = action_kind(space)
    if not isinstance(kind, BoxActions):
        others = "dqn, ppo or sac" if isinstance(kind, DiscreteActions) else "ppo or reinforce"
        raise ConfigError(
            f"algo_id: {algo_id} needs {needs}, but {env_id} has {space}; use {others}."
        )
    if not kind.is_bounded:
        raise ConfigError(
            f"algo_id: {algo_id} squashes its actions into the bounds of the Box, but {env_id} has "
            f"the unbounded {space}; give it finite bounds "
            "(env_wrappers: [{id: ActionRescale, ...}]), or use ppo."
        )
    return kind
