"""Models of Stable-Baselines3 (the zip of `model.save()`) and CleanRL (what its scripts save with
`--save-model`), read without unpickling.

Of a zip only the parameter tensors (through torch's restricted loader) and the plain values of its
JSON are read; its pickled strings are never decoded. Which script of CleanRL wrote a file is seen
from the names of its layers.
"""

import io
import json
import pickle
import pickletools
import re
import warnings
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.errors import RunError
from gymnasium_solver.share.foreign.imported_model import ForeignModel, Layer, Moments, one_line

MOST_BYTES = 2**30
MOST_STEPS = 2**53
# The module of SB3's policy class (stable_baselines3.dqn.policies) -> our algorithm.
_SB3_ALGOS = {name: name for name in ("ppo", "a2c", "dqn", "sac", "td3")} | {"common": "ppo"}
_ACTIVATIONS = {"Tanh": "tanh", "ReLU": "relu", "ELU": "elu", "LeakyReLU": "leaky_relu"}
_ACTIVATIONS |= {"GELU": "gelu", "SiLU": "silu", "SELU": "selu", "Identity": "identity"}
_SCHEDULES = r"ConstantSchedule\(val=N\)|LinearSchedule\(start=N, end=N, end_fraction=N\)"
_SCHEDULE = re.compile(_SCHEDULES.replace("N", r"([-+.\deE]+)"))
Tensors = dict[str, np.ndarray]


# -- layers -----------------------------------------------------------------------------------


def _layer(tensors: Tensors, name: str, dims: Collection[int] = (2,)) -> Layer:
    """Weight and bias `name`; `dims`: 2 for a dense layer, 4 for a convolution."""
    weight, bias = tensors.get(f"{name}.weight"), tensors.get(f"{name}.bias")
    if weight is None or bias is None or weight.ndim not in dims:
        raise RunError(f"the model has no dense layer {name}; only MLP policies can be imported.")
    if bias.shape != weight.shape[:1]:
        raise RunError(
            f"the model is damaged: {name} has a weight of shape {weight.shape} and a bias of "
            f"{bias.shape}."
        )
    return Layer(weight.astype(np.float64), bias.astype(np.float64))


def _chain(tensors: Tensors, prefix: str, dims: Collection[int] = (2,)) -> list[Layer]:
    """The layers `prefix.0`, `prefix.2`, ... in order."""
    pattern = re.compile(rf"{re.escape(prefix)}\.(\d+)\.weight")
    numbers = sorted(int(m[1]) for name in tensors if (m := pattern.fullmatch(name)))
    return [_layer(tensors, f"{prefix}.{number}", dims) for number in numbers]


def _with_images(tensors: Tensors, prefix: str) -> tuple[list[Layer], list[Layer]]:
    """The convolutions, and the dense layers after them."""
    layers = _chain(tensors, prefix, (2, 4))
    kernels = [layer for layer in layers if layer.weight.ndim == 4]
    return kernels, [layer for layer in layers if layer.weight.ndim == 2]


def _joined(mean: Layer, log_std: Layer) -> Layer:
    """Means and log standard deviations are two heads there, one here."""
    weight = np.concatenate([mean.weight, log_std.weight])
    return Layer(weight, np.concatenate([mean.bias, log_std.bias]))


def _loaded(file: Any, path: Path) -> Any:
    """A torch file by the restricted loader: tensors and plain containers."""
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the form of the file
            return torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}.") from None
    except pickle.UnpicklingError as error:  # torch's advice would be to run what is in it
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        what = f" ({found[1]})" if found else ""
        raise RunError(
            f"{path} holds more than tensors{what}, or is damaged, so it is not loaded."
        ) from None
    except Exception:  # what torch raises for damaged files is not documented
        raise RunError(f"{path} is damaged, so it is not loaded.") from None


def _arrays(loaded: Any) -> Tensors:
    """The tensors of a state dict as arrays; {} for anything else."""
    found = loaded.items() if isinstance(loaded, dict) else ()
    return {str(k): v.detach().cpu().float().numpy() for k, v in found if hasattr(v, "detach")}


# -- Stable-Baselines3 ------------------------------------------------------------------------


def read_sb3(path: Path, statistics: Path | None = None) -> ForeignModel:
    """`statistics`: the pickle of VecNormalize."""
    with one_line(path):
        data, tensors, variables = _read_zip(path)
        algo, steps = _sb3_algorithm(data, path), data.get("num_timesteps") or 0
        if not isinstance(steps, int | float) or not 0 <= steps <= MOST_STEPS:
            raise RunError(f"{path}: num_timesteps is {str(steps)[:40]!r}, not a number of steps.")
        model = _SB3_MODELS[algo](tensors)
        model.algo_id = "a2c" if algo == "a2c" else model.algo_id
        model.activation = _activation(data, "tanh" if algo in ("ppo", "a2c") else "relu")
        model.env_steps = int(steps)
        model.hyper = {name: plain(value) for name, value in data.items()}
        if "log_ent_coef" in variables:
            model.alpha = float(np.exp(variables["log_ent_coef"].reshape(-1)[0]))
        if statistics is not None:
            model.moments = read_vec_normalize(statistics)
        return model


def _read_zip(path: Path) -> tuple[dict[str, Any], Tensors, Tensors]:
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist()}
            for name in ("data", "policy.pth"):
                if name not in sizes:
                    raise RunError(f"{path} is not a model of SB3: it has no {name!r} inside.")
            if max(sizes.values()) > MOST_BYTES:
                raise RunError(f"{path} holds a file of more than 1 GiB.")
            data = json.loads(archive.read("data"))
            names = [n for n in ("policy.pth", "pytorch_variables.pth") if n in sizes]
            files = [_arrays(_loaded(io.BytesIO(archive.read(name)), path)) for name in names]
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError) as error:
        raise RunError(f"{path} cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise RunError(f"{path} is not a model of SB3: its data is not a mapping.")
    return data, files[0], files[1] if len(files) > 1 else {}


def _sb3_algorithm(data: dict[str, Any], path: Path) -> str:
    policy = data.get("policy_class")
    module = policy.get("__module__") if isinstance(policy, dict) else None
    match = re.fullmatch(r"stable_baselines3\.(\w+)\.policies", str(module))
    algo = _SB3_ALGOS.get(match[1]) if match else None
    if algo is None:
        raise RunError(
            f"{path}: models with the policy of {module} cannot be imported. Can be: PPO, A2C, "
            "DQN, SAC, TD3 and DDPG of Stable-Baselines3 with MLP policies, and PPO, A2C and DQN "
            "with CNN policies."
        )
    # PPO and A2C save the same policy class; only PPO clips.
    return "a2c" if algo == "ppo" and "clip_range" not in data else algo


def _activation(data: dict[str, Any], default: str) -> str:
    """The activation in `policy_kwargs`, where SB3 writes a class as the text <class '...ReLU'>."""
    kwargs = data.get("policy_kwargs")
    given = kwargs.get("activation_fn") if isinstance(kwargs, dict) else None
    if given is None:
        return default
    name = re.sub(r"^<class '|'>$", "", str(given)).rpartition(".")[2]
    if name not in _ACTIVATIONS:
        raise RunError(f"the activation {name} of the model is not available here.")
    return _ACTIVATIONS[name]


def plain(value: Any) -> Any:
    """A JSON value without its pickled parts: `{":serialized:": ...}` becomes its readable fields,
    and a schedule its number or numbers."""
    if not isinstance(value, dict):
        return value
    if ":serialized:" not in value:
        return {key: plain(item) for key, item in value.items()}
    if schedule := _SCHEDULE.fullmatch(str(value.get("value_schedule"))):
        constant, *linear = schedule.groups()
        if constant is not None:
            return float(constant)
        return dict(zip(("start", "end", "to"), map(float, linear), strict=True))
    return {k: v for k, v in value.items() if not k.startswith(":")} | {"type": value.get(":type:")}


def _extractor(tensors: Tensors, prefix: str) -> tuple[list[Layer], Layer] | None:
    """NatureCNN: three convolutions and a dense layer; None without images."""
    names = [name for name in tensors if name.startswith(f"{prefix}.")]
    if not names:
        return None
    found, _ = _with_images(tensors, f"{prefix}.cnn")
    if not found or f"{prefix}.linear.0.weight" not in tensors:
        raise RunError(
            f"the model has a feature extractor of its own ({names[0]}); MLPs and NatureCNN can be "
            "imported."
        )
    return found, _layer(tensors, f"{prefix}.linear.0")


def _sb3_ppo(tensors: Tensors) -> ForeignModel:
    """MLPs, or with images NatureCNN, one for both or one each."""
    action, value = _layer(tensors, "action_net"), _layer(tensors, "value_net")
    torso, critic = (_chain(tensors, f"mlp_extractor.{n}") for n in ("policy_net", "value_net"))
    log_std = tensors.get("log_std")
    prefixes = ("features_extractor", "pi_features_extractor")
    found = next((e for p in prefixes if (e := _extractor(tensors, p)) is not None), None)
    if found is None:
        return ForeignModel("SB3", "ppo", [*torso, action], [[*critic, value]], log_std=log_std)
    if torso or critic:
        raise RunError(
            "the model has further layers after its convolutions (net_arch); those of SB3's "
            "CnnPolicy, which has none, can be imported."
        )
    own = _extractor(tensors, "vf_features_extractor") or found
    is_shared = np.array_equal(found[1].weight, own[1].weight)  # the file has both in any case
    kernels = [found[0]] if is_shared else [found[0], own[0]]
    layers = [found[1], action], [[own[1], value]]
    return ForeignModel("SB3", "ppo", *layers, kernels, log_std=log_std)


def _sb3_dqn(tensors: Tensors) -> ForeignModel:
    model = ForeignModel("SB3", "dqn", _chain(tensors, "q_net.q_net"))
    if (images := _extractor(tensors, "q_net.features_extractor")) is not None:
        model.convolutions, model.actor = [images[0]], [images[1], *model.actor]
    return model


def _sb3_critics(tensors: Tensors) -> list[list[Layer]]:
    if any("features_extractor" in name for name in tensors):
        raise RunError(
            "the model has a feature extractor (images); of SAC, TD3 and DDPG only MLPs can be "
            "imported."
        )
    n = len({m[1] for name in tensors if (m := re.match(r"critic\.qf(\d+)\.", name))})
    return [_chain(tensors, f"critic.qf{i}") for i in range(n)]


def _sb3_sac(tensors: Tensors) -> ForeignModel:
    critics = _sb3_critics(tensors)
    if "actor.log_std" in tensors:
        raise RunError("the model explores with use_sde; of SAC only its settings can be imported.")
    head = _joined(_layer(tensors, "actor.mu"), _layer(tensors, "actor.log_std"))
    return ForeignModel("SB3", "sac", [*_chain(tensors, "actor.latent_pi"), head], critics)


def _sb3_td3(tensors: Tensors) -> ForeignModel:
    critics = _sb3_critics(tensors)
    algo = "td3" if len(critics) != 1 else "ddpg"
    return ForeignModel("SB3", algo, _chain(tensors, "actor.mu"), critics)


_SB3_MODELS = {"ppo": _sb3_ppo, "a2c": _sb3_ppo, "dqn": _sb3_dqn, "sac": _sb3_sac, "td3": _sb3_td3}


def read_vec_normalize(path: Path) -> Moments | None:
    """Statistics of observations; None if they are not normalised. The pickle is not unpickled."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}.") from None
    found = read_inert(data)
    state = found.state if isinstance(found, Inert) else None
    if not isinstance(state, dict) or "obs_rms" not in state:
        raise RunError(f"{path} has no statistics of VecNormalize in it.")
    if state.get("norm_obs") is False:
        return None
    rms = state["obs_rms"]
    if not isinstance(rms, Inert) or not isinstance(rms.state, dict):
        raise RunError(f"{path}: statistics of Dict observations cannot be imported.")
    mean, var = as_array(rms.state["mean"]), as_array(rms.state["var"])
    count, clip = float(as_array(rms.state["count"])), float(as_array(state.get("clip_obs", 10.0)))
    return Moments(mean, var, count, clip)


# -- CleanRL ----------------------------------------------------------------------------------


def read_cleanrl(path: Path) -> ForeignModel:
    with one_line(path):
        loaded = _loaded(path, path)
        states = map(_arrays, loaded if isinstance(loaded, tuple | list) else [loaded])
        first, *others = [state for state in states if state] or [{}]  # the actor is before critics
        if not first:
            raise RunError(f"{path} has no state dict of tensors in it.")
        if "actor_mean.0.weight" in first:
            log_std = first["actor_logstd"].reshape(-1)
            layers = _chain(first, "actor_mean"), [_chain(first, "critic")]
            return ForeignModel("CleanRL", "ppo", *layers, log_std=log_std)
        if "actor.0.weight" in first and first["actor.0.weight"].ndim == 2:
            return ForeignModel("CleanRL", "ppo", _chain(first, "actor"), [_chain(first, "critic")])
        if "network.0.weight" in first:
            return _cleanrl_network(first)
        if "fc_mu.weight" in first or "fc_mean.weight" in first:
            return _cleanrl_critics(first, others)
        names = ", ".join(list(first)[:4])
        raise RunError(
            f"{path} has layers that no known script of CleanRL writes ({names}). Can be imported: "
            "ppo, ppo_continuous_action, dqn, td3, ddpg, sac with MLPs, ppo_atari and dqn_atari."
        )


def _cleanrl_network(tensors: Tensors) -> ForeignModel:
    """ppo_atari.py (`network`, then `actor` and `critic`), dqn.py and dqn_atari.py (`network`)."""
    kernels, dense = _with_images(tensors, "network")
    model = ForeignModel("CleanRL", "dqn", dense, activation="relu")
    model.convolutions = [kernels] if kernels else []
    if "actor.weight" in tensors:
        model.algo_id, model.actor = "ppo", [*dense, _layer(tensors, "actor")]
        model.critics = [[*dense, _layer(tensors, "critic")]]
    return model


def _cleanrl_critics(first: Tensors, others: list[Tensors]) -> ForeignModel:
    """td3, ddpg and sac. CleanRL squashes the log standard deviation of sac by a tanh, which greedy
    actions do not use."""
    critics = [state for state in others if "fc3.weight" in state]
    values = [[_layer(state, name) for name in ("fc1", "fc2", "fc3")] for state in critics]
    hidden = [_layer(first, "fc1"), _layer(first, "fc2")]
    if "fc_mu.weight" in first:
        algo, head = "ddpg" if len(critics) == 1 else "td3", _layer(first, "fc_mu")
    else:
        algo, head = "sac", _joined(_layer(first, "fc_mean"), _layer(first, "fc_logstd"))
    return ForeignModel("CleanRL", algo, [*hidden, head], values, activation="relu")


MOST_PICKLED_BYTES = 64 * 1024 * 1024


@dataclass
class Inert:
    """An object of a class that was not imported."""

    name: str  # module.class, or a function that would have been called
    args: Any = ()
    state: Any = None


_MARK = object()  # the start of items on the stack
_VALUES = {
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8", "BYTEARRAY8", "BINSTRING", "SHORT_BINSTRING", "STRING",
}  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "MARK": _MARK}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": list}


def read_inert(data: bytes) -> Any:
    """The data as plain values, lists, dicts and `Inert` objects; RunError if it is damaged."""
    if len(data) > MOST_PICKLED_BYTES:
        raise RunError(f"a pickle of {len(data) / 1e6:.0f} MB is too large to be statistics.")
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return machine.stack.pop()
            machine.step(opcode.name, argument)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"the statistics cannot be read: {error}.") from None
    raise RunError("the statistics cannot be read: they end too early.")


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        match name:
            case "PROTO" | "FRAME":
                pass
            case "MEMOIZE" | "PUT" | "BINPUT" | "LONG_BINPUT":
                self.memo[len(self.memo) if name == "MEMOIZE" else argument] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self._pop(int(name[-1]))))
            case "TUPLE":
                stack.append(tuple(self._to_mark()))
            case "LIST" | "FROZENSET":
                stack.append(self._to_mark())
            case "DICT":
                stack.append(self._pairs(self._to_mark()))
            case "GLOBAL":
                stack.append(Inert(str(argument).replace(" ", ".")))
            case "STACK_GLOBAL":
                stack.append(Inert(".".join(map(str, self._pop(2)))))
            case "REDUCE" | "NEWOBJ" | "NEWOBJ_EX":
                called, args, *_ = self._pop(3 if name == "NEWOBJ_EX" else 2)
                stack.append(Inert(called.name, args))
            case "BUILD":
                state = stack.pop()
                if isinstance(stack[-1], Inert):
                    stack[-1].state = state
            case "SETITEM" | "SETITEMS":
                items = self._pop(2) if name == "SETITEM" else self._to_mark()
                if isinstance(stack[-1], dict):  # an Inert subclass of dict loses its items
                    stack[-1].update(self._pairs(items))
            case "APPEND" | "APPENDS" | "ADDITEMS":
                items = self._pop(1) if name == "APPEND" else self._to_mark()
                if isinstance(stack[-1], list):
                    stack[-1] += items
            case "POP":
                stack.pop()
            case "POP_MARK":
                self._to_mark()
            case "DUP":
                stack.append(stack[-1])
            case _ if name in _VALUES:
                stack.append(argument)
            case _ if name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            case _ if name in _EMPTY:
                stack.append(_EMPTY[name]())
            case _:
                raise ValueError(f"opcode {name} is not data")

    def _pop(self, n: int) -> list[Any]:
        """The last n values, in the order in which they were pushed."""
        return [self.stack.pop() for _ in range(n)][::-1]

    def _to_mark(self) -> list[Any]:
        start = len(self.stack) - 1 - self.stack[::-1].index(_MARK)
        items = self.stack[start + 1 :]
        del self.stack[start:]
        return items

    def _pairs(self, items: list[Any]) -> dict[Any, Any]:
        pairs = zip(items[::2], items[1::2], strict=True)
        return {key if isinstance(key, str | int) else str(key): value for key, value in pairs}


def as_array(value: Any) -> np.ndarray:
    """The numbers of a pickled NumPy array, NumPy scalar or Python number, as float64."""
    if isinstance(value, int | float):
        return np.asarray(value, np.float64)
    if not isinstance(value, Inert):
        raise RunError(f"expected numbers, got {type(value).__name__}.")
    try:
        if value.name.endswith("multiarray.scalar"):
            dtype, data = value.args
            return _decoded(data, dtype, ()).reshape(())
        if value.name.endswith("numeric._frombuffer"):
            data, dtype, shape, _order = value.args
            return _decoded(bytes(data), dtype, shape)
        if value.name.endswith("multiarray._reconstruct"):
            _version, shape, dtype, _is_fortran, data = value.state
            return _decoded(data, dtype, shape)
    except (ValueError, TypeError, IndexError) as error:
        raise RunError(f"an array of the statistics cannot be read: {error}.") from None
    raise RunError(f"expected numbers, got {value.name}.")


def _decoded(data: Any, dtype: Inert, shape: Any) -> np.ndarray:
    """`dtype` is what would have been numpy.dtype("f8", ...)."""
    code = str(dtype.args[0])
    if code not in ("f8", "f4", "i8", "i4", "u1", "b1"):
        raise ValueError(f"dtype {code}")
    if isinstance(data, Inert):  # protocol 2 writes bytes as text: _codecs.encode("...", "latin1")
        data = data.args[0]
    raw = data.encode("latin1") if isinstance(data, str) else bytes(data)
    return np.frombuffer(raw, np.dtype(f"<{code}")).reshape(shape).astype(np.float64)
