"""The networks of DreamerV3: a recurrent state-space model (RSSM), and what is predicted from it.

    tokens = net.tokens(net.seen(obs))                      # [N, width] of raw observations
    states, post = net.rssm.observe(tokens, actions, is_first, state, noise)    # time first
    net.rssm.prior(states)                                  # of the latents, from memory alone
    state = net.rssm.imagine(state, actions, noise)         # one step without an observation
    net.rewards(state), net.continues(state), net.actor(state), net.values(state)

A state [N, width] is the deterministic memory of a block GRU and, side by side, the latents: 32
categorical variables as one-hot vectors. Hidden layers are linear, RMS norm, SiLU. Rewards and
values are classified into bins, with first outputs of 0.

The carry of the acting policy (`core`) is a state and the last action.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.encoder import TensorObs
from gymnasium_solver.nets.features import ObsNetwork
from gymnasium_solver.nets.heads import SymexpTwoHotHead, symexp, symlog
from gymnasium_solver.nets.image_codec import (
    BlockLinear,
    ImageDecoder,
    ImageEncoder,
    RMSNorm,
    dense,
    initialise,
    linear,
)
from gymnasium_solver.nets.network import Network
from gymnasium_solver.nets.rssm_scan import (
    UPDATE_BIAS,
    Latents,
    Rows,
    Weights,
    drawn,
    memory_step,
    scan,
    step,
)
from gymnasium_solver.spaces.observations import Space

CODEC_LAYERS, HEAD_LAYERS, ACTOR_LAYERS = 3, 1, 3
ACTOR_SCALE = 0.01  # of the first outputs: nearly uniform actions


class Sizes(NamedTuple):
    deter_dim: int  # width of the GRU
    core_dim: int  # width of the layers around it
    n_latents: int
    n_classes: int
    units: int  # width of the hidden layers of encoder, decoder and heads
    depth: int  # channels of convolutions are multiples of it
    n_blocks: int

    @property
    def latent_dim(self) -> int:
        return self.n_latents * self.n_classes


def mlp(
    n_in: int, units: int, n_layers: int, n_out: int, generator: torch.Generator, scale: float = 1.0
) -> nn.Sequential:
    """Hidden layers and an output layer; without one if `n_out` is 0."""
    layers: list[nn.Module] = []
    for i in range(n_layers):
        layers += dense(units if i else n_in, units, generator)
    if n_out:
        layers.append(linear(units, n_out, generator, scale))
    return nn.Sequential(*layers)


class Rssm(nn.Module):
    def __init__(
        self, size: Sizes, n_tokens: int, n_actions: int, unimix: float, generator: torch.Generator
    ):
        """`unimix`: share of a uniform distribution in all latents."""
        super().__init__()
        self.size, self.latents = size, Latents(size.n_latents, size.n_classes, unimix)
        self.rows = Rows(self.latents)
        n_deter, hidden, blocks = size.deter_dim, size.core_dim, size.n_blocks
        self.from_deter = nn.Sequential(*dense(n_deter, hidden, generator))
        self.from_latent = nn.Sequential(*dense(size.latent_dim, hidden, generator))
        self.from_action = nn.Sequential(*dense(n_actions, hidden, generator))
        self.mix = BlockLinear(n_deter + blocks * 3 * hidden, n_deter, blocks, generator)
        self.mix_norm = RMSNorm(n_deter)
        self.gates = BlockLinear(n_deter, 3 * n_deter, blocks, generator)
        self.prior_layers = mlp(n_deter, hidden, 2, size.latent_dim, generator)
        self.seen = linear(n_deter + n_tokens, hidden, generator)
        self.posterior_layers = nn.Sequential(
            RMSNorm(hidden), nn.SiLU(), linear(hidden, size.latent_dim, generator)
        )

    def weights(self) -> Weights:
        """Of the layers of a step (rssm_scan.py)."""
        layers: Any = (self.from_deter, self.from_latent, self.posterior_layers)
        (deter, deter_norm, _), (latent, latent_norm, _), (norm, _, logits) = layers
        n_deter, hidden = self.size.deter_dim, self.size.core_dim
        own, shared = self.mix.weight.split([n_deter // self.size.n_blocks, 3 * hidden], dim=1)
        both, given = shared.transpose(0, 1).flatten(1).split([2 * hidden, hidden])
        reset, candidate, update = self.gates.bias.chunk(3, dim=1)
        return Weights(
            deter.weight, deter.bias, latent.weight, latent.bias,
            torch.stack([deter_norm.weight, latent_norm.weight]),
            own, both, given, self.mix.bias.flatten(), self.mix_norm.weight,
            self.gates.weight, torch.cat([reset, candidate, update + UPDATE_BIAS], dim=1),
            self.seen.weight[:, :n_deter], norm.weight, logits.weight, logits.bias,
        )  # fmt: skip

    def prior(self, states: Tensor) -> Tensor:
        """Probabilities [..., latents, classes] of the latents, from the memory of the states."""
        return self.latents.probs(self.prior_layers(states[..., : self.size.deter_dim]))

    def observe(
        self, tokens: Tensor, actions: Tensor, is_first: Tensor, state: Tensor,
        noise: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """States [L, B, width] and probabilities of their latents, given tokens [L, B, ...] of what
        is observed, the actions [L, B, A] before that, and the state [B, width] before the first
        row. Where an episode begins there is no state and no action before. Without `noise`, for
        one row only, latents are the most likely ones."""
        keep = is_first.logical_not().to(tokens.dtype).unsqueeze(-1)
        given = self.from_action(actions * keep)
        own = self.seen.weight[:, self.size.deter_dim :]
        seen = functional.linear(tokens, own, self.seen.bias)
        if len(tokens) > 1:
            assert noise is not None
            return scan(self.weights(), self.rows, given, seen, state, keep, noise)
        drawn_by = None if noise is None else noise[0]
        one = step(self.weights(), self.latents, state * keep[0], given[0], seen[0], drawn_by)
        return one[0].unsqueeze(0), one[1].unsqueeze(0)

    def imagine(
        self, state: Tensor, actions: Tensor, noise: Tensor | None, weights: Weights | None = None
    ) -> Tensor:
        """The states [N, width] after actions [N, A], without observations. `weights`: `weights()`,
        for several steps."""
        deter = memory_step(weights or self.weights(), state, self.from_action(actions))
        latent = drawn(self.prior(deter), noise)
        return torch.cat([deter, latent.flatten(1)], dim=1)


class Model(nn.Module):
    """What learns from observations: tokens, RSSM, reconstruction, rewards, continuation."""

    def __init__(
        self, n_numbers: int, image: tuple[int, int, int] | None, size: Sizes, n_actions: int,
        unimix: float, n_bins: int, decodes: bool, generator: torch.Generator,
    ):  # fmt: skip
        """`image`: channels, height and width of all images together; None: there is none.
        `decodes`: observations are reconstructed, else states are projected on their tokens."""
        super().__init__()
        units, n_state = size.units, size.deter_dim + size.latent_dim
        n_tokens = 0
        self.encode_numbers = self.decode_numbers = None
        self.encode_image = self.decode_image = None
        if n_numbers:
            self.encode_numbers = mlp(n_numbers, units, CODEC_LAYERS, 0, generator)
            if decodes:
                self.decode_numbers = mlp(n_state, units, CODEC_LAYERS, n_numbers, generator)
            n_tokens += units
        if image is not None:
            self.encode_image = ImageEncoder(image[0], image[1:], size.depth, generator)
            if decodes:
                self.decode_image = ImageDecoder(
                    image[0], image[1:], size.depth, units, size.deter_dim, size.latent_dim,
                    size.n_blocks, generator,
                )  # fmt: skip
            n_tokens += self.encode_image.width
        self.rssm = Rssm(size, n_tokens, n_actions, unimix, generator)
        self.reward = mlp(n_state, units, HEAD_LAYERS, n_bins, generator, scale=0.0)
        self.continuation = mlp(n_state, units, HEAD_LAYERS, 1, generator)
        self.project = None
        if not decodes:
            self.project = nn.Linear(n_state, n_tokens, bias=False)
            initialise(self.project.weight, n_state, generator)


class Seen(NamedTuple):
    """What a model reads and reconstructs of observations [N, ...]."""

    numbers: Tensor | None  # [N, width]: squashed numbers, then one-hot vectors
    image: Tensor | None  # [N, C, H, W] between 0 and 1


class DreamerNet(ObsNetwork):
    return_range: Tensor

    def __init__(
        self,
        observation_space: Space,
        network: Network,
        actions: tuple[int, bool],
        n_outputs: int,
        *,
        size: Sizes,
        unimix: float,
        n_bins: int,
        decodes: bool = True,
        generator: torch.Generator,
    ):
        """`actions`: their number and whether one of them is chosen, or of how many numbers they
        are. `n_outputs`: of the actor."""
        super().__init__(observation_space, network)
        self.size, (self.n_actions, self.is_choice) = size, actions
        self.head = SymexpTwoHotHead(n_bins)
        self.n_plain = sum(vector.width for vector in self.encoder.vectors)
        self.choices = [n for one in self.encoder.one_hots for n in one.sizes]
        image = self._image_size()
        if image is None and not decodes:
            raise ConfigError(
                f"decoder_free: learns from images, but observations are {observation_space}; "
                "remove it"
            )
        self.model = Model(
            self.encoder.width, image, size, self.n_actions, unimix, n_bins, decodes, generator
        )
        if not self.is_choice:
            # With biases of 0 the norm would leave only the sign of a single number.
            first: Any = self.rssm.from_action[0]
            initialise(first.bias, self.n_actions, generator)
        self.state_width = size.deter_dim + size.latent_dim
        self.actor = mlp(
            self.state_width, size.units, ACTOR_LAYERS, n_outputs, generator, ACTOR_SCALE
        )
        self.critic = mlp(self.state_width, size.units, ACTOR_LAYERS, n_bins, generator, scale=0.0)
        # Running 5th and 95th percentile of imagined returns, see dreamerv3_losses.py.
        self.register_buffer("return_range", torch.zeros(2))

    def _image_size(self) -> tuple[int, int, int] | None:
        layouts = list(self.encoder.layouts.values())
        if self.encoder.index_sizes:
            names = ", ".join(name or "obs" for name in self.encoder.index_sizes)
            raise ConfigError(
                f"dreamerv3 reconstructs one-hot observations, but {names} would be embedded: "
                "remove embedding_dim, or use observations with at most 1,024 values"
            )
        if not layouts:
            return None
        if self.encoder.normalizer.mode:
            raise ConfigError("dreamerv3 reconstructs images as they are: remove normalize_obs")
        sides = {(layout.height, layout.width) for layout in layouts}
        if len(sides) > 1:
            listed = ", ".join(f"{height} x {width}" for height, width in sorted(sides))
            raise ConfigError(f"dreamerv3 reads images of one size, but there are {listed}")
        return sum(layout.channels for layout in layouts), *sides.pop()

    @property
    def rssm(self) -> Rssm:
        return self.model.rssm

    @property
    def core_width(self) -> int:
        """Numbers of a carry: a state, and an action as it is stored."""
        return self.state_width + (1 if self.is_choice else self.n_actions)

    # -- observations and actions -----------------------------------------------------------

    def seen(self, obs: TensorObs) -> Seen:
        x = self.encoder(obs)
        parts = x if isinstance(x, dict) else {"": x}
        numbers = parts.get("")
        if numbers is not None:
            n = self.n_plain
            numbers = torch.cat([symlog(numbers[:, :n]), numbers[:, n:]], dim=1)
        images = [parts[f"image {name}"] for name in self.encoder.layouts]
        return Seen(numbers, torch.cat(images, dim=1) if images else None)

    def tokens(self, seen: Seen) -> Tensor:
        model, found = self.model, list[Tensor]()
        if model.encode_numbers is not None:
            found.append(model.encode_numbers(seen.numbers))
        if model.encode_image is not None:
            found.append(model.encode_image(seen.image))
        return found[0] if len(found) == 1 else torch.cat(found, dim=1)

    def reconstructed(self, states: Tensor) -> Seen:
        """Outputs for states [N, width]: numbers, logits of one-hot parts, and images."""
        model = self.model
        numbers = None if model.decode_numbers is None else model.decode_numbers(states)
        if model.decode_image is None:
            return Seen(numbers, None)
        n_deter = self.size.deter_dim
        return Seen(numbers, model.decode_image(states[:, :n_deter], states[:, n_deter:]))

    def shown(self, states: Tensor) -> dict[str, Tensor]:
        """What is reconstructed from states [N, width], as the encoder gives it for observations:
        numbers and probabilities of one-hot parts (""), images."""
        found, parts = self.reconstructed(states), dict[str, Tensor]()
        if found.numbers is not None:
            plain, *choices = found.numbers.split([self.n_plain, *self.choices], dim=1)
            parts[""] = torch.cat([symexp(plain), *(torch.softmax(c, 1) for c in choices)], dim=1)
        if found.image is not None:
            channels = [layout.channels for layout in self.encoder.layouts.values()]
            images = zip(self.encoder.layouts, found.image.split(channels, dim=1), strict=True)
            parts |= {f"image {name}": image for name, image in images}
        return parts

    def action_input(self, actions: Tensor) -> Tensor:
        """Stored actions as the RSSM takes them: [...] of choices, or [..., A], to [..., A]."""
        if self.is_choice:
            classes = torch.arange(self.n_actions, device=actions.device)
            return (actions.long().unsqueeze(-1) == classes).float()
        return actions.clamp(-1.0, 1.0)

    def last_action(self, core: Tensor) -> Tensor:
        """That of a carry, as the RSSM takes it."""
        last = core[:, self.state_width :]
        return self.action_input(last.squeeze(1) if self.is_choice else last)

    # -- one step ---------------------------------------------------------------------------

    def advance(
        self, obs: TensorObs, core: Tensor, is_first: Tensor, noise: Tensor | None
    ) -> Tensor:
        """The states [N, width] after observations, from the carry before them."""
        tokens, state = self.tokens(self.seen(obs)), core[:, : self.state_width]
        actions = self.last_action(core)
        states, _ = self.rssm.observe(
            tokens.unsqueeze(0), actions.unsqueeze(0), is_first.unsqueeze(0), state,
            None if noise is None else noise.unsqueeze(0),
        )  # fmt: skip
        return states[0]

    def rewards(self, states: Tensor) -> Tensor:
        return self.head.value(self.model.reward(states))

    def values(self, states: Tensor) -> Tensor:
        return self.head.value(self.critic(states))

    def continues(self, states: Tensor) -> Tensor:
        """The probability that an episode goes on, times the discount."""
        found: Tensor = torch.sigmoid(self.model.continuation(states).squeeze(-1))
        return found

    def forward(self, obs: TensorObs, core: Tensor | None = None) -> Sequence[Tensor | None]:
        """A pass through every network, for one observation of each row. `core` [N, width]: the
        carry before it; None: an episode begins."""
        n = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
        first = torch.full((n,), core is None, device=self.device)
        before = torch.zeros(n, self.core_width, device=self.device) if core is None else core
        state = self.advance(obs, before, first, None)
        prior = self.rssm.prior(state)
        heads = (self.actor, self.critic, self.model.reward, self.model.continuation)
        return *self.reconstructed(state), prior, *(head(state) for head in heads)
