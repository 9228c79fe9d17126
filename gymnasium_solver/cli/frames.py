"""Render a frame of an environment, and save it as PNG."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.errors import EnvError

if TYPE_CHECKING:
    import numpy as np

STEPS = 15  # random steps before the frame is taken


def render_frame(
    env_id: str, env_kwargs: dict[str, Any] | None = None, seed: int = 1
) -> "tuple[np.ndarray | None, str]":
    """A frame (H, W, 3) a few random steps into an episode and the engine that rendered it, or None
    and the reason."""
    from gymnasium_solver.envs.make import make_vector_env
    from gymnasium_solver.envs.random_policy import RandomPolicy

    reason = "no engine renders it"
    # Gymnasium renders what EnvPool does not (toy text), if its packages are installed.
    for mode in ("auto", "sync"):
        try:
            env = make_vector_env(
                env_id, 1, env_kwargs=env_kwargs, vectorization_mode=mode, render_mode="rgb_array"
            )
        except EnvError as error:
            reason = _first_line(error)
            continue
        try:
            env.reset(seed)
            policy = RandomPolicy(env.action_space, 1, seed)
            for _ in range(STEPS):
                env.step(policy.act(env.action_mask))
            frame = env.render()
            if frame is not None and frame.ndim == 3:
                return frame, env.spec.engine
        except (EnvError, ImportError, RuntimeError, OSError) as error:
            reason = _first_line(error)
        finally:
            env.close()
    return None, reason


def save_png(frame: "np.ndarray", path: Path) -> None:
    """Write a frame as PNG, whatever the file's suffix."""
    from matplotlib import image

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        image.imsave(path, frame, format="png")
    except OSError as error:
        raise EnvError(f"--frame {path} cannot be written: {error.strerror or error}") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
