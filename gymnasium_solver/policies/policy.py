"""Policies map observations to actions, using their own random stream.

    carry = policy.initial_carry(n_envs)
    acted = policy.sample(obs, carry, is_first, mask)       # or policy.greedy(...)
    env.step(policy.to_env(acted.actions)); carry = acted.carry

`Policy` is the interface for the collector, evaluation and users. Actions are in the policy's units
(spaces/actions.py), which learning also uses; `to_env` converts them to the environment's.

The carry is the state a policy keeps between steps: arrays by name with one row per env. It is {}
for a feed-forward network. It holds the state of a recurrent core, and of correlated exploration
noise. `is_first` marks the rows whose observation starts an episode; their carry is reset.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.envs.as_gymnasium import Applied, Treatment, is_observed_now
from gymnasium_solver.errors import EnvError
from gymnasium_solver.fast.cuda_graph import on_device
from gymnasium_solver.fast.forward import CompiledForward, HostCopy, Inference
from gymnasium_solver.fast.native.program import NativeForward
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.nets.sde import SdeHead
from gymnasium_solver.policies.noise import StateNoise
from gymnasium_solver.spaces.actions import ActionKind, mask_outputs, mask_tensor
from gymnasium_solver.spaces.observations import Obs, Space, as_batch, obs_len
from gymnasium_solver.tree import leaves_of, map_tree

ActObs = Obs | Tensor | dict[str, Tensor]
"""[N, ...] as returned by the env; tensors are on the network's device."""
Mask = np.ndarray | None  # [N, A] bool: the legal actions
Carry = dict[str, np.ndarray]


class Acted(NamedTuple):
    actions: np.ndarray
    carry: Carry
    outputs: np.ndarray | None = None
    """Parameters of the distribution that the actions were sampled from, if it has a density used
    for learning (`Policy.n_outputs`)."""
    log_prob: np.ndarray | None = None
    """Log-probabilities of the actions, if the policy has computed them already."""
    value: np.ndarray | None = None  # values of the observations, likewise


@dataclass(frozen=True)
class Outlook:
    """What a policy computes about N states besides its actions, for a viewer. None: the policy
    has no such numbers."""

    probabilities: np.ndarray | None = None
    """[N, outputs]: of each choice, or of each bit being set (`ActionKind.probabilities`)."""
    q_values: np.ndarray | None = None
    """[N, A]: of each discrete action; of several critics the lowest."""
    mean: np.ndarray | None = None  # [N, width]: of continuous actions, in the policy's units
    std: np.ndarray | None = None
    """[N, width]: of the noise around `mean`, before a squashing to the bounds."""
    value: np.ndarray | None = None  # [N]: expected return from here on


class Pictured(NamedTuple):
    """Observations of N envs as a model has them, by part as the network's encoder gives them."""

    reconstructed: dict[str, np.ndarray]  # from states that have taken the observations in
    imagined: dict[str, np.ndarray]  # from states that have seen none for a while, only the actions


class OpenLoop(Protocol):
    """Goes through an episode beside a policy."""

    def __call__(self, before: Carry, after: Carry, is_first: np.ndarray) -> Pictured:
        """At each step, with the policy's carry before and after it."""


class Read(NamedTuple):
    batch: Obs
    is_single: bool
    mask: np.ndarray | None = None  # the legal actions, where the run restricts them: [1, A]


class ObsReader:
    """How a loaded agent reads the observations that a user gives to `act`.

    An observation may be of the environment that the user made, or of `gs.make_env(run)`. The
    wrappers of the run that are functions of the observation alone are applied here. If the run has
    others, only observations of `gs.make_env(run)` are accepted: an agent that reads unscaled
    numbers, or whose action 1 means another action there, would play badly without any error
    (envs/as_gymnasium.py)."""

    def __init__(
        self, treatment: Treatment, action_space: Space, run_id: str, unread: Collection[str] = ()
    ) -> None:
        """`unread`: parts that the policy does not need."""
        self._treatment, self._run_id, self._unread = treatment, run_id, unread
        self._apply = Applied(treatment, action_space)

    def __call__(self, native: Any) -> Read:
        own = self._treatment.own_env
        if own and not is_observed_now(native, self._treatment):
            raise EnvError(
                f"act() cannot apply {', '.join(own)} of this run to another environment: take "
                f"observations from gs.make_env({self._run_id!r}), or pass as_trained=True if your "
                "environment does the same."
            )
        try:
            batch, is_single = as_batch(self._treatment.space, native, self._unread)
        except EnvError as error:
            raise EnvError(
                f"{error} gs.make_env({self._run_id!r}) makes the environment of this run."
            ) from None
        obs, mask = self._apply(batch)
        return Read(obs, is_single, mask)


class Policy(ABC):
    n_outputs: int | None = None  # width of `Acted.outputs`; None: `sample` returns no outputs
    is_stochastic: ClassVar[bool] = True
    """Whether a distribution was learnt, so that sampled actions are the policy itself. False: they
    are the greedy ones with exploration added."""

    def __init__(self, observation_space: Space, actions: ActionKind, rng: np.random.Generator):
        self.observation_space = observation_space
        self.actions = actions
        self.rng = rng
        self.is_random = False  # warm-up: `sample` is uniform
        self.unread: Collection[str] = ()
        """Parts of an observation that it does not read (`critic_keys`)."""
        self.episode_limit: int | None = None
        """Time limit of an episode, if known. `act` of a policy with memory uses it to detect a
        missing `reset`."""
        self.reader: ObsReader | None = None
        """How `act` of a loaded agent reads observations. None: they are as in training."""
        self.acts_greedily = True
        """What `act` does by default; of a loaded agent: how its run is judged."""
        self.loaded_from: Path | None = None  # folder of the checkpoint of a loaded agent
        self._user_carry: Carry | None = None
        self._n_acted = 0

    @abstractmethod
    def _draw(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Acted:
        """Actions for exploration."""

    @abstractmethod
    def greedy(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        """Actions for evaluation."""

    def sample(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        """Sample actions for a batch of observations, in the policy's units."""
        if self.is_random:
            after = self._remember(obs, carry, is_first) if self.has_memory else carry
            return Acted(self.actions.uniform(obs_len(obs), self.rng, mask), after)
        return self._draw(obs, carry, is_first, mask)

    def _remember(self, obs: ActObs, carry: Carry, is_first: np.ndarray) -> Carry:
        """The carry after these observations, if the policy has memory; for random actions."""
        return carry

    def outlook(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Outlook:
        """Probabilities, Q-values and values of the states that `sample` or `greedy` would act in.
        For display: it changes nothing, and is slower than acting."""
        return Outlook()

    def _outlook_of(
        self, outputs: np.ndarray, log_std: np.ndarray | None, value: np.ndarray | None
    ) -> Outlook:
        """That of a distribution with these parameters [N, W]."""
        moments = self.actions.moments(outputs, log_std)
        if moments is None:
            return Outlook(probabilities=self.actions.probabilities(outputs), value=value)
        return Outlook(mean=moments[0], std=moments[1], value=value)

    def initial_carry(self, n: int) -> Carry:
        """The carry of n envs before their first observation."""
        return {}

    @property
    def has_memory(self) -> bool:
        """Whether greedy actions depend on earlier observations."""
        return False

    def took(self, carry: Carry, actions: np.ndarray) -> Carry:
        """The carry after other actions [N, ...] than the policy chose, as the env got them."""
        return carry

    def open_loop(self, n: int) -> "OpenLoop | None":
        """For a viewer of n envs; None: no model reconstructs observations."""
        return None

    @property
    def exported(self) -> "Policy":
        """What is exported: itself, or of a planner the policy that it plans with."""
        return self

    def still(self) -> AbstractContextManager[None]:
        """Within it the weights do not change, so that a policy on a GPU can act from a copy."""
        return nullcontext()

    def acts_on_host(self, n_rows: int) -> bool:
        """Whether it acts from a copy of its weights on the CPU, for this many observations."""
        return False

    def begin_rollout(self) -> None:  # noqa: B027  (most have nothing to do)
        """Called at the start of each rollout of training, by what collects it. The weights do not
        change until its end."""

    def end_rollout(self) -> None:  # noqa: B027  (most have nothing to do)
        """Called at the end of each rollout, also of one that fails."""

    def acting_program(self) -> NativeForward | None:
        """The compiled program that `sample` calls now; None: `sample` does more than that. It
        takes observations and noise and returns outputs, actions and log-probabilities. With
        memory it also takes the carry's `core` and `is_first`, and returns the new core and, if it
        knows them, the values."""
        return None

    @property
    def chooses_tensors(self) -> bool:
        """Whether it can `choose`, for rollouts that stay on a device."""
        return False

    def ready_noise(self, shape: tuple[int, ...], rng: torch.Generator) -> Tensor | None:
        """Random numbers for rows of this shape, as `choose` takes them."""
        return self.actions.ready_noise(shape, rng)

    @property
    def choice_numbers(self) -> Sequence[float]:
        """Settings of `choose` that change in a run."""
        return ()

    def choose(
        self, obs: Tensor, noise: Tensor, numbers: Sequence[Any] = ()
    ) -> tuple[Tensor, Tensor]:
        """Actions [n, ...] and what they were chosen by [n, W], as tensors on the network's device,
        from random numbers and the `choice_numbers`, which may be tensors."""
        raise NotImplementedError(f"{type(self).__name__} chooses in NumPy only")

    def chosen_log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Log-probabilities [n] of what `choose` returned."""
        raise NotImplementedError(f"{type(self).__name__} chooses in NumPy only")

    def recorded_carry(self, carry: Carry) -> Carry:
        """The parts of the carry that learning reads, to be stored with each row."""
        return carry if self.has_memory else {}

    def log_std(self) -> np.ndarray | None:
        """Log standard deviations that belong to `Acted.outputs`, if any."""
        return None

    def state(self) -> dict[str, Any]:
        """Exploration settings that change during a run, as JSON."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:  # noqa: B027  (most have none)
        """Load what `state` returned."""

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """Convert from the policy's units to the environment's."""
        return self.actions.to_env(actions)

    # -- for users --------------------------------------------------------------------------

    def reset(self) -> None:
        """Clear the carry: the next `act` starts a new episode."""
        self._user_carry, self._n_acted = None, 0

    def act(
        self,
        obs: Any,
        greedy: bool | None = None,
        mask: Any = None,
        is_first: Any = None,
        as_trained: bool = False,
    ) -> Any:
        """The env's action for one observation, or for a batch. `greedy`: the most likely one, or
        a sample; by default as the run of a loaded agent is judged, else the most likely one.

        A loaded agent takes observations of the environment, and applies the run's observation
        wrappers itself; `as_trained`: they are applied already. A policy with memory keeps its
        carry between calls; `reset()` or `is_first=True` starts a new episode."""
        if self.reader is None or as_trained:
            batch, is_single, legal = Read(*as_batch(self.observation_space, obs, self.unread))
        else:
            batch, is_single, legal = self.reader(obs)
        n = obs_len(batch)
        if mask is not None:
            mask = np.asarray(mask, bool)
            mask = mask[None] if is_single else mask
        if legal is not None:
            mask = np.broadcast_to(legal, (n, legal.shape[1])) if mask is None else mask & legal
        carry, firsts = self._carry_for(n, is_first)
        self._warn_of_forgotten_reset(firsts)
        is_greedy = self.acts_greedily if greedy is None else greedy
        acted = (self.greedy if is_greedy else self.sample)(batch, carry, firsts, mask)
        self._user_carry = acted.carry
        rows = self.to_env(acted.actions)
        return self.actions.to_native(rows[0] if is_single else rows)

    def _carry_for(self, n: int, is_first: Any) -> tuple[Carry, np.ndarray]:
        """The carry of the previous call, and the rows that start an episode."""
        carry = self._user_carry
        if carry is None:
            return self.initial_carry(n), np.ones(n, bool)
        if self.has_memory and any(len(part) != n for part in carry.values()):
            n_before = len(next(iter(carry.values())))
            raise EnvError(
                f"act() got {n} observations after {n_before}: a policy with memory needs the "
                "same environments at every call. Call agent.reset() before switching "
                "environments."
            )
        if any(len(part) != n for part in carry.values()):
            return self.initial_carry(n), np.ones(n, bool)
        firsts = False if is_first is None else is_first
        return carry, np.broadcast_to(np.asarray(firsts, bool), (n,)).copy()

    def _warn_of_forgotten_reset(self, firsts: np.ndarray) -> None:
        self._n_acted = 1 if firsts.any() else self._n_acted + 1
        limit = self.episode_limit
        # A vector env that resets at the next step also asks for an action at the final
        # observation.
        most = None if limit is None else limit + (len(firsts) > 1)
        if self.has_memory and most is not None and self._n_acted == most + 1:
            warnings.warn(
                f"act() was called {self._n_acted} times in one episode, but episodes of this "
                f"environment end after {limit} steps at the latest. The agent has memory: call "
                "agent.reset(), or act(obs, is_first=True), when a new episode begins.",
                stacklevel=4,
            )


class ActorPolicy(Policy):
    """Acts with the actor of an ActorCritic: a sample from its distribution, or the mode."""

    def __init__(
        self,
        net: ActorCritic,
        observation_space: Space,
        actions: ActionKind,
        rng: np.random.Generator,
        *,
        record: bool,
        compile: bool = False,
        on_host: bool = False,
        sde_sample_freq: int = -1,
    ):
        """`compile`: act with a compiled program, where there is one. `on_host`: act from a copy
        of the weights, which are on a GPU. `sde_sample_freq`: see StateNoise, for a network with
        state-dependent exploration."""
        super().__init__(observation_space, actions, rng)
        self.net = net
        self.n_outputs = actions.n_outputs
        self.noise: StateNoise | None = None
        function: Callable[..., Any] = net.actor if net.core is None else net.step
        if isinstance(net.actor_head, SdeHead):
            self.noise = StateNoise(net.actor_head, sde_sample_freq)
            function = net.step_latent
        self._infer = Inference(function, net, record=record)
        is_plain = net.core is None and self.noise is None
        self._host = HostCopy(net, "actor") if on_host and is_plain else None
        is_compiled = compile and record and self.noise is None
        self._sampler = CompiledForward(self._sampled, net, wanted=is_compiled)
        self._idle: np.ndarray | None = None
        self.takes_masks = False  # whether masks are an input of the compiled sampler

    def _draw(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Acted:
        if self._sampler.mode != "torch" and self._suits_sampler(mask):
            noise = self.actions.noise(obs_len(obs), self.rng)
            if noise is not None:
                given = self._given(obs, noise, carry, is_first, mask)
                found = self._sampler(*given)
                if found is None:  # decided at the first call: it cannot be compiled
                    found = self._sampled_by_torch(given)
                outputs, actions, log_prob, *rest = found
                if not rest:
                    return Acted(actions, carry, outputs, log_prob)
                core, value = rest[0], rest[1] if len(rest) > 1 else None
                return Acted(actions, {"core": core}, outputs, log_prob, value)
        outputs, latent, carry = self._outputs(obs, carry, is_first, mask)
        if self.noise is None:
            return Acted(self.actions.sample(outputs, self.log_std(), self.rng), carry, outputs)
        assert latent is not None
        noise, carry = self.noise(latent, carry, self.rng)
        return Acted(outputs[:, : noise.shape[1]] + noise, carry, outputs)

    def _suits_sampler(self, mask: Mask) -> bool:
        """It is compiled with masks, or without: as the first call has them."""
        if mask is not None and self._sampler.program is None:
            self.takes_masks = True
        return mask is None or self.takes_masks

    def _sampled(self, obs: Any, noise: Tensor, *more: Tensor) -> list[Tensor]:
        """The actor's outputs, the actions that the noise gives, and their log-probabilities.
        `more`: with memory the core's state and `is_first`; the new state follows, and the values,
        which cost little here: they share everything but the last layer. And masks."""
        outputs, *after = self.net.step_valued(obs, *(more[:2] if self.has_memory else ()))
        outputs = mask_tensor(outputs, more[-1] if self.takes_masks else None)
        log_std = self.net.log_std
        actions = self.actions.from_noise(outputs, log_std, noise)
        log_prob, _ = self.actions.log_prob_entropy(outputs, log_std, actions)
        return [outputs, actions, log_prob, *after]

    @torch.no_grad()
    def _sampled_by_torch(self, given: tuple[Any, ...]) -> list[np.ndarray]:
        inputs = map_tree(lambda part: on_device(part, self.net.device), given)
        return [part.cpu().numpy() for part in self._sampled(*inputs)]

    @property
    def chooses_tensors(self) -> bool:
        has_noise = self.actions.ready_noise((1,), torch.Generator()) is not None
        return has_noise and self.noise is None and self.net.core is None

    def choose(
        self, obs: Tensor, noise: Tensor, numbers: Sequence[Any] = ()
    ) -> tuple[Tensor, Tensor]:
        outputs = self.net.actor(obs)
        return self.actions.from_ready(outputs, self.net.log_std, noise), outputs

    def chosen_log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        return self.actions.log_prob_entropy(outputs, self.net.log_std, actions)[0]

    def state(self) -> dict[str, Any]:
        return {"sampler": self._sampler.mode}

    def load_state(self, state: dict[str, Any]) -> None:
        self._sampler.resume(state.get("sampler", "torch"))

    def greedy(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        found = None
        if self._sampler.mode == "compiled":
            suits = self._suits_sampler(mask)
            noise = self._idle_noise(obs_len(obs))
            given = self._given(obs, noise, carry, is_first, mask if suits else None)
            found = self._sampler(*given)
        if found is None:
            outputs, _, carry = self._outputs(obs, carry, is_first, mask)
        else:
            outputs, _, _, *core = found
            outputs, carry = mask_outputs(outputs, mask), {"core": core[0]} if core else carry
        return Acted(self.actions.mode(outputs), carry, outputs)

    def _idle_noise(self, n: int) -> np.ndarray:
        """Noise for the sampler where only the actor's outputs are wanted, which do not depend on
        it. Cached: an evaluation asks for the same number of rows at every step."""
        if self._idle is None or len(self._idle) != n:
            self._idle = self.actions.noise(n, np.random.default_rng(0))
            assert self._idle is not None  # else there is no compiled sampler
        return self._idle

    def _given(
        self, obs: ActObs, noise: np.ndarray, carry: Carry, is_first: np.ndarray, mask: Mask
    ) -> tuple[Any, ...]:
        """The inputs of the sampler."""
        state = (carry["core"], is_first) if self.has_memory else ()
        if self.takes_masks and mask is None:
            mask = np.ones((len(noise), self.actions.n_outputs), np.bool_)
        return (obs, noise, *state, mask) if self.takes_masks else (obs, noise, *state)

    def _outputs(
        self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask
    ) -> tuple[np.ndarray, np.ndarray | None, Carry]:
        """The actor's outputs, their features if noise depends on them, and the carry."""
        if self.net.core is None:
            found = (self._copy_for(obs) or self._infer)(obs)
            outputs, *rest = [found] if self.noise is None else found
        else:
            outputs, core, *rest = self._infer(obs, carry["core"], is_first)
            carry = {**carry, "core": core}
        return mask_outputs(outputs, mask), rest[0] if rest else None, carry

    def _copy_for(self, obs: ActObs) -> HostCopy | None:
        """The copy of the weights on the CPU, if these observations are there and few."""
        host = self._host
        if host is None or host.module is None or not host.suits(obs_len(obs)):
            return None
        return None if any(isinstance(leaf, Tensor) for leaf in leaves_of(obs)) else host

    def still(self) -> AbstractContextManager[None]:
        return nullcontext() if self._host is None else self._host.fresh()

    def acts_on_host(self, n_rows: int) -> bool:
        return self._host is not None and self._host.suits(n_rows)

    def begin_rollout(self) -> None:
        self._sampler.hold_weights(True)
        if self.noise is not None:
            self.noise.begin_rollout()

    def end_rollout(self) -> None:
        self._sampler.hold_weights(False)

    def acting_program(self) -> NativeForward | None:
        return None if self.is_random else self._sampler.program

    def recorded_carry(self, carry: Carry) -> Carry:
        return {"core": carry["core"]} if self.has_memory else {}

    @torch.no_grad()
    def outlook(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Outlook:
        net, device = self.net, self.net.device
        given = (obs, carry["core"], is_first) if self.has_memory else (obs,)
        inputs = map_tree(lambda part: on_device(part, device), given)
        value = None if net.critic_head is None else net.value(*inputs).cpu().numpy()
        outputs = mask_outputs(net.step(*inputs)[0].cpu().numpy(), mask)
        return self._outlook_of(outputs, self.log_std(), value)

    def initial_carry(self, n: int) -> Carry:
        carry = {} if self.noise is None else self.noise.initial(n)
        if self.net.core is not None:
            carry["core"] = np.zeros((n, self.net.core.carry_width), np.float32)
        return carry

    @property
    def has_memory(self) -> bool:
        return self.net.core is not None

    def log_std(self) -> np.ndarray | None:
        net = self.net if self._host is None else self._host.module or self.net
        log_std = net.log_std
        return None if log_std is None else log_std.detach().cpu().numpy().copy()
