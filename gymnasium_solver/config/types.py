"""The types that config fields are declared with.

They are strict where guessing hides mistakes (true is not a number, "8" is text) and lenient where
only the spelling differs (1e5 is a whole number). Relative values are resolved here, so that a
constructed config holds plain numbers.
"""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
)

from gymnasium_solver.config.cpus import cpu_count
from gymnasium_solver.registry import heads, networks
from gymnasium_solver.suggest import did_you_mean

LONGEST_NAME = 150
DEEPEST = 50  # levels of lists and blocks in a value
_OBS_KEYS = "expected a list of different names, or {drop: [names]}"
OPTIMIZERS = ("adam", "adamw", "laprop", "sgd", "rmsprop", "rmsprop_tf")
_TORCH_CLASS = re.compile(r"(torch\.optim\.)?[A-Z][A-Za-z0-9]*")
_LONG_NETWORKS = ("mlp_actorcritic", "cnn_actorcritic")


def whole(value: Any) -> Any:
    """1e5 and 8.0 are whole numbers too; everything else is left to the strict check."""
    is_exact = isinstance(value, float) and value.is_integer() and abs(value) <= 2**53
    return int(value) if is_exact else value


def _fraction_or_count(value: Any) -> Any:
    """A float below 1 stays a fraction; whole numbers become counts."""
    number = whole(value)
    if isinstance(number, float) and not 0 < number < 1:
        raise ValueError("expected a whole number, or a fraction between 0 and 1")
    return number


def _resolve_batch_size(value: Any, info: ValidationInfo) -> Any:
    """0.25 is a quarter of the rollout, 1.0 the whole rollout; 1 is one sample."""
    if isinstance(value, float) and 0 < value <= 1:
        rollout = info.data.get("n_envs", 1) * info.data.get("n_steps", 1)
        return max(1, math.floor(rollout * value))
    return whole(value)


def layers(value: Any) -> Any:
    """A list, or one number for a single layer, as a tuple."""
    if isinstance(value, list | tuple):
        return tuple(whole(item) for item in value)
    width = whole(value)
    return (width,) if isinstance(width, int) and not isinstance(width, bool) else value


def _part_dims(value: Any) -> Any:
    """{part: widths}; widths alone are for every part."""
    if isinstance(value, Mapping):
        return {name: layers(dims) for name, dims in value.items()}
    return {"*": layers(value)}


def _written_part_dims(value: dict[str, Any]) -> Any:
    """As a config writes it."""
    written = {name: list(dims) for name, dims in value.items()}
    return written["*"] if list(written) == ["*"] else written


def is_too_deep(value: Any) -> bool:
    """Is a value nested too deep to be copied or printed (or does it contain itself)?"""
    level = [value]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, Mapping):
                inner.extend(item.values())
            elif isinstance(item, list | tuple):
                inner.extend(item)
        if not inner:
            return False
        level = [item for item in inner if isinstance(item, Mapping | list | tuple)]
    return bool(level)


def plain(value: Any, path: str) -> Any:
    """A copy made of JSON types only, so that YAML and JSON can hold it without loss."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(
                f"{path} is {value}, which JSON cannot hold; use null or a large number"
            )
        return value
    if isinstance(value, Mapping):
        for key in value:
            if isinstance(key, bool) or not isinstance(key, str | int):
                raise ValueError(f"{path} has the key {key!r}; expected text")
        return {str(key): plain(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    raise ValueError(f"{path} is {value!r}; expected numbers, text, true/false, lists or blocks")


def _plain_block(value: Any, info: ValidationInfo) -> Any:
    return plain(value, info.field_name or "value") if isinstance(value, Mapping) else value


def _printable(text: str) -> str:
    """Refuse characters that are invisible or reorder the text around them, and names that are too
    long for a file system."""
    if not text or not text.isprintable() or len(text) > LONGEST_NAME:
        raise ValueError(f"expected a name of 1 to {LONGEST_NAME} printable characters")
    return text


def _known_network(name: str) -> str:
    short = name.removesuffix("_actorcritic") if name in _LONG_NETWORKS else name
    if short not in networks.names():
        raise ValueError(networks.unknown(name))
    return short


def _known_head(name: str) -> str:
    if name not in heads.names():
        raise ValueError(heads.unknown(name))
    return name


def _known_optimizer(name: str) -> str:
    """Whether torch has the class is checked where torch is loaded (fast/torch_optimizer.py)."""
    if name not in OPTIMIZERS and not _TORCH_CLASS.fullmatch(name):
        known = f"expected {', '.join(OPTIMIZERS)}, or a class of torch.optim such as NAdam"
        raise ValueError(f"{known}. {did_you_mean(name, OPTIMIZERS)}".rstrip(". "))
    return name


def _one_or_more(value: Any) -> Any:
    """A single name is a list of one."""
    return [value] if isinstance(value, str) else value


def _obs_keys(value: Any) -> Any:
    """A list of names, or {drop: [names]}; {keep: [names]} is the list."""
    drops = False
    if isinstance(value, Mapping):
        if len(value) != 1 or not value.keys() <= {"keep", "drop"}:
            raise ValueError(_OBS_KEYS)
        drops = "drop" in value
        (value,) = value.values()
    names = _one_or_more(value)
    if not isinstance(names, list | tuple) or not names or len({*map(str, names)}) != len(names):
        raise ValueError(_OBS_KEYS)
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError(_OBS_KEYS)
    return {"drop": list(names)} if drops else list(names)


def _wrappers(value: Any) -> Any:
    if isinstance(value, Mapping | str):
        value = [value]
    if not isinstance(value, list | tuple):
        return value
    # A name alone is a wrapper without options.
    value = [{"id": item} if isinstance(item, str) else item for item in value]
    for index, item in enumerate(value):
        if not isinstance(item, Mapping) or not isinstance(item.get("id"), str):
            raise ValueError(
                f"entry {index} is {item!r}; expected {{id: WrapperName, option: ...}}"
            )
    return plain(value, "env_wrappers")


# What fields take, for the JSON schema.
COUNT: dict[str, Any] = {"type": "integer", "minimum": 1}
TEXT: dict[str, Any] = {"type": "string"}
BLOCK: dict[str, Any] = {"type": "object"}
NULL: dict[str, Any] = {"type": "null"}
NAMES: dict[str, Any] = {"type": "array", "items": TEXT}
COUNTS: dict[str, Any] = {"type": "array", "items": COUNT}


def takes(expected: str, *forms: Mapping[str, Any]) -> WithJsonSchema:
    """What a field takes: in words, for errors and help, and as forms of the JSON schema."""
    schema = dict(forms[0]) if len(forms) == 1 else {"anyOf": list(forms)}
    return WithJsonSchema(schema | {"x-expected": expected})


Name = Annotated[str, AfterValidator(_printable)]
Int = Annotated[int, BeforeValidator(whole)]
Float = Annotated[float, Field(allow_inf_nan=False)]
PositiveFloat = Annotated[Float, Field(gt=0)]
ActionDist = Literal[
    "auto", "categorical", "gumbel", "argmax", "lognormal", "gaussian", "gaussian_state",
    "squashed", "beta", "multivariate",
]  # fmt: skip
Count = Annotated[int, Field(ge=1), BeforeValidator(whole)]
NonNegativeInt = Annotated[int, Field(ge=0), BeforeValidator(whole)]
Seed = Annotated[int, Field(ge=0, lt=2**31), BeforeValidator(whole)]
Block = Annotated[dict[str, Any], BeforeValidator(_plain_block)]
BatchSize = Annotated[
    int,
    Field(ge=1),
    BeforeValidator(_resolve_batch_size),
    takes(
        "a whole number >= 1, or a fraction of the rollout in (0, 1]",
        COUNT,
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    ),
]
EnvCount = Annotated[
    int,
    Field(ge=1),
    BeforeValidator(lambda value: cpu_count() if value == "auto" else whole(value)),
    WithJsonSchema({"anyOf": [COUNT, {"const": "auto"}]}),
]
EpochsOrFraction = Annotated[
    int | float,
    Field(ge=0),
    BeforeValidator(_fraction_or_count),
    takes("a whole number >= 0, or a fraction between 0 and 1", {"type": "number", "minimum": 0}),
]
Wrappers = Annotated[
    list[dict[str, Any]],
    BeforeValidator(_wrappers),
    takes(
        "a list of {id: WrapperName, option: ...}",
        {"type": "array", "items": {"type": ["object", "string"]}},
        BLOCK,
        TEXT,
    ),
]
ObsKeys = Annotated[
    list[str] | dict[Literal["drop"], list[str]],
    BeforeValidator(_obs_keys),
    takes(
        "a list of names, or {drop: [names]}",
        NAMES,
        TEXT,
        BLOCK | {"properties": {"drop": NAMES}, "additionalProperties": False},
    ),
]
Names = Annotated[list[str], BeforeValidator(_one_or_more), takes("a list of names", NAMES, TEXT)]
FrameSize = Annotated[
    tuple[Count, Count] | bool,
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
    takes(
        "[height, width], true or false",
        COUNTS | {"minItems": 2, "maxItems": 2},
        {"type": "boolean"},
    ),
]
ObsNormalization = Annotated[
    Literal[False, "rolling", "static", "auto"],
    BeforeValidator(lambda value: "rolling" if value is True else value),
    WithJsonSchema({"enum": [False, True, "rolling", "static", "auto"]}),
]
PolicyKind = Annotated[
    str,
    AfterValidator(_known_network),
    takes(
        "auto, mlp, cnn, or a network registered by a plugin",
        {"enum": ["auto", "mlp", "cnn", *_LONG_NETWORKS]},
        TEXT,
    ),
]
HeadKind = Annotated[
    str, AfterValidator(_known_head), takes("linear, or a head registered by a plugin", TEXT)
]
OptimizerKind = Annotated[
    str,
    AfterValidator(_known_optimizer),
    takes(
        f"{', '.join(OPTIMIZERS)}, or a class of torch.optim such as NAdam",
        {"enum": list(OPTIMIZERS)},
        TEXT | {"pattern": f"^{_TORCH_CLASS.pattern}$"},
    ),
]
Exploration = Literal["epsilon_greedy", "boltzmann", "greedy", "noisy"]
Activation = Literal[
    "tanh", "relu", "leaky_relu", "elu", "selu", "gelu", "silu", "swish", "mish", "identity"
]
PartDims = Annotated[
    dict[str, tuple[Count, ...]],
    BeforeValidator(_part_dims),
    PlainSerializer(_written_part_dims),
    takes("{part: [widths]}, or [widths] for every part", BLOCK, COUNTS, COUNT),
]
HiddenDims = Annotated[
    tuple[Count, ...], BeforeValidator(layers), takes("a list of whole numbers >= 1", COUNTS, COUNT)
]
Device = Annotated[
    str,
    Field(pattern=r"^(auto|cpu|mps|cuda(:[0-9]+)?)$"),
    BeforeValidator(lambda value: "cuda" if value == "gpu" else value),
    takes(
        "auto, cpu, cuda, cuda:N or mps", TEXT | {"pattern": r"^(auto|cpu|gpu|mps|cuda(:[0-9]+)?)$"}
    ),
]
