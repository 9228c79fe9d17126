"""What TensorBoard shows of a checkpoint: histograms of weights and gradients, and the layers as a
graph. Read from the files of the checkpoint, without torch and without a cost for training.

Gradients are Adam's running mean of them, which checkpoints have; other optimisers keep none.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
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
    """The layers that have weights, as a GraphDef; b"" without a readable checkpoint."""
    shapes: dict[str, list[int]] = {}
    for name, values in weights_of(checkpoint).items():
        if values.size > 1:
            layer = name.rpartition(".")[0] or name
            shapes[layer] = max(shapes.get(layer, []), list(values.shape), key=len)
    if not shapes:
        return b""
    nodes = [_node("observation", "Placeholder", [], [])]
    for layer, inputs in inputs_of(shapes).items():
        kind = _KINDS.get(len(shapes[layer]), "Parameter")
        before = [one.replace(".", "/") for one in inputs] or ["observation"]
        nodes.append(_node(layer.replace(".", "/"), kind, before, shapes[layer]))
    return message(*((1, node) for node in nodes))


def inputs_of(shapes: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
    """The layers in order, each with those that it takes the outputs of; [] for the observation.

    The order is by names: convolutions, hidden layers, streams of a dueling network, heads. A layer
    follows the one before it in its part; the first of a part follows the ends of the parts before
    it in its network. A head without a torso of its own follows one of the size that it takes."""
    found: dict[str, list[str]] = {}
    ends: dict[str, str] = {}  # the last layer of each part
    for layer in sorted(shapes, key=lambda name: (_stage(name), _natural(name))):
        part, stage = re.sub(r"\.\d+$", "", layer), _stage(layer)
        earlier = [name for name in ends if _stage(name) < stage]
        own = [name for name in earlier if _network(name) == _network(part)]
        size = shapes[layer][1] if len(shapes[layer]) > 1 else 0
        shared = [name for name in earlier if stage >= STREAM and shapes[ends[name]][0] == size]
        nearest = max(map(_stage, own or shared), default=0)
        before = [ends[name] for name in own or shared[-1:] if _stage(name) == nearest]
        found[layer] = [ends[part]] if part in ends else before
        ends[part] = layer
    return found


STREAM = 2


def _stage(name: str) -> int:
    words = (("convolutions", "features"), (), ("advantage", "value"), ("head",))
    return max((i for i, own in enumerate(words) if any(w in name for w in own)), default=1)


def _network(name: str) -> str:
    return re.split(r"[._]", name)[0]


def _natural(name: str) -> list[tuple[int, str]]:
    """Layer 10 after layer 9."""
    return [(int(p), "") if p.isdecimal() else (-1, p) for p in _NUMBER.split(name)]


def _node(name: str, op: str, inputs: list[str], shape: list[int]) -> bytes:
    sizes = message(*((2, message((1, size))) for size in shape))
    attribute = message((1, "weights"), (2, message((7, sizes))))
    given = [(3, one) for one in inputs]
    return message((1, name), (2, op), *given, *([(5, attribute)] if shape else []))
