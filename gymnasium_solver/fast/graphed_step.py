"""A whole gradient step of an off-policy learner as one CUDA graph.

A step consists of two or three gradients, their optimisers and the target networks: hundreds of
small kernels. As separate graphs they still take a dozen launches, and as many copies of their
inputs. Here the batch, the random noise and the scheduled values go to the GPU in one transfer, and
one launch does the rest. The host never waits for it.

    step = GraphedStep(learner)
    metrics = step(sample, hp)             # as learner.learn(learner.on_device(sample), sample, hp)

The graph is captured from `learner.learn` itself. Noise is drawn on the host, from the learner's
stream and in the same order as without a graph, so the results are the same. What cannot be
captured runs as before; `failure` says why.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver import tree
from gymnasium_solver.fast.cuda_graph import N_PLAIN_CALLS, inlined
from gymnasium_solver.fast.optimizer import Optimizer
from gymnasium_solver.fast.staging import Staging, on_device

MAX_GRAPHS = 8


Function = Callable[[], list[Tensor]]


class Replayable(Protocol):
    def replay(self) -> None: ...


class Inputs(Protocol):
    """Where the noise of a step comes from, and where its TD errors go."""

    error: Tensor | None
    is_captured: bool

    def normal(self, shape: tuple[int, ...]) -> Tensor: ...


class Steps(Protocol):
    """What is needed of a learner."""

    device: torch.device
    optimizers: dict[str, Optimizer]
    rng: np.random.Generator
    step_inputs: Inputs | None

    def learn(self, batch: Any, sample: Any, hp: Any) -> dict[str, Any]: ...
    def columns(self, sample: Any) -> Any: ...
    def on_device(self, sample: Any) -> Any: ...
    def update_priorities(self, sample: Any, error: Tensor) -> None: ...


class DrawnInputs:
    """Draws noise as usual and notes the shapes."""

    is_captured = False
    error: Tensor | None = None

    def __init__(self, rng: np.random.Generator, device: torch.device):
        self._rng, self._device = rng, device
        self.shapes: list[tuple[int, ...]] = []

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        self.shapes.append(shape)
        return on_device(self._rng.standard_normal(shape, dtype=np.float32), self._device)


class CapturedInputs:
    """Hands out fixed places on the GPU, which are filled before each launch."""

    is_captured = True

    def __init__(self, places: Sequence[Tensor]):
        self._places = iter(places)
        self.error: Tensor | None = None

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        place = next(self._places, None)
        if place is None or tuple(place.shape) != tuple(shape):
            raise RuntimeError("the step draws other noise than before")
        return place


class Launch(NamedTuple):
    graph: Replayable
    staging: Staging
    shapes: list[tuple[int, ...]]  # of the noise
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
        self._capture = capture or _cuda_graph
        self._launches: dict[Any, Launch] = {}
        self._n_calls: dict[Any, int] = {}
        self._shapes: dict[Any, list[tuple[int, ...]]] = {}

    def __call__(self, sample: Any, hp: dict[str, float], kind: Any = None) -> dict[Any, Any]:
        """One gradient step. `kind`: which of the learner's steps it is (e.g. with the actor).

        The metrics of a launch are one tensor under the tuple of their names, which the next
        launch overwrites.
        """
        learner = self.learner
        inputs = tree.leaves_of(learner.columns(sample))
        inputs.append(np.array(list(hp.values()), np.float32))
        key = (kind, *((a.shape, a.dtype.str) for a in inputs))
        launch = self._launches.get(key)
        if launch is None and self.failure is None and self._n_calls.get(key, 0) >= N_PLAIN_CALLS:
            launch = self._captured(key, sample, hp, inputs)
        if launch is None:
            return self._plain(key, sample, hp)
        noise = [learner.rng.standard_normal(s, dtype=np.float32) for s in launch.shapes]
        launch.staging.upload([*inputs, *noise])
        launch.graph.replay()
        for name, n in launch.n_steps.items():
            learner.optimizers[name].n_steps += n
        if launch.error is not None:
            learner.update_priorities(sample, launch.error)
        return {launch.names: launch.metrics}

    def _plain(self, key: Any, sample: Any, hp: dict[str, float]) -> dict[Any, Any]:
        """The same step without this graph; notes what noise it draws."""
        self._n_calls[key] = self._n_calls.get(key, 0) + 1
        drawn = DrawnInputs(self.learner.rng, self.learner.device)
        with self._using(drawn):
            metrics = self.learner.learn(self.learner.on_device(sample), sample, hp)
        self._shapes[key] = drawn.shapes
        return metrics

    def _captured(
        self, key: Any, sample: Any, hp: dict[str, float], inputs: list[np.ndarray]
    ) -> Launch | None:
        """Capture the step for these shapes; None if that is not possible."""
        learner, shapes = self.learner, self._shapes[key]
        if len(self._launches) == MAX_GRAPHS:
            self.failure = "too many different batches"
            return None
        staging = Staging([*inputs, *(np.zeros(s, np.float32) for s in shapes)], learner.device)
        *columns, values = staging.tensors[: len(inputs)]
        structure = tree.structure_of(learner.columns(sample))
        names: list[str] = []

        def step() -> list[Tensor]:
            given = CapturedInputs(staging.tensors[len(inputs) :])
            scheduled = {name: values[i] for i, name in enumerate(hp)}
            with self._using(given), inlined():
                metrics = learner.learn(tree.unflatten(structure, columns), sample, scheduled)
            names[:] = metrics
            numbers = [_scalar(value, learner.device) for value in metrics.values()]
            return [torch.stack(numbers), *([] if given.error is None else [given.error])]

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
            graph, staging, shapes, tuple(names), metrics, errors[0] if errors else None, n_steps
        )
        self._launches[key] = launch
        return launch

    @contextmanager
    def _using(self, inputs: Inputs) -> Iterator[None]:
        self.learner.step_inputs = inputs
        try:
            yield
        finally:
            self.learner.step_inputs = None


def _scalar(value: float | Tensor, device: torch.device) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().reshape(()).float()
    return torch.full((), float(value), device=device)


def _cuda_graph(function: Function) -> tuple[Replayable, list[Tensor]]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = function()
    return graph, outputs
