"""Tools that answer with images: learning curves, and frames of episodes."""

import base64
import io
import json
import sys
import threading
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.plots import choose_panels, draw, read_curves
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.serve.mcp.allowed import AgentDesk
from gymnasium_solver.serve.mcp.answers import Pictured
from gymnasium_solver.serve.mcp.commands import checked_overrides, output_of_argv
from gymnasium_solver.serve.mcp.read_tools import ComparedRuns
from gymnasium_solver.serve.questions import NO_FIELDS, Fields, Whole
from gymnasium_solver.serve.trainings import config_named

MOST_PANELS = 9
PLAY_TIMEOUT_S = 50.0  # clients give up after a minute
_drawing = threading.Lock()  # pyplot is not safe in threads


def plot(desk: AgentDesk, runs: ComparedRuns, metrics: Sequence[str] = ()) -> Pictured:
    """A PNG of learning curves over env steps: returns, or one panel per metric (a part of a
    name is enough). Several runs share the axes."""
    if len(metrics) > MOST_PANELS:
        raise RunError(f"{len(metrics)} metrics given, at most {MOST_PANELS} panels")
    curves = [read_curves(run) for run in runs]
    panels = choose_panels(curves, list(metrics) or None)
    buffer = io.BytesIO()
    with _drawing:
        draw(curves, panels, buffer)
    return Pictured({"runs": [c.id for c in curves], "panels": panels}, [buffer.getvalue()])


def play(
    desk: AgentDesk,
    target: str,
    episodes: Annotated[int, Whole(1, 20, clamps=True)] = 1,
    frames: Annotated[int, Whole(0, 16, clamps=True)] = 8,
    mode: Literal["trained", "random"] = "trained",
    actions: Literal["as_evaluated", "greedy", "sampled"] = "as_evaluated",
    seed: str = "test",
    max_steps: Annotated[int, Whole(1, 10_000, clamps=True)] = 1000,
    env_kwargs: Fields = NO_FIELDS,
    view: Literal["frame", "observation"] = "frame",
    keep: bool = False,
    episode: str = "",
) -> Pictured:
    """Play episodes and return a picture of frames in order, with returns and what the agent
    did at each frame. target: a run, RUN/@best, RUN/@last, RUN/<env_steps>, or a config
    (mode random). seed: test, val, train or a number. view observation: what the network
    sees, after all wrappers. keep: leave the episodes in the run, for the inspector of gsolve
    ui. episode: show one that is kept there, by its id or `worst`, instead of playing."""
    wanted: dict[str, Any] = {
        "episodes": episodes,
        "frames": frames,
        "greedy": {"as_evaluated": None, "greedy": True, "sampled": False}[actions],
        "seed": int(seed) if seed.isdecimal() else seed,
        "max_steps": max_steps,
        "env_kwargs": checked_overrides({"env_kwargs": env_kwargs}, desk.root)["env_kwargs"],
        "mode": mode,
        "view": view,
        "keep": keep,
        "episode": episode,
    }
    if mode == "trained":
        found = resolve_checkpoint(target, desk.root, allow_paths=False)
        wanted |= {"run": str(found.run.path.absolute()), "checkpoint": found.path.name}
    elif keep or episode:
        raise RunError("episodes of random actions are not kept: they belong to no run")
    else:
        wanted["config"] = config_named(target, desk.root)
    argv = [sys.executable, "-m", "gymnasium_solver.serve.mcp.play_process", json.dumps(wanted)]
    played = json.loads(output_of_argv(argv, "play", PLAY_TIMEOUT_S).splitlines()[-1])
    sheet = played.pop("sheet")
    return Pictured(played, [base64.b64decode(sheet)] if sheet else [])
