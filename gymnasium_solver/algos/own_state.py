"""Attributes of an algorithm from outside this package, saved with its run.

    class CrossEntropy(Learner):                    # a plugin
        def build(self):
            self.mean = np.zeros(8)                 # saved and restored by itself

A plugin that keeps state in its attributes would otherwise resume with that of its first step.
Arrays, tensors, random generators, and numbers, texts, lists and dicts of them are saved. What else
may hold state is named once. A plugin that defines `state` itself is left alone.
"""

import dis
import json
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.errors import RunError

OWN = "attributes"  # the file of the tensors, and the key of the rest


@cache
def names_set_by(kind: type) -> frozenset[str]:
    """The attributes that the methods of a class set, those of its parents not included."""
    methods = [f for f in vars(kind).values() if isinstance(f, FunctionType)]
    found = (i for f in methods for i in dis.get_instructions(f) if i.opname == "STORE_ATTR")
    return frozenset(str(i.argval) for i in found)


def split_attributes(
    learner: Any, names: Collection[str], is_ours: Callable[[Any], bool]
) -> tuple[dict[str, Tensor], dict[str, Any], list[str]]:
    """These attributes as tensors and JSON, and the names of those that can be neither. `is_ours`:
    an object of the framework, which is saved elsewhere or has no state."""
    tensors, extra, left = dict[str, Tensor](), dict[str, Any](), list[str]()
    for name in sorted(names):
        value = getattr(learner, name)
        if isinstance(value, Tensor):
            tensors[name] = value.detach()
        elif isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
            tensors[name] = torch.from_numpy(np.ascontiguousarray(value))
        elif isinstance(value, torch.Generator):
            tensors[name] = value.get_state()
        elif isinstance(value, np.random.Generator):
            extra[name] = value.bit_generator.state
        elif (plain := _as_json(value)) is not None:
            extra[name] = plain[0]
        elif not callable(value) and not is_ours(value):
            left.append(name)
    return tensors, extra, left


def load_attributes(learner: Any, tensors: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
    """Set the attributes again, tensors in place."""
    for name, saved in {**tensors, **extra}.items():
        if not hasattr(learner, name):
            raise RunError(
                f"the checkpoint has the attribute {name} of {type(learner).__name__}, which its "
                "build() does not set any more: take the version of the plugin that trained it."
            )
        setattr(learner, name, _restored(getattr(learner, name), saved))


def _restored(now: Any, saved: Any) -> Any:
    """The saved value, of the type that the attribute has now."""
    if isinstance(now, torch.Generator):
        now.set_state(torch.as_tensor(saved, dtype=torch.uint8))
        return now
    if isinstance(now, np.random.Generator):
        now.bit_generator.state = saved
        return now
    if isinstance(now, Tensor):
        value = torch.as_tensor(saved).to(now.device, now.dtype)
        return now.detach().copy_(value) if now.shape == value.shape else value
    if isinstance(now, np.ndarray) or isinstance(saved, Tensor | np.ndarray):
        return np.array(saved)
    if isinstance(now, deque):
        return deque(saved, now.maxlen)
    if isinstance(now, tuple | np.generic) and type(now).__module__ in ("builtins", "numpy"):
        return type(now)(saved)
    return saved


def _as_json(value: Any) -> tuple[Any] | None:
    """The value as JSON would give it back, in a tuple; None if it would not."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in (deque, tuple):
        value = list(value)
    if not isinstance(value, bool | int | float | str | list | dict | None):
        return None
    try:
        same = json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return None
    return (value,) if same == value or value != value else None
