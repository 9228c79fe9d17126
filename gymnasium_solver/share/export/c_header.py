"""Small policies as one C header without dependencies: C99, no allocation, `#include "policy.h"`.

    int policy_act(const float *obs);                       // Discrete
    void policy_act(const float *obs, float *action);       // all other spaces

The text is that of the recorded forward pass (fast/native/portable.py). It is compiled here with
the machine's C compiler and compared with the run's policy. Without a compiler it is not written.
"""

import ctypes
import itertools
import json
import math
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.errors import RunError, Unsupported
from gymnasium_solver.fast.native.build import find_compiler
from gymnasium_solver.fast.native.portable import portable
from gymnasium_solver.fast.tape import write_forward
from gymnasium_solver.paths import temporary_folder
from gymnasium_solver.share.export import deployed
from gymnasium_solver.share.export.deployed import Deployed, Observed, Seen, Written
from gymnasium_solver.spaces.actions import DiscreteActions
from gymnasium_solver.spaces.space_types import action_leaves, action_width

MOST_WEIGHTS = 300_000  # about 3 MB of source text; a larger network is not what a header is for
FLAGS = ["-std=c99", "-O2", "-fPIC", "-shared", "-Wall", "-Werror", "-pedantic"]


def c_header(policy: Deployed, observed: Observed, meta: dict[str, Any]) -> Written:
    """The header, its largest difference from the policy, and its inputs and outputs."""
    if find_compiler() is None:
        raise RunError(
            "--format c compiles the header to compare it with the run, and finds no C compiler; "
            "install gcc or clang, or name one in $CC."
        )
    source = c_source(policy, meta)
    with temporary_folder("export") as folder:
        act = CompiledPolicy(source, policy, Path(folder))
        largest = max(_compare(policy, act, step) for step in observed.steps)
    inputs = {"obs": f"const float[{_n_inputs(policy)}]"}
    if policy.has_mask:
        inputs["action_mask"] = f"const unsigned char[{policy.kind.n_mask}]"
    action = "int" if _is_int(policy) else f"float[{action_width(policy.kind.space)}]"
    return source.encode(), largest, inputs, {"action": action}


def _is_int(policy: Deployed) -> bool:
    return isinstance(policy.kind, DiscreteActions)


def _n_inputs(policy: Deployed) -> int:
    return sum(math.prod(space.shape or ()) for space in policy.raw_parts.values())


# -- text -------------------------------------------------------------------------------------


def c_source(policy: Deployed, meta: dict[str, Any]) -> str:
    n_obs, width = _n_inputs(policy), action_width(policy.kind.space)
    if policy.has_memory:
        raise _refused("it has a recurrent core")
    given = {"obs": torch.zeros(1, n_obs)}
    if policy.has_mask:
        given["mask"] = torch.ones(1, int(policy.kind.n_mask or 0), dtype=torch.uint8)
    try:
        tape, constants = write_forward(
            lambda *inputs: [_flat_act(policy, *inputs)], [*given.values()]
        )
        n_weights = sum(constant.numel() for constant in constants)
        if n_weights > MOST_WEIGHTS:
            raise _refused(f"it has {n_weights:,} weights, and C is limited to {MOST_WEIGHTS:,}")
        named = dict(zip(_names(policy, constants), constants, strict=True))
        text = portable(tape, given, named, ["action"], "policy_")
    except Unsupported as error:
        raise _refused(str(error)) from None
    kind, extra = ("int", []) if _is_int(policy) else ("void", ["float *action"])
    masks = ["const unsigned char *mask"] * policy.has_mask
    arguments = ", ".join(["const float *obs", *masks, *extra])
    body = [f"float action[{width}];", *text.statements, "return (int)action[0];"]
    statements = "\n  ".join(body if _is_int(policy) else text.statements)
    about = json.dumps(meta, indent=1).replace("*/", "* /")
    return "\n".join(
        [
            "/* A trained policy, written by gymnasium-solver: C99, no dependencies but libm.",
            f"   obs: {n_obs} numbers, {_order(policy)}",
            f"{about}\n*/",
            "#ifndef GSOLVE_POLICY_H\n#define GSOLVE_POLICY_H\n#include <math.h>\n",
            f"#define POLICY_N_OBS {n_obs}\n",
            *[*text.constants, ""],
            *[f"{helper}\n" for helper in text.helpers],
            f"static inline {kind} policy_act({arguments}) {{\n  {statements}\n}}\n\n#endif\n",
        ]
    )


def _refused(why: str) -> RunError:
    return RunError(
        f"--format c writes small MLPs; this policy cannot be one: {why}. Use --format onnx."
    )


def _flat_act(policy: Deployed, obs: Tensor, mask: Tensor | None = None) -> Tensor:
    """The policy on observations in one vector: the parts of a Dict side by side, in the order of
    the space. Actions are floats in one vector too."""
    parts, start = [], 0
    for space in policy.raw_parts.values():
        width = math.prod(space.shape or ())
        part = obs[:, start : start + width].reshape(-1, *(space.shape or ()))
        start += width
        dtype = torch.from_numpy(np.zeros(0, space.dtype)).dtype
        parts.append(part if dtype.is_floating_point else part.to(dtype))
    actions = policy(*parts, *([] if mask is None else [mask != 0]))
    flat = [action.reshape(len(obs), -1).float() for action in actions]
    return flat[0] if len(flat) == 1 else torch.cat(flat, dim=1)


def _names(policy: Deployed, constants: Sequence[Tensor]) -> list[str]:
    """Those of the parameters and buffers, where a constant is one or a view of one."""
    known = {t.data_ptr(): name for name, t in policy.state_dict(keep_vars=True).items()}
    names: list[str] = []
    for constant in constants:
        name = known.get(constant.data_ptr(), f"constant_{len(names)}").removeprefix("net.")
        name = re.sub(r"\W+", "_", name)
        names.append(name if name not in names else f"{name}_{len(names)}")
    return names


def _order(policy: Deployed) -> str:
    spaces = policy.raw_parts
    if list(spaces) == [""]:
        return "in the order of the environment"
    widths = [math.prod(space.shape or ()) for space in spaces.values()]
    places = zip(spaces, itertools.accumulate(widths, initial=0), strict=False)
    return f"the parts at {', '.join(f'{start}: {name}' for name, start in places)}"


# -- comparison -------------------------------------------------------------------------------


class CompiledPolicy:
    """The header, compiled into a shared library and called from Python."""

    def __init__(self, source: str, policy: Deployed, folder: Path) -> None:
        self._has_mask, self._is_int = policy.has_mask, _is_int(policy)
        self._width = action_width(policy.kind.space)
        self._act = ctypes.CDLL(str(self._compiled(source, folder))).gsolve_test_act
        self._act.restype = ctypes.c_int if self._is_int else None

    def _compiled(self, source: str, folder: Path) -> Path:
        compiler = find_compiler()
        assert compiler is not None
        kind, arguments = re.findall(r"static inline (\w+) policy_act\((.*)\) {", source)[0]
        names = ", ".join(re.findall(r"\*(\w+)", arguments))
        act = f"{'return ' * self._is_int}policy_act({names});"
        test = f'#include "policy.h"\n{kind} gsolve_test_act({arguments}) {{ {act} }}\n'
        (folder / "policy.h").write_text(source, encoding="utf-8")
        (folder / "test.c").write_text(test, encoding="utf-8")
        library = folder / "policy.so"
        command = [*compiler, *FLAGS, "-o", str(library), str(folder / "test.c"), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [str(done.returncode)]
            raise RunError(f"{compiler[0]} rejects the header: {lines[0]}")
        return library

    def __call__(self, obs: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """The action for one flat observation."""
        given = [np.ascontiguousarray(obs, np.float32)]
        if self._has_mask:
            given.append(np.ascontiguousarray(mask, np.uint8))
        action = np.zeros(self._width, np.float32)
        given += [] if self._is_int else [action]
        result = self._act(*(array.ctypes.data_as(ctypes.c_void_p) for array in given))
        return np.array([result]) if self._is_int else action


def _compare(policy: Deployed, act: CompiledPolicy, step: Seen) -> float:
    inputs = policy.arrays(step.obs, step.mask, None, step.is_first)
    n = len(step.is_first)
    flat = np.concatenate([inputs[name].reshape(n, -1) for name in policy.obs_names], axis=1)
    masks = [None] * n if step.mask is None else list(step.mask)
    actions = np.stack([act(obs, mask) for obs, mask in zip(flat, masks, strict=True)])
    widths = [math.prod(leaf.shape or ()) for leaf in action_leaves(policy.kind.space)]
    parts = np.split(actions, np.cumsum(widths)[:-1], axis=1)
    return deployed.compare_actions(policy, step, inputs, parts)
