"""What TensorBoard shows of a checkpoint: histograms of weights and gradients, and the layers as a
graph. Read from the files of the checkpoint, without torch and without a cost for training.

Gradients are Adam's running mean of them, which checkpoints have; other optimisers keep none.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.files import read_bytes
from gymnasium_solver.share.trackers.event_file import histogram, message

N_BINS = 30
_KINDS = {1: "Norm", 2: "Linear", 3: "StackedLinear", 4: "Conv2d"}  # by the axes of the weights
_NUMBER = re.compile(r"(\d+)")


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file; {} if it is gone or cannot be read."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    with suppress(RunError, SafetensorError, KeyError, TypeError):
        return dict(load(read_bytes(path, "")))
    return {}


def histograms(checkpoint: Path) -> Iterator[bytes]:
    """Of the weights by layer, and of the gradients by optimiser."""
    for name, values in weights_of(checkpoint).items():
        yield from _histogram(f"weights/{name.replace('.', '/')}", values)
    for name, values in arrays_of(checkpoint / "optimizer.safetensors").items():
        owner, _, kind = name.rpartition(".")
        if kind == "mean":
            yield from _histogram(f"gradients/{owner or 'all'}", values)


def weights_of(checkpoint: Path) -> dict[str, np.ndarray]:
    """What is learnt, without the statistics of observations."""
    found = arrays_of(checkpoint / "model.safetensors")
    return {name: values for name, values in found.items() if not name.startswith("encoder.")}


def _histogram(tag: str, values: np.ndarray) -> Iterator[bytes]:
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values[:0]
    if finite.size:
        counts, edges = np.histogram(finite.astype(np.float64), bins=N_BINS)
        yield histogram(tag, edges[1:].tolist(), counts.astype(float).tolist())


def graph(checkpoint: Path) -> bytes:
    """The layers that have weights, as a GraphDef: each takes what the one before it in its network
    outputs; a head comes after its torso. Empty without a readable checkpoint."""
    layers: dict[str, list[int]] = {}
    for name, values in weights_of(checkpoint).items():
        layer = name.rpartition(".")[0] or name
        shape = list(values.shape)
        layers[layer] = max(layers.get(layer, []), shape, key=len)
    if not layers:
        return b""
    nodes = [_node("observation", "Placeholder", [], [])]
    last: dict[str, str] = {}
    for layer in sorted(layers, key=_order):
        network = re.split(r"[._]", layer)[0]
        before = last.get(network) or last.get("torso") or "observation"
        name, shape = layer.replace(".", "/"), layers[layer]
        nodes.append(_node(name, _KINDS.get(len(shape), "Parameter"), [before], shape))
        last[network] = name
    return message(*((1, node) for node in nodes))


def _order(layer: str) -> tuple[bool, list[tuple[int, str]]]:
    """Heads last; layers by number."""
    parts = _NUMBER.split(layer)
    key = [(int(p), "") if p.isdecimal() else (-1, p) for p in parts]
    return "head" in layer, key


def _node(name: str, op: str, inputs: list[str], shape: list[int]) -> bytes:
    sizes = message(*((2, message((1, size))) for size in shape))
    attribute = message((1, "weights"), (2, message((7, sizes))))
    given = [(3, one) for one in inputs]
    return message((1, name), (2, op), *given, *([(5, attribute)] if shape else []))
