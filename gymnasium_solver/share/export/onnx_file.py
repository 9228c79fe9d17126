"""Policies as ONNX files: written by torch, checked by onnx, compared in onnxruntime.

data = onnx_bytes(policy, example, metadata)
check_same(policy, data, observed)          # RunError if the file acts differently
"""

import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.errors import RunError
from gymnasium_solver.share.export.actions import score_gap
from gymnasium_solver.share.export.deployed import Deployed
from gymnasium_solver.share.export.observed import Observed, Seen
from gymnasium_solver.spaces.native_actions import from_native_batch

TOLERANCE = 1e-4
"""Largest difference of a real-valued action, as a share of its range in the observed steps."""
TIE = 1e-5
"""Two choices whose scores differ less are a tie: rounding decides, and either is right."""


def require_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise RunError(
            f"--format onnx needs the package {error.name}: pip install 'gymnasium-solver[onnx]'"
        ) from None


def onnx_bytes(
    policy: Deployed, example: Mapping[str, np.ndarray], meta: Mapping[str, Any]
) -> bytes:
    """The policy as an ONNX model with a dynamic batch size."""
    import onnx

    # Two rows: torch treats a batch of one as a constant.
    rows = [_two_rows(example[name]) for name in policy.input_names]
    inputs = tuple(torch.from_numpy(array.copy()) for array in rows)
    batch = torch.export.Dim("batch", min=1, max=2**20)
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            policy,
            inputs,
            input_names=policy.input_names,
            output_names=policy.output_names,
            dynamic_shapes=(tuple({0: batch} for _ in inputs),),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    del model.metadata_props[:]
    for key, value in meta.items():
        text = value if isinstance(value, str) else json.dumps(value)
        model.metadata_props.add(key=key, value=text)
    model.producer_name = "gymnasium-solver"
    model.graph.doc_string = ""
    for node in model.graph.node:  # stack traces with paths of this machine
        del node.metadata_props[:]
        node.doc_string = ""
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        del value.metadata_props[:]
    onnx.checker.check_model(model)
    buffer = io.BytesIO()
    onnx.save_model(model, buffer)
    return buffer.getvalue()


def _two_rows(array: np.ndarray) -> np.ndarray:
    return np.concatenate([array, array])[:2]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's messages about its own workings."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "torch.export")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


class OnnxPolicy:
    """An exported file in onnxruntime, on one thread."""

    def __init__(self, data: bytes) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(
            data, options, providers=["CPUExecutionProvider"]
        )

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        outputs: list[np.ndarray] = self.session.run(None, dict(inputs))
        return outputs


def check_same(policy: Deployed, data: bytes, observed: Observed) -> float:
    """Compare the file with the run's policy; return the largest difference of an action.

    RunError if an action differs by more than rounding."""
    runs, largest = OnnxPolicy(data), 0.0
    carry: np.ndarray | None = None
    for number, step in enumerate(observed.steps):
        inputs = policy.arrays(step.obs, step.mask, carry, step.is_first)
        outputs = runs(inputs)
        carry = outputs.pop() if policy.has_memory else None
        largest = max(largest, compare_actions(policy, step, inputs, outputs))
        if number == 0:  # the batch size is free
            alone = runs({name: array[:1] for name, array in inputs.items()})
            compare_actions(policy, step, inputs, alone[: len(outputs)], rows=1)
    return largest


def compare_actions(
    policy: Deployed,
    step: Seen,
    inputs: Mapping[str, np.ndarray],
    actions: list[np.ndarray],
    rows: int | None = None,
) -> float:
    """The largest difference between these actions and the policy's own in this step."""
    space = policy.kind.space
    own = from_native_batch(space, step.action)[:rows]
    own = own.reshape(len(own), -1).astype(np.float64)
    got = np.concatenate([a.reshape(len(a), -1).astype(np.float64) for a in actions], axis=1)
    gap = np.abs(own - got).max(axis=1, initial=0.0)
    scale = max(1.0, float(np.abs(own).max(initial=0.0)))
    different = ~(gap <= TOLERANCE * scale)
    if different.any() and not _are_ties(policy, inputs, different):
        row = int(np.flatnonzero(different)[0])
        raise RunError(
            f"the exported file acts differently: {got[row].tolist()} where the run's policy "
            f"takes {own[row].tolist()}. Nothing was written; please report this run's config."
        )
    return float(gap[~different].max(initial=0.0))


@torch.no_grad()
def _are_ties(policy: Deployed, inputs: Mapping[str, np.ndarray], rows: np.ndarray) -> bool:
    tensors: list[Tensor] = []
    for name in policy.input_names:
        tensors.append(torch.from_numpy(inputs[name][: len(rows)].copy()))
    scores, _ = policy.scores(*tensors)
    return bool((score_gap(policy.kind, scores).numpy()[rows] < TIE).all())
