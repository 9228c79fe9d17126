"""From files and overrides to configs."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest

from gymnasium_solver.algos.file_schema import json_schema
from gymnasium_solver.algos.ppo import PPOConfig
from gymnasium_solver.algos.reinforce import ReinforceConfig
from gymnasium_solver.config.find import read_config_file
from gymnasium_solver.config.load import config_dict, dump_config
from gymnasium_solver.config.schedule import Schedule
from gymnasium_solver.config.schema import Config, LearnerConfig
from gymnasium_solver.config.yaml_file import parse_value
from gymnasium_solver.envs.spec import registry_entry
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.registry import algorithms
from gymnasium_solver.training.prepare import build_config, load_config

# The examples of the reference's two published readmes, as they stand there.
README_WITH_BASE_BLOCK = """
_base: &base
  env_id: CartPole-v1
  n_envs: 8
  eval_episodes: 10

ppo:
  <<: *base
  algo_id: ppo
  max_env_steps: 100000
  n_steps: 32
  batch_size: 256
  policy_lr: {start: 0.001, end: 0.0}    # Linear schedule
  clip_range: {start: 0.2, end: 0.05}
  env_wrappers:
    - { id: CartPoleV1_RewardShaper, angle_reward_scale: 1.0 }

reinforce:
  <<: *base
  algo_id: reinforce
  max_env_steps: 200000
  policy_targets: returns
  returns_type: mc:rtg
"""

README_WITH_TOP_FIELDS = """
# New per-file style
# Tip: omit project_id to default to the filename (e.g., CartPole-v1)
env_id: CartPole-v1
eval_episodes: 10

ppo:
  algo_id: ppo
  n_envs: 8
  max_timesteps: 1e5
  n_steps: 32
  batch_size: 256
  policy_lr: lin_0.001   # linear schedule from 0.001 → 0
  clip_range:   lin_0.2
  env_wrappers:
    - { id: CartPoleV1_RewardShaper, angle_reward_scale: 1.0 }
"""

SMALL = """
env_id: CartPole-v1
early_stop_on_eval_threshold: 100
ppo:
  n_steps: 64
  env_kwargs: {a: 1, b: {c: 2}}
"""


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GSOLVE_CONFIGS", raising=False)


def write(text: str, name: str = "CartPole-v1.yaml") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def test_readme_example_with_base_block() -> None:
    name = write(README_WITH_BASE_BLOCK)
    ppo = load_config(f"{name}:ppo")
    assert isinstance(ppo, PPOConfig)
    assert (ppo.env_id, ppo.algo_id, ppo.variant, ppo.project_id) == (
        "CartPole-v1", "ppo", "ppo", "CartPole-v1",
    )  # fmt: skip
    assert (ppo.n_envs, ppo.n_steps, ppo.batch_size, ppo.eval_episodes) == (8, 32, 256, 10)
    assert ppo.max_env_steps == 100_000
    assert ppo.policy_lr == Schedule(shape="linear", start=0.001, end=0.0)
    assert ppo.clip_range == Schedule(shape="linear", start=0.2, end=0.05)
    assert ppo.env_wrappers == [{"id": "CartPoleV1_RewardShaper", "angle_reward_scale": 1.0}]
    reinforce = load_config(name, "reinforce")
    assert isinstance(reinforce, ReinforceConfig)
    assert (reinforce.n_envs, reinforce.eval_episodes) == (8, 10)
    assert reinforce.max_env_steps == 200_000
    assert (reinforce.policy_targets, reinforce.returns_type) == ("returns", "mc:rtg")


def test_readme_example_with_fields_at_the_top() -> None:
    config = load_config(f"{write(README_WITH_TOP_FIELDS)}:ppo")
    assert isinstance(config, PPOConfig)
    assert (config.project_id, config.eval_episodes) == ("CartPole-v1", 10)
    assert config.max_env_steps == 100_000
    assert type(config.max_env_steps) is int
    assert config.policy_lr == Schedule.parse("lin_0.001")
    assert config.clip_range == Schedule.parse("lin_0.2")
    assert config.policy_lr.at(50_000, 100_000) == pytest.approx(0.0005)


def test_base_block_is_inherited_without_merge_keys() -> None:
    name = write("_base: {env_id: A-v0, n_envs: 3}\n_junk: 7\nppo: {n_envs: 4}\nppo_b:\n")
    assert load_config(f"{name}:ppo").n_envs == 4
    config = load_config(f"{name}:ppo_b")
    assert (config.n_envs, config.env_id, config.algo_id) == (3, "A-v0", "ppo")


def test_algo_id_may_be_left_to_the_variant_name() -> None:
    text = "env_id: A-v0\nppo: {}\nppo_fast: {}\nrgb_ppo: {}\nfast: {algo_id: reinforce}\n"
    name = write(text, "a.yaml")
    for variant, algo_id in {
        "ppo": "ppo", "ppo_fast": "ppo", "rgb_ppo": "ppo", "fast": "reinforce",
    }.items():  # fmt: skip
        config = load_config(name, variant)
        assert (config.algo_id, config.variant) == (algo_id, variant)


def test_shared_algo_id() -> None:
    name = write("env_id: A-v0\nalgo_id: ppo\nfast: {n_envs: 2}\nslow: {n_envs: 1}\n")
    assert load_config(name, "slow").n_envs == 1


def test_file_targets() -> None:
    one = write("env_id: A-v0\nppo: {}\n", "one.yaml")
    assert load_config(one).variant == "ppo"
    two = write("env_id: A-v0\nppo: {}\nppo_b: {}\n", "two.yaml")
    assert load_config(two).variant == "ppo"
    other = write("env_id: A-v0\ndqn: {}\nppo_b: {}\n", "other.yaml")
    with pytest.raises(ConfigError, match=r"other.yaml needs a variant, .*it has: dqn, ppo_b"):
        load_config(other)
    with pytest.raises(ConfigError, match=r"no variant 'ppo_c'\. It has: ppo, ppo_b\. Did you"):
        load_config(f"{two}:ppo_c")
    with pytest.raises(ConfigError, match=r"there is no config file none\.yaml"):
        load_config("none.yaml:ppo")


def test_flat_files_and_run_configs_repeat_themselves() -> None:
    config = load_config("CartPole-v1:ppo", overrides={"seed": 7})
    name = write(dump_config(config), "config.yaml")
    assert load_config(name) == config
    assert load_config(f"{name}:ppo") == config
    with pytest.raises(ConfigError, match="has no variants"):
        load_config(f"{name}:other")
    again = write(json.dumps(config_dict(config), indent="\t"), "config.json")
    assert load_config(again) == config
    assert build_config(config_dict(config)) == config


@pytest.mark.parametrize("value", ["3", "null", "{a: 1}", "[1, 2]"])
def test_a_field_may_be_named_after_another_algorithm(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(PPOConfig):
        algo_id: str = "own_algo"
        sac_x: Any = 0

    text = f"env_id: A-v0\nalgo_id: own_algo\nsac_x: {value}\n"
    # A run's config.yaml is read before the plugin that it names is imported.
    flat = write(f"{text}variant: null\n", "flat.yaml")
    assert read_config_file(Path(flat)).base["sac_x"] == parse_value(value)
    monkeypatch.setitem(algorithms.items, "own_algo", SimpleNamespace(Config=Own))
    config = load_config(write(text, "config.yaml"))
    assert config.model_dump()["sac_x"] == parse_value(value)
    again = write(dump_config(config), "again.yaml")
    assert load_config(again) == config
    assert load_config(write("env_id: A-v0\nppo: {}\nsac_b:\n", "v.yaml"), "sac_b").algo_id == "sac"


def test_null_in_a_variant_and_in_an_override() -> None:
    name = write(SMALL)
    assert load_config(name).early_stop_on_eval_threshold == 100.0
    changed = load_config(name, overrides={"early_stop_on_eval_threshold": None})
    assert changed.early_stop_on_eval_threshold is None
    name = write(SMALL + "  early_stop_on_eval_threshold: null\n")
    assert load_config(name).early_stop_on_eval_threshold is None


# Each token is given once as a line of the YAML and once as an override.
TOKENS = {
    "n_envs": ["4", "4.0", "1e1", "auto", "0", "x", "true", "null"],
    "n_steps": ["32", "1e2", "'32'"],
    "max_env_steps": ["1e5", "100_000", "null", "0"],
    "max_timesteps": ["1e4"],
    "max_epochs": ["5", "null"],
    "batch_size": ["64", "0.5", "1", "1.0", "1.5"],
    "policy_lr": ["1e-3", "lin_0.001", "{start: 1e-3, end: 0}", "0", "fast", "null"],
    "clip_range": ["0.1", "{start: 0.2, end: 0.05, schedule: cosine, warmup: 0.1}"],
    "clip_range_vf": ["null", "0.2"],
    "hidden_dims": ["[64, 64]", "64", "[]", "[64, x]"],
    "model_id": ["mlp_small", "null"],
    "gamma": ["1", "0.9", "2"],
    "normalize_obs": ["true", "rolling", "false", "off"],
    "normalize_advantages": ["off", "batch", "false"],
    "early_stop_on_eval_threshold": ["true", "195", "null", "false"],
    "eval_warmup_epochs": ["0.5", "3"],
    "env_kwargs": ["{render_mode: human}", "{}"],
    "env_wrappers": ["[{id: RewardScale, scale: 0.1}]", "[{id: RewardSkale}]"],
    "device": ["cpu", "gpu", "cuda:1", "tpu"],
    "accelerator": ["cpu"],
    "description": ["hello", "8", "'8'"],
    "init_from_run": ["abc/@best"],
    "learning_rate": ["1e-3"],
    "algo_id": ["ppo", "pppo"],
}


def outcome(load: Any) -> Config | str:
    try:
        return load()
    except ConfigError as error:
        return str(error)


@pytest.mark.sample(35)
@pytest.mark.parametrize(
    ("field", "token"), [(field, token) for field, tokens in TOKENS.items() for token in tokens]
)
def test_an_override_means_what_the_yaml_line_means(field: str, token: str) -> None:
    text = "env_id: CartPole-v1\nppo:\n  algo_id: ppo\n"
    own = text.replace("  algo_id: ppo\n", "") if field == "algo_id" else text
    name = write(own + f"  {field}: {token}\n")
    from_line = outcome(lambda: load_config(name))
    write(text)
    from_override = outcome(lambda: load_config(name, overrides={field: parse_value(token)}))
    from_set = outcome(lambda: load_config(name, fill={field: token}))
    assert from_override == from_line
    assert from_set == from_line


def test_overrides_reach_inside_blocks_and_lists() -> None:
    name = write(SMALL + "  env_wrappers: [{id: RewardScale, scale: 1}]\n  clip_range: lin_0.2\n")
    config = load_config(
        name,
        overrides={
            "env_kwargs.a": 5,
            "env_kwargs.b.d": None,
            "env_kwargs.new.deep": "x",
            "env_wrappers.0.scale": 0.5,
            "spec.note": "mine",
        },
    )
    assert config.env_kwargs == {"a": 5, "b": {"c": 2, "d": None}, "new": {"deep": "x"}}
    assert config.env_wrappers == [{"id": "RewardScale", "scale": 0.5}]
    assert config.spec == {"note": "mine"}
    for key, value, schedule in (
        ("clip_range.end", 0.1, {"start": 0.2, "end": 0.1}),  # of lin_0.2
        ("clip_range.start", 0.3, {"start": 0.3, "end": 0.0}),
        ("policy_lr.end", 0.0, {"start": 3e-4, "end": 0.0}),  # of a number
    ):
        changed = load_config(name, overrides={"policy_lr": 3e-4, key: value})
        assert config_dict(changed)[key.partition(".")[0]] == schedule
    for key, message in {
        "algo_id.end": "algo_id is 'ppo', not a block or a list",
        "env_kwargs.a.end": "env_kwargs.a is 1, not a block or a list",
        "env_wrappers.3.scale": "env_wrappers has 1 entries",
        "env_kwarg.x": "env_kwarg: unknown field. Did you mean env_kwargs",
    }.items():
        with pytest.raises(ConfigError, match=message):
            load_config(name, overrides={key: 1})


def test_an_override_replaces_an_alias_in_the_file() -> None:
    name = write("env_id: A-v0\nppo: {max_timesteps: 1e5}\n")
    assert load_config(name, overrides={"max_env_steps": 5000}).max_env_steps == 5000
    assert load_config(name, overrides={"max_steps": 5000}).max_env_steps == 5000
    with pytest.raises(ConfigError, match="max_steps and max_env_steps are the same setting"):
        load_config(name, overrides={"max_steps": 5000, "max_env_steps": 5000})
    name = write("env_id: A-v0\nppo: {max_timesteps: 1e5, max_env_steps: 3}\n")
    with pytest.raises(ConfigError, match="in ppo: max_timesteps and max_env_steps are the same"):
        load_config(name)


def test_overriding_the_algorithm_changes_the_class() -> None:
    name = write("env_id: A-v0\nppo: {n_envs: 2}\n")
    assert type(load_config(name, overrides={"algo_id": "reinforce"})) is ReinforceConfig
    with pytest.raises(ConfigError, match="clip_range_vf: unknown field here; it belongs to ppo"):
        load_config(name, overrides={"algo_id": "reinforce", "clip_range_vf": 0.1})
    with pytest.raises(ConfigError, match="pppo"):
        load_config(name, overrides={"algo_id": "pppo"})


def test_the_file_itself_is_left_alone() -> None:
    text = "_kw: &kw {a: 1}\nenv_id: A-v0\nppo: {env_kwargs: *kw}\nppo_b: {env_kwargs: *kw}\n"
    name = write(text)
    assert load_config(name, "ppo", overrides={"env_kwargs.a": 2}).env_kwargs == {"a": 2}
    assert load_config(name, "ppo_b").env_kwargs == {"a": 1}
    assert Path(name).read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ENV\nlearning_rate: 1e-3\nppo: {}\n", "learning_rate: .* Did you mean policy_lr"),
        ("ENV\nppo: {n_env: 3}\n", "n_env: unknown field. Did you mean n_envs"),
        ("ENV\nenv_kwarg: {n_envs: 3}\nppo: {}\n", "env_kwarg: .* Did you mean env_kwargs"),
        ("ENV\nfoo: {bar: 3}\nppo: {}\n", "foo: unknown field"),
        (
            "ENV\nppo: {seed: 1}\nppo: {}\n",
            "a.yaml:3: the key 'ppo' is given twice, first in line 2",
        ),
        ("ENV\nppo: 3\n", "ppo must be a block of `field: value` lines, not 3"),
        ("ENV\nppo: {}\nppo_b: 3\n", "ppo_b: unknown field"),
        ("ENV\nfast: {n_envs: 3}\n", "algo_id: not given, expected one of ppo"),
        ("ENV\nn_envs: 3\n", "algo_id: not given, expected one of ppo"),
        ("ENV\nppo: {algo_id: 3}\n", "algo_id: got 3, expected one of ppo"),
        ("ppo: {}\n", "env_id: required, but not given"),
        ("_base: 3\nppo: {}\n", "_base must be a block"),
        ("- 1\n", "expected a block"),
        ("", "expected a block"),
    ],
)
def test_bad_files(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(write(text.replace("ENV", "env_id: A-v0"), "a.yaml"))


def test_errors_say_which_config() -> None:
    name = write("env_id: A-v0\nppo: {n_envs: 0, gamma: 3}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(f"{name}:ppo")
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{name}:ppo:"
    assert [line.split(":")[0] for line in lines[1:]] == ["  n_envs", "  gamma"]


def test_placeholders() -> None:
    name = write(
        "env_id: ${env}\nppo: {policy_lr: {start: ${lr}, end: 0}, description: on ${env}}\n"
        "ppo_plain: {n_envs: 2}\n",
        "generic.yaml",
    )
    config = load_config(f"{name}:ppo", fill={"env": "Pendulum-v1", "lr": "1e-3"})
    assert (config.env_id, config.description) == ("Pendulum-v1", "on Pendulum-v1")
    assert isinstance(config, LearnerConfig)
    assert config.policy_lr.start == 0.001
    with pytest.raises(ConfigError, match=r"\$\{env\}, \$\{lr\} must be set: add --set env=VALUE"):
        load_config(f"{name}:ppo")
    # Only what the chosen variant needs must be set.
    assert load_config(f"{name}:ppo_plain", fill={"env": "A-v0"}).n_envs == 2
    # A name that is no placeholder is a field, as with --set.
    config = load_config(
        f"{name}:ppo_plain", fill={"env": "A-v0", "n_envs": "4", "env_kwargs.x": "1"}
    )
    assert (config.n_envs, config.env_kwargs) == (4, {"x": 1})
    with pytest.raises(ConfigError, match="lrr: unknown field"):
        load_config(f"{name}:ppo_plain", fill={"env": "A-v0", "lrr": "4"})


def test_wrappers_are_checked_by_name() -> None:
    name = write("env_id: CartPole-v1\nppo: {env_wrappers: [{id: CartPoleV1_RewardShape}]}\n")
    with pytest.raises(
        ConfigError, match=r"'CartPoleV1_RewardShape'\. Did you mean CartPoleV1_RewardSh"
    ):
        load_config(name)
    name = write("env_id: CartPole-v1\nppo: {env_wrappers: [{id: Zzz}]}\n")
    with pytest.raises(ConfigError, match=r"Unknown env wrapper 'Zzz'\. Known: .*CartPole"):
        load_config(name)


def test_the_options_of_wrappers_are_checked_when_a_config_is_loaded() -> None:
    name = write("env_id: CartPole-v1\nppo: {env_wrappers: [{id: RewardScale, scal: 2}]}\n")
    with pytest.raises(
        ConfigError, match=r"env_wrappers: .* unknown option 'scal'\. Did you mean s"
    ):
        load_config(name)


def test_plugins_are_imported_before_wrappers_are_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("config_test_plugin.py").write_text(
        "from gymnasium_solver.envs.vector import VectorWrapper\n"
        "from gymnasium_solver.envs.wrappers import register_wrapper\n"
        "@register_wrapper('ConfigTestPluginWrapper')\n"
        "class Wrapper(VectorWrapper): ...\n",
        encoding="utf-8",
    )
    lines = "plugins: [config_test_plugin], env_wrappers: [{id: ConfigTestPluginWrapper}]"
    assert load_config(write(f"env_id: A-v0\nppo: {{{lines}}}\n")).plugins == ["config_test_plugin"]
    with pytest.raises(ConfigError, match="plugins: cannot import 'no_such_module'"):
        load_config(write("env_id: A-v0\nppo: {plugins: [no_such_module]}\n"))


def test_loading_module_is_light() -> None:
    code = (
        "import sys, gymnasium_solver.training.prepare, gymnasium_solver.config.find as find;"
        "find.find_configs();"
        "print([m for m in ('torch', 'numpy', 'gymnasium', 'envpool') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_json_schema_covers_all_fields_with_text() -> None:
    schema = json_schema()
    json.dumps(schema)
    fields = schema["properties"]
    for model in (PPOConfig, ReinforceConfig):
        assert set(model.model_fields) <= set(fields)
    for name, field in fields.items():
        assert field["description"], name
    assert fields["clip_range"]["description"].endswith("(ppo, reinforce)")
    assert fields["algo_id"]["enum"][0] == "ppo"
    assert fields["max_timesteps"]["deprecated"]
    assert set(schema["$defs"]["variant"]["properties"]) == set(fields)


def test_one_value_stands_for_a_list_of_one() -> None:
    wrapper = {"id": "RewardScale", "scale": 0.5}
    config = build_config(
        {"algo_id": "ppo", "env_id": "CartPole-v1", "plugins": "json", "env_wrappers": wrapper}
    )
    assert config.plugins == ["json"]
    assert config.env_wrappers == [wrapper]
    assert build_config(config_dict(config)) == config


def test_an_env_id_imports_its_module_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `plugins` does, also where the command does not put the folder on the path itself."""
    (tmp_path / "config_test_envs.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('ConfigTest-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    env_id = "config_test_envs:ConfigTest-v0"
    build_config({"algo_id": "ppo", "env_id": env_id})
    try:
        assert registry_entry(env_id) is not None
    finally:
        sys.modules.pop("config_test_envs", None)
        gymnasium.registry.pop("ConfigTest-v0", None)


def test_the_nearer_layer_decides_how_the_cadence_is_given(tmp_path: Path) -> None:
    """A file in epochs, a variant in env steps, and overrides of both."""
    file = tmp_path / "own.yaml"
    file.write_text(
        "env_id: CartPole-v1\neval_freq_epochs: 10\n"
        "ppo: {}\nppo_steps: {eval_freq_steps: 500}\nppo_both: "
        "{eval_freq_steps: 500, eval_freq_epochs: 2}\n"
    )

    def cadence(variant: str, **overrides: Any) -> tuple[int | None, int | None]:
        config = load_config(f"{file}:{variant}", overrides=overrides)
        return config.eval_freq_epochs, config.eval_freq_steps

    assert cadence("ppo") == (10, None)
    assert cadence("ppo", eval_freq_steps=700) == (None, 700)
    assert cadence("ppo_steps") == (None, 500)
    assert cadence("ppo_steps", eval_freq_epochs=3) == (3, None)
    assert cadence("ppo_steps", eval_freq_epochs=0) == (0, None)
    assert cadence("ppo_steps", eval_freq_steps=None) == (10, None)
    with pytest.raises(ConfigError, match="are both given"):
        cadence("ppo_both")
    with pytest.raises(ConfigError, match="are both given"):
        cadence("ppo", eval_freq_steps=5, eval_freq_epochs=3)
    assert load_config("Acrobot-v1:ppo", overrides={"eval_freq_steps": 9}).eval_freq_epochs is None
