"""Plays episodes of an agent step by step, with everything that a viewer may want to know.

    with open_scene(find_run("@last", root)) as scene:
        for moment in scene.player(seed=1, explains=True).episode():
            show(moment.frame, moment.decision.probabilities, moment.episode_return)

An actor (a trained policy, or chance) decides for N environments at once. A `Decision` belongs to
one of them, in the environment's units. A `Moment` is a state of one environment with the rewards
that led to it and the decision made in it, before it is carried out. An episode of T steps has
T + 1 moments; the last one has no decision.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.envs.random_steps import RandomPolicy
from gymnasium_solver.envs.vector import Step
from gymnasium_solver.errors import ConfigError, GsolveError
from gymnasium_solver.fast.cuda_graph import on_device
from gymnasium_solver.media.stage import Stage, open_stage
from gymnasium_solver.nets.encoder import ObsEncoder
from gymnasium_solver.policies.policy import OpenLoop, Outlook, Pictured
from gymnasium_solver.runs.checkpoint import LAST, load_checkpoint
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.runs.run import Run, live_status
from gymnasium_solver.spaces.actions import ActionKind, MultiBinaryActions
from gymnasium_solver.spaces.observations import Space, take_rows
from gymnasium_solver.training.agents import agent_from_checkpoint
from gymnasium_solver.training.score import pick_seed
from gymnasium_solver.training.targets import Found
from gymnasium_solver.training.threads import limited_threads, pick_threads
from gymnasium_solver.tree import map_tree


@dataclass(frozen=True)
class Decision:
    action: np.ndarray
    """As the environment's `step` takes it (one row of numbers for a Dict or Tuple)."""
    chosen: np.ndarray | None = None  # the same in the policy's units
    probabilities: np.ndarray | None = None
    """The probability of each choice, or of each bit being set."""
    q_values: np.ndarray | None = None  # the Q-value of each discrete action
    mean: np.ndarray | None = None
    std: np.ndarray | None = None
    """Moments of a continuous action; `std` is that of the noise before squashing to the bounds."""
    value: float | None = None  # return that the agent expects from here on
    best: np.ndarray | None = None  # the action that the agent considers best, as `step` takes it
    entropy: float | None = None
    """Entropy of the distribution that actions are sampled from, in the policy's units; that of a
    squashed action before the squashing."""
    seen: dict[str, np.ndarray] = field(default_factory=dict)
    """Input of the network: "" is its vector, "image NAME" are planes (channel, height, width)."""
    carry: dict[str, np.ndarray] = field(default_factory=dict)
    """What a policy with memory remembered before this step."""
    reconstructed: dict[str, np.ndarray] = field(default_factory=dict)
    imagined: dict[str, np.ndarray] = field(default_factory=dict)
    """`seen` as the model of a policy has it (`policies.policy.Pictured`); {} without one."""


class Actor(Protocol):
    def start(self, n_envs: int, seed: int) -> None:
        """New episodes begin in all environments."""

    def decide(self, obs: Any, is_first: np.ndarray, mask: np.ndarray | None) -> list[Decision]:
        """One decision for each environment; `is_first` marks those where an episode begins."""


class PolicyActor:
    """A trained agent. `explains` fills the fields for display, which takes twice as long."""

    def __init__(self, agent: Agent, *, greedy: bool, explains: bool = False) -> None:
        self.agent, self.greedy, self.explains = agent, greedy, explains
        self._carry: dict[str, np.ndarray] = {}
        self._open_loop: OpenLoop | None = None

    def start(self, n_envs: int, seed: int) -> None:
        policy = self.agent.policy
        policy.rng, policy.is_random = np.random.default_rng(seed), False  # as in an evaluation
        self._carry = policy.initial_carry(n_envs)
        self._open_loop = policy.open_loop(n_envs) if self.explains else None

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
        best = rows if self.greedy else self._best(obs, is_first, mask)
        outlook = policy.outlook(obs, self._carry, is_first, mask)
        carry, seen = self._remembered(is_first), network_input(self.agent, obs)
        pictured = Pictured({}, {})
        if self._open_loop is not None:
            pictured = self._open_loop(self._carry, acted.carry, is_first)
        self._carry = acted.carry
        return [
            Decision(
                row,
                chosen=acted.actions[i],
                best=best[i],
                entropy=_entropy(i, outlook, policy.actions),
                seen={name: array[i] for name, array in seen.items()},
                carry={name: part[i] for name, part in carry.items()},
                reconstructed={name: part[i] for name, part in pictured.reconstructed.items()},
                imagined={name: part[i] for name, part in pictured.imagined.items()},
                **_outlook(i, outlook, policy.actions),
            )
            for i, row in enumerate(rows)
        ]

    def took(self, actions: np.ndarray) -> None:
        """A person chose other actions than `decide` did."""
        self._carry = self.agent.policy.took(self._carry, actions)

    def _best(self, obs: Any, is_first: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """The greedy actions; the numbers that a planner draws are not those of the episode."""
        policy = self.agent.policy
        before, policy.rng = policy.rng, np.random.default_rng(0)
        best = policy.greedy(obs, self._carry, is_first, mask)
        policy.rng = before
        return policy.to_env(best.actions)

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


def encoder_of(agent: Agent) -> ObsEncoder | None:
    """The encoder of an agent's network; None if it is not one of ours."""
    encoder = getattr(agent.net, "encoder", None)
    return encoder if isinstance(encoder, ObsEncoder) else None


@torch.no_grad()
def network_input(agent: Agent, obs: Any) -> dict[str, np.ndarray]:
    """Encoded observations [N, ...] by part; {} for a network without an encoder of ours."""
    encoder = encoder_of(agent)
    if encoder is None:
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


# -- episodes -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    row: int  # which of the environments, from 0
    t: int  # steps taken in this episode
    frame: np.ndarray | None  # uint8 (height, width, 3); None if nothing is drawn
    obs: Any  # the observation as the agent gets it, after all wrappers
    raw: Any  # before the wrappers that map observations
    mask: np.ndarray | None  # the legal actions
    reward: float = 0.0  # the reward of the step that led here, before reward wrappers
    learner_reward: float = 0.0  # the same, after them
    episode_return: float = 0.0  # sum of `reward` so far
    terminated: bool = False
    truncated: bool = False
    is_over: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    decision: Decision | None = None  # None in the last moment of an episode


class Player:
    """Steps the environments of a stage with the decisions of an actor."""

    def __init__(self, stage: Stage, actor: Actor, seed: int) -> None:
        self.stage, self.actor, self.seed = stage, actor, seed
        self.n_envs = stage.env.n_envs
        self._decisions: list[Decision] | None = None
        self.restart(seed)

    def restart(self, seed: int) -> None:
        """Open new episodes; the same seed repeats the same ones."""
        self._obs = self.stage.env.reset(seed)
        self._step: Step | None = None
        self._before = np.zeros(self.n_envs)
        self._decisions = None
        self.actor.start(self.n_envs, seed)
        self._is_first = np.ones(self.n_envs, bool)

    @property
    def is_over(self) -> np.ndarray:
        """bool[n_envs]: the episodes that have just ended."""
        return np.zeros(self.n_envs, bool) if self._step is None else self._step.is_over

    def decide(self) -> list[Decision]:
        """What the actor will do in each env; asked once for each state."""
        if self._decisions is None:
            mask = self.stage.env.action_mask
            self._decisions = self.actor.decide(self._obs, self._is_first, mask)
        return self._decisions

    def moment(self, row: int = 0) -> Moment:
        """The state of one env."""
        step, mask, is_over = self._step, self.stage.env.action_mask, bool(self.is_over[row])
        moment = Moment(
            row=row,
            t=0,
            frame=self.stage.frame(row),
            obs=take_rows(self._obs, row),
            raw=take_rows(self.stage.tap.obs, row),
            mask=None if mask is None else mask[row],
            decision=None if is_over else self.decide()[row],
            info=_row_of(self.stage.env.info, row, self.n_envs),
        )
        if step is None or step.is_reset[row]:
            return moment
        return replace(
            moment,
            t=int(step.episode_length[row]),
            reward=float(step.episode_return[row] - self._before[row]),
            learner_reward=float(step.reward[row]),
            episode_return=float(step.episode_return[row]),
            terminated=bool(step.terminated[row]),
            truncated=bool(step.truncated[row]),
            is_over=is_over,
        )

    def step(self, action: np.ndarray | None = None) -> None:
        """Carry out the decisions, in the first env `action`; after an episode the next opens."""
        actions = np.stack([decision.action for decision in self.decide()])
        if action is not None and not np.array_equal(actions[0], action):
            actions[0] = action
            if isinstance(self.actor, PolicyActor):
                self.actor.took(actions)
        self._before = np.zeros(self.n_envs) if self._step is None else self._step.episode_return
        self._step = self.stage.env.step(actions)
        self._obs, self._is_first = self._step.obs, self._step.is_reset
        self._decisions = None

    def episode(self, most_steps: int | None = None) -> Iterator[Moment]:
        """The moments of the first env's next episode, up to its end or `most_steps`."""
        if self.is_over[0]:
            self.step()
        while True:
            moment = self.moment()
            yield moment
            if moment.is_over or (most_steps is not None and moment.t >= most_steps):
                return
            self.step()


def _row_of(info: dict[str, Any], row: int, n_envs: int) -> dict[str, Any]:
    """One env's values among those of a batch."""
    return {
        name: value[row]
        for name, value in info.items()
        if isinstance(value, np.ndarray) and value.ndim and len(value) == n_envs
    }


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


@dataclass
class Scene:
    """An agent in an environment; without an agent, the actions are random."""

    found: Found
    agent: Agent | None
    env_steps: int  # those that the agent was trained for
    stage: Stage

    @classmethod
    def open(cls, found: Found, n_envs: int = 1, *, is_random: bool = False, **how: Any) -> "Scene":
        """`is_random`: without an agent. `how`: as `open_stage` takes it."""
        agent, env_steps = (None, 0) if is_random else trained_agent(found)
        return cls(found, agent, env_steps, open_stage(found, n_envs, agent=agent, **how))

    @property
    def run(self) -> Run:
        assert self.found.run is not None, "an agent of a run"
        return self.found.run

    @property
    def title(self) -> str:
        """What is shown, in one line."""
        config = self.found.config
        if self.agent is None:
            return config.env_id
        steps = [f"{self.env_steps:,} env steps"] if self.found.checkpoint else []
        return "   ".join([config.env_id, config.variant or config.algo_id, *steps])

    def seed(self, given: int | str) -> int:
        """A number, or the seed of a stage of training, as in an evaluation."""
        return pick_seed(self.found.config, self.found.run, self.env_steps, given)

    def player(
        self, seed: int | str, greedy: bool | None = None, *, explains: bool = False
    ) -> "Player":
        actor: Actor = RandomActor(self.stage.env.action_space)
        if self.agent is not None:
            actor = PolicyActor(self.agent, greedy=self.found.is_greedy(greedy), explains=explains)
        return Player(self.stage, actor, self.seed(seed))

    @property
    def is_training(self) -> bool:
        return live_status(self.run.meta()) == "running"

    def refresh(self) -> bool:
        """Load the newest policy of a run that still trains; whether there was a newer one."""
        try:
            path = resolve_checkpoint(self.run, self.run.path.parent, default=LAST).path.resolve()
            if path.name == str(self.env_steps):
                return False
            found = replace(self.found, checkpoint=path, agent=None)
            self.agent, self.env_steps = trained_agent(found)
        except (GsolveError, OSError):  # pruned while it was read; a newer one is on its way
            return False
        return True


@contextmanager
def open_scene(found: Found, n_envs: int = 1, **how: Any) -> Iterator[Scene]:
    """A scene with the threads that its run asks for; closed afterwards. `how`: see Scene.open."""
    with limited_threads(pick_threads(found.config)):
        scene = Scene.open(found, n_envs, **how)
        with closing(scene.stage):
            yield scene
