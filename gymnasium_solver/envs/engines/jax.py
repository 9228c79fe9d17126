"""JAX environments under the contract: all of them in one jitted step.

    make_vector_env("Brax/ant", 1024)                  # Brax
    make_vector_env("Gymnax/CartPole-v1", 1024)        # gymnax
    make_vector_env("Gymnax/my_module:MyEnv", 1024)    # a class with gymnax's methods

Such an environment is two pure functions, reset(key) and step(key, state, action). `JaxEngine` maps
them over the rows, keeps the states on the device, and opens new episodes where the contract asks
for it, all inside one compiled function; rows that need no reset cost none. Arrays are handed over
by DLPack: on the CPU without a copy (read-only, as a Step's arrays are to be treated anyway), from
an accelerator by one transfer. The first step compiles, for seconds to minutes.

A training that can stay on the device takes `JaxCopies`: torch tensors on the device that both use,
by DLPack and without a copy, with the autoreset of envs/device.py (SAME_STEP) and the time limit in
the same compiled function. JAX launches it by itself, so a rollout is no CUDA graph; the host does
not wait for it either, since DLPack orders the streams of the two.

The time limit is made here, so that it is a truncation: gymnax itself reports it as a termination.
env_kwargs go to the environment's constructor, for gymnax those that are its parameters to them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.config.code import import_code
from gymnasium_solver.envs.device import (
    GENERATOR,
    STATE,
    Copies,
    DeviceStep,
    State,
    TensorEngine,
    saved_part,
)
from gymnasium_solver.envs.spec import EnvRequest, EnvSpec
from gymnasium_solver.envs.suites.own import imported
from gymnasium_solver.envs.vector import Info, RawStep, Space, VectorEnv
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import Obs, flatten_space

HINT = 'JAX environments are an extra: pip install "gymnasium-solver[jax]"'
BRAX_LIMIT = 1000  # Brax's own episode length
_NEVER = 2**30
jax: Any = imported("jax", "", HINT)
jnp: Any = imported("jax.numpy", "", HINT)
PLATFORMS = {"cpu": ("cpu",), "cuda": ("gpu", "cuda")}  # torch's name of a device -> JAX's


class Functions(NamedTuple):
    """An environment as functions of one row."""

    reset: Callable[[Any], tuple[Any, Any]]  # key -> obs, state
    step: Callable[[Any, Any, Any], tuple[Any, Any, Any, Any]]
    """key, state, action -> obs, state, reward, terminated."""
    observation: Space
    action: Space


class JaxEngine(TensorEngine):
    """N rows of a functional environment, stepped together on JAX's default device. The time limit
    is in frames, as elsewhere, where an action is held for several."""

    def __init__(
        self, request: EnvRequest, functions: Functions, suite: str, limit: int | None
    ) -> None:
        n_envs, why = request.n_envs, "all envs in one compiled JAX step"
        spec = EnvSpec(request.env_id, "jax", why, limit, suite=suite)
        self._read = flatten_space(functions.observation, spec.env_id)
        super().__init__(n_envs, self._read.space, functions.action, spec)
        frame_skip, _ = request.frame_skip or (1, 1)
        if frame_skip > 1:
            functions = functions._replace(step=_held(functions.step, frame_skip))
        self._most_steps = None if limit is None else -(-limit // frame_skip)
        self._functions = functions
        self._begin, self._advance = _batched(functions, n_envs)
        self._state: Any = None
        self._key: Any = None

    def not_on(self, device: torch.device) -> str | None:
        is_there = jax.default_backend() in PLATFORMS.get(device.type, ())
        return None if is_there else f"device: {device.type} (JAX is not there)"

    def on(self, device: torch.device, seed: int) -> "JaxCopies":
        return JaxCopies(
            self._functions, self.n_envs, seed, self._most_steps, self.observation_space, device
        )

    def _reset(self, seed: int) -> tuple[Obs, Info]:
        key = jax.random.key(int(np.random.SeedSequence(seed).generate_state(1)[0]))
        obs, self._state, self._key = self._begin(key)
        return self._to_numpy(obs), {}

    def _step(self, actions: np.ndarray, is_reset: np.ndarray, n_reset: int) -> RawStep:
        obs, self._state, self._key, reward, terminated = self._advance(
            self._key, self._state, actions, is_reset
        )
        truncated = np.zeros(self.n_envs, np.bool_)
        if self._most_steps is not None:
            truncated = (self._length + 1 >= self._most_steps) & ~is_reset
        return self._to_numpy(obs), to_numpy(reward), to_numpy(terminated), truncated, {}

    def _to_numpy(self, obs: Any) -> Obs:
        return self._read(jax.tree.map(to_numpy, obs))

    def close(self) -> None:
        self._state = self._key = None
        super().close()


def _batched(functions: Functions, n_envs: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The two compiled functions of all rows."""

    def begin(key: Any) -> Any:
        key, inner = jax.random.split(key)
        obs, state = jax.vmap(functions.reset)(jax.random.split(inner, n_envs))
        return obs, settled(state), key

    def advance(key: Any, state: Any, actions: Any, is_reset: Any) -> Any:
        key, for_steps, for_resets = jax.random.split(key, 3)
        keys = jax.random.split(for_steps, n_envs)
        obs, state, reward, terminated = jax.vmap(functions.step)(keys, state, actions)

        def opened(stepped: Any) -> Any:
            fresh = jax.vmap(functions.reset)(jax.random.split(for_resets, n_envs))
            return jax.tree.map(lambda new, old: _where(is_reset, new, old), fresh, stepped)

        obs, state = jax.lax.cond(is_reset.any(), opened, lambda stepped: stepped, (obs, state))
        reward = jnp.where(is_reset, 0.0, reward.astype(jnp.float32))
        return obs, settled(state), key, reward, terminated.astype(bool) & ~is_reset

    def _where(mask: Any, new: Any, old: Any) -> Any:
        return jnp.where(mask.reshape(-1, *[1] * (old.ndim - 1)), new, old).astype(old.dtype)

    return jax.jit(begin), jax.jit(advance)


def _held(step: Callable[..., Any], n_frames: int) -> Callable[..., Any]:
    """A step of one row that holds its action for several frames and adds up their rewards. An
    episode that ends within stops there."""

    def held(key: Any, state: Any, action: Any) -> Any:
        def frame(_: Any, carry: Any) -> Any:
            obs, state, reward, ended, key = carry
            key, inner = jax.random.split(key)
            stepped = step(inner, state, action)
            old = obs, state, jnp.zeros_like(stepped[2]), ended
            obs, state, more, over = jax.tree.map(
                lambda before, after: jnp.where(ended, before, after).astype(before.dtype),
                old,
                (*stepped[:3], stepped[3].astype(bool)),
            )
            return obs, state, reward + more, over, key

        key, inner = jax.random.split(key)
        obs, state, reward, ended = step(inner, state, action)
        first = obs, state, reward, ended.astype(bool), key
        return jax.lax.fori_loop(1, n_frames, frame, first)[:4]

    return held


def to_numpy(array: Any) -> np.ndarray:
    """A JAX array as NumPy's: the same memory on the CPU, else a copy."""
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError):  # on another device
        return np.asarray(array)


# -- as tensors -----------------------------------------------------------------------------------


class JaxCopies(Copies):
    """N rows of a functional environment."""

    def __init__(
        self,
        functions: Functions,
        n_envs: int,
        seed: int,
        most_steps: int | None,
        space: Space,
        device: torch.device,
    ):
        self.n_envs = n_envs
        self.generator = torch.Generator(device).manual_seed(seed)  # of the policy's noise
        begin, self._advance = _compiled(functions, n_envs, most_steps, space)
        self._carry: Any
        self._obs: Any
        # Arrays that come by DLPack are bound to their device. So is the key, hence all that
        # follows from it: else the second step would be compiled again.
        self._obs, self._carry = begin(_bound(jax.random.key(seed % 2**32)))

    @property
    def obs(self) -> Tensor:
        return torch.from_dlpack(self._obs)

    def step(self, actions: Tensor, fresh: State | None = None) -> DeviceStep:
        if not actions.is_floating_point():
            actions = actions.int()  # JAX has no int64 by default
        given = jax.dlpack.from_dlpack(actions.contiguous())
        found, self._carry = self._advance(self._carry, given)
        self._obs = found[0]
        return DeviceStep(*map(torch.from_dlpack, found))

    def state(self) -> dict[str, Tensor]:
        leaves = self._leaves()
        states = {
            f"{STATE}{i}": torch.from_dlpack(_plain(leaf)).clone() for i, leaf in enumerate(leaves)
        }
        return {**states, GENERATOR: self.generator.get_state()}

    def load_state(self, saved: Mapping[str, Any]) -> None:
        leaves = []
        for i, own in enumerate(self._leaves()):
            data = jnp.asarray(saved_part(saved, f"{STATE}{i}", _plain(own).shape).numpy())
            leaves.append(jax.random.wrap_key_data(data) if is_key(own) else data)
        inside = jax.tree.structure((self._obs, self._carry))
        self._obs, self._carry = _bound(jax.tree.unflatten(inside, leaves))
        self.generator.set_state(torch.as_tensor(saved[GENERATOR]))

    def _leaves(self) -> list[Any]:
        return jax.tree.leaves((self._obs, self._carry))


def settled(state: Any) -> Any:
    """A state whose arrays have types of their own. A number of Python's makes an array of a weak
    type, which the next step would change: the step would be compiled for both."""
    return jax.tree.map(lambda x: x if is_key(x) else jnp.asarray(x, x.dtype), state)


def is_key(leaf: Any) -> bool:
    """Whether an array holds random keys."""
    return bool(jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _bound(arrays: Any) -> Any:
    return jax.device_put(arrays, jax.devices()[0])


def _plain(leaf: Any) -> Any:
    """A leaf as numbers: a random key is none."""
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def _compiled(functions: Functions, n_envs: int, most_steps: int | None, space: Space) -> Any:
    """The first observations and the carry of a key; a step of all rows.

    The carry holds the beginning of the next episode of each row. All of them are drawn anew when
    a row needs its second one, which takes at least an episode: of a thousand rows some end in
    nearly every step, and a reset of physics takes a tenth of the time of a step."""

    def opened(key: Any) -> Any:
        obs, state = jax.vmap(functions.reset)(jax.random.split(key, n_envs))
        return obs.astype(space.dtype), settled(state)

    def begin(key: Any) -> Any:
        key, *inner = jax.random.split(key, 3)
        (obs, state), ready = map(opened, inner)
        return obs, (key, state, jnp.zeros(n_envs, jnp.int32), ready, jnp.zeros(n_envs, bool))

    def advance(carry: Any, actions: Any) -> Any:
        key, state, lengths, ready, is_taken = carry
        key, for_steps, for_resets = jax.random.split(key, 3)
        keys = jax.random.split(for_steps, n_envs)
        final_obs, state, reward, terminated = jax.vmap(functions.step)(keys, state, actions)
        final_obs, terminated, lengths = final_obs.astype(space.dtype), terminated != 0, lengths + 1
        truncated = lengths >= (jnp.iinfo(jnp.int32).max if most_steps is None else most_steps)
        done = terminated | truncated
        ready, is_taken = jax.lax.cond(
            (done & is_taken).any(),
            lambda: (opened(for_resets), jnp.zeros_like(is_taken)),
            lambda: (ready, is_taken),
        )

        def where(new: Any, old: Any) -> Any:
            # A state that begins as whole numbers and goes on as others becomes of the wider type.
            return jnp.where(done.reshape(-1, *[1] * (old.ndim - 1)), new, old)

        obs, state = jax.tree.map(where, ready, (final_obs, state))
        found = obs, final_obs, reward.astype(jnp.float32), terminated, truncated
        return found, (key, settled(state), jnp.where(done, 0, lengths), ready, is_taken | done)

    return jax.jit(begin), jax.jit(advance)


# -- Brax and gymnax ------------------------------------------------------------------------------


def make_brax(request: EnvRequest) -> VectorEnv:
    """Build one of Brax's environments; env_kwargs: `backend` and others of its constructor."""
    env_id, env_kwargs = request.env_id, request.env_kwargs
    envs = imported("brax.envs", env_id, HINT)
    name = env_id.removeprefix("Brax/")
    if name not in envs._envs:
        known = ", ".join(f"Brax/{known}" for known in sorted(envs._envs))
        raise EnvError(f"Unknown environment {env_id!r}. There are {known}.")
    try:
        env = envs.get_environment(name, **env_kwargs)
    except (TypeError, ValueError) as error:
        raise EnvError(f"{env_id}: Brax refuses env_kwargs {env_kwargs}: {error}") from error

    def reset(key: Any) -> tuple[Any, Any]:
        state = env.reset(key)
        return state.obs, state

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any]:
        state = env.step(state, action)
        return state.obs, state, state.reward, state.done

    functions = Functions(
        reset,
        step,
        _brax_observation(_observed(env)),
        gymnasium.spaces.Box(-1.0, 1.0, (env.action_size,), np.float32),
    )
    return JaxEngine(request, functions, "brax", request.max_episode_steps or BRAX_LIMIT)


def _observed(env: Any) -> Any:
    """Shapes of the observations, without computing any: Brax's own `observation_size` resets an
    environment operation by operation, in 20 seconds."""
    return jax.eval_shape(env.reset, jax.random.key(0)).obs


def _brax_observation(obs: Any) -> Space:
    """A vector, or a Dict of vectors where Brax names several."""
    if isinstance(obs, Mapping):
        parts = [(str(name), _brax_observation(part)) for name, part in obs.items()]
        return gymnasium.spaces.Dict(parts)
    return gymnasium.spaces.Box(-np.inf, np.inf, tuple(obs.shape), np.float32)


def make_gymnax(request: EnvRequest) -> VectorEnv:
    """Build one of gymnax's environments, or a class of the user's with the same methods."""
    env_id = request.env_id
    env, params = _gymnax_env(env_id, request.env_kwargs)
    limit = request.max_episode_steps or getattr(params, "max_steps_in_episode", None)
    if hasattr(params, "max_steps_in_episode"):
        params = params.replace(max_steps_in_episode=_NEVER)  # cut in JaxEngine, as a truncation

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any]:
        obs, state, reward, done, *_ = env.step_env(key, state, action, params)
        return obs, state, reward, done

    functions = Functions(
        lambda key: env.reset_env(key, params),
        step,
        _space(env.observation_space(params), env_id),
        _space(env.action_space(params), env_id),
    )
    return JaxEngine(request, functions, "gymnax", limit)


def _gymnax_env(env_id: str, env_kwargs: dict[str, Any]) -> tuple[Any, Any]:
    name = env_id.removeprefix("Gymnax/")
    module, _, attribute = name.partition(":")
    gymnax: Any = None if attribute else imported("gymnax", env_id, HINT)
    try:
        if attribute:
            env = getattr(import_code(module), attribute)()
            params = env.default_params
        else:
            env, params = gymnax.make(name)
    except (ImportError, AttributeError, ValueError, KeyError) as error:
        known = "" if attribute else f" Gymnax/ takes {', '.join(gymnax.registered_envs)}."
        raise EnvError(f"Unknown environment {env_id!r}: {error}.{known}") from error
    unknown = [key for key in env_kwargs if not hasattr(params, key)]
    if unknown:
        raise EnvError(f"{env_id}: unknown env_kwargs key {unknown[0]!r}. It takes: {params}.")
    return env, params.replace(**env_kwargs) if env_kwargs else params


def _space(space: Any, env_id: str) -> Space:
    """One of gymnax's spaces as Gymnasium's."""
    inner = getattr(space, "spaces", None)
    if isinstance(inner, Mapping):
        return gymnasium.spaces.Dict([(key, _space(part, env_id)) for key, part in inner.items()])
    if isinstance(inner, list | tuple):
        return gymnasium.spaces.Tuple([_space(part, env_id) for part in inner])
    if hasattr(space, "n"):
        return gymnasium.spaces.Discrete(int(space.n))
    if not hasattr(space, "low"):
        raise EnvError(f"{env_id}: {type(space).__name__} spaces of gymnax are not supported.")
    low, high = (np.broadcast_to(np.float32(end), space.shape) for end in (space.low, space.high))
    return gymnasium.spaces.Box(low, high, dtype=np.float32)
