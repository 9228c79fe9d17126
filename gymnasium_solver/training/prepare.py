"""From a name or a file, plus overrides, to a validated config.

    load_config("CartPole-v1:ppo")         # PPO also without :ppo
    load_config("CartPole-v1", "ppo", overrides={"policy_lr": "lin_0.001", "env_kwargs.x": 1})
    load_config("my/config.yaml:ppo_small", fill={"lr": "1e-3"})
    load_config("runs/<id>/config.yaml")

Order: plugins are imported first, so that they can register what the config names; then the
defaults of the suite are filled in, the fields are validated by the algorithm's config class, and
finally wrappers and observers by their registries. What is left to decide when a run starts
(`settle_scales`) looks at its environment.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from gymnasium_solver.algos import algo_ids
from gymnasium_solver.config import find
from gymnasium_solver.config.blocks import EnvFields
from gymnasium_solver.config.code import accept, code_named, distrust, named_plugins, untrusted
from gymnasium_solver.config.env_ids import C_ENV, as_env_id, file_stem, split_target
from gymnasium_solver.config.load import (
    apply_overrides,
    choose_variant,
    config_dict,
    differences,
    expanded,
    is_pattern,
    overlay_changes,
)
from gymnasium_solver.config.schedule import AUTO
from gymnasium_solver.config.schema import Config, LearnerConfig, canonical, layered
from gymnasium_solver.config.yaml_file import parse_value, unfilled
from gymnasium_solver.envs.spec import EnvSpec, eval_envs
from gymnasium_solver.envs.suites.game_options import fill_defaults, modern, modernised
from gymnasium_solver.errors import ConfigError, EnvError, UnknownEnvError, missing_training
from gymnasium_solver.plugins import import_plugins, is_module_name, see_working_folder
from gymnasium_solver.registry import config_class, observers
from gymnasium_solver.runs.alerts.judge import check_muted
from gymnasium_solver.runs.machine import is_made_here
from gymnasium_solver.runs.run import Run, is_run

UNTUNED = ("bc", "random")  # algorithms that have nothing to tune
MOST_TUNED = 4  # configs that a note names
LOWEST_GAMMA, HIGHEST_GAMMA = 0.95, 0.995  # of gamma: auto


def load_config(
    target: str,
    variant: str | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    fill: Mapping[str, str] | None = None,
    overlays: Sequence[str] = (),
    trust: bool = False,
    chooses: bool = False,
) -> Config:
    """Read, fill, override and validate a config.

    `overlays`: names of sets of fields to lay over it (config/load.py). `chooses`: for an
    environment without a config, named without an algorithm, measure it by random actions and
    choose (training/choose.py), where a training follows. Otherwise it is PPO's config.

    `overrides` maps fields, or entries inside one such as `env_kwargs.state`, to values. `fill`
    maps the names of `${...}` placeholders to text; a name that is not a placeholder of the file
    overrides the field of that name, as `--set name=value` does. `trust`: import the modules that
    the config of a run names, even if the run was not made here; otherwise that is a TrustError."""
    settings = {key: parse_value(str(text)) for key, text in (fill or {}).items()}
    changes = {**settings, **(overrides or {})}
    target = _c_target(target)
    _import_plugins_of(target, changes, trust)
    target, changes = _modern_target(target, changes)
    default = None if "algo_id" in changes else find.DEFAULT_ALGO
    try:
        path, variant = find.locate(target, variant, default)
    except ConfigError as error:
        if overlays:
            changes = {**overlay_changes(overlays, None), **changes}
        return _load_unlisted(target, variant, changes, error, chooses)
    file = find.read_config_file(path, fill)
    section = file.section(choose_variant(file, variant))
    changes = {key: value for key, value in changes.items()
               if key not in file.placeholders or key in (overrides or {})}  # fmt: skip
    where = f"{target}:{variant}" if variant and not target.endswith(f":{variant}") else target
    with _named(where if path.name in where else f"{where} ({path.name})"):
        laid = overlay_changes(overlays, path) if overlays else {}
        section = apply_overrides(section, _by_name(laid, section, changes))
        section = apply_overrides(section, _by_name(changes, section, changes))
        if changes.get("obs_type") in ("ram", "objects") and "policy" not in changes:
            section.pop("policy", None)  # a CNN for the screen; what is left has its default
        missing = sorted(set(unfilled(section)))
        if missing:
            example = " ".join(f"--set {name}=VALUE" for name in missing)
            names = ", ".join(f"${{{name}}}" for name in missing)
            raise ConfigError(f"{names} must be set: add {example}")
        return build_config(section)


def lines_with_code(
    target: str, overrides: Mapping[str, Any], fill: Mapping[str, str]
) -> dict[str, Any] | None:
    """The lines of a config that names code to import: merged, filled and overridden, but not
    checked, since that needs the code. None for any other config."""
    default = None if "algo_id" in overrides else find.DEFAULT_ALGO
    try:
        path, variant = find.locate(target, None, default)
        file = find.read_config_file(path, fill)
        section = file.section(choose_variant(file, variant))
    except ConfigError:
        return None  # load_config reports it
    settings = {key: parse_value(str(text)) for key, text in fill.items()}
    changes = {k: v for k, v in settings.items() if k not in file.placeholders} | dict(overrides)
    section = apply_overrides(section, changes)
    return section if code_named(canonical(section)) else None


def _by_name(
    changes: Mapping[str, Any], section: Mapping[str, Any], overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """The changes with patterns replaced by the fields of the algorithm that they match."""
    if not any(map(is_pattern, changes)):
        return dict(changes)
    algo_id = overrides.get("algo_id", section.get("algo_id", find.DEFAULT_ALGO))
    return expanded(changes, config_class(str(algo_id)).model_fields, str(algo_id))


def build_config(data: Mapping[str, Any]) -> Config:
    """Validate plain fields and values as a Config of the class for `algo_id`."""
    data = canonical(data)
    import_plugins(named_plugins(data))
    data, notes = modernised(data)
    data = fill_defaults(data)
    algo_id = given_algo_id(data)
    if any(map(is_pattern, data)):
        patterns = {key: value for key, value in data.items() if is_pattern(key)}
        own = {key: value for key, value in data.items() if not is_pattern(key)}
        data = expanded(patterns, config_class(algo_id).model_fields, algo_id) | own
    config: Config = config_class(algo_id)(**data)
    see_working_folder()  # `module:Id` and wrappers by import path may name a module in it
    try:
        if config.env_wrappers:  # a module that needs Gymnasium
            from gymnasium_solver.envs.wrappers.wrapping import check_wrappers

            check_wrappers(config.env_wrappers)
    except EnvError as error:
        raise ConfigError(f"env_wrappers: {error}") from None
    except ModuleNotFoundError as error:
        if missing_training(error) is None:
            raise
        notes.append(f"env_wrappers are checked where it trains: {error.name} is not installed")
    for name in config.observers:
        observers.get(name)
    check_muted(config.mute_alerts)
    return config.with_notes([*notes, *_other_variant(config, notes)])


def given_algo_id(data: Mapping[str, Any]) -> str:
    """The `algo_id` of these fields; ConfigError if they have none."""
    algo_id = data.get("algo_id")
    if isinstance(algo_id, str):
        return algo_id
    given = "not given" if algo_id is None else f"got {algo_id!r}"
    raise ConfigError(f"algo_id: {given}, expected one of {', '.join(algo_ids())}")


def _c_target(target: str) -> str:
    """`c:my_env.c` for `my_env.c`, with or without an algorithm."""
    name, variant = split_target(target)
    return as_env_id(name) if variant is None else f"{as_env_id(name)}:{variant}"


def _modern_target(target: str, changes: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A target with an old id of an Atari game as the target of its config; the id itself becomes
    an override, by which `build_config` sets the options that it stands for."""
    env_id, colon, variant = target.partition(":")
    found = modern(env_id)
    if found is None:
        return target, changes
    return f"{found.env_id}{colon}{variant}", {"env_id": env_id, **changes}


def _other_variant(config: Config, notes: list[str]) -> list[str]:
    """A note about the config that is made for the protocol of an old id."""
    name = f"{config.env_id}:{config.variant}_v4"
    if notes and any(entry.name == name for entry in find.find_configs(config.env_id)):
        return [f"{name} is a config for games without sticky actions"]
    return []


# Fields that say nothing about how a run was trained differently.
_NOT_COMPARED = ("seed", "spec", "description", "project_id", "variant")


def changed_from_shipped(config: Config) -> dict[str, list[Any]] | None:
    """Fields whose value is not that of the shipped config of the same name: [shipped, used].
    None if no config of this environment and variant is shipped."""
    stems = {config.project_id, file_stem(config.env_id)}
    paths = [path for path in find.config_files(find.SHIPPED) if path.stem in stems]
    files = [find.read_config_file(path) for path in paths]
    sections = [file.section(config.variant) for file in files if config.variant in file.variants]
    same = [section for section in sections if section.get("env_id") == config.env_id]
    if not same or any(unfilled(same[0])):
        return None
    found = differences(config_dict(build_config(same[0])), config_dict(config))
    return {name: values for name, values in found.items() if name not in _NOT_COMPARED}


def _import_plugins_of(target: str, changes: Mapping[str, Any], trust: bool) -> None:
    """Import the `plugins` of the overrides and the file, before anything is looked up."""
    path = find.own_file(target)
    lines = [] if path is None else _all_lines(path)
    accept(target, changes)
    if path is None or trust:
        accept(lines)
    else:
        check_trust(path, lines)
    for fields in (changes, *lines):
        import_plugins(named_plugins(fields))


def _all_lines(path: Path) -> list[dict[str, Any]]:
    """The lines that the variants of a file share, and those of each variant."""
    file = find.read_config_file(path)
    return [file.base, *file.variants.values()]


def _load_unlisted(
    target: str,
    variant: str | None,
    overrides: dict[str, Any],
    not_found: ConfigError,
    chooses: bool,
) -> Config:
    """Build fields for an environment without a config file. The algorithm is given by `algo_id` or
    after a colon; otherwise it is chosen by what is measured, or PPO where nothing is trained."""
    if Path(target).suffix in find.SUFFIXES:
        raise not_found
    entries = find.find_configs()
    algo_id = overrides.get("algo_id", variant)
    wanted = f"{target}:{variant}" if variant else target
    for entry in entries:
        if entry.name.lower() == wanted.lower() and entry.name != wanted:
            return load_config(entry.name, overrides=overrides)
    head, tail = split_target(target)
    if algo_id is None and head and tail is not None and tail.lower() in algo_ids():
        target, algo_id = head, tail.lower()
    for entry in entries:
        if (entry.env_id, entry.variant) == (target, algo_id):
            return load_config(target, entry.variant, overrides=overrides)
    chooses = chooses and algo_id is None
    if algo_id is None:
        if " variant" in str(not_found) or not _may_be_id(target):
            raise not_found  # no id, or the id of a config
        algo_id = find.DEFAULT_ALGO
    with _named(target if chooses else f"{target}:{algo_id} (no config)"):
        given = {"env_id": target, **_env_lines(target)}
        overrides = _by_name(overrides, given | {"algo_id": algo_id}, overrides)
        fields = apply_overrides(given, overrides)
        algo_id = _knowing(fields, algo_id) if chooses else algo_id
        checked = build_config({"algo_id": algo_id, **fields})  # its errors before those of the env
        tuned = _tuned(target, entries)
        try:
            known = {name: getattr(checked, name, value) for name, value in fields.items()}
            chosen, notes = _fields_for(target, str(algo_id), known, chooses)
        except UnknownEnvError as error:
            start = "" if ":" in target else f"{not_found}; nor is it an environment: "
            raise ConfigError(f"{start}{error}{tuned}") from error
        except EnvError as error:
            error.args = (f"{error}{tuned}",)
            raise
        chosen["project_id"] = re.sub(r"[/:]", "-", target)
        config = build_config(layered(chosen, fields))
        if tuned and config.algo_id not in UNTUNED:
            name = f"{target}:{config.algo_id}"
            notes.append(f"{name} has no config, its fields are defaults.{tuned}")
        return config.with_notes([*config.notes, *notes])


def _fields_for(
    target: str, algo_id: str, given: Mapping[str, Any], chooses: bool
) -> tuple[dict[str, Any], list[str]]:
    """Fields for an environment without a config, with its algorithm and variant, and notes."""
    # These import Gymnasium.
    if chooses:
        from gymnasium_solver.training.choose import chosen_for

        found = chosen_for(target, given)
        why = "; ".join(found.reasons)
        text = f"{target}, chosen by {found.n_steps:,} random steps. {why}."
        fields = {**found.first.fields, "variant": found.first.name, "description": text}
        return fields, [f"chosen: {found.first.name}. {why}"]
    from gymnasium_solver.envs.defaults import default_fields

    known = config_class(algo_id).model_fields
    fields = default_fields(target, algo_id, given)
    fields = {name: value for name, value in fields.items() if name in known}
    return {**fields, "algo_id": algo_id, "variant": algo_id}, []


def _knowing(fields: Mapping[str, Any], default: str) -> str:
    """An algorithm of the portfolio that has all these fields, to check their values with."""
    from gymnasium_solver.training.choose import presets

    algos = [default, *(preset["algo_id"] for preset in presets().values())]
    return next((a for a in algos if set(fields) <= set(config_class(a).model_fields)), default)


def _may_be_id(target: str) -> bool:
    """Whether a name without a config can be that of an environment: `Name-v0`, `module:Name`, or
    one that a plugin has registered. ConfigError for a module that is given without an id."""
    if re.search(r"-v\d+$", target) or target.startswith(C_ENV):
        return True
    module, colon, _ = target.rpartition(":")
    if colon:
        return is_module_name(module)
    from gymnasium_solver.envs.modules import refuse_module

    refuse_module(target)
    import gymnasium

    return target in gymnasium.registry


def _tuned(env_id: str, entries: Iterable[find.ConfigEntry]) -> str:
    """A sentence about the configs of this environment, also in another version; "" for none."""
    name = re.sub(r"-v\d+$", "", env_id)
    same = [entry.name for entry in entries if re.sub(r"-v\d+$", "", entry.env_id) == name]
    return f" Tuned: {', '.join(same[:MOST_TUNED])}" if same else ""


def _env_lines(env_id: str) -> dict[str, Any]:
    """What the config file of an environment says about the environment, in the lines that its
    variants share, for an algorithm that has no variant there."""
    for path in find.files_named(env_id):
        base = find.read_config_file(path).base
        if base.get("env_id") == env_id:
            kept = {*EnvFields.model_fields, "spec", "project_id", "max_episode_steps"}
            return {name: value for name, value in base.items() if name in kept}
    return {}


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Prefix validation errors with the name of the config."""
    try:
        yield
    except ConfigError as error:
        lines = "\n".join(f"  {line}" for line in str(error).splitlines())
        raise ConfigError(f"{where}:\n{lines}") from None


def check_target(target: str) -> None:
    """TrustError if a target names the config of a run that was not made here and names code."""
    path = find.own_file(target)
    if path is not None:
        check_trust(path, _all_lines(path))


def check_trust(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """TrustError if this file is the config of a run that was not made here and names code. What
    else such a config holds is not imported either (`import_code`). `lines`: all blocks of the
    file."""
    run = Run(path.parent)
    lines = list(lines)
    code = sorted({name for fields in lines for name in code_named(fields)})
    if not is_run(run.path) or is_made_here(run.meta(), code):
        accept(lines)
        return
    distrust(str(run.path), lines)
    if code:
        raise untrusted(str(run.path), code)


def settle_scales(
    config: Config, source: Mapping[str, Any] | None = None
) -> tuple[Config, list[str]]:
    """The config with gamma, normalize_obs and normalize_reward decided where they are `auto`, and
    a note for gamma and for each of the others that is switched on. `source`: fields of the run
    whose weights are taken over. They expect its normalisation.

    The rule is that of `gsolve doctor env` (envs/random_steps.py): random steps of a few copies of
    the environment, from a fixed seed. The decision is written into the run's config, so a resume
    and an evaluation repeat it without looking again."""
    if not isinstance(config, LearnerConfig):
        return config, []
    inherited = {name: source[name] for name in undecided(config) if source and name in source}
    config = config.replace(**inherited)
    if not undecided(config):
        return config, []
    from gymnasium_solver.envs.make import env_from_config
    from gymnasium_solver.envs.random_steps import (
        N_ENVS,
        ROWS,
        record,
        why_normalize_obs,
        why_normalize_reward,
    )

    n_envs = 1 if eval_envs(config.env_id, config.vectorization_mode) == "one" else N_ENVS
    settled: dict[str, Any] = dict.fromkeys(undecided(config), False)
    notes = []
    with closing(env_from_config(config, n_envs)) as env:
        if "gamma" in settled:
            settled["gamma"], note = gamma_by_limit(env.spec)
            notes.append(note)
        if settled.keys() == {"gamma"}:
            return config.replace(**settled), notes
        rollout, space = record(env, ROWS), env.observation_space
    for name, what, on, why in (
        ("normalize_obs", "observations", "rolling", why_normalize_obs(space, rollout)),
        ("normalize_reward", "rewards", True, why_normalize_reward(rollout)),
    ):
        if name in settled and why is not None:
            settled[name] = on
            notes.append(f"{name}: auto is {str(on).lower()} here, {what} are {why}")
    return config.replace(**settled), notes


def undecided(config: LearnerConfig) -> list[str]:
    """The settings that are still `auto`."""
    names = ("normalize_obs", "normalize_reward", "gamma")
    return [name for name in names if getattr(config, name) == AUTO]


def gamma_by_limit(spec: EnvSpec) -> tuple[float, str]:
    """The discount factor that suits the time limit, as in SimbaV2 and XQC: a fifth of an episode
    counts. And a note."""
    limit = spec.most_decisions
    if limit is None:
        raise ConfigError(
            f"gamma: auto follows from a time limit, and {spec.env_id} has none: give a number, "
            "such as 0.99, or set max_episode_steps"
        )
    gamma = round(min(max(1.0 - 5.0 / limit, LOWEST_GAMMA), HIGHEST_GAMMA), 6)
    return gamma, f"gamma: auto is {gamma:g} here, episodes have at most {limit:,} decisions"
