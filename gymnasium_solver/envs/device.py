"""Environments that live on a device: all copies are tensors, and no step waits for the host.

    class Coin(TorchEnv):                        # as a user writes it (docs/device_environments.md)
        observation_space, action_space = Box(-1, 1, (1,)), Discrete(2)
        max_episode_steps = 10

        def reset(self, n, rng): ...             # the states of n new episodes, tensors [n, ...]
        def step(self, state, actions, rng): ... # the states after a step, rewards, terminations
        def observe(self, state): ...            # observations [n, ...]

    envs = DeviceEnvs(Coin(torch.device("cuda")), n_envs=4096, seed=1)
    step = envs.step(actions)                    # a DeviceStep of tensors

`TorchEnv` has no autoreset and no time limit: these are made here, once for all. Autoreset is
SAME_STEP: every row is an env step, and all shapes are always the same, as CUDA graphs need. The
rest of the program sees the same environments through `engines/device.py`, in NumPy and with the
NEXT_STEP autoreset of envs/vector.py. A collector on a device steps `Copies`, which a
`TensorEngine` makes: `DeviceEnvs` of a TorchEnv, others in engines/jax.py and simulators.py.

Whatever happens depends on the state and on the generator only, and both are in `state()`: a resume
is exact without a journal.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gymnasium_solver.envs.vector import Engine
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.space_types import Space

State = dict[str, Tensor]  # tensors by name, each with one row for every copy
Outcome = tuple[State, Tensor, Tensor]
"""The states after a step, rewards [n] and whether the episodes terminated [n]."""
STATE, GENERATOR = "state.", "generator"  # in a saved state: prefix of the tensors, and the stream


class TorchEnv(ABC):
    """One environment as functions of many copies at once.

    The functions must not change the tensors that they are given, nor read numbers out of them
    (`.item()`, `if tensor`, boolean indexing): use `torch.where`."""

    observation_space: Space
    action_space: Space
    max_episode_steps: int | None = None  # episodes are truncated after this many steps
    reward_threshold: float | None = None  # mean return at which it counts as solved

    def __init__(self, device: torch.device):
        """Keyword arguments of a subclass are its env_kwargs."""
        self.device = device

    @abstractmethod
    def reset(self, n: int, rng: torch.Generator) -> State:
        """The states of n new episodes. `rng` is on the environment's device."""

    @abstractmethod
    def step(self, state: State, actions: Tensor, rng: torch.Generator) -> Outcome:
        """Actions [n, ...] are in the units of the action space, within its bounds."""

    @abstractmethod
    def observe(self, state: State) -> Tensor:
        """Observations [n, ...] of the states."""

    def uniform(
        self, n: int, low: Any, high: Any, rng: torch.Generator, width: int | None = None
    ) -> Tensor:
        """Random numbers [n] or [n, width] between these bounds."""
        shape = (n,) if width is None else (n, width)
        drawn = torch.rand(shape, generator=rng, device=self.device)
        return drawn * (high - low) + low


class DeviceStep(NamedTuple):
    """One step of all copies, as tensors."""

    obs: Tensor  # [N, ...]: what to act on next; where an episode ended, the first of the next one
    final_obs: Tensor
    """[N, ...]: what the step led to, the true final observation where an episode ended."""
    reward: Tensor  # float32 [N]
    terminated: Tensor  # bool [N]: the task ended
    truncated: Tensor
    """bool [N]: the time limit was reached. Both may be true."""


class Copies(ABC):
    """N copies of an environment as tensors, stepped together."""

    n_envs: int
    generator: torch.Generator
    """Of the environment where it is a TorchEnv, and of the policy's noise."""
    is_capturable = False  # whether a rollout may be a CUDA graph
    hides_ends = False
    """Whether the final observations of episodes that ended so far were not given."""

    @property
    @abstractmethod
    def obs(self) -> Tensor:
        """The newest observations."""

    def fresh(self, n_rows: int) -> list[State]:
        """What `step` needs to open new episodes, for this many steps."""
        return [{}] * n_rows

    @abstractmethod
    def step(self, actions: Tensor, fresh: State | None = None) -> DeviceStep:
        """Step all copies with actions in the units of the action space."""

    def begin(self) -> None:  # noqa: B027
        """Called before a rollout."""

    def settle(self) -> None:  # noqa: B027
        """Called after a rollout, when its rows are stored."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """All that the next steps depend on."""

    @abstractmethod
    def load_state(self, saved: Mapping[str, Any]) -> None:
        """Load what `state` returned, for as many copies on the same kind of device."""


class TensorEngine(Engine):
    """An engine whose environments can be tensors on a device of torch's."""

    def not_on(self, device: torch.device) -> str | None:
        """What keeps them from being on this device; None: nothing does."""
        return None

    @abstractmethod
    def on(self, device: torch.device, seed: int) -> Copies:
        """The same environments as tensors on a device, reset with this seed."""


class DeviceEnvs(Copies):
    """N copies of a TorchEnv.

    `step` works on new tensors; `settle` copies the last of them to where the first ones were,
    since a CUDA graph begins where it began before."""

    is_capturable = True

    def __init__(self, env: TorchEnv, n_envs: int, seed: int, most_steps: int | None = None):
        """`most_steps`: the time limit, in place of the environment's own."""
        self.env, self.n_envs = env, n_envs
        self.most_steps = most_steps or env.max_episode_steps
        self.generator = torch.Generator(env.device).manual_seed(seed)
        self._places = env.reset(n_envs, self.generator)
        self._check(self._places)
        self._lengths = torch.zeros(n_envs, dtype=torch.int32, device=env.device)
        self._now, self._lengths_now = self._places, self._lengths

    @property
    def obs(self) -> Tensor:
        return self.env.observe(self._now)

    def fresh(self, n_rows: int) -> list[State]:
        """The states of new episodes, drawn at once."""
        drawn = self.env.reset(n_rows * self.n_envs, self.generator)
        rows = {name: part.unflatten(0, (n_rows, -1)).unbind() for name, part in drawn.items()}
        return [{name: parts[t] for name, parts in rows.items()} for t in range(n_rows)]

    def step(self, actions: Tensor, fresh: State | None = None) -> DeviceStep:
        """`fresh`: the states of episodes that begin after this step, by default drawn now."""
        if fresh is None:
            (fresh,) = self.fresh(1)
        state, reward, terminated = self.env.step(self._now, actions, self.generator)
        lengths = self._lengths_now + 1
        truncated = torch.zeros_like(terminated)
        if self.most_steps is not None:
            truncated = lengths >= self.most_steps
        done = terminated | truncated
        final_obs = self.env.observe(state)
        self._now = chosen(done, fresh, state)
        self._lengths_now = lengths.masked_fill(done, 0)
        return DeviceStep(self.obs, final_obs, reward, terminated, truncated)

    def begin(self) -> None:
        self._now, self._lengths_now = self._places, self._lengths

    def settle(self) -> None:
        """Keep the newest states where they always are."""
        for name, place in self._places.items():
            place.copy_(self._now[name])
        self._lengths.copy_(self._lengths_now)
        self.begin()

    def state(self) -> dict[str, Tensor]:
        states = {f"{STATE}{name}": part for name, part in self._places.items()}
        return {**states, "lengths": self._lengths, GENERATOR: self.generator.get_state()}

    def load_state(self, saved: Mapping[str, Any]) -> None:
        own = self.state()
        given = {name: saved_part(saved, name, part.shape) for name, part in own.items()}
        self.generator.set_state(given.pop(GENERATOR))
        for name, part in given.items():
            own[name].copy_(part)
        self.begin()

    def _check(self, state: Any) -> None:
        n, reset = self.n_envs, f"{type(self.env).__name__}.reset"
        if not isinstance(state, dict) or not state:
            kind = type(state).__name__
            raise EnvError(f"{reset} returned {kind}, expected a dict of tensors.")
        for key, part in state.items():
            if not isinstance(part, Tensor) or part.shape[:1] != (n,):
                shape = [*part.shape] if isinstance(part, Tensor) else type(part).__name__
                wanted = f"a tensor [{n}, ...]"
                raise EnvError(f"{reset}({n}) returned {key}: {shape}, expected {wanted}.")


def saved_part(saved: Mapping[str, Any], name: str, shape: Sequence[int]) -> Tensor:
    """A part of a saved state; EnvError if it is not there in this shape."""
    part = saved.get(name)
    if part is None or tuple(part.shape) != tuple(shape):
        raise EnvError(
            f"the saved environments have no {name} of shape {[*shape]}. Restore with the n_envs "
            "and the class that were saved."
        )
    return torch.as_tensor(part)


def chosen(rows: Tensor, new: State, old: State) -> State:
    """The new states in these rows, the old ones in the others."""
    return {name: where_rows(rows, new[name], part) for name, part in old.items()}


def where_rows(rows: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(rows.view(-1, *[1] * (old.ndim - 1)), new, old)
