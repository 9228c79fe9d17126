"""`python -m gymnasium_solver.serve.mcp.playing JSON`: plays episodes in a process of its own and
prints what happened as JSON, with a sheet of frames. A renderer that crashes ends only this
process."""

import base64
import io
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.media.actors import Actor, PolicyActor, RandomActor
from gymnasium_solver.media.agents import trained_agent
from gymnasium_solver.media.episodes import Moment, Player
from gymnasium_solver.media.labels import action_names, action_text
from gymnasium_solver.media.pictures import fit, grid, rgb, with_caption
from gymnasium_solver.media.stage import Stage, open_stage
from gymnasium_solver.runs.files import jsonable
from gymnasium_solver.runs.run import Run
from gymnasium_solver.serve.mcp import kept
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.training.score import pick_seed
from gymnasium_solver.training.targets import ENV_FIELDS, Found, find_run, with_fields
from gymnasium_solver.training.threads import limited_threads, pick_threads

TILE = (240, 180)
COLUMNS = 4
MOST_CHOICES = 6


class Sampled:
    """Keeps about evenly spaced moments of an episode whose length is not known."""

    def __init__(self, n: int) -> None:
        self.n, self.stride = n, 1
        self.kept: list[Moment] = []
        self.last: Moment | None = None

    def add(self, moment: Moment) -> None:
        self.last = moment
        if self.n and moment.t % self.stride == 0:
            self.kept.append(moment)
            if len(self.kept) >= 2 * self.n + 2:
                self.kept, self.stride = self.kept[::2], self.stride * 2

    def moments(self) -> list[Moment]:
        if not self.n or self.last is None:
            return []
        rest = [moment for moment in self.kept if moment is not self.last]
        step = max(1.0, len(rest) / max(1, self.n - 1))
        chosen = [rest[int(i * step)] for i in range(min(self.n - 1, len(rest)))]
        return [*chosen, self.last]


def main(words: Sequence[str]) -> int:
    wanted = json.loads(words[0])
    # Environments print to stdout; only the last line of it is ours.
    wire = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        print(json.dumps(jsonable(play(wanted))), file=wire, flush=True)
    except GsolveError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def play(wanted: dict[str, Any]) -> dict[str, Any]:
    if wanted["episode"] or wanted["keep"]:
        return _kept(wanted)
    found = _find(wanted)
    with limited_threads(pick_threads(found.config)):
        agent, env_steps = trained_agent(found) if found.run else (None, 0)
        stage = open_stage(found, agent=agent, must_draw=False)
        try:
            greedy = found.config.eval_deterministic if wanted["greedy"] is None else None
            greedy = wanted["greedy"] if greedy is None else greedy
            actor: Actor = RandomActor(stage.env.action_space)
            if agent is not None:
                actor = PolicyActor(agent, greedy=bool(greedy), explains=True)
            seed = pick_seed(found.config, found.run, env_steps, wanted["seed"])
            data = _play(stage, Player(stage, actor, seed), wanted)
        finally:
            stage.close()
    who = f"checkpoint at {env_steps:,} env steps" if found.run else "random actions"
    return {"env": found.config.env_id, "agent": who, "greedy": bool(greedy), "seed": seed} | data


def _kept(wanted: dict[str, Any]) -> dict[str, Any]:
    """Episodes that stay in the run, or one that is there."""
    run = Run(Path(wanted["run"]))
    if wanted["episode"]:
        episodes = [kept.find_kept(run, wanted["episode"])]
    else:
        episodes = kept.play_kept(run, wanted["checkpoint"], wanted)
    steps = kept.steps_of(episodes[0], wanted["frames"])
    tiles = kept.pictures(episodes[0], steps, wanted["view"])
    return kept.play_result(episodes, wanted["frames"]) | {"sheet": _tiled(tiles)}


def _find(wanted: dict[str, Any]) -> Found:
    if wanted["mode"] == "trained":
        run = Path(wanted["run"])
        found = find_run(f"{run}/{wanted['checkpoint']}", run.parent)
    else:
        found = Found(load_config(wanted["config"]))
    fields = {f"env_kwargs.{key}": value for key, value in wanted["env_kwargs"].items()}
    return with_fields(found, fields, ENV_FIELDS)


def _play(stage: Stage, player: Player, wanted: dict[str, Any]) -> dict[str, Any]:
    episodes: list[dict[str, Any]] = []
    sampled = Sampled(0)
    for index in range(wanted["episodes"]):
        seen = Sampled(wanted["frames"] if index == 0 else 0)
        for moment in player.episode(wanted["max_steps"]):
            seen.add(moment)
        if index == 0:
            sampled = seen
        last = seen.last
        assert last is not None
        ended = "terminated" if last.terminated else "truncated" if last.truncated else "cut here"
        episodes.append({"return": last.episode_return, "steps": last.t, "end": ended})
        if not last.is_over:
            break
    returns = [episode["return"] for episode in episodes]
    names = action_names(stage)
    moments = sampled.moments()
    return {
        "episodes": episodes,
        "mean_return": float(np.mean(returns)),
        "note": stage.note or stage.no_frames,
        "first_episode": [_step_row(stage, names, moment) for moment in moments],
        "sheet": _sheet(moments, wanted["view"]),
    }


def _step_row(stage: Stage, names: Sequence[str], moment: Moment) -> dict[str, Any]:
    """One line about a moment: what was seen, decided and expected."""
    row: dict[str, Any] = {"t": moment.t, "return": moment.episode_return}
    decision = moment.decision
    if decision is None:
        return row | {"action": "(the end)"}
    row["action"] = action_text(stage, names, decision.action)
    if decision.value is not None:
        row["value"] = decision.value
    scores = decision.probabilities if decision.q_values is None else decision.q_values
    if scores is not None and scores.ndim == 1 and len(scores) == len(names):
        top = np.argsort(-scores)[:MOST_CHOICES]
        row["choices"] = " ".join(f"{names[i].replace(' ', '_')}={scores[i]:.3g}" for i in top)
    return row


def _sheet(moments: Sequence[Moment], view: str) -> str | None:
    """The frames as one PNG, in base64; None if nothing is drawn."""
    pictures = [(m, m.frame if view == "frame" else _observation(m)) for m in moments]
    return _tiled([(m.t, m.episode_return, image) for m, image in pictures if image is not None])


def _tiled(pictures: Sequence[tuple[int, float, np.ndarray]]) -> str | None:
    """(step, return so far, image) side by side."""
    tiles = [
        with_caption(fit(rgb(image), *TILE), [f"t {t}   return {so_far:.5g}"], 12)
        for t, so_far, image in pictures
    ]
    if not tiles:
        return None
    columns = min(COLUMNS, len(tiles))
    canvas = grid(tiles, math.ceil(len(tiles) / columns), columns)
    buffer = io.BytesIO()
    Image.fromarray(canvas).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def _observation(moment: Moment) -> np.ndarray | None:
    """The planes that the network gets, side by side; None if it gets no image."""
    planes = None if moment.decision is None else moment.decision.seen
    images = [array for array in (planes or {}).values() if array.ndim == 3]
    if not images:
        return None
    flat = np.concatenate(list(images[0]), axis=1).astype(np.float64)
    low, high = float(flat.min()), float(flat.max())
    return rgb((flat - low) / (high - low or 1.0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
