"""The field `layers`: the layers between the observation and the outputs, one by one.

    layers:
      - {linear: 128}
      - layer_norm
      - silu
      - {residual: [{linear: 128}, relu, {linear: 128}]}
      - {simnorm: 8}

An entry is a name, or a mapping from the name to its main number with further options. Convolutions
and poolings come first and work on the images of an observation.

A mapping is a graph of such lists (docs/networks.md#a-graph-of-layers).
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from gymnasium_solver.config.types import BLOCK, NULL, takes
from gymnasium_solver.errors import told_as
from gymnasium_solver.suggest import check_known

ACTIVATION_NAMES = (
    "tanh", "relu", "leaky_relu", "elu", "selu", "gelu", "silu", "swish", "mish", "identity",
)  # fmt: skip
# Options of each layer, with their kinds. The plain number sets the first, which is required unless
# it has a default.
OPTIONS: dict[str, dict[str, str]] = {
    "linear": {"width": "count", "norm": "norm"},
    "noisy": {"width": "count", "sigma": "positive"},
    "conv": dict.fromkeys(("width", "kernel", "stride", "dilation"), "count")
    | {"padding": "whole"},
    "pool": {"size": "count"},
    "layer_norm": {},
    "rms_norm": {},
    "batch_norm": {},
    "batch_renorm": {"warmup": "whole"},
    "dropout": {"share": "share"},
    "simnorm": {"groups_of": "count"},
    "residual": {"layers": "list"},
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "noisy": {"sigma": 0.5},
    "conv": {"kernel": 3, "stride": 1, "padding": 0, "dilation": 1},
    "batch_renorm": {"warmup": 1000},
    "pool": {"size": 2},
    "simnorm": {"groups_of": 8},
}
ON_IMAGES = ("conv", "pool")
KNOWN = (*OPTIONS, *ACTIVATION_NAMES)

Layer = dict[str, Any]  # {"kind": "linear", "width": 64, ...}, checked


def read_layers(value: Any) -> tuple[Layer, ...]:
    """A list of layers as a config writes it; ValueError names the entry that is wrong."""
    if not isinstance(value, list | tuple):
        raise ValueError("expected a list of layers, such as [{linear: 64}, relu]")
    layers = []
    for place, item in enumerate(value):
        with told_as(ValueError, f"layer {place + 1}", ValueError):
            layers.append(_read(item))
    return tuple(layers)


def _read(item: Any) -> Layer:
    if isinstance(item, Mapping) and "kind" in item:  # as `_read` returned it
        item = {item["kind"]: {key: option for key, option in item.items() if key != "kind"}}
    if isinstance(item, str):
        item = {item: None}
    if not isinstance(item, Mapping) or not item:
        raise ValueError(f"expected a name or {{name: number}}, not {item!r}")
    name, given = next(iter(item.items()))
    check_known(ValueError, name, KNOWN, f"unknown layer {name!r}", "Known:")
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
    if options and next(iter(options)) not in layer:
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
    if kind == "positive" and isinstance(value, int | float) and value > 0:
        return float(value)
    if kind == "norm" and value in ("weight", "spectral"):
        return value
    if kind == "list":
        return list(read_layers(value))
    expected = {
        "count": "a whole number >= 1",
        "whole": "a whole number >= 0",
        "share": "a share from 0 to below 1",
        "positive": "a number > 0",
        "norm": "weight or spectral",
    }[kind]
    raise ValueError(f"{key} of {name} must be {expected}, not {value!r}")


_DENSE = ("linear", "noisy", "simnorm", "residual")
JOINS = ("of", "concat", "add")


def read_graph(value: Mapping[Any, Any]) -> dict[str, Any]:
    """The nodes of a graph: {name: {"join": "add", "inputs": [...], "layers": [...]}}."""
    nodes: dict[str, Any] = {}
    for key, given in value.items():
        name = str(key)
        with told_as(ValueError, f"node {name}", ValueError):
            nodes[name] = _read_node(given)
    names = list(nodes)
    if not names:
        raise ValueError("expected at least one node, such as {all: {concat: [camera, goal]}}")
    used = {source for node in nodes.values() for source in node["inputs"]}
    for place, name in enumerate(names):
        for source in nodes[name]["inputs"]:
            if source in names[place + 1 :]:
                raise ValueError(f"node {name}: it takes {source}, which comes after it")
        if name not in used and name != names[-1]:
            raise ValueError(f"node {name}: nothing takes it, and it is not the last, the output")
    return nodes


def _read_node(given: Any) -> dict[str, Any]:
    if isinstance(given, Mapping) and "join" in given:  # as `_read_node` returned it
        inputs = given["inputs"][0] if given["join"] == "of" else given["inputs"]
        given = {given["join"]: inputs, "layers": given["layers"]}
    expected = "{of: PART}, {concat: [A, B]} or {add: [A, B]}, and layers"
    if not isinstance(given, Mapping):
        raise ValueError(f"expected {expected}")
    joins = [join for join in JOINS if join in given]
    unknown = [str(key) for key in given if key not in (*JOINS, "layers")]
    if unknown or len(joins) != 1:
        raise ValueError(f"expected {expected}" + (f", not {unknown[0]}" if unknown else ""))
    join = joins[0]
    inputs = [given[join]] if join == "of" else given[join]
    if not isinstance(inputs, list | tuple) or not all(isinstance(one, str) for one in inputs):
        raise ValueError(f"{join} takes {'a name' if join == 'of' else 'a list of names'}")
    if join != "of" and len(inputs) < 2:
        raise ValueError(f"{join} joins two inputs or more; use of for one")
    layers = list(_parse_list(given.get("layers", [])))
    return {"join": join, "inputs": list(inputs), "layers": layers}


def _parse(value: Any) -> tuple[Layer, ...] | dict[str, Any] | None:
    if value is None:
        return None
    return read_graph(value) if isinstance(value, Mapping) else _parse_list(value)


def _parse_list(value: Any) -> tuple[Layer, ...]:
    layers = read_layers(value)
    kinds = [layer["kind"] for layer in layers]
    last = max((i for i, kind in enumerate(kinds) if kind in ON_IMAGES), default=-1)
    dense = [kind for kind in kinds[: last + 1] if kind in _DENSE]
    if dense:
        raise ValueError(f"{dense[0]} stands before a convolution: convolutions come first")
    return layers


LayerList = Annotated[
    Any,
    BeforeValidator(_parse),
    PlainSerializer(lambda layers: list(layers) if isinstance(layers, tuple) else layers),
    takes(
        "a list of layers, such as [{linear: 64}, relu], or a graph of nodes",
        {"type": "array"},
        BLOCK,
        NULL,
    ),
]
