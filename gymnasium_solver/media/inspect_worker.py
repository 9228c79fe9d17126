"""The process that plays episodes for the web pages: torch and environments live here, not in the
server.

    python -m gymnasium_solver.media.inspect_worker RUNS_FOLDER

Each line on stdin is a job: {"id": 1, "op": "play", "run": ..., "checkpoint": ..., "seed": ...} or
{"id": 2, "op": "saliency", "run": ..., "episode": ..., "t": ...}; {"op": "stop", "id": 1} ends one.
Each line on stdout is {"id": 1, "started": {...}}, {"id": 1, "done": {...}} or {"id": 1, "error":
text, "kind": class of the error}. Jobs run one after another. It ends with its stdin. Whatever an
environment prints goes to stderr.
"""

import base64
import json
import os
import queue
import sys
import threading
from pathlib import Path
from typing import Any, TextIO

from gymnasium_solver.errors import ConfigError, GsolveError
from gymnasium_solver.media.inspect import MOST_STEPS, Ask, Branch, Studio
from gymnasium_solver.media.inspect_saliency import Reasons
from gymnasium_solver.runs.episodes import Episode, get_episode
from gymnasium_solver.runs.resolve import resolve_run

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
                ask_of(job),
                on_start=lambda one: self._tell(job, started=_brief(one)),
                should_stop=lambda: job.get("id") in self.stopped,
            )
            return _brief(episode)
        if job.get("op") == "saliency":
            return self._saliency(job)
        raise ConfigError(f"unknown job {job.get('op')!r}")

    def _saliency(self, job: Job) -> dict[str, Any]:
        run = resolve_run(str(job["run"]), self.root, allow_paths=False)
        episode = get_episode(run, str(job["episode"]))
        ask = ask_of({**job, "checkpoint": str(episode.facts["env_steps"])})
        told = self.reasons.at(
            episode,
            ask,
            int(job["t"]),
            str(job.get("method") or "gradcam"),
            str(job.get("target") or "action"),
        )
        if "png" in told:
            told["png"] = base64.b64encode(told["png"]).decode()
        return told


def ask_of(job: Job) -> Ask:
    checkpoint = job.get("checkpoint")
    branch = job.get("branch")
    return Ask(
        run=f"{job['run']}/{checkpoint}" if checkpoint else str(job["run"]),
        seed=job.get("seed", "test"),
        greedy=job.get("greedy"),
        most_steps=int(job.get("max_steps") or MOST_STEPS),
        branch=None
        if branch is None
        else Branch(str(branch["of"]), int(branch["at"]), branch.get("action")),
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
