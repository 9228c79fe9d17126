"""A tape (fast/tape.py) as a Python function of NumPy calls (fast/aten.py)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.fast.aten import FUSED, OPERATIONS, WITH_OUT, inlined, through_torch
from gymnasium_solver.fast.tape import Ref, Size, Tape, Unsupported, refs_in

Coefficients = Sequence[float | Tensor]
Gradient = Callable[[Sequence[Tensor], Coefficients], list[Tensor]]
Forward = Callable[..., list[np.ndarray]]


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
