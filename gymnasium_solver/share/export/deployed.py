"""A trained policy as one torch module: raw observations in, the environment's actions out.

    policy = deployed_policy(agent, treatment, has_mask=False)
    policy.input_names              # obs (or obs.NAME), action_mask, carry, is_first
    *actions, carry = policy(*inputs)

It holds all that lies between the environment and the network: the run's observation wrappers, the
normaliser, legal actions, the recurrent core, and the conversion of actions. It is greedy: the
actions of an evaluation.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.envs.treatment import Treatment
from gymnasium_solver.errors import RunError
from gymnasium_solver.policies.continuous import DeterministicPolicy, SoftPolicy
from gymnasium_solver.policies.policy import ActorPolicy, Policy
from gymnasium_solver.policies.q_policy import QPolicy
from gymnasium_solver.share.export.actions import best_actions, output_names
from gymnasium_solver.share.export.wrappers import legal_actions, observation_maps
from gymnasium_solver.spaces.actions import BoxActions
from gymnasium_solver.spaces.observations import Obs, obs_arrays, part_spaces

Core = Callable[[Any, Tensor, Tensor], tuple[Tensor, Tensor]]


class Deployed(nn.Module):
    """`forward` takes and returns tensors in the order of `input_names` and `output_names`."""

    legal: Tensor | None

    def __init__(self, agent: Agent, treatment: Treatment, has_mask: bool):
        super().__init__()
        policy, actions = agent.policy, agent.policy.actions
        self.kind, self.net = actions, agent.net
        self.has_memory = policy.has_memory
        self.has_mask = has_mask
        self._scores, self._sequence = _functions(policy)
        self.maps = observation_maps(treatment, actions.space)
        self.raw_space = treatment.space
        legal = legal_actions(treatment, actions.space)
        self.register_buffer("legal", None if legal is None else torch.from_numpy(legal.copy()))
        self.carry_width = policy.initial_carry(1)["core"].shape[1] if self.has_memory else 0
        self._is_dict = isinstance(agent.observation_space, spaces.Dict)
        self.obs_names = [f"obs.{n}" if n else "obs" for n in part_spaces(treatment.space)]
        self.input_names = [*self.obs_names, *["action_mask"] * has_mask]
        self.input_names += ["carry", "is_first"] if self.has_memory else []
        self.output_names = output_names(actions.space) + ["next_carry"] * self.has_memory

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        scores, carry = self.scores(*inputs)
        actions = best_actions(self.kind, scores)
        return (*actions, carry) if carry is not None else tuple(actions)

    def scores(self, *inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits, Q-values or actions in the policy's units; and the next carry."""
        given = dict(zip(self.input_names, inputs, strict=True))
        parts = {name: given[key] for name, key in zip(self.raw_parts, self.obs_names, strict=True)}
        parts = self.maps(parts)
        obs = parts if self._is_dict else parts[""]
        carry = None
        if self.has_memory:
            assert self._sequence is not None, "deployed_policy refuses such a policy"
            scores, carry = self._sequence(obs, given["carry"], given["is_first"])
        else:
            scores = self._scores(obs)
        mask = given.get("action_mask")
        if self.legal is not None:
            mask = self.legal if mask is None else mask & self.legal
        return (scores if mask is None else torch.where(mask, scores, -torch.inf)), carry

    @property
    def raw_parts(self) -> list[str]:
        return list(part_spaces(self.raw_space))

    def arrays(
        self, obs: Obs, mask: np.ndarray | None, carry: np.ndarray | None, is_first: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The inputs by name; `carry` None: none yet."""
        given = {key: a for key, (_, a) in zip(self.obs_names, obs_arrays(obs), strict=True)}
        if self.has_mask:
            assert mask is not None, "this policy takes a mask of legal actions"
            given["action_mask"] = mask
        if self.has_memory:
            zeros = np.zeros((len(is_first), self.carry_width), np.float32)
            given |= {"carry": zeros if carry is None else carry, "is_first": is_first}
        return given


def deployed_policy(agent: Agent, treatment: Treatment, has_mask: bool) -> Deployed:
    """The policy of a loaded agent, ready to be exported; RunError if it is of an unknown kind."""
    if isinstance(agent.policy, QPolicy):
        agent.policy.net.q.resample(None)  # no noise in noisy layers
    if agent.policy.has_memory and _functions(agent.policy)[1] is None:
        raise RunError(
            f"a {type(agent.policy).__name__} with memory cannot be exported; recurrent networks "
            "with an actor or with Q-values can."
        )
    return Deployed(agent, treatment, has_mask).eval()


def _functions(policy: Policy) -> tuple[Callable[[Any], Tensor], Core | None]:
    """Observations to scores, and the same with a recurrent core."""
    if isinstance(policy, ActorPolicy):
        return policy.net.actor, _sequence(policy.net)
    if isinstance(policy, QPolicy):
        return policy.net.q_values, _sequence(policy.net)
    if isinstance(policy, SoftPolicy):
        outputs = policy.net.actor_outputs
        if not isinstance(policy.actions, BoxActions):
            return outputs, None
        return lambda obs: torch.tanh(outputs(obs).chunk(2, dim=1)[0]), None
    if isinstance(policy, DeterministicPolicy):
        net = policy.net
        return lambda obs: torch.tanh(net.actor_outputs(obs)), None
    raise RunError(
        f"the policy {type(policy).__name__} cannot be exported; export knows the policies of the "
        "built-in algorithms."
    )


def _sequence(net: Any) -> Core:
    """One step of a recurrent network."""

    def step(obs: Any, carry: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        outputs, after = net.step(obs, carry, is_first)
        return outputs, after

    return step
