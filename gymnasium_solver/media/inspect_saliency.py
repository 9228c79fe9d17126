"""Why the agent decided as it did at a step of a recorded episode: heat maps, or bars.

    why = Reasons(studio).at(episode, t=12, method="gradcam", target="action")
    why["png"]              # bytes: the network's images under the map; or
    why["contributions"]    # gradient x input of each component

An episode is played again, without frames, up to the step that is asked for; the observations are
checked against the record. What was played stays in memory for the next question.
"""

import io
from typing import Any

import numpy as np
from PIL import Image

from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.media.episodes import Player
from gymnasium_solver.media.explain_look import METHODS, View, look, methods_of, target_of
from gymnasium_solver.media.explain_pictures import (
    bounds_of,
    image_of,
    overlay,
    signed_overlay,
    stretched,
    unit,
)
from gymnasium_solver.media.explain_subject import Trace, TracingActor
from gymnasium_solver.media.inspect import Ask, Studio, digest_of
from gymnasium_solver.media.inspect_frames import BETWEEN, GAP
from gymnasium_solver.media.labels import features
from gymnasium_solver.media.stage import Stage, open_stage
from gymnasium_solver.runs.episodes import Episode
from gymnasium_solver.training.threads import limited_threads, pick_threads


class Reasons:
    """Answers for one episode at a time."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self._replay: _Replay | None = None

    def at(
        self, episode: Episode, ask: Ask, t: int, method: str = "gradcam", target: str = "action"
    ) -> dict[str, Any]:
        """`ask` names the checkpoint that the episode was played by."""
        (chosen,) = methods_of([method])[:1] if method in METHODS else methods_of([method])
        target_of(target)
        scene = self.studio.scene(ask)
        with limited_threads(pick_threads(scene.found.config)):
            if self._replay is None or self._replay.episode.path != episode.path:
                self.close()
                stage = open_stage(scene.found, 1, agent=scene.agent, must_draw=False)
                self._replay = _Replay(episode, scene.agent, stage)
            trace = self._replay.trace(t)
            names = [feature.name for feature in features(scene.stage)]
            view = look(scene.agent, trace, (chosen,), target, names=names)
        told = {"what": view.what, "number": view.number, "method": chosen, "step": t}
        if view.images:
            return {**told, "png": heat_png(view, chosen)}
        return {**told, "contributions": view.contributions}

    def close(self) -> None:
        if self._replay is not None:
            self._replay.stage.close()
            self._replay = None


class _Replay:
    def __init__(self, episode: Episode, agent: Any, stage: Stage) -> None:
        self.episode, self.stage = episode, _without_frames(stage)
        self.actor = TracingActor(agent, greedy=bool(episode.facts["greedy"]))
        self.player = Player(self.stage, self.actor, int(episode.facts["seed"]))
        self.traces: list[Trace] = []

    def trace(self, t: int) -> Trace:
        actions, digests = self.episode.actions(), self.episode.digests()
        if not 0 <= t < len(actions):
            raise ConfigError(
                f"step {t}: {self.episode.id} has decisions at 0 to {len(actions) - 1}."
            )
        while len(self.traces) <= t:
            at = len(self.traces)
            if at:
                self.player.step(actions[at - 1])
            moment = self.player.moment()
            if at < len(digests) and digest_of(moment.obs) != digests[at]:
                raise EnvError(
                    f"{self.episode.id}: the episode cannot be repeated: the observation at step "
                    f"{at} differs. Was the environment or its version changed?"
                )
            assert self.actor.trace is not None
            self.traces.append(self.actor.trace)
        return self.traces[t]


def _without_frames(stage: Stage) -> Stage:
    import dataclasses

    return dataclasses.replace(stage, draws=False)


def heat_png(view: View, method: str) -> bytes:
    """The images of the network under their maps, laid out as the network's view is."""
    rows = []
    for image in view.images:
        height, width = image.planes.shape[1:]
        strip = np.full((height, len(image.groups) * (width + GAP) - GAP, 3), BETWEEN, np.uint8)
        bounds = bounds_of(image.planes)
        for i, group in enumerate(image.groups):
            picture = image_of(image.planes, group, bounds)
            if method == "gradient":
                assert image.gradient is not None
                shown = overlay(picture, unit(image.gradient[group.planes].max(axis=0)))
            elif method == "occlusion":
                assert image.occlusion is not None
                shown = signed_overlay(picture, unit(image.occlusion)[i])
            else:
                shown = overlay(picture, stretched(image.cams[method]))
            strip[:, i * (width + GAP) : i * (width + GAP) + width] = shown
        rows.append(strip)
    total = max(strip.shape[1] for strip in rows)
    padded = [
        np.pad(strip, ((0, GAP), (0, total - strip.shape[1]), (0, 0)), constant_values=BETWEEN)
        for strip in rows
    ]
    file = io.BytesIO()
    Image.fromarray(np.concatenate(padded)[:-GAP]).save(file, "PNG")
    return file.getvalue()
