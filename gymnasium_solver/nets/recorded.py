"""A loss's gradient, recorded once from torch and replayed in NumPy.

On a small MLP a torch update is dispatch: some hundred operations of 5 to 20 us each around a few
microseconds of arithmetic. NumPy's operations cost 1 us. So the loss stays plain torch code, the
only code there is; here its forward and backward pass is run once under a dispatch mode that
writes down every ATen operation, and the list becomes a NumPy function:

    gradient = LossGradient(loss, params, replay=True)
    flat_grad, *outputs = gradient(batch, coefficients)

Two recordings at different batch sizes tell which integers depend on the batch. A recording is
used only after its result agreed with torch's on real data. It runs on the CPU, in float32.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gymnasium_solver.nets.aten import OPERATIONS

# loss(batch columns, coefficients) -> (scalar to differentiate, further outputs to return)
Loss = Callable[[Sequence[Tensor], Sequence[Tensor]], tuple[Tensor, Sequence[Tensor]]]
Gradient = Callable[[Sequence[Tensor], Sequence[float]], list[Tensor]]
PROBE_SIZES = (61, 67)


class _Recorder(TorchDispatchMode):
    """Writes down every ATen call: (name, arguments, keyword arguments, result)."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True, torch's default, imports its compiler: 1.3 s, and none is used here

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        self.calls.append((str(func).removeprefix("aten."), args, kwargs or {}, result))
        return result


class _Unsupported(Exception):
    pass


class _Ref(str):
    """A variable of the program."""


class _Size(str):
    """An integer expression in the batch size `N`."""


def record(
    loss: Loss, params: Sequence[Tensor], batch: Sequence[Tensor], coefficients: Sequence[float]
) -> Gradient | None:
    """A NumPy replay of d loss / d params, flattened, or None where there can be none."""
    if any(not t.is_cpu for t in (*params, *batch)) or len(batch[0]) == 0:
        return None
    try:
        tapes = [_tape(loss, params, _resized(batch, n), coefficients) for n in PROBE_SIZES]
        shapes = [tuple(p.shape) for p in params]
        source = _program(_generalise(*tapes), shapes, len(batch), len(coefficients))
    except _Unsupported:
        return None
    gradient = _bind(source, params)
    return gradient if _agrees(gradient, loss, params, batch, coefficients) else None


class LossGradient:
    """d loss / d params as one flat tensor: recorded where that pays and works, else by torch."""

    def __init__(self, loss: Loss, params: Sequence[Tensor], *, replay: bool):
        self.loss, self.params = loss, params
        self._replay: Gradient | None = None
        self._may_record = replay

    def __call__(self, batch: Sequence[Tensor], coefficients: Sequence[float]) -> list[Tensor]:
        """The flat gradient, then the loss's further outputs."""
        if self._may_record:
            self._may_record = False
            self._replay = record(self.loss, self.params, batch, coefficients)
        if self._replay is not None:
            return self._replay(batch, coefficients)
        return eager(self.loss, self.params, batch, coefficients)


def eager(
    loss: Loss, params: Sequence[Tensor], batch: Sequence[Tensor], coefficients: Sequence[float]
) -> list[Tensor]:
    """The same by torch: the flat gradient, then the loss's further outputs."""
    total, outputs = loss(batch, [torch.tensor(c) for c in coefficients])
    grads = torch.autograd.grad(total, params)
    return [torch.cat([g.reshape(-1) for g in grads]), *(o.detach() for o in outputs)]


def _resized(batch: Sequence[Tensor], n: int) -> list[Tensor]:
    index = torch.arange(n) % len(batch[0])
    return [column[index] for column in batch]


def _agrees(gradient: Gradient, loss: Loss, params: Any, batch: Any, coefficients: Any) -> bool:
    expected, got = eager(loss, params, batch, coefficients), gradient(batch, coefficients)
    return all(
        torch.allclose(a.float(), b.float(), rtol=1e-3, atol=1e-5 * (1 + float(b.abs().max())))
        for a, b in zip(got, expected, strict=True)
    )


# -- recording ------------------------------------------------------------------------------


def _tape(
    loss: Loss, params: Sequence[Tensor], batch: Sequence[Tensor], coefficients: Sequence[float]
) -> list[tuple[str, Any, Any]]:
    """The calls as (name, arguments, result), tensors replaced by names; outputs come last."""
    scalars = [torch.tensor(c) for c in coefficients]
    with _Recorder() as recorder:
        total, outputs = loss(batch, scalars)
        grads = torch.autograd.grad(total, params)
    names: dict[int, str] = {}
    for kind, tensors in (("p", params), ("b", batch), ("c", scalars)):
        names |= {id(t): f"{kind}{i}" for i, t in enumerate(tensors)}

    def named(value: Any) -> Any:
        if isinstance(value, Tensor):
            if id(value) not in names:
                if value.numel() != 1:
                    raise _Unsupported("a tensor from outside the loss")
                return value.item()
            return _Ref(names[id(value)])
        if isinstance(value, list | tuple):
            return [named(v) for v in value]
        return value

    tape = []
    for i, (name, args, kwargs, result) in enumerate(recorder.calls):
        if not isinstance(result, Tensor):
            raise _Unsupported(name)
        arguments = [named(a) for a in args]
        if name.startswith("ones_like") and result.ndim == 0:
            name, arguments = "scalar_tensor.default", [1.0]  # d loss / d loss: no need of the loss
        if name.startswith(("new_zeros", "ones_like", "zeros_like", "scalar_tensor")):
            kwargs = {}  # dtype and layout: float32 by construction
        if kwargs:
            raise _Unsupported(f"{name} with {kwargs}")
        names[id(result)] = f"v{i}"  # also after an in-place call: from here on it is another value
        tape.append((name, arguments, names[id(result)]))
    tape.append(("outputs", [named(list(grads)), named(list(outputs))], ""))
    return tape


def _generalise(first: list[Any], second: list[Any]) -> list[tuple[str, Any, str]]:
    """One tape for every batch size: integers that differ become expressions in N."""
    if [t[0] for t in first] != [t[0] for t in second]:
        raise _Unsupported("the operations depend on the batch size")
    return [(a[0], _merged(a[1], b[1]), a[2]) for a, b in zip(first, second, strict=True)]


def _merged(a: Any, b: Any) -> Any:
    if isinstance(a, list):
        return [_merged(x, y) for x, y in zip(a, b, strict=True)]
    if isinstance(a, int) and not isinstance(a, bool) and a != b:
        n1, n2 = PROBE_SIZES
        slope, rest = divmod(b - a, n2 - n1)
        return _Size(f"({slope} * N + {a - slope * n1})") if rest == 0 else _refuse(a)
    return a if type(a) is type(b) and a == b else _refuse(a)


def _refuse(value: Any) -> Any:
    raise _Unsupported(f"{value!r} depends on the batch in an unknown way")


# -- the program ------------------------------------------------------------------------------


def _program(
    tape: list[tuple[str, Any, str]],
    shapes: list[tuple[int, ...]],
    n_columns: int,
    n_coefficients: int,
) -> str:
    """Python source of the replay: each distinct and needed operation once, in order."""
    *calls, (_, (grads, outputs), _) = tape
    lines: list[tuple[str, str, set[str]]] = []  # variable, line, what it reads
    seen: dict[str, str] = {}
    alias: dict[str, str] = {}

    def written(value: Any) -> str:
        if isinstance(value, list):
            return "[" + ", ".join(written(v) for v in value) + "]"
        if isinstance(value, _Ref):
            return alias.get(value, value)
        return str(value) if isinstance(value, _Size) else repr(value)

    def read(value: Any) -> set[str]:
        if isinstance(value, list):
            return set().union(*(read(v) for v in value))
        return {alias.get(value, value)} if isinstance(value, _Ref) else set()

    for name, args, variable in calls:
        if name not in OPERATIONS:
            raise _Unsupported(name)
        if name == "detach.default":
            alias[variable] = written(args[0])
            continue
        if name == "_log_softmax_backward_data.default":
            args = args[:3]  # the fourth is a dtype
        expression = f"OPERATIONS[{name!r}]({', '.join(written(a) for a in args)})"
        alias[variable] = seen.setdefault(expression, variable)
        if alias[variable] == variable:
            lines.append((variable, f"{variable} = {expression}", read(args)))

    needed = read(grads) | read(outputs)
    body: list[str] = []
    for variable, line, reads in reversed(lines):
        if variable in needed:
            needed |= reads
            body.insert(0, line)
    offset = 0
    for grad, shape in zip(grads, shapes, strict=True):
        size = int(np.prod(shape, dtype=int))
        body.append(f"G[{offset}:{offset + size}] = np.reshape({written(grad)}, -1)")
        offset += size
    body.append(f"return {written(outputs)}")
    unpack = [
        f"({', '.join(f'{kind}{i}' for i in range(n))},) = {kind.upper()}"
        for kind, n in zip("pbc", (len(shapes), n_columns, n_coefficients), strict=True)
        if n
    ]
    return "\n    ".join(["def replay(P, B, C, G):", *unpack, "N = len(b0)", *body])


def _bind(source: str, params: Sequence[Tensor]) -> Gradient:
    """The program as a function on torch tensors, reading the parameters where they lie."""
    scope: dict[str, Any] = {"np": np}
    for i, (name, operation) in enumerate(OPERATIONS.items()):
        # Plain names: no look-up in a dictionary during the replay.
        source = source.replace(f"OPERATIONS[{name!r}]", f"op{i}")
        scope[f"op{i}"] = operation
    exec(source, scope)
    replay = scope["replay"]
    weights = [p.detach().numpy() for p in params]
    flat = torch.empty(sum(w.size for w in weights))
    flat_view = flat.numpy()

    def gradient(batch: Sequence[Tensor], coefficients: Sequence[float]) -> list[Tensor]:
        columns = [column.numpy() for column in batch]
        scalars = [np.float32(c) for c in coefficients]
        with np.errstate(all="ignore"):  # like torch: a loss that is not finite is found later
            outputs = replay(weights, columns, scalars, flat_view)
        return [flat, *(torch.as_tensor(o) for o in outputs)]

    return gradient
