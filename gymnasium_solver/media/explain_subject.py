"""The number that is explained at a step, as a differentiable function of the network's input.

    actor = TracingActor(agent, greedy=True)      # plays; actor.trace is the newest step
    subject = subject_of(agent, actor.trace, "action")
    subject.score(subject.inputs)                 # [1]
    subject.stacks["image "]                      # convolutions of that image part

Targets: `action` is the log-probability of the chosen action. For one of n actions it is the
log-odds, log p - log(1 - p): the gradient has the same direction, and does not vanish where p is 1
in float32. For continuous actions, whose density has no slope at its mode, it is the length of the
mean action along its own direction; for Q-learners the Q-value of the chosen action. `value` is the
expected return of the state (for learners with a critic of actions, that of the chosen action).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.recorded import on_device
from gymnasium_solver.media.actors import Decision, PolicyActor
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.nets.actor_critics import ActorCritics
from gymnasium_solver.nets.encoder import Encoded, ObsEncoder
from gymnasium_solver.nets.features import Features
from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.policies.continuous import SoftPolicy
from gymnasium_solver.policies.policy import ActorPolicy, Policy
from gymnasium_solver.spaces.actions import ActionKind, BoxActions, DiscreteActions, mask_tensor
from gymnasium_solver.tree import leaves_of, map_tree

TARGETS = ("action", "value")
LOG_ODDS = "log-odds of the chosen action"
Inputs = dict[str, Tensor]
"""Encoded observations by part: "" is the vector, "image NAME" are planes [B, C, H, W]."""


@dataclass(frozen=True)
class Trace:
    """What a decision was made from; all with a batch axis of 1."""

    obs: Any
    carry: dict[str, np.ndarray]
    """Before the step."""
    is_first: np.ndarray
    mask: np.ndarray | None
    actions: np.ndarray
    """Chosen, in the policy's units."""
    value: float | None
    chance: float | None
    """Probability of the chosen action, if it is one of n."""


class TracingActor(PolicyActor):
    """A trained agent in one environment that remembers its newest decision."""

    trace: Trace | None = None

    def decide(self, obs: Any, is_first: np.ndarray, mask: np.ndarray | None) -> list[Decision]:
        policy, carry = self.agent.policy, self._carry
        choose = policy.greedy if self.greedy else policy.sample
        acted = choose(obs, carry, is_first, mask)
        outlook = policy.outlook(obs, carry, is_first, mask)
        value = None if outlook.value is None else float(outlook.value[0])
        chance = None
        if outlook.probabilities is not None and isinstance(policy.actions, DiscreteActions):
            chance = float(outlook.probabilities[0, int(acted.actions[0])])
        kept = map_tree(np.array, obs)  # engines reuse their buffers
        legal = None if mask is None else mask.copy()
        self.trace = Trace(kept, carry, is_first.copy(), legal, acted.actions, value, chance)
        self._carry = acted.carry
        return [Decision(row) for row in policy.to_env(acted.actions)]


@dataclass(frozen=True)
class Subject:
    inputs: Inputs
    score: Callable[[Inputs], Tensor]
    """Inputs of any number of rows -> [B]."""
    stacks: dict[str, nn.Module]
    """The convolutions between each image part and the score."""
    what: str
    """The explained number in words."""
    number: float
    """Its value at this step."""

    def score_of(self, name: str) -> Callable[[Tensor], Tensor]:
        """The score as a function of one part; the other parts are held."""

        def score(part: Tensor) -> Tensor:
            n = len(part)
            held = {key: value.expand(n, *value.shape[1:]) for key, value in self.inputs.items()}
            return self.score({**held, name: part})

        return score


def encoder_of(agent: Agent) -> ObsEncoder:
    encoder = getattr(agent.net, "encoder", None)
    if not isinstance(encoder, ObsEncoder):
        name = type(agent.net).__name__
        raise ConfigError(f"{name}: explain needs a network with an ObsEncoder.")
    return encoder


def subject_of(agent: Agent, trace: Trace, target: str) -> Subject:
    """ConfigError if the agent has no such target, or a network that is not one of ours."""
    net, policy = agent.net, agent.policy
    encoder = encoder_of(agent)
    if isinstance(net, ActorCritic):
        score, features, what = _of_actor_critic(net, policy, trace, target)
    elif isinstance(net, QNetwork):
        score, features, what = _of_q_network(net, trace, target)
    elif isinstance(net, ActorCritics):
        score, features, what = _of_actor_critics(net, policy, trace, target)
    else:
        raise ConfigError(f"{type(net).__name__}: explain does not know this network.")
    with torch.no_grad():
        encoded = encoder(map_tree(lambda part: on_device(part, agent.device), trace.obs))
    inputs = encoded if isinstance(encoded, dict) else {"": encoded}
    stacks = {
        f"image {name}": stack
        for name, stack in zip(encoder.layouts, features.convolutions, strict=True)
    }

    def by_parts(given: Inputs) -> Tensor:
        return score(given[""] if encoder.is_vector else given)

    with torch.no_grad():
        number = float(by_parts(inputs)[0])  # also fixes the direction of `_along`
    return Subject(inputs, by_parts, stacks, what, number)


Parts = tuple[Callable[[Encoded], Tensor], Features, str]


def _of_actor_critic(net: ActorCritic, policy: Policy, trace: Trace, target: str) -> Parts:
    assert isinstance(policy, ActorPolicy)

    def remembered(y: Tensor) -> Tensor:
        """The core's output with the carry of this step, the same for each row."""
        if net.core is None:
            return y
        n = len(y)
        carry = on_device(trace.carry["core"], net.device).expand(n, -1)
        first = on_device(trace.is_first, net.device).expand(n)
        return net.core.step(y, carry, first)[0]

    def trunk(x: Encoded) -> Tensor:
        return remembered(net.actor_torso(net.actor_features(x)))

    if target == "value":
        head = net.critic_head
        if head is None:
            raise ConfigError("--target value: this agent has no value function; use action.")
        if net.critic_torso is None:
            return (lambda x: head(trunk(x)).squeeze(1)), net.actor_features, "value of the state"
        torso, features = net.critic_torso, net.critic_features
        assert features is not None
        return (lambda x: head(torso(features(x))).squeeze(1)), features, "value of the state"
    score, what = _action_score(lambda x: net.actor_head(trunk(x)), policy.actions, net, trace)
    return score, net.actor_features, what


def _action_score(
    outputs: Callable[[Encoded], Tensor], actions: ActionKind, net: ActorCritic, trace: Trace
) -> tuple[Callable[[Encoded], Tensor], str]:
    if isinstance(actions, BoxActions):
        return _along(outputs), "mean action along its direction"
    chosen = on_device(trace.actions, net.device)
    mask = None if trace.mask is None else on_device(trace.mask, net.device)
    if isinstance(actions, DiscreteActions):
        return _log_odds(outputs, int(trace.actions[0]), mask), LOG_ODDS

    def score(x: Encoded) -> Tensor:
        out = outputs(x)
        given = chosen.expand(len(out), *chosen.shape[1:])
        return actions.log_prob_entropy(mask_tensor(out, mask), net.log_std, given)[0]

    return score, "log-probability of the chosen action"


def _log_odds(
    logits: Callable[[Encoded], Tensor], action: int, mask: Tensor | None
) -> Callable[[Encoded], Tensor]:
    def score(x: Encoded) -> Tensor:
        out = mask_tensor(logits(x), mask)
        others = torch.cat([out[:, :action], out[:, action + 1 :]], dim=1)
        return out[:, action] - (torch.logsumexp(others, 1) if others.shape[1] else 0.0)

    return score


def _along(mean: Callable[[Encoded], Tensor]) -> Callable[[Encoded], Tensor]:
    """The mean action projected on its own direction at the first call."""
    direction: list[Tensor] = []

    def score(x: Encoded) -> Tensor:
        out = mean(x)
        if not direction:
            first = out[:1].detach()
            direction.append(first / first.norm().clamp_min(1e-12))
        return (out * direction[0]).sum(1)

    return score


def _of_q_network(net: QNetwork, trace: Trace, target: str) -> Parts:
    net.q.resample(None)  # without the noise of noisy layers
    action = int(trace.actions[0])
    mask = None if trace.mask is None else torch.from_numpy(trace.mask)

    def q_values(x: Encoded) -> Tensor:
        if net.q.core is None:
            out = net.q(x)
        else:
            n = len(leaves_of(x)[0])
            carry = on_device(trace.carry["core"], net.support.device).expand(n, -1)
            out, _ = net.q.step(x, carry, on_device(trace.is_first, carry.device).expand(n))
        return out if net.q.n_atoms == 1 else (torch.softmax(out, dim=2) * net.support).sum(2)

    if target == "value":
        return (
            lambda x: mask_tensor(q_values(x), mask).amax(1),
            net.q.features,
            "Q-value of the best action",
        )
    return (lambda x: q_values(x)[:, action]), net.q.features, "Q-value of the chosen action"


def _of_actor_critics(net: ActorCritics, policy: Policy, trace: Trace, target: str) -> Parts:
    chosen = on_device(trace.actions, next(net.parameters()).device)
    is_discrete = isinstance(policy.actions, DiscreteActions)
    mask = None if trace.mask is None else torch.from_numpy(trace.mask)
    if target == "value":

        def value(x: Encoded) -> Tensor:
            if is_discrete:
                return net.critic(x).amin(0)[:, int(chosen[0])]
            n = len(next(iter(x.values()))) if isinstance(x, dict) else len(x)
            return net.critic(x, chosen.expand(n, -1)).amin(0)[:, 0]

        return value, net.critic.features, "Q-value of the chosen action"
    if is_discrete:
        return (
            _log_odds(net.actor, int(trace.actions[0]), mask),
            net.actor.features,
            LOG_ODDS,
        )
    has_std = isinstance(policy, SoftPolicy)

    def mean(x: Encoded) -> Tensor:
        out = net.actor(x)
        return torch.tanh(out.chunk(2, dim=1)[0] if has_std else out)

    return _along(mean), net.actor.features, "mean action along its direction"
