"""Records a torch computation: the ATen operations of a loss and its gradient, in order.

`write` runs a loss and its backward pass under a dispatch mode and records every call, with names
in place of tensors. `generalise` merges two tapes of different batch sizes into one for all sizes.
`simplified` removes duplicate and unused operations. fast/recorded.py turns the result into a
function.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gymnasium_solver.errors import Unsupported as Unsupported

# loss(batch columns, coefficients) -> (scalar to differentiate, further outputs to return)
Loss = Callable[[Sequence[Tensor], Sequence[Tensor]], tuple[Tensor | None, Sequence[Tensor]]]
# Keyword arguments about memory layout and device, which do not affect the values.
PLACEMENT = {"layout", "device", "pin_memory", "memory_format", "non_blocking"}


@dataclass(frozen=True)
class Ref:
    """A variable, or one element of a variable with several results."""

    variable: str
    index: int | None = None

    def __str__(self) -> str:
        return self.variable if self.index is None else f"{self.variable}[{self.index}]"


class Size(str):
    """A number that depends on the batch size, as an expression in `N`."""


class Rows(int):
    """A size that is this many times the batch size."""


class Meta(NamedTuple):
    """Shape and type of a tensor. After `generalise`, sizes may be `Rows`, and a shape that depends
    on the batch size in another way is None."""

    shape: tuple[int, ...] | None
    dtype: torch.dtype


class Call(NamedTuple):
    name: str  # of the ATen overload, e.g. "mul.Tensor"
    args: list[Any]
    kwargs: dict[str, Any]
    variable: str  # that holds the result
    results: tuple[Meta | None, ...] = ()  # one, or one for each element of a list


class Tape(NamedTuple):
    calls: list[Call]
    grads: list[Ref]
    outputs: list[Ref]
    literals: list[Tensor]  # scalars of unknown origin, kept to detect new ones


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True, the default, imports torch's compiler: 1.3 s, and it is not used

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result


def write(loss: Loss, inputs: Mapping[str, Sequence[Tensor]]) -> Tape:
    """Record a loss and its gradient.

    `inputs` are parameters ("p"), constants ("k"), batch columns ("b") and coefficients ("c"); the
    i-th of them is the variable `p<i>` and so on. Without parameters there is no gradient, and only
    the outputs of the loss are recorded."""
    grads: Sequence[Tensor] = ()
    with _Recorder() as recorder, torch.set_grad_enabled(bool(inputs["p"])):
        total, outputs = loss(inputs["b"], inputs["c"])
        if inputs["p"]:
            assert total is not None
            grads = torch.autograd.grad(total, inputs["p"])
    refs: dict[int, Ref] = {}  # by id: the recorder holds every tensor, so ids are not reused
    for kind, tensors in inputs.items():
        refs |= {id(t): Ref(f"{kind}{i}") for i, t in enumerate(tensors)}
    literals: list[Tensor] = []

    def named(value: Any) -> Any:
        if isinstance(value, Tensor) and id(value) in refs:
            return refs[id(value)]
        if isinstance(value, Tensor):
            if value.ndim != 0:
                raise Unsupported("a tensor from outside the loss")
            literals.append(value)
            return value.item()
        return [named(v) for v in value] if isinstance(value, list | tuple) else value

    calls = []
    for i, (func, args, kwargs, result) in enumerate(recorder.calls):
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise Unsupported(f"{func} is random")
        # An in-place call is replayed as an out-of-place one: its readers come later.
        call = Call(
            str(func).removeprefix("aten.").replace("_.", "."),
            [named(a) for a in args],
            {key: named(v) for key, v in kwargs.items() if key not in PLACEMENT},
            f"v{i}",
            _metas(result),
        )
        if call.name == "ones_like.default" and result.ndim == 0:
            # d loss / d loss is 1 and does not depend on the loss
            call = call._replace(name="scalar_tensor.default", args=[1.0])
        if isinstance(result, Tensor):
            refs[id(result)] = Ref(call.variable)
        elif isinstance(result, list | tuple):
            refs |= {id(r): Ref(call.variable, j) for j, r in enumerate(result) if r is not None}
        else:
            raise Unsupported(f"{call.name} returns {type(result).__name__}, not a tensor")
        calls.append(call)
        if any(_is_integer(a) for a in args) and getattr(result, "dtype", None) == torch.float32:
            # NumPy promotes integers and float32 to float64.
            source, to = [Ref(call.variable)], {"dtype": torch.float32}
            cast = Call("_to_copy.default", source, to, f"w{i}", call.results)
            refs[id(result)] = Ref(cast.variable)
            calls.append(cast)
    return Tape(calls, named(list(grads)), named(list(outputs)), literals)


def write_forward(
    function: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor]
) -> tuple[Tape, list[Tensor]]:
    """Record a function of these inputs (`b<i>`) at their batch size, and the constants `k<i>` that
    it reads: all tensors that do not depend on the inputs. What is computed from constants alone is
    a constant too. float64 is recorded as float32."""
    with _Recorder() as recorder, torch.no_grad():
        outputs = function(*inputs)
    refs = {id(t): Ref(f"b{i}") for i, t in enumerate(inputs)}
    constants: dict[int, Tensor] = {}

    def named(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [named(v) for v in value]
        if not isinstance(value, Tensor) or id(value) in refs:
            return refs[id(value)] if isinstance(value, Tensor) else value
        if value.ndim == 0:
            return value.item()
        constants[id(value)] = value
        return Ref(f"k{list(constants).index(id(value))}")

    calls = []
    for i, (func, args, kwargs, result) in enumerate(recorder.calls):
        if not _depends([*args, *kwargs.values()], refs):
            continue
        name = str(func).removeprefix("aten.").replace("_.", ".")
        given = {key: named(v) for key, v in kwargs.items() if key not in PLACEMENT}
        metas = tuple(m and m._replace(dtype=narrow(m.dtype)) for m in _metas(result))
        calls.append(Call(name, [named(a) for a in args], given, f"v{i}", metas))
        if isinstance(result, Tensor):
            refs[id(result)] = Ref(f"v{i}")
        else:
            refs |= {id(r): Ref(f"v{i}", j) for j, r in enumerate(result)}
    tape = simplified(Tape(calls, [], named(outputs), []), ())
    return tape, list(constants.values())


def narrow(dtype: torch.dtype) -> torch.dtype:
    """float32 for float64, which compiled programs do not know."""
    return torch.float32 if dtype == torch.float64 else dtype


def _depends(value: Any, refs: Mapping[int, Ref]) -> bool:
    if isinstance(value, list | tuple):
        return any(_depends(v, refs) for v in value)
    return isinstance(value, Tensor) and id(value) in refs


def _metas(result: Any) -> tuple[Meta | None, ...]:
    parts = result if isinstance(result, list | tuple) else [result]
    return tuple(Meta(tuple(p.shape), p.dtype) if isinstance(p, Tensor) else None for p in parts)


def _is_integer(value: Any) -> bool:
    return isinstance(value, Tensor) and not (
        value.is_floating_point() or value.dtype == torch.bool
    )


# -- for every batch size -------------------------------------------------------------------


def generalise(first: Tape, second: Tape, sizes: tuple[int, int]) -> Tape:
    """Merge the tapes of two batch sizes: numbers that differ become expressions in N."""
    if [c.name for c in first.calls] != [c.name for c in second.calls]:
        raise Unsupported("the operations depend on the batch size")
    if {id(t) for t in first.literals} & {id(t) for t in second.literals}:
        raise Unsupported("a scalar tensor from outside the loss, which may change")
    calls = [
        a._replace(
            args=_merged(a.args, b.args, sizes),
            kwargs=_merged(a.kwargs, b.kwargs, sizes),
            results=merged_metas(a.results, b.results, sizes),
        )
        for a, b in zip(first.calls, second.calls, strict=True)
    ]
    return first._replace(calls=calls)


def merged_metas(
    a: Sequence[Meta | None], b: Sequence[Meta | None], sizes: tuple[int, int]
) -> tuple[Meta | None, ...]:
    return tuple(
        None if x is None or y is None else Meta(_merged_shape(x.shape, y.shape, sizes), x.dtype)
        for x, y in zip(a, b, strict=True)
    )


def _merged_shape(
    a: tuple[int, ...] | None, b: tuple[int, ...] | None, sizes: tuple[int, int]
) -> tuple[int, ...] | None:
    if a is None or b is None or len(a) != len(b):
        return None
    n, m = sizes
    shape = []
    for x, y in zip(a, b, strict=True):
        if x != y and (x % n or y % m or x // n != y // m):
            return None
        shape.append(x if x == y else Rows(x // n))
    return tuple(shape)


def _merged(a: Any, b: Any, sizes: tuple[int, int]) -> Any:
    if isinstance(a, list):
        return [_merged(x, y, sizes) for x, y in zip(a, b, strict=True)]
    if isinstance(a, dict):
        return {key: _merged(value, b[key], sizes) for key, value in a.items()}
    if type(a) is type(b) and a == b:
        return a
    n, m = sizes
    if type(a) is int and type(b) is int:
        slope, rest = divmod(b - a, m - n)
        if rest == 0:
            return Size(f"({slope} * N + {a - slope * n})")
    if type(a) is float and type(b) is float:
        for less in (0, 1):  # a mean, and a variance with Bessel's correction
            if math.isclose(a * (n - less), b * (m - less), rel_tol=1e-12):
                return Size(f"({a * (n - less)!r} / (N - {less}))")
    raise Unsupported(f"{a!r} depends on the batch size in an unknown way")


# -- simpler --------------------------------------------------------------------------------


def simplified(tape: Tape, fusible: Collection[tuple[str, str]]) -> Tape:
    """Keep each distinct and needed operation once; fuse the pairs of names in `fusible` to
    "a+b"."""
    return _fused(needed(_distinct(tape)), fusible)


def _distinct(tape: Tape) -> Tape:
    alias: dict[str, Ref] = {}
    seen: dict[str, str] = {}
    transposed: dict[Ref, Ref] = {}
    calls = []

    def named(ref: Ref) -> Ref:
        found = alias.get(ref.variable, ref)
        return found if ref.index is None else Ref(found.variable, ref.index)

    for call in tape.calls:
        call = call._replace(args=map_refs(call.args, named), kwargs=map_refs(call.kwargs, named))
        variable = seen.setdefault(repr(call[:3]), call.variable)
        if call.name == "detach.default":
            alias[call.variable] = call.args[0]
        elif call.name == "t.default" and call.args[0] in transposed:
            alias[call.variable] = transposed[call.args[0]]
        elif variable != call.variable:
            alias[call.variable] = Ref(variable)
        else:
            calls.append(call)
            if call.name == "t.default":
                transposed[Ref(call.variable)] = call.args[0]
    grads, outputs = map_refs(tape.grads, named), map_refs(tape.outputs, named)
    return tape._replace(calls=calls, grads=grads, outputs=outputs)


def needed(tape: Tape) -> Tape:
    """Without the operations whose results nothing reads."""
    read = {ref.variable for ref in (*tape.grads, *tape.outputs)}
    calls: list[Call] = []
    for call in reversed(tape.calls):
        if call.variable in read:
            read |= {ref.variable for ref in refs_in(call)}
            calls.append(call)
    return tape._replace(calls=calls[::-1])


def _fused(tape: Tape, fusible: Collection[tuple[str, str]]) -> Tape:
    n_reads: dict[str, int] = {}
    for ref in (*refs_in(tape.calls), *tape.grads, *tape.outputs):
        n_reads[ref.variable] = n_reads.get(ref.variable, 0) + 1
    calls: dict[str, Call] = {}
    for call in tape.calls:
        operand = call.args[0] if call.args else None
        before = calls.get(operand.variable) if isinstance(operand, Ref) else None
        if before and (before.name, call.name) in fusible and n_reads[before.variable] == 1:
            del calls[before.variable]
            args = [*before.args, *call.args[1:]]
            call = call._replace(name=f"{before.name}+{call.name}", args=args)
        calls[call.variable] = call
    return tape._replace(calls=list(calls.values()))


def refs_in(value: Any) -> list[Ref]:
    if isinstance(value, Call):
        value = [value.args, value.kwargs]  # the rest are names and shapes
    elif isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [ref for v in value for ref in refs_in(v)]
    return [value] if isinstance(value, Ref) else []


def map_refs(value: Any, change: Callable[[Ref], Ref]) -> Any:
    """Lists and dicts with other values in place of theirs."""
    if isinstance(value, list):
        return [map_refs(v, change) for v in value]
    if isinstance(value, dict):
        return {key: map_refs(v, change) for key, v in value.items()}
    return change(value) if isinstance(value, Ref) else value
