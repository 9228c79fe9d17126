"""Messages between learner and collectors: JSON fields and arrays, without pickle.

write(stream, Message({"kind": "weights", "version": 3}, {"weights.policy": array}))
message = read(stream)                    # EOFError at the end of the stream
"""

import json
from typing import IO, Any, NamedTuple

import numpy as np

LENGTH_BYTES = 8


class Message(NamedTuple):
    fields: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @property
    def kind(self) -> str:
        return str(self.fields["kind"])

    def part(self, prefix: str) -> dict[str, np.ndarray]:
        """The arrays whose names start with `prefix`, without it."""
        return {
            name.removeprefix(prefix): array
            for name, array in self.arrays.items()
            if name.startswith(prefix)
        }


def prefixed(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def write(stream: IO[bytes], message: Message) -> None:
    arrays = {name: np.ascontiguousarray(array) for name, array in message.arrays.items()}
    forms = [
        [name, a.dtype.str, list(np.shape(message.arrays[name]))] for name, a in arrays.items()
    ]
    head = json.dumps({"fields": message.fields, "arrays": forms}).encode()
    stream.write(len(head).to_bytes(LENGTH_BYTES, "little"))
    stream.write(head)
    for array in arrays.values():
        stream.write(array.tobytes())
    stream.flush()


def read(stream: IO[bytes]) -> Message:
    head = json.loads(_exactly(stream, int.from_bytes(_exactly(stream, LENGTH_BYTES), "little")))
    arrays = {}
    for name, dtype, shape in head["arrays"]:
        array = np.empty(shape, np.dtype(dtype))
        data = _exactly(stream, array.nbytes)
        arrays[name] = np.frombuffer(bytearray(data), array.dtype).reshape(shape)
    return Message(head["fields"], arrays)


def _exactly(stream: IO[bytes], n: int) -> bytes:
    data = stream.read(n)
    if len(data) < n:
        raise EOFError("the other side has gone")
    return data
