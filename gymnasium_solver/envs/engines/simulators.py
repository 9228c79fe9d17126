"""Simulators that step all copies as tensors: the API of Isaac Lab and ManiSkill.

    make_vector_env("Torch/my_envs:pick_cube", 512)    # a function that makes one

    def pick_cube(num_envs, device, **env_kwargs):      # in my_envs.py
        env = gym.make("PickCube-v1", num_envs=num_envs, obs_mode="state", **env_kwargs)
        return ManiSkillVectorEnv(env)

docs/device_environments.md#simulators has the API and what is taken from it. Isaac Lab hides the
final observation: the last one before the end stands for it.

On the host (evaluations, other algorithms) a new episode begins one row later (envs/vector.py). The
copies that have begun one step too early are reset again, where the API can reset single copies.
"""

import inspect
from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.envs.device import Copies, DeviceStep, State, TensorEngine, where_rows
from gymnasium_solver.envs.env_bugs import explained
from gymnasium_solver.envs.spec import EnvRequest, EnvSpec
from gymnasium_solver.envs.suites.own import refuse_unknown
from gymnasium_solver.envs.vector import Info, RawStep
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import Obs, flatten_space
from gymnasium_solver.tree import leaves_of, map_tree

POLICY = "policy"  # Isaac Lab's name of the observations that the actor sees
FINAL = ("final_observation", "final_obs")  # in info: Gymnasium's names, old and new
ATTRIBUTES = ("num_envs", "single_observation_space", "single_action_space", "reset", "step")
ALL_COPIES = "the simulator steps all envs"


class Simulator(TensorEngine):
    """One simulator, on a GPU where there is one. It is made once: many allow no second one."""

    def __init__(self, request: EnvRequest, make: Callable[..., Any]):
        env_id = request.env_id
        self._device = torch.device("cpu")
        if torch.cuda.is_available():
            self._device = torch.device("cuda", torch.cuda.current_device())
        self._env = _made(request, make, self._device)
        for name in ATTRIBUTES:
            if _attribute(self._env, name) is None:
                kind = type(self._env).__name__
                raise EnvError(
                    f"{env_id}: {kind} has no {name}, which the API of Isaac Lab and ManiSkill has "
                    "(docs/device_environments.md#simulators)."
                )
        limit = _limit(self._env)
        n = int(_attribute(self._env, "num_envs"))
        if n != request.n_envs:
            raise EnvError(f"{env_id}: {request.n_envs} copies were asked for, it has {n}.")
        if request.max_episode_steps not in (None, limit):
            raise EnvError(
                f"{env_id}: max_episode_steps is {limit}, which the simulator decides. Give it "
                f"another limit in its own settings (env_kwargs) and remove the field."
            )
        self._reset_rows = _row_resetter(self._env)
        notes = () if self._reset_rows else (_LATE.format(env_id),)
        spec = EnvSpec(env_id, "torch", ALL_COPIES, limit, suite="other", notes=notes)
        self._read = flatten_space(_chosen(_attribute(self._env, ATTRIBUTES[1])), env_id)
        super().__init__(n, self._read.space, _attribute(self._env, ATTRIBUTES[2]), spec)
        self._copies: SimulatedCopies | None = None

    def not_on(self, device: torch.device) -> str | None:
        own = self._device.type
        return None if device.type == own else f"device: {device.type} (the simulator is on {own})"

    def on(self, device: torch.device, seed: int) -> "SimulatedCopies":
        return SimulatedCopies(self._env, self.n_envs, self._device, seed, self.spec.env_id)

    def _reset(self, seed: int) -> tuple[Obs, Info]:
        own = int(np.random.SeedSequence(seed).generate_state(1)[0]) >> 1
        self._copies = self.on(self._device, own)
        return self._on_host(self._copies.tree), {}

    def _step(self, actions: np.ndarray, is_reset: np.ndarray, n_reset: int) -> RawStep:
        assert self._copies is not None
        given = torch.from_numpy(np.ascontiguousarray(actions)).to(self._device)
        step = self._copies.step(given)
        late = torch.from_numpy(is_reset).to(self._device)
        if n_reset and self._reset_rows is not None:
            self._copies.tree = kept(_chosen(self._reset_rows(late.nonzero().squeeze(1))))
        obs = where(late, self._copies.tree, step.final_obs)
        reward, *ends = (column.cpu().numpy() for column in step[2:])
        reward[is_reset] = 0.0
        terminated, truncated = (end & ~is_reset for end in ends)
        return self._on_host(obs), reward, terminated, truncated, {}

    def _on_host(self, obs: Any) -> Obs:
        return self._read(map_tree(lambda part: part.cpu().numpy(), obs))

    def close(self) -> None:
        self._copies = None
        if not self._closed and hasattr(self._env, "close"):
            self._env.close()
        super().close()


_LATE = (
    "{} cannot reset single copies, so in evaluations an episode after a copy's first lacks its "
    "first step"
)


class SimulatedCopies(Copies):
    def __init__(self, env: Any, n_envs: int, device: torch.device, seed: int, env_id: str):
        self.env, self.n_envs, self.env_id = env, n_envs, env_id
        self.generator = torch.Generator(device).manual_seed(seed)
        self.tree = kept(_chosen(env.reset(seed=seed % 2**31)[0]))
        self._is_checked = False
        self.hides_ends = True  # until one is given

    @property
    def obs(self) -> Tensor:
        assert isinstance(self.tree, Tensor)  # dicts go through the host
        return self.tree

    def step(self, actions: Tensor, fresh: State | None = None) -> DeviceStep:
        obs, reward, terminated, truncated, info = self.env.step(actions)
        if not self._is_checked:
            self._check(reward, terminated, truncated)
        terminated, truncated = terminated.bool().clone(), truncated.bool().clone()
        final = next((info[name] for name in FINAL if info.get(name) is not None), None)
        self.hides_ends = self.hides_ends and final is None
        now, last = kept(_chosen(obs)), self.tree if final is None else kept(_chosen(final))
        self.tree = now
        final_obs = where(terminated | truncated, last, now)
        return DeviceStep(now, final_obs, reward.float().clone(), terminated, truncated)

    def _check(self, *columns: Any) -> None:
        for name, column in zip(("reward", "terminated", "truncated"), columns, strict=True):
            is_tensor = isinstance(column, Tensor)
            if not is_tensor or column.shape != (self.n_envs,):
                got = f"a tensor {[*column.shape]}" if is_tensor else type(column).__name__
                wanted = f"a tensor [{self.n_envs}]"
                raise EnvError(
                    f"{self.env_id}: step() returned as {name} {got}, expected {wanted}."
                )
        self._is_checked = True

    def state(self) -> dict[str, Tensor]:
        return {}

    def load_state(self, saved: Mapping[str, Any]) -> None:
        raise EnvError(f"{self.env_id}: the state of a simulator cannot be saved.")


def kept(obs: Any) -> Any:
    """Observations that the simulator does not overwrite, float32 unless they are images."""
    return map_tree(
        lambda part: part.to(torch.float32 if part.is_floating_point() else part.dtype, copy=True),
        obs,
    )


def where(rows: Tensor, new: Any, old: Any) -> Any:
    """Of two trees of tensors the new one in these rows, the old one in the others."""
    parts = iter(leaves_of(new))
    return map_tree(lambda part: where_rows(rows, next(parts), part), old)


def _chosen(obs: Any) -> Any:
    """The policy's observations, of Isaac Lab's groups or their space."""
    inner = getattr(obs, "spaces", obs)
    return inner[POLICY] if isinstance(inner, Mapping) and POLICY in inner else obs


def _made(request: EnvRequest, make: Callable[..., Any], device: torch.device) -> Any:
    """The environment that the function makes; `device` is passed if the function takes it."""
    parameters = inspect.signature(make).parameters
    own = {"num_envs": request.n_envs, "device": str(device)}
    given = {name: value for name, value in own.items() if name in parameters}
    if "num_envs" not in given:
        raise EnvError(
            f"{request.env_id} takes no num_envs. Expected a TorchEnv, or a function (num_envs, "
            "device, ...) that makes a simulator (docs/device_environments.md#simulators)."
        )
    check_kwargs(request, make, given)
    with explained(f"{request.env_id}: {make.__name__}(...) raised"):
        return make(**given, **request.env_kwargs)


def check_kwargs(request: EnvRequest, make: Callable[..., Any], own: Container[str]) -> None:
    """EnvError if a class or function does not take the env_kwargs; `own`: what it is given
    otherwise."""
    parameters = inspect.signature(make).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    refuse_unknown(request, [name for name in parameters if name not in own])


def _attribute(env: Any, name: str) -> Any:
    """An attribute, also of an environment inside Gymnasium's wrappers."""
    found = getattr(env, name, None)
    return getattr(getattr(env, "unwrapped", None), name, None) if found is None else found


def _limit(env: Any) -> int | None:
    """The time limit: Isaac Lab's attribute, or that of a registered environment."""
    found = _attribute(env, "max_episode_length")
    if found is None:
        found = getattr(_attribute(env, "spec"), "max_episode_steps", None)
    return None if found is None else int(found)


def _row_resetter(env: Any) -> Callable[[Tensor], Any] | None:
    """A function that resets these copies and returns the observations of all, as Isaac Lab or
    ManiSkill name them; None if there is none."""
    inner = getattr(env, "unwrapped", env)
    if "env_ids" in inspect.signature(inner.reset).parameters:
        return lambda rows: inner.reset(env_ids=rows)[0]
    if hasattr(inner, "elapsed_steps"):  # ManiSkill's; others reset all copies whatever the options
        return lambda rows: env.reset(options={"env_idx": rows})[0]
    return None
