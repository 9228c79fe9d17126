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
the environment's units, still as one array; `to_native` makes of it what the `step` of an
environment takes (an int, an array, a dict, a tuple).

A Dict or Tuple of action spaces is a product of independent distributions. Its actions are stored
as one float array of the concatenated leaves.

Training needs log-probabilities and entropies with gradients (torch). Acting needs samples and
modes (NumPy, in which sampling for eight environments takes microseconds).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymnasium_solver.errors import Unsupported
from gymnasium_solver.spaces.observations import Space
from gymnasium_solver.spaces.space_types import action_leaves, bounded, parts_of, to_native

Array = np.ndarray
Rng = np.random.Generator
Pair = tuple[Tensor, Tensor]
Moments = tuple[Array, Array]
LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
MASKED_LOGIT = -1e8  # of an illegal action: its probability and entropy contribution are 0
TINY = 1e-30  # exponential noise can be exactly 0, whose logarithm is undefined
MOST_BINS, BOX_BINS = 32, 10  # of a histogram of actions


class ActionKind(ABC):
    """Everything the rest of the program needs to know about an action space."""

    space: Space
    shape: tuple[int, ...]  # shape of one stored action
    dtype: type[np.generic]
    n_outputs: int  # number of outputs of the actor's head per state
    n_log_std: int = 0  # number of learnt, state-independent log standard deviations (Box parts)
    n_mask: int | None = None
    """Columns of a mask of legal actions; None: the space cannot be masked."""
    is_real: bool = False  # whether an action, or a part of it, is a real number

    @abstractmethod
    def log_prob_entropy(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Pair:
        """Log-probabilities [B], and entropies [B], or a scalar if the entropy is the same in all
        states."""

    @abstractmethod
    def sample(self, outputs: Array, log_std: Array | None, rng: Rng) -> Array:
        """One sample for each row of outputs [B, n_outputs]."""

    def noise(self, n: int, rng: Rng) -> Array | None:
        """The random numbers that `sample` would draw for n rows, if `from_noise` can use them."""
        return None

    def from_noise(self, outputs: Tensor, log_std: Tensor | None, noise: Tensor) -> Tensor:
        """The samples that these random numbers give, in torch: for programs that sample."""
        raise NotImplementedError(f"{type(self).__name__} samples in NumPy only")

    def ready_noise(self, shape: tuple[int, ...], rng: torch.Generator) -> Tensor | None:
        """Random numbers on the generator's device for rows of this shape, as `from_ready` takes
        them; None: it samples in NumPy only."""
        return None

    def from_ready(self, outputs: Tensor, log_std: Tensor | None, noise: Tensor) -> Tensor:
        """The samples that these random numbers give."""
        return self.from_noise(outputs, log_std, noise)

    def to_env_tensor(self, actions: Tensor) -> Tensor:
        """As `to_env`, of tensors: for kinds with `ready_noise`."""
        raise NotImplementedError(f"{type(self).__name__} converts arrays only")

    @abstractmethod
    def mode(self, outputs: Array) -> Array:
        """The most likely action of each row."""

    @abstractmethod
    def uniform(self, n: int, rng: Rng, mask: Array | None = None) -> Array:
        """Sample n actions uniformly from the legal ones; an unbounded Box from a standard
        normal."""

    @abstractmethod
    def to_env(self, actions: Array) -> Array:
        """Convert to the environment's units, [N, *shape of the environment's action]; for a Dict
        or Tuple [N, width], the leaves concatenated as float64."""

    def env_units(self) -> tuple[Array, Array] | None:
        """`to_env` as numbers, for environments that step in C: (middle, half width) of a bounded
        Box whose actions are clipped to [-1, 1]; None: the actions are the environment's."""
        raise Unsupported(f"{type(self).__name__} are converted in NumPy only")

    @abstractmethod
    def from_env(self, actions: Array) -> Array:
        """Actions [N, ...] in the environment's units, as stored: the inverse of `to_env`."""

    def mode_error(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        """How far the most likely action is from these [B]: the mean squared difference of real
        numbers, where a bounded Box is [-1, 1]; of choices the negative log-probability."""
        return -self.log_prob_entropy(outputs, log_std, actions)[0]

    def spread_loss(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        """The negative log-probability of real numbers as a function of the deviation alone, with
        the mean held; 0 if the distribution has no deviation of its own. With `mode_error` it fits
        mean and deviation, without the steep gradients that a small deviation gives the mean."""
        return outputs.new_zeros(())

    def output_parts(self) -> dict[str, int]:
        """The outputs by part of the action: names and widths, in order."""
        return {"action": self.n_outputs}

    def probabilities(self, outputs: Array) -> Array | None:
        """The probability of each choice, in the order of the outputs, or of each bit that it is
        set. None: the distribution is not over choices."""
        return None

    def moments(self, outputs: Array, log_std: Array | None) -> Moments | None:
        """Mean and standard deviation of real-valued actions [B, width], in the policy's units,
        before a squashing to the bounds. None: actions are not real numbers."""
        return None

    def first_log_std(self, value: float) -> Tensor:
        """Initial log standard deviations [n_log_std]."""
        return torch.full((self.n_log_std,), float(value))

    def to_native(self, actions: Array) -> Any:
        """Convert one row of `to_env`, or rows, to what `step` of an environment, or of a
        vectorised one, takes."""
        return to_native(self.space, actions)

    def store(self, lead: tuple[int, ...]) -> Array:
        """Zeros for actions [*lead, *shape]."""
        return np.zeros((*lead, *self.shape), self.dtype)


def mask_outputs(outputs: Array, mask: Array | None) -> Array:
    """Mask the outputs so that illegal actions (mask False) have probability 0."""
    return outputs if mask is None else np.where(mask, outputs, np.float32(MASKED_LOGIT))


def mask_tensor(outputs: Tensor, mask: Tensor | None) -> Tensor:
    return outputs if mask is None else outputs.masked_fill(~mask, MASKED_LOGIT)


def softmax(logits: Array) -> Array:
    """The softmax over the last axis."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def gumbel_max(logits: Array, noise: Array) -> Array:
    """Sample from softmax(logits) over the last axis, using standard exponential noise of that
    shape."""
    noise = noise + np.float32(TINY)
    return (logits - np.log(noise, out=noise)).argmax(axis=-1)


class DiscreteActions(ActionKind):
    """One of n actions: a categorical distribution over logits."""

    shape: tuple[int, ...] = ()
    dtype = np.int64

    def __init__(self, space: spaces.Discrete):
        self.space = space
        self.n, self.start = int(space.n), int(space.start)
        self.n_outputs = self.n_mask = self.n

    def log_prob_entropy(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Pair:
        log_probs = torch.log_softmax(outputs, dim=-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return log_probs.gather(1, actions.unsqueeze(1)).squeeze(1), entropy

    def sample(self, outputs: Array, log_std: Array | None, rng: Rng) -> Array:
        return gumbel_max(outputs, self.noise(len(outputs), rng))

    def noise(self, n: int, rng: Rng) -> Array:
        return rng.standard_exponential((n, self.n), dtype=np.float32)

    def from_noise(self, outputs: Tensor, log_std: Tensor | None, noise: Tensor) -> Tensor:
        return (outputs - (noise + TINY).log()).argmax(-1)

    def ready_noise(self, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
        drawn = torch.empty((*shape, self.n), device=rng.device).exponential_(generator=rng)
        return -(drawn + TINY).log()

    def from_ready(self, outputs: Tensor, log_std: Tensor | None, noise: Tensor) -> Tensor:
        return (outputs + noise).argmax(-1)

    def to_env_tensor(self, actions: Tensor) -> Tensor:
        return actions + self.start if self.start else actions

    def mode(self, outputs: Array) -> Array:
        return outputs.argmax(axis=1)

    def probabilities(self, outputs: Array) -> Array:
        return softmax(outputs)

    def uniform(self, n: int, rng: Rng, mask: Array | None = None) -> Array:
        if mask is None:
            return rng.integers(self.n, size=n)
        return np.where(mask, rng.random(mask.shape), -1.0).argmax(axis=1)

    def to_env(self, actions: Array) -> Array:
        return actions + self.start if self.start else actions

    def env_units(self) -> tuple[Array, Array] | None:
        is_same = type(self).to_env is DiscreteActions.to_env and not self.start
        return None if is_same else super().env_units()

    def from_env(self, actions: Array) -> Array:
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

    def uniform(self, n: int, rng: Rng, mask: Array | None = None) -> Array:
        if self.is_bounded:
            return rng.uniform(-1.0, 1.0, (n, self.width)).astype(np.float32)
        return rng.standard_normal((n, self.width), dtype=np.float32)

    def to_env(self, actions: Array) -> Array:
        shaped = actions.reshape(len(actions), *(self.space.shape or ()))
        if not self.is_bounded:
            return shaped
        return self.middle + self.half_width * np.clip(shaped, -1.0, 1.0)

    def env_units(self) -> tuple[Array, Array] | None:
        if type(self).to_env is not BoxBase.to_env:
            return super().env_units()
        return (self.middle, self.half_width) if self.is_bounded else None

    def from_env(self, actions: Array) -> Array:
        if self.is_bounded:
            actions = (actions - self.middle) / np.where(self.half_width > 0, self.half_width, 1.0)
        return actions.reshape(len(actions), self.width).astype(np.float32)

    def mode_error(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        return (self.centre(outputs) - self._scaled(actions)).square().mean(-1)

    def spread_loss(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        return -self.log_prob_entropy(self._held(outputs), log_std, actions)[0]

    def _held(self, outputs: Tensor) -> Tensor:
        """The outputs with a mean that gets no gradient."""
        return outputs.detach()

    def centre(self, outputs: Tensor) -> Tensor:
        """The most likely action, in units where a bounded Box is [-1, 1]."""
        return outputs

    def _scaled(self, actions: Tensor) -> Tensor:
        """Stored actions in these units."""
        return actions


class BoxActions(BoxBase):
    """Independent normals with a state-independent standard deviation."""

    _scale: tuple[Tensor, ...] | None = None  # middle and half width on a device

    def __init__(self, space: spaces.Box):
        super().__init__(space)
        self.n_outputs = self.n_log_std = self.width

    def log_prob_entropy(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Pair:
        assert log_std is not None
        z = (actions - outputs) * (-log_std).exp()
        log_prob = -(0.5 * z.square() + log_std + LOG_SQRT_2PI).sum(-1)
        entropy = (log_std + (0.5 + LOG_SQRT_2PI)).sum()
        return log_prob, entropy

    def sample(self, outputs: Array, log_std: Array | None, rng: Rng) -> Array:
        assert log_std is not None
        return outputs + np.exp(log_std) * self.noise(len(outputs), rng)

    def noise(self, n: int, rng: Rng) -> Array:
        return rng.standard_normal((n, self.width), dtype=np.float32)

    def from_noise(self, outputs: Tensor, log_std: Tensor | None, noise: Tensor) -> Tensor:
        assert log_std is not None
        return outputs + log_std.exp() * noise

    def ready_noise(self, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
        return torch.randn((*shape, self.width), generator=rng, device=rng.device)

    def to_env_tensor(self, actions: Tensor) -> Tensor:
        shaped = actions.view(len(actions), *(self.space.shape or ()))
        if not self.is_bounded:
            return shaped
        if self._scale is None or self._scale[0].device != actions.device:
            places = (self.middle, self.half_width)
            self._scale = tuple(torch.from_numpy(x).to(actions.device) for x in places)
        middle, half_width = self._scale
        return torch.addcmul(middle, half_width, shaped.clamp(-1.0, 1.0))

    def mode(self, outputs: Array) -> Array:
        return outputs

    def moments(self, outputs: Array, log_std: Array | None) -> Moments:
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

    def log_prob_entropy(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Pair:
        log_prob, entropy = outputs.new_zeros(()), outputs.new_zeros(())
        for i, logits in enumerate(outputs.split(self.sizes, dim=1)):
            log_probs = torch.log_softmax(logits, dim=-1)
            log_prob = log_prob + log_probs.gather(1, actions[:, i : i + 1]).squeeze(1)
            entropy = entropy - (log_probs.exp() * log_probs).sum(-1)
        return log_prob, entropy

    def sample(self, outputs: Array, log_std: Array | None, rng: Rng) -> Array:
        noise = rng.standard_exponential(outputs.shape, dtype=np.float32) + np.float32(TINY)
        return self.mode(outputs - np.log(noise))

    def mode(self, outputs: Array) -> Array:
        parts = np.split(outputs, self._splits, axis=1)
        return np.stack([part.argmax(axis=1) for part in parts], axis=1)

    def probabilities(self, outputs: Array) -> Array:
        parts = np.split(outputs, self._splits, axis=1)
        return np.concatenate([softmax(part) for part in parts], axis=1)

    def uniform(self, n: int, rng: Rng, mask: Array | None = None) -> Array:
        scores = rng.random((n, self.n_outputs))
        return self.mode(scores if mask is None else np.where(mask, scores, -1.0))

    def to_env(self, actions: Array) -> Array:
        return (actions + self.start).reshape(len(actions), *(self.space.shape or ()))

    def from_env(self, actions: Array) -> Array:
        return actions.reshape(len(actions), -1).astype(np.int64) - self.start


class MultiBinaryActions(ActionKind):
    """Several bits at once, each with its own Bernoulli distribution."""

    dtype = np.int64

    def __init__(self, space: spaces.MultiBinary):
        self.space = space
        self.n_outputs = math.prod(space.shape)
        self.shape = (self.n_outputs,)

    def log_prob_entropy(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Pair:
        signs = 2.0 * actions.to(outputs.dtype) - 1.0
        log_prob = -nn.functional.softplus(-signs * outputs).sum(-1)
        entropy = nn.functional.softplus(outputs) - outputs * torch.sigmoid(outputs)
        return log_prob, entropy.sum(-1)

    def sample(self, outputs: Array, log_std: Array | None, rng: Rng) -> Array:
        # rng.random() < sigmoid(x), without the overflow of exp(-x)
        uniform = rng.random(outputs.shape)
        return (np.log(uniform) - np.log1p(-uniform) < outputs).astype(np.int64)

    def mode(self, outputs: Array) -> Array:
        return (outputs > 0).astype(np.int64)

    def probabilities(self, outputs: Array) -> Array:
        return np.exp(-np.logaddexp(0.0, -outputs))  # the sigmoid, without overflow

    def uniform(self, n: int, rng: Rng, mask: Array | None = None) -> Array:
        return rng.integers(2, size=(n, self.n_outputs))

    def to_env(self, actions: Array) -> Array:
        return actions.reshape(len(actions), *(self.space.shape or ()))

    def from_env(self, actions: Array) -> Array:
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
        self.leaves = [(leaf_kind or action_kind)(part) for part in parts_of(space).values()]
        self._widths = [math.prod(leaf.shape) for leaf in self.leaves]
        self.shape = (sum(self._widths),)
        self.n_outputs = sum(leaf.n_outputs for leaf in self.leaves)
        self.n_log_std = sum(leaf.n_log_std for leaf in self.leaves)
        self.is_real = any(leaf.is_real for leaf in self.leaves)

    def output_parts(self) -> dict[str, int]:
        """A leaf has the name of its key or place; its own parts follow a dot."""
        found = {}
        for key, leaf in zip(parts_of(self.space), self.leaves, strict=True):
            inner = leaf.output_parts()
            if list(inner) == ["action"]:
                found[str(key)] = leaf.n_outputs
            else:
                found |= {f"{key}.{name}": width for name, width in inner.items()}
        return found

    def log_prob_entropy(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Pair:
        parts = self._by_leaf(outputs, log_std, actions)
        pairs = [leaf.log_prob_entropy(*given) for leaf, *given in parts]
        log_prob, entropy = (sum(each, outputs.new_zeros(())) for each in zip(*pairs, strict=True))
        return log_prob, entropy

    def mode_error(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        parts = self._by_leaf(outputs, log_std, actions)
        return sum((leaf.mode_error(*given) for leaf, *given in parts), outputs.new_zeros(()))

    def spread_loss(self, outputs: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        parts = self._by_leaf(outputs, log_std, actions)
        return sum((leaf.spread_loss(*given) for leaf, *given in parts), outputs.new_zeros(()))

    def _by_leaf(
        self, outputs: Tensor, log_std: Tensor | None, actions: Tensor
    ) -> Iterator[tuple[Any, Tensor, Tensor | None, Tensor]]:
        """Each leaf with its outputs, log standard deviations and stored actions."""
        out = outputs.split([leaf.n_outputs for leaf in self.leaves], dim=1)
        stds: Sequence[Tensor | None] = [None] * len(self.leaves)
        if log_std is not None:
            stds = log_std.split([leaf.n_log_std for leaf in self.leaves])
        stored = actions.split(self._widths, dim=1)
        for leaf, one, std, action in zip(self.leaves, out, stds, stored, strict=True):
            action = action.long() if leaf.dtype is np.int64 else action
            yield leaf, one, std, action if leaf.shape else action.squeeze(1)

    def _outputs(self, outputs: Array) -> list[Array]:
        """Those of each leaf."""
        return _split(outputs, [leaf.n_outputs for leaf in self.leaves])

    def _stored(self, actions: Array) -> Iterator[tuple[ActionKind, Array]]:
        """Each leaf with its columns of actions [N, width]."""
        yield from zip(self.leaves, _split(actions, self._widths), strict=True)

    def first_log_std(self, value: float) -> Tensor:
        return torch.cat([leaf.first_log_std(value) for leaf in self.leaves])

    def sample(self, outputs: Array, log_std: Array | None, rng: Rng) -> Array:
        stds: Sequence[Array | None] = [None] * len(self.leaves)
        if log_std is not None:
            stds = _split(log_std, [leaf.n_log_std for leaf in self.leaves])
        heads = zip(self.leaves, self._outputs(outputs), stds, strict=True)
        return _side_by_side([leaf.sample(out, std, rng) for leaf, out, std in heads])

    def mode(self, outputs: Array) -> Array:
        heads = zip(self.leaves, self._outputs(outputs), strict=True)
        return _side_by_side([leaf.mode(out) for leaf, out in heads])

    def uniform(self, n: int, rng: Rng, mask: Array | None = None) -> Array:
        return _side_by_side([leaf.uniform(n, rng) for leaf in self.leaves])

    def to_env(self, actions: Array) -> Array:
        columns = [
            leaf.to_env(part.reshape(len(part), *leaf.shape).astype(leaf.dtype))
            for leaf, part in self._stored(actions)
        ]
        return _side_by_side(columns, np.float64)

    def from_env(self, actions: Array) -> Array:
        columns = [
            leaf.from_env(part.reshape(len(part), *(leaf.space.shape or ())))
            for leaf, part in self._stored(actions)
        ]
        return _side_by_side(columns)


def _split(array: Array, widths: Sequence[int]) -> list[Array]:
    return np.split(array, np.cumsum(widths)[:-1], axis=-1)


def _side_by_side(parts: Sequence[Array], dtype: Any = np.float32) -> Array:
    return np.concatenate([part.reshape(len(part), -1).astype(dtype) for part in parts], axis=1)


_KINDS: dict[type, Callable[[Any], ActionKind]] = {
    spaces.Discrete: DiscreteActions,
    spaces.Box: BoxActions,
    spaces.MultiDiscrete: MultiDiscreteActions,
    spaces.MultiBinary: MultiBinaryActions,
    spaces.Dict: ProductActions,
    spaces.Tuple: ProductActions,
}


def action_kind(space: Space) -> ActionKind:
    """The object for an action space; raises EnvError for unsupported spaces."""
    action_leaves(space)  # EnvError for other spaces, with the supported ones
    make = next(make for kind, make in _KINDS.items() if isinstance(space, kind))
    return make(space)


def action_histogram(kind: ActionKind, actions: Array) -> dict[str, float]:
    """Fractions by bin for actions [B, ...] in the policy's units; {} for other spaces, and for
    more than 32 actions.

    The numbers of a Box are pooled over its components; those beyond -1 and 1 are in the outer
    bins, as the environment gets them."""
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
