"""Collectors as actors on a Ray cluster, existing (RAY_ADDRESS) or local.

An actor has two threads: one takes weights while the other makes rollouts. Ray restarts nothing: a
lost actor is replaced by the learner, on any node that has room.
"""

import math
import os
from contextlib import suppress
from typing import Any

from gymnasium_solver.errors import EnvError, GsolveError
from gymnasium_solver.training.collectors.handle import CollectorLost, Handle
from gymnasium_solver.training.collectors.messages import Message

WEIGHTS, ROLLOUTS = "weights", "rollouts"  # the two threads
START_S = 300.0  # an actor that has no room on the cluster waits for it


class Actor:
    """What runs on the cluster. Built by the first call, in the thread that also steps the envs."""

    def __init__(self, fields: dict[str, Any], arrays: dict[str, Any]) -> None:
        self._start = Message(fields, arrays)
        self._worker: Any = None
        self._early: Message | None = None

    def ready(self) -> tuple[dict[str, Any], dict[str, Any]]:
        from gymnasium_solver.training.collectors.worker import Worker

        try:
            import torch

            torch.set_num_threads(1)
            self._worker = Worker(self._start)
        except GsolveError as error:
            return {"kind": "error", "text": str(error)}, {}
        if self._early is not None:
            self._worker.hear(self._early)
        return {"kind": "ready"}, {}

    def hear(self, fields: dict[str, Any], arrays: dict[str, Any]) -> None:
        message = Message(fields, arrays)
        if self._worker is None:
            self._early = message
        else:
            self._worker.hear(message)

    def rollout(self, j: int) -> tuple[dict[str, Any], dict[str, Any]]:
        try:
            message: Message = self._worker.rollout(j)
        except GsolveError as error:
            return {"kind": "error", "text": str(error)}, {}
        return message.fields, message.arrays


class RayCollector:
    def __init__(self, ray: Any, actor_class: Any, start: Message, max_staleness: int) -> None:
        self._ray, self._ahead = ray, max_staleness
        self._actor = actor_class.remote(start.fields, start.arrays)
        self._rollouts: dict[int, Any] = {}
        self._next = start.fields["round"]
        self._ready = self._actor.ready.options(concurrency_group=ROLLOUTS).remote()

    def wait_ready(self) -> Message:
        return self._get(self._ready, START_S)

    def send(self, message: Message) -> None:
        hear = self._actor.hear.options(concurrency_group=WEIGHTS)
        hear.remote(message.fields, message.arrays)

    def take(self, j: int) -> Message:
        while self._next <= j + self._ahead:
            rollout = self._actor.rollout.options(concurrency_group=ROLLOUTS)
            self._rollouts[self._next] = rollout.remote(self._next)
            self._next += 1
        return self._get(self._rollouts.pop(j))

    def close(self) -> None:
        with suppress(Exception):  # it may be gone already
            self._ray.kill(self._actor)

    def _get(self, ref: Any, timeout_s: float | None = None) -> Message:
        try:
            fields, arrays = self._ray.get(ref, timeout=timeout_s)
        except self._ray.exceptions.GetTimeoutError:
            self.close()
            raise EnvError(
                f"collectors: the Ray cluster gave a collector no CPU within {START_S:g} s. Add "
                "nodes, or use fewer collectors, or a smaller cpus in the block."
            ) from None
        except self._ray.exceptions.RayTaskError as error:  # a bug, not a loss
            raise error.as_instanceof_cause() from None
        except self._ray.exceptions.RayError as error:
            self.close()
            raise CollectorLost(type(error).__name__) from None
        return Message(fields, arrays)


class RayCollectors:
    """The cluster. `cpus`: what each collector reserves."""

    def __init__(self, n: int, max_staleness: int, cpus: float) -> None:
        try:
            import ray
        except ImportError:
            raise EnvError(
                "collectors: Ray is not installed: pip install 'gymnasium-solver[ray]', or use "
                "backend: process"
            ) from None
        self._ray: Any = ray
        self._max_staleness = max_staleness
        self._is_own = not ray.is_initialized()
        if self._is_own:
            # A cluster of our own has as many CPUs as it needs, also on a small machine.
            where = os.environ.get("RAY_ADDRESS")
            needed = max(os.cpu_count() or 1, math.ceil(n * cpus))
            room: Any = {} if where else {"num_cpus": needed}
            try:
                ray.init(address=where, log_to_driver=False, configure_logging=False, **room)
            except Exception as error:
                raise EnvError(
                    f"collectors: no Ray cluster at {where or 'this machine'}: {error}"
                ) from None
        there = ray.cluster_resources().get("CPU", 0.0)
        if there < n * cpus:
            raise EnvError(
                f"collectors: {n} collectors of {cpus:g} CPUs do not fit the Ray cluster, which "
                f"has {there:g}. Use fewer, or a smaller cpus in the block."
            )
        options: dict[str, Any] = {"num_cpus": cpus, "max_restarts": 0}
        options["concurrency_groups"] = {WEIGHTS: 1, ROLLOUTS: 1}
        self._actor_class = ray.remote(**options)(Actor)

    def start(self, message: Message) -> Handle:
        return RayCollector(self._ray, self._actor_class, message, self._max_staleness)

    def close(self) -> None:
        if self._is_own:
            self._ray.shutdown()
