"""Selects the layers for a config and an observation space.

    network = network_for(config, observation_space)
    network.hidden_dims, network.activation     # of the dense layers
    network.cnns                                # {part: Cnn} of the image parts

`policy: auto` (and a plugin's torso) uses convolutions for images (`is_image`), alone or as parts
of a Dict, and an MLP for the rest. A network with convolutions has its own widths (`cnn_channels`,
`cnn_hidden_dims`) and ReLU; `hidden_dims` and `activation` apply to an MLP.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from gymnasium_solver.config.learner_blocks import RecurrentFields
from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.blocks import BlockKind, Blocks, NormKind
from gymnasium_solver.nets.cnn import PRESETS, Cnn, default_preset
from gymnasium_solver.nets.layers import dense_layers, needs_torch, split
from gymnasium_solver.nets.normalizer import NormalizeMode
from gymnasium_solver.nets.recurrent import Recurrence
from gymnasium_solver.nets.registered import HeadFactory, TorsoFactory
from gymnasium_solver.registry import heads, networks
from gymnasium_solver.spaces.observations import Space, image_layout, is_image, part_spaces
from gymnasium_solver.suggest import did_you_mean

LARGEST_FLAT_IMAGE = 4096  # largest number of inputs (pixels times channels) of an MLP
CNN_ACTIVATION = "relu"
TASK = "task"  # what heads_by calls the task of a run with several (task_one_hot)
BUILT_IN = ("auto", "mlp", "cnn")  # values of `policy`; any other names a plugin's torso


class Network(NamedTuple):
    """The layers between an encoded observation and the heads."""

    hidden_dims: tuple[int, ...]
    activation: str
    cnns: dict[str, Cnn] = {}  # by image part; empty: an MLP
    block: BlockKind = "mlp"
    norm: NormKind | None = None  # what the hidden layers are made of: see Blocks
    torso: Callable[[int, torch.Generator], tuple[nn.Module, int]] | None = None
    """Builds a plugin's layers, which replace the hidden layers."""
    graph: Mapping[str, Any] | None = None
    """Nodes on the parts of an observation (nets/layers.py), in place of all other layers."""
    head: Callable[[int, int, torch.Generator], nn.Module] | None = None
    """Builds a plugin's output layer; None: linear."""
    needs_torch: bool = False  # a layer changes state when it is used, so updates are not recorded
    embedding_dim: int | None = None
    """Width of the embedding of every Discrete part; None: one-hot, but of many values."""
    input_dims: dict[str, tuple[int, ...]] = {}
    """Widths of the layers of its own that a part of the observation has."""
    output_dims: dict[str, tuple[int, ...]] = {}
    """The same of outputs, by part of the action, and "value"."""
    heads_by: str | None = None
    """Part of the observation that chooses among output layers; "": its last numbers do."""
    n_tasks: int = 0  # number of output layers to choose from
    critic_keys: tuple[str, ...] = ()  # parts of the observation that only critics see
    normalize: NormalizeMode = False
    clip: float = 10.0  # how observations are normalised, and where they are then cut off
    recurrence: Recurrence | None = None  # the recurrent core; None: the network has no memory

    def of_actor(self) -> "Network":
        """Without the layers of parts that only critics see."""
        hidden = self.critic_keys
        return self._replace(
            cnns={name: cnn for name, cnn in self.cnns.items() if name not in hidden},
            input_dims={name: d for name, d in self.input_dims.items() if name not in hidden},
        )

    def blocks(self, generator: torch.Generator, gain: float | None = None, **more: Any) -> Blocks:
        """Makes the dense layers of this network."""
        return Blocks(
            self.activation, generator, gain, self.block, self.norm, head=self.head, **more
        )


def network_for(config: LearnerConfig, space: Space) -> Network:
    """Resolve the layers; raise ConfigError if the config does not fit the space."""
    images = image_parts(config, space)
    _check_flat_images(config, space, images)
    layers = _with_heads(config, space, _layers(config, space, images))
    recurrence = None
    if isinstance(config, RecurrentFields) and config.recurrent is not None:
        recurrence = Recurrence(config.recurrent, config.recurrent_dim)
    layers = layers._replace(
        critic_keys=_critic_keys(config, space),
        normalize=config.obs_normalization,
        clip=config.clip_obs,
        recurrence=recurrence,
    )
    head = None
    if config.head != "linear":
        factory: HeadFactory = heads.get(config.head)
        head = lambda n_in, n_out, g: factory(n_in, n_out, config, g)  # noqa: E731
    if config.policy in BUILT_IN and config.layers is None:
        return layers._replace(head=head, block=config.block, norm=config.norm)
    own = type(config).model_fields["norm"].default  # of the algorithm, for hidden_dims
    if config.block != "mlp" or config.norm not in (None, own):
        raise ConfigError("block and norm describe hidden_dims; remove them, or layers and policy")
    if config.layers is not None:
        return _listed(config, layers)._replace(head=head)
    made: TorsoFactory = networks.get(config.policy)
    torso = lambda n_in, g: made(n_in, config, g)  # noqa: E731
    return layers._replace(hidden_dims=(), torso=torso, head=head)


def _with_heads(config: LearnerConfig, space: Space, network: Network) -> Network:
    """The network with embeddings and the layers of parts; the part `heads_by` has none. Names of
    outputs are checked where the actions are known (nets/actor_critic.py)."""
    parts = part_spaces(space)
    by, n_tasks = _heads_by(config, parts)
    if by is not None and (config.layers is not None or config.policy not in BUILT_IN):
        raise ConfigError("heads_by needs hidden_dims; remove layers, or the plugin's policy")
    input_dims = named_dims("input_dims", config.input_dims, list(parts))
    if by is not None:
        input_dims.pop(by, None)
    return network._replace(
        embedding_dim=None if config.embedding_dim == "auto" else config.embedding_dim,
        input_dims=input_dims,
        output_dims=dict(getattr(config, "output_dims", {})),
        heads_by=by,
        n_tasks=n_tasks,
    )


def _critic_keys(config: LearnerConfig, space: Space) -> tuple[str, ...]:
    """The parts that only critics see; ConfigError if there are none such, or no others."""
    names = tuple(getattr(config, "critic_keys", ()))
    if not names:
        return ()
    if not isinstance(space, spaces.Dict):
        raise ConfigError(
            f"critic_keys: {config.env_id} has no Dict observations, but {space}; remove it"
        )
    known = list(space.spaces)
    _check_parts("critic_keys", names, known)
    if set(names) == set(known):
        raise ConfigError(f"critic_keys: {', '.join(names)} are all parts; the actor needs one")
    for other in ("share_encoder", "heads_by"):
        if getattr(config, other, None):
            raise ConfigError(f"critic_keys does not work with {other}; remove one of them")
    if isinstance(config.layers, Mapping):
        raise ConfigError("critic_keys: a graph of layers names its parts; use hidden_dims")
    return names


def _heads_by(config: LearnerConfig, parts: Mapping[str, Space]) -> tuple[str | None, int]:
    """The part that chooses among output layers, and how many there are."""
    by = getattr(config, "heads_by", None)
    if by is None:
        return None, 0
    part = parts.get(by)
    if by == TASK and config.task_one_hot:  # a part of its own, or the end of the vector
        return (by if part is not None else ""), len(config.tasks)
    if isinstance(part, spaces.Discrete):
        return by, int(part.n)
    fits = [name for name, one in parts.items() if name and isinstance(one, spaces.Discrete)]
    raise ConfigError(
        f"heads_by: {by!r} is not a Discrete part of the observations of {config.env_id}; "
        + (f"use {' or '.join(fits)}" if fits else "it has none")
        + (", or set task_one_hot" if by == TASK else "")
    )


def named_dims(
    field: str, given: Mapping[str, Sequence[int]], known: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """Widths by name; "*" is for every name. ConfigError for a name that there is not."""
    own = {name: tuple(dims) for name, dims in given.items() if name != "*"}
    _check_parts(field, own, known)
    return ({name: tuple(given["*"]) for name in known} if "*" in given else {}) | own


def _check_parts(field: str, names: Iterable[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"There are {', '.join(map(repr, known))}."
            raise ConfigError(f"{field}: there is no part {name!r}. {hint}")


def _listed(config: LearnerConfig, network: Network) -> Network:
    """The network with the layers that the config lists (`layers`)."""
    if config.policy not in BUILT_IN:
        raise ConfigError(f"layers: policy {config.policy} comes from a plugin; give one of them")
    assert config.layers is not None
    if isinstance(config.layers, Mapping):
        if network.input_dims:
            raise ConfigError("layers: a graph has the layers of every part; remove input_dims")
        stateful = any(needs_torch(node["layers"]) for node in config.layers.values())
        return network._replace(hidden_dims=(), graph=config.layers, needs_torch=stateful)
    on_images, dense = split(config.layers)
    if on_images and not network.cnns:
        raise ConfigError(
            f"layers: {on_images[0]['kind']} works on images, but {config.env_id} shows none"
        )
    cnns = {
        name: cnn._replace(layers=tuple(on_images)) if on_images else cnn
        for name, cnn in network.cnns.items()
    }
    torso = partial(dense_layers, dense)
    return network._replace(
        hidden_dims=(), cnns=cnns, torso=torso, needs_torch=needs_torch(config.layers)
    )


def _layers(config: LearnerConfig, space: Space, images: list[str]) -> Network:
    """The built-in layers: an MLP, or convolutions followed by dense layers."""
    if not images:
        for name in ("cnn_channels", "cnn_hidden_dims"):
            if getattr(config, name) is not None:
                raise ConfigError(
                    f"{name}: {config.env_id} uses an mlp, to which this field does not apply; "
                    "remove it, or set policy: cnn."
                )
        return Network(config.hidden_dims, config.activation)
    _check_cnn(config)
    cnns = {}
    for name in images:
        layout = image_layout(part_spaces(space)[name])
        assert layout is not None
        cnns[name] = Cnn(layout, config.model_id or default_preset(layout), config.cnn_channels)
    first = next(iter(cnns.values()))
    dims = config.cnn_hidden_dims
    dims = PRESETS[first.preset_id].hidden_dims if dims is None else dims
    return Network(dims, CNN_ACTIVATION, cnns)


def image_parts(config: LearnerConfig, space: Space) -> list[str]:
    """The parts of an observation that use convolutions; [""] for the whole observation."""
    if config.policy == "mlp":
        return []
    parts = part_spaces(space)
    if config.policy != "cnn":
        return [name for name, part in parts.items() if is_image(part)]
    parts = {name: part for name, part in parts.items() if image_layout(part) is not None}
    if not parts:
        raise ConfigError(
            f"policy: cnn needs images, a Box with 3 axes (or 4, a stack of frames), but "
            f"{config.env_id} has {space}; use policy: mlp."
        )
    if isinstance(space, spaces.Dict):
        return [name for name, part in parts.items() if part.dtype == np.uint8] or list(parts)
    return list(parts)


def is_cnn(config: LearnerConfig, space: Space) -> bool:
    """Whether this config uses convolutions for these observations."""
    return bool(image_parts(config, space))


def _check_flat_images(config: LearnerConfig, space: Space, images: list[str]) -> None:
    """Reject an MLP on large images, which is usually a mistake."""
    for name, part in part_spaces(space).items():
        width = math.prod(part.shape or ())
        may_be_image = part.dtype == np.uint8 and image_layout(part) is not None
        if may_be_image and name not in images and width > LARGEST_FLAT_IMAGE:
            raise ConfigError(
                f"an mlp would flatten the observations of {config.env_id}, {part.shape}, to "
                f"{width:,} inputs; use policy: cnn, or smaller images (up to "
                f"{LARGEST_FLAT_IMAGE:,} inputs)."
            )


def _check_cnn(config: LearnerConfig) -> None:
    fields = type(config).model_fields
    if config.hidden_dims != fields["hidden_dims"].default:
        raise ConfigError(
            f"hidden_dims: {list(config.hidden_dims)} applies to an mlp, but {config.env_id} uses "
            "a cnn: set cnn_hidden_dims, the layers after the convolutions."
        )
    if config.activation not in (fields["activation"].default, CNN_ACTIVATION):
        raise ConfigError(
            f"activation: {config.activation} applies to an mlp, but {config.env_id} uses a cnn "
            f"with {CNN_ACTIVATION}; remove it."
        )
