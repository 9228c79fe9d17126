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
import logging
from collections import deque
from collections.abc import Mapping
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.errors import RunError

log = logging.getLogger(__name__)
PACKAGE = __name__.partition(".")[0]
OWN = "attributes"  # the file of the tensors, and the key of the rest


class OwnState:
    """What a learner keeps in attributes of its own."""

    def __init__(self, learner: Any):
        self.learner = learner
        self._has_warned = False

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The attributes as tensors and JSON. A warning names those that can be neither."""
        kind = type(self.learner)
        ours = [c for c in kind.__mro__ if _is_ours(c)]
        if kind in ours or any("state" in vars(c) for c in kind.__mro__ if c not in ours):
            return {}, {}
        tensors, extra, left = dict[str, Tensor](), dict[str, Any](), list[str]()
        for name in sorted(vars(self.learner).keys() - set().union(*map(_names_set_by, ours))):
            value = getattr(self.learner, name)
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
            elif not callable(value) and not _is_ours(type(value)):
                left.append(name)
        if left and not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s: a checkpoint does not have %s, so that a resume starts with new ones: define "
                "state() and load_state() (docs/plugins.md).",
                kind.__name__,
                ", ".join(f"self.{name}" for name in left),
            )
        return tensors, extra

    def load(self, tensors: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
        """Set the attributes again, tensors in place."""
        for name, saved in {**tensors, **extra}.items():
            if not hasattr(self.learner, name):
                raise RunError(
                    f"the checkpoint has the attribute {name} of {type(self.learner).__name__}, "
                    "which its build() does not set any more: take the version of the plugin that "
                    "trained it."
                )
            setattr(self.learner, name, _restored(getattr(self.learner, name), saved))


def _is_ours(kind: type) -> bool:
    """Whether the framework has this class: such objects are saved elsewhere, or have no state."""
    return kind.__module__.partition(".")[0] == PACKAGE


@cache
def _names_set_by(kind: type) -> frozenset[str]:
    """The attributes that the methods of a class set, those of its parents not included."""
    methods = [f for f in vars(kind).values() if isinstance(f, FunctionType)]
    found = (i for f in methods for i in dis.get_instructions(f) if i.opname == "STORE_ATTR")
    return frozenset(str(i.argval) for i in found)


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
