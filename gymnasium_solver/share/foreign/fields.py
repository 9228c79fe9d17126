"""Hyper-parameters of other libraries as fields of our configs.

    mapped = map_fields({"learning_rate": "lin_3e-4", "clip_coef": 0.2}, "ppo", "cleanrl")
    mapped.fields, mapped.unmapped          # {"policy_lr": ...}, {"name": "why it has no field"}

Every name given is either in `fields` or in `unmapped`, with the reason. Values whose meaning
differs are converted (docs/coming-from.md): CleanRL's `vf_coef` counts half the squares, SB3's
`train_freq` counts steps of the vector env.
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gymnasium_solver.config.foreign import NOTES, our_names

NO_COUNTERPART = "no field here"
# Bookkeeping of a saved model, and settings of the program: nothing to translate.
_SILENT = {
    *("policy_class", "verbose", "num_timesteps", "_total_timesteps", "_num_timesteps_at_start"),
    *("action_noise", "start_time", "tensorboard_log", "_last_obs", "_last_episode_starts"),
    *("_last_original_obs", "_episode_num", "_current_progress_remaining", "_stats_window_size"),
    *("ep_info_buffer", "ep_success_buffer", "_n_updates", "observation_space", "action_space"),
    *("rollout_buffer_class", "rollout_buffer_kwargs", "lr_schedule", "_n_calls"),
    *("replay_buffer_class", "replay_buffer_kwargs", "batch_norm_stats", "exploration_rate"),
    *(
        "batch_norm_stats_target",
        "exploration_schedule",
        "actor_batch_norm_stats",
        "_vec_normalize",
    ),
    *("critic_batch_norm_stats", "actor_batch_norm_stats_target", "_last_dones"),
    *("critic_batch_norm_stats_target", "remove_time_limit_termination"),
    *("use_sde_at_warmup", "seed", "_vec_normalize_env", "policy"),
}
_BATCH_ADVANTAGES = {"sb3", "zoo", "cleanrl"}
_ON_POLICY = ("ppo", "a2c", "reinforce")


@dataclass
class Mapped:
    fields: dict[str, Any] = field(default_factory=dict)
    unmapped: dict[str, str] = field(default_factory=dict)
    """Name: why there is no field for it."""


def map_fields(given: Mapping[str, Any], algo_id: str, library: str) -> Mapped:
    """`library`: sb3 (a saved model), zoo, cleanrl or slm."""
    from gymnasium_solver.registry import config_class

    known = config_class(algo_id).model_fields
    mapped = Mapped()
    rest = {name: value for name, value in given.items() if not _is_silent(name, library)}
    for convert in _GROUPS:
        convert(rest, algo_id, library, mapped)
    for name, value in rest.items():
        _single(name, value, known, mapped)
    for name in list(mapped.fields):
        if name not in known:
            value = mapped.fields.pop(name)
            mapped.unmapped[name] = f"{value!r}: {algo_id} here has no such field"
    if algo_id == "ppo" and library in _BATCH_ADVANTAGES:
        mapped.fields.setdefault("normalize_advantages", "batch")
    return mapped


def _is_silent(name: str, library: str) -> bool:
    return library == "sb3" and name in _SILENT


def _single(name: str, value: Any, known: Mapping[str, Any], mapped: Mapped) -> None:
    """A field that means the same, under its own name or ours."""
    ours = [name] if name in known else our_names(name, known)
    if len(ours) == 1 and _is_value(value):
        mapped.fields.setdefault(ours[0], value)
    else:
        mapped.unmapped[name] = NOTES.get(name, NO_COUNTERPART)


def _is_value(value: Any) -> bool:
    """A number, text, list or schedule; not the remains of a pickled object."""
    return not (isinstance(value, Mapping) and "type" in value)


# -- values that need more than another name ---------------------------------------------------


def _take(rest: dict[str, Any], *names: str) -> Any:
    """The first of these that is given, removed; None if there is none."""
    found = None
    for name in names:
        value = rest.pop(name, None)
        found = value if found is None else found
    return found


def _network(rest: dict[str, Any], algo_id: str, library: str, mapped: Mapped) -> None:
    """policy_kwargs: dict(net_arch=[...], activation_fn=nn.ReLU, log_std_init=-2)."""
    if "policy_kwargs" not in rest:
        return
    kwargs = _literal(rest.pop("policy_kwargs"))
    if not isinstance(kwargs, Mapping):
        mapped.unmapped["policy_kwargs"] = f"cannot be read: {str(kwargs)[:60]}"
        return
    for name, value in kwargs.items():
        if name == "net_arch":
            _net_arch(value, mapped)
        elif name == "activation_fn":
            kind = str(value).rpartition(".")[2].strip("'>")
            mapped.fields["activation"] = {"LeakyReLU": "leaky_relu"}.get(kind, kind.lower())
        elif name in ("log_std_init", "n_critics"):
            mapped.fields[name] = value
        elif name in ("lstm_hidden_size",):
            mapped.fields |= {"recurrent": "lstm", "recurrent_dim": value}
        elif name not in ("ortho_init", "use_sde") or value is True:
            mapped.unmapped[f"policy_kwargs.{name}"] = NO_COUNTERPART


def _sde(rest: dict[str, Any], algo_id: str, library: str, mapped: Mapped) -> None:
    """use_sde; log_std_init is then that of the noise matrix."""
    if not rest.get("use_sde"):
        rest.pop("use_sde", None)
        rest.pop("sde_sample_freq", None)
    elif "log_std_init" in mapped.fields:
        mapped.fields["sde_log_std_init"] = mapped.fields.pop("log_std_init")


def _net_arch(value: Any, mapped: Mapped) -> None:
    """[64, 64], dict(pi=[64], vf=[64]), or the old [dict(pi=..., vf=...)]."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
        value = value[0]
    if isinstance(value, Mapping):
        actor = value.get("pi")
        critic = value.get("vf", value.get("qf"))
        mapped.fields["hidden_dims"] = actor
        if critic != actor:
            if "qf" in value:
                mapped.fields["critic_hidden_dims"] = critic
            else:
                mapped.unmapped["policy_kwargs.net_arch.vf"] = "policy and value have the same here"
    elif value in ("small", "medium", "big", "tiny"):  # the zoo's names in its searches
        sizes = {"tiny": [64], "small": [64, 64], "medium": [256, 256], "big": [400, 300]}
        mapped.fields["hidden_dims"] = sizes[value]
    else:
        mapped.fields["hidden_dims"] = value


def _literal(value: Any) -> Any:
    """Python written as text, as the zoo has it: dict(net_arch=[64], activation_fn=nn.ReLU).

    Only literals, dict(...) and names are read; nothing is evaluated."""
    if not isinstance(value, str):
        return value
    try:
        return _node(ast.parse(value.strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        return value


def _node(node: ast.AST) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return {str(word.arg): _node(word.value) for word in node.keywords}
    if isinstance(node, ast.List | ast.Tuple):
        return [_node(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {_node(k): _node(v) for k, v in zip(node.keys, node.values, strict=True) if k}
    if isinstance(node, ast.Attribute | ast.Name):
        return ast.unparse(node)
    return ast.literal_eval(node)


def _normalise(rest: dict[str, Any], algo_id: str, library: str, mapped: Mapped) -> None:
    """The zoo's `normalize: true`, or a dict of VecNormalize's arguments as text."""
    if "normalize" not in rest:
        return
    value = _literal(rest.pop("normalize"))
    options = value if isinstance(value, Mapping) else {}
    is_on = bool(value)
    obs, reward = options.get("norm_obs", is_on), options.get("norm_reward", is_on)
    mapped.fields["normalize_obs"] = "rolling" if obs else False
    if algo_id in _ON_POLICY:
        mapped.fields["normalize_reward"] = bool(reward)
    elif reward:
        mapped.unmapped["normalize (rewards)"] = f"{algo_id} here does not scale rewards"
    for name in options:
        if name not in ("norm_obs", "norm_reward", "gamma"):
            mapped.unmapped[f"normalize.{name}"] = NO_COUNTERPART


def _epsilon(rest: dict[str, Any], algo_id: str, library: str, mapped: Mapped) -> None:
    """Three numbers there, one schedule here."""
    start = _take(rest, "exploration_initial_eps", "start_e")
    end = _take(rest, "exploration_final_eps", "end_e")
    share = _take(rest, "exploration_fraction")
    if start is None and end is None and share is None:
        return
    defaults = (1.0, 0.05, 0.1) if library != "cleanrl" else (1.0, 0.05, 0.5)
    first, last, to = (
        d if v is None else v for v, d in zip((start, end, share), defaults, strict=True)
    )
    mapped.fields["epsilon"] = {"start": float(first), "end": float(last), "to": float(to)}


def _rounds(rest: dict[str, Any], algo_id: str, library: str, mapped: Mapped) -> None:
    """train_freq and gradient_steps: rounds of the vector env there, updates per env step here."""
    if algo_id in _ON_POLICY:
        return
    n_envs = int(_number(rest.get("n_envs", 1)) or 1)
    freq = _literal(_take(rest, "train_freq", "train_frequency"))
    updates = _take(rest, "gradient_steps")
    if isinstance(freq, list | tuple):
        if "episode" in freq:
            mapped.unmapped["train_freq"] = "rounds of whole episodes are not available"
            freq = None
        else:
            freq = freq[0]
    if isinstance(freq, Mapping):
        freq = None  # of a saved model: a pickled tuple
    if freq is None and updates is None:
        return
    rows = int(_number(freq) or 1)
    mapped.fields["train_freq"] = rows * n_envs
    count = _number(1 if updates is None else updates) or 1.0
    mapped.fields["updates_per_step"] = 1.0 if count < 0 else count / (rows * n_envs)
    if isinstance(updates, str) and _number(updates) is None:
        mapped.unmapped["gradient_steps"] = f"{updates!r} cannot be read"


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _noise(rest: dict[str, Any], algo_id: str, library: str, mapped: Mapped) -> None:
    kind, std = rest.pop("noise_type", None), rest.pop("noise_std", None)
    if kind is None:
        return
    if algo_id not in ("td3", "ddpg"):
        mapped.unmapped["noise_type"] = f"{algo_id} here explores with its own distribution"
        return
    mapped.fields["exploration_noise"] = 0.1 if std is None else std
    if kind == "ornstein-uhlenbeck":
        mapped.fields["exploration_noise_type"] = "ou"


def _n_step(rest: dict[str, Any], algo_id: str, library: str, mapped: Mapped) -> None:
    """With a replay SB3's n_steps is the length of returns."""
    if algo_id in _ON_POLICY:
        return
    if library in ("sb3", "zoo") and "n_steps" in rest:
        mapped.fields["n_step"] = rest.pop("n_steps")


def _advantages(rest: dict[str, Any], algo_id: str, library: str, mapped: Mapped) -> None:
    value = _take(rest, "normalize_advantage", "norm_adv")
    if value is not None and algo_id == "ppo":
        mapped.fields["normalize_advantages"] = "batch" if value else "off"
    elif value is not None and algo_id == "a2c":
        mapped.fields["normalize_advantages"] = "rollout" if value else "off"


def _a2c(rest: dict[str, Any], algo_id: str, library: str, mapped: Mapped) -> None:
    """Rows of one update there are `rollout_steps` here; the optimiser is named by a switch."""
    if algo_id != "a2c":
        return
    if "n_steps" in rest:
        mapped.fields["rollout_steps"] = rest.pop("n_steps")
    eps = rest.pop("rms_prop_eps", None)
    if rest.pop("use_rms_prop", True) is False:
        mapped.fields["optimizer"] = "adam"
    elif eps is not None:
        mapped.fields["adam_eps"] = eps


def _cleanrl(rest: dict[str, Any], algo_id: str, library: str, mapped: Mapped) -> None:
    """Switches and meanings of CleanRL's scripts."""
    if library != "cleanrl":
        return
    if rest.pop("anneal_lr", False) and "learning_rate" in rest:
        rest["learning_rate"] = f"lin_{rest['learning_rate']:g}"
    if "vf_coef" in rest and algo_id == "ppo":  # theirs weighs half the mean of squares
        mapped.fields["vf_coef"] = rest.pop("vf_coef") / 2
    if "clip_vloss" in rest:
        is_clipped = rest.pop("clip_vloss")
        mapped.fields["clip_range_vf"] = rest.get("clip_coef") if is_clipped else None
    if "num_minibatches" in rest:
        mapped.fields["batch_size"] = 1 / rest.pop("num_minibatches")
    if "autotune" in rest:
        alpha = rest.pop("alpha", 0.2)
        mapped.fields["ent_coef"] = "auto" if rest.pop("autotune") else alpha
    if algo_id in ("sac", "td3", "ddpg") and "q_lr" in rest:
        mapped.fields["critic_lr"] = rest.pop("q_lr")
    for name in ("batch_size", "minibatch_size", "num_iterations"):
        if algo_id == "ppo" and name in rest:  # computed by the script from the others
            rest.pop(name)


def _zoo(rest: dict[str, Any], algo_id: str, library: str, mapped: Mapped) -> None:
    if library not in ("zoo", "sb3"):
        return
    if "env_wrapper" in rest:
        wrappers = rest.pop("env_wrapper")
        for each in wrappers if isinstance(wrappers, list) else [wrappers]:
            _wrapper(each, mapped)
    for name in ("vec_env_wrapper", "callback", "monitor_kwargs"):
        if rest.get(name):
            mapped.unmapped[name] = f"{rest.pop(name)!r}: {NO_COUNTERPART}"
    if rest.get("policy") in ("MlpPolicy", "CnnPolicy", "MultiInputPolicy"):
        rest.pop("policy")  # decided from the observations
    if "replay_buffer_class" in rest and "Her" in str(rest["replay_buffer_class"]):
        rest.pop("replay_buffer_class")
        options = _literal(rest.pop("replay_buffer_kwargs", {})) or {}
        strategy = options.get("goal_selection_strategy", "future")
        mapped.fields["her"] = {"strategy": strategy, "k": options.get("n_sampled_goal", 4)}
    for name in ("optimize_memory_usage",):
        rest.pop(name, None)  # always so here
    if algo_id == "dqn" and float(_number(rest.get("tau", 1.0)) or 1.0) < 1.0:
        mapped.fields["tau"] = rest.pop("tau")


_WRAPPERS = {
    "TimeFeatureWrapper": None,
    "AtariWrapper": "the defaults of ALE/ ids here",
    "FrameStack": None,
}


def _wrapper(given: Any, mapped: Mapped) -> None:
    name = str(next(iter(given)) if isinstance(given, Mapping) else given).rpartition(".")[2]
    note = _WRAPPERS.get(name)
    if note is None:
        note = "add it to env_wrappers, by its import path"
    mapped.unmapped[f"env_wrapper {name}"] = note


Group = Callable[[dict[str, Any], str, str, Mapped], None]
_GROUPS: tuple[Group, ...] = (
    _zoo,
    _cleanrl,
    _network,
    _sde,
    _normalise,
    _epsilon,
    _rounds,
    _noise,
    _n_step,
    _advantages,
    _a2c,
)
