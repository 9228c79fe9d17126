"""Network presets (`model_id`) and the fields they set.

An MLP preset is a name for `hidden_dims`. A CNN preset names convolutions, whose sizes are defined
in nets/cnn.py; here it only sets `policy: cnn`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from gymnasium_solver.config.types import layers

MLP_PRESETS: dict[str, tuple[int, ...]] = {
    "mlp_tiny": (64,),
    "mlp_small": (128, 128),
    "mlp_medium": (256, 256),
    "mlp_large": (512, 512),
}
# Also accepted without "cnn_". "large" alone is ambiguous and means the CNN.
CNN_PRESETS = ("small", "nature", "impala", "large")


def _long_name(value: Any) -> Any:
    return f"cnn_{value}" if value in CNN_PRESETS else value


ModelId = Annotated[
    Literal[
        "mlp_tiny", "mlp_small", "mlp_medium", "mlp_large",
        "cnn_small", "cnn_nature", "cnn_impala", "cnn_large",
    ],
    BeforeValidator(_long_name),
]  # fmt: skip


def read_preset(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a `model_id` sets; ValueError if other fields contradict it."""
    model_id = _long_name(data.get("model_id"))
    kind = str(model_id)[:3]
    if kind not in ("mlp", "cnn"):
        return {}
    policy = str(data.get("policy") or "auto")
    if policy not in ("auto", kind, f"{kind}_actorcritic"):
        raise ValueError(f"model_id {model_id} means policy {kind}, but policy is {policy}")
    fields: dict[str, Any] = {"policy": kind}
    preset, dims = MLP_PRESETS.get(str(model_id)), data.get("hidden_dims")
    if preset is None:
        return fields
    if dims is not None and layers(dims) != preset:
        raise ValueError(
            f"model_id {model_id} means hidden_dims {list(preset)}, but hidden_dims is {dims!r}: "
            "give one of the two (null takes the other back)"
        )
    return fields | {"hidden_dims": preset}
