"""Records a torch computation once and then runs it without dispatch and autograd.

A torch update of a small MLP is mostly dispatch: a hundred operations of 5 to 20 us each, around a
few microseconds of arithmetic. A NumPy operation costs 1 us. Losses and networks are written once,
in plain torch. Their operations are recorded under a dispatch mode (fast/tape.py), and the list
becomes a Python function on NumPy arrays (fast/aten.py):

    gradient = LossGradient(loss, params, record=True, constants=target_params)
    flat_grad, *outputs = gradient(batch, coefficients)

Forward passes are in fast/forward.py.

Values that change between calls are handled as follows. `params` and `constants` are read in place
and may change there (constants are not differentiated). The batch (a tree of tensors, see tree.py)
and the coefficients are arguments. Python numbers and flags that the function reads keep their
values of the first call. Other tensors, randomness and data-dependent control flow cannot be
recorded: such a function runs in torch.

Two recordings at different batch sizes show which integers depend on the batch size. A recording is
used only if its result agrees with torch's on real data. It runs on the CPU, in float32. On a GPU
the same function is captured as a CUDA graph instead (fast/cuda_graph.py).
"""

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver import tree
from gymnasium_solver.fast.aten import FUSED, OPERATIONS, WITH_OUT, inlined, through_torch
from gymnasium_solver.fast.cuda_graph import Graphed, is_inlined
from gymnasium_solver.fast.fused import fuse
from gymnasium_solver.fast.native.build import can_compile, is_proven
from gymnasium_solver.fast.native.program import NativeGradient
from gymnasium_solver.fast.optimizer import FlatOptimizer
from gymnasium_solver.fast.tape import (
    Loss,
    Ref,
    Size,
    Tape,
    Unsupported,
    generalise,
    refs_in,
    simplified,
    write,
)
from gymnasium_solver.lanes import lane_for

log = logging.getLogger(__name__)

# A loss on a tree of tensors: loss(batch, coefficients) -> (scalar, further outputs)
TreeLoss = Callable[[Any, Sequence[Tensor]], tuple[Tensor, Sequence[Tensor]]]
Coefficients = Sequence[float | Tensor]
Answers = Sequence[tuple[Sequence[Tensor], Sequence[Tensor]]]  # samples, and what torch computes
Gradient = Callable[[Sequence[Tensor], Coefficients], list[Tensor]]
Forward = Callable[..., list[np.ndarray]]
Mode = Literal["compiled", "recorded", "graph", "torch"]
Form = Literal["compiled", "recorded"]
PROBE_SIZES = (61, 67)
NOT_RECORDED = (Unsupported, TypeError, ValueError, IndexError, RuntimeError)
N_CHECKS = 4


class LossGradient:
    """d loss / d params as one flat tensor: compiled, recorded, a CUDA graph, or by torch.

    `mode` says which. On the CPU it is decided at the first call, from that call's data. It is part
    of a learner's state, so that a resumed run computes in the same way."""

    def __init__(
        self,
        loss: TreeLoss,
        params: Sequence[Tensor],
        *,
        record: bool,
        constants: Sequence[Tensor] | Callable[[], Sequence[Tensor]] = (),
        compile: bool = False,
        fuse: bool = False,
        optimizer: FlatOptimizer | None = None,
        name: str | None = None,
    ):
        """`record`: False for plain torch. `constants`: other tensors that the loss reads, or a
        function that is asked for them at the first call. `compile`: as C if possible, else as
        NumPy calls. `fuse`: on a GPU, fuse its kernels (fast/fused.py). `optimizer`: takes its
        steps in C too, if the gradient is. `name`: the same for other learners with this loss."""
        self.optimizer = optimizer
        self.loss, self.params, self._constants = loss, params, constants
        self.name = getattr(loss, "__qualname__", "") if name is None else name
        self.form: Form = "compiled" if compile else "recorded"
        is_cuda = params[0].is_cuda
        self.mode: Mode | None = None
        if not record:
            self.mode = "torch"
        elif is_cuda:
            self.mode = "graph"
        self._recorded: Gradient | None = None
        self._structure: tree.Structure = None
        self._graphed = Graphed(self._from_tensors) if self.mode == "graph" else None
        self._fuses = fuse and is_cuda
        self._fused: dict[Any, Callable[[Sequence[Tensor]], list[Tensor]]] = {}  # by shapes
        self._coefficients: tuple[list[Any], Tensor] | None = None  # as last uploaded

    def __call__(self, batch: Any, coefficients: Coefficients) -> list[Tensor]:
        """Return the flat gradient (overwritten by the next call) and the further outputs of the
        loss."""
        lane = lane_for("gradient")
        # A compiled program of one learner is faster than a stack of several in NumPy.
        is_compiled = self.mode == "compiled" or (self.mode is None and self.form == "compiled")
        if lane is None or self.mode == "torch" or is_compiled or is_inlined():
            return self.alone(batch, coefficients)
        result: list[Tensor] = lane.together("gradient", (self, batch, coefficients))
        return result

    def alone(self, batch: Any, coefficients: Coefficients) -> list[Tensor]:
        """The same, not together with other learners (fast/stacked.py)."""
        if self.mode == "torch":
            return eager(self.loss, self.params, batch, coefficients)
        columns = tree.leaves_of(batch)
        if self._structure is None:
            self._structure = tree.structure_of(batch)
        if self._graphed is not None:
            flat, *outputs = self._graphed([*columns, self._uploaded(coefficients)])
            return [flat, *(o.clone() for o in outputs)]
        if self._recorded is None:
            self._recorded = record_gradient(
                self._on_columns, self.params, columns, coefficients, self.constants,
                check=self.mode is None, form=self.form,
            )  # fmt: skip
            if self._recorded is None:
                self.mode = "torch"
                return eager(self.loss, self.params, batch, coefficients)
            self.mode = "recorded" if self.native is None else "compiled"
            if self.native is not None and self.optimizer is not None:
                self.optimizer.native = self.native.optimizer
        return self._recorded(columns, coefficients)

    @property
    def constants(self) -> Sequence[Tensor]:
        """Tensors that the loss reads and that are not differentiated."""
        if callable(self._constants):
            self._constants = self._constants()
        return self._constants

    @property
    def native(self) -> NativeGradient | None:
        """The compiled program, once it is in use."""
        return self._recorded if isinstance(self._recorded, NativeGradient) else None

    def compiled(self, batch: Any, coefficients: Coefficients) -> NativeGradient | None:
        """The compiled program of a gradient whose mode is `compiled`, made now if need be; None if
        it does not compile any more."""
        if self._recorded is None:
            self.alone(batch, coefficients)
        return self.native

    def resume(self, mode: Mode | None) -> bool:
        """Use the mode of a saved run instead of deciding again from other data. False if that is
        not possible here: the run was compiled, and this machine has no C compiler."""
        if self.mode is not None or mode not in ("torch", "recorded", "compiled"):
            return True
        if mode == "compiled" and not can_compile():
            self.form = "recorded"
            return False
        self.mode = mode
        if mode != "torch":
            self.form = mode
        return True

    def _on_columns(
        self, columns: Sequence[Tensor], coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, Sequence[Tensor]]:
        return self.loss(tree.unflatten(self._structure, columns), coefficients)

    def _from_tensors(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        if not self._fuses:
            return self._unfused(inputs)
        shapes = tuple(column.shape for column in inputs)
        if shapes not in self._fused:
            self._fused[shapes] = fuse(self._unfused, inputs) or self._unfused
        return self._fused[shapes](inputs)

    def _unfused(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        *columns, coefficients = inputs
        return _gradient(self._on_columns, self.params, columns, coefficients.unbind())

    def _uploaded(self, coefficients: Coefficients) -> Tensor:
        """Coefficients on the GPU. Numbers rarely change between calls and are uploaded only when
        they do; tensors are already there. No synchronisation."""
        device, numbers = self.params[0].device, list(coefficients)
        if is_inlined():  # a larger graph cannot copy from the host
            scalars = [
                c if isinstance(c, Tensor) else torch.full((), c, device=device) for c in numbers
            ]
            return (
                torch.cat([scalar.reshape(1) for scalar in scalars]) if scalars else _none(device)
            )
        if any(isinstance(c, Tensor) for c in numbers):
            scalars = [torch.as_tensor(c, dtype=torch.float32, device=device) for c in numbers]
            return torch.stack([scalar.reshape(()) for scalar in scalars])
        if self._coefficients is None or self._coefficients[0] != numbers:
            uploaded = torch.tensor(numbers, dtype=torch.float32, device=device)
            self._coefficients = (numbers, uploaded)
        return self._coefficients[1]


def _none(device: torch.device) -> Tensor:
    return torch.empty(0, device=device)


def eager(
    loss: TreeLoss, params: Sequence[Tensor], batch: Any, coefficients: Coefficients
) -> list[Tensor]:
    """The same in torch: the flat gradient and the further outputs of the loss."""
    device = params[0].device
    scalars = [
        torch.as_tensor(c, dtype=torch.float32, device=device).reshape(()) for c in coefficients
    ]
    return _gradient(loss, params, batch, scalars)


def _gradient(
    loss: TreeLoss, params: Sequence[Tensor], batch: Any, coefficients: Sequence[Tensor]
) -> list[Tensor]:
    total, outputs = loss(batch, coefficients)
    grads = torch.autograd.grad(total, params)
    return [torch.cat([g.reshape(-1) for g in grads]), *(o.detach() for o in outputs)]


def record_gradient(
    loss: Loss,
    params: Sequence[Tensor],
    batch: Sequence[Tensor],
    coefficients: Coefficients,
    constants: Sequence[Tensor] = (),
    *,
    check: bool = True,
    form: Form = "recorded",
) -> Gradient | None:
    """Record the gradient of a loss on flat columns; None if it cannot be recorded.

    `check=False` skips the comparison with torch, for a loss that passed it before. `form`:
    compiled as C, if all of its operations have a C form, or NumPy calls."""
    if any(not t.is_cpu for t in (*params, *batch, *constants)) or len(batch[0]) == 0:
        return None
    try:
        tape = record(loss, batch, coefficients, params, constants)
    except Unsupported:
        return None
    answers: Answers | None = None
    for is_compiled in (True, False)[form != "compiled" :]:
        try:
            gradient: Gradient
            if is_compiled:
                n = len(coefficients)
                gradient = NativeGradient(simplified(tape, ()), params, constants, batch, n)
            else:
                sizes = len(batch), len(coefficients)
                gradient = bind_gradient(simplified(tape, FUSED), params, constants, *sizes)
            is_new = isinstance(gradient, NativeGradient) and not is_proven(gradient.shared_library)
            if (check or is_new) and answers is None:
                answers = _by_torch(loss, params, batch, coefficients)
            if isinstance(gradient, NativeGradient) and answers is not None:
                gradient.prove(
                    partial(_agrees, gradient, answers, coefficients), batch, coefficients
                )
            if not check or _agrees(gradient, answers or [], coefficients):
                return gradient
        except Unsupported as error:
            log.info("not in this form: %s", error)
        except NOT_RECORDED:
            pass  # an operation was called in a way that its NumPy version does not support
    return None


def record(
    loss: Loss,
    batch: Sequence[Tensor],
    coefficients: Coefficients = (),
    params: Sequence[Tensor] = (),
    constants: Sequence[Tensor] = (),
) -> Tape:
    """The tape of a loss, for every batch size."""
    scalars = [torch.tensor(float(c)) for c in coefficients]
    given = {"p": params, "k": constants, "c": scalars}
    one, two = (write(loss, given | {"b": resized(batch, n)}) for n in PROBE_SIZES)
    return generalise(one, two, PROBE_SIZES)


def resized(batch: Sequence[Tensor], n: int) -> list[Tensor]:
    index = torch.arange(n) % len(batch[0])
    return [column[index] for column in batch]


def _by_torch(
    loss: Any, params: Sequence[Tensor], batch: Sequence[Tensor], coefficients: Coefficients
) -> Answers:
    """Each quarter of the batch, repeated to its full size, and torch's results on it."""
    n = len(batch[0])
    parts = [[column[i::N_CHECKS] for column in batch] for i in range(min(N_CHECKS, n))]
    samples = [resized(part, n) for part in parts]
    return [(sample, eager(loss, params, sample, coefficients)) for sample in samples]


def _agrees(gradient: Gradient, answers: Answers, coefficients: Coefficients) -> bool:
    """Whether a gradient agrees with torch's.

    One quarter may differ: if a loss takes a minimum or an argmax, rounding can flip a near tie,
    and that must not decide whether the recording is used."""
    misses = 0
    for sample, expected in answers:
        got = gradient(sample, coefficients)
        misses += not all(is_close(a, b) for a, b in zip(got, expected, strict=True))
    return misses <= (1 if len(answers) == N_CHECKS else 0)


def is_close(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = a.float(), b.float()
    largest = float(b.abs().max())
    if not math.isfinite(largest):  # it shows nothing
        return False
    return torch.allclose(a, b, rtol=1e-3, atol=1e-5 * (1 + largest))


# -- a tape as a Python function of NumPy calls (fast/aten.py) -----------------------------------


def bind_gradient(
    tape: Tape,
    params: Sequence[Tensor],
    constants: Sequence[Tensor],
    n_columns: int,
    n_coefficients: int,
) -> Gradient:
    """The tape as a function on torch tensors that reads the parameters in place."""
    weights, fixed = ([t.detach().numpy() for t in ts] for ts in (params, constants))
    flat = torch.empty(sum(w.size for w in weights))
    parts = flat.split([p.numel() for p in params])
    grads = [part.view(p.shape).numpy() for part, p in zip(parts, params, strict=True)]
    counts = {"p": len(params), "k": len(constants), "b": n_columns, "c": n_coefficients}
    run = _compiled(tape, counts | {"g": len(params)})

    def gradient(batch: Sequence[Tensor], coefficients: Coefficients) -> list[Tensor]:
        columns = [column.numpy() for column in batch]
        scalars = [np.float32(c) for c in coefficients]
        with np.errstate(all="ignore"):  # as in torch: a non-finite loss is detected later
            outputs = run(weights, fixed, columns, scalars, grads)
        return [flat, *(torch.from_numpy(np.asarray(o)) for o in outputs)]

    return gradient


def bind_forward(tape: Tape, constants: Sequence[Tensor], n_columns: int) -> Forward:
    """The tape of a forward pass as a function on arrays that reads the weights in place."""
    fixed = [t.detach().numpy() for t in constants]
    run = _compiled(tape, {"p": 0, "k": len(constants), "b": n_columns, "c": 0, "g": 0})

    def program(columns: Sequence[np.ndarray]) -> list[np.ndarray]:
        outputs: list[np.ndarray] = run((), fixed, columns, (), ())
        return outputs

    return program


def _compiled(tape: Tape, counts: dict[str, int]) -> Callable[..., Any]:
    source, scope = _program(tape, counts)
    exec(source, scope)
    run: Callable[..., Any] = scope["run"]
    return run


def _program(tape: Tape, counts: dict[str, int]) -> tuple[str, dict[str, Any]]:
    """Python source of the program, one line per operation, and the names it uses."""
    scope: dict[str, Any] = {"np": np, "torch": torch, "inf": float("inf"), "nan": float("nan")}
    last_read = {ref.variable: i for i, call in enumerate(tape.calls) for ref in refs_in(call)}
    kept = {ref.variable for ref in (*tape.grads, *tape.outputs)}
    places = {grad.variable: f"g{i}" for i, grad in enumerate(tape.grads)}
    is_direct = {call.variable for call in tape.calls if call.name in WITH_OUT} & places.keys()
    is_direct -= {ref.variable for ref in tape.outputs}
    body = []
    for i, call in enumerate(tape.calls):
        # Plain names avoid dictionary look-ups at run time.
        operation = "op_" + call.name.replace(".", "_").replace("+", "_")
        is_torch = call.name not in OPERATIONS and "+" not in call.name
        args = [_written(a, is_torch) for a in call.args]
        expression = None if call.kwargs else inlined(call.name, args)
        if expression is None:
            scope[operation] = _operation(call.name)
            args += [f"{key}={_written(v, is_torch)}" for key, v in call.kwargs.items()]
            if call.variable in is_direct:
                args.append(f"out={places[call.variable]}")
            expression = f"{operation}({', '.join(args)})"
        body.append(f"{call.variable} = {expression}")
        dead = {r.variable for r in refs_in(call) if r.variable[0] in "vw"} - kept
        if gone := sorted(v for v in dead if last_read[v] == i):
            body.append(f"del {', '.join(gone)}")  # the next result reuses its cached memory
    for i, grad in enumerate(tape.grads):
        if places[grad.variable] != f"g{i}" or grad.variable not in is_direct:
            body.append(f"g{i}[...] = {grad}")
    body.append(f"return {_written(tape.outputs, False)}")
    unpack = [
        f"({', '.join(f'{kind}{i}' for i in range(n))},) = {kind.upper()}"
        for kind, n in counts.items()
        if n
    ]
    source = "\n    ".join(["def run(P, K, B, C, G):", *unpack, "N = len(b0)", *body])
    return source, scope


def _operation(name: str) -> Callable[..., Any]:
    if "+" in name:
        first, second = name.split("+")
        return FUSED[first, second]
    try:
        return OPERATIONS.get(name) or through_torch(name)
    except (AttributeError, ValueError) as error:
        raise Unsupported(f"no out-of-place version of {name}") from error


def _written(value: Any, is_torch: bool) -> str:
    """A value as source code. `is_torch`: for torch's own operation, not for one of the table."""
    if isinstance(value, list):
        return "[" + ", ".join(_written(v, is_torch) for v in value) + "]"
    if isinstance(value, torch.dtype):
        return str(value) if is_torch else str(value).replace("torch.", "np.")
    return str(value) if isinstance(value, Ref | Size) else repr(value)
