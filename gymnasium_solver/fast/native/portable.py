"""A forward pass of one sample as plain C99, for a file that leaves this machine.

    tape, constants = write_forward(function, [obs])
    text = portable(tape, {"obs": obs}, {"weight": constants[0]}, ["action"], prefix="policy_")
    text.constants, text.helpers, text.statements          # lists of C text

It has no threads, no vector extension, no memory of its own and no header but math.h. Operations
of equal shape share a loop, as in a compiled program (lower.py); a product is a call of `dense`.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from gymnasium_solver.fast.native.arrays import ONE, ZERO, Array, Extent, Storage, canonical
from gymnasium_solver.fast.native.builder import aligned
from gymnasium_solver.fast.native.kernels import (
    Load,
    Local,
    Loop,
    Lowered,
    Matmul,
    Panels,
    Reduce,
    Value,
    Variable,
)
from gymnasium_solver.fast.native.lower import Lowering
from gymnasium_solver.fast.native.memory import storages_of
from gymnasium_solver.fast.native.nest import Nest, joined
from gymnasium_solver.fast.native.pointwise import BUILD, Operand
from gymnasium_solver.fast.tape import Call, Meta, Ref, Tape, Unsupported, narrow

C_TYPES = {"float": "float", "int64_t": "int", "int32_t": "int", "uint8_t": "unsigned char"}
NAMES = {
    "f_exp": "expf", "f_expm1": "expm1f", "f_log": "logf", "f_log1p": "log1pf", "f_tanh": "tanhf",
    "f_max": "larger", "f_min": "smaller", "f_sign": "sign", "f_sigmoid": "sigmoid",
    "f_softplus": "softplus",
}  # fmt: skip
"""Functions of runtime.h -> those of math.h, or of HELPERS."""
HELPERS = {
    "dense": """\
void dense(const float *w, const float *b, const float *x, float *y,
                                int n_in, int n_out) {
  for (int i = 0; i < n_out; i++) y[i] = b ? b[i] : 0.0f;
  for (int j = 0; j < n_in; j++)
    for (int i = 0; i < n_out; i++) y[i] += w[j * n_out + i] * x[j];
}""",
    "argmax": """\
int argmax(const float *x, int n, int step) {
  int best = 0;
  for (int i = 1; i < n; i++)
    if (x[i * step] > x[best * step]) best = i;
  return best;
}""",
    "sum": """\
float sum(const float *x, int n, int step) {
  float total = 0.0f;
  for (int i = 0; i < n; i++) total += x[i * step];
  return total;
}""",
    "max": """\
float max(const float *x, int n, int step) {
  float most = x[0];
  for (int i = 1; i < n; i++) most = x[i * step] > most ? x[i * step] : most;
  return most;
}""",
    "min": """\
float min(const float *x, int n, int step) {
  float least = x[0];
  for (int i = 1; i < n; i++) least = x[i * step] < least ? x[i * step] : least;
  return least;
}""",
    "larger": "float larger(float a, float b) { return a > b || a != a ? a : b; }",
    "smaller": "float smaller(float a, float b) { return a < b || a != a ? a : b; }",
    "relu": "float relu(float x) { return x > 0.0f ? x : 0.0f; }",
    "clip": """\
float clip(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}""",
    "sign": "float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }",
    "sigmoid": "float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }",
    "softplus": """\
float softplus(float x) {
  return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));
}""",
}
PER_LINE = 8  # numbers of a constant
DEFINED = re.compile(r"const (\w+) (\w+) = (.*);")  # as builder.py writes it
VARIABLE = re.compile(r"\ba\d+\b")
OPERAND = re.compile(r"\w+(\[[^\[\]]*\]|\([^()]*\))?")  # needs no parentheses
SHIFTED = re.compile(
    r"\((\w+) \+ (\d+)\)\[(\w[^\[\]]*)\]"
)  # an element of a part, as nest.py has it
LETTERS = "ijklmn"  # indices of loops
WIDTH = 92  # characters of a line of declarations


class Portable(NamedTuple):
    constants: list[str]
    helpers: list[str]
    statements: list[str]


def portable(
    tape: Tape,
    inputs: Mapping[str, Tensor],
    constants: Mapping[str, Tensor],
    outputs: Sequence[str],
    prefix: str = "",
) -> Portable:
    """The C text of a tape of `write_forward`: arrays named `inputs` in, float arrays named
    `outputs` out. `prefix`: of constants and helpers. Unsupported if an operation has no form."""
    given = {"b": list(inputs.values()), "k": list(constants.values())}
    metas = {
        Ref(f"{kind}{i}"): Meta(tuple(t.shape), narrow(t.dtype))
        for kind, tensors in given.items()
        for i, t in enumerate(tensors)
    }
    try:
        program = PortableLowering(tape, metas, 0).run()
    except (AssertionError, AttributeError, KeyError, TypeError) as error:
        raise Unsupported(f"{type(error).__name__}: {error}") from error
    writer = _Writer(program, list(inputs), [prefix + name for name in constants], outputs)
    text = "\n".join(writer.lines)
    helpers = [name for name in HELPERS if re.search(rf"\b{name}\(", text)]
    called = re.compile(rf"\b({'|'.join(helpers) or '$'})\(")

    def prefixed(text: str) -> str:
        return called.sub(rf"{prefix}\1(", text)

    return Portable(
        [_constant(prefix + n, t) for n, t in constants.items() if prefix + n in writer.read],
        [f"static inline {prefixed(HELPERS[name])}" for name in helpers],
        [*writer.declarations, *map(prefixed, writer.lines)],
    )


def _constant(name: str, tensor: Tensor) -> str:
    values = tensor.detach().cpu().to(narrow(tensor.dtype)).numpy()
    kind = {"f": "float", "i": "int"}.get(values.dtype.kind, "unsigned char")
    words = [_number(value) for value in values.reshape(-1)]
    lines = [", ".join(words[i : i + PER_LINE]) for i in range(0, len(words), PER_LINE)]
    size = " * ".join(str(n) for n in values.shape if n != 1) or "1"
    body = ",\n  ".join(lines)
    return f"static const {kind} {name}[{size}] = {{\n  {body}}};"


def _number(value: Any) -> str:
    if not isinstance(value, np.floating):
        return str(int(value))
    if not np.isfinite(value):
        return "NAN" if np.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
    return f"{value!s}f"  # the shortest text that is this float32


# -- operations that only a portable program knows --------------------------------------------


def _gelu(x: Operand) -> str:
    return f"0.5f * {x.real} * (1.0f + erff({x.real} * 0.70710678f))"


def _clip(x: Operand, low: Operand | None = None, high: Operand | None = None) -> str:
    bounds = [end if b is None else b.real for b, end in ((low, "-INFINITY"), (high, "INFINITY"))]
    return f"clip({x.real}, {', '.join(bounds)})"


def _elu(x: Operand, alpha: Any = None, scale: Any = None, inner: Any = None) -> str:
    a, b, c = ("1.0f" if factor is None else factor.real for factor in (alpha, scale, inner))
    return f"{b} * ({x.real} > 0.0f ? {x.real} : {a} * expm1f({c} * {x.real}))"


class PortableLowering(Lowering):
    """Training does not compile the operations that only this has: its runs would round differently
    than before."""

    forms = BUILD | {"gelu": _gelu, "elu": _elu, "clamp": _clip, "clamp_min": _clip}
    forms |= {
        "relu": lambda x: f"relu({x.real})",
        "clamp_max": lambda x, most: _clip(x, None, most),
    }

    def __init__(self, tape: Tape, inputs: Mapping[Ref, Meta], n_params: int):
        super().__init__(tape, inputs, n_params)
        self.sections = [self.section]  # there is one sample, so everything runs once

    def panels(self, b: Array, k: Extent) -> Panels:
        return Panels(b.storage, k, True, b)

    def op_index(self, call: Call, x: Any, indices: Sequence[Any]) -> Value:
        if len(indices) != 1:
            raise Unsupported("several indices at once")
        return self.op_index_select(call, x, 0, indices[0])

    def op_index_select(self, call: Call, x: Any, dim: int, index: Any) -> Value:
        shape, _ = self.result(call)
        array, where = self.array(self.value(x)), self.array(self.value(index))
        before, after = array.strides[:dim], array.strides[dim + 1 :]
        places = (*[ZERO] * len(before), *where.strides, *[ZERO] * len(after))
        index_array = where._replace(shape=shape, strides=places)
        strides = (*before, *[ZERO] * len(where.shape), *after)
        source = array._replace(shape=shape, strides=strides)
        loop, number = self.loop(shape, [source, index_array])
        chosen = self.operand(loop, number, index_array, shape)
        self.uses(array.storage, number)
        name, more = self.name(), f"{chosen.text} * {array.strides[dim]}"
        loop.body.append(Load(name, source, aligned(source, shape), more))
        return Local(Variable(name, array.ctype, self.section, number, canonical(shape)), shape)


# -- text -------------------------------------------------------------------------------------


class _Writer:
    def __init__(
        self, program: Lowered, inputs: list[str], constants: list[str], outputs: Sequence[str]
    ):
        self.lines: list[str] = []
        self.read: set[str] = set()  # the constants that are read
        self._own: dict[str, list[str]] = {}  # arrays of the function by C type
        offsets = [about[0] for _, about in program.outputs]
        self._names = {"column": dict(enumerate(inputs)), "tensor": dict(enumerate(constants))}
        self._names["out"] = dict(zip(offsets, outputs, strict=True))
        (section,) = program.sections
        for storage in storages_of(section):
            self._name(storage)
        for kernel in section.kernels:
            if isinstance(kernel, Matmul):
                self._product(kernel)
            elif not isinstance(kernel, Loop):
                raise Unsupported(f"a {type(kernel).__name__}")
            elif kernel.stores:
                self._loop(kernel)

    @property
    def declarations(self) -> list[str]:
        found = []
        for kind, arrays in self._own.items():
            lines = textwrap.wrap(", ".join(arrays), WIDTH, break_long_words=False)
            found.append(f"{kind} " + "\n      ".join(lines) + ";")
        return found

    def _name(self, storage: Storage) -> None:
        if storage.place == "uniform":
            storage.name = f"x{sum(map(len, self._own.values()))}"
            own = self._own.setdefault(C_TYPES[storage.ctype], [])
            own.append(f"{storage.name}[{storage.size}]")
            return
        storage.name = self._names[storage.place][storage.index]
        if storage.place == "tensor":
            self.read.add(storage.name)

    def _product(self, kernel: Matmul) -> None:
        a, b, out, bias = kernel.a, kernel.b.rows, kernel.out, kernel.bias
        assert b is not None
        is_plain = b.is_contiguous and a.is_contiguous and out.is_contiguous
        if out.shape[:-1] != (ONE,) or not is_plain:
            raise Unsupported("a product of this form")
        row = "0" if bias is None else bias.start
        sizes = f"{kernel.k}, {out.shape[-1]}"
        self.lines.append(f"dense({b.start}, {row}, {a.start}, {out.start}, {sizes});")

    def _loop(self, loop: Loop) -> None:
        nest = Nest(loop)
        stores = [(nest.element(array, strides), name) for name, array, strides in loop.stores]
        text = "\n".join(_statements([_defined(item, nest) for item in loop.body], stores))
        text = re.sub(r"\bi(\d)\b", lambda m: LETTERS[int(m[1])], text)
        text = re.sub(r"\b\w+(?=\()", lambda m: NAMES.get(m[0], m[0]), text)
        text = SHIFTED.sub(lambda m: f"{m[1]}[{m[2]}{'' if m[3] == '0' else f' + {m[3]}'}]", text)
        lines = text.split("\n")
        for depth, d in enumerate(reversed(nest.order)):
            i = LETTERS[d]
            opening = f"for (int {i} = 0; {i} < {nest.sizes[d]}; {i}++)"
            if depth == 0 and len(lines) == 1:
                lines = [f"{opening} {lines[0]}"]
            elif len(lines) == 1:
                lines = [opening, f"  {lines[0]}"]
            else:
                lines = [f"{opening} {{", *(f"  {line}" for line in lines), "}"]
        self.lines += lines


def _defined(item: Load | Reduce | str, nest: Nest) -> tuple[str, str, str]:
    """The C type, name and expression of a local variable."""
    if isinstance(item, str):
        found = DEFINED.fullmatch(item)
        assert found is not None
        return found[1], found[2], found[3]
    if isinstance(item, Load):
        return item.array.ctype, item.name, nest.element(item.array, item.strides, item.more)
    long = [pair for pair in zip(item.sizes, item.inner, strict=True) if pair[0] != ONE]
    if len(long) > 1 or item.array.ctype != "float":
        raise Unsupported(f"a {item.kind} of this form")
    size, step = long[0] if long else (ONE, ONE)
    base = nest.index(item.strides)
    place = joined([item.array.start, "" if base == "0" else base])
    return item.ctype, item.name, f"{item.kind}({place}, {size}, {step})"


def _statements(
    defined: Sequence[tuple[str, str, str]], stores: Sequence[tuple[str, str]]
) -> list[str]:
    """Variables that are read once are written where they are read, unless they convert a type."""
    later = " ".join([*(text for *_, text in defined), *(f"{to} {name}" for to, name in stores)])
    stored = {name for _, name in stores}
    inlined: dict[str, str] = {}

    def fill(found: re.Match[str]) -> str:
        text, before, after = found[0], found.string[: found.start()], found.string[found.end() :]
        text = inlined.get(text, text)
        is_whole = before == "" or before.endswith(("(", ", "))
        is_whole &= after == "" or after.startswith((")", ","))
        return text if is_whole or OPERAND.fullmatch(text) else f"({text})"

    lines = []
    for ctype, name, text in defined:
        n_reads, whole = len(re.findall(rf"\b{name}\b", later)), VARIABLE.sub(fill, text)
        if n_reads == 1 and (name in stored or not VARIABLE.fullmatch(text)):
            inlined[name] = whole
        elif n_reads:
            lines.append(f"const {C_TYPES[ctype]} {name} = {whole};")
    return [*lines, *(f"{to} = {VARIABLE.sub(fill, name)};" for to, name in stores)]
