"""Elementwise operations as C expressions of their operands.

Operands are C names or literals with their C types. An entry returns the expression; its type is
that of the recorded result.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from gymnasium_solver.fast.tape import Unsupported


class Operand(NamedTuple):
    text: str
    ctype: str  # "float", "int64_t", "uint8_t", ...
    value: float | None = None  # of a number known when compiling

    @property
    def real(self) -> str:
        return self.text if self.ctype == "float" else f"(float){self.text}"


Build = Callable[..., str]


def _scaled(y: Operand, alpha: Any) -> str:
    if alpha is None:
        return y.real
    if not isinstance(alpha, Operand) or alpha.value == 1:
        return y.real
    return f"{alpha.real} * {y.real}"


def _arithmetic(sign: str) -> Build:
    def build(x: Operand, y: Operand, alpha: Operand | None = None) -> str:
        if "float" not in (x.ctype, y.ctype) and alpha is None:
            return f"{x.text} {sign} {y.text}"
        return f"{x.real} {sign} {_scaled(y, alpha)}"

    return build


def _compare(sign: str) -> Build:
    def build(x: Operand, y: Operand) -> str:
        if "float" in (x.ctype, y.ctype):
            return f"{x.real} {sign} {y.real}"
        return f"{x.text} {sign} {y.text}"

    return build


def _divide(x: Operand, y: Operand) -> str:
    return f"{x.real} / {y.real}"


def _power(x: Operand, n: Operand) -> str:
    a = x.real
    known = {
        0.5: f"sqrtf({a})", 1: a, 2: f"{a} * {a}", 3: f"{a} * {a} * {a}",
        -1: f"1.0f / {a}", -0.5: f"1.0f / sqrtf({a})", 4: f"({a} * {a}) * ({a} * {a})",
    }  # fmt: skip
    if n.value not in known:
        raise Unsupported("a power that is not a small whole number or a root")
    return known[n.value]


def _clamp(x: Operand, low: Operand | None = None, high: Operand | None = None) -> str:
    text = x.real
    if low is not None:
        text = f"({text} < {low.real} ? {low.real} : {text})"
    if high is not None:
        text = f"clamp_max({text}, {high.real})"
    return text


def _where(c: Operand, x: Operand, y: Operand) -> str:
    if "float" in (x.ctype, y.ctype):
        return f"{c.text} ? {x.real} : {y.real}"
    return f"{c.text} ? {x.text} : {y.text}"


def _softplus(x: Operand, beta: Operand | None = None, threshold: Operand | None = None) -> str:
    if beta is not None and beta.value != 1:
        return f"f_softplus({beta.real} * {x.real}) / {beta.real}"
    return f"f_softplus({x.real})"


def _softplus_backward(g: Operand, x: Operand, beta: Operand, threshold: Operand) -> str:
    return f"{g.real} * f_sigmoid({beta.real} * {x.real})"


def _elu(x: Operand, alpha: Operand | None = None, scale: Any = None, inner: Any = None) -> str:
    for factor in (scale, inner):
        if factor is not None and factor.value != 1:
            raise Unsupported("a scaled ELU")
    a = "1.0f" if alpha is None else alpha.real
    return f"{x.real} > 0.0f ? {x.real} : {a} * f_expm1({x.real})"


def _elu_backward(
    g: Operand, a: Operand, scale: Operand, inner: Operand, is_result: Operand, y: Operand
) -> str:
    if scale.value != 1 or inner.value != 1:
        raise Unsupported("a scaled ELU")
    below = f"({y.real} + {a.real})" if is_result.value else f"{a.real} * f_exp({y.real})"
    return f"{y.real} > 0.0f ? {g.real} : {g.real} * {below}"


def _leaky(x: Operand, slope: Operand | None = None) -> str:
    return f"{x.real} > 0.0f ? {x.real} : {x.real} * {slope.real if slope else '0.01f'}"


def _leaky_backward(g: Operand, x: Operand, slope: Operand, is_result: Operand) -> str:
    return f"{x.real} > 0.0f ? {g.real} : {g.real} * {slope.real}"


def _f(template: str) -> Build:
    """From a template with {0}, {1} for operands as floats."""
    return lambda *args: template.format(*(a.real for a in args))


def _plain(template: str) -> Build:
    return lambda *args: template.format(*(a.text for a in args))


_SILU = "{0} * f_sigmoid({0})"
BUILD: dict[str, Build] = {
    "mul": _arithmetic("*"),
    "add": _arithmetic("+"),
    "sub": _arithmetic("-"),
    "div": _divide,
    "rsub": lambda x, y, alpha=None: f"{y.real} - {_scaled(x, alpha)}",
    "pow": _power,
    "square": _f("{0} * {0}"),
    "minimum": _f("f_min({0}, {1})"),
    "maximum": _f("f_max({0}, {1})"),
    "clamp": _clamp,
    "clamp_min": lambda x, low: _clamp(x, low),
    "clamp_max": lambda x, high: _clamp(x, None, high),
    "eq": _compare("=="),
    "ne": _compare("!="),
    "lt": _compare("<"),
    "gt": _compare(">"),
    "le": _compare("<="),
    "ge": _compare(">="),
    "logical_and": _plain("{0} && {1}"),
    "logical_or": _plain("{0} || {1}"),
    "logical_not": _plain("!{0}"),
    "bitwise_not": _plain("!{0}"),  # of bools
    "bitwise_and": _plain("{0} & {1}"),
    "bitwise_or": _plain("{0} | {1}"),
    "where": _where,
    "masked_fill": lambda x, mask, value: _where(mask, value, x),
    "neg": _f("-{0}"),
    "abs": _f("fabsf({0})"),
    "sgn": _f("f_sign({0})"),
    "sign": _f("f_sign({0})"),
    "exp": _f("f_exp({0})"),
    "expm1": _f("f_expm1({0})"),
    "log": _f("f_log({0})"),
    "log1p": _f("f_log1p({0})"),
    "sqrt": _f("sqrtf({0})"),
    "rsqrt": _f("1.0f / sqrtf({0})"),
    "reciprocal": _f("1.0f / {0}"),
    "tanh": _f("f_tanh({0})"),
    "tanh_backward": _f("{0} * (1.0f - {1} * {1})"),
    "sigmoid": _f("f_sigmoid({0})"),
    "sigmoid_backward": _f("{0} * (1.0f - {1}) * {1}"),
    "relu": _f("({0} < 0.0f ? 0.0f : {0})"),
    "threshold_backward": _f("{1} <= {2} ? 0.0f : {0}"),
    "softplus": _softplus,
    "softplus_backward": _softplus_backward,
    "silu": _f(_SILU),
    "silu_backward": _f("{0} * f_sigmoid({1}) * (1.0f + {1} * (1.0f - f_sigmoid({1})))"),
    "elu": _elu,
    "elu_backward": _elu_backward,
    "leaky_relu": _leaky,
    "leaky_relu_backward": _leaky_backward,
    "addcmul": _f("{0} + {1} * {2}"),
    "lerp": _f("{0} + {2} * ({1} - {0})"),
    "clone": lambda x: x.text,
}
