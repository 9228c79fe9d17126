"""A policy of another library as layers, those layers as our weights, and a run folder from them.

What differs is adapted so that greedy actions are the same. SB3's and CleanRL's PPO has actions in
the environment's units, ours in [-1, 1]: the head and the log standard deviations are rescaled.

The run can be evaluated, watched, exported and trained further. It has one checkpoint, at the env
steps of the model. Its optimiser is new, so training further starts a run from its weights: `gsolve
train ... --init-from-run RUN`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.config.code import code_named
from gymnasium_solver.config.load import apply_overrides, config_dict, dump_config
from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.as_gymnasium import treatment_of
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import ConfigError, RunError, told_as
from gymnasium_solver.nets.normalizer import EPSILON
from gymnasium_solver.runs.checkpoint import save_checkpoint
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.summary import test_score
from gymnasium_solver.share.foreign.settings import Mapped, map_fields
from gymnasium_solver.spaces.actions import BoxBase
from gymnasium_solver.spaces.space_types import space_to_json
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.prepare import build_config
from gymnasium_solver.training.progress import Progress
from gymnasium_solver.training.score import score
from gymnasium_solver.training.targets import find_run

DAMAGED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError,
           MemoryError)  # fmt: skip


def one_line(path: str | Path) -> AbstractContextManager[None]:
    """What a file of unknown origin makes this code raise is an error of the file."""
    return told_as(RunError, f"{path} is damaged or not a known model", *DAMAGED)


@dataclass(frozen=True)
class Layer:
    weight: np.ndarray  # [out, in]
    bias: np.ndarray


@dataclass(frozen=True)
class Moments:
    """Statistics of observations."""

    mean: np.ndarray
    var: np.ndarray
    count: float
    clip: float


@dataclass
class ForeignModel:
    made_by: str
    algo_id: str  # ours: ppo, a2c, dqn, sac, td3 or ddpg
    actor: list[Layer]  # or the Q-network; the last layer is the head
    critics: list[list[Layer]] = field(default_factory=list)
    convolutions: list[list[Layer]] = field(default_factory=list)
    """Layers for images: before the actor, and before the critic unless they are shared.
    Weights are [out, in, height, width]."""
    log_std: np.ndarray | None = None
    alpha: float | None = None
    activation: str = "tanh"
    env_steps: int = 0
    hyper: dict[str, Any] = field(default_factory=dict)
    """Hyper-parameters under the library's own names."""
    moments: Moments | None = None

    @property
    def hidden_dims(self) -> list[int]:
        return [len(layer.bias) for layer in self.actor[:-1]]

    @property
    def critic_dims(self) -> list[int]:
        return [len(layer.bias) for layer in self.critics[0][:-1]] if self.critics else []

    def fields(self) -> dict[str, Any]:
        """The fields of a config that the network needs."""
        if self.convolutions:
            return self._image_fields()
        dims: dict[str, Any] = {"hidden_dims": self.hidden_dims, "activation": self.activation}
        if self.algo_id in ("ppo", "a2c"):
            if self.critics and self.critic_dims != self.hidden_dims:
                raise RunError(
                    f"the policy has layers {self.hidden_dims} and the value {self.critic_dims}; "
                    "here both have the same."
                )
            dims["share_trunk"] = False
        elif self.algo_id != "dqn" and self.critics:
            dims |= {"critic_hidden_dims": self.critic_dims, "n_critics": len(self.critics)}
        if self.algo_id == "ddpg":
            dims.pop("n_critics", None)
        if self.moments is None:
            return dims | {"normalize_obs": False}
        return dims | {"normalize_obs": "rolling", "clip_obs": self.moments.clip}

    def _image_fields(self) -> dict[str, Any]:
        """The convolutions of Mnih et al. (2015), as SB3's NatureCNN and CleanRL's scripts have
        them: their strides are not in the file."""
        first = self.convolutions[0]
        sizes = [layer.weight.shape[2:] for layer in first]
        if sizes != [(8, 8), (4, 4), (3, 3)]:
            raise RunError(
                f"the model has convolutions of {', '.join(f'{h} x {w}' for h, w in sizes)}; those "
                "of 8 x 8, 4 x 4 and 3 x 3 (NatureCNN) can be imported."
            )
        dims: dict[str, Any] = {
            "policy": "cnn",
            "model_id": "cnn_nature",
            "cnn_channels": [len(layer.bias) for layer in first],
            "cnn_hidden_dims": self.hidden_dims,
            "normalize_obs": False,
        }
        return dims | ({} if self.algo_id == "dqn" else {"share_trunk": len(self.convolutions) < 2})


def our_weights(model: ForeignModel, agent: Agent) -> dict[str, np.ndarray]:
    """All tensors of the agent's network; RunError if the layers do not fit its spaces."""
    own = {name: value.detach().cpu().numpy() for name, value in agent.net.state_dict().items()}
    weights = {name: value.copy() for name, value in own.items()}
    weights |= _BUILD[model.algo_id](model, agent)
    if (moments := model.moments) is not None:
        mean, var = moments.mean.reshape(-1), moments.var.reshape(-1)
        scale = 1.0 / np.sqrt(var + EPSILON)
        own_names = {"mean": mean, "var": var, "count": np.asarray(moments.count)}
        own_names |= {"shift": mean, "scale": scale}
        weights |= {f"encoder.normalizer.{name}": value for name, value in own_names.items()}
    for name, value in weights.items():
        if name not in own or own[name].shape != value.shape:
            expected = own[name].shape if name in own else "nothing"
            raise RunError(
                f"the model does not fit {agent.config.env_id}: {name} has shape {value.shape}, "
                f"expected {expected}. Is it the right environment, with the same wrappers?"
            )
        if not np.isfinite(value).all():
            raise RunError(f"the model has weights that are not finite ({name}): it diverged.")
    return {name: np.asarray(value, own[name].dtype) for name, value in weights.items()}


def _sequential(prefix: str, layers: Sequence[Layer]) -> dict[str, np.ndarray]:
    """An activation stands between each two layers."""
    found = {}
    for i, layer in enumerate(layers):
        found[f"{prefix}.{2 * i}.weight"] = layer.weight
        found[f"{prefix}.{2 * i}.bias"] = layer.bias
    return found


def _ppo(model: ForeignModel, agent: Agent) -> dict[str, np.ndarray]:
    *torso, head = model.actor
    actions, log_std = agent.policy.actions, model.log_std
    if isinstance(actions, BoxBase) and actions.is_bounded:
        middle = actions.middle.reshape(-1).astype(np.float64)
        half = actions.half_width.reshape(-1).astype(np.float64)
        if len(head.bias) != len(half):
            raise RunError(
                f"the model has {len(head.bias)} actions, the environment {len(half)}. Is it the "
                "right one?"
            )
        head = Layer(head.weight / half[:, None], (head.bias - middle) / half)
        log_std = None if log_std is None else log_std - np.log(half)
    found = _sequential("actor_torso", torso)
    if model.convolutions:
        found |= _sequential("actor_features.convolutions.0", model.convolutions[0])
    # With state-dependent exploration there is a deviation for each feature.
    is_sde = log_std is not None and log_std.ndim == 2
    name = "actor_head.mean" if is_sde else "actor_head"
    found |= {f"{name}.weight": head.weight, f"{name}.bias": head.bias}
    if log_std is not None:
        found["actor_head.log_std" if is_sde else "log_std"] = log_std
    if model.critics:
        *torso, value = model.critics[0]
        if len(model.convolutions) != 1:  # with one they are shared
            found |= _sequential("critic_torso", torso)
        for kernels in model.convolutions[1:]:
            found |= _sequential("critic_features.convolutions.0", kernels)
        found |= {"critic_head.weight": value.weight, "critic_head.bias": value.bias}
    return found


def _dqn(model: ForeignModel, agent: Agent) -> dict[str, np.ndarray]:
    """The last hidden layer and the head are one stream here."""
    n_stream = min(2, len(model.actor))
    found = _sequential("q.torso", model.actor[:-n_stream])
    if model.convolutions:
        found |= _sequential("q.features.convolutions.0", model.convolutions[0])
    return found | _sequential("q.advantage", model.actor[-n_stream:])


def _actor_critic(model: ForeignModel, agent: Agent) -> dict[str, np.ndarray]:
    found = _sequential("actor.layers", model.actor)
    if model.critics:
        for i, layers in enumerate(zip(*model.critics, strict=True)):
            name = f"critic.mlps.layers.{2 * i}"
            found[f"{name}.weight"] = np.stack([layer.weight.T for layer in layers])
            found[f"{name}.bias"] = np.stack([layer.bias[None] for layer in layers])
    if model.alpha is not None and "temperature.log_alpha" in agent.net.state_dict():
        found["temperature.log_alpha"] = np.array([np.log(model.alpha)])
    return found


_BUILD = {"ppo": _ppo, "a2c": _ppo, "dqn": _dqn} | dict.fromkeys(
    ("sac", "td3", "ddpg"), _actor_critic
)


# -- a run ----------------------------------------------------------------------------------


def import_model(
    model: ForeignModel,
    env_id: str,
    root: Path,
    *,
    source: str,
    name: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    episodes: int | None = 100,
    command: list[str] | None = None,
) -> tuple[Run, Mapped]:
    """Write the run, then score it on held-out episodes; `episodes` None: do not score it."""
    config, mapped = model_config(model, env_id, overrides or {})
    with closing(env_from_config(config, 1)) as env:
        with one_line(source):
            agent = build_agent(config, env.observation_space, env.action_space)
            agent.load_weights(our_weights(model, agent))
        run = _create(config, env, root, name, command, source, model)
    tensors, extra = agent.state()
    state = {"progress": asdict(Progress(env_steps=model.env_steps)), "agent": extra}
    save_checkpoint(run.checkpoints_dir, model.env_steps, tensors, state, {}, best=True)
    run.log_event("checkpoint", env_steps=model.env_steps, epoch=0, reason="imported")
    if episodes is not None:
        scores = score(find_run(str(run.path.resolve()), root), episodes, "test", {"greedy": True})
        result, threshold = scores.results["greedy"].to_dict(), scores.threshold
        run.log_event("eval", stage="test", **result)
        solved = None if threshold is None else bool(result["mean"] >= threshold)
        run.update_meta(test=test_score(result), test_episodes=episodes, solved=solved)
        run.close()
    return run, mapped


def model_config(
    model: ForeignModel, env_id: str, overrides: Mapping[str, Any]
) -> tuple[Config, Mapped]:
    mapped = map_fields(model.hyper, model.algo_id, "sb3" if model.made_by == "SB3" else "cleanrl")
    note = f"Imported from {model.made_by}."
    base = {"env_id": env_id, "algo_id": model.algo_id, "seed": 0, "description": note}
    base |= {"device": "cpu", "max_env_steps": max(model.env_steps, 1)}
    if model.convolutions:  # their dense layers are part of the network's own fields
        for name in ("hidden_dims", "activation"):
            mapped.fields.pop(name, None)
    for attempt in ({**mapped.fields, **model.fields()}, model.fields()):
        try:
            return build_config(apply_overrides(base | attempt, dict(overrides))), mapped
        except ConfigError as error:
            failed = error
    raise failed


def _create(
    config: Config, env: VectorEnv, root: Path, name: str | None, command: list[str] | None,
    source: str, model: ForeignModel,
) -> Run:  # fmt: skip
    names = ("env_id", "algo_id", "variant", "seed", "reward_threshold", "max_env_steps")
    identity = {field: getattr(config, field) for field in names}
    if identity["reward_threshold"] is None:
        identity["reward_threshold"] = env.spec.reward_threshold
    code = code_named(config_dict(config))
    run = Run.create(dump_config(config), identity, root, command, name, code)
    run.update_meta(
        status="finished",
        stop_reason="imported",
        stop_detail=f"{model.made_by}, {source}",
        imported={"library": model.made_by, "file": source},
        engine=env.spec.engine,
        max_episode_steps=env.spec.max_episode_steps,
        action_space=space_to_json(env.action_space),
        treatment=treatment_of(env, config).to_json(),
        env_steps=model.env_steps,
        device="cpu",
        pid=None,
    )
    return run
