"""`gsolve export`: writes the policy of a run to a file, after comparing it with the run: as ONNX,
which torch writes, onnx checks and onnxruntime runs, as a program of torch.export (.pt2), or as C
(c_header.py).
"""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.envs.as_gymnasium import Treatment
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.runs.files import write_atomic, writing
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.share.export import deployed
from gymnasium_solver.share.export.c_header import c_header
from gymnasium_solver.share.export.deployed import Deployed, Observed, Written
from gymnasium_solver.spaces.space_types import space_to_json
from gymnasium_solver.training.agents import load_agent, run_treatment
from gymnasium_solver.training.threads import limited_threads
from gymnasium_solver.version import __version__

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2", "c": ".h"}
FACTS = "gymnasium_solver.json"  # in the extra files of a .pt2
N_OBSERVATIONS = 1000


@dataclass(frozen=True)
class Exported:
    path: str
    format: str
    run: str
    checkpoint: str
    env_steps: int
    inputs: dict[str, str]
    outputs: dict[str, str]
    n_compared: int
    compared_on: str
    largest_difference: float
    size_bytes: int
    env_wrappers: list[str]
    """Wrappers of the run that the file does not hold: the environment must apply them."""
    is_judged_greedy: bool
    """Whether the run is judged by greedy actions, which are those of the file."""
    without_plans: bool = False
    """Whether the run is judged by plans, and the file has the learnt policy alone."""


def export_run(
    ref: str,
    root: Path,
    format: str = "onnx",
    out: Path | None = None,
    *,
    n_observations: int = N_OBSERVATIONS,
    trust: bool = False,
) -> Exported:
    """Write the policy of a checkpoint in one of `SUFFIXES`; default place: the run's folder.

    RunError, and no file, if the written form acts differently from the run's policy."""
    if format not in SUFFIXES:
        raise ConfigError(f"--format {format}: expected {' or '.join(SUFFIXES)}.")
    if format == "onnx":
        require_onnx()
    write = {"onnx": onnx_file, "torch": torch_file, "c": c_header}[format]
    found = resolve_checkpoint(ref, root)
    env_steps = int(found.path.name)
    with limited_threads(1):
        agent = load_agent(f"{found.run.path.resolve()}/{found.path.name}", trust=trust)
        treatment = run_treatment(found.run, agent.config, agent.observation_space)
        observed = deployed.observe(agent.config, agent, treatment, n_observations)
        policy = deployed.deployed_policy(agent, treatment, observed.steps[0].mask is not None)
        facts = _facts(agent, treatment, policy) | {"run": found.run.id, "env_steps": env_steps}
        facts["compared"] = f"{observed.n} observations"
        data, largest, inputs, outputs = write(policy, observed, facts)
    path = out or found.run.path / f"policy-{found.path.name}{SUFFIXES[format]}"
    with writing("the exported policy", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    return Exported(
        path=str(path),
        format=format,
        run=found.run.id,
        checkpoint=found.label,
        env_steps=env_steps,
        inputs=inputs,
        outputs=outputs,
        n_compared=observed.n,
        compared_on=observed.source,
        largest_difference=largest,
        size_bytes=len(data),
        env_wrappers=treatment.own_env,
        is_judged_greedy=agent.policy.acts_greedily,
        without_plans=agent.policy.exported is not agent.policy,
    )


def _facts(agent: Agent, treatment: Treatment, policy: Deployed) -> dict[str, Any]:
    """What a reader of the file alone needs to know; nothing about this machine."""
    config, plain = agent.config, str | int | float | bool | None
    return {
        "gymnasium_solver": __version__,
        "env_id": config.env_id,
        "algo_id": config.algo_id,
        "observation_space": space_to_json(treatment.space),
        "action_space": space_to_json(agent.action_space),
        "carry_width": policy.carry_width,
        "env_wrappers": treatment.own_env,
        "env_kwargs": {k: v for k, v in (config.env_kwargs or {}).items() if isinstance(v, plain)},
    }


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
    runs = OnnxPolicy(data)
    largest, session = check_same(policy, runs, observed), runs.session
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

    inputs, shapes = _traced_inputs(policy, example)
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            policy,
            inputs,
            input_names=policy.input_names,
            output_names=policy.output_names,
            dynamic_shapes=shapes,
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


def _traced_inputs(
    policy: Deployed, example: Mapping[str, np.ndarray]
) -> tuple[tuple[torch.Tensor, ...], Any]:
    """Inputs to trace the policy with, and what says that their batch size is free."""
    # Two rows: torch treats a batch of one as a constant.
    rows = [np.concatenate([example[name]] * 2)[:2] for name in policy.input_names]
    inputs = tuple(torch.from_numpy(array) for array in rows)
    batch = torch.export.Dim("batch", min=1, max=2**20)
    return inputs, (tuple({0: batch} for _ in inputs),)


def torch_file(policy: Deployed, observed: Observed, meta: dict[str, Any]) -> Written:
    """A program of torch.export, its largest difference from the policy, and its inputs and
    outputs."""
    first = observed.steps[0]
    example = policy.arrays(first.obs, first.mask, None, first.is_first)
    inputs, shapes = _traced_inputs(policy, example)
    with _quiet(), torch.no_grad():
        program = torch.export.export(policy, inputs, dynamic_shapes=shapes, strict=False)
    for node in program.graph.nodes:  # stack traces with paths of this machine
        for key in ("stack_trace", "nn_module_stack", "source_fn_stack"):
            node.meta.pop(key, None)
    for name, value in program.state_dict.items():  # they are views of the optimiser's vector
        own = value.detach().clone()
        is_learnt = isinstance(value, torch.nn.Parameter)
        program.state_dict[name] = torch.nn.Parameter(own) if is_learnt else own
    meta = meta | {"inputs": policy.input_names, "outputs": policy.output_names}
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={FACTS: json.dumps(meta)})
    data = buffer.getvalue()
    runs = TorchPolicy(data, policy)
    largest = check_same(policy, runs, observed)
    return (
        data,
        largest,
        _described(policy.input_names, inputs),
        _described(policy.output_names, runs.program(*inputs)),
    )


def _described(names: Sequence[str], values: Sequence[torch.Tensor]) -> dict[str, str]:
    pairs = zip(names, values, strict=True)
    return {name: f"{value.dtype} {['batch', *value.shape[1:]]}" for name, value in pairs}


class TorchPolicy:
    """An exported program, loaded from its file."""

    def __init__(self, data: bytes, policy: Deployed) -> None:
        self._names = policy.input_names
        with _quiet():
            self.program = torch.export.load(io.BytesIO(data)).module()

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        with torch.no_grad():
            outputs = self.program(*(torch.from_numpy(inputs[name].copy()) for name in self._names))
        return [value.numpy() for value in outputs]


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
        return list(self.session.run(None, dict(inputs)))


def check_same(
    policy: Deployed,
    runs: Callable[[Mapping[str, np.ndarray]], list[np.ndarray]],
    observed: Observed,
) -> float:
    """Compare a loaded file with the run's policy; return the largest difference of an action.

    RunError if an action differs by more than rounding."""
    largest = 0.0
    carry: np.ndarray | None = None
    for number, step in enumerate(observed.steps):
        inputs = policy.arrays(step.obs, step.mask, carry, step.is_first)
        outputs = runs(inputs)
        carry = outputs.pop() if policy.has_memory else None
        largest = max(largest, deployed.compare_actions(policy, step, inputs, outputs))
        if number == 0:  # the batch size is free
            alone = runs({name: array[:1] for name, array in inputs.items()})
            deployed.compare_actions(policy, step, inputs, alone[: len(outputs)], rows=1)
    return largest
