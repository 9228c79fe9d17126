"""The text of the C header (c_header.py compiles and compares it)."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from gymnasium_solver.errors import RunError
from gymnasium_solver.share.export.deployed import Deployed
from gymnasium_solver.share.export.layers import (
    Activation,
    Dense,
    Layer,
    Norm,
    OneHot,
    Program,
    Scaled,
    Shifted,
    Table,
)
from gymnasium_solver.spaces.action_base import ActionKind
from gymnasium_solver.spaces.actions import (
    BoxActions,
    DiscreteActions,
    MultiBinaryActions,
    MultiDiscreteActions,
    ProductActions,
)

HELPERS = """\
static inline float policy_clip(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}

static inline void policy_dense(const float *w, const float *b, const float *x, float *y, int n_in,
                                int n_out) {
  for (int i = 0; i < n_out; i++) y[i] = b[i];
  for (int j = 0; j < n_in; j++)
    for (int i = 0; i < n_out; i++) y[i] += w[j * n_out + i] * x[j];
}

static inline int policy_best(const float *x, int n) {
  int best = 0;
  for (int i = 1; i < n; i++)
    if (x[i] > x[best]) best = i;
  return best;
}
"""
# Expressions of x, as torch defines the activations.
ACTIVATION = {
    "tanh": "tanhf(x)",
    "relu": "x > 0.0f ? x : 0.0f",
    "leaky_relu": "x > 0.0f ? x : 0.01f * x",
    "elu": "x > 0.0f ? x : expm1f(x)",
    "selu": "1.0507009873554805f * (x > 0.0f ? x : 1.6732632423543772f * expm1f(x))",
    "gelu": "0.5f * x * (1.0f + erff(x * 0.70710678f))",
    "silu": "x / (1.0f + expf(-x))",
    "swish": "x / (1.0f + expf(-x))",
}


class Writer:
    """Collects constants and statements; `x` names the buffer with the current values."""

    def __init__(self) -> None:
        self.constants: list[str] = []
        self.lines: list[str] = []
        self._buffers = 0

    def constant(self, values: np.ndarray, kind: str = "float") -> str:
        name = f"policy_k{len(self.constants)}"
        flat = np.asarray(values).reshape(-1)
        if kind == "float":
            words = [_number(value) for value in flat]
        else:
            words = [str(int(value)) for value in flat]
        rows = [", ".join(words[i : i + 10]) for i in range(0, len(words), 10)]
        body = ",\n  ".join(rows)
        self.constants.append(f"static const {kind} {name}[{len(flat)}] = {{\n  {body}}};")
        return name

    def buffer(self, width: int) -> str:
        name = f"x{self._buffers}"
        self._buffers += 1
        self.lines.append(f"float {name}[{width}];")
        return name

    def each(self, n: int, statement: str) -> None:
        self.lines.append(f"for (int i = 0; i < {n}; i++) {{ {statement} }}")


def c_source(policy: Deployed, program: Program, meta: dict[str, Any]) -> str:
    writer = Writer()
    joined, width = _joined(writer, program)
    trunk, width = _run(writer, program.trunk, joined, width)
    scores = _scores(writer, program, trunk, width)
    _masked(writer, policy, scores)
    act = _act(writer, policy.kind, scores)
    is_discrete = isinstance(policy.kind, DiscreteActions)
    arguments = ["const float *obs"]
    arguments += ["const unsigned char *mask"] if policy.has_mask else []
    arguments += [] if is_discrete else ["float *action"]
    about = json.dumps(meta, indent=1).replace("*/", "* /")
    body = "\n  ".join([*writer.lines, *act])
    constants = "\n".join(writer.constants)
    kind = "int" if is_discrete else "void"
    return (
        "/* A trained policy, written by gymnasium-solver: C99, no dependencies but libm.\n"
        f"   obs: {program.n_inputs} numbers, {_order(program)}\n"
        f"{about}\n*/\n"
        "#ifndef GSOLVE_POLICY_H\n#define GSOLVE_POLICY_H\n#include <math.h>\n\n"
        f"#define POLICY_N_OBS {program.n_inputs}\n\n{constants}\n\n{HELPERS}\n"
        f"static inline {kind} policy_act({', '.join(arguments)}) {{\n  {body}\n}}\n\n"
        "#endif\n"
    )


def _order(program: Program) -> str:
    parts = sorted(program.parts, key=lambda part: part.start)
    if len(parts) == 1 and not parts[0].name:
        return "in the order of the environment"
    return "the parts at " + ", ".join(f"{part.start}: {part.name}" for part in parts)


def _number(value: float) -> str:
    if not np.isfinite(value):
        return "INFINITY" if value > 0 else "-INFINITY" if value < 0 else "NAN"
    text = repr(float(np.float32(value)))
    return f"{text}f" if any(c in text for c in ".e") else f"{text}.0f"


def _joined(writer: Writer, program: Program) -> tuple[str, int]:
    """The parts of the observation, each after its own layers, in one vector."""
    sources = []
    for part in program.parts:
        name, width = _run(writer, part.layers, f"(obs + {part.start})", part.width)
        sources.append((part, name, width))
    total = sum(width for *_, width in sources)
    joined, start = writer.buffer(total), 0
    numbers = 0
    for part, name, width in sources:
        writer.each(width, f"{joined}[{start} + i] = {name}[i];")
        start += width
        numbers += width if part.is_number else 0
    if program.normalizer is not None and numbers:
        _shifted(writer, program.normalizer, joined, numbers)
    return joined, total


def _shifted(writer: Writer, layer: Shifted, x: str, width: int) -> None:
    shift, scale = writer.constant(layer.shift), writer.constant(layer.scale)
    clip = _number(layer.clip)
    value = f"({x}[i] - {shift}[i]) * {scale}[i]"
    writer.each(width, f"{x}[i] = policy_clip({value}, -{clip}, {clip});")


def _run(writer: Writer, layers: Sequence[Layer], x: str, width: int) -> tuple[str, int]:
    """Statements for the layers; the buffer with their result and its width."""
    for layer in layers:
        x, width = _layer(writer, layer, x, width)
    return x, width


def _layer(writer: Writer, layer: Layer, x: str, width: int) -> tuple[str, int]:
    if isinstance(layer, Dense):
        n_out, n_in = layer.weight.shape
        y = writer.buffer(n_out)
        weight, bias = writer.constant(layer.weight.T), writer.constant(layer.bias)
        # By columns: the inner loop runs over outputs, which compilers vectorise.
        writer.lines.append(f"policy_dense({weight}, {bias}, {x}, {y}, {n_in}, {n_out});")
        return y, n_out
    if isinstance(layer, OneHot):
        columns, values = writer.constant(layer.columns, "int"), writer.constant(layer.values)
        y = writer.buffer(len(layer.values))
        writer.each(len(layer.values), f"{y}[i] = {x}[{columns}[i]] == {values}[i] ? 1.0f : 0.0f;")
        return y, len(layer.values)
    if isinstance(layer, Table):
        table, n = writer.constant(layer.table), layer.table.shape[1]
        y = writer.buffer(n)
        writer.each(n, f"{y}[i] = {table}[((int){x}[0] - {layer.start}) * {n} + i];")
        return y, n
    y = writer.buffer(width)
    if isinstance(layer, Activation):
        writer.each(width, f"float x = {x}[i]; {y}[i] = {ACTIVATION[layer.name]};")
    elif isinstance(layer, Scaled):
        _scaled(writer, layer, x, y, width)
    else:
        assert isinstance(layer, Norm)
        _norm(writer, layer, x, y, width)
    return y, width


def _scaled(writer: Writer, layer: Scaled, x: str, y: str, width: int) -> None:
    scale, shift = writer.constant(layer.scale), writer.constant(layer.shift)
    value = f"{x}[i] * {scale}[i] + {shift}[i]"
    if layer.low is not None and layer.high is not None:
        low, high = writer.constant(layer.low), writer.constant(layer.high)
        value = f"policy_clip({value}, {low}[i], {high}[i])"
    writer.each(width, f"{y}[i] = {value};")


def _norm(writer: Writer, layer: Norm, x: str, y: str, width: int) -> None:
    weight, bias = writer.constant(layer.weight), writer.constant(layer.bias)
    m = y  # y's own name makes the helper names unique
    writer.lines.append(f"float {m}_mean = 0.0f, {m}_var = 0.0f;")
    writer.each(width, f"{m}_mean += {x}[i] / {width}.0f;")
    writer.each(width, f"{m}_var += ({x}[i] - {m}_mean) * ({x}[i] - {m}_mean) / {width}.0f;")
    writer.lines.append(f"float {m}_scale = 1.0f / sqrtf({m}_var + {_number(layer.eps)});")
    writer.each(width, f"{y}[i] = ({x}[i] - {m}_mean) * {m}_scale * {weight}[i] + {bias}[i];")


def _scores(writer: Writer, program: Program, x: str, width: int) -> str:
    """Logits, Q-values or real-valued actions in the policy's units."""
    out, n = _run(writer, program.advantage, x, width)
    if program.squash:
        writer.each(program.n_outputs, f"{out}[i] = tanhf({out}[i]);")
        return out
    atoms = program.n_atoms
    n_actions = n // atoms
    if program.value is not None:
        value, _ = _run(writer, program.value, x, width)
        sums = f"float mean = 0.0f; for (int a = 0; a < {n_actions}; a++) mean += "
        sums += f"{out}[a * {atoms} + i] / {n_actions}.0f; "
        add = f"for (int a = 0; a < {n_actions}; a++) {out}[a * {atoms} + i] += {value}[i] - mean;"
        writer.each(atoms, sums + add)
    return out if atoms == 1 else _expected(writer, program, out, n_actions)


def _expected(writer: Writer, program: Program, logits: str, n_actions: int) -> str:
    """Expected returns of categorical distributions."""
    support, atoms = writer.constant(program.support), program.n_atoms
    q = writer.buffer(n_actions)
    row = f"{logits} + i * {atoms}"
    writer.each(
        n_actions,
        f"const float *row = {row}; float top = row[policy_best(row, {atoms})], sum = 0.0f, "
        f"total = 0.0f; for (int k = 0; k < {atoms}; k++) {{ float e = expf(row[k] - top); "
        f"sum += e; total += e * {support}[k]; }} {q}[i] = total / sum;",
    )
    return q


def _masked(writer: Writer, policy: Deployed, scores: str) -> None:
    n = policy.kind.n_mask
    if policy.legal is not None:
        legal = writer.constant(policy.legal.numpy(), "unsigned char")
        writer.each(int(n or 0), f"if (!{legal}[i]) {scores}[i] = -INFINITY;")
    if policy.has_mask:
        writer.each(int(n or 0), f"if (!mask[i]) {scores}[i] = -INFINITY;")


def _act(writer: Writer, kind: ActionKind, scores: str) -> list[str]:
    """Statements that turn scores into the environment's action."""
    if isinstance(kind, DiscreteActions):
        return [f"return policy_best({scores}, {kind.n}) + {kind.start};"]
    lines: list[str] = []
    _leaf(writer, kind, scores, 0, 0, lines)
    return lines


def _leaf(
    writer: Writer, kind: ActionKind, x: str, first: int, place: int, lines: list[str]
) -> tuple[int, int]:
    """Write one leaf: its outputs start at `first`, its action at `place`; return what follows."""
    if isinstance(kind, ProductActions):
        for leaf in kind.leaves:
            first, place = _leaf(writer, leaf, x, first, place, lines)
        return first, place
    if isinstance(kind, DiscreteActions):
        lines.append(
            f"action[{place}] = (float)(policy_best({x} + {first}, {kind.n}) + {kind.start});"
        )
        return first + kind.n, place + 1
    if isinstance(kind, MultiDiscreteActions):
        for size, start in zip(kind.sizes, kind.start, strict=True):
            best = f"policy_best({x} + {first}, {size})"
            lines.append(f"action[{place}] = (float)({best} + {int(start)});")
            first, place = first + size, place + 1
        return first, place
    if isinstance(kind, MultiBinaryActions):
        value = f"{x}[{first} + i] > 0.0f ? 1.0f : 0.0f"
    elif isinstance(kind, BoxActions):
        value = f"{x}[{first} + i]"
        if kind.is_bounded:
            middle, half = writer.constant(kind.middle), writer.constant(kind.half_width)
            value = f"{middle}[i] + {half}[i] * policy_clip({value}, -1.0f, 1.0f)"
    else:
        raise RunError(f"--format c has no form for actions of type {type(kind).__name__}.")
    n = kind.n_outputs
    lines.append(f"for (int i = 0; i < {n}; i++) action[{place} + i] = {value};")
    return first + n, place + n
