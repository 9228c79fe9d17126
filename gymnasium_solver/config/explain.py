"""Says what is wrong with a config, one line a problem, and what was probably meant.

`explain` turns pydantic's ValidationError into lines such as

    learning_rate: unknown field; did you mean policy_lr?
    n_envs: got 0, expected a whole number >= 1 or 'auto'
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

# What other libraries call our fields (SB3, CleanRL, SLM-Lab, RLlib, Tianshou, PufferLib).
FOREIGN = {
    "learning_rate": "policy_lr",
    "gradient_steps": "updates_per_step",
    "target_update_interval": "target_update_freq",
    "target_network_frequency": "target_update_freq",
    "train_frequency": "train_freq",
    "exploration_fraction": "epsilon",
    "exploration_initial_eps": "epsilon",
    "exploration_final_eps": "epsilon",
    "target_policy_noise": "target_noise",
    "policy_noise": "target_noise",
    "noise_clip": "target_noise_clip",
    "policy_frequency": "policy_delay",
    "action_noise": "exploration_noise",
    "autotune": "ent_coef",
    "lr": "policy_lr",
    "lr_start": "policy_lr",
    "env": "env_id",
    "env_name": "env_id",
    "algo": "algo_id",
    "num_envs": "n_envs",
    "num_env": "n_envs",
    "num_steps": "n_steps",
    "time_horizon": "n_steps",
    "rollout_length": "n_steps",
    "total_timesteps": "max_env_steps",
    "n_timesteps": "max_env_steps",
    "total_env_steps": "max_env_steps",
    "max_frame": "max_env_steps",
    "max_t": "max_episode_steps",
    "random_seed": "seed",
    "discount": "gamma",
    "lam": "gae_lambda",
    "lambda": "gae_lambda",
    "clip_coef": "clip_range",
    "clip_eps": "clip_range",
    "clip_param": "clip_range",
    "clip_vloss": "clip_range_vf",
    "clip_val_loss": "clip_range_vf",
    "entropy_coef": "ent_coef",
    "entropy_coeff": "ent_coef",
    "value_coef": "vf_coef",
    "val_loss_coef": "vf_coef",
    "vf_loss_coeff": "vf_coef",
    "minibatch_size": "batch_size",
    "update_epochs": "n_epochs",
    "training_epoch": "n_epochs",
    "norm_adv": "normalize_advantages",
    "normalize_advantage": "normalize_advantages",
    "normalize": "normalize_obs",
    "hid_layers": "hidden_dims",
    "net_arch": "hidden_dims",
    "activation_fn": "activation",
    "optim": "optimizer",
    "clip_grad_val": "max_grad_norm",
    "max_grad": "max_grad_norm",
    "eval_frequency": "eval_freq_epochs",
    "eval_freq": "eval_freq_epochs",
    "n_eval_episodes": "eval_episodes",
    "save_freq": "checkpoint_freq_epochs",
}


def nearest(name: str, known: Iterable[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
    """Known names most like this one, whatever the case, best first."""
    lower: dict[str, str] = {item.lower(): item for item in known}
    return [lower[match] for match in difflib.get_close_matches(name.lower(), lower, n, cutoff)]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """'; did you mean x?', or nothing when no known name is close."""
    close = nearest(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def explain(model: type[BaseModel], error: ValidationError, data: Mapping[str, Any]) -> str:
    """One line for each field of `data` that is wrong."""
    lines: dict[str, str] = {}
    for problem in error.errors(include_url=False):
        # A union reports each of its branches; one line about the field says it all.
        field = str(problem["loc"][0]) if problem["loc"] else ""
        if field not in lines:
            lines[field] = _line(model, field, problem, data)
    return "\n".join(lines.values())


def describe(schema: Mapping[str, Any]) -> str:
    """A JSON schema in words: "a whole number >= 1 or 'auto'"."""
    if "x-expected" in schema:
        return str(schema["x-expected"])
    if "anyOf" in schema:
        return " or ".join(describe(option) for option in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(_show(option) for option in schema["enum"])
    if "const" in schema:
        return _show(schema["const"])
    names = {
        "integer": "a whole number",
        "number": "a number",
        "string": "text",
        "boolean": "true or false",
        "null": "null",
        "object": "a block of key: value lines",
        "array": "a list",
    }
    text = names.get(schema.get("type", ""), "another value")
    if schema.get("type") == "array" and schema.get("items"):
        text += f", each {describe(schema['items'])}"
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {_bound(schema[key])}" for key, sign in signs.items() if key in schema]
    return " ".join([text, " and ".join(bounds)]).strip()


def _bound(value: float) -> str:
    return f"{int(value)}" if float(value).is_integer() else f"{value:g}"


def _line(
    model: type[BaseModel], field: str, problem: Mapping[str, Any], data: Mapping[str, Any]
) -> str:
    if problem["type"] == "extra_forbidden":
        return f"{field}: unknown field{_suggestion(model, field)}"
    if problem["type"] == "missing":
        return f"{field}: required, but not given"
    reason = str(problem["ctx"]["error"]) if problem["type"] == "value_error" else ""
    if not field:
        return reason or str(problem["msg"])
    # Inside a list or a union the input is a part; show the whole value as it was written.
    given = problem["input"] if len(problem["loc"]) == 1 else data.get(field, problem["input"])
    if not reason:
        reason = f"expected {describe(model.model_json_schema()['properties'][field])}"
    return f"{field}: got {_show(given)}, {reason}{_hint(given)}"


def _hint(given: Any) -> str:
    if not isinstance(given, str):
        return ""
    try:
        float(given)
    except ValueError:
        return " (write true or false)" if given.lower() in ("yes", "no", "on", "off") else ""
    return " (this is text: remove the quotes)"


def _suggestion(model: type[BaseModel], field: str) -> str:
    # Imported here: algorithms need torch, and only an error needs to know all of them.
    from gymnasium_solver.algos import ALGOS, algo_class

    known = set(model.model_fields)
    if FOREIGN.get(field) in known:
        return f"; did you mean {FOREIGN[field]}?"
    owners = [name for name in ALGOS if field in algo_class(name).Config.model_fields]
    if owners:
        return f" here; it belongs to {', '.join(owners)}"
    return did_you_mean(field, known)


def _show(value: Any) -> str:
    """A value as YAML would write it, cut to a readable length."""
    names = {None: "null", True: "true", False: "false"}
    text = names[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
