"""Models of CleanRL: the state dicts that its scripts save with `--save-model`.

    model = read_cleanrl(Path("ppo.cleanrl_model"))

Which script wrote it is seen from the names of its layers: ppo.py and ppo_continuous_action.py
(`actor`, `actor_mean`), dqn.py (`network`), td3 and ddpg (`fc_mu`), sac (`fc_mean`), and with
images ppo_atari.py and dqn_atari.py (`network` of convolutions).
"""

from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.errors import RunError
from gymnasium_solver.share.foreign.model import ForeignModel, Layer
from gymnasium_solver.share.foreign.sb3 import arrays_of, chain, convolutions


def read_cleanrl(path: Path) -> ForeignModel:
    tensors = _states(path)
    first = tensors[0]
    if "actor_mean.0.weight" in first:
        critic = chain(first, "critic")
        log_std = first["actor_logstd"].reshape(-1)
        return ForeignModel("CleanRL", "ppo", chain(first, "actor_mean"), [critic], log_std=log_std)
    if "actor.0.weight" in first and first["actor.0.weight"].ndim == 2:
        return ForeignModel("CleanRL", "ppo", chain(first, "actor"), [chain(first, "critic")])
    if "network.0.weight" in first and first["network.0.weight"].ndim == 2:
        layers = chain(first, "network")
        return ForeignModel("CleanRL", "dqn", layers, activation="relu")
    if "network.0.weight" in first and first["network.0.weight"].ndim == 4:
        return _from_images(first)
    if "fc_mu.weight" in first:
        return _deterministic(tensors)
    if "fc_mean.weight" in first:
        return _soft(tensors)
    names = ", ".join(list(first)[:4])
    raise RunError(
        f"{path} has layers that no known script of CleanRL writes ({names}). Can be imported: "
        "ppo, ppo_continuous_action, dqn, td3, ddpg, sac with MLPs, ppo_atari and dqn_atari."
    )


def _from_images(tensors: dict[str, Any]) -> ForeignModel:
    """ppo_atari.py (`network`, then `actor` and `critic`) and dqn_atari.py (`network` alone)."""
    kernels = convolutions(tensors, "network")
    dense = chain({k: v for k, v in tensors.items() if v.ndim < 4 and _is_dense(k, tensors)},
                  "network")  # fmt: skip
    if "actor.weight" in tensors:
        actor, critic = _named(tensors, "actor", "critic")
        return ForeignModel(
            "CleanRL", "ppo", [*dense, actor], [[*dense, critic]], [kernels], activation="relu"
        )
    return ForeignModel("CleanRL", "dqn", dense, convolutions=[kernels], activation="relu")


def _is_dense(name: str, tensors: dict[str, Any]) -> bool:
    weight = tensors.get(f"{name.rpartition('.')[0]}.weight")
    return weight is not None and weight.ndim == 2


def _states(path: Path) -> list[dict[str, Any]]:
    """The state dicts in the file: one, or a tuple of actor and critics."""
    import pickle

    import torch

    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}.") from None
    except (pickle.UnpicklingError, RuntimeError, ValueError, KeyError, EOFError) as error:
        first = str(error).strip().splitlines()[0]
        raise RunError(f"{path} is not loaded: {first}") from None
    states = [
        arrays_of(each) for each in (loaded if isinstance(loaded, tuple | list) else [loaded])
    ]
    states = [each for each in states if each]
    if not states:
        raise RunError(f"{path} has no state dict of tensors in it.")
    return states


def _named(tensors: dict[str, Any], *names: str) -> list[Layer]:
    return [
        Layer(tensors[f"{n}.weight"].astype(np.float64), tensors[f"{n}.bias"].astype(np.float64))
        for n in names
    ]


def _deterministic(states: list[dict[str, Any]]) -> ForeignModel:
    critics = [_named(each, "fc1", "fc2", "fc3") for each in states[1:] if "fc3.weight" in each]
    algo = "ddpg" if len(critics) == 1 else "td3"
    actor = _named(states[0], "fc1", "fc2", "fc_mu")
    return ForeignModel("CleanRL", algo, actor, critics, activation="relu")


def _soft(states: list[dict[str, Any]]) -> ForeignModel:
    """CleanRL squashes the log standard deviation by a tanh, which greedy actions do not use."""
    first, critics = states[0], [each for each in states[1:] if "fc3.weight" in each]
    mean, log_std = _named(first, "fc_mean", "fc_logstd")
    weight = np.concatenate([mean.weight, log_std.weight])
    head = Layer(weight, np.concatenate([mean.bias, log_std.bias]))
    actor = [*_named(first, "fc1", "fc2"), head]
    values = [_named(each, "fc1", "fc2", "fc3") for each in critics]
    return ForeignModel("CleanRL", "sac", actor, values, activation="relu")
