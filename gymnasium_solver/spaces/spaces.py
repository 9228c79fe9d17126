"""What a policy must know of the spaces: how wide an encoded observation is, how actions map.

Observations: Box (flattened, but for images that go through convolutions; uint8 scaled to [0, 1])
and Discrete (one-hot).
Actions: Discrete and Box. A bounded Box is acted on in normalised units, [-1, 1] for
[low, high], so that one initial exploration width fits every env.
Spaces travel inside a checkpoint as JSON, so a policy loads without its environment's package.
"""

from typing import Any

import numpy as np
from gymnasium import spaces

from gymnasium_solver.errors import EnvError


def observation_width(space: spaces.Space) -> int:
    """Length of the encoded observation vector that enters the network."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.Box):
        return int(np.prod(space.shape, dtype=int))
    raise EnvError(
        f"observation space {space} is not supported; supported are Box and Discrete. "
        "Flatten it with a wrapper (env_wrappers)."
    )


def action_width(space: spaces.Space) -> int:
    """Number of outputs of the actor's head."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.Box):
        return int(np.prod(space.shape, dtype=int))
    raise EnvError(f"action space {space} is not supported; supported are Discrete and Box.")


class ActionMap:
    """From what the policy draws to what the environment takes."""

    def __init__(self, space: spaces.Space):
        self.space = space
        self.discrete = isinstance(space, spaces.Discrete)
        self.start = int(space.start) if isinstance(space, spaces.Discrete) else 0
        self.bounded = False
        if isinstance(space, spaces.Box):
            self.bounded = bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())
        if isinstance(space, spaces.Box) and self.bounded:
            self.middle = ((space.high + space.low) / 2).astype(np.float32)
            self.half_width = ((space.high - space.low) / 2).astype(np.float32)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """`actions`: class indices [N], or reals [N, A] with [-1, 1] as the bounds."""
        if self.discrete:
            return actions + self.start if self.start else actions
        shaped = actions.reshape(len(actions), *(self.space.shape or ()))
        if not self.bounded:
            return shaped
        return self.middle + self.half_width * np.clip(shaped, -1.0, 1.0)


def space_to_json(space: spaces.Space) -> dict[str, Any]:
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.Box):
        # Infinite bounds are written as null: JSON has no infinity. One that is the same all over,
        # as an image's, is written once.
        def finite(bound: np.ndarray) -> list[float | None]:
            flat = bound.reshape(-1)
            flat = flat[:1] if len(flat) and (flat == flat[0]).all() else flat
            return [float(x) if np.isfinite(x) else None for x in flat]

        return {
            "kind": "Box",
            "shape": list(space.shape),
            "dtype": str(space.dtype),
            "low": finite(space.low),
            "high": finite(space.high),
        }
    raise EnvError(f"space {space} cannot be saved; supported are Box and Discrete.")


def space_from_json(data: dict[str, Any]) -> spaces.Space:
    if data["kind"] == "Discrete":
        return spaces.Discrete(data["n"], start=data["start"])
    dtype = np.dtype(data["dtype"])

    def bound(values: list[float | None], missing: float) -> np.ndarray:
        filled = np.array([missing if x is None else x for x in values], dtype)
        return np.resize(filled, data["shape"])

    return spaces.Box(
        bound(data["low"], -np.inf), bound(data["high"], np.inf), tuple(data["shape"]), dtype.type
    )
