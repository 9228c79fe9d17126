"""Hyper-parameters of other libraries as fields of our configs.

    mapped = map_fields({"learning_rate": "lin_3e-4", "clip_coef": 0.2}, "ppo", "cleanrl")
    mapped.fields, mapped.unmapped          # {"policy_lr": ...}, {"name": "why it has no field"}

Every name given is either in `fields` or in `unmapped`, with the reason. Values whose meaning
differs are converted (docs/coming-from.md): CleanRL's `vf_coef` counts half the squares, SB3's
`train_freq` counts steps of the vector env.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gymnasium_solver.config.foreign import NOTES, our_names
from gymnasium_solver.registry import config_class
from gymnasium_solver.share.foreign.defaults import NETWORK

NO_COUNTERPART = "no field here"
# Bookkeeping of a saved model of SB3, and settings of the program: nothing to translate.
_SILENT = {
    "policy_class", "verbose", "num_timesteps", "_total_timesteps", "_num_timesteps_at_start",
    "action_noise", "start_time", "tensorboard_log", "_last_obs", "_last_episode_starts",
    "_last_original_obs", "_episode_num", "_current_progress_remaining", "_stats_window_size",
    "ep_info_buffer", "ep_success_buffer", "_n_updates", "observation_space", "action_space",
    "rollout_buffer_class", "rollout_buffer_kwargs", "lr_schedule", "_n_calls",
    "replay_buffer_class", "replay_buffer_kwargs", "batch_norm_stats", "exploration_rate",
    "batch_norm_stats_target", "exploration_schedule", "actor_batch_norm_stats", "_vec_normalize",
    "critic_batch_norm_stats", "actor_batch_norm_stats_target", "_last_dones",
    "critic_batch_norm_stats_target", "remove_time_limit_termination", "use_sde_at_warmup", "seed",
    "_vec_normalize_env", "policy",
}  # fmt: skip
_ON_POLICY = ("ppo", "a2c", "reinforce")
_WRAPPERS = {"AtariWrapper": "the defaults of ALE/ ids here"}
_SIZES = {"tiny": [64], "small": [64, 64], "medium": [256, 256], "big": [400, 300]}
"""Names of layers in the zoo's searches."""


@dataclass
class Mapped:
    fields: dict[str, Any] = field(default_factory=dict)
    unmapped: dict[str, str] = field(default_factory=dict)
    """Name: why there is no field for it."""

    def drop_unknown(self, algo_id: str) -> None:
        """Only the fields that this algorithm has."""
        known = config_class(algo_id).model_fields
        for name in [each for each in self.fields if each not in known]:
            value = self.fields.pop(name)
            self.unmapped[name] = f"{value!r}: {algo_id} here has no such field"


def map_fields(
    given: Mapping[str, Any],
    algo_id: str,
    library: str,
    defaults: Mapping[str, Any] = {},
    code: Mapping[str, Any] = {},
) -> Mapped:
    """`library`: sb3 (a saved model), zoo or cleanrl. `defaults`: what the library takes where
    nothing is given, under its names; `code`: what it does in any case, under ours."""
    silent = _SILENT if library == "sb3" else set()
    rest = {name: value for name, value in given.items() if name not in silent}
    if "Cnn" in str(given.get("policy")):
        code = {name: value for name, value in code.items() if name not in NETWORK}
    mapped = _Translation(dict(defaults) | rest, algo_id, library).mapped
    known = config_class(algo_id).model_fields
    for name, value in code.items():
        if name in known:
            mapped.fields.setdefault(name, value)
    for name in defaults.keys() - given.keys():  # nobody asked for them
        mapped.unmapped.pop(name, None)
    return mapped


class _Translation:
    """Each method takes what it knows out of `rest`; what is left has another name at most."""

    def __init__(self, rest: dict[str, Any], algo_id: str, library: str) -> None:
        self.rest, self.algo_id, self.library, self.mapped = rest, algo_id, library, Mapped()
        self.is_on_policy = algo_id in _ON_POLICY
        if library == "cleanrl":
            self.cleanrl()
        else:
            self.zoo()
        self.network()
        self.sde()
        self.normalise()
        self.epsilon()
        self.rounds()
        self.noise()
        self.returns_and_advantages()
        if algo_id == "a2c":
            self.a2c()
        known = config_class(algo_id).model_fields
        for name, value in self.rest.items():
            ours = [name] if name in known else our_names(name, known)
            is_object = isinstance(value, Mapping) and "type" in value  # remains of a pickled one
            if len(ours) == 1 and not is_object:
                self.mapped.fields.setdefault(ours[0], value)
            else:
                self.mapped.unmapped[name] = NOTES.get(name, NO_COUNTERPART)
        self.mapped.drop_unknown(algo_id)
        if algo_id == "ppo":
            self.mapped.fields.setdefault("normalize_advantages", "batch")

    def put(self, name: str, value: Any) -> None:
        self.mapped.fields[name] = value

    def refuse(self, name: str, why: str = NO_COUNTERPART) -> None:
        self.mapped.unmapped[name] = why

    def take(self, *names: str) -> Any:
        """The first of these that is given, removed; None if there is none."""
        found = [self.rest.pop(name, None) for name in names]
        return next((value for value in found if value is not None), None)

    # -- one library ------------------------------------------------------------------------

    def cleanrl(self) -> None:
        """Switches and meanings of CleanRL's scripts."""
        rest, is_ppo = self.rest, self.algo_id == "ppo"
        if rest.pop("anneal_lr", False) and "learning_rate" in rest:
            rest["learning_rate"] = f"lin_{rest['learning_rate']:g}"
        if "vf_coef" in rest and is_ppo:  # theirs weighs half the mean of squares
            self.put("vf_coef", rest.pop("vf_coef") / 2)
        if "clip_vloss" in rest:
            self.put("clip_range_vf", rest.get("clip_coef") if rest.pop("clip_vloss") else None)
        if "num_minibatches" in rest:
            self.put("batch_size", 1 / rest.pop("num_minibatches"))
        if "autotune" in rest:
            alpha = rest.pop("alpha", 0.2)
            self.put("ent_coef", "auto" if rest.pop("autotune") else alpha)
        if self.algo_id == "sac" and (delay := rest.pop("policy_frequency", None)):
            self.put(
                "policy_delay", 1
            )  # after that many steps it makes as many updates of the actor
            if delay != 1:
                why = f"{delay}: as many updates of the actor come at once there, one by one here"
                self.refuse("policy_frequency", why)
        if self.algo_id in ("sac", "td3", "ddpg") and "q_lr" in rest:
            self.put("critic_lr", rest["q_lr"])
            self.put("alpha_lr", rest.pop("q_lr"))
        if rest.get("target_network_frequency") == 1 and self.algo_id != "dqn":
            rest.pop("target_network_frequency")  # as here
        if rest.get("tau") == 1.0 and self.algo_id == "dqn":
            self.put("tau", rest.pop("tau"))
        if is_ppo:  # computed by the script from the others
            self.take("batch_size", "minibatch_size", "num_iterations")

    def zoo(self) -> None:
        rest = self.rest
        wrappers = rest.pop("env_wrapper", [])
        for each in wrappers if isinstance(wrappers, list) else [wrappers]:
            name = str(next(iter(each)) if isinstance(each, Mapping) else each).rpartition(".")[2]
            note = _WRAPPERS.get(name, "add it to env_wrappers, by its import path")
            self.refuse(f"env_wrapper {name}", note)
        for name in ("vec_env_wrapper", "callback", "monitor_kwargs"):
            if rest.get(name):
                self.refuse(name, f"{rest.pop(name)!r}: {NO_COUNTERPART}")
        if rest.get("policy") in ("MlpPolicy", "CnnPolicy", "MultiInputPolicy"):
            rest.pop("policy")  # decided from the observations
        if "Her" in str(rest.get("replay_buffer_class")):
            rest.pop("replay_buffer_class")
            options = _literal(rest.pop("replay_buffer_kwargs", {})) or {}
            strategy = options.get("goal_selection_strategy", "future")
            self.put("her", {"strategy": strategy, "k": options.get("n_sampled_goal", 4)})
        rest.pop("optimize_memory_usage", None)  # always so here
        if self.algo_id == "dqn" and (_number(rest.get("tau", 1.0)) or 1.0) < 1.0:
            self.put("tau", rest.pop("tau"))

    # -- values that need more than another name --------------------------------------------

    def network(self) -> None:
        """policy_kwargs: dict(net_arch=[...], activation_fn=nn.ReLU, log_std_init=-2)."""
        kwargs = _literal(self.rest.pop("policy_kwargs", {}))
        if not isinstance(kwargs, Mapping):
            self.refuse("policy_kwargs", f"cannot be read: {str(kwargs)[:60]}")
            return
        for name, value in kwargs.items():
            if name == "net_arch":
                self.net_arch(value)
            elif name == "activation_fn":
                kind = str(value).rpartition(".")[2].strip("'>")
                self.put("activation", {"LeakyReLU": "leaky_relu"}.get(kind, kind.lower()))
            elif name in ("log_std_init", "n_critics"):
                self.put(name, value)
            elif name == "lstm_hidden_size":
                self.mapped.fields |= {"recurrent": "lstm", "recurrent_dim": value}
            elif name == "ortho_init":
                self.ortho_init(bool(value))
            elif name != "use_sde":
                self.refuse(f"policy_kwargs.{name}")

    def ortho_init(self, value: bool) -> None:
        if not value:
            self.put("init", "uniform")
            why = "False: the hidden layers are as in torch, the output layers stay orthogonal"
            self.refuse("policy_kwargs.ortho_init", why)

    def net_arch(self, value: Any) -> None:
        """[64, 64], dict(pi=[64], vf=[64]), or the old [dict(pi=..., vf=...)]."""
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
            value = value[0]
        if not isinstance(value, Mapping):
            self.put("hidden_dims", _SIZES.get(value, value) if isinstance(value, str) else value)
            return
        actor, critic = value.get("pi"), value.get("vf", value.get("qf"))
        self.put("hidden_dims", actor)
        if critic != actor and "qf" in value:
            self.put("critic_hidden_dims", critic)
        elif critic != actor:
            self.refuse("policy_kwargs.net_arch.vf", "policy and value have the same here")

    def sde(self) -> None:
        """use_sde; log_std_init is then that of the noise matrix."""
        if not self.rest.get("use_sde"):
            self.take("use_sde", "sde_sample_freq")
        elif "log_std_init" in self.mapped.fields:
            self.put("sde_log_std_init", self.mapped.fields.pop("log_std_init"))

    def normalise(self) -> None:
        """The zoo's `normalize: true`, or a dict of VecNormalize's arguments as text."""
        if "normalize" not in self.rest:
            return
        value = _literal(self.rest.pop("normalize"))
        options = value if isinstance(value, Mapping) else {}
        self.put("normalize_obs", "rolling" if options.get("norm_obs", bool(value)) else False)
        reward = bool(options.get("norm_reward", bool(value)))
        if self.is_on_policy:
            self.put("normalize_reward", reward)
        elif reward:
            self.refuse("normalize (rewards)", f"{self.algo_id} here does not scale rewards")
        for name in options:
            if name not in ("norm_obs", "norm_reward", "gamma"):
                self.refuse(f"normalize.{name}")

    def epsilon(self) -> None:
        """Three numbers there, one schedule here."""
        start = self.take("exploration_initial_eps", "start_e")
        end = self.take("exploration_final_eps", "end_e")
        share = self.take("exploration_fraction")
        if start is end is share is None:
            return
        defaults = {"start": 1.0, "end": 0.05, "to": 0.5 if self.library == "cleanrl" else 0.1}
        given = zip(defaults.items(), (start, end, share), strict=True)
        self.put("epsilon", {key: float(d if v is None else v) for (key, d), v in given})

    def rounds(self) -> None:
        """train_freq and gradient_steps: rounds of the vector env there, updates per env step
        here."""
        if self.is_on_policy:
            return
        n_envs = int(_number(self.rest.get("n_envs", 1)) or 1)
        freq = _literal(self.take("train_freq", "train_frequency"))
        updates = self.take("gradient_steps")
        if isinstance(freq, list | tuple):
            if "episode" in freq:
                self.refuse("train_freq", "rounds of whole episodes are not available")
            freq = None if "episode" in freq else freq[0]
        if isinstance(freq, Mapping):
            freq = None  # of a saved model: a pickled tuple
        if freq is None and updates is None:
            return
        n_rows = int(_number(freq) or 1) * n_envs
        count = _number(1 if updates is None else updates) or 1.0
        self.put("train_freq", n_rows)
        self.put("updates_per_step", 1.0 if count < 0 else count / n_rows)
        if isinstance(updates, str) and _number(updates) is None:
            self.refuse("gradient_steps", f"{updates!r} cannot be read")

    def noise(self) -> None:
        kind, std = self.rest.pop("noise_type", None), self.rest.pop("noise_std", None)
        if kind is not None and self.algo_id not in ("td3", "ddpg"):
            self.refuse("noise_type", f"{self.algo_id} here explores with its own distribution")
        elif kind is not None:
            self.put("exploration_noise", 0.1 if std is None else std)
            is_ou = kind == "ornstein-uhlenbeck"
            self.put("exploration_noise_type", "ou" if is_ou else "gaussian")

    def returns_and_advantages(self) -> None:
        """With a replay SB3's n_steps is the length of returns."""
        if not self.is_on_policy and self.library != "cleanrl" and "n_steps" in self.rest:
            self.put("n_step", self.rest.pop("n_steps"))
        value = self.take("normalize_advantage", "norm_adv")
        over = {"ppo": "batch", "a2c": "rollout"}.get(self.algo_id)
        if value is not None and over is not None:
            self.put("normalize_advantages", over if value else "off")

    def a2c(self) -> None:
        """Rows of one update there are `rollout_steps` here; the optimiser is named by a switch."""
        if "n_steps" in self.rest:
            self.put("rollout_steps", self.rest.pop("n_steps"))
        eps = self.rest.pop("rms_prop_eps", None)
        if self.rest.pop("use_rms_prop", True) is False:
            self.put("optimizer", "adam")
            self.put("adam_eps", 1e-5)
        elif eps is not None:
            self.put("adam_eps", eps)


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


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
