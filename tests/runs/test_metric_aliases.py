"""Names of other systems are found as ours."""

import pytest

from gymnasium_solver.runs.metric_aliases import OLDER, SYSTEMS, aliases_of, canonical
from gymnasium_solver.runs.metrics import METRICS, describe

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
