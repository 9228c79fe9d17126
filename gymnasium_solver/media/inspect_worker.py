"""The process that plays episodes for the web pages: torch and environments live here, not in the
server.

    python -m gymnasium_solver.media.inspect_worker RUNS_FOLDER

Each line on stdin is a job: {"id": 1, "op": "play", "run": ..., "checkpoint": ..., "seed": ...} or
{"id": 2, "op": "saliency", "run": ..., "episode": ..., "t": ...}; {"op": "stop", "id": 1} ends one.
Each line on stdout is {"id": 1, "phase": text}, {"id": 1, "started": {...}}, {"id": 1, "done":
{...}} or {"id": 1, "error": text, "kind": class of the error}. With "worst_of": n, a play records
the one of n episodes that has the lowest return. Jobs run one after another. It ends with its
stdin. Whatever an environment prints goes to stderr.
"""

import base64
import json
import os
import queue
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from PIL import Image

from gymnasium_solver.errors import ConfigError, GsolveError
from gymnasium_solver.media import drawing as draw
from gymnasium_solver.media.explain_step import look, methods_of, target_of
from gymnasium_solver.media.inspect import MOST_STEPS, Ask, Branch, Script, Studio, encoded
from gymnasium_solver.media.labels import features
from gymnasium_solver.media.player import Moment, Player, Scene
from gymnasium_solver.media.stage import open_stage
from gymnasium_solver.runs.episodes import Episode, get_episode
from gymnasium_solver.runs.resolve import resolve_run
from gymnasium_solver.training.threads import limited_threads, pick_threads
from gymnasium_solver.tree import map_tree

Job = dict[str, Any]


class Worker:
    def __init__(self, root: Path, out: TextIO) -> None:
        self.root, self.out = root, out
        self.studio = Studio(root)
        self.reasons = Reasons(self.studio)
        self.jobs: queue.Queue[Job | None] = queue.Queue()
        self.stopped: set[Any] = set()

    def read(self, lines: TextIO) -> None:
        """Runs in a thread of its own, so that a stop reaches the job that is running."""
        for line in lines:
            try:
                job = json.loads(line)
            except ValueError:
                continue
            if job.get("op") == "stop":
                self.stopped.add(job.get("id"))
            else:
                self.jobs.put(job)
        os._exit(0)  # the server is gone; an environment may be in the midst of a long step

    def run(self) -> None:
        while (job := self.jobs.get()) is not None:
            try:
                self._tell(job, done=self._do(job))
            except GsolveError as error:
                self._tell(job, error=str(error), kind=type(error).__name__)
            except Exception as error:  # the next job may still work
                self._tell(job, error=f"{type(error).__name__}: {error}", kind="Error")

    def _tell(self, job: Job, **answer: Any) -> None:
        self.out.write(json.dumps({"id": job.get("id"), **answer}) + "\n")
        self.out.flush()

    def _do(self, job: Job) -> dict[str, Any]:
        if job.get("op") == "play":
            episode = self.studio.play(
                self._prepared(job),
                on_start=lambda one: self._tell(job, started=_brief(one)),
                should_stop=lambda: job.get("id") in self.stopped,
            )
            return _brief(episode)
        if job.get("op") == "saliency":
            return self._saliency(job)
        raise ConfigError(f"unknown job {job.get('op')!r}")

    def _prepared(self, job: Job) -> Ask:
        """What to play, with the agent and the environment open."""
        ask = ask_of(job)
        self._tell(job, phase="loading the agent and building the environment")
        self.studio.scene(ask)
        if (n := int(job.get("worst_of") or 1)) > 1:
            self._tell(job, phase=f"playing {n} episodes to find the worst")
            ask = replace(ask, seed=self.studio.worst_seed(ask, n))
        self._tell(job, phase="drawing the first frame")
        return ask

    def _saliency(self, job: Job) -> dict[str, Any]:
        run = resolve_run(str(job["run"]), self.root, allow_paths=False)
        episode = get_episode(run, str(job["episode"]))
        ask = ask_of({**job, "checkpoint": str(episode.facts["env_steps"])})
        how = [str(job.get("method") or "gradcam"), str(job.get("target") or "action")]
        told = self.reasons.at(episode, ask, int(job["t"]), *how)
        if "png" in told:
            told["png"] = base64.b64encode(told["png"]).decode()
        return told


class Reasons:
    """Why the agent decided as it did at a step of a recorded episode: heat maps, or bars.

    An episode is played again, without frames, up to that step, and checked against the record.
    What was played stays in memory for the next question about the same episode."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self._script = Script()
        self._player: Player | None = None
        self._moments: list[Moment] = []

    def at(
        self, episode: Episode, ask: Ask, t: int, method: str = "gradcam", target: str = "action"
    ) -> dict[str, Any]:
        """`ask` names the checkpoint that the episode was played by. The answer has `png`, the
        network's images under the map, or `contributions`, gradient x input of each component."""
        chosen = methods_of([method])[0]
        target_of(target)
        scene = self.studio.scene(ask)
        assert scene.agent is not None
        with limited_threads(pick_threads(scene.found.config)):
            moment = self._moment(episode, scene, t)
            names = [feature.name for feature in features(scene.stage)]
            view = look(scene.agent, moment, (chosen,), target, names=names)
        told = {"what": view.what, "number": view.number, "method": chosen, "step": t}
        if not view.images:
            return {**told, "contributions": view.contributions}
        # The images of the network under their maps, laid out as the network's view is.
        heat = draw.mosaic([image.pictures(chosen) for image in view.images])[0]
        return {**told, "png": encoded(Image.fromarray(heat), "png")}

    def _moment(self, episode: Episode, scene: Scene, t: int) -> Moment:
        if self._script.base is None or self._script.base.path != episode.path:
            self.close()
            self._script, facts = Script(episode, list(episode.actions())), episode.facts
            stage = open_stage(scene.found, 1, agent=scene.agent, must_draw=False)
            hidden = replace(scene, stage=replace(stage, draws=False))
            self._player = hidden.player(int(facts["seed"]), bool(facts["greedy"]), explains=True)
        last = len(self._script.actions) - 1
        if not 0 <= t <= last:
            raise ConfigError(f"step {t}: {episode.id} has decisions at 0 to {last}.")
        assert self._player is not None
        while (at := len(self._moments)) <= t:
            if at:
                self._player.step(self._script.action(at - 1))
            moment = self._player.moment()
            self._script.check(moment)
            self._moments.append(replace(moment, obs=map_tree(np.array, moment.obs)))
        return self._moments[t]

    def close(self) -> None:
        if self._player is not None:
            self._player.stage.close()
        self._script, self._player, self._moments = Script(), None, []


def ask_of(job: Job) -> Ask:
    checkpoint, branch = job.get("checkpoint"), job.get("branch")
    if branch is not None:
        branch = Branch(str(branch["of"]), int(branch["at"]), branch.get("action"))
    return Ask(
        run=f"{job['run']}/{checkpoint}" if checkpoint else str(job["run"]),
        seed=job.get("seed", "test"),
        greedy=job.get("greedy"),
        most_steps=int(job.get("max_steps") or MOST_STEPS),
        branch=branch,
        trust=bool(job.get("trust")),
    )


def _brief(episode: Episode) -> dict[str, Any]:
    return {"run": episode.facts["run"], "episode": episode.id, **episode.result}


def main() -> None:
    # Environments print; the answers keep the real stdout for themselves.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker(Path(sys.argv[1]), out)
    threading.Thread(target=worker.read, args=(sys.stdin,), daemon=True).start()
    worker._tell({"id": None}, ready=os.getpid())
    worker.run()


if __name__ == "__main__":
    main()
