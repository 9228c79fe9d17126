"""Which network a config means for an observation space: an MLP, or convolutions before it.

    hidden_dims, activation, cnn = network_for(config, observation_space)

`policy: auto` takes a CNN for uint8 images and an MLP for the rest. A CNN has its own widths
(`cnn_channels`, `cnn_hidden_dims`) and ReLU; `hidden_dims` and `activation` are those of an MLP.
"""

from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.cnn import PRESETS, Cnn, default_preset, image_layout

LARGEST_FLAT_IMAGE = 4096  # pixels times channels that an MLP takes
CNN_ACTIVATION = "relu"


class Network(NamedTuple):
    """The hidden layers between an encoded observation and the heads."""

    hidden_dims: tuple[int, ...]
    activation: str
    cnn: Cnn | None = None  # None: an MLP


def network_for(config: LearnerConfig, space: spaces.Space) -> Network:
    """ConfigError where the config asks for what does not fit the space."""
    if not is_cnn(config, space):
        _check_mlp(config, space)
        return Network(config.hidden_dims, config.activation)
    layout = image_layout(space)
    if layout is None:
        raise ConfigError(
            f"policy: cnn needs images, a Box with 3 axes (or 4, a stack of frames), but "
            f"{config.env_id} has {space}; use policy: mlp."
        )
    _check_cnn(config)
    preset_id, dims = config.model_id or default_preset(layout), config.cnn_hidden_dims
    dims = PRESETS[preset_id].hidden_dims if dims is None else dims
    return Network(dims, CNN_ACTIVATION, Cnn(layout, preset_id, config.cnn_channels))


def is_cnn(config: LearnerConfig, space: spaces.Space) -> bool:
    """Does this config take a CNN for these observations?"""
    if config.policy != "auto":
        return config.policy == "cnn"
    return space.dtype == np.uint8 and image_layout(space) is not None


def _check_mlp(config: LearnerConfig, space: spaces.Space) -> None:
    for name in ("cnn_channels", "cnn_hidden_dims"):
        if getattr(config, name) is not None:
            raise ConfigError(
                f"{name}: {config.env_id} gets an mlp, which has no use for it; leave it out, or "
                "set policy: cnn."
            )
    width = int(np.prod(space.shape or (), dtype=int))
    if space.dtype == np.uint8 and image_layout(space) and width > LARGEST_FLAT_IMAGE:
        raise ConfigError(
            f"policy: mlp would flatten the images of {config.env_id}, {space.shape}, to {width:,} "
            f"inputs; use policy: cnn, or smaller images (up to {LARGEST_FLAT_IMAGE:,} inputs)."
        )


def _check_cnn(config: LearnerConfig) -> None:
    fields = type(config).model_fields
    if config.hidden_dims != fields["hidden_dims"].default:
        raise ConfigError(
            f"hidden_dims: {list(config.hidden_dims)} is for an mlp, but {config.env_id} gets a "
            "cnn: set cnn_hidden_dims, the layers after the convolutions."
        )
    if config.activation not in (fields["activation"].default, CNN_ACTIVATION):
        raise ConfigError(
            f"activation: {config.activation} is for an mlp, but {config.env_id} gets a cnn, "
            f"which has {CNN_ACTIVATION}; leave it out."
        )
