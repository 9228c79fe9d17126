"""Policies as ONNX files: written by torch, checked by onnx, compared in onnxruntime.

data, largest_difference, inputs, outputs = onnx_file(policy, observed, metadata)
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

from gymnasium_solver.errors import RunError
from gymnasium_solver.share.export.comparison import Observed, Written, compare_actions
from gymnasium_solver.share.export.deployed import Deployed


def require_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise RunError(
            f"--format onnx needs the package {error.name}: pip install 'gymnasium-solver[onnx]'"
        ) from None


def onnx_file(policy: Deployed, observed: Observed, meta: dict[str, Any]) -> Written:
    """The file, its largest difference from the policy, and its inputs and outputs."""
    first = observed.steps[0]
    data = onnx_bytes(policy, policy.arrays(first.obs, first.mask, None, first.is_first), meta)
    largest = check_same(policy, data, observed)
    session = OnnxPolicy(data).session
    inputs, outputs = (
        {value.name: f"{value.type} {value.shape}" for value in values}
        for values in (session.get_inputs(), session.get_outputs())
    )
    return data, largest, inputs, outputs


def onnx_bytes(
    policy: Deployed, example: Mapping[str, np.ndarray], meta: Mapping[str, Any]
) -> bytes:
    """The policy as an ONNX model with a dynamic batch size."""
    import onnx

    # Two rows: torch treats a batch of one as a constant.
    rows = [np.concatenate([example[name]] * 2)[:2] for name in policy.input_names]
    inputs = tuple(torch.from_numpy(array) for array in rows)
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
