"""The declared metrics."""

import pytest

from gymnasium_solver.runs.metrics import DECLARED, METRICS, describe, find_metrics

NAMES = [
    "train/roll/ep_rew/mean",
    "train/roll/ep_rew/best",
    "train/roll/ep_rew/last",
    "train/roll/ep_len/mean",
    "train/cnt/total_env_steps",
    "train/cnt/total_episodes",
    "train/cnt/epoch",
    "train/opt/loss/total",
    "train/opt/loss/policy",
    "train/opt/loss/value",
    "train/opt/loss/td",
    "train/opt/loss/critic",
    "train/opt/loss/alpha",
    "train/opt/q/mean",
    "train/opt/policy/entropy",
    "train/opt/policy/alpha",
    "train/opt/value/explained_var",
    "train/opt/ppo/approx_kl",
    "train/opt/ppo/clip_fraction",
    "train/opt/ppo/kl_stop_triggered",
    "train/opt/grads/norm/all",
    "train/opt/grads/norm/policy",
    "train/opt/grads/norm/critic",
    "train/hp/policy_lr",
    "train/hp/clip_range",
    "train/hp/ent_coef",
    "train/hp/vf_coef",
    "train/hp/epsilon",
    "train/hp/temperature",
    "train/sys/timing/time_elapsed",
    "train/sys/timing/fps",
    "train/sys/timing/fps_instant",
    "train/sys/timing/eta_s",
    "train/sys/timing/env_share",
    "train/sys/timing/act_share",
    "train/sys/timing/update_share",
    "train/sys/timing/eval_share",
    "val/roll/ep_rew/mean",
    "val/roll/ep_rew/std",
    "val/roll/ep_rew/min",
    "val/roll/ep_rew/max",
    "val/roll/ep_rew/best",
    "val/roll/ep_len/mean",
    "progress",
    "train/roll/ep_rew/std",
    "train/roll/ep_len/last",
    "train/roll/ep_truncated",
    "train/roll/env_steps",
    "train/roll/vec_steps",
    "train/roll/episodes",
    *(
        f"train/roll/{what}/{statistic}"
        for what in ("obs", "reward", "return", "adv", "adv_norm", "actions", "baseline")
        for statistic in ("mean", "std")
    ),
    "train/roll/obs/outside",
    "train/cnt/total_vec_steps",
    "train/cnt/total_rollouts",
    "train/cnt/total_updates",
    "train/opt/loss/value_scaled",
    "train/opt/loss/entropy",
    "train/opt/loss/entropy_scaled",
    "train/opt/ppo/kl",
    "train/opt/ppo/clip_fraction_vf",
    "train/opt/activations/dead",
    "train/sys/timing/eps",
    "train/plateau/env_steps",
    "test/roll/ep_rew/mean",
    "test/roll/ep_len/mean",
    "test/solved",
]
PATTERNS = [
    ("train/roll/actions/hist/03", "number 03"),
    ("train/roll/obs/image/std", "part image"),
    ("train/roll/ep_part/pole/mean", "part pole"),
    ("train/opt/grads/norm/actor_head", "actor_head"),
    ("train/opt/activations/actor_torso.1/dead", "actor_torso.1"),
    ("train/hp/gamma", "gamma"),
    ("alert/entropy_collapse", "entropy_collapse"),
]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_declared_and_described(name: str) -> None:
    metric = describe(name)
    assert metric is METRICS[name]
    assert metric.description
    assert name.startswith(metric.group)


def test_direction_is_only_told_where_there_is_one() -> None:
    assert describe("val/roll/ep_rew/mean").better == "up"
    assert describe("train/opt/loss/value").better is None  # it rises as returns grow
    assert describe("train/opt/policy/entropy").better is None


def test_undeclared_names_get_neutral_properties() -> None:
    metric = describe("train/hp/gamma")
    assert (metric.group, metric.better) == ("train/hp", None)
    assert "gamma" in metric.description
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
