"""The declared metrics."""

import pytest

from gymnasium_solver.runs.metrics import METRICS, describe

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
