"""One environment, described: facts from the environment itself on top of those in its config, and
a frame. Works for an id without a config too. `gsolve envs show ID` prints it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium_solver.config.spec import Spec
from gymnasium_solver.envs.catalogue import EnvEntry, space_text
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.random_policy import RandomPolicy
from gymnasium_solver.errors import EnvError, first_line

if TYPE_CHECKING:
    import numpy as np

HUGE = 1e30  # larger bounds count as unbounded
FRAME_STEPS = 15  # random steps before a frame is taken


def env_facts(env_id: str, entry: EnvEntry | None) -> tuple[dict[str, Any], Spec]:
    """Facts by name, and what is known about observations and actions. An environment with a config
    that cannot be made here has a `problem`."""
    facts = entry.to_dict() if entry else {"env_id": env_id, "configs": [], "spec": {}}
    try:
        env = make_vector_env(env_id, 2)  # a single env may have another engine
    except EnvError as error:
        if entry is None:
            raise
        return facts | {"problem": str(error)}, entry.spec
    try:
        spec = env.spec
        threshold = facts.get("threshold")
        facts |= {
            "suite": facts.get("suite") or spec.suite,
            "observation_space": str(env.observation_space),
            "action_space": str(env.action_space),
            "observations": space_text(env.observation_space),
            "actions": space_text(env.action_space),
            "threshold": spec.reward_threshold if threshold is None else threshold,
            "max_episode_steps": spec.max_episode_steps,
            "engine": spec.engine,
            "engine_reason": spec.engine_reason,
        }
        return facts, entry.spec if entry else _spec_of_spaces(env)
    finally:
        env.close()


def _spec_of_spaces(env: Any) -> Spec:
    """A description from the spaces alone: bounds, generic names."""
    blocks = {}
    for name, space in (("observation", env.observation_space), ("action", env.action_space)):
        if getattr(space, "low", None) is None or len(space.shape) != 1:
            continue
        pairs = [
            [float(end) if abs(end) < HUGE else None for end in ends]
            for ends in zip(space.low, space.high, strict=True)
        ]
        names = [f"{name}_{i}" for i in range(len(pairs))]
        if name == "action":
            blocks["action_space"] = {"labels": names, "range": pairs}
        else:
            parts = [{"name": n, "range": pair} for n, pair in zip(names, pairs, strict=True)]
            blocks["observation_space"] = {"components": parts}
    return Spec.model_validate(blocks)


def render_frame(
    env_id: str, env_kwargs: dict[str, Any] | None = None, seed: int = 1
) -> "tuple[np.ndarray | None, str]":
    """A frame (H, W, 3) a few random steps into an episode and the engine that rendered it, or None
    and the reason."""
    reason = "no engine renders it"
    # Gymnasium renders what EnvPool does not (toy text), if its packages are installed.
    for mode in ("auto", "sync"):
        try:
            env = make_vector_env(
                env_id, 1, env_kwargs=env_kwargs, vectorization_mode=mode, render_mode="rgb_array"
            )
        except EnvError as error:
            reason = first_line(error)
            continue
        try:
            env.reset(seed)
            policy = RandomPolicy(env.action_space, 1, seed)
            for _ in range(FRAME_STEPS):
                env.step(policy.act(env.action_mask))
            frame = env.render()
            if frame is not None and frame.ndim == 3:
                return frame, env.spec.engine
        except (EnvError, ImportError, RuntimeError, OSError) as error:
            reason = first_line(error)
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
