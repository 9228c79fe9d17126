"""A program of descents: what one update of an off-policy learner does, over many batches.

    program = Program(step, feed)                  # step(batch, hp, turn) -> Learnt
    metrics = program(samples, hp)                 # their means over all batches

A step is an ordinary function that calls its descents in order, each with its own batch, numbers
and period: DQN has one, SAC three. How it runs is decided here:

- A step that is a single `Descent` takes all batches of a sample in one call, which in the compiled
  form is one call of C.
- On a GPU the whole step is one CUDA graph: batch and scheduled values go there in one transfer,
  one launch does the rest, and the host does not wait for it. As separate graphs, two or three
  gradients, their optimisers and target networks take a dozen launches. Noise is drawn on the GPU,
  in the same order as without a graph, so the results are the same. What cannot be captured runs as
  before; `failure` says why.
- Otherwise its descents run one after the other.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver import tree
from gymnasium_solver.fast.cuda_graph import MAX_GRAPHS, N_PLAIN_CALLS, Staging, capturing, inlined
from gymnasium_solver.fast.descent import Descent
from gymnasium_solver.timing import OFF, Timer

Hp = Mapping[str, Any]  # scheduled values by name: numbers, or in a graph tensors
Function = Callable[[], list[Tensor]]


class Learnt(NamedTuple):
    """What a step on one batch reports."""

    metrics: dict[str, Any]
    errors: Tensor | None = None  # [B], for priorities


Step = Callable[[Any, Hp, Any], Learnt]


class Single(NamedTuple):
    """A step that is one descent, and the name of its learning rate."""

    descent: Descent
    lr: str


class Feed(Protocol):
    """What a program needs of a learner: where batches come from and where errors go."""

    device: torch.device

    def columns(self, sample: Any) -> Any:
        """The arrays of a sample that go to the device."""

    def batch_of(self, columns: Any) -> Any:
        """The batch, from these as tensors on the device."""

    def on_device(self, sample: Any) -> Any:
        """Both of these."""

    def split(self, sample: Any) -> Iterable[Any]:
        """The batches of a sample, which may hold several."""

    def set_priorities(self, sample: Any, errors: Tensor) -> None:
        """Errors [B] of a batch that was learnt from."""


class Replayable(Protocol):
    def replay(self) -> None: ...


class Launch(NamedTuple):
    graph: Replayable
    staging: Staging
    names: tuple[str, ...]  # of the metrics
    metrics: Tensor  # one number each
    errors: Tensor | None
    n_steps: list[int]  # of each descent in one launch


class Program:
    def __init__(
        self,
        step: Step | Single,
        feed: Feed,
        descents: Iterable[Descent],
        *,
        turn: Callable[[], Any] = lambda: None,
        before: Callable[[], None] | None = None,
        generator: torch.Generator | None = None,
        graph: bool = False,
        capture: Callable[[Function], tuple[Replayable, list[Tensor]]] | None = None,
    ):
        """`turn`: which kind of step comes next, if they differ (with or without the actor).
        `before`: host work before each step. `graph`: capture steps, on a GPU; `generator` draws
        their noise. `capture` captures a function without running it and returns its outputs, which
        every replay overwrites; by default as a CUDA graph."""
        self.feed, self.descents = feed, list(descents)
        self._single = step if isinstance(step, Single) else None
        self._step: Step = self._one_step if isinstance(step, Single) else step
        self._turn, self._before = turn, before
        self.timer: Timer = OFF
        self.graph = graph
        self.failure: str | None = None  # why there is no graph
        self._capture = capture or partial(_cuda_graph, generator)
        self._launches: dict[Any, Launch] = {}
        self._n_calls: dict[Any, int] = {}

    def __call__(self, samples: Iterable[Any], hp: Hp) -> dict[Any, Any]:
        """A step for each batch of the samples; returns the means of their metrics."""
        found: list[Mapping[Any, Any]] = []
        takes_all = self._single is not None and self._before is None and not self.graph
        for sample in self.timer.each("sample", samples):
            if takes_all:
                found += self._all_batches(sample, hp)
                continue
            for batch in self.feed.split(sample):
                if self._before is not None:
                    self._before()
                if found:  # a launch overwrites the metrics of the last one
                    found[-1] = _kept(found[-1])
                found.append(self._one_batch(batch, hp))
        return mean_metrics(found)

    # -- a single descent -------------------------------------------------------------------

    def _all_batches(self, sample: Any, hp: Hp) -> list[dict[str, Any]]:
        """Steps on all batches of a sample in one call; the metrics of each."""
        single = self._single
        assert single is not None
        batches = list(self.feed.split(sample))
        parts: list[np.ndarray | None] = [None]
        if len(batches) > 1:
            ends = np.cumsum([len(batch.index) for batch in batches])
            parts = list(np.split(np.arange(ends[-1]), ends[:-1]))
        steps = single.descent(self.feed.on_device(sample), {}, hp[single.lr], parts)
        if steps.by_sample and len(batches) == 1:
            self.feed.set_priorities(sample, *steps.by_sample.values())
        table = torch.cat([steps.values, steps.norms.unsqueeze(1)], 1)
        names = (*steps.names, single.descent.norm)
        return [dict(zip(names, row, strict=True)) for row in table.tolist()]

    def _one_step(self, batch: Any, hp: Hp, turn: Any) -> Learnt:
        single = self._single
        assert single is not None
        steps = single.descent(batch, {}, hp[single.lr])
        return Learnt(steps.means(), next(iter(steps.by_sample.values()), None))

    # -- steps of several descents ----------------------------------------------------------

    def _one_batch(self, sample: Any, hp: Hp) -> Mapping[Any, Any]:
        if not self.graph:
            return self._plain(sample, hp)
        feed = self.feed
        inputs = tree.leaves_of(feed.columns(sample))
        inputs.append(np.array(list(hp.values()), np.float32))
        turn = self._turn()
        key = (turn, *((a.shape, a.dtype) for a in inputs))
        launch = self._launches.get(key)
        if launch is None and self.failure is None and self._n_calls.get(key, 0) >= N_PLAIN_CALLS:
            launch = self._captured(key, sample, hp, turn, inputs)
        if launch is None:
            self._n_calls[key] = self._n_calls.get(key, 0) + 1
            return self._plain(sample, hp)
        launch.staging.upload(inputs)
        launch.graph.replay()
        for descent, n in zip(self.descents, launch.n_steps, strict=True):
            descent.optimizer.n_steps += n
        if launch.errors is not None:
            feed.set_priorities(sample, launch.errors)
        return {launch.names: launch.metrics}

    def _plain(self, sample: Any, hp: Hp) -> dict[str, Any]:
        metrics, errors = self._step(self.feed.on_device(sample), hp, self._turn())
        if errors is not None:
            self.feed.set_priorities(sample, errors)
        return metrics

    def _captured(
        self, key: Any, sample: Any, hp: Hp, turn: Any, inputs: list[np.ndarray]
    ) -> Launch | None:
        """Capture the step for these shapes; None if that is not possible."""
        if len(self._launches) == MAX_GRAPHS:
            self.failure = "too many different batches"
            return None
        device = self.feed.device
        staging = Staging(inputs, device)
        staging.upload(inputs)  # for a `capture` that runs the step
        *columns, values = staging.tensors
        structure = tree.structure_of(self.feed.columns(sample))
        names: list[str] = []

        def step() -> list[Tensor]:
            scheduled = {name: values[i] for i, name in enumerate(hp)}
            with inlined():
                batch = self.feed.batch_of(tree.unflatten(structure, columns))
                metrics, errors = self._step(batch, scheduled, turn)
            names[:] = metrics
            numbers = [_scalar(value, device) for value in metrics.values()]
            return [torch.stack(numbers), *([] if errors is None else [errors])]

        before = [descent.optimizer.n_steps for descent in self.descents]
        n_steps: list[int] = []
        try:
            graph, outputs = self._capture(step)
        except RuntimeError as error:  # it synchronises with the GPU, or copies from the host
            self.failure = str(error).splitlines()[0]
            if device.type == "cuda":
                torch.cuda.synchronize()
            return None
        finally:  # nothing has run yet
            for descent, count in zip(self.descents, before, strict=True):
                n_steps.append(descent.optimizer.n_steps - count)
                descent.optimizer.set_count(count)
        metrics, *errors = outputs
        launch = Launch(
            graph, staging, tuple(names), metrics, errors[0] if errors else None, n_steps
        )
        self._launches[key] = launch
        return launch


def mean_metrics(steps: Sequence[Mapping[Any, Any]]) -> dict[Any, Any]:
    """Average the metrics of several steps, each over the steps that report it.

    The key of a tensor of several metrics is the tuple of their names."""
    if len(steps) == 1:
        return dict(steps[0])
    if len({tuple(step) for step in steps}) > 1:
        steps = [by_name(step) for step in steps]
    values: dict[Any, list[Any]] = {}
    for step in steps:
        for name, value in step.items():
            values.setdefault(name, []).append(value)
    return {name: sum(given) / len(given) for name, given in values.items()}


def _kept(metrics: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: v if isinstance(key, str) else v.clone() for key, v in metrics.items()}


def by_name(metrics: Mapping[Any, Any]) -> dict[str, Any]:
    single: dict[str, Any] = {}
    for key, value in metrics.items():
        single |= {key: value} if isinstance(key, str) else dict(zip(key, value, strict=True))
    return single


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
