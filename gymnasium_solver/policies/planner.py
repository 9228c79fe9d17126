"""Acts by planning in a learnt model: MPPI (Williams et al. 2015) as in TD-MPC2.

Each iteration samples action sequences of `horizon` steps, imagines them in the model, and takes a
mean and a standard deviation, weighted by value, of the best ones; these are what the next
iteration samples from. Some sequences come from the learnt policy. The value of a sequence is its
discounted reward plus the critics' value of the state after it. The action is the first one of an
elite that is drawn by its weight; in training noise is added.

The plan is the policy's carry, one row for each env: the next plan starts from it, moved on by one
step, and from zeros where an episode begins. All randomness is drawn outside `plan`, which is a
pure function of tensors with shapes that do not depend on data.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.fast.forward import CompiledForward, Inference
from gymnasium_solver.nets.world_model import WorldModel
from gymnasium_solver.policies.policy import Acted, ActObs, Carry, Mask, Outlook, Policy
from gymnasium_solver.spaces.actions import ActionKind
from gymnasium_solver.spaces.observations import Space, obs_len


class Model(Protocol):
    """What plans are made with; z [B, L], actions [B, A]."""

    def next(self, z: Tensor, actions: Tensor) -> Tensor: ...

    def reward(self, z: Tensor, actions: Tensor) -> Tensor: ...

    def end_logits(self, z: Tensor) -> Tensor | None: ...

    def prior_action(self, z: Tensor, noise: Tensor) -> Tensor: ...

    def value(self, z: Tensor, actions: Tensor, pick: Tensor) -> Tensor: ...


Values = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # `sequence_value` of a model


class Search(NamedTuple):
    """How plans are made."""

    horizon: int
    iterations: int
    n_samples: int
    n_policy_samples: int
    n_elites: int
    std_min: float
    std_max: float
    temperature: float


class Drawn(NamedTuple):
    """The random numbers of a plan for N envs, with I iterations and S samples. Standard normal, if
    nothing else is said."""

    proposed: Any  # [N, policy samples, H, A]: of the policy's sequences
    sampled: Any  # [N, I, the other samples, H, A]
    last: Any  # [N, I, S, A]: of the policy's actions after a sequence
    pick: Any  # [I, critics]: ones for the two critics of an iteration
    choice: Any  # [N, elites]: Gumbel, chooses an elite
    action: Any  # [N, A]: added to the action; zeros for none


class Plan(NamedTuple):
    action: Tensor  # [N, A]
    mean: Tensor  # [N, H, A]: the plan
    std: Tensor  # [N, H, A]
    value: Tensor  # [N]: what the elites expect, by their weights


def sequence_value(
    model: Model, z: Tensor, actions: Tensor, gamma: Tensor, noise: Tensor, pick: Tensor
) -> Tensor:
    """Imagined return [B] of action sequences [B, H, A] from latent states [B, L]. No reward counts
    after a termination that is more likely than not. `pick` [B, n]: ones for two critics."""
    total, factor = torch.zeros_like(gamma), torch.ones_like(gamma)
    for t in range(actions.shape[1]):
        total = total + factor * model.reward(z, actions[:, t])
        z = model.next(z, actions[:, t])
        factor = factor * gamma
        ends = model.end_logits(z)
        if ends is not None:
            factor = factor * (ends <= 0.0)
    value = model.value(z, model.prior_action(z, noise), pick)
    return total + factor * value


def proposals(model: Model, z: Tensor, noise: Tensor) -> Tensor:
    """Action sequences [B, H, A] of the learnt policy, imagined from z [B, L]."""
    actions = []
    for t in range(noise.shape[1]):
        actions.append(model.prior_action(z, noise[:, t]))
        z = model.next(z, actions[-1])
    return torch.stack(actions, dim=1)


@torch.no_grad()
def plan(
    model: Model, search: Search, z: Tensor, start: Tensor, gamma: Tensor, drawn: Drawn,
    values: Values | None = None,
) -> Plan:  # fmt: skip
    """A plan for each latent state [N, L], from the means of the last one [N, H, A], already moved
    on. `gamma` [N]. `values`: computes `sequence_value` of this model."""
    values = partial(sequence_value, model) if values is None else values
    n, horizon, width = start.shape
    n_proposed, n_samples = search.n_policy_samples, search.n_samples
    repeated = z.repeat_interleave(n_samples, dim=0)
    proposed = start.new_empty(n, 0, horizon, width)
    if n_proposed:
        states = z.repeat_interleave(n_proposed, dim=0)
        proposed = proposals(model, states, drawn.proposed.flatten(0, 1))
        proposed = proposed.view(n, n_proposed, horizon, width)
    mean, std = start, torch.full_like(start, search.std_max)
    discounts = gamma.repeat_interleave(n_samples)
    for i in range(search.iterations):
        sampled = mean.unsqueeze(1) + std.unsqueeze(1) * drawn.sampled[:, i]
        actions = torch.cat([proposed, sampled.clamp(-1.0, 1.0)], dim=1)  # [N, S, H, A]
        pick = drawn.pick[i].expand(n * n_samples, -1)
        noise = drawn.last[:, i].flatten(0, 1)
        value = values(repeated, actions.flatten(0, 1), discounts, noise, pick)
        best = value.nan_to_num(0.0).view(n, n_samples).topk(search.n_elites, dim=1)
        index = best.indices[:, :, None, None].expand(-1, -1, horizon, width)
        elites = actions.gather(1, index)
        weight = torch.softmax(search.temperature * best.values, dim=1)
        share = weight[:, :, None, None]
        mean = (share * elites).sum(1)
        variance = (share * (elites - mean.unsqueeze(1)).square()).sum(1)
        std = variance.sqrt().clamp(search.std_min, search.std_max)
    chosen = (weight.log() + drawn.choice).argmax(dim=1)
    action = elites[torch.arange(n, device=z.device), chosen, 0] + std[:, 0] * drawn.action
    return Plan(action.clamp(-1.0, 1.0), mean, std, (weight * best.values).sum(1))


class PriorPolicy(Policy):
    """The learnt policy of a planner, without planning."""

    def __init__(
        self, net: WorldModel, observation_space: Space, actions: ActionKind,
        rng: np.random.Generator,
    ):  # fmt: skip
        super().__init__(observation_space, actions, rng)
        self.net = net
        self._infer = Inference(net.prior_mean, net, record=False)

    def greedy(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        return Acted(self._infer(obs), carry)

    _draw = greedy


class PlanningPolicy(Policy):
    is_stochastic = False
    gamma = 0.99  # set by the learner

    def __init__(
        self,
        net: WorldModel,
        observation_space: Space,
        actions: ActionKind,
        rng: np.random.Generator,
        search: Search,
        *,
        compile: bool = False,
        fuse: bool = False,
    ):
        """How sequences are imagined. `compile`: by a compiled program, where there is one. `fuse`:
        with fused kernels, on a GPU."""
        super().__init__(observation_space, actions, rng)
        self.net, self.search = net, search
        self._infer = Inference(self._planned, net, record=False)
        self.imagination = CompiledForward(
            partial(sequence_value, net), net, wanted=compile, fuse=fuse
        )

    @property
    def exported(self) -> Policy:
        return PriorPolicy(self.net, self.observation_space, self.actions, self.rng)

    def initial_carry(self, n: int) -> Carry:
        return {"plan": np.zeros((n, self.search.horizon, self.net.n_actions), np.float32)}

    def state(self) -> dict[str, Any]:
        return {"gamma": self.gamma}

    def load_state(self, state: dict[str, Any]) -> None:
        self.gamma = state["gamma"]

    def _draw(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Acted:
        action, mean, *_ = self._plan(obs, carry, is_first, self.rng, explores=True)
        return Acted(action, {"plan": mean})

    def greedy(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        action, mean, *_ = self._plan(obs, carry, is_first, self.rng, explores=False)
        return Acted(action, {"plan": mean})

    def outlook(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Outlook:
        """The plan: its first action, the spread of the elites, and the return that it expects."""
        rng = np.random.default_rng(0)  # the numbers of training and evaluations stay theirs
        _, mean, std, value = self._plan(obs, carry, is_first, rng, explores=False)
        return Outlook(mean=mean[:, 0], std=std[:, 0], value=value)

    def _plan(
        self, obs: ActObs, carry: Carry, is_first: np.ndarray, rng: np.random.Generator,
        explores: bool,
    ) -> list[np.ndarray]:  # fmt: skip
        n = obs_len(obs)
        start = moved_on(carry["plan"], is_first)
        gamma = np.full(n, self.gamma, np.float32)
        drawn = draw(self.search, n, self.net.n_actions, self.net.n_critics, rng, explores)
        found: list[np.ndarray] = self._infer(obs, start, gamma, drawn)
        return found

    def _planned(self, obs: Any, start: Tensor, gamma: Tensor, drawn: Drawn) -> list[Tensor]:
        z = self.net.encode(obs)
        return list(plan(self.net, self.search, z, start, gamma, drawn, self._values))

    def _values(self, *given: Tensor) -> Tensor:
        return self.imagination.on(given)[0]

    def begin_rollout(self) -> None:
        self.imagination.hold_weights(True)

    def end_rollout(self) -> None:
        self.imagination.hold_weights(False)

    @contextmanager
    def still(self) -> Iterator[None]:
        self.begin_rollout()
        try:
            yield
        finally:
            self.end_rollout()


def moved_on(mean: np.ndarray, is_first: np.ndarray) -> np.ndarray:
    """The means of a plan one step later; zeros at the end, and where an episode begins."""
    start = np.zeros_like(mean)
    start[:, :-1] = mean[:, 1:]
    start[np.asarray(is_first)] = 0.0
    return start


def draw(
    search: Search, n: int, width: int, n_critics: int, rng: np.random.Generator, explores: bool
) -> Drawn:
    """The random numbers of a plan. `explores`: noise is added to the action."""

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal((n, *shape), dtype=np.float32)

    horizon, n_proposed = search.horizon, search.n_policy_samples
    others = search.n_samples - n_proposed
    return Drawn(
        normal(n_proposed, horizon, width),
        normal(search.iterations, others, horizon, width),
        normal(search.iterations, search.n_samples, width),
        np.stack([two_of(n_critics, rng) for _ in range(search.iterations)]),
        rng.gumbel(size=(n, search.n_elites)).astype(np.float32),
        normal(width) if explores else np.zeros((n, width), np.float32),
    )


def two_of(n: int, rng: np.random.Generator) -> np.ndarray:
    """Ones for two random places of n, zeros elsewhere."""
    found = np.zeros(n, np.float32)
    found[rng.permutation(n)[:2]] = 1.0
    return found
