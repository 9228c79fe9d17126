"""Observations as networks take them: the part that every network of ours begins with."""

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymnasium_solver.nets.normalizer import PIXEL_MAX, NormalizeMode, ObsNormalizer
from gymnasium_solver.nets.spaces import observation_width


class ObsEncoder(nn.Module):
    """Flat floats, normalised if asked for; one-hot for discrete observations; images to [0, 1].

    The base of the networks, so that statistics are saved, loaded and frozen with the weights.
    `width` is the length of the encoded vector.
    """

    def __init__(self, space: spaces.Space, normalize_obs: NormalizeMode, clip_obs: float):
        super().__init__()
        self.n_discrete = int(space.n) if isinstance(space, spaces.Discrete) else 0
        self.obs_start = int(space.start) if isinstance(space, spaces.Discrete) else 0
        self.is_image = space.dtype == np.uint8
        self.width = observation_width(space)
        self.normalizer = ObsNormalizer(
            space, self.width, False if self.n_discrete else normalize_obs, clip_obs
        )

    def encode(self, obs: Tensor) -> Tensor:
        """Observations as the environment gives them [B, ...] -> network input [B, width].

        Done once for a whole rollout. Images stay uint8 here and are cast a minibatch at a time.
        """
        if self.is_image:
            return obs.flatten(1)
        if self.n_discrete:
            return nn.functional.one_hot(obs.long() - self.obs_start, self.n_discrete).float()
        return self.normalizer(obs.flatten(1).float())

    def cast(self, x: Tensor) -> Tensor:
        """The first operation of a forward pass: images, kept as uint8 until here, to floats."""
        return self.normalizer(x.float() / PIXEL_MAX) if self.is_image else x

    def encode_numpy(self, obs: np.ndarray) -> np.ndarray:
        """`encode` and `cast` in one, without torch."""
        if self.n_discrete:
            return np.eye(self.n_discrete, dtype=np.float32)[obs - self.obs_start]
        x = obs.reshape(len(obs), -1).astype(np.float32, copy=False)
        return self.normalizer.numpy(x / np.float32(PIXEL_MAX) if self.is_image else x)

    def encoded(self, obs: np.ndarray, device: torch.device) -> Tensor:
        """`encode` for an array, on the device; on the CPU by way of NumPy, which costs less."""
        if device.type != "cpu" or self.is_image:
            return self.encode(torch.from_numpy(obs).to(device))
        return torch.from_numpy(self.encode_numpy(obs))

    def observe(self, obs: np.ndarray) -> None:
        """Take raw observations [n, ...] into the normaliser's running moments."""
        if self.normalizer.mode == "rolling":
            x = obs.reshape(len(obs), -1)
            self.normalizer.update(x / PIXEL_MAX if self.is_image else x)
