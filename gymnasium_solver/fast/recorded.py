"""A loss's gradient, recorded once from torch and replayed without its dispatch and autograd.

On a small MLP a torch update is dispatch: some hundred operations of 5 to 20 us each around a few
microseconds of arithmetic. NumPy's operations cost 1 us. So the loss stays plain torch code, the
only code there is; here its forward and backward pass is run once under a dispatch mode that
writes down every ATen operation (fast/tape.py), and the list becomes a function on NumPy arrays
(fast/aten.py):

    gradient = LossGradient(loss, params, record=True, constants=target_params)
    flat_grad, *outputs = gradient(batch, coefficients)

What changes from call to call comes in by one of four ways: `params` and `constants` are read
where they lie, and may change there (constants are not differentiated); the batch's columns and
the coefficients are handed over. Python numbers and flags that the loss reads are those of the
first call. Tensors from anywhere else, randomness, and decisions that depend on data cannot be
recorded: such a loss is left to torch.

Two recordings at different batch sizes tell which integers depend on the batch. A recording is
used only after its result agreed with torch's on real data. It runs on the CPU, in float32. On a
GPU the same loss is captured as a CUDA graph instead (fast/cuda_graph.py).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.fast.aten import FUSED, OPERATIONS, WITH_OUT, through_torch
from gymnasium_solver.fast.cuda_graph import Graphed
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

Gradient = Callable[[Sequence[Tensor], Sequence[float]], list[Tensor]]
PROBE_SIZES = (61, 67)
N_CHECKS = 4


class LossGradient:
    """d loss / d params as one flat tensor: recorded (or, on a GPU, captured as a graph) where that
    pays and works, else by torch."""

    def __init__(
        self,
        loss: Loss,
        params: Sequence[Tensor],
        *,
        record: bool,
        constants: Sequence[Tensor] = (),
    ):
        self.loss, self.params, self.constants = loss, params, constants
        is_cuda = params[0].is_cuda
        self._recorded: Gradient | None = None
        self._may_record = record and not is_cuda
        self._graphed = Graphed(self._from_tensors) if record and is_cuda else None
        self._coefficients: tuple[Sequence[float], Tensor] | None = None  # as last uploaded

    def __call__(self, batch: Sequence[Tensor], coefficients: Sequence[float]) -> list[Tensor]:
        """The flat gradient (overwritten by the next call), then the loss's further outputs."""
        if self._may_record:
            self._may_record = False
            self._recorded = record_gradient(
                self.loss, self.params, batch, coefficients, self.constants
            )
        if self._recorded is not None:
            return self._recorded(batch, coefficients)
        if self._graphed is not None:
            flat, *outputs = self._graphed([*batch, self._uploaded(coefficients)])
            return [flat, *(o.clone() for o in outputs)]
        return eager(self.loss, self.params, batch, coefficients)

    def _from_tensors(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        *batch, coefficients = inputs
        return _gradient(self.loss, self.params, batch, coefficients.unbind())

    def _uploaded(self, coefficients: Sequence[float]) -> Tensor:
        """Coefficients on the GPU; most stay the same from call to call."""
        if self._coefficients is None or self._coefficients[0] != coefficients:
            device = self.params[0].device
            self._coefficients = (coefficients, torch.tensor(coefficients, device=device))
        return self._coefficients[1]


def eager(
    loss: Loss, params: Sequence[Tensor], batch: Sequence[Tensor], coefficients: Sequence[float]
) -> list[Tensor]:
    """The same by torch: the flat gradient, then the loss's further outputs."""
    scalars = [torch.tensor(c, device=params[0].device) for c in coefficients]
    return _gradient(loss, params, batch, scalars)


def _gradient(
    loss: Loss, params: Sequence[Tensor], batch: Sequence[Tensor], coefficients: Sequence[Tensor]
) -> list[Tensor]:
    total, outputs = loss(batch, coefficients)
    grads = torch.autograd.grad(total, params)
    return [torch.cat([g.reshape(-1) for g in grads]), *(o.detach() for o in outputs)]


def record_gradient(
    loss: Loss,
    params: Sequence[Tensor],
    batch: Sequence[Tensor],
    coefficients: Sequence[float],
    constants: Sequence[Tensor] = (),
) -> Gradient | None:
    """A replay of d loss / d params, flattened, or None where there can be none."""
    if any(not t.is_cpu for t in (*params, *batch, *constants)) or len(batch[0]) == 0:
        return None
    inputs = {"p": params, "k": constants, "c": [torch.tensor(c) for c in coefficients]}
    try:
        one, two = (write(loss, inputs | {"b": _resized(batch, n)}) for n in PROBE_SIZES)
        tape = simplified(generalise(one, two, PROBE_SIZES), FUSED)
        gradient = _bind(tape, params, constants, len(batch), len(coefficients))
    except Unsupported:
        return None
    try:
        agrees = _agrees(gradient, loss, params, batch, coefficients)
    except (TypeError, ValueError, IndexError, RuntimeError):
        return None  # an operation was called in a way that its twin in NumPy does not know
    return gradient if agrees else None


def _resized(batch: Sequence[Tensor], n: int) -> list[Tensor]:
    index = torch.arange(n) % len(batch[0])
    return [column[index] for column in batch]


def _agrees(
    gradient: Gradient,
    loss: Loss,
    params: Sequence[Tensor],
    batch: Sequence[Tensor],
    coefficients: Sequence[float],
) -> bool:
    """Do both give the same on each quarter of the batch, repeated to its full size?

    One quarter may differ: where a loss takes a minimum or an argmax, rounding can tip a sample
    that is almost a tie, and whether a run is replayed must not hang on that.
    """
    n = len(batch[0])
    parts = [[column[i::N_CHECKS] for column in batch] for i in range(min(N_CHECKS, n))]
    misses = 0
    for part in parts:
        sample = _resized(part, n)
        expected, got = eager(loss, params, sample, coefficients), gradient(sample, coefficients)
        misses += not all(_is_close(a, b) for a, b in zip(got, expected, strict=True))
    return misses <= (1 if len(parts) == N_CHECKS else 0)


def _is_close(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = a.float(), b.float()
    return torch.allclose(a, b, rtol=1e-3, atol=1e-5 * (1 + float(b.abs().max())))


# -- the program ------------------------------------------------------------------------------


def _bind(
    tape: Tape,
    params: Sequence[Tensor],
    constants: Sequence[Tensor],
    n_columns: int,
    n_coefficients: int,
) -> Gradient:
    """The tape as a function on torch tensors, reading the parameters where they lie."""
    weights, fixed = ([t.detach().numpy() for t in ts] for ts in (params, constants))
    flat = torch.empty(sum(w.size for w in weights))
    parts = flat.split([p.numel() for p in params])
    grads = [part.view(p.shape).numpy() for part, p in zip(parts, params, strict=True)]
    counts = {"p": len(params), "k": len(constants), "b": n_columns, "c": n_coefficients}
    source, scope = _program(tape, counts | {"g": len(params)})
    exec(source, scope)
    replay = scope["replay"]

    def gradient(batch: Sequence[Tensor], coefficients: Sequence[float]) -> list[Tensor]:
        columns = [column.numpy() for column in batch]
        scalars = [np.float32(c) for c in coefficients]
        with np.errstate(all="ignore"):  # like torch: a loss that is not finite is found later
            outputs = replay(weights, fixed, columns, scalars, grads)
        return [flat, *(torch.from_numpy(np.asarray(o)) for o in outputs)]

    return gradient


def _program(tape: Tape, counts: dict[str, int]) -> tuple[str, dict[str, Any]]:
    """Python source of the replay, a line an operation, and the names it uses."""
    scope: dict[str, Any] = {"np": np, "torch": torch, "inf": float("inf"), "nan": float("nan")}
    last_read = {ref.variable: i for i, call in enumerate(tape.calls) for ref in refs_in(call)}
    kept = {ref.variable for ref in (*tape.grads, *tape.outputs)}
    places = {grad.variable: f"g{i}" for i, grad in enumerate(tape.grads)}
    is_direct = {call.variable for call in tape.calls if call.name in WITH_OUT} & places.keys()
    is_direct -= {ref.variable for ref in tape.outputs}
    body = []
    for i, call in enumerate(tape.calls):
        # Plain names: no look-up in a dictionary during the replay.
        operation = "op_" + call.name.replace(".", "_").replace("+", "_")
        is_torch = call.name not in OPERATIONS and "+" not in call.name
        scope[operation] = _operation(call.name)
        args = [_written(a, is_torch) for a in call.args]
        args += [f"{key}={_written(v, is_torch)}" for key, v in call.kwargs.items()]
        if call.variable in is_direct:
            args.append(f"out={places[call.variable]}")
        body.append(f"{call.variable} = {operation}({', '.join(args)})")
        dead = {r.variable for r in refs_in(call) if r.variable[0] in "vw"} - kept
        if gone := sorted(v for v in dead if last_read[v] == i):
            body.append(f"del {', '.join(gone)}")  # its memory is warm: the next result goes there
    for i, grad in enumerate(tape.grads):
        if places[grad.variable] != f"g{i}" or grad.variable not in is_direct:
            body.append(f"g{i}[...] = {grad}")
    body.append(f"return {_written(tape.outputs, False)}")
    unpack = [
        f"({', '.join(f'{kind}{i}' for i in range(n))},) = {kind.upper()}"
        for kind, n in counts.items()
        if n
    ]
    source = "\n    ".join(["def replay(P, K, B, C, G):", *unpack, "N = len(b0)", *body])
    return source, scope


def _operation(name: str) -> Callable[..., Any]:
    if "+" in name:
        first, second = name.split("+")
        return FUSED[first, second]
    try:
        return OPERATIONS.get(name) or through_torch(name)
    except (AttributeError, ValueError) as error:
        raise Unsupported(f"no operation {name} that makes a new value") from error


def _written(value: Any, is_torch: bool) -> str:
    """A value as source code; `is_torch`: for torch's own operation, not for one of ours."""
    if isinstance(value, list):
        return "[" + ", ".join(_written(v, is_torch) for v in value) + "]"
    if isinstance(value, torch.dtype):
        return str(value) if is_torch else str(value).replace("torch.", "np.")
    return str(value) if isinstance(value, Ref | Size) else repr(value)
