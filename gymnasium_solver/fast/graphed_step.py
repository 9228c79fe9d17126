"""A whole gradient step of an off-policy learner as one CUDA graph.

A step consists of two or three gradients, their optimisers and the target networks: hundreds of
small kernels. As separate graphs they still take a dozen launches, and as many copies of their
inputs. Here the batch and the scheduled values go to the GPU in one transfer, and one launch does
the rest. The host never waits for it.

    step = GraphedStep(learner)
    metrics = step(sample, hp)             # as learner.learn(learner.on_device(sample), sample, hp)

The graph is captured from `learner.learn` itself. Noise is drawn on the GPU by a generator of the
learner's, in the same order as without a graph, so the results are the same. What cannot be
captured runs as before; `failure` says why.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver import tree
from gymnasium_solver.fast.cuda_graph import N_PLAIN_CALLS, capturing, inlined
from gymnasium_solver.fast.optimizer import Optimizer
from gymnasium_solver.fast.staging import Staging

MAX_GRAPHS = 8


Function = Callable[[], list[Tensor]]


class Replayable(Protocol):
    def replay(self) -> None: ...


class CapturedError:
    """Where a step that is captured leaves its TD errors, for priorities."""

    error: Tensor | None = None


class Steps(Protocol):
    """What is needed of a learner."""

    device: torch.device
    optimizers: dict[str, Optimizer]
    noise_generator: torch.Generator | None
    captured_error: CapturedError | None

    def learn(self, batch: Any, sample: Any, hp: Any) -> dict[str, Any]: ...
    def columns(self, sample: Any) -> Any: ...
    def batch_of(self, columns: Any) -> Any: ...
    def on_device(self, sample: Any) -> Any: ...
    def update_priorities(self, sample: Any, error: Tensor) -> None: ...


class Launch(NamedTuple):
    graph: Replayable
    staging: Staging
    names: tuple[str, ...]  # of the metrics
    metrics: Tensor  # one number each
    error: Tensor | None  # TD errors, if priorities are set from them
    n_steps: dict[str, int]  # of each optimiser in one launch


class GraphedStep:
    def __init__(
        self,
        learner: Steps,
        capture: Callable[[Function], tuple[Replayable, list[Tensor]]] | None = None,
    ):
        """`capture` captures a function without running it and returns its outputs, which every
        replay overwrites; by default as a CUDA graph."""
        self.learner = learner
        self.failure: str | None = None  # why there is no graph
        self._capture = capture or partial(_cuda_graph, learner.noise_generator)
        self._launches: dict[Any, Launch] = {}
        self._n_calls: dict[Any, int] = {}

    def __call__(self, sample: Any, hp: dict[str, float], kind: Any = None) -> dict[Any, Any]:
        """One gradient step. `kind`: which of the learner's steps it is (e.g. with the actor).

        The metrics of a launch are one tensor under the tuple of their names, which the next
        launch overwrites.
        """
        learner = self.learner
        inputs = tree.leaves_of(learner.columns(sample))
        inputs.append(np.array(list(hp.values()), np.float32))
        key = (kind, *((a.shape, a.dtype) for a in inputs))
        launch = self._launches.get(key)
        if launch is None and self.failure is None and self._n_calls.get(key, 0) >= N_PLAIN_CALLS:
            launch = self._captured(key, sample, hp, inputs)
        if launch is None:
            return self._plain(key, sample, hp)
        launch.staging.upload(inputs)
        launch.graph.replay()
        for name, n in launch.n_steps.items():
            learner.optimizers[name].n_steps += n
        if launch.error is not None:
            learner.update_priorities(sample, launch.error)
        return {launch.names: launch.metrics}

    def _plain(self, key: Any, sample: Any, hp: dict[str, float]) -> dict[Any, Any]:
        """The same step without this graph."""
        self._n_calls[key] = self._n_calls.get(key, 0) + 1
        return self.learner.learn(self.learner.on_device(sample), sample, hp)

    def _captured(
        self, key: Any, sample: Any, hp: dict[str, float], inputs: list[np.ndarray]
    ) -> Launch | None:
        """Capture the step for these shapes; None if that is not possible."""
        learner = self.learner
        if len(self._launches) == MAX_GRAPHS:
            self.failure = "too many different batches"
            return None
        staging = Staging(inputs, learner.device)
        staging.upload(inputs)  # for a `capture` that runs the step
        *columns, values = staging.tensors
        structure = tree.structure_of(learner.columns(sample))
        names: list[str] = []

        def step() -> list[Tensor]:
            learner.captured_error = place = CapturedError()
            scheduled = {name: values[i] for i, name in enumerate(hp)}
            try:
                with inlined():
                    batch = learner.batch_of(tree.unflatten(structure, columns))
                    metrics = learner.learn(batch, sample, scheduled)
            finally:
                learner.captured_error = None
            names[:] = metrics
            numbers = [_scalar(value, learner.device) for value in metrics.values()]
            return [torch.stack(numbers), *([] if place.error is None else [place.error])]

        before = {name: own.n_steps for name, own in learner.optimizers.items()}
        n_steps: dict[str, int] = {}
        try:
            graph, outputs = self._capture(step)
        except RuntimeError as error:  # it synchronises with the GPU, or copies from the host
            self.failure = str(error).splitlines()[0]
            if learner.device.type == "cuda":
                torch.cuda.synchronize()
            return None
        finally:  # nothing has run yet
            for name, own in learner.optimizers.items():
                n_steps[name] = own.n_steps - before[name]
                own.set_count(before[name])
        metrics, *errors = outputs
        launch = Launch(
            graph, staging, tuple(names), metrics, errors[0] if errors else None, n_steps
        )
        self._launches[key] = launch
        return launch


def _scalar(value: float | Tensor, device: torch.device) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().reshape(()).float()
    return torch.full((), float(value), device=device)


def _cuda_graph(
    generator: torch.Generator | None, function: Function
) -> tuple[Replayable, list[Tensor]]:
    graph = torch.cuda.CUDAGraph()
    if generator is not None:  # each replay then draws new noise
        graph.register_generator_state(generator)
    with capturing(graph):
        outputs = function()
    return graph, outputs
