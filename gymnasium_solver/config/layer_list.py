"""The field `layers`: the layers between the observation and the outputs, one by one.

    layers:
      - {linear: 128}
      - layer_norm
      - silu
      - {residual: [{linear: 128}, relu, {linear: 128}]}
      - {simnorm: 8}

An entry is a name, or a mapping from the name to its main number with further options. Convolutions
and poolings come first and work on the images of an observation.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from gymnasium_solver.suggest import did_you_mean

ACTIVATION_NAMES = (
    "tanh", "relu", "leaky_relu", "elu", "selu", "gelu", "silu", "swish", "mish", "identity",
)  # fmt: skip
# Options of each layer, with their kinds; the first is set by the plain number.
OPTIONS: dict[str, dict[str, str]] = {
    "linear": {"width": "count", "norm": "norm"},
    "conv": {"width": "count", "kernel": "count", "stride": "count", "padding": "whole"},
    "pool": {"size": "count"},
    "layer_norm": {},
    "rms_norm": {},
    "dropout": {"share": "share"},
    "simnorm": {"groups_of": "count"},
    "residual": {"layers": "list"},
}
_REQUIRED = {"linear": "width", "conv": "width", "dropout": "share", "residual": "layers"}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "conv": {"kernel": 3, "stride": 1, "padding": 0},
    "pool": {"size": 2},
    "simnorm": {"groups_of": 8},
}
ON_IMAGES = ("conv", "pool")
KNOWN = (*OPTIONS, *ACTIVATION_NAMES)

Layer = dict[str, Any]
"""{"kind": "linear", "width": 64, ...}, checked."""


def read_layers(value: Any) -> tuple[Layer, ...]:
    """A list of layers as a config writes it; ValueError names the entry that is wrong."""
    if not isinstance(value, list | tuple):
        raise ValueError("expected a list of layers, such as [{linear: 64}, relu]")
    layers = []
    for place, item in enumerate(value):
        try:
            layers.append(_read(item))
        except ValueError as error:
            raise ValueError(f"layer {place + 1}: {error}") from None
    return tuple(layers)


def _read(item: Any) -> Layer:
    if isinstance(item, Mapping) and "kind" in item:  # as `_read` returned it
        item = {item["kind"]: {key: option for key, option in item.items() if key != "kind"}}
    if isinstance(item, str):
        item = {item: None}
    if not isinstance(item, Mapping) or not item:
        raise ValueError(f"expected a name or {{name: number}}, not {item!r}")
    name, given = next(iter(item.items()))
    if name not in KNOWN:
        hint = did_you_mean(str(name), KNOWN) or f"Known: {', '.join(KNOWN)}."
        raise ValueError(f"unknown layer {name!r}. {hint}")
    options = OPTIONS.get(str(name), {})
    more = {str(key): value for key, value in item.items() if key != name}
    if isinstance(given, Mapping):
        more = {**given, **more}
    elif given is not None and options:
        more = {next(iter(options)): given, **more}
    elif given is not None:
        raise ValueError(f"{name} takes no number")
    if name == "conv" and "size" in more:
        more["kernel"] = more.pop("size")
    layer: Layer = {"kind": str(name), **_DEFAULTS.get(str(name), {})}
    for key, value in more.items():
        if key not in options:
            raise ValueError(
                f"{name} has no option {key!r}; it takes {', '.join(options) or 'none'}"
            )
        layer[key] = _option(str(name), key, options[key], value)
    needed = _REQUIRED.get(str(name))
    if needed is not None and needed not in layer:
        raise ValueError(f"{name} needs a value, such as {{{name}: ...}}")
    return layer


def _option(name: str, key: str, kind: str, value: Any) -> Any:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if kind == "count" and is_whole and value >= 1:
        return value
    if kind == "whole" and is_whole and value >= 0:
        return value
    if kind == "share" and isinstance(value, int | float) and 0 <= value < 1:
        return float(value)
    if kind == "norm" and value in ("weight", "spectral"):
        return value
    if kind == "list":
        return list(read_layers(value))
    expected = {
        "count": "a whole number >= 1",
        "whole": "a whole number >= 0",
        "share": "a share from 0 to below 1",
        "norm": "weight or spectral",
        "list": "a list of layers",
    }[kind]
    raise ValueError(f"{key} of {name} must be {expected}, not {value!r}")


def _parse(value: Any) -> tuple[Layer, ...] | None:
    if value is None:
        return None
    layers = read_layers(value)
    kinds = [layer["kind"] for layer in layers]
    last = max((i for i, kind in enumerate(kinds) if kind in ON_IMAGES), default=-1)
    dense = [kind for kind in kinds[: last + 1] if kind in ("linear", "simnorm", "residual")]
    if dense:
        raise ValueError(f"{dense[0]} stands before a convolution: convolutions come first")
    return layers


LayerList = Annotated[
    tuple[dict[str, Any], ...] | None,
    BeforeValidator(_parse),
    PlainSerializer(lambda layers: None if layers is None else [dict(one) for one in layers]),
    WithJsonSchema(
        {
            "anyOf": [{"type": "array"}, {"type": "null"}],
            "x-expected": "a list of layers, such as [{linear: 64}, layer_norm, relu]",
        }
    ),
]
