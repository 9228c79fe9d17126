"""Converts encoded observations to one feature vector: convolutions for images, embeddings for
indices, and for parts that have them (`input_dims`) layers of their own; or a graph of layers.

    features = Features(encoder, network, gain, generator)
    features(encoder(obs))                      # [B, features.width]

A plugin's torso (`register_network`) comes after the features. Every network has its own features,
so that actor and critic share only what they should. If the encoded observation is already a
vector, this is the identity and has no weights.
"""

import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymnasium_solver.nets.cnn import convolutions
from gymnasium_solver.nets.encoder import Encoded, ObsEncoder
from gymnasium_solver.nets.layers import Graph
from gymnasium_solver.nets.network import Network
from gymnasium_solver.spaces.observations import Space

EMBEDDING_WIDTH = 64  # where embedding_dim is auto
WHOLE = "obs"  # what a graph calls an observation that has no parts


class ObsNetwork(nn.Module):
    """Base of the networks that take raw observations."""

    def __init__(self, space: Space, network: Network):
        super().__init__()

        def made(space: Space, network: Network) -> ObsEncoder:
            return ObsEncoder(
                space,
                images=network.cnns,
                embeds=network.embedding_dim is not None,
                one_hot=network.heads_by,
                normalize=network.normalize,
                clip=network.clip,
            )

        self.encoder = made(space, network)
        self.own_encoder: ObsEncoder | None = None
        """Of an actor that sees fewer parts than the critics; None: it sees the same."""
        if network.critic_keys:
            assert isinstance(space, spaces.Dict), "network_for rejects others"
            seen = {k: part for k, part in space.items() if k not in network.critic_keys}
            self.own_encoder = made(spaces.Dict(seen), network.of_actor())

    @property
    def actor_encoder(self) -> ObsEncoder:
        """What encodes the parts that the actor sees."""
        return self.encoder if self.own_encoder is None else self.own_encoder

    @property
    def has_images(self) -> bool:
        return bool(self.encoder.layouts)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device


class Features(nn.Module):
    def __init__(
        self, encoder: ObsEncoder, network: Network, gain: float | None, generator: torch.Generator
    ):
        """`gain` of the initial weights: see blocks.linear."""
        super().__init__()
        self._has_vector = encoder.width > 0
        self._is_identity = encoder.is_vector and not network.input_dims and not network.graph
        self._columns = list(encoder.columns.items())
        self._images, self._indices = [*encoder.layouts], [*encoder.index_sizes]
        widths: dict[str, int] = {name: b - a for name, (a, b) in encoder.columns.items()}
        self.convolutions = nn.ModuleList()
        for name in encoder.layouts:
            layers: nn.Module = nn.Identity()
            if network.graph is None:
                layers, widths[name] = convolutions(network.cnns[name], gain, generator)
            self.convolutions.append(layers)
        self.embeddings = nn.ModuleList()
        for name, sizes in encoder.index_sizes.items():
            width = network.embedding_dim or EMBEDDING_WIDTH
            embedding = nn.Embedding(sum(sizes), width)
            nn.init.normal_(embedding.weight, std=width**-0.5, generator=generator)
            self.embeddings.append(embedding)
            widths[name] = width * len(sizes)
        self.torso: nn.Module | None = None
        self.graph: Graph | None = None
        self.own_layers = nn.ModuleList()
        self.positions: dict[str, tuple[int, int]] = {}
        """Where the numbers of a part stand in the features, if it has no layers of its own."""
        if network.graph is not None:
            images = {name or WHOLE: layout[:3] for name, layout in encoder.layouts.items()}
            named = {name or WHOLE: width for name, width in widths.items()}
            self.graph = Graph(network.graph, named, images, generator)
            self.width = self.graph.width
            self._apart = [*encoder.columns, *self._images, *self._indices]
            return
        # Parts with layers of their own come after the others.
        self._apart = [name for name, dims in network.input_dims.items() if dims]
        # Batch norm is of the layers that get both observations of a transition in one pass.
        plain = network._replace(
            block="mlp" if network.block == "flash" else network.block,
            norm=None if network.norm == "batch" else network.norm,
        )
        for name in self._apart:
            dims = network.input_dims[name]
            own = plain.blocks(generator, gain).hidden(widths[name], dims)
            self.own_layers.append(nn.Sequential(*own))
            widths[name] = dims[-1]
        self.width = sum(widths.values())
        start = 0
        for name in encoder.columns:
            if name not in self._apart:
                self.positions[name] = (start, start + widths[name])
                start += widths[name]
        if network.torso is not None:
            self.torso, self.width = network.torso(self.width, generator)

    def forward(self, x: Encoded) -> Tensor:
        if self._is_identity:
            assert isinstance(x, Tensor)
            return x if self.torso is None else self.torso(x)
        parts = self._parts(x if isinstance(x, dict) else {"": x})
        if self.graph is not None:
            return self.graph({name or WHOLE: part for name, part in parts.items()})
        columns = [part for name, part in parts.items() if name not in self._apart]
        for name, layers in zip(self._apart, self.own_layers, strict=True):
            columns.append(layers(parts[name]))
        joined = columns[0] if len(columns) == 1 else torch.cat(columns, dim=1)
        return joined if self.torso is None else self.torso(joined)

    def _parts(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        """The features of each part; "" for all columns if none of them has layers of its own."""
        parts: dict[str, Tensor] = {}
        if self._has_vector and any(name in self._apart for name, _ in self._columns):
            parts = {name: x[""][:, start:stop] for name, (start, stop) in self._columns}
        elif self._has_vector:
            parts[""] = x[""]
        for name, layers in zip(self._images, self.convolutions, strict=True):
            parts[name] = layers(x[f"image {name}"])
        for name, embedding in zip(self._indices, self.embeddings, strict=True):
            parts[name] = embedding(x[f"index {name}"]).flatten(1)
        return parts
