"""What chooses actions in an episode that is watched: a trained policy, or chance.

    agent, env_steps = trained_agent(found)
    actor = PolicyActor(agent, greedy=True, explains=True)

An actor decides for N environments at once. A `Decision` belongs to one of them. Its numbers are in
the units of the environment.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.envs.random_steps import RandomPolicy
from gymnasium_solver.errors import ConfigError, GsolveError, RunError
from gymnasium_solver.fast.recorded import on_device
from gymnasium_solver.nets.encoder import ObsEncoder
from gymnasium_solver.policies.policy import Outlook
from gymnasium_solver.runs.checkpoint import LAST, load_checkpoint
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.runs.run import live_status
from gymnasium_solver.spaces.actions import ActionKind, MultiBinaryActions
from gymnasium_solver.spaces.observations import Space
from gymnasium_solver.training.agents import agent_from_checkpoint
from gymnasium_solver.training.targets import Found
from gymnasium_solver.tree import map_tree


@dataclass(frozen=True)
class Decision:
    action: np.ndarray
    """As the environment's `step` takes it (one row of numbers for a Dict or Tuple)."""
    chosen: np.ndarray | None = None
    """The same in the policy's units."""
    probabilities: np.ndarray | None = None
    """The probability of each choice, or of each bit being set."""
    q_values: np.ndarray | None = None
    """The Q-value of each discrete action."""
    mean: np.ndarray | None = None
    std: np.ndarray | None = None
    """Moments of a continuous action; `std` is that of the noise before squashing to the bounds."""
    value: float | None = None
    """Return that the agent expects from here on."""
    is_greedy: bool = True
    """Whether it is the action that the agent considers best."""
    best: np.ndarray | None = None
    """The action that the agent considers best, as `step` takes it."""
    entropy: float | None = None
    """Entropy of the distribution that actions are sampled from, in the policy's units; that of a
    squashed action before the squashing."""
    seen: dict[str, np.ndarray] = field(default_factory=dict)
    """Input of the network: "" is its vector, "image NAME" are planes (channel, height, width)."""
    carry: dict[str, np.ndarray] = field(default_factory=dict)
    """What a policy with memory remembered before this step."""


class Actor(Protocol):
    def start(self, n_envs: int, seed: int) -> None:
        """New episodes begin in all environments."""

    def decide(self, obs: Any, is_first: np.ndarray, mask: np.ndarray | None) -> list[Decision]:
        """One decision for each environment; `is_first` marks those where an episode begins."""


class PolicyActor:
    """A trained agent: its best action, or a sample. `explains` fills the fields that are for
    display, which takes about twice as long."""

    def __init__(self, agent: Agent, *, greedy: bool, explains: bool = False) -> None:
        self.agent, self.greedy, self.explains = agent, greedy, explains
        self._carry: dict[str, np.ndarray] = {}

    def start(self, n_envs: int, seed: int) -> None:
        policy = self.agent.policy
        policy.rng, policy.is_random = np.random.default_rng(seed), False  # as in an evaluation
        self._carry = policy.initial_carry(n_envs)

    def take_over(self, agent: Agent) -> None:
        """Act by the weights of another agent from the next decision on."""
        agent.policy.rng, agent.policy.is_random = self.agent.policy.rng, False
        self.agent = agent

    def decide(self, obs: Any, is_first: np.ndarray, mask: np.ndarray | None) -> list[Decision]:
        policy = self.agent.policy
        choose = policy.greedy if self.greedy else policy.sample
        acted = choose(obs, self._carry, is_first, mask)
        rows = policy.to_env(acted.actions)
        if not self.explains:
            self._carry = acted.carry
            return [Decision(row) for row in rows]
        best = policy.greedy(obs, self._carry, is_first, mask).actions
        outlook = policy.outlook(obs, self._carry, is_first, mask)
        carry, seen = self._remembered(is_first), network_input(self.agent, obs)
        self._carry = acted.carry
        best_rows = policy.actions.to_env(best)
        return [
            Decision(
                row,
                chosen=acted.actions[i],
                is_greedy=bool(np.allclose(acted.actions[i], best[i])),
                best=best_rows[i],
                entropy=_entropy(i, outlook, policy.actions),
                seen={name: array[i] for name, array in seen.items()},
                carry={name: part[i] for name, part in carry.items()},
                **_outlook(i, outlook, policy.actions),
            )
            for i, row in enumerate(rows)
        ]

    def _remembered(self, is_first: np.ndarray) -> dict[str, np.ndarray]:
        """The carry that counts at this step: zeros where an episode begins."""
        if not self.agent.policy.has_memory:
            return {}
        return {
            name: np.where(is_first.reshape(-1, *[1] * (part.ndim - 1)), 0, part)
            for name, part in self._carry.items()
        }

    def value_of(self, obs: Any, mask: np.ndarray | None) -> float | None:
        """Return expected at the last observation of an episode, after the decisions in it."""
        first = np.zeros(1, bool)
        value = self.agent.policy.outlook(obs, self._carry, first, mask).value
        return None if value is None else float(value[0])


def _outlook(i: int, outlook: Outlook, actions: ActionKind) -> dict[str, Any]:
    """What the policy computes for row i, in the environment's units."""
    given = {"probabilities": outlook.probabilities, "q_values": outlook.q_values}
    found = {name: array[i] for name, array in given.items() if array is not None}
    if outlook.value is not None:
        found["value"] = float(outlook.value[i])
    if outlook.mean is not None and outlook.std is not None:
        mean = actions.to_env(outlook.mean[i : i + 1])[0]
        ones = np.ones_like(outlook.std[i : i + 1])
        unit = (actions.to_env(ones) - actions.to_env(-ones))[0] / 2  # 1 in the policy's units
        found |= {"mean": mean, "std": outlook.std[i].reshape(mean.shape) * unit}
    return found


def _entropy(i: int, outlook: Outlook, actions: ActionKind) -> float | None:
    if outlook.probabilities is not None:
        p = np.clip(outlook.probabilities[i].astype(np.float64), 1e-12, 1.0)
        entropy = -(p * np.log(p)).sum()
        if isinstance(actions, MultiBinaryActions):  # the other value of each bit
            q = np.clip(1.0 - p, 1e-12, 1.0)
            entropy -= (q * np.log(q)).sum()
        return float(entropy)
    if outlook.std is not None and (outlook.std[i] > 0).all():
        return float((np.log(outlook.std[i]) + 0.5 * np.log(2 * np.pi * np.e)).sum())
    return None


@torch.no_grad()
def network_input(agent: Agent, obs: Any) -> dict[str, np.ndarray]:
    """Encoded observations [N, ...] by part; {} for a network without an encoder of ours."""
    encoder = getattr(agent.net, "encoder", None)
    if not isinstance(encoder, ObsEncoder):
        return {}
    encoded = encoder(map_tree(lambda part: on_device(part, agent.device), obs))
    parts = encoded if isinstance(encoded, dict) else {"": encoded}
    return {name: part.cpu().numpy() for name, part in parts.items()}


class RandomActor:
    """Uniformly random legal actions."""

    def __init__(self, action_space: Space) -> None:
        self._space = action_space
        self._policy = RandomPolicy(action_space, 1, 0)

    def start(self, n_envs: int, seed: int) -> None:
        self._policy = RandomPolicy(self._space, n_envs, seed)

    def decide(self, obs: Any, is_first: np.ndarray, mask: np.ndarray | None) -> list[Decision]:
        return [Decision(row) for row in self._policy.act(mask)]


# -- the agent of a run -------------------------------------------------------------------------


def trained_agent(found: Found) -> tuple[Agent, int]:
    """The agent on the CPU, and the env steps that it was trained for."""
    if found.agent is not None:
        return found.agent, 0
    if found.checkpoint is None:
        raise ConfigError(
            f"{found.config.env_id}: a config has no trained agent. Give a run, such as @last."
        )
    checkpoint = load_checkpoint(found.checkpoint)
    agent = agent_from_checkpoint(found.config.replace(device="cpu"), checkpoint)
    return agent, checkpoint.env_steps


def title_of(found: Found, env_steps: int) -> str:
    """What is shown, in one line."""
    config = found.config
    steps = [f"{env_steps:,} env steps"] if found.checkpoint else []
    return "   ".join([config.env_id, config.variant or config.algo_id, *steps])


class NewestPolicy:
    """The newest policy of a run that still trains; `refresh` loads it."""

    def __init__(self, found: Found) -> None:
        if found.run is None:
            raise RunError(f"{found.config.env_id}: only a run can be followed, such as @last.")
        self._found, self._run = found, found.run
        self.agent: Agent
        self.agent, self.env_steps = trained_agent(found)

    def refresh(self) -> bool:
        """Whether a newer policy was loaded."""
        try:
            path = resolve_checkpoint(self._run, self._run.path.parent, default=LAST).path.resolve()
            if path.name == str(self.env_steps):
                return False
            found = replace(self._found, checkpoint=path, agent=None)
            self.agent, self.env_steps = trained_agent(found)
        except (GsolveError, OSError):  # pruned while it was read; a newer one is on its way
            return False
        return True

    @property
    def is_training(self) -> bool:
        return live_status(self._run.meta()) == "running"

    @property
    def title(self) -> str:
        return title_of(self._found, self.env_steps)
