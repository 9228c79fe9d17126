"""Render a frame of an environment, save it as PNG, or show it in the terminal."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.errors import EnvError

if TYPE_CHECKING:
    import numpy as np
    from rich.text import Text

STEPS = 15  # random steps before the frame is taken
HALF = "▀"  # its foreground is the upper pixel, its background the lower one


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


def half_blocks(frame: "np.ndarray", columns: int, rows: int) -> "Text":
    """The frame in at most `columns` x `rows` characters, each two pixels high."""
    from rich.text import Text

    small = shrink(frame, columns, 2 * rows)
    picture = Text()
    for y in range(0, len(small) - 1, 2):
        for upper, lower in zip(small[y], small[y + 1], strict=True):
            picture.append(HALF, f"{_hex(upper)} on {_hex(lower)}")
        picture.append("\n")
    return picture


def shrink(frame: "np.ndarray", width: int, height: int) -> "np.ndarray":
    """Area means with the frame's aspect ratio, no larger than width x height."""
    import numpy as np

    scale = max(frame.shape[1] / width, frame.shape[0] / height, 1.0)
    wide, high = max(1, int(frame.shape[1] / scale)), max(2, int(frame.shape[0] / scale))
    y_cuts = np.linspace(0, frame.shape[0], high + 1).astype(int)[:-1]
    x_cuts = np.linspace(0, frame.shape[1], wide + 1).astype(int)[:-1]
    sums = np.add.reduceat(np.add.reduceat(frame.astype(np.int64), y_cuts, 0), x_cuts, 1)
    areas = np.outer(np.diff([*y_cuts, frame.shape[0]]), np.diff([*x_cuts, frame.shape[1]]))
    return (sums / areas[..., None]).astype(np.uint8)


def _hex(pixel: Any) -> str:
    return "#{:02x}{:02x}{:02x}".format(*(int(value) for value in pixel))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
