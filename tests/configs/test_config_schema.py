"""The strict, frozen Config: what it takes, what it resolves, what it says when it refuses."""

import re
import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from gymnasium_solver.algos import algo_class, algo_ids
from gymnasium_solver.config.cpus import cpu_count
from gymnasium_solver.config.field_docs import Documented, field_docs
from gymnasium_solver.config.foreign import FOREIGN, NAMES, NOTES
from gymnasium_solver.config.learner_blocks import MLP_PRESETS, ActorCriticFields, MinibatchFields
from gymnasium_solver.config.marks import all_marks, live_fields, search_range
from gymnasium_solver.config.schedule import PositiveSchedule, Schedule, scheduled
from gymnasium_solver.config.schema import ALIASES, Config, LearnerConfig
from gymnasium_solver.config.types import Name
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.registry import config_class


class Toy(ActorCriticFields, MinibatchFields, LearnerConfig):
    env_id: Name = "Toy-v0"
    algo_id: str = "ppo"
    clip_range: PositiveSchedule = Schedule.constant(0.2)


def toy(**fields: Any) -> Toy:
    return Toy(**fields)


def test_config_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        toy().n_envs = 3  # type: ignore[misc]


def test_every_field_is_documented() -> None:
    docs = field_docs(Toy)
    for name in Toy.model_fields:
        if name in ("env_id", "algo_id", "clip_range"):
            assert name not in docs  # declared again above, without a text
        else:
            assert len(docs[name]) > 15, name


def test_the_text_under_a_field_is_its_description() -> None:
    class Inner(Documented):
        width: int = 1
        """How wide
        it is."""
        height: int = 2

    class Outer(Inner):
        inner: Inner
        """A block."""
        height: int = 3
        """Above the ground."""

    schema = Outer.model_json_schema()
    texts = {name: field.get("description") for name, field in schema["properties"].items()}
    assert texts == {
        "width": "How wide\nit is.",
        "height": "Above the ground.",
        "inner": "A block.",
    }
    inner = schema["$defs"]["Inner"]["properties"]
    assert [field.get("description") for field in inner.values()] == ["How wide\nit is.", None]


def test_classes_of_fields_are_built_when_they_are_used() -> None:
    """Building one takes milliseconds, and there are forty."""
    code = """
import gymnasium_solver.training.prepare
from gymnasium_solver.config.field_docs import Documented

def classes(of):
    return [of, *(found for sub in of.__subclasses__() for found in classes(sub))]

print([c.__name__ for c in classes(Documented)[1:] if c.__pydantic_complete__])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("given", "suggestion"),
    [
        ("learning_rate", "policy_lr"),
        ("lr", "policy_lr"),
        ("num_envs", "n_envs"),
        ("total_timesteps", "max_env_steps"),
        ("clip_coef", "clip_range"),
        ("clip_eps", "clip_range"),
        ("entropy_coef", "ent_coef"),
        ("minibatch_size", "batch_size"),
        ("n_env", "n_envs"),
        ("hidden_dim", "hidden_dims"),
        ("env_kwarg", "env_kwargs"),
        ("Gamma", "gamma"),
        ("learning_rat", "policy_lr"),
        ("actor_lr", "policy_lr"),
        ("normalize", "normalize_obs or normalize_reward"),
        ("grad_clip", "max_grad_norm"),
        ("hidden_sizes", "hidden_dims"),
        ("training_num", "n_envs"),
        ("env_wrapper", "env_wrappers"),
    ],
)
def test_unknown_key_is_an_error_with_a_suggestion(given: str, suggestion: str) -> None:
    with pytest.raises(
        ConfigError, match=f"^{given}: unknown field. Did you mean {suggestion}\\?$"
    ):
        toy(**{given: 1})


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("policy_kwargs", "Did you mean hidden_dims or activation? The layers are fields"),
        ("anneal_lr", "Did you mean policy_lr? For a linear decay to 0 write policy_lr: lin_"),
        ("num_minibatches", "Did you mean batch_size? A fraction is a share of the rollout"),
        ("norm_adv", "Did you mean normalize_advantages? rollout, batch (as in SB3 and CleanRL)"),
        ("num_sgd_iter", "Did you mean n_epochs?"),
        ("lambda_", "Did you mean gae_lambda?"),
        ("save_freq", "Did you mean checkpoint_freq_epochs? It counts epochs"),
        ("use_sde", "Did you mean sde?"),
        ("kl_coeff", "PPO here clips; target_kl ends an update early"),
    ],
)
def test_a_foreign_name_with_another_meaning_says_how_to_convert(given: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        algo_class("ppo").Config(env_id="E", algo_id="ppo", **{given: 1})
    assert str(caught.value).startswith(f"{given}: unknown field. {hint}")


def test_every_name_elsewhere_leads_to_a_field_that_exists() -> None:
    fields = {name for algo in algo_ids() for name in algo_class(algo).Config.model_fields}
    assert set(NAMES) <= fields
    assert not set(FOREIGN) & fields, "a name of ours needs no translation"
    assert not set(NOTES) & fields


def test_a_field_of_another_algorithm_is_named_as_such() -> None:
    with pytest.raises(ConfigError, match="gae_lambda: unknown field here; it belongs to ppo"):
        toy(gae_lambda=0.9)


def test_unknown_key_without_a_near_name() -> None:
    with pytest.raises(ConfigError, match=r"^zzz: unknown field$"):
        toy(zzz=1)


UNUSED_FIELDS = {"share_trunk": False, "log_std_init": 0.0, "ent_coef": 0.0, "overlap": False}


@pytest.mark.parametrize("algo_id", ["dqn", "sarsa", "pqn", "td3", "ddpg"])
def test_no_algorithm_has_a_field_that_it_ignores(algo_id: str) -> None:
    fields = algo_class(algo_id).Config.model_fields
    assert not UNUSED_FIELDS.keys() & fields.keys()


@pytest.mark.parametrize("algo_id", ["dqn", "sarsa", "pqn", "td3", "ddpg"])
def test_a_config_saved_by_an_earlier_version_loads_without_its_unused_fields(algo_id: str) -> None:
    build: Any = algo_class(algo_id).Config
    plain = build(env_id="E-v0", algo_id=algo_id)
    assert build(env_id="E-v0", algo_id=algo_id, **UNUSED_FIELDS) == plain
    assert build(env_id="E-v0", algo_id=algo_id, share_trunk="auto") == plain


def test_a_removed_field_that_was_used_says_what_to_do() -> None:
    with pytest.raises(
        ConfigError, match=r"overlap: unknown field\. It was removed.* remove the line"
    ):
        toy(overlap=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [("share_trunk", True), ("share_trunk", 0), ("log_std_init", 0.5), ("ent_coef", "lin_0.1")],
)
def test_a_field_that_the_algorithm_has_not_names_those_that_have_it(name: str, value: Any) -> None:
    with pytest.raises(
        ConfigError, match=f"^{name}: unknown field here; it belongs to ppo, a2c, rein"
    ):
        algo_class("dqn").Config(env_id="E-v0", algo_id="dqn", **{name: value})


def test_a_batch_larger_than_the_rollout_is_noticed() -> None:
    build: Any = algo_class("ppo").Config
    fields = {"env_id": "E-v0", "algo_id": "ppo", "n_envs": 4, "n_steps": 8}
    assert build(**fields, batch_size=32).notices() == []
    (notice,) = build(**fields, batch_size=33).notices()
    assert notice.startswith("batch_size 33 is larger than the rollout (n_envs x n_steps = 32")


@pytest.mark.parametrize(
    "env_id", ["", "Cart\0Pole-v1", "A\nB-v0", "A\x1b[31m", "A\u202eB", "A\u200bB"]
)
def test_env_ids_have_printable_characters_only(env_id: str) -> None:
    with pytest.raises(ConfigError, match=r"env_id: got .* expected .* printable"):
        toy(env_id=env_id)


def test_all_problems_are_told_one_line_each() -> None:
    with pytest.raises(ConfigError) as caught:
        toy(n_envs=0, gamma=2, policy_lr="fast", hidden_dims=[64, 0], learning_rate=1)
    lines = str(caught.value).splitlines()
    assert lines == [
        "n_envs: got 0, expected a whole number >= 1 or 'auto'",
        "hidden_dims: got [64, 0], expected a list of whole numbers >= 1",
        "policy_lr: got 'fast', expected a number, lin_NUMBER, or {start: ..., end: ...}",
        "gamma: got 2, expected a number >= 0 and <= 1, auto, or a schedule",
        "learning_rate: unknown field. Did you mean policy_lr?",
    ]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("n_steps", "8", "got '8', expected a whole number >= 1 (this is text: remove the quotes)"),
        ("n_steps", 8.5, "got 8.5, expected a whole number >= 1"),
        ("n_steps", True, "got true, expected a whole number >= 1"),
        ("n_steps", None, "got null, expected a whole number >= 1"),
        (
            "gamma",
            "0.9",
            "got '0.9', expected a number >= 0 and <= 1, auto, or a schedule (this is text",
        ),
        ("gamma", True, "got true, expected a number"),
        ("gamma", float("nan"), "got nan, expected a number"),
        ("clip_obs", float("inf"), "got inf, expected a number > 0"),
        ("quiet", "off", "got 'off', expected true or false (write true or false)"),
        ("quiet", 1, "got 1, expected true or false"),
        ("optimizer", "lion", "got 'lion', expected adam, adamw, laprop"),
        ("activation", None, "got null, expected one of 'tanh'"),
        ("model_id", "mlp_huge", "got 'mlp_huge', expected one of 'mlp_tiny'"),
        ("normalize_obs", "yes", "expected one of false, true, 'rolling', 'static', 'auto'"),
        ("device", "tpu", "got 'tpu', expected auto, cpu, cuda, cuda:N or mps"),
        ("n_threads", 0, "got 0, expected a whole number >= 1 or 'auto'"),
        ("seed", -1, "got -1, expected a whole number >= 0"),
        ("policy_lr", 0, "expected a number, lin_NUMBER"),
        ("policy_lr", None, "got null, expected a number, lin_NUMBER"),
        ("policy_lr", {"start": 1}, "a linear schedule needs end"),
        ("ent_coef", -0.1, "with values >= 0"),
        ("batch_size", 0, "got 0, expected a whole number >= 1, or a fraction of the rollout"),
        ("batch_size", 1.5, "got 1.5, expected a whole number >= 1, or a fraction"),
        ("eval_warmup_epochs", 1.5, "expected a whole number, or a fraction between 0 and 1"),
        ("eval_warmup_epochs", -0.5, "expected a whole number, or a fraction between 0 and 1"),
        ("eval_warmup_epochs", -1, "expected a whole number >= 0"),
        ("early_stop_on_eval_threshold", "yes", "expected true or false or a number or null"),
        ("hidden_dims", "64", "expected a list of whole numbers"),
        ("env_kwargs", [1], "expected a block of key: value lines"),
        ("env_kwargs", {"a": {1, 2}}, "env_kwargs.a is {1, 2}; expected numbers, text"),
        ("env_kwargs", {"a": [float("inf")]}, "env_kwargs.a[0] is inf"),
        ("env_wrappers", [{"scale": 1}], "entry 0 is {'scale': 1}; expected {id: WrapperName"),
        ("env_wrappers", 3, "expected a list"),
        ("plugins", 3, "expected a list of names"),
        ("seed", -1, "a whole number >= 0 and < 2147483648"),
        ("env_id", 3, "got 3, expected text"),
    ],
)
def test_bad_values_name_field_value_and_expectation(field: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{field}: .*" + re.escape(message)):
        toy(**{field: value})


def test_missing_fields_are_named() -> None:
    with pytest.raises(ConfigError, match="env_id: required, but not given\nalgo_id: required"):
        Config()


def test_numbers_in_any_spelling() -> None:
    config = toy(max_env_steps=1e5, n_steps=32.0, gamma=1, clip_obs=5)
    assert (config.max_env_steps, config.n_steps, config.gamma) == (100_000, 32, 1.0)
    assert type(config.max_env_steps) is int
    assert type(config.n_steps) is int
    assert type(config.gamma) is float


@pytest.mark.parametrize(
    ("written", "resolved"),
    [(256, 256), (256.0, 256), (1, 1), (1.0, 512), (0.5, 256), (0.25, 128), (0.3, 153), (1e-6, 1)],
)
def test_fractional_batch_size(written: float, resolved: int) -> None:
    config = toy(n_envs=8, n_steps=64, batch_size=written)
    assert config.batch_size == resolved
    assert type(config.batch_size) is int


def test_a_bad_rollout_is_the_only_problem_told() -> None:
    with pytest.raises(ConfigError, match=r"^n_envs: got 0[^\n]*$"):
        toy(n_envs=0, batch_size=0.5)


def test_n_envs_auto_is_the_cpu_count() -> None:
    assert toy(n_envs="auto").n_envs == cpu_count() >= 1
    assert toy(n_envs="auto", n_steps=10, batch_size=1.0).batch_size == 10 * cpu_count()


def test_aliases_are_read_and_never_written() -> None:
    config = toy(max_timesteps=1e5, grad_clip_norm=1, accelerator="gpu")
    assert (config.max_env_steps, config.max_grad_norm, config.device) == (100_000, 1.0, "cuda")
    assert not set(ALIASES) & set(config.model_dump())
    for alias, field in ALIASES.items():
        with pytest.raises(ConfigError, match=f"{field} and {alias} are the same setting"):
            toy(**{field: 1, alias: 1})
    with pytest.raises(ConfigError, match="max_timesteps and max_steps are the same setting"):
        toy(max_timesteps=1, max_steps=1)


def test_null_is_a_value() -> None:
    config = toy(early_stop_on_eval_threshold=None, max_grad_norm=None, eval_freq_epochs=None)
    assert config.early_stop_on_eval_threshold is None
    assert config.max_grad_norm is None
    assert config.eval_freq_epochs is None


def test_threshold_switches_keep_their_kind() -> None:
    assert toy(early_stop_on_eval_threshold=True).early_stop_on_eval_threshold is True
    assert toy(early_stop_on_eval_threshold=False).early_stop_on_eval_threshold is False
    value = toy(early_stop_on_eval_threshold=1).early_stop_on_eval_threshold
    assert value == 1.0
    assert type(value) is float


def test_old_spellings() -> None:
    assert toy(policy="mlp_actorcritic").policy == "mlp"
    assert toy(normalize_obs=True).normalize_obs == "rolling"
    assert toy(normalize_obs=False).normalize_obs is False


def test_hidden_dims_and_presets() -> None:
    assert toy(hidden_dims=[32, 16.0]).hidden_dims == (32, 16)
    assert toy(hidden_dims=64).hidden_dims == (64,)
    assert toy(hidden_dims=[]).hidden_dims == ()
    for name, dims in MLP_PRESETS.items():
        config = toy(model_id=name)
        assert config.hidden_dims == dims
        assert toy(**config.model_dump(mode="json")) == config
    assert toy(model_id="mlp_small", hidden_dims=None).hidden_dims == (128, 128)
    with pytest.raises(ConfigError, match=r"model_id mlp_small means hidden_dims \[128, 128\]"):
        toy(model_id="mlp_small", hidden_dims=[64, 64])


def test_a_run_needs_a_budget() -> None:
    assert toy().max_env_steps == 100_000
    with pytest.raises(ConfigError, match="max_env_steps and max_epochs are both null"):
        toy(max_env_steps=None)


def test_epochs_alone_are_not_cut_by_the_default_budget() -> None:
    assert toy(max_epochs=5_000).max_env_steps is None
    assert toy(max_epochs=5, max_env_steps=100).max_env_steps == 100


def test_schedule_places_are_checked_against_the_budget() -> None:
    late = {"start": 1, "end": 0, "from": 0.5, "to": 1000}
    assert toy(policy_lr=late, max_env_steps=1500)
    with pytest.raises(ConfigError, match=r"policy_lr: 0\.5 \(env step 50000\) must come before"):
        toy(policy_lr=late, max_env_steps=100_000)
    with pytest.raises(ConfigError, match=r"policy_lr: 0\.5"):
        toy(policy_lr=late, max_epochs=100, n_envs=10, n_steps=100)


def test_eval_warmup_is_a_count_or_a_fraction() -> None:
    assert toy(eval_warmup_epochs=0.25).eval_warmup_epochs == 0.25
    assert type(toy(eval_warmup_epochs=5.0).eval_warmup_epochs) is int
    assert type(toy(eval_warmup_epochs=1.0).eval_warmup_epochs) is int


def test_blocks_are_copied_and_made_plain() -> None:
    kwargs: dict[str, Any] = {"size": (1, 2), "buttons": {3: 0.5}}
    config = toy(env_kwargs=kwargs)
    assert config.env_kwargs == {"size": [1, 2], "buttons": {"3": 0.5}}
    kwargs["size"] = None
    assert config.env_kwargs["size"] == [1, 2]


@pytest.mark.parametrize("algo_id", ["dqn", "sac", "crossq", "td3", "ddpg"])
def test_blocks_keep_the_defaults_of_algorithms_with_a_replay(algo_id: str) -> None:
    """pydantic takes a field from the first base that has it, inherited or not."""
    fields = algo_class(algo_id).Config.model_fields
    assert fields["activation"].default == "relu"
    assert fields["hidden_dims"].default == (256, 256)


@pytest.mark.parametrize("algo_id", algo_ids())
def test_a_field_that_is_declared_again_still_takes_a_schedule(algo_id: str) -> None:
    config = config_class(algo_id)
    for owner in config.__mro__[1:]:
        for name, info in getattr(owner, "model_fields", {}).items():
            if any(isinstance(mark, scheduled) for mark in all_marks(info)):
                marks = all_marks(config.model_fields[name])
                assert any(isinstance(mark, scheduled) for mark in marks), name


def test_a_field_that_is_declared_again_keeps_its_marks() -> None:
    class Own(config_class("sac")):  # type: ignore[misc]
        n_step: int = 2
        tau: float = 0.1
        noise_correlation: float = 0.5

    assert search_range(Own, "n_step") == search_range(config_class("sac"), "n_step") is not None
    assert {"n_step", "tau"} <= set(live_fields(Own))
    assert "noise_correlation" not in live_fields(Own)


def test_replace_checks_what_it_changes() -> None:
    config = toy(policy_lr="lin_0.1", model_id="mlp_tiny")
    assert config.replace(seed=3).seed == 3
    assert config.replace(seed=3).replace(seed=None) == config
    with pytest.raises(ConfigError, match="seed: got -1"):
        config.replace(seed=-1)


def test_json_schema_uses_standard_words() -> None:
    fields = Toy.model_json_schema()["properties"]
    assert fields["n_steps"]["minimum"] == 1
    assert {"type": "null"} in fields["seed"]["anyOf"]
    assert not re.search(r"'(ge|gt|le|lt)':", str(fields))


def test_the_cadence_of_evaluations_is_in_epochs_or_in_env_steps() -> None:
    assert (toy().eval_freq_epochs, toy().eval_freq_steps) == (10, None)
    by_steps = toy(eval_freq_steps=5000)
    assert (by_steps.eval_freq_epochs, by_steps.eval_freq_steps) == (None, 5000)
    assert toy(**by_steps.model_dump(mode="json")) == by_steps
    assert toy(eval_freq_steps=None, eval_freq_epochs=3).eval_freq_epochs == 3
    message = "eval_freq_epochs 3 and eval_freq_steps 5,000 are both given: keep one"
    with pytest.raises(ConfigError, match=message):
        toy(eval_freq_steps=5000, eval_freq_epochs=3)
    for wrong in (0, -1, 2.5):
        with pytest.raises(ConfigError, match="eval_freq_steps"):
            toy(eval_freq_steps=wrong)
    assert by_steps.replace(eval_freq_epochs=3).eval_freq_steps is None
    assert toy(eval_freq_epochs=3).replace(eval_freq_steps=7).eval_freq_epochs is None
    assert by_steps.replace(gamma=0.5).eval_freq_steps == 5000
