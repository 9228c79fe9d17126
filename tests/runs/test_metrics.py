"""The declared metrics, and names of other systems that are found as ours."""

import pytest

from gymnasium_solver.runs.metrics import (
    DECLARED,
    METRICS,
    OLDER,
    SYSTEMS,
    aliases_of,
    canonical,
    describe,
    find_metrics,
)

PATTERNS = [
    ("train/roll/actions/hist/03", "number 03"),
    ("train/roll/obs/image/std", "part image"),
    ("train/roll/ep_part/pole/mean", "part pole"),
    ("train/opt/grads/norm/actor_head", "actor_head"),
    ("train/opt/activations/actor_torso.1/dead", "actor_torso.1"),
    ("train/hp/gamma", "gamma"),
    ("alert/entropy_collapse", "entropy_collapse"),
]


def test_direction_is_only_told_where_there_is_one() -> None:
    assert describe("val/roll/ep_rew/mean").better == "up"
    assert describe("train/opt/loss/value").better is None  # it rises as returns grow
    assert describe("train/opt/policy/entropy").better is None


def test_undeclared_names_get_neutral_properties() -> None:
    metric = describe("train/hp/gamma")
    assert (metric.group, metric.better) == ("train/hp", None)
    assert "gamma" in metric.description
    other = describe("train/custom/my_thing/of")
    assert (metric.label, other.label) == ("gamma", "my thing of")
    other = describe("train/custom/thing")
    assert (other.name, other.group, other.show) == ("train/custom/thing", "train/custom", False)


def test_format() -> None:
    assert describe("train/sys/timing/fps").format(123456.7) == "123,457"
    assert describe("val/roll/ep_rew/mean").format(1.005e3) == "1,005.00"
    assert describe("progress").format(None) == "-"


@pytest.mark.parametrize(("name", "text"), PATTERNS)
def test_a_name_made_of_parts_is_described_by_its_pattern(name: str, text: str) -> None:
    metric = describe(name)
    assert metric.name == name
    assert text in metric.description
    assert "<" not in metric.description


def test_every_metric_is_declared_once() -> None:
    names = [metric.name for metric in DECLARED]
    assert len(names) == len(set(names)) == len(METRICS)


def test_declarations_are_consistent() -> None:
    for metric in METRICS.values():
        low, high = metric.bounds
        assert low is None or high is None or low < high, metric.name
        assert not (metric.is_detail and metric.show), f"{metric.name} is not in every row"
        assert metric.description[0].isupper() or metric.description[0].isdigit(), metric.name
        assert 0 < len(metric.label) <= 36, metric.name
    labels = [metric.label for metric in METRICS.values()]
    assert len(labels) == len(set(labels)), [one for one in labels if labels.count(one) > 1]
    assert describe("val/roll/ep_rew/mean").label == "validation return"


def test_the_console_shows_metrics_in_the_order_of_their_priority() -> None:
    shown = [metric.priority for metric in METRICS.values() if metric.priority is not None]
    assert shown == sorted(shown)
    assert len(shown) == len(set(shown))
    assert next(iter(METRICS)) == "train/roll/ep_rew/mean"


def test_metrics_are_found_by_words_of_name_and_meaning() -> None:
    found = [metric.name for metric in find_metrics("kl divergence")]
    assert found == ["train/opt/ppo/approx_kl", "train/opt/ppo/kl"]
    assert find_metrics("no such thing") == []
    assert len(find_metrics()) == len(METRICS)


# -- names elsewhere -------------------------------------------------------------------------------

ALL = [*METRICS, "train/opt/grads/norm/actor_head"]
PPO = [name for name in ALL if name not in ("train/opt/loss/td", "train/opt/loss/critic")]
DQN = [name for name in ALL if name not in ("train/opt/loss/total", "train/opt/loss/critic")]


@pytest.mark.parametrize(
    ("other", "ours"),
    [
        ("rollout/ep_rew_mean", "train/roll/ep_rew/mean"),
        ("eval/mean_reward", "val/roll/ep_rew/mean"),
        ("eval/ep_rew_mean", "val/roll/ep_rew/mean"),
        ("val/ep_rew_best", "val/roll/ep_rew/best"),
        ("test/ep_rew_mean", "test/roll/ep_rew/mean"),
        ("ep_rew_mean", "train/roll/ep_rew/mean"),
        ("train/loss/policy", "train/opt/loss/policy"),
        ("train/opt/policy_lr", "train/hp/policy_lr"),
        ("charts/episodic_return", "train/roll/ep_rew/last"),
        ("charts/SPS", "train/sys/timing/fps"),
        ("charts/sps", "train/sys/timing/fps"),
        ("losses/clipfrac", "train/opt/ppo/clip_fraction"),
        ("total_reward_ma", "train/roll/ep_rew/mean"),
        ("Avg. Episodic Reward", "train/roll/ep_rew/mean"),
        ("train/grad_norm/policy_head", "train/opt/grads/norm/actor_head"),
        ("roll/ep_len/mean", "train/roll/ep_len/mean"),
        ("opt/ppo/kl", "train/opt/ppo/kl"),
    ],
)
def test_a_known_name_is_ours(other: str, ours: str) -> None:
    assert canonical(other, ALL) == ours


def test_a_name_with_several_meanings_is_the_one_that_was_logged() -> None:
    assert canonical("train/loss", PPO) == "train/opt/loss/total"
    assert canonical("train/loss", DQN) == "train/opt/loss/td"
    assert canonical("train/loss", ["env_steps"]) is None
    assert canonical("train/no_such_thing", ALL) is None


def test_every_alias_means_a_declared_metric() -> None:
    ours = {name for names in SYSTEMS.values() for found in names.values() for name in found}
    ours |= {f"train/{name}" for name in OLDER.values()}
    assert [name for name in sorted(ours) if not describe(name).description] == []


def test_no_alias_hides_a_metric_of_ours() -> None:
    others = {name for names in SYSTEMS.values() for name in names}
    others |= {f"{stage}/{name}" for stage in ("train", "val", "test") for name in OLDER}
    assert others & METRICS.keys() == set()


def test_a_metric_knows_its_other_names() -> None:
    known = aliases_of("train/opt/ppo/approx_kl")
    assert {"train/approx_kl", "losses/approx_kl"} <= set(known)
    assert len(known) == len(set(known))
    assert aliases_of("train/roll/actions/hist/<bin>") == []
