"""Models of Stable-Baselines3: the zip of `model.save()`, read without unpickling.

    model = read_sb3(Path("ppo-CartPole-v1.zip"), Path("vec_normalize.pkl"))

Of the zip only the parameter tensors (through torch's restricted loader) and the plain values of
its JSON are read; its pickled strings are never decoded.
"""

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.errors import RunError
from gymnasium_solver.share.foreign.inert import Inert, as_array, read_inert
from gymnasium_solver.share.foreign.model import ForeignModel, Layer, Moments

MOST_BYTES = 2**30
# The module of the policy class -> our algorithm.
_ALGOS = {
    "stable_baselines3.common.policies": "ppo",
    "stable_baselines3.ppo.policies": "ppo",
    "stable_baselines3.a2c.policies": "a2c",
    "stable_baselines3.dqn.policies": "dqn",
    "stable_baselines3.sac.policies": "sac",
    "stable_baselines3.td3.policies": "td3",
}
_ACTIVATIONS = {"Tanh": "tanh", "ReLU": "relu", "ELU": "elu", "LeakyReLU": "leaky_relu"}
_ACTIVATIONS |= {"GELU": "gelu", "SiLU": "silu", "SELU": "selu", "Identity": "identity"}


def read_sb3(path: Path, statistics: Path | None = None) -> ForeignModel:
    data, tensors, variables = _read_zip(path)
    algo = _algorithm(data, path)
    model = _MODELS[algo](tensors)
    if algo == "a2c":
        model.algo_id = "a2c"
    model.activation = _activation(data, "tanh" if algo in ("ppo", "a2c") else "relu")
    model.env_steps = int(data.get("num_timesteps") or 0)
    model.hyper = {name: plain(value) for name, value in data.items()}
    if "log_ent_coef" in variables:
        model.alpha = float(np.exp(variables["log_ent_coef"].reshape(-1)[0]))
    if statistics is not None:
        model.moments = read_vec_normalize(statistics)
    return model


def _read_zip(path: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist()}
            for name in ("data", "policy.pth"):
                if name not in sizes:
                    raise RunError(f"{path} is not a model of SB3: it has no {name!r} inside.")
            if max(sizes.values()) > MOST_BYTES:
                raise RunError(f"{path} holds a file of more than 1 GiB.")
            data = json.loads(archive.read("data"))
            tensors = load_tensors(archive.read("policy.pth"), path)
            extra = "pytorch_variables.pth"
            variables = load_tensors(archive.read(extra), path) if extra in sizes else {}
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError) as error:
        raise RunError(f"{path} cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise RunError(f"{path} is not a model of SB3: its data is not a mapping.")
    return data, tensors, variables


def load_tensors(data: bytes, path: Path) -> dict[str, Any]:
    """Named arrays of a torch file, by the restricted loader: tensors and plain containers."""
    import pickle

    import torch

    try:
        loaded = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, KeyError, EOFError) as error:
        first = str(error).strip().splitlines()[0]
        raise RunError(f"{path} holds more than tensors, so it is not loaded: {first}") from None
    return arrays_of(loaded)


def arrays_of(loaded: Any) -> dict[str, Any]:
    """The tensors of a state dict as arrays; {} for anything else."""
    if not isinstance(loaded, dict):
        return {}
    found = {k: v for k, v in loaded.items() if hasattr(v, "detach")}
    return {str(k): v.detach().cpu().float().numpy() for k, v in found.items()}


def _algorithm(data: dict[str, Any], path: Path) -> str:
    policy = data.get("policy_class")
    module = policy.get("__module__") if isinstance(policy, dict) else None
    algo = _ALGOS.get(str(module))
    if algo is None:
        raise RunError(
            f"{path}: models with the policy of {module} cannot be imported. Can be: PPO, A2C, "
            "DQN, SAC, TD3 and DDPG of Stable-Baselines3 with MLP policies, and PPO, A2C and DQN "
            "with CNN policies."
        )
    # PPO and A2C save the same policy class; only PPO clips.
    return "a2c" if algo == "ppo" and "clip_range" not in data else algo


def _activation(data: dict[str, Any], default: str) -> str:
    """Of `policy_kwargs`, where SB3 writes a class as the text <class '...ReLU'>."""
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
    and a constant schedule its number."""
    if not isinstance(value, dict):
        return value
    if ":serialized:" not in value:
        return {key: plain(item) for key, item in value.items()}
    match = re.fullmatch(r"ConstantSchedule\(val=([-+.\deE]+)\)", str(value.get("value_schedule")))
    if match:
        return float(match[1])
    match = re.fullmatch(
        r"LinearSchedule\(start=([-+.\deE]+), end=([-+.\deE]+), end_fraction=([-+.\deE]+)\)",
        str(value.get("value_schedule")),
    )
    if match:
        start, end, to = map(float, match.groups())
        return {"start": start, "end": end, "to": to}
    return {k: v for k, v in value.items() if not k.startswith(":")} | {"type": value.get(":type:")}


# -- networks ---------------------------------------------------------------------------------


def chain(tensors: dict[str, Any], prefix: str) -> list[Layer]:
    """The linear layers `prefix.0`, `prefix.2`, ... in order."""
    pattern = re.compile(rf"{re.escape(prefix)}\.(\d+)\.weight")
    numbers = sorted(int(m[1]) for name in tensors if (m := pattern.fullmatch(name)))
    return [_layer(tensors, f"{prefix}.{number}") for number in numbers]


def _layer(tensors: dict[str, Any], name: str) -> Layer:
    weight, bias = tensors.get(f"{name}.weight"), tensors.get(f"{name}.bias")
    if weight is None or bias is None or weight.ndim != 2:
        raise RunError(f"the model has no dense layer {name}; only MLP policies can be imported.")
    return Layer(weight.astype(np.float64), bias.astype(np.float64))


def convolutions(tensors: dict[str, Any], prefix: str) -> list[Layer]:
    """The convolutions `prefix.0`, `prefix.2`, ... in order."""
    pattern = re.compile(rf"{re.escape(prefix)}\.(\d+)\.weight")
    numbers = sorted(int(m[1]) for name in tensors if (m := pattern.fullmatch(name)))
    names = [f"{prefix}.{number}" for number in numbers]
    return [
        Layer(tensors[f"{n}.weight"].astype(np.float64), tensors[f"{n}.bias"].astype(np.float64))
        for n in names
        if tensors[f"{n}.weight"].ndim == 4
    ]


def _extractor(tensors: dict[str, Any], prefix: str) -> tuple[list[Layer], Layer] | None:
    """NatureCNN: three convolutions and a dense layer; None without images."""
    names = [name for name in tensors if name.startswith(f"{prefix}.")]
    if not names:
        return None
    found = convolutions(tensors, f"{prefix}.cnn")
    if not found or f"{prefix}.linear.0.weight" not in tensors:
        raise RunError(
            f"the model has a feature extractor of its own ({names[0]}); MLPs and NatureCNN can be "
            "imported."
        )
    return found, _layer(tensors, f"{prefix}.linear.0")


def _refuse_images(tensors: dict[str, Any]) -> None:
    if any("features_extractor" in name for name in tensors):
        raise RunError(
            "the model has a feature extractor (images); of SAC, TD3 and DDPG only MLPs can be "
            "imported."
        )


def _from_images(tensors: dict[str, Any]) -> ForeignModel | None:
    """PPO or A2C with NatureCNN, one for both or one each; None without images."""
    prefixes = ("features_extractor", "pi_features_extractor")
    found = next((e for p in prefixes if (e := _extractor(tensors, p)) is not None), None)
    if found is None:
        return None
    if chain(tensors, "mlp_extractor.policy_net") or chain(tensors, "mlp_extractor.value_net"):
        raise RunError(
            "the model has further layers after its convolutions (net_arch); those of SB3's "
            "CnnPolicy, which has none, can be imported."
        )
    own = _extractor(tensors, "vf_features_extractor") or found
    actor = [found[1], _layer(tensors, "action_net")]
    critic = [own[1], _layer(tensors, "value_net")]
    is_shared = np.array_equal(found[1].weight, own[1].weight)  # the file has both in any case
    kernels = [found[0]] if is_shared else [found[0], own[0]]
    log_std = tensors.get("log_std")
    return ForeignModel("SB3", "ppo", actor, [critic], kernels, log_std=log_std)


def _ppo(tensors: dict[str, Any]) -> ForeignModel:
    if (model := _from_images(tensors)) is not None:
        return model
    actor = [*chain(tensors, "mlp_extractor.policy_net"), _layer(tensors, "action_net")]
    critic = [*chain(tensors, "mlp_extractor.value_net"), _layer(tensors, "value_net")]
    return ForeignModel("SB3", "ppo", actor, [critic], log_std=tensors.get("log_std"))


def _dqn(tensors: dict[str, Any]) -> ForeignModel:
    images = _extractor(tensors, "q_net.features_extractor")
    layers = chain(tensors, "q_net.q_net")
    if images is None:
        return ForeignModel("SB3", "dqn", layers)
    return ForeignModel("SB3", "dqn", [images[1], *layers], convolutions=[images[0]])


def _critics(tensors: dict[str, Any]) -> list[list[Layer]]:
    n = len({m[1] for name in tensors if (m := re.match(r"critic\.qf(\d+)\.", name))})
    return [chain(tensors, f"critic.qf{i}") for i in range(n)]


def _sac(tensors: dict[str, Any]) -> ForeignModel:
    """Means and log standard deviations are two heads there, one here."""
    _refuse_images(tensors)
    if "actor.log_std" in tensors:
        raise RunError("the model explores with use_sde; of SAC only its settings can be imported.")
    mean, log_std = _layer(tensors, "actor.mu"), _layer(tensors, "actor.log_std")
    weight = np.concatenate([mean.weight, log_std.weight])
    head = Layer(weight, np.concatenate([mean.bias, log_std.bias]))
    actor = [*chain(tensors, "actor.latent_pi"), head]
    return ForeignModel("SB3", "sac", actor, _critics(tensors))


def _td3(tensors: dict[str, Any]) -> ForeignModel:
    _refuse_images(tensors)
    critics = _critics(tensors)
    algo = "td3" if len(critics) != 1 else "ddpg"
    return ForeignModel("SB3", algo, chain(tensors, "actor.mu"), critics)


_MODELS = {"ppo": _ppo, "a2c": _ppo, "dqn": _dqn, "sac": _sac, "td3": _td3}


# -- VecNormalize -----------------------------------------------------------------------------


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
