"""Explains one decision: which number it came from, and every map and number about it, as arrays.

    (moment := player.moment()).decision        # of a PolicyActor that `explains`
    view = look(agent, moment, methods_of(["gradcam"]), "action")
    view.images[0].maps["gradcam"]              # [H, W]
    view.contributions                          # [("cart position", 0.12), ...]

The explained number is a differentiable function of the network's input (`subject_of`). Targets:
`action` is the log-probability of the chosen action. For one of n actions it is the log-odds,
log p - log(1 - p): the gradient has the same direction, and does not vanish where p is 1 in
float32. For continuous actions, whose density has no slope at its mode, it is the length of the
mean action along its own direction; for Q-learners the Q-value of the chosen action. `value` is the
expected return of the state (for learners with a critic of actions, that of the chosen action).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.cuda_graph import on_device
from gymnasium_solver.media.drawing import (
    Group,
    group_pictures,
    overlay,
    plane_groups,
    signed_overlay,
    stretched,
    unit,
)
from gymnasium_solver.media.player import Moment, encoder_of
from gymnasium_solver.media.saliency import TITLES as CAMS
from gymnasium_solver.media.saliency import (
    ConvLayer,
    activations,
    cam,
    conv_layers,
    gradient_saliency,
    gradient_times_input,
    occlusion,
)
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.nets.actor_critics import ActorCritics, Branch
from gymnasium_solver.nets.encoder import Encoded, ObsEncoder
from gymnasium_solver.nets.features import Features
from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.nets.world_model import WorldModel
from gymnasium_solver.policies.continuous import SoftPolicy
from gymnasium_solver.spaces.actions import BoxActions, DiscreteActions, mask_tensor
from gymnasium_solver.suggest import check_known
from gymnasium_solver.tree import leaves_of, map_tree

TARGETS = ("action", "value")
METHODS = ("gradient", "occlusion", *CAMS)
LOG_ODDS, Q_VALUE = "log-odds of the chosen action", "Q-value of the chosen action"
ALONG = "mean action along its direction"
Inputs = dict[str, Tensor]
"""Encoded observations by part: "" is the vector, "image NAME" are planes [B, C, H, W]."""
Score = Callable[[Encoded], Tensor]


def methods_of(names: Sequence[str]) -> tuple[str, ...]:
    """The methods that a user names, in the order of METHODS; all of them for "all" or nothing."""
    chosen = set()
    for name in names:
        plain = name.lower().replace("-", "").replace("_", "").replace("plusplus", "++")
        if plain == "all":
            return METHODS
        check_known(ConfigError, plain, METHODS, f"--method {name}: unknown", "Expected all,")
        chosen.add(plain)
    return tuple(name for name in METHODS if name in chosen) if chosen else METHODS


def target_of(name: str) -> str:
    check_known(ConfigError, name, TARGETS, f"--target {name}: unknown")
    return name


# -- the explained number -----------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    inputs: Inputs
    score: Callable[[Inputs], Tensor]  # inputs of any number of rows -> [B]
    stacks: dict[str, nn.Module]  # the convolutions between each image part and the score
    what: str  # the explained number in words
    number: float  # its value at this step

    def score_of(self, name: str) -> Callable[[Tensor], Tensor]:
        """The score as a function of one part; the other parts are held."""

        def score(part: Tensor) -> Tensor:
            n = len(part)
            held = {key: value.expand(n, *value.shape[1:]) for key, value in self.inputs.items()}
            return self.score({**held, name: part})

        return score


def explained_encoder(agent: Agent) -> ObsEncoder:
    encoder = encoder_of(agent)
    if encoder is None:
        name = type(agent.net).__name__
        raise ConfigError(f"{name}: explain needs a network with an ObsEncoder.")
    return encoder


def subject_of(agent: Agent, moment: Moment, target: str) -> Subject:
    """ConfigError if the agent has no such target, or a network that is not one of ours."""
    encoder = explained_encoder(agent)
    if target == "action":  # an actor may see fewer parts than the critic
        encoder = getattr(agent.net, "actor_encoder", encoder)
    score, what, features = _Explained(agent, moment).score(target)

    def by_parts(given: Inputs) -> Tensor:
        return score(given[""] if encoder.is_vector else given)

    with torch.no_grad():
        obs = map_tree(lambda part: on_device(np.asarray(part)[None], agent.device), moment.obs)
        encoded = encoder(obs)
        inputs = encoded if isinstance(encoded, dict) else {"": encoded}
        number = float(by_parts(inputs)[0])  # also fixes the direction of `_along`
    stacks = zip(encoder.layouts, features.convolutions, strict=True)
    named = {f"image {name}": stack for name, stack in stacks}
    return Subject(inputs, by_parts, named, what, number)


Parts = tuple[Score, str, Features]
"""A score, what it is in words, and the features that it is computed from."""


class _Explained:
    """The scores of a decision, by kind of network."""

    def __init__(self, agent: Agent, moment: Moment) -> None:
        assert moment.decision is not None, "the end of an episode has no decision"
        assert moment.decision.chosen is not None, "the actor explains"
        self.net, self.policy, self.actions = agent.net, agent.policy, agent.policy.actions
        self.chosen = on_device(moment.decision.chosen[None], agent.device)
        self.mask = None if moment.mask is None else on_device(moment.mask[None], agent.device)
        self.is_discrete = isinstance(self.actions, DiscreteActions)
        self._carry = {
            name: on_device(part[None], agent.device)
            for name, part in moment.decision.carry.items()
        }

    def score(self, target: str) -> Parts:
        if isinstance(self.net, ActorCritic):
            return self._actor_critic(self.net, target)
        if isinstance(self.net, QNetwork):
            return self._q_network(self.net, target)
        if isinstance(self.net, ActorCritics):
            return self._actor_critics(self.net, target)
        if isinstance(self.net, WorldModel):
            return self._world_model(self.net, target)
        raise ConfigError(f"{type(self.net).__name__}: explain does not know this network.")

    def _memory(self, n: int, name: str = "core") -> tuple[Tensor, Tensor]:
        """The carry of this step, the same for each of n rows; none of them opens an episode."""
        core = self._carry[name]
        return core.expand(n, -1), torch.zeros(n, dtype=torch.bool, device=core.device)

    def _actor_critic(self, net: ActorCritic, target: str) -> Parts:
        def trunk(x: Encoded) -> Tensor:
            y = net.actor_torso(net.actor_features(x))
            return y if net.core is None else net.core.step(y, *self._memory(len(y)))[0]

        if target == "action":
            return *self._action_score(lambda x: net.actor_head(trunk(x)), net), net.actor_features
        head, torso, features = net.critic_head, net.critic_torso, net.critic_features
        if head is None:
            raise ConfigError("--target value: this agent has no value function; use action.")
        if torso is None or features is None:
            return (lambda x: head(trunk(x)).squeeze(1)), "value of the state", net.actor_features
        return (lambda x: head(torso(features(x))).squeeze(1)), "value of the state", features

    def _action_score(self, outputs: Score, net: ActorCritic) -> tuple[Score, str]:
        if isinstance(self.actions, BoxActions):
            return _along(outputs), ALONG
        if self.is_discrete:
            return self._log_odds(outputs), LOG_ODDS

        def score(x: Encoded) -> Tensor:
            out = outputs(x)
            given = self.chosen.expand(len(out), *self.chosen.shape[1:])
            masked = mask_tensor(out, self.mask)
            return self.actions.log_prob_entropy(masked, net.log_std, given)[0]

        return score, "log-probability of the chosen action"

    def _log_odds(self, logits: Score) -> Score:
        action = int(self.chosen[0])

        def score(x: Encoded) -> Tensor:
            out = mask_tensor(logits(x), self.mask)
            others = torch.cat([out[:, :action], out[:, action + 1 :]], dim=1)
            return out[:, action] - (torch.logsumexp(others, 1) if others.shape[1] else 0.0)

        return score

    def _q_network(self, net: QNetwork, target: str) -> Parts:
        net.q.resample(None)  # without the noise of noisy layers
        action = int(self.chosen[0])

        def q_values(x: Encoded) -> Tensor:
            if net.q.core is None:
                out = net.q(x)
            else:
                out, _ = net.q.step(x, *self._memory(len(leaves_of(x)[0])))
            return net.head.value(out)

        if target == "action":
            return (lambda x: q_values(x)[:, action]), Q_VALUE, net.q.features
        best = "Q-value of the best action"
        return (lambda x: mask_tensor(q_values(x), self.mask).amax(1)), best, net.q.features

    def _actor_critics(self, net: ActorCritics, target: str) -> Parts:
        def seen(part: Branch, x: Encoded) -> Tensor:
            if part.core is None:
                return part.features(x)
            return part.remembered(x, *self._memory(len(leaves_of(x)[0]), part.carry_name))[0]

        def value(x: Encoded) -> Tensor:
            y = seen(net.critic, x)
            if self.is_discrete:
                return net.head.value(net.critic.values(y, None)).amin(0)[:, int(self.chosen[0])]
            return net.head.value(net.critic.values(y, self.chosen.expand(len(y), -1))).amin(0)

        def outputs(x: Encoded) -> Tensor:
            return net.actor.layers(seen(net.actor, x))

        def mean(x: Encoded) -> Tensor:
            out = outputs(x)
            has_std = isinstance(self.policy, SoftPolicy)
            return torch.tanh(out.chunk(2, dim=1)[0] if has_std else out)

        if target == "value":
            return value, Q_VALUE, net.critic.features
        if self.is_discrete:
            return self._log_odds(outputs), LOG_ODDS, net.actor_features
        return _along(mean), ALONG, net.actor_features

    def _world_model(self, net: WorldModel, target: str) -> Parts:
        """Of the learnt policy and the critics, not of the plan."""

        def value(x: Encoded) -> Tensor:
            z = net.representation(x)
            return net.head.value(net.critic(z, self.chosen.expand(len(z), -1))).mean(0)

        def mean(x: Encoded) -> Tensor:
            return torch.tanh(net.prior_moments(net.representation(x))[0])

        features = net.representation.features
        return (value, Q_VALUE, features) if target == "value" else (_along(mean), ALONG, features)


def _along(mean: Score) -> Score:
    """The mean action projected on its own direction at the first call."""
    direction: list[Tensor] = []

    def score(x: Encoded) -> Tensor:
        out = mean(x)
        if not direction:
            first = out[:1].detach()
            direction.append(first / first.norm().clamp_min(1e-12))
        return (out * direction[0]).sum(1)

    return score


# -- maps and numbers about it ------------------------------------------------------------------


@dataclass(frozen=True)
class ImageView:
    """One image part of the network's input."""

    name: str  # the name of the part; "" where the observation is the image
    planes: np.ndarray  # [C, H, W] as the network gets them
    groups: list[Group]  # which planes are a frame
    layer: str  # the layer of the class activation maps
    maps: dict[str, np.ndarray]
    """By method: of `gradient` [C, H, W], of `occlusion` [len(groups), H, W] (positive: covering it
    lowers the score), of the others [H, W]."""
    activations: dict[str, np.ndarray]  # [K, h, w] by layer

    def pictures(self, method: str | None = None) -> list[np.ndarray]:
        """Each group of planes as a picture, under the map of a method."""
        plain = group_pictures(self.planes, self.groups)
        if method is None:
            return plain
        map_ = self.maps[method]
        if method == "occlusion":
            return list(map(signed_overlay, plain, unit(map_)))
        if method == "gradient":
            by_group = unit(np.stack([map_[group.planes].max(0) for group in self.groups]))
        else:
            by_group = np.stack([stretched(map_)] * len(plain))
        return list(map(overlay, plain, by_group))


@dataclass(frozen=True)
class View:
    what: str  # the explained number in words
    number: float
    images: list[ImageView]
    contributions: list[tuple[str, float]]  # gradient x input of each component of the vector part


def groups_of(agent: Agent, name: str) -> list[Group]:
    """The frames of an image part."""
    encoder, stacked = explained_encoder(agent), getattr(agent.config, "frame_stack", None) or 1
    return plane_groups(encoder.layouts[name], encoder.parts[name].shape or (), stacked)


def pick_layer(stack: nn.Module, number: int | None) -> ConvLayer:
    """The layer `number`, from 1; the last one by default."""
    layers = conv_layers(stack)
    if number is not None and not 1 <= number <= len(layers):
        raise ConfigError(
            f"--layer {number}: the network has convolution layers 1 to {len(layers)}"
        )
    return layers[-1 if number is None else number - 1]


def look(
    agent: Agent,
    moment: Moment,
    methods: Sequence[str] = METHODS,
    target: str = "action",
    *,
    layer: int | None = None,
    names: Sequence[str] = (),
) -> View:
    """`names` of the components of the vector part; those of the spaces by default."""
    subject, encoder = subject_of(agent, moment, target), explained_encoder(agent)
    images = []
    for name in encoder.layouts:
        key, groups = f"image {name}", groups_of(agent, name)
        planes, stack, score = subject.inputs[key], subject.stacks[key], subject.score_of(key)
        chosen = pick_layer(stack, layer)
        outputs = activations(conv_layers(stack), partial(stack, planes))
        maps = {method: cam(method, score, chosen, planes) for method in methods if method in CAMS}
        if "gradient" in methods:
            maps["gradient"] = gradient_saliency(score, planes)
        if "occlusion" in methods:
            maps["occlusion"] = occlusion(score, planes, [group.planes for group in groups])
        responses = {layer_name: output[0] for layer_name, output in outputs.items()}
        array = planes[0].cpu().numpy()
        images.append(ImageView(name, array, groups, chosen.name, maps, responses))
    contributions: list[tuple[str, float]] = []
    if "" in subject.inputs and encoder.width:
        numbers = gradient_times_input(subject.score_of(""), subject.inputs[""])
        labels = component_names(encoder, names, len(numbers))
        contributions = list(zip(labels, numbers.tolist(), strict=True))
    return View(subject.what, subject.number, images, contributions)


def component_names(encoder: ObsEncoder | None, known: Sequence[str], n: int) -> list[str]:
    """Names of the n components of the vector part: those that are known, or by the parts of the
    space, numbers as part[i] and one-hot values as part=value."""
    if len(known) == n:
        return list(known)
    names: list[str] = []
    for vector in () if encoder is None else encoder.vectors:
        names += _indexed(vector.name, range(vector.width))
    for one_hot in () if encoder is None else encoder.one_hots:
        labels = _indexed(one_hot.name, one_hot.columns.tolist())
        values = one_hot.values.tolist()
        names += [f"{label}={value}" for label, value in zip(labels, values, strict=True)]
    return names if len(names) == n else [str(i) for i in range(n)]


def _indexed(part: str, places: Sequence[int]) -> list[str]:
    """A label for each place of a part; without its number if there is only one place."""
    label = part or "obs"
    return [f"{label}[{i}]" for i in places] if len(set(places)) > 1 else [label] * len(places)
