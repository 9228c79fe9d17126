"""Specs of SLM-Lab (v4 and v5): nested blocks of agent, algorithm, memory, net and env."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.share.foreign.fields import NO_COUNTERPART, Mapped

_ALGOS = {
    "PPO": "ppo",
    "ActorCritic": "a2c",
    "Reinforce": "reinforce",
    "DQN": "dqn",
    "DoubleDQN": "dqn",
    "VanillaDQN": "dqn",
    "DDQN": "dqn",
    "SARSA": "sarsa",
    "SoftActorCritic": "sac",
    "CrossQ": "crossq",
}
# Where a value stands in the spec -> our field.
_PATHS = {
    "algorithm.gamma": "gamma",
    "algorithm.lam": "gae_lambda",
    "algorithm.val_loss_coef": "vf_coef",
    "algorithm.minibatch_size": "batch_size",
    "algorithm.training_epoch": "n_epochs",
    "algorithm.training_start_step": "learning_starts",
    "algorithm.training_frequency": "train_freq",
    "algorithm.time_horizon": "n_steps",
    "algorithm.clip_eps_spec": "clip_range",
    "algorithm.entropy_coef_spec": "ent_coef",
    "algorithm.explore_var_spec": "epsilon",
    "memory.batch_size": "batch_size",
    "memory.max_size": "buffer_size",
    "net.hid_layers": "hidden_dims",
    "net.hid_layers_activation": "activation",
    "net.clip_grad_val": "max_grad_norm",
    "net.shared": "share_trunk",
    "net.update_frequency": "target_update_freq",
    "net.polyak_coef": "tau",
    "net.optim_spec.lr": "policy_lr",
    "net.actor_optim_spec.lr": "policy_lr",
    "net.critic_optim_spec.lr": "critic_lr",
    "net.optim_spec.name": "optimizer",
    "env.num_envs": "n_envs",
    "env.max_t": "max_episode_steps",
    "env.max_frame": "max_env_steps",
    "env.normalize_obs": "normalize_obs",
    "env.normalize_reward": "normalize_reward",
    "env.clip_obs": "clip_obs",
    "env.clip_reward": "clip_reward",
}
_SILENT = {
    *("agent.name", "algorithm.name", "memory.name", "net.type", "env.name", "net.gpu"),
    *("env.reward_scale", "algorithm.action_pdtype", "algorithm.action_policy"),
}


def is_slm(data: Mapping[str, Any]) -> bool:
    return _spec(data) is not None


def _spec(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The first spec in the file, or the file itself."""
    for each in (data, *data.values()):
        if isinstance(each, Mapping) and {"agent", "env"} <= each.keys():
            return each
    return None


def _one(value: Any) -> Mapping[str, Any]:
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, Mapping) else {}


def slm_fields(data: Mapping[str, Any], path: Path) -> tuple[str, str, Mapped]:
    """The environment, our algorithm, and the fields."""
    spec = _spec(data)
    assert spec is not None
    agent, env = _one(spec["agent"]), _one(spec["env"])
    name = str(_one(agent.get("algorithm")).get("name", ""))
    if name not in _ALGOS:
        raise ConfigError(f"{path}: the algorithm {name!r} is not available here.")
    mapped, algo_id = Mapped(), _ALGOS[name]
    blocks = {key: _one(agent.get(key)) for key in ("algorithm", "memory", "net")} | {"env": env}
    for block, fields in blocks.items():
        for key, value in _flat(block, fields):
            _one_field(key, value, mapped)
    _finish(name, algo_id, blocks, mapped)
    for other in spec.keys() - {"agent", "env", "name"}:
        mapped.unmapped[other] = "settings of SLM-Lab's trials and searches"
    return str(env.get("name", "")), algo_id, mapped


def _flat(prefix: str, fields: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found = []
    for key, value in fields.items():
        path = f"{prefix}.{key}"
        if isinstance(value, Mapping) and path not in _PATHS:
            found += _flat(path, value)
        else:
            found.append((path, value))
    return found


def _one_field(key: str, value: Any, mapped: Mapped) -> None:
    if key in _SILENT or value is None:
        return
    ours = _PATHS.get(key)
    if ours is None:
        mapped.unmapped[key] = f"{value!r}: {NO_COUNTERPART}"
        return
    if isinstance(value, Mapping):
        value = _schedule(value)
        if value is None:
            mapped.unmapped[key] = "a schedule without a counterpart"
            return
    if ours == "optimizer":
        value = str(value).lower()
    if ours == "normalize_obs":
        value = "rolling" if value else False
    mapped.fields[ours] = value


def _schedule(spec: Mapping[str, Any]) -> Any:
    """{name, start_val, end_val, start_step, end_step}; steps stay steps."""
    kind = spec.get("name")
    if kind in (None, "no_decay"):
        return spec.get("start_val")
    if kind == "linear_decay":
        schedule = {"start": spec.get("start_val"), "end": spec.get("end_val")}
        if spec.get("start_step"):
            schedule["from"] = spec["start_step"]
        if spec.get("end_step"):
            schedule["to"] = spec["end_step"]
        return schedule
    return None


def _finish(name: str, algo_id: str, blocks: Mapping[str, Any], mapped: Mapped) -> None:
    from gymnasium_solver.registry import config_class

    if name in ("DoubleDQN", "DDQN"):
        mapped.fields["double"] = True
    if name == "ActorCritic":  # rows of one update
        rows = mapped.fields.pop("train_freq", None) or mapped.fields.pop("n_steps", None)
        mapped.fields |= {} if rows is None else {"rollout_steps": rows}
    if "Prioritized" in str(blocks["memory"].get("name", "")):
        mapped.fields["prioritized"] = True
    scheduler = [key for key in mapped.unmapped if key.startswith("net.lr_scheduler_spec")]
    lr = mapped.fields.get("policy_lr")
    to_zero = "LinearToZero" in str(blocks["net"].get("lr_scheduler_spec"))
    if scheduler and to_zero and isinstance(lr, int | float):
        mapped.fields["policy_lr"] = f"lin_{lr:g}"
        for key in scheduler:
            del mapped.unmapped[key]
    known = config_class(algo_id).model_fields
    for field in [each for each in mapped.fields if each not in known]:
        mapped.unmapped[field] = f"{mapped.fields.pop(field)!r}: {algo_id} here has no such field"
