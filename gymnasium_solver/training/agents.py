"""Builds agents from configs and checkpoints, selects their device, and checks what is loaded.

A checkpoint may come from a stranger, or from another version. Its tensors and JSON state are
compared with those that the agent, the collector and the progress have themselves: names, shapes
and types. What remains is caught while it is loaded. Either way the user gets one line.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gymnasium_solver.algos import algo_class
from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.config.schema import Config, LearnerConfig
from gymnasium_solver.envs.as_gymnasium import Treatment, treatment_of
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.errors import ConfigError, GsolveError, RunError
from gymnasium_solver.nets.actor_critics import ActorCritics
from gymnasium_solver.nets.network import is_cnn
from gymnasium_solver.policies.policy import ObsReader
from gymnasium_solver.printable import printable
from gymnasium_solver.runs.checkpoint import LoadedCheckpoint, load_checkpoint
from gymnasium_solver.runs.query import acts_greedily, get_config
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.runs.run import Run, runs_root
from gymnasium_solver.runs.summary import Fields
from gymnasium_solver.spaces.observations import Space
from gymnasium_solver.spaces.space_types import space_from_json
from gymnasium_solver.training.observer import EvalResult
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.training.progress import Progress
from gymnasium_solver.training.seeds import derive
from gymnasium_solver.training.threads import largest_product

# Multiplications in the largest matrix product of an update above which a CUDA GPU pays off. With
# SAC's default (256^3) an H200 runs 2.8 times as many steps as its host CPU. With PPO on 8 envs of
# CartPole (256 x 64^2) it is 1.5 times, which does not make up for CUDA's start-up in a short run.
WORK_FOR_A_GPU = 256**3 // 2
_FIX = "Use another checkpoint of this run (`gsolve run RUN` lists them)."
_MOST = 2**63
LEAST_WEIGHTS = 1_000_000
# The parts of an agent's JSON state that are checked; the rest is checked while it is loaded.
_AGENT = ("policy", "reward_normalizer", "n_updates", "update_credit")
# Not in the checkpoints of all versions.
_OPTIONAL = ("largest", "n_updates", "reward_parts", "sampler", "successes", "task_returns")
# None while the policy has not acted on the host.
_UNDECIDED = ("sampler",)


def pick_device(name: str, is_large: bool = False) -> str:
    """`auto`: a CUDA GPU for large updates, if available; otherwise the CPU."""
    if name == "auto":
        return "cuda" if is_large and torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device: {name} was requested, but torch finds no CUDA GPU; use cpu.")
    if name == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device: mps was requested, but torch finds no Apple GPU; use cpu.")
    return name


def build_agent(config: Config, observation_space: Space, action_space: Space) -> Agent:
    """A newly initialised agent of the algorithm `config.algo_id`."""
    is_large = isinstance(config, LearnerConfig) and (
        is_cnn(config, observation_space) or largest_product(config) >= WORK_FOR_A_GPU
    )
    return algo_class(config.algo_id)(
        config,
        observation_space,
        action_space,
        seed=derive(config.seed or 0, "agent"),
        device=pick_device(config.device, is_large),
    )


def agent_from_checkpoint(config: Config, checkpoint: LoadedCheckpoint) -> Agent:
    path, extra = checkpoint.path, checkpoint.state.get("agent")
    with fitting(path):
        assert isinstance(extra, dict), "state.json has no agent"
        saved = [space_from_json(extra[name]) for name in ("observation_space", "action_space")]
        check_spaces(saved, checkpoint.tensors.get("model", {}), path)
        agent = build_agent(config, *saved)
        check_agent(agent, checkpoint.tensors, extra, path)
        agent.load_state(checkpoint.tensors, extra)
    return agent


def load_agent(
    ref: str | Run, runs_dir: str | Path | None = None, device: str = "cpu", *, trust: bool = False
) -> Agent:
    """Load a trained agent: load_agent("@last/@best").act(obs).

    `act` takes observations as the environment gives them, and applies those of the run's wrappers
    that are functions of the observation. No environment is built, except for runs of version
    0.1.0 with wrappers, whose folder lacks the spaces. `trust`: also import code that the config
    of a run made elsewhere names."""
    found = resolve_checkpoint(ref, runs_root(runs_dir))
    config = load_config(str(found.run.config_path), trust=trust).replace(device=device)
    agent = agent_from_checkpoint(config, load_checkpoint(found.path))
    meta = Fields(found.run.meta(), found.run.meta_path)
    agent.policy.episode_limit = meta.count("max_episode_steps")
    agent.policy.loaded_from = found.path
    agent.policy.acts_greedily = acts_greedily(found.run)
    agent.policy.reader = ObsReader(
        run_treatment(found.run, config, agent.observation_space), agent.action_space, found.run.id,
        agent.policy.unread,
    )  # fmt: skip
    return agent


def run_treatment(run: Run, config: Config, trained_on: Space | None = None) -> Treatment:
    """The treatment of observations in a run; `trained_on` is the space of its policy."""
    saved = run.meta().get("treatment")
    if saved is not None:
        with fitting(run.meta_path):
            return Treatment.from_json(saved)
    if trained_on is not None and not config.env_wrappers and not config.spec:
        return Treatment(trained_on)
    with closing(env_from_config(config, 1)) as env:
        return treatment_of(env, config)


def transfer_weights(agent: Agent, ref: str, runs_dir: Path) -> str:
    """Initialise from the weights of another run, as far as they match; return a summary."""
    found = resolve_checkpoint(ref, runs_dir)
    tensors, there = load_checkpoint(found.path).tensors, get_config(found.run)
    model = tensors.get("model", {})
    if isinstance(agent.net, ActorCritics):
        model = agent.net.renamed(model)
    skipped = agent.load_matching_weights(model)
    own = agent.net.state_dict()
    taken = [name for name in own if name not in skipped]
    if all(own[name].ndim < 2 for name in taken):  # biases or counts alone transfer nothing
        raise RunError(
            f"init_from_run: nothing in {found.run.id}/{found.label} matches this policy by name "
            "and shape; use a run with the same spaces and hidden_dims."
        )
    note = f"started from {found.run.id}/{found.label}: {len(taken)} of {len(own)} tensors loaded"
    left = {
        "left at initial values": [name for name in skipped if name in own],
        "not used": [name for name in skipped if name not in own],
    }
    note += "".join(f"; {what}: {', '.join(names)}" for what, names in left.items() if names)
    if agent.config.init_optimizer:
        note += "; " + _transfer_moments(agent, tensors.get("optimizer", {}), taken, there)
    acted, acts = there.get("activation"), getattr(agent.config, "activation", None)
    if acted is not None and acts is not None and acted != acts:
        note += f"; warning: they were trained with activation: {acted}, here it is {acts}"
    return note


def _transfer_moments(
    agent: Agent, moments: Mapping[str, Any], loaded: list[str], there: Mapping[str, Any]
) -> str:
    """Take the state of the optimisers that fit; return a summary."""
    used, wanted = there.get("optimizer"), getattr(agent.config, "optimizer", None)
    if used != wanted:
        return f"optimiser state not loaded: it is of {used}, here the optimizer is {wanted}"
    taken, left = agent.load_matching_moments(moments, loaded)
    parts = [f"optimiser state loaded: {', '.join(taken)}"] if taken else []
    if left:
        parts.append(f"optimisers that start from zero: {', '.join(left)}")
    return "; ".join(parts)


# -- does a checkpoint fit? -------------------------------------------------------------------


def does_not_fit(path: Path, why: str) -> RunError:
    return RunError(f"this checkpoint does not fit: {path}: {printable(why)[:300]}. {_FIX}")


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Turn an error of the code that loads the checkpoint in `path` into one line."""
    try:
        yield
    except GsolveError:
        raise
    except Exception as error:  # what forged data may cause in torch, NumPy and Gymnasium is open
        raise does_not_fit(path, f"{type(error).__name__}: {error}") from error


def check_agent(agent: Agent, tensors: dict[str, dict[str, Any]], extra: Any, path: Path) -> None:
    """RunError if the state is not one of this agent. Weights of another network are left to
    `load_weights`, which says what to do about them."""
    own_tensors, own_extra = agent.state()
    for stem, named in own_tensors.items():
        given = tensors.get(stem)
        if given is None:
            raise does_not_fit(path, f"it has no {stem}.safetensors")
        if stem == "model" and _forms(given) != _forms(named):
            return
        for name, value in named.items():
            _check_tensor(f"{stem}/{name}", given.get(name), value, path)
    known = {name: value for name, value in own_extra.items() if name in _AGENT}
    _check_like(known, extra, "agent", path)
    credit = extra.get("update_credit", 0.0)
    if not 0 <= credit < 1:  # else a resume would begin with any number of updates
        raise does_not_fit(path, f"update_credit is {credit!r}, expected 0 to 1")


def _forms(named: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in named.items()}


def check_spaces(saved: list[Space], model: Mapping[str, np.ndarray], path: Path) -> None:
    """RunError if a saved space needs more weights than the model has: building its network could
    take all memory."""
    n_weights = max(LEAST_WEIGHTS, sum(array.size for array in model.values()))
    for space in saved:
        for leaf in _leaves(space):
            size = int(np.sum(getattr(leaf, "nvec", getattr(leaf, "n", 0))))
            if size > n_weights:
                raise does_not_fit(path, f"{leaf} is larger than its model of {n_weights} weights")


def _leaves(space: Any) -> list[Any]:
    parts = getattr(space, "spaces", None)
    if parts is None:
        return [space]
    inner = parts.values() if isinstance(parts, Mapping) else parts
    return [leaf for part in inner for leaf in _leaves(part)]


def _check_tensor(name: str, given: Any, own: Any, path: Path) -> None:
    """Where the agent's own tensor is empty, it grows in training: the saved one may have any
    length."""
    dtype, shape = str(own.dtype).removeprefix("torch."), list(own.shape)
    if given is None:
        raise does_not_fit(path, f"the tensor {name} is missing")
    if own.ndim and not len(own) and given.ndim:
        shape[0] = len(given)
    if given.dtype.name != dtype or list(given.shape) != shape:
        is_now = f"{given.dtype.name} {list(given.shape)}"
        raise does_not_fit(path, f"{name} is {is_now}, expected {dtype} {shape}")


def load_progress(state: Mapping[str, Any], env_steps: int, path: Path) -> Progress:
    """The progress in a checkpoint's state."""
    fields = state.get("progress")
    if isinstance(fields, dict):  # older checkpoints do not have all of it
        fields = asdict(Progress()) | {"env_steps": None} | fields
    _check_like(asdict(Progress()), fields, "progress", path)
    assert isinstance(fields, dict)
    if fields["env_steps"] != env_steps:
        raise does_not_fit(path, f"progress.env_steps is {fields['env_steps']}, not {env_steps}")
    for name, kind in (("best_score", float), ("best_train_mean", float), ("over", str)):
        value = fields.get(name)
        if value is not None:
            _check_like(kind(), value, f"progress.{name}", path)
    if fields["cut"] is not None:
        whole = dict.fromkeys(("updates", "rows", "env_steps", "began"), 0)
        _check_like(whole, fields["cut"], "progress.cut", path)
    with fitting(path):
        progress = Progress(**fields)
        if progress.passed_test is not None:
            EvalResult.from_dict(progress.passed_test)
        if progress.last_eval is not None:
            progress.last_eval = dict(progress.last_eval)
    return progress


def check_collector(own: Mapping[str, Any], given: Any, path: Path) -> None:
    """RunError if the JSON state of the collector is not one; `own`: that of a new collector."""
    _check_like({**own, "journal": {}}, given, "collector", path)
    for name, window in (given.get("reward_parts") or {}).items():
        _check_like([], window, f"collector.reward_parts.{name}", path)


def check_journal(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """RunError if the arrays cannot restore the environments."""
    for name in ("actions", "is_first"):
        if name not in arrays:
            raise does_not_fit(path, f"the tensor env/{name} is missing")
    if arrays["actions"].ndim < 2:
        raise does_not_fit(path, f"env/actions has shape {arrays['actions'].shape}")
    is_first = arrays["is_first"]
    if is_first.shape != arrays["actions"].shape[1:2] or is_first.dtype != bool:
        raise does_not_fit(path, f"env/is_first is {is_first.dtype} {list(is_first.shape)}")


def _check_like(own: Any, given: Any, where: str, path: Path) -> None:
    """RunError unless `given` has the JSON types of `own`. None in `own` says nothing; lists are of
    numbers."""
    for json_type, expected, fits in _JSON_TYPES:
        if isinstance(own, json_type):
            if not fits(given):
                shown = printable(repr(given))[:60]
                raise does_not_fit(path, f"state.json: {where} is {shown}, expected {expected}")
            break
    if isinstance(own, Mapping):
        for name, value in own.items():
            if name in given and given[name] is None and name in _UNDECIDED:
                continue
            if name in given:
                _check_like(value, given[name], f"{where}.{name}", path)
            elif name not in _OPTIONAL:
                raise does_not_fit(path, f"state.json: {where}.{name} is missing")


def _is_number(value: Any) -> bool:
    """Whether this is a number that fits a float. It need not be finite: a return may not be."""
    is_float = isinstance(value, float)
    return is_float or (type(value) is int and abs(value) < 10**300)


# Type in the own state, what is expected in a given one, and whether that is it. A bool is an int.
_JSON_TYPES: tuple[tuple[type, str, Callable[[Any], bool]], ...] = (
    (bool, "true or false", lambda given: isinstance(given, bool)),
    (int, "a whole number >= 0", lambda given: type(given) is int and 0 <= given < _MOST),
    (float, "a number", _is_number),
    (str, "text", lambda given: isinstance(given, str)),
    (list, "a list of numbers", lambda x: isinstance(x, list) and all(map(_is_number, x))),
    (Mapping, "a mapping", lambda given: isinstance(given, dict)),
)
