"""Settings of other libraries as ours: the zoo's YAML, CleanRL's scripts, SLM-Lab's specs.

    translated = read_foreign(Path("ppo.yml"), env_id="CartPole-v1")
    translated.text()           # our YAML; what has no counterpart is named in comments

A file is recognised by what is in it. Nothing in it is executed; a script is parsed. Every name is
translated or listed as unmapped, with the reason. Values whose meaning differs are converted
(docs/coming-from.md). settings.yaml has what the libraries do where a file says nothing.
"""

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymnasium_solver.config.foreign import NOTES, our_names
from gymnasium_solver.config.yaml_file import dump_yaml, parse_yaml
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.registry import config_class
from gymnasium_solver.suggest import did_you_mean

_FILE = Path(__file__).with_name("settings.yaml")
TABLES: dict[str, Any] = parse_yaml(_FILE.read_text(encoding="utf-8"), str(_FILE))
ALGOS: dict[str, str] = TABLES["algos"]
NO_COUNTERPART = "no field here"
NETWORK = ("hidden_dims", "activation", "share_trunk", "normalize_obs")
"""Fields that are about networks without images."""
_ON_POLICY = ("ppo", "a2c", "reinforce")
_WRAPPERS = {"AtariWrapper": "the defaults of ALE/ ids here"}


@dataclass
class Mapped:
    fields: dict[str, Any] = field(default_factory=dict)
    unmapped: dict[str, str] = field(default_factory=dict)  # name: why there is no field for it

    def drop_unknown(self, algo_id: str) -> None:
        """Keep only the fields that this algorithm has."""
        known = config_class(algo_id).model_fields
        for name in [each for each in self.fields if each not in known]:
            value = self.fields.pop(name)
            self.unmapped[name] = f"{value!r}: {algo_id} here has no such field"


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
        unmapped = sorted(self.mapped.unmapped.items())
        lines = [f"# not translated: {name}: {why}\n" for name, why in unmapped]
        return f"# From {self.source} ({self.made_by}).\n{''.join(lines)}{dump_yaml(self.data())}"


def read_foreign(
    path: Path, env_id: str | None = None, algo: str | None = None, arguments: Sequence[str] = ()
) -> Translated:
    """ConfigError if the file is of no known form, or names several environments. `arguments`: of
    the command line of a script."""
    data: Any
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            data = ast.parse(text)
        elif path.suffix == ".json":
            data = json.loads(text)
        else:  # the zoo writes numbers as `!!float 1e6`, which our YAML does not need
            data = parse_yaml(text.replace("!!float ", "").replace("!!int ", ""), str(path))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} cannot be read: {reason}") from None
    if isinstance(data, ast.Module):
        args = _script_args(data, path)
        args |= _command_line(arguments, args, path)
        return _cleanrl(args, path, env_id, algo, _read_code(data))
    if arguments:
        raise ConfigError(f"{path}: arguments of a command line belong to a script (.py).")
    if not isinstance(data, Mapping) or not data:
        raise ConfigError(f"{path} has no hyper-parameters in it.")
    for spec in (data, *data.values()):
        if isinstance(spec, Mapping) and {"agent", "env"} <= spec.keys():
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
        return ALGOS[name]
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
    ours = _algo(algo, path.stem.partition("-")[0], path)
    given = {str(k): v for k, v in fields.items()}
    defaults, code = (TABLES[name].get(ours, {}) for name in ("sb3", "sb3_code"))
    mapped = map_fields(given, ours, "zoo", defaults, code)
    return Translated("rl-zoo3", env, ours, mapped, path.name)


# -- CleanRL ----------------------------------------------------------------------------------


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
    by_sign = (each for each, sign in TABLES["cleanrl_signs"].items() if sign in data)
    ours = _algo(algo, guess or next(by_sign, name), path)
    own = dict(TABLES["cleanrl_code"].get(ours, {}))
    if "continuous" in name and ours == "ppo":
        own |= {"normalize_obs": "rolling", "normalize_reward": True}
    own |= code
    if own.pop("has_images", "atari" in name):
        own = {k: v for k, v in own.items() if k not in NETWORK}
    fields = {k: v for k, v in data.items() if k not in TABLES["cleanrl_own"]}
    mapped = map_fields(fields, ours, "cleanrl", {}, own)
    return Translated("CleanRL", env, ours, mapped, path.name)


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
    """The defaults of `class Args` of a script, by parsing it; int(1e6) is 1e6."""
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Args"]
    if not classes:
        raise ConfigError(
            f"{path} has no class Args with hyper-parameters; is it a CleanRL script?"
        )
    found: dict[str, Any] = {}
    for item in classes[0].body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.value:
            value = item.value
            if isinstance(value, ast.Call) and _name(value) in ("int", "float") and value.args:
                value = value.args[0]
            with suppress(ValueError):  # computed, such as the name of the script
                found[item.target.id] = ast.literal_eval(value)
    return found


def _read_code(tree: ast.Module) -> dict[str, Any]:
    """What the code of a script does, in our fields: layers, activation, loss, normalisation. What
    is not plain to see is left out."""
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found: dict[str, Any] = {
        "normalize_obs": "rolling" if "NormalizeObservation" in names else False,
        "normalize_reward": "NormalizeReward" in names,
        "has_images": "Conv2d" in names,
    }
    layers = [sizes for node in ast.walk(tree) if (sizes := _hidden_sizes(node))]
    if layers and all(each == layers[0] for each in layers):
        found["hidden_dims"] = layers[0]
    used = {name.lower() for name in names & {"Tanh", "ReLU", "relu"}}
    if len(used) == 1:
        found["activation"] = used.pop()
    if (loss := names & {"mse_loss", "smooth_l1_loss"}) and len(loss) == 1:
        found["loss"] = "mse" if "mse_loss" in loss else "huber"
    if "clip_grad_norm_" not in names:
        found["max_grad_norm"] = None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "Adam":
            eps = [word.value for word in node.keywords if word.arg == "eps"]
            if eps and isinstance(eps[0], ast.Constant):
                found["adam_eps"] = eps[0].value
    return found


def _hidden_sizes(node: ast.AST) -> list[int]:
    """Widths of the hidden layers of an nn.Sequential, or of a module that has none."""
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    is_sequential = isinstance(node, ast.Call) and _name(node) == "Sequential"
    is_module = isinstance(node, ast.ClassDef) and "Sequential" not in map(_name, calls)
    if not is_sequential and not is_module:
        return []
    linear = [n for n in calls if _name(n) == "Linear" and len(n.args) == 2]
    linear.sort(key=lambda n: (n.lineno, n.col_offset))
    widths = [n.args[1].value for n in linear if isinstance(n.args[1], ast.Constant)]
    return [width for width in widths if isinstance(width, int) and width > 1]


def _name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


# -- SLM-Lab, v4 and v5: nested blocks of agent, algorithm, memory, net and env -----------------


def _slm(spec: Mapping[str, Any], path: Path, env_id: str | None) -> Translated:
    def block(value: Any) -> Mapping[str, Any]:
        first = value[0] if isinstance(value, list) and value else value
        return first if isinstance(first, Mapping) else {}

    agent, env = block(spec["agent"]), block(spec["env"])
    name = str(block(agent.get("algorithm")).get("name", ""))
    if (algo_id := TABLES["slm_algos"].get(name)) is None:
        raise ConfigError(f"{path}: the algorithm {name!r} is not available here.")
    mapped = Mapped()
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
        ours = TABLES["slm_fields"].get(key, names[0] if len(names) == 1 else None)
        if isinstance(value, Mapping) and ours is None:
            _slm_fields(key, value, algo_id, mapped)
        elif key in TABLES["slm_silent"] or value is None:
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


# -- SB3, its zoo and CleanRL: flat names ------------------------------------------------------


def map_fields(
    given: Mapping[str, Any],
    algo_id: str,
    library: str,
    defaults: Mapping[str, Any] = {},
    code: Mapping[str, Any] = {},
) -> Mapped:
    """`library`: sb3 (a saved model), zoo or cleanrl. `defaults`: what the library takes where
    nothing is given, under its names; `code`: what it does in any case, under ours."""
    silent = TABLES["sb3_silent"] if library == "sb3" else ()
    rest = {name: value for name, value in given.items() if name not in silent}
    if "Cnn" in str(given.get("policy")):
        code = {name: value for name, value in code.items() if name not in NETWORK}
    mapped = _Translation({**defaults, **rest}, algo_id, library).mapped
    known = config_class(algo_id).model_fields
    mapped.fields |= {n: v for n, v in code.items() if n in known and n not in mapped.fields}
    for name in defaults.keys() - given.keys():  # nobody asked for them
        mapped.unmapped.pop(name, None)
    return mapped


class _Translation:
    """Each method takes what it knows out of `rest`; what is left has another name at most."""

    def __init__(self, rest: dict[str, Any], algo_id: str, library: str) -> None:
        self.rest, self.algo_id, self.origin, self.mapped = rest, algo_id, library, Mapped()
        self.is_on_policy = algo_id in _ON_POLICY
        (self.cleanrl if library == "cleanrl" else self.zoo)()
        self.network()
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
                self.refuse(name, NOTES.get(name, NO_COUNTERPART))
        self.mapped.drop_unknown(algo_id)
        if algo_id == "ppo":
            self.mapped.fields.setdefault("normalize_advantages", "batch")

    def put(self, name: str, value: Any) -> None:
        self.mapped.fields[name] = value

    def move(self, theirs: str, ours: str, convert: Callable[[Any], Any] | None = None) -> None:
        """Put a value that is given under our name."""
        if theirs in self.rest:
            value = self.rest.pop(theirs)
            self.put(ours, value if convert is None else convert(value))

    def refuse(self, name: str, why: str = NO_COUNTERPART) -> None:
        self.mapped.unmapped[name] = why

    def take(self, *names: str) -> Any:
        """The first of these that is given, removed; None if there is none."""
        found = [self.rest.pop(name, None) for name in names]
        return next((value for value in found if value is not None), None)

    # -- one library ------------------------------------------------------------------------

    def cleanrl(self) -> None:
        """Switches and meanings of CleanRL's scripts."""
        rest, algo = self.rest, self.algo_id
        if rest.pop("anneal_lr", False) and "learning_rate" in rest:
            rest["learning_rate"] = f"lin_{rest['learning_rate']:g}"
        if algo == "ppo":  # theirs weighs half the mean of squares
            self.move("vf_coef", "vf_coef", lambda c: c / 2)
        clip = rest.get("clip_coef")
        self.move("clip_vloss", "clip_range_vf", lambda is_on: clip if is_on else None)
        self.move("num_minibatches", "batch_size", lambda n: 1 / n)
        if "autotune" in rest:
            alpha = rest.pop("alpha", 0.2)
            self.move("autotune", "ent_coef", lambda is_on: "auto" if is_on else alpha)
        if algo == "sac" and (delay := rest.pop("policy_frequency", None)):
            self.put("policy_delay", 1)  # after `delay` steps as many updates of the actor
            if delay != 1:
                why = f"{delay}: as many updates of the actor come at once there, one by one here"
                self.refuse("policy_frequency", why)
        if algo in ("sac", "td3", "ddpg") and "q_lr" in rest:
            self.put("critic_lr", rest["q_lr"])
            self.move("q_lr", "alpha_lr")
        if rest.get("target_network_frequency") == 1 and algo != "dqn":
            rest.pop("target_network_frequency")  # as here
        if rest.get("tau") == 1.0 and algo == "dqn":
            self.move("tau", "tau")
        if algo == "ppo":  # computed by the script from the others
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
            self.move("tau", "tau")

    # -- values that need more than another name --------------------------------------------

    def network(self) -> None:
        """policy_kwargs: dict(net_arch=[...], activation_fn=nn.ReLU, log_std_init=-2); with use_sde
        log_std_init is that of the noise matrix."""
        kwargs = _literal(self.rest.pop("policy_kwargs", {}))
        if not isinstance(kwargs, Mapping):
            self.refuse("policy_kwargs", f"cannot be read: {str(kwargs)[:60]}")
            kwargs = {}
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
            elif name == "ortho_init" and not value:
                self.put("init", "uniform")
                why = "False: the hidden layers are as in torch, the output layers stay orthogonal"
                self.refuse("policy_kwargs.ortho_init", why)
            elif name not in ("use_sde", "ortho_init"):
                self.refuse(f"policy_kwargs.{name}")
        if not self.rest.get("use_sde"):
            self.take("use_sde", "sde_sample_freq")
        elif "log_std_init" in self.mapped.fields:
            self.put("sde_log_std_init", self.mapped.fields.pop("log_std_init"))

    def net_arch(self, value: Any) -> None:
        """[64, 64], dict(pi=[64], vf=[64]), or the old [dict(pi=..., vf=...)]."""
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
            value = value[0]
        if not isinstance(value, Mapping):
            named = TABLES["zoo_layers"].get(value, value) if isinstance(value, str) else value
            return self.put("hidden_dims", named)
        actor, critic = value.get("pi"), value.get("vf", value.get("qf"))
        self.put("hidden_dims", actor)
        if critic != actor and "qf" in value:
            self.put("critic_hidden_dims", critic)
        elif critic != actor:
            self.refuse("policy_kwargs.net_arch.vf", "policy and value have the same here")

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
        defaults = {"start": 1.0, "end": 0.05, "to": 0.5 if self.origin == "cleanrl" else 0.1}
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
        if not self.is_on_policy and self.origin != "cleanrl":
            self.move("n_steps", "n_step")
        value = self.take("normalize_advantage", "norm_adv")
        over = {"ppo": "batch", "a2c": "rollout"}.get(self.algo_id)
        if value is not None and over is not None:
            self.put("normalize_advantages", over if value else "off")

    def a2c(self) -> None:
        """Rows of one update there are `rollout_steps` here; the optimiser is named by a switch."""
        self.move("n_steps", "rollout_steps")
        eps = self.rest.pop("rms_prop_eps", None)
        if self.rest.pop("use_rms_prop", True) is False:
            self.mapped.fields |= {"optimizer": "adam", "adam_eps": 1e-5}
        elif eps is not None:
            self.put("adam_eps", eps)


def _literal(value: Any) -> Any:
    """Python written as text, as the zoo has it: dict(net_arch=[64], activation_fn=nn.ReLU). Only
    literals, dict(...) and names are read; nothing is evaluated."""
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
