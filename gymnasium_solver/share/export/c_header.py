"""Small policies as one C header without dependencies: C99, no allocation, `#include "policy.h"`.

    int policy_act(const float *obs);                       // Discrete
    void policy_act(const float *obs, float *action);       // all other spaces

The header is compiled here with the machine's C compiler and compared with the run's policy.
Without a compiler it is not written.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.errors import RunError
from gymnasium_solver.share.export.c_source import c_source
from gymnasium_solver.share.export.deployed import Deployed
from gymnasium_solver.share.export.layers import flat_layers
from gymnasium_solver.share.export.observed import Observed, Seen
from gymnasium_solver.share.export.onnx_file import compare_actions
from gymnasium_solver.spaces.actions import DiscreteActions
from gymnasium_solver.spaces.native_actions import action_leaves, action_width
from gymnasium_solver.spaces.observations import obs_arrays

Described = tuple[bytes, float, dict[str, str], dict[str, str]]


def c_header(policy: Deployed, observed: Observed, meta: dict[str, Any]) -> Described:
    """The header, its largest difference from the policy, and its inputs and outputs."""
    compiler = find_compiler()
    program = flat_layers(policy)
    source = c_source(policy, program, meta)
    with tempfile.TemporaryDirectory(prefix="gsolve-export-") as folder:
        act = compiled(source, policy, Path(folder), compiler)
        largest = max(_compare(policy, act, step) for step in observed.steps)
    inputs = {"obs": f"const float[{program.n_inputs}]"}
    if policy.has_mask:
        inputs["action_mask"] = f"const unsigned char[{policy.kind.n_mask}]"
    kind = "int" if isinstance(policy.kind, DiscreteActions) else "float"
    n_actions = action_width(policy.kind.space)
    outputs = {"action": kind if kind == "int" else f"float[{n_actions}]"}
    return source.encode(), largest, inputs, outputs


def find_compiler() -> str:
    """The C compiler: $CC, cc, gcc or clang."""
    names = [os.environ.get("CC", ""), "cc", "gcc", "clang"]
    for name in filter(None, names):
        if path := shutil.which(name):
            return path
    raise RunError(
        "--format c compiles the header to compare it with the run, and finds no C compiler; "
        "install gcc or clang, or name one in $CC."
    )


class CompiledPolicy:
    """The compiled header, called from Python."""

    def __init__(self, library: Path, policy: Deployed) -> None:
        self._library = ctypes.CDLL(str(library))
        self._policy = policy
        self._is_discrete = isinstance(policy.kind, DiscreteActions)
        self._width = action_width(policy.kind.space)
        self._act = self._library.gsolve_test_act
        self._act.restype = ctypes.c_int if self._is_discrete else None

    def __call__(self, obs: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """The action for one flat observation."""
        given = [_pointer(np.ascontiguousarray(obs, np.float32))]
        if self._policy.has_mask:
            assert mask is not None
            given.append(_pointer(np.ascontiguousarray(mask, np.uint8)))
        if self._is_discrete:
            return np.array([self._act(*given)])
        action = np.zeros(self._width, np.float32)
        self._act(*given, _pointer(action))
        return action


def _pointer(array: np.ndarray) -> Any:
    return array.ctypes.data_as(ctypes.c_void_p)


def compiled(source: str, policy: Deployed, folder: Path, compiler: str) -> CompiledPolicy:
    """Compile the header into a shared library with one exported function."""
    (folder / "policy.h").write_text(source, encoding="utf-8")
    mask = "const unsigned char *mask" if policy.has_mask else ""
    is_discrete = isinstance(policy.kind, DiscreteActions)
    action = "" if is_discrete else "float *action"
    arguments = ", ".join(filter(None, ("const float *obs", mask, action)))
    names = ", ".join(part.split("*")[-1] for part in arguments.split(", "))
    kind, verb = ("int", "return ") if is_discrete else ("void", "")
    body = f"{{ {verb}policy_act({names}); }}"
    test = f'#include "policy.h"\n{kind} gsolve_test_act({arguments}) {body}\n'
    (folder / "test.c").write_text(test, encoding="utf-8")
    library = folder / "policy.so"
    flags = ["-std=c99", "-O2", "-fPIC", "-shared", "-Wall", "-Werror", "-pedantic"]
    command = [compiler, *flags, "-o", str(library), str(folder / "test.c"), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise RunError(f"{compiler} rejects the header: {lines[0] if lines else done.returncode}")
    return CompiledPolicy(library, policy)


def _compare(policy: Deployed, act: CompiledPolicy, step: Seen) -> float:
    inputs = policy.arrays(step.obs, step.mask, None, step.is_first)
    n = len(step.is_first)
    flat = np.concatenate([array.reshape(n, -1) for _, array in obs_arrays(step.obs)], axis=1)
    actions = np.stack(
        [act(flat[row], None if step.mask is None else step.mask[row]) for row in range(n)]
    )
    widths = [
        int(np.prod(leaf.shape or (), dtype=int)) for leaf in action_leaves(policy.kind.space)
    ]
    parts = np.split(actions, np.cumsum(widths)[:-1], axis=1)
    return compare_actions(policy, step, inputs, parts)
