"""JAX environments as tensors of torch on the device that both use, by DLPack and without a copy.

    envs = JaxCopies(functions, n_envs=1024, seed=1, most_steps=500, space=space, device=device)
    step = envs.step(actions)                    # a DeviceStep, as of envs/device.py

The step of all rows, the time limit and the autoreset (SAME_STEP) are one compiled function. JAX
launches it by itself, so a rollout is no CUDA graph; the host does not wait for it either, since
DLPack orders the streams of the two.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gymnasium_solver.envs.device import GENERATOR, STATE, Copies, DeviceStep, State
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.space_types import Space

PLATFORMS = {"cpu": ("cpu",), "cuda": ("gpu", "cuda")}
"""torch's name of a device -> JAX's."""


class Functions(NamedTuple):
    """An environment as functions of one row."""

    reset: Callable[[Any], tuple[Any, Any]]
    """key -> obs, state."""
    step: Callable[[Any, Any, Any], tuple[Any, Any, Any, Any]]
    """key, state, action -> obs, state, reward, terminated."""
    observation: Space
    action: Space


def runs_on(device: torch.device) -> bool:
    """Whether JAX computes on this device of torch's."""
    import jax

    return jax.default_backend() in PLATFORMS.get(device.type, ())


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
        import jax

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
        import jax

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
        import jax
        import jax.numpy as jnp

        leaves = []
        for i, own in enumerate(self._leaves()):
            given = saved.get(f"{STATE}{i}")
            if given is None or tuple(given.shape) != _plain(own).shape:
                raise EnvError(
                    f"the saved environments have no {STATE}{i} of shape {[*_plain(own).shape]}."
                )
            data = jnp.asarray(torch.as_tensor(given).numpy())
            leaves.append(jax.random.wrap_key_data(data) if is_key(own) else data)
        inside = jax.tree.structure((self._obs, self._carry))
        self._obs, self._carry = _bound(jax.tree.unflatten(inside, leaves))
        self.generator.set_state(torch.as_tensor(saved[GENERATOR]))

    def _leaves(self) -> list[Any]:
        import jax

        return jax.tree.leaves((self._obs, self._carry))


def settled(state: Any) -> Any:
    """A state whose arrays have types of their own. A number of Python's makes an array of a weak
    type, which the next step would change: the step would be compiled for both."""
    import jax
    import jax.numpy as jnp

    return jax.tree.map(lambda x: x if is_key(x) else jnp.asarray(x, x.dtype), state)


def is_key(leaf: Any) -> bool:
    """Whether an array holds random keys."""
    import jax

    return bool(jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _bound(arrays: Any) -> Any:
    import jax

    return jax.device_put(arrays, jax.devices()[0])


def _plain(leaf: Any) -> Any:
    """A leaf as numbers: a random key is none."""
    import jax

    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def _compiled(functions: Functions, n_envs: int, most_steps: int | None, space: Space) -> Any:
    """The first observations and the carry of a key; a step of all rows.

    The carry holds the beginning of the next episode of each row. All of them are drawn anew when
    a row needs its second one, which takes at least an episode: of a thousand rows some end in
    nearly every step, and a reset of physics takes a tenth of the time of a step."""
    import jax
    import jax.numpy as jnp

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
