"""Networks and heads that plugins register, by name. Importing this module is light.

@gs.register_network("my_torso")       policy: my_torso
@gs.register_head("my_head")           head: my_head
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.registry import heads, networks

if TYPE_CHECKING:
    import torch
    from torch import nn


class TorsoFactory(Protocol):
    """Builds the layers between the encoded observation and the heads."""

    def __call__(
        self, n_in: int, config: LearnerConfig, generator: "torch.Generator"
    ) -> "tuple[nn.Module, int]":
        """Return a module from [B, n_in] to [B, width], and `width`. Initialise its weights from
        `generator`, so that a run depends on its seed alone."""
        ...


class HeadFactory(Protocol):
    """Builds the layers from the torso's features to a network's outputs."""

    def __call__(
        self, n_in: int, n_out: int, config: LearnerConfig, generator: "torch.Generator"
    ) -> "nn.Module":
        """Return a module from [B, n_in] to [B, n_out]."""
        ...


def register_network(name: str) -> Callable[[TorsoFactory], TorsoFactory]:
    """Decorator: a torso (TorsoFactory) that configs select with `policy: name`."""
    return networks.register(name)


def register_head(name: str) -> Callable[[HeadFactory], HeadFactory]:
    """Decorator: a head (HeadFactory) that configs select with `head: name`."""
    return heads.register(name)
