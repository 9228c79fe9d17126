"""`python -m gymnasium_solver.serve.mcp.play_process JSON`: plays episodes in a process of its own
and prints what happened as JSON: a line for each episode, then one of all with a sheet of frames. A
renderer that crashes ends only this process. After `seconds` of playing it stops where it is.

With `keep` the inspector's own player records the episodes in the run (runs/episodes.py), where the
web app opens them; `episode` shows one that is there already. Both answer as if it had just been
played.
"""

import base64
import io
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.errors import GsolveError, RunError
from gymnasium_solver.media.drawing import fit, grid, rgb, with_caption
from gymnasium_solver.media.inspect import Ask, Studio, net_picture
from gymnasium_solver.media.labels import action_names, action_text
from gymnasium_solver.media.player import Moment, Player, open_scene
from gymnasium_solver.media.stage import Stage
from gymnasium_solver.runs.episodes import Episode, get_episode, list_episodes, worst_first
from gymnasium_solver.runs.files import jsonable, picked
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.training.targets import ENV_FIELDS, Found, find_run, with_fields

TILE = (240, 180)
COLUMNS = 4
MOST_CHOICES = 6


class Shot(NamedTuple):
    """One step of an episode that is shown."""

    t: int
    episode_return: float
    action: str | None  # none at the end
    value: float | None
    scores: np.ndarray | None  # the Q value or the probability of each action
    image: np.ndarray | None


def main(words: Sequence[str]) -> int:
    wanted = json.loads(words[0])
    # Environments print to stdout; only the last line of it is ours.
    wire = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(value: dict[str, Any]) -> None:
        print(json.dumps(jsonable(value)), file=wire, flush=True)

    try:
        if wanted["episode"] or wanted["keep"]:
            tell(kept(wanted, tell))
        else:
            tell(played(wanted, tell))
    except GsolveError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def answer(
    facts: dict[str, Any],
    results: list[dict[str, Any]],
    notes: dict[str, Any],
    shots: Sequence[Shot],
    names: list[str],
) -> dict[str, Any]:
    returns = [result["return"] for result in results if result["return"] is not None]
    return {
        **facts,
        "episodes": results,
        "mean_return": float(np.mean(returns)) if returns else None,
        **notes,
        "first_episode": [row_of(shot, names) for shot in shots],
        "sheet": sheet_of(shots),
    }


def row_of(shot: Shot, names: list[str]) -> dict[str, Any]:
    """One line about a step: what was seen, decided and expected."""
    row: dict[str, Any] = {"t": shot.t, "return": shot.episode_return}
    if shot.action is None:
        return row | {"action": "(the end)"}
    row["action"] = shot.action
    if shot.value is not None and math.isfinite(shot.value):
        row["value"] = shot.value
    scores = shot.scores
    if scores is not None and scores.ndim == 1 and len(scores) == len(names):
        top = np.argsort(-scores)[:MOST_CHOICES]
        row["choices"] = " ".join(f"{names[i].replace(' ', '_')}={scores[i]:.3g}" for i in top)
    return row


def sheet_of(shots: Sequence[Shot]) -> str | None:
    """The frames side by side as one PNG, in base64; None if nothing is drawn."""
    tiles = [
        with_caption(fit(rgb(s.image), *TILE), [f"t {s.t}   return {s.episode_return:.5g}"], 12)
        for s in shots
        if s.image is not None
    ]
    if not tiles:
        return None
    columns = min(COLUMNS, len(tiles))
    buffer = io.BytesIO()
    canvas = grid(tiles, math.ceil(len(tiles) / columns), columns)
    Image.fromarray(canvas).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


# --- episodes that are not kept


Tell = Callable[[dict[str, Any]], None]


def played(wanted: dict[str, Any], tell: Tell) -> dict[str, Any]:
    if wanted["mode"] == "trained":
        run = Path(wanted["run"])
        found = find_run(f"{run}/{wanted['checkpoint']}", run.parent)
    else:
        found = Found(load_config(wanted["config"]))
    found = with_fields(found, wanted["env_kwargs"], ENV_FIELDS)
    with open_scene(found, is_random=found.run is None, must_draw=False) as scene:
        stage, agent = scene.stage, scene.agent
        greedy = scene.found.is_greedy(wanted["greedy"])
        player = scene.player(wanted["seed"], greedy, explains=True)
        results, moments = _play(player, wanted, tell)
        who = f"checkpoint at {scene.env_steps:,} env steps" if found.run else "random actions"
        facts = {"env": found.config.env_id, "agent": who, "greedy": greedy, "seed": player.seed}
        notes = {"note": stage.note or stage.no_frames or _note(results, wanted)}
        shots = [_shot(stage, agent, moment, wanted["view"]) for moment in moments]
        return answer(facts, results, notes, shots, action_names(stage))


def _play(
    player: Player, wanted: dict[str, Any], tell: Tell
) -> tuple[list[dict[str, Any]], list[Moment]]:
    """The result of each episode, and moments of the first one."""
    deadline = time.monotonic() + wanted["seconds"]
    results: list[dict[str, Any]] = []
    shown: list[Moment] = []
    for index in range(wanted["episodes"]):
        n = wanted["frames"] if index == 0 else 0
        seen = _sampled(player.episode(wanted["max_steps"]), max(n, 1), deadline)
        shown, last = seen if n else shown, seen[-1]
        ended = "terminated" if last.terminated else "truncated" if last.truncated else "cut here"
        results.append({"return": last.episode_return, "steps": last.t, "end": ended})
        tell(results[-1])
        if not last.is_over or time.monotonic() > deadline:
            break
    return results, shown


def _note(results: Sequence[Any], wanted: dict[str, Any]) -> str | None:
    n, asked = len(results), wanted["episodes"]
    late = f"{n} of {asked} episodes in the time given; a larger `seconds` gives more"
    return late if n < asked else None


def _sampled(moments: Iterable[Moment], n: int, deadline: float) -> list[Moment]:
    """About evenly spaced moments of an episode whose length is not known, and the last one. It
    ends there when the time is over."""
    kept: list[Moment] = []
    stride = 1
    for last in moments:
        if last.t % stride == 0:
            kept.append(last)
        if len(kept) >= 2 * n + 2:
            kept, stride = kept[::2], stride * 2
        if time.monotonic() > deadline:
            break
    rest = [moment for moment in kept if moment is not last]
    step = max(1.0, len(rest) / max(1, n - 1))
    return [*(rest[int(i * step)] for i in range(min(n - 1, len(rest)))), last]


def _shot(stage: Stage, agent: Agent | None, moment: Moment, view: str) -> Shot:
    decision, names = moment.decision, action_names(stage)
    image = moment.frame
    if view != "frame":
        seen = net_picture(agent, decision) if agent is not None and decision is not None else None
        image = None if seen is None else seen[0]
    if decision is None:
        return Shot(moment.t, moment.episode_return, None, None, None, image)
    scores = decision.probabilities if decision.q_values is None else decision.q_values
    action = action_text(stage, names, decision.action)
    return Shot(moment.t, moment.episode_return, action, decision.value, scores, image)


# --- episodes in the format of the inspector


def kept(wanted: dict[str, Any], tell: Tell) -> dict[str, Any]:
    run = Run(Path(wanted["run"]))
    if wanted["episode"]:
        episodes = [_find(run, wanted["episode"])]
    else:
        episodes = _record(run, wanted, tell)
    ends = [str(e.result.get("ended") or e.status).replace("cut", "cut here") for e in episodes]
    results = [
        {"return": e.total, "steps": e.result.get("steps"), "end": end}
        for e, end in zip(episodes, ends, strict=True)
    ]
    first = episodes[0].facts
    facts = picked(first, "env=env_id greedy seed")
    facts["agent"] = f"checkpoint at {first.get('env_steps'):,} env steps"
    late = None if wanted["episode"] else _note(episodes, wanted)
    notes = {"note": first.get("note") or first.get("no_frames") or late}
    notes["kept"] = [episode.id for episode in episodes]
    shots = _kept_shots(episodes[0], wanted["frames"], wanted["view"])
    return answer(facts, results, notes, shots, first.get("action", {}).get("names") or [])


def _record(run: Run, wanted: dict[str, Any], tell: Tell) -> list[Episode]:
    """Play and keep episodes; those after the first have the seeds after its own."""
    deadline = time.monotonic() + wanted["seconds"]
    studio = Studio(run.path.parent)
    episodes: list[Episode] = []
    with closing(studio):
        for index in range(wanted["episodes"]):
            seed = int(episodes[0].facts["seed"]) + index if episodes else wanted["seed"]
            ask = Ask(f"{run.id}/{wanted['checkpoint']}", seed, wanted["greedy"],
                      wanted["max_steps"], env_kwargs=wanted["env_kwargs"])  # fmt: skip
            episodes.append(studio.play(ask))
            tell({"kept": episodes[-1].id, "return": episodes[-1].total})
            if time.monotonic() > deadline:
                break
    return episodes


def _find(run: Run, name: str) -> Episode:
    """An episode by its id; `worst`: the one with the lowest return."""
    if name != "worst":
        return get_episode(run, name)
    found = [episode for episode in worst_first(list_episodes(run)) if episode.total is not None]
    if not found:
        raise RunError(f"{run.id} has no recorded episode; play(..., keep=true) makes one")
    return found[0]


def _kept_shots(episode: Episode, n: int, view: str) -> list[Shot]:
    """Evenly spaced steps, the last one among them."""
    last = episode.n_rows - 1
    if n < 1 or last < 0:
        return []
    steps = sorted({round(i * last / (n - 1)) for i in range(n)}) if n > 1 else [last]
    columns, info = episode.columns(), episode.info()
    frames = "render" if view == "frame" else "net"
    scores = columns.get("q_values", columns.get("probabilities"))
    n_frames = episode.n_frames(frames)
    return [
        Shot(
            t,
            float(columns["return"][t]),
            info[t].get("action") if t < len(info) else None,
            float(columns["value"][t]),
            None if scores is None else scores[t],
            np.asarray(Image.open(io.BytesIO(episode.frame(frames, t)))) if t < n_frames else None,
        )
        for t in steps
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
