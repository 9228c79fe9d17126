"""Observations as networks take them: the part that every network of ours begins with."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymnasium_solver.fast.cuda_graph import Graphed
from gymnasium_solver.nets.cnn import Cnn
from gymnasium_solver.nets.normalizer import PIXEL_MAX, NormalizeMode, ObsNormalizer
from gymnasium_solver.spaces.spaces import observation_width

# Images that go through convolutions at once where no gradient is wanted: what these compute in
# between is a hundred times as large as the images.
IMAGES_AT_ONCE = {"cpu": 256, "cuda": 4096}


class ObsEncoder(nn.Module):
    """Flat floats, normalised if asked for; one-hot for discrete observations; images to [0, 1].

    The base of the networks, so that statistics are saved, loaded and frozen with the weights.
    `width` is the length of the encoded vector. With a `cnn` images keep their axes, for
    convolutions.
    """

    def __init__(
        self,
        space: spaces.Space,
        normalize_obs: NormalizeMode,
        clip_obs: float,
        cnn: Cnn | None = None,
    ):
        super().__init__()
        self.layout = None if cnn is None else cnn.layout
        self._graphed: Graphed | None = None
        self.n_discrete = int(space.n) if isinstance(space, spaces.Discrete) else 0
        self.obs_start = int(space.start) if isinstance(space, spaces.Discrete) else 0
        self.is_image = space.dtype == np.uint8
        self.width = observation_width(space)
        self.normalizer = ObsNormalizer(
            space, self.width, False if self.n_discrete else normalize_obs, clip_obs
        )

    def encode(self, obs: Tensor) -> Tensor:
        """Observations as the environment gives them [B, ...] -> network input [B, width].

        Done once for a whole rollout. Images stay uint8 here and are cast a minibatch at a time;
        for convolutions they stay [B, ...], too.
        """
        if self.layout is not None:
            return obs
        if self.is_image:
            return obs.flatten(1)
        if self.n_discrete:
            return nn.functional.one_hot(obs.long() - self.obs_start, self.n_discrete).float()
        return self.normalizer(obs.flatten(1).float())

    def cast(self, x: Tensor) -> Tensor:
        """The first operation of a forward pass: images, kept as uint8 until here, to floats;
        for convolutions [B, channels, height, width]."""
        if self.layout is None:
            return self.normalizer(x.float() / PIXEL_MAX) if self.is_image else x
        if self.normalizer.mode:  # by the components of an observation, as the env orders them
            scaled = x.flatten(1).float() / (PIXEL_MAX if self.is_image else 1.0)
            return self.layout.planes(self.normalizer(scaled).view_as(x))
        planes = self.layout.planes(x)
        # A GPU convolves with the channels last in memory, and would reorder them for each layer.
        order = torch.channels_last if x.is_cuda else torch.preserve_format
        planes = planes.to(torch.float32, memory_format=order)
        return planes.mul_(1.0 / PIXEL_MAX) if self.is_image else planes

    def encode_numpy(self, obs: np.ndarray) -> np.ndarray:
        """`encode` and `cast` in one; without torch, but for images that keep their axes."""
        if self.layout is not None:
            return self.cast(torch.from_numpy(obs)).numpy()
        if self.n_discrete:
            return np.eye(self.n_discrete, dtype=np.float32)[obs - self.obs_start]
        x = obs.reshape(len(obs), -1).astype(np.float32, copy=False)
        return self.normalizer.numpy(x / np.float32(PIXEL_MAX) if self.is_image else x)

    def encoded(self, obs: np.ndarray, device: torch.device) -> Tensor:
        """`encode` for an array, on the device; on the CPU by way of NumPy, which costs less."""
        if device.type != "cpu" or self.is_image or self.layout is not None:
            return self.encode(upload(obs, device))
        return torch.from_numpy(self.encode_numpy(obs))

    @torch.no_grad()
    def infer(
        self, network: Callable[[Tensor], Tensor], obs: np.ndarray | Tensor, device: torch.device
    ) -> np.ndarray:
        """The network's outputs for raw observations, to act by; on a GPU as a CUDA graph, so
        always the same network."""
        if device.type != "cuda":
            return network(self.encode(on_device(obs, device))).cpu().numpy()
        if self._graphed is None:
            self._graphed = Graphed(lambda inputs: [network(self.encode(inputs[0]))])
        return self._graphed([on_device(obs, device)])[0].cpu().numpy()

    @torch.no_grad()
    def forward_parts(self, x: Tensor) -> Any:
        """`forward` of encoded observations without gradients, images some at a time."""
        at_once = IMAGES_AT_ONCE.get(x.device.type, IMAGES_AT_ONCE["cpu"])
        if self.layout is None or len(x) <= at_once:
            return self(x)
        parts = [self(part) for part in x.split(at_once)]
        if isinstance(parts[0], Tensor):
            return torch.cat(parts)
        return tuple(torch.cat(outputs) for outputs in zip(*parts, strict=True))

    @property
    def learns_moments(self) -> bool:
        """Does `observe` do anything?"""
        return self.normalizer.mode == "rolling"

    def observe(self, obs: np.ndarray) -> None:
        """Take raw observations [n, ...] into the normaliser's running moments."""
        if not self.learns_moments:
            return
        flat = obs.reshape(len(obs), -1)
        if not self.is_image:
            self.normalizer.update(flat)
            return
        for start in range(0, len(flat), IMAGES_AT_ONCE["cpu"]):
            self.normalizer.update(flat[start : start + IMAGES_AT_ONCE["cpu"]] / PIXEL_MAX)


def on_device(obs: np.ndarray | Tensor, device: torch.device) -> Tensor:
    """Observations where the network is; those that are there already are not copied."""
    return obs if isinstance(obs, Tensor) else upload(obs, device)


def upload(array: np.ndarray, device: torch.device) -> Tensor:
    """An array on the device. To a GPU by way of pinned memory: the host does not wait for it."""
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
