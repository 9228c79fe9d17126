"""Files of hyper-parameters: the zoo's YAML, CleanRL's scripts and arguments, SLM-Lab's specs.

    translated = read_foreign(Path("ppo.yml"), env_id="CartPole-v1")
    translated.text()           # our YAML; fields without a counterpart are named in comments

A file is recognised by what is in it. Nothing in it is executed; a script of CleanRL is parsed.
"""

import ast
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium_solver.config.foreign import our_names
from gymnasium_solver.config.yaml_file import dump_yaml, parse_yaml
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.registry import config_class
from gymnasium_solver.share.foreign.defaults import (
    CLEANRL_CODE,
    NETWORK,
    SB3,
    SB3_CODE,
    algorithm_of,
    read_code,
)
from gymnasium_solver.share.foreign.hyperparams import NO_COUNTERPART, Mapped, map_fields
from gymnasium_solver.suggest import did_you_mean

ALGOS = {"ppo": "ppo", "a2c": "a2c", "dqn": "dqn", "sac": "sac", "td3": "td3", "ddpg": "ddpg"}
ALGOS |= {"ppo_lstm": "ppo", "qdagger": "dqn", "her": "sac", "crossq": "crossq", "c51": "dqn"}


@dataclass(frozen=True)
class Translated:
    made_by: str
    env_id: str
    algo_id: str
    mapped: Mapped
    source: str

    def data(self) -> dict[str, Any]:
        fields = dict(self.mapped.fields)
        for name, value in fields.items():
            if isinstance(value, float) and value >= 1000 and value.is_integer():
                fields[name] = int(value)  # 1e6: counts are whole numbers
        return {"env_id": self.env_id, self.algo_id: fields}

    def text(self) -> str:
        """A config file: the fields, and in comments what could not be translated."""
        lines = [f"# From {self.source} ({self.made_by})."]
        for name, why in sorted(self.mapped.unmapped.items()):
            lines.append(f"# not translated: {name}: {why}")
        return "\n".join(lines) + "\n" + dump_yaml(self.data())


def read_foreign(
    path: Path,
    env_id: str | None = None,
    algo: str | None = None,
    arguments: Sequence[str] = (),
) -> Translated:
    """ConfigError if the file is of no known form, or names several environments. `arguments`: of
    the command line of a script."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} cannot be read: {reason}") from None
    if path.suffix == ".py":
        tree = _parsed(text, path)
        args = _script_args(tree, path)
        args |= _command_line(arguments, args, path)
        return _cleanrl(args, path, env_id, algo, read_code(tree))
    if arguments:
        raise ConfigError(f"{path}: arguments of a command line belong to a script (.py).")
    if path.suffix == ".json":
        try:
            data = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
    else:  # the zoo writes numbers as `!!float 1e6`, which our YAML does not need
        data = parse_yaml(text.replace("!!float ", "").replace("!!int ", ""), str(path))
    if not isinstance(data, Mapping) or not data:
        raise ConfigError(f"{path} has no hyper-parameters in it.")
    if (spec := _slm_spec(data)) is not None:
        return _slm(spec, path, env_id)
    if "env_id" in data or "total_timesteps" in data:
        # W&B's config.yaml has {value: x} for each field.
        plain = {
            k: v["value"] if isinstance(v, Mapping) and "value" in v else v for k, v in data.items()
        }
        return _cleanrl(plain, path, env_id, algo)
    return _zoo(data, path, env_id, algo)


def _algo(given: str | None, guess: str, path: Path) -> str:
    name = (given or guess).lower()
    if name in ALGOS:
        return name
    raise ConfigError(
        f"{path}: which algorithm? {name!r} is none of {', '.join(ALGOS)}. Give one, such as "
        "--algo ppo."
    )


def _zoo(data: Mapping[str, Any], path: Path, env_id: str | None, algo: str | None) -> Translated:
    """One file an algorithm (ppo.yml); a block for each environment, or the fields of one."""
    blocks = {str(k): v for k, v in data.items() if isinstance(v, Mapping)}
    if blocks.keys() >= {str(k) for k in data}:
        shown = ", ".join(list(blocks)[:8])
        if env_id is None and len(blocks) > 1:
            raise ConfigError(
                f"{path} has {len(blocks)} environments ({shown}, ...). Give --env-id ID."
            )
        env = env_id or next(iter(blocks))
        if env not in blocks:
            hint = did_you_mean(env, blocks) or f"It has: {shown}."
            raise ConfigError(f"{path} has no environment {env}. {hint}")
        fields = blocks[env]
    elif env_id is not None:  # config.yml of a zoo run: the fields alone
        fields, env = data, env_id
    else:
        raise ConfigError(f"{path}: for which environment? Give --env-id ID.")
    theirs = _algo(algo, path.stem.partition("-")[0], path)
    ours, given = ALGOS[theirs], {str(k): v for k, v in fields.items()}
    defaults = SB3.get(ours, {}) and {"n_envs": 1, **SB3[ours]}
    mapped = map_fields(given, ours, "zoo", defaults, SB3_CODE.get(ours, {}))
    return Translated("rl-zoo3", env, ours, mapped, path.name)


# -- CleanRL ----------------------------------------------------------------------------------

# What a script has for itself: logging, files, devices.
_OF_THE_SCRIPT = (
    *("exp_name", "torch_deterministic", "track", "wandb_project_name", "wandb_entity"),
    *("capture_video", "save_model", "upload_model", "hf_entity", "seed", "cuda", "env_id"),
)


def _cleanrl(
    data: Mapping[str, Any],
    path: Path,
    env_id: str | None,
    algo: str | None,
    code: Mapping[str, Any] = {},
) -> Translated:
    """`code`: what was read from the script itself."""
    env = env_id or data.get("env_id")
    if not isinstance(env, str):
        raise ConfigError(f"{path}: for which environment? Give --env-id ID.")
    name = str(data.get("exp_name") or path.stem)
    guess = next((a for a in ALGOS if name.lower().startswith(a)), None)
    theirs = _algo(algo, guess or algorithm_of(dict(data)) or name, path)
    fields = {k: v for k, v in data.items() if k not in _OF_THE_SCRIPT}
    ours = ALGOS[theirs]
    normalised = {"normalize_obs": "rolling", "normalize_reward": True}
    own = CLEANRL_CODE.get(ours, {}) | (
        normalised if "continuous" in name and ours == "ppo" else {}
    )
    own |= code
    if own.pop("has_images", "atari" in name):
        own = {k: v for k, v in own.items() if k not in NETWORK}
    mapped = map_fields(fields, ours, "cleanrl", {}, own)
    return Translated("CleanRL", env, ours, mapped, path.name)


def _parsed(text: str, path: Path) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{path} is not Python: {error}") from None


def _command_line(words: Sequence[str], known: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """--learning-rate 5e-4, --num_envs=4, --no-anneal-lr, as tyro takes them."""
    found: dict[str, Any] = {}
    left = [part for word in words for part in (word.split("=", 1) if word[:2] == "--" else [word])]
    while left:
        flag = left.pop(0)
        name = flag.removeprefix("--").replace("-", "_")
        negated = name.removeprefix("no_")
        if not flag.startswith("--") or (name not in known and negated not in known):
            hint = did_you_mean(name, known)
            raise ConfigError(f"{path} has no argument {flag}. {hint}".rstrip())
        if name not in known:
            found[negated] = False
        elif not left or left[0].startswith("--"):
            found[name] = True
        else:
            found[name] = parse_yaml(left.pop(0), flag)
    return found


def _script_args(tree: ast.Module, path: Path) -> dict[str, Any]:
    """The defaults of `class Args` of a script, by parsing it."""
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Args"]
    if not classes:
        raise ConfigError(
            f"{path} has no class Args with hyper-parameters; is it a CleanRL script?"
        )
    found: dict[str, Any] = {}
    for item in classes[0].body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.value:
            with suppress(ValueError):  # computed, such as the name of the script
                found[item.target.id] = ast.literal_eval(_inside(item.value))
    return found


def _inside(value: ast.expr) -> ast.expr:
    """int(1e6) is 1e6."""
    if isinstance(value, ast.Call) and getattr(value.func, "id", "") in ("int", "float"):
        return value.args[0] if len(value.args) == 1 else value
    return value


# -- SLM-Lab, v4 and v5: nested blocks of agent, algorithm, memory, net and env -----------------

_SLM_ALGOS = {
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
# Where a value stands in the spec -> our field, where config/foreign.py does not know its name.
_SLM_FIELDS = {
    "algorithm.training_start_step": "learning_starts",
    "algorithm.training_frequency": "train_freq",
    "algorithm.clip_eps_spec": "clip_range",
    "algorithm.entropy_coef_spec": "ent_coef",
    "algorithm.explore_var_spec": "epsilon",
    "memory.max_size": "buffer_size",
    "net.hid_layers_activation": "activation",
    "net.shared": "share_trunk",
    "net.update_frequency": "target_update_freq",
    "net.polyak_coef": "tau",
    "net.critic_optim_spec.lr": "critic_lr",
    "net.optim_spec.name": "optimizer",
}
_SLM_SILENT = {
    *("agent.name", "algorithm.name", "memory.name", "net.type", "env.name", "net.gpu"),
    *("env.reward_scale", "algorithm.action_pdtype", "algorithm.action_policy"),
}


def _slm_spec(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The first spec in the file, or the file itself; None if it is not one of SLM-Lab."""
    for each in (data, *data.values()):
        if isinstance(each, Mapping) and {"agent", "env"} <= each.keys():
            return each
    return None


def _slm(spec: Mapping[str, Any], path: Path, env_id: str | None) -> Translated:
    def block(value: Any) -> Mapping[str, Any]:
        first = value[0] if isinstance(value, list) and value else value
        return first if isinstance(first, Mapping) else {}

    agent, env = block(spec["agent"]), block(spec["env"])
    name = str(block(agent.get("algorithm")).get("name", ""))
    if name not in _SLM_ALGOS:
        raise ConfigError(f"{path}: the algorithm {name!r} is not available here.")
    mapped, algo_id = Mapped(), _SLM_ALGOS[name]
    blocks = {key: block(agent.get(key)) for key in ("algorithm", "memory", "net")} | {"env": env}
    for prefix, fields in blocks.items():
        _slm_fields(prefix, fields, algo_id, mapped)
    _slm_meanings(name, blocks, mapped)
    mapped.drop_unknown(algo_id)
    for other in spec.keys() - {"agent", "env", "name"}:
        mapped.unmapped[other] = "settings of SLM-Lab's trials and searches"
    return Translated("SLM-Lab", env_id or str(env.get("name", "")), algo_id, mapped, path.name)


def _slm_fields(prefix: str, fields: Mapping[str, Any], algo_id: str, mapped: Mapped) -> None:
    known = config_class(algo_id).model_fields
    for name, value in fields.items():
        key = f"{prefix}.{name}"
        names = [name] if name in known else our_names(name, known)
        ours = _SLM_FIELDS.get(key, names[0] if len(names) == 1 else None)
        if isinstance(value, Mapping) and ours is None:
            _slm_fields(key, value, algo_id, mapped)
        elif key in _SLM_SILENT or value is None:
            continue
        elif ours is None:
            mapped.unmapped[key] = f"{value!r}: {NO_COUNTERPART}"
        elif isinstance(value, Mapping) and (value := _slm_schedule(value)) is None:
            mapped.unmapped[key] = "a schedule without a counterpart"
        elif ours == "optimizer":
            mapped.fields[ours] = str(value).lower()
        elif ours == "normalize_obs":
            mapped.fields[ours] = "rolling" if value else False
        else:
            mapped.fields[ours] = value


def _slm_schedule(spec: Mapping[str, Any]) -> Any:
    """{name, start_val, end_val, start_step, end_step}; steps stay steps."""
    kind = spec.get("name")
    if kind in (None, "no_decay"):
        return spec.get("start_val")
    if kind != "linear_decay":
        return None
    schedule = {"start": spec.get("start_val"), "end": spec.get("end_val")}
    steps = {"from": spec.get("start_step"), "to": spec.get("end_step")}
    return schedule | {name: step for name, step in steps.items() if step}


def _slm_meanings(name: str, blocks: Mapping[str, Any], mapped: Mapped) -> None:
    """What an algorithm's, a memory's or a scheduler's name says."""
    fields = mapped.fields
    if name in ("DoubleDQN", "DDQN"):
        fields["double"] = True
    if name == "ActorCritic":  # rows of one update
        rows = fields.pop("train_freq", None) or fields.pop("n_steps", None)
        fields |= {} if rows is None else {"rollout_steps": rows}
    if "Prioritized" in str(blocks["memory"].get("name", "")):
        fields["prioritized"] = True
    scheduler = [key for key in mapped.unmapped if key.startswith("net.lr_scheduler_spec")]
    lr = fields.get("policy_lr")
    to_zero = "LinearToZero" in str(blocks["net"].get("lr_scheduler_spec"))
    if scheduler and to_zero and isinstance(lr, int | float):
        fields["policy_lr"] = f"lin_{lr:g}"
        for key in scheduler:
            del mapped.unmapped[key]
