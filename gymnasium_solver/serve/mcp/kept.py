"""Episodes in the format of the inspector (runs/episodes.py) as `play` answers them.

`keep` plays by the inspector's own player and leaves the episodes in the run, where the web app
opens them; `episode` shows one that is there already. Both answer as if it had just been played.
"""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from gymnasium_solver.errors import RunError
from gymnasium_solver.media.inspect import Ask, Studio
from gymnasium_solver.runs.episodes import Episode, get_episode, list_episodes, worst_first
from gymnasium_solver.runs.run import Run

MOST_CHOICES = 6


def play_kept(run: Run, checkpoint: str, wanted: dict[str, Any]) -> list[Episode]:
    """Play and keep episodes; those after the first have the seeds after its own."""
    studio = Studio(run.path.parent)
    fields = {f"env_kwargs.{key}": value for key, value in wanted["env_kwargs"].items()}
    played: list[Episode] = []
    try:
        for index in range(wanted["episodes"]):
            seed = int(played[0].facts["seed"]) + index if played else wanted["seed"]
            ask = Ask(f"{run.id}/{checkpoint}", seed, wanted["greedy"], wanted["max_steps"],
                      env_kwargs=fields)  # fmt: skip
            played.append(studio.play(ask))
    finally:
        studio.close()
    return played


def find_kept(run: Run, name: str) -> Episode:
    """An episode by its id; `worst`: the one with the lowest return."""
    if name != "worst":
        return get_episode(run, name)
    found = [episode for episode in worst_first(list_episodes(run)) if episode.total is not None]
    if not found:
        raise RunError(f"{run.id} has no recorded episode; play(..., keep=true) makes one")
    return found[0]


def play_result(episodes: Sequence[Episode], n_frames: int) -> dict[str, Any]:
    """What `play` answers, without the sheet of frames."""
    first = episodes[0]
    results = [
        {"return": e.total, "steps": e.result.get("steps"), "end": _end(e)} for e in episodes
    ]
    returns = [e.total for e in episodes if e.total is not None]
    facts = first.facts
    return {
        "env": facts.get("env_id"),
        "agent": f"checkpoint at {facts.get('env_steps'):,} env steps",
        "greedy": facts.get("greedy"),
        "seed": facts.get("seed"),
        "episodes": results,
        "mean_return": float(np.mean(returns)) if returns else None,
        "note": facts.get("note") or facts.get("no_frames"),
        "kept": [episode.id for episode in episodes],
        "first_episode": _rows(first, steps_of(first, n_frames)),
    }


def _end(episode: Episode) -> str:
    ended = str(episode.result.get("ended") or episode.status)
    return "cut here" if ended == "cut" else ended


def steps_of(episode: Episode, n: int) -> list[int]:
    """Evenly spaced steps, the last one among them."""
    last = episode.n_rows - 1
    if n < 1 or last < 0:
        return []
    return sorted({round(i * last / max(1, n - 1)) for i in range(n)}) if n > 1 else [last]


def _rows(episode: Episode, steps: Sequence[int]) -> list[dict[str, Any]]:
    columns, info = episode.columns(), episode.info()
    names = episode.facts.get("action", {}).get("names") or []
    scores = columns.get("q_values", columns.get("probabilities"))
    rows = []
    for t in steps:
        row: dict[str, Any] = {"t": t, "return": float(columns["return"][t])}
        text = info[t].get("action") if t < len(info) else None
        if text is None:
            rows.append(row | {"action": "(the end)"})
            continue
        row["action"] = text
        if np.isfinite(columns["value"][t]):
            row["value"] = float(columns["value"][t])
        if scores is not None and scores.ndim == 2 and scores.shape[1] == len(names):
            top = np.argsort(-scores[t])[:MOST_CHOICES]
            row["choices"] = " ".join(
                f"{names[i].replace(' ', '_')}={scores[t][i]:.3g}" for i in top
            )
        rows.append(row)
    return rows


def pictures(
    episode: Episode, steps: Sequence[int], view: str
) -> list[tuple[int, float, np.ndarray]]:
    """(step, return so far, image) of the steps that have one."""
    name = "render" if view == "frame" else "net"
    known, so_far = episode.n_frames(name), episode.columns()["return"]
    return [
        (t, float(so_far[t]), np.asarray(Image.open(io.BytesIO(episode.frame(name, t)))))
        for t in steps
        if t < known
    ]
