"""Search spaces: distributions, their texts, conditions, and the ranges that fields declare."""

import math
import random
from typing import Annotated, Any

import pytest

from gymnasium_solver.algos import algo_class, algo_ids
from gymnasium_solver.config.marks import search_ranges, searched
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments.search.ranges import Numbers, Options, read_distribution
from gymnasium_solver.experiments.search.space import (
    Space,
    check_names,
    overrides,
    param_of,
    read_param,
)

TEXTS = {
    "policy_lr=log:1e-5..1e-2": (1e-5, 1e-2),
    "ent_coef=log0:1e-5..0.1": (0.0, 0.1),
    "clip_range=0.1..0.4": (0.1, 0.4),
    "clip_range=uniform:0.1..0.4:0.05": (0.1, 0.4),
    "n_epochs=3..20": (3, 20),
    "n_epochs=int:4..20:4": (4, 20),
    "target_update_freq=logint:50..10_000": (50, 10_000),
    "n_steps=pow2:32..2048": (32, 2048),
    "gamma=logit:0.9..0.9995": (0.9, 0.9995),
    "ent_coef=normal:0.01,0.003": (0.01 - 4 * 0.003, 0.01 + 4 * 0.003),
    "ent_coef=normal:0.01,0.005,0..0.02": (0.0, 0.02),
    "ent_coef=normal:0.01,0.005,0..": (0.0, 0.03),
    "ent_coef=normal:0.01,0.005,0..0.02:0.004": (0.0, 0.02),
    "ent_coef=lognormal:-5,1": (0.0, math.exp(-1)),
    "ent_coef=lognormal:-5,1,..0.01": (0.0, 0.01),
}


@pytest.mark.parametrize("text", TEXTS)
def test_values_stay_inside_and_survive_the_way_through_the_latent(text: str) -> None:
    param = read_param(text)
    low, high = TEXTS[text]
    latent = param.distribution.latent()
    assert isinstance(latent, Numbers)
    rng = random.Random(0)
    for _ in range(200):
        at = rng.uniform(latent.low, latent.high)
        value = param.distribution.decode(round(at) if latent.is_int else at)
        assert low <= value <= high
        again = param.distribution.decode(param.distribution.encode(value))
        assert again == pytest.approx(value, rel=1e-4)
    assert param_of(param.name, str(param)) == param  # the text that sweep.yaml keeps


def test_a_logarithmic_range_with_zero() -> None:
    found = read_distribution("log0:1e-5..0.1")
    latent = found.latent()
    assert isinstance(latent, Numbers)
    values = [found.decode(latent.at(i / 1000)) for i in range(1001)]
    assert 90 <= values.count(0.0) <= 110
    assert min(value for value in values if value) >= 1e-5
    assert found.decode(found.encode(0.0)) == 0.0
    assert found.decode(found.encode(0.01)) == pytest.approx(0.01)


def test_scales() -> None:
    lr = read_distribution("log:1e-5..1e-1")
    assert lr.grid(5) == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2, 1e-1])
    assert read_distribution("pow2:32..256").grid(9) == [32, 64, 128, 256]
    assert read_distribution("0.1..0.4:0.15").decode(0.2) == pytest.approx(0.15)
    assert read_distribution("int:2..10:4").decode(5) == 4
    gamma = read_distribution("logit:0.9..0.999")
    middle = gamma.grid(3)[1]
    assert math.log(middle / (1 - middle)) == pytest.approx(
        (math.log(9) + math.log(999)) / 2, rel=1e-4
    )


def test_choices() -> None:
    assert read_distribution("4,10,20").grid(2) == [4, 10, 20]
    dims = read_distribution("[[64, 64], [256, 256]]")
    latent = dims.latent()
    assert isinstance(latent, Options)
    assert latent.options == ("[64, 64]", "[256, 256]")
    assert dims.decode("[256, 256]") == [256, 256]
    assert dims.encode((64, 64)) == "[64, 64]"
    assert read_distribution("mc:rtg,mc:episode").grid(1) == ["mc:rtg", "mc:episode"]
    assert read_distribution("true,false").grid(1) == [True, False]
    weighted = read_distribution("choice:[1, 2]:[0.25, 0.75]")
    assert [weighted.decode(x) for x in (0.0, 0.24, 0.26, 1.0)] == [1, 1, 2, 2]
    assert weighted.decode(weighted.encode(2)) == 2
    assert read_distribution("4,10,20").encode(11) == 10  # the nearest, for the config's own value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("policy_lr", "expected FIELD=RANGE"),
        ("policy_lr=", "expected FIELD=RANGE"),
        ("policy_lr=lgo:1..2", "unknown distribution 'lgo'. Did you mean log?"),
        ("policy_lr=log:0..1", "must begin above 0"),
        ("policy_lr=1e-2..1e-3", "must be below"),
        ("policy_lr=0.001", "one value needs no search"),
        ("policy_lr=log:1..x", "'x' is not a number"),
        ("gamma=logit:0.5..2", "between 0 and 1"),
        ("n_steps=pow2:30..64", "30 is not a power of two"),
        ("n_steps=4,4", "given twice"),
        ("x=choice:[1, 2]:[0.5, 0.6]", "with the sum 1"),
        ("x=normal:1", "expected normal:MEAN,STD"),
        ("x=normal:1,2,3", "or normal:MEAN,STD,LOW..HIGH"),
        ("x=normal:1,2,100..200", "almost nothing lies between the bounds 100..200"),
        ("x=0..1:2", "does not fit"),
        ("x=0..1 if y", "expected FIELD=VALUE"),
        ("x__logunifrom=1,2", "Did you mean loguniform?"),
        ("x__uniform=1", "takes 2 arguments"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_param(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_slm_lab_keys() -> None:
    texts = {
        "policy_lr__loguniform=1e-5,1e-2": "log:1e-05..0.01",
        "n_epochs__randint=1,9": "int:1..8",  # 9 is excluded
        "clip_range__quniform=0.1,0.4,0.1": "uniform:0.1..0.4:0.1",
        "ent_coef__randn=0.01,0.002": "normal:0.01,0.002",
        "n_epochs__choice=[4, 8]": "choice:[4, 8]",
    }
    assert {text: str(read_param(text).distribution) for text in texts} == texts


def space_of(*texts: str) -> Space:
    return Space(tuple(map(read_param, texts)))


def test_conditions() -> None:
    space = space_of(
        "tau=log:1e-3..0.1 if target_update_freq=1",
        "target_update_freq=1,500",
        "per_alpha=0.4..0.8 if prioritized=true",
    )
    assert [param.name for param in space.ordered()][:2] == ["target_update_freq", "per_alpha"]

    def drawn(share: float, prioritized: Any) -> set[str]:
        """The parameters that are searched where all values stand at this share of their ranges."""
        return set(space.draw(lambda p: p.latent().at(share), {"prioritized": prioritized}))

    assert drawn(0.0, False) == {"tau", "target_update_freq"}
    assert drawn(0.0, True) == {param.name for param in space.params}
    assert drawn(0.99, 1) == {"target_update_freq"}  # 1 is not true
    with pytest.raises(ConfigError, match="depend on each other"):
        space_of("a=0..1 if b=1", "b=0..1 if a=1").ordered()


def test_names_are_checked() -> None:
    fields = algo_class("ppo").Config.model_fields

    def refused(text: str) -> str:
        with pytest.raises(ConfigError) as error:
            check_names(space_of(text), fields)
        return str(error.value)

    assert refused("polcy_lr=0..1") == "polcy_lr: unknown field. Did you mean policy_lr?"
    assert "Did you mean policy_lr?" in refused("learning_rate=0..1")
    assert "every trial has a seed of its own" in refused("seed=1,2")
    assert refused("n_epochs=4,8 if clip_rnge>0.1").startswith("clip_rnge: unknown field.")
    with pytest.raises(ConfigError, match="given twice"):
        space_of("a=0..1", "a=0..2")
    with pytest.raises(ConfigError, match="set the same field"):
        space_of("a=0..1", "a.start=0..2")


def test_a_part_of_a_schedule_keeps_the_rest() -> None:
    config = {"policy_lr": {"start": 0.003, "end": 0.0}, "clip_range": 0.2, "env_kwargs": {}}
    assert overrides({"policy_lr.start": 0.01}, config) == {
        "policy_lr": {"start": 0.01, "end": 0.0}
    }
    assert overrides({"policy_lr": 0.01}, config) == {"policy_lr": 0.01}
    assert overrides({"clip_range.start": 0.3}, config) == {"clip_range": 0.3}
    assert overrides({"clip_range.end": 0.1}, config) == {"clip_range": {"start": 0.2, "end": 0.1}}
    both = {"clip_range.start": 0.3, "clip_range.end": 0.1}
    assert overrides(both, config) == {"clip_range": {"start": 0.3, "end": 0.1}}
    assert overrides({"env_kwargs.level": 3}, config) == {"env_kwargs": {"level": 3}}


@pytest.mark.parametrize("algo_id", algo_ids())
def test_declared_ranges_are_ranges_of_their_fields(algo_id: str) -> None:
    config = algo_class(algo_id).Config
    ranges = search_ranges(config)
    if algo_id == "random":
        assert not ranges  # nothing is learnt
        return
    assert ranges["gamma" if algo_id == "mbie" else "policy_lr"].main
    env_id = (
        "Pendulum-v1" if algo_id in ("sac", "crossq", "td3", "ddpg", "tdmpc2") else "CartPole-v1"
    )
    for name, item in ranges.items():
        for value in read_distribution(item.text).grid(3):
            config(env_id=env_id, algo_id=algo_id, **{name: value})


def test_main_ranges_of_each_algorithm() -> None:
    """What `gsolve sweep CONFIG` searches."""
    main = {
        algo_id: [n for n, item in search_ranges(algo_class(algo_id).Config).items() if item.main]
        for algo_id in ("ppo", "a2c", "dqn", "sac")
    }
    common = {"policy_lr", "gamma"}
    assert set(main["ppo"]) == common | {
        *("n_steps", "batch_size", "n_epochs", "gae_lambda", "clip_range", "ent_coef")
    }
    # Not n_steps, which decides only how often A2C reports.
    assert set(main["a2c"]) == common | {"rollout_steps", "gae_lambda", "ent_coef"}
    assert set(main["dqn"]) == common | {"batch_size", "target_update_freq"}
    assert set(main["sac"]) == common | {"batch_size", "tau"}


def test_the_schema_has_the_ranges() -> None:
    properties = algo_class("ppo").Config.model_json_schema()["properties"]
    assert properties["clip_range"]["x-search"] == "0.1..0.4"
    assert properties["target_kl"]["x-search"] == "log:0.003..0.1"
    assert properties["hidden_dims"]["x-search"] == "[[64, 64], [128, 128], [256, 256]]"
    assert "x-search" not in properties["n_envs"]


def test_a_field_may_declare_its_range() -> None:
    class Own(algo_class("ppo").Config):  # type: ignore[misc]
        gamma: Annotated[float, searched("0.5..0.9", main=True)] = 0.9
        n_epochs: Annotated[int, searched("")] = 3

    ranges = search_ranges(Own)
    assert ranges["gamma"].text == "0.5..0.9"
    assert "n_epochs" not in ranges
    assert ranges["policy_lr"].text == "log:1e-5..1e-2"
