"""Converts encoded observations to one feature vector: convolutions for images, embeddings for
indices.

    features = Features(encoder, network, gain, generator)
    features(encoder(obs))                      # [B, features.width]

A plugin's torso (`register_network`) comes after the features. Every network has its own features,
so that actor and critic share only what they should. If the encoded observation is already a
vector, this is the identity and has no weights.
"""

import torch
from torch import Tensor, nn

from gymnasium_solver.nets.cnn import convolutions
from gymnasium_solver.nets.encoder import Encoded, ObsEncoder
from gymnasium_solver.nets.network import Network

EMBEDDING_WIDTH = 64


class Features(nn.Module):
    def __init__(
        self,
        encoder: ObsEncoder,
        network: Network,
        gain: float | None,
        generator: torch.Generator,
    ):
        """`gain` of the initial weights: see mlp.linear."""
        super().__init__()
        self.width = encoder.width
        self._has_vector = encoder.width > 0
        self._is_identity = encoder.is_vector
        self._images = [f"image {name}" for name in encoder.layouts]
        self._indices = [f"index {name}" for name in encoder.index_sizes]
        self.convolutions = nn.ModuleList()
        for name in encoder.layouts:
            layers, n_features = convolutions(network.cnns[name], gain, generator)
            self.convolutions.append(layers)
            self.width += n_features
        self.embeddings = nn.ModuleList()
        for size in encoder.index_sizes.values():
            embedding = nn.Embedding(size, EMBEDDING_WIDTH)
            nn.init.normal_(embedding.weight, std=EMBEDDING_WIDTH**-0.5, generator=generator)
            self.embeddings.append(embedding)
            self.width += EMBEDDING_WIDTH
        self.torso: nn.Module | None = None
        if network.torso is not None:
            self.torso, self.width = network.torso(self.width, generator)

    def forward(self, x: Encoded) -> Tensor:
        joined = self._joined(x)
        return joined if self.torso is None else self.torso(joined)

    def _joined(self, x: Encoded) -> Tensor:
        if self._is_identity:
            assert isinstance(x, Tensor)
            return x
        assert isinstance(x, dict)
        columns = [x[""]] if self._has_vector else []
        for name, layers in zip(self._images, self.convolutions, strict=True):
            columns.append(layers(x[name]))
        for name, embedding in zip(self._indices, self.embeddings, strict=True):
            columns.append(embedding(x[name]))
        return columns[0] if len(columns) == 1 else torch.cat(columns, dim=1)
