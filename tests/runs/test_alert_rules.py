"""Every rule is raised by its illness, not by a healthy run, and has patience."""

from typing import Any

import pytest

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.runs.alerts.judge import RULES, Judge, check_muted
from gymnasium_solver.runs.metrics import describe
from tests.runs.alert_rows import (
    META,
    N_EPOCHS,
    NAN,
    Change,
    healthy_row,
    judged,
    raised,
    rows,
    sac_row,
)

FPS, LOAD = "train/sys/timing/fps_instant", "train/sys/load"
BOX = {"action_space": {"kind": "Box", "shape": [2]}}


def always(metrics: dict[str, Any]) -> Change:
    """These metrics of training in every row."""
    named = {f"train/{name}": value for name, value in metrics.items()}
    return lambda epoch, share: dict(named)


def stuck(mean: float = 21.0) -> dict[str, Any]:
    """A return that never rises."""
    return {
        "train/roll/ep_rew/mean": mean,
        "train/roll/ep_rew/best": mean,
        "train/roll/ep_rew/min": mean - 5,
        "train/roll/ep_rew/max": mean + 5,
    }


ILL: dict[str, tuple[Change, dict[str, Any]]] = {
    "not_finite": (always({"opt/loss/total": NAN}), {}),
    "clock_stalled": (lambda e, s: {"env_steps": 256 * min(e, 50)}, {}),
    "bound_violated": (always({"opt/value/explained_var": 1.2}), {}),
    "throughput_falling": (lambda e, s: {FPS: 9000.0 if e < 50 else 900.0}, {}),
    "reward_stalled": (lambda e, s: stuck() | {"train/plateau/env_steps": 256 * e}, {}),
    "reward_falling": (
        lambda e, s: {} if e < 60 else stuck(50.0) | {"train/roll/ep_rew/best": 188.0},
        {},
    ),
    "batch_norm_sparse": (
        always({f"roll/ep_rew/{which}": 0.0 for which in ("mean", "best", "min", "max")}),
        {"config": {"norm": "batch"}},
    ),
    "constant_return": (
        always({f"roll/ep_rew/{which}": 0.0 for which in ("mean", "best", "min", "max")}),
        {},
    ),
    "all_truncated": (
        lambda e, s: stuck() | {"train/roll/ep_rew/min": 21.0, "train/roll/ep_rew/max": 21.0}
        | {"train/roll/ep_truncated": 1.0},
        {},
    ),
    "memory_needed": (
        lambda e, s: stuck()
        | {"train/plateau/env_steps": 256 * e, "train/roll/reward/ambiguous": 0.5},
        {},
    ),
    "eval_below_train": (
        lambda e, s: {"val/roll/ep_rew/mean": 30.0} if e % 10 == 0 else {},
        {},
    ),
    "short_horizon": (lambda e, s: stuck(), {"config": {"gamma": 0.0}}),
    "entropy_collapse": (lambda e, s: {"train/opt/policy/entropy": 0.69 if e < 10 else 0.01}, {}),
    "initial_actions": (always({"roll/actions/hist/00": 0.95, "roll/actions/hist/01": 0.05}), {}),
    "kl_high": (always({"opt/ppo/approx_kl": 0.4, "opt/ppo/kl": 0.4}), {}),
    "kl_low": (always({"opt/ppo/approx_kl": 1e-6, "opt/ppo/kl": 1e-6}), {}),
    "clip_fraction_high": (always({"opt/ppo/clip_fraction": 0.7, "opt/ppo/approx_kl": 0.03}), {}),
    "clip_fraction_low": (lambda e, s: stuck() | {"train/opt/ppo/clip_fraction": 0.0}, {}),
    "value_clip_high": (always({"opt/ppo/clip_fraction_vf": 0.8}), {}),
    "kl_disagree": (always({"opt/ppo/approx_kl": 0.09, "opt/ppo/kl": 0.3}), {}),
    "explained_variance_negative": (always({"opt/value/explained_var": -0.6}), {}),
    "no_signal": (always({"roll/adv/std": 0.0, "opt/value/explained_var": None}), {}),
    "dead_units": (always({"opt/activations/dead": 0.95, "opt/activations/dead_max": 0.99}), {}),
    "observations_outside": (always({"roll/obs/outside": 0.2}), {}),
    "gradients_huge": (always({"opt/grads/norm/all": 1e6}), {}),
    "q_diverging": (lambda e, s: {"train/opt/q/mean": 1.2**e}, {}),
    "alpha_high": (always({"opt/policy/alpha": 50.0}), {}),
    "alpha_low": (always({"opt/policy/alpha": 1e-9}), {"config": {"ent_coef": "auto"}}),
    "priorities_degenerate": (always({"opt/replay/priority_evenness": 0.001}), {}),
}  # fmt: skip
OFF_POLICY = ("q_diverging", "alpha_high", "alpha_low", "priorities_degenerate")


def test_every_rule_has_its_illness_here() -> None:
    assert ILL.keys() == RULES.keys()


def test_healthy_runs_are_silent() -> None:
    assert raised(rows()) == []
    assert raised(rows(base=sac_row)) == []
    assert raised(rows(), meta=BOX) == []


@pytest.mark.parametrize("name", ILL)
def test_an_illness_raises_its_alert(name: str) -> None:
    change, settings = ILL[name]
    base = sac_row if name in OFF_POLICY else healthy_row
    assert name in raised(rows(change, base), **settings)


def test_an_alert_says_what_was_seen_what_it_means_and_what_to_try() -> None:
    alerts = judged(rows(always({"opt/ppo/approx_kl": 0.4, "opt/ppo/kl": 0.4})))
    alert = next(alert for alert in alerts if alert.name == "kl_high")
    assert alert.text == "approx_kl 0.4 nats per update, median of 10"
    assert alert.metric == "train/opt/ppo/approx_kl"
    assert alert.env_steps == 256 * 12, "ten rows for the median, three in a row"
    assert alert.meaning.endswith(".")
    assert alert.advice.startswith("gsolve train CartPole-v1:ppo --policy-lr 0.0001;")


def test_the_advice_fits_what_happened() -> None:
    change, _ = ILL["entropy_collapse"]

    def advice(*changes: Change) -> str:
        merged = rows(lambda e, s: {k: v for c in changes for k, v in c(e, s).items()})
        return next(a.advice for a in judged(merged) if a.name == "entropy_collapse")

    assert advice(change).startswith("gsolve train CartPole-v1:ppo --ent-coef 0.01")
    ruined = advice(change, lambda e, s: {"train/opt/ppo/approx_kl": 75.0} if e == 10 else {})
    assert ruined.startswith("gsolve train CartPole-v1:ppo --policy-lr 3e-06")


@pytest.mark.parametrize(("config", "is_advised"), [
    ({"recurrent": None}, True), ({"recurrent": "gru"}, False), ({}, False),
    ({"recurrent": None, "frame_stack": 4}, False),
])  # fmt: skip
def test_a_memory_is_advised_where_there_is_none(config: dict[str, Any], is_advised: bool) -> None:
    alerts = judged(rows(ILL["reward_stalled"][0]), config=config)
    advice = next(a.advice for a in alerts if a.name == "reward_stalled")
    assert ("--recurrent gru" in advice) is is_advised


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_every_rule_is_documented(rule: Any) -> None:
    assert rule.when
    assert rule.meaning.endswith(".")
    assert describe(rule.metric).description
    judge = Judge({}, {})
    judge.history.see(healthy_row(1))
    assert rule.advise(judge.history)


# -- patience -------------------------------------------------------------------------------


def test_single_rows_do_not_raise() -> None:
    def spike(epoch: int, share: float) -> dict[str, Any]:
        return {"train/opt/ppo/approx_kl": 0.4, "train/opt/ppo/kl": 0.4} if epoch % 4 == 0 else {}

    assert raised(rows(spike)) == []


def test_an_alert_ends_and_may_come_back() -> None:
    def waves(epoch: int, share: float) -> dict[str, Any]:
        high = (epoch // 20) % 2 == 1
        return {"train/opt/ppo/approx_kl": 0.4, "train/opt/ppo/kl": 0.4} if high else {}

    alerts = [alert for alert in judged(rows(waves)) if alert.name == "kl_high"]
    assert [alert.is_over for alert in alerts] == [False, True, False, True]
    assert [alert.env_steps // 256 for alert in alerts] == [26, 47, 66, 87]
    steps = [alert.env_steps for alert in alerts]
    assert steps == sorted(steps)


def test_a_lasting_illness_is_raised_once() -> None:
    change, _ = ILL["kl_high"]
    assert raised(rows(change)).count("kl_high") == 1


def test_a_warm_up_is_not_judged() -> None:
    early = [row for row in rows(ILL["constant_return"][0]) if row["progress"] < 0.1]
    assert raised(early) == []


def test_a_share_of_a_long_budget_needs_a_hundred_rows_at_most() -> None:
    def long(epoch: int) -> dict[str, Any]:
        row = healthy_row(epoch) | {"progress": epoch / 1e6, "train/opt/policy/entropy": 0.69}
        return row if epoch < 10 else row | {"train/opt/policy/entropy": 0.01}

    found = [long(epoch) for epoch in range(1, 150)]
    alerts = [a for a in judged(found) if a.name == "entropy_collapse"]
    assert [a.env_steps for a in alerts] == [256 * 109]


# -- what is healthy though it looks ill ------------------------------------------------------


def test_a_policy_that_reached_its_target_may_be_sure() -> None:
    def solved(epoch: int, share: float) -> dict[str, Any]:
        return {"train/opt/policy/entropy": 0.001} | stuck(490.0) if epoch > 40 else {}

    assert raised(rows(solved)) == []


def test_a_learning_rate_that_is_scheduled_to_zero_makes_small_updates() -> None:
    def decay(epoch: int, share: float) -> dict[str, Any]:
        return {
            "train/hp/policy_lr": 3e-4 * (1 - share),
            "train/opt/ppo/approx_kl": 1e-6 if share > 0.85 else 0.01,
            "train/opt/ppo/kl": 0.0,
        }

    assert raised(rows(decay)) == []


def test_a_clip_range_that_is_scheduled_to_zero_clips_small_updates() -> None:
    def decay(epoch: int, share: float) -> dict[str, Any]:
        clipped = 0.9 if share > 0.8 else 0.2
        return {"train/opt/ppo/clip_fraction": clipped, "train/hp/clip_range": 0.2 * (1 - share)}

    assert raised(rows(decay)) == []


def test_without_a_target_a_plateau_above_the_start_is_fine() -> None:
    def plateau(epoch: int, share: float) -> dict[str, Any]:
        return {} if epoch < 30 else stuck(104.0) | {"train/plateau/env_steps": 256 * (epoch - 30)}

    assert "reward_stalled" not in raised(rows(plateau), meta={"threshold": None})
    assert "reward_stalled" in raised(rows(plateau))
    reference = {"spec": {"returns": {"reference": 100.0}}}
    assert raised(rows(plateau), meta={"threshold": None}, config=reference) == []


def test_a_machine_that_became_busy_is_not_the_fault_of_the_run() -> None:
    slow, _ = ILL["throughput_falling"]

    def with_load(first: float, later: float) -> list[str]:
        return raised(rows(lambda e, s: slow(e, s) | {LOAD: first if e < 50 else later}))

    assert with_load(0.5, 0.5) == ["throughput_falling"]
    assert with_load(0.5, 0.9) == []
    assert with_load(3.0, 3.0) == [], "the share of a busy CPU changes all the time"


def test_collecting_before_learning_starts_is_not_the_speed_of_the_run() -> None:
    def replay(epoch: int, share: float) -> dict[str, Any]:
        norm = ... if epoch < 40 else 5.0
        return {FPS: 9000.0 if epoch < 40 else 900.0, "train/opt/grads/norm/all": norm}

    assert raised(rows(replay)) == []


def test_episodes_that_are_always_truncated_are_fine_where_the_return_rises() -> None:
    assert raised(rows(always({"roll/ep_truncated": 1.0}))) == []


def test_without_a_target_a_policy_may_be_sure_once_the_return_has_risen() -> None:
    change, _ = ILL["entropy_collapse"]
    assert raised(rows(change), meta={"threshold": None}) == []
    flat = raised(rows(lambda e, s: change(e, s) | stuck()), meta={"threshold": None})
    assert "entropy_collapse" in flat


def test_bandits_look_no_step_ahead() -> None:
    assert raised(rows(), config={"gamma": 0.0}) == []


def test_legal_actions_need_not_be_uniform() -> None:
    skewed = {"roll/actions/hist/00": 1.0, "roll/actions/hist/01": 0.0}
    assert raised(rows(always({**skewed, "roll/actions/legal": 0.6}))) == []
    assert raised(rows(always({**skewed})), config={"init_from_run": "@last"}) == []


def test_a_box_is_judged_by_mean_and_spread() -> None:
    assert raised(rows(always({"roll/actions/mean": 0.9})), meta=BOX) == ["initial_actions"]
    assert raised(rows(always({"roll/actions/std": 0.001})), meta=BOX) == ["initial_actions"]

    def narrower(epoch: int, share: float) -> dict[str, Any]:
        return {"train/opt/policy/entropy": 2.8 - 8 * share}

    assert "entropy_collapse" in raised(rows(narrower), meta=BOX)
    assert raised(rows(lambda e, s: {"train/opt/policy/entropy": 2.8 - 4 * s}), meta=BOX) == []


def test_null_is_fine_where_a_metric_is_not_defined() -> None:
    assert raised(rows(lambda e, s: {"train/roll/ep_rew/best": None})) == []
    assert raised(rows(lambda e, s: {"train/opt/loss/policy": None} if e == 9 else {})) == [
        "not_finite"
    ]


def test_values_in_normalised_units_are_judged_in_them() -> None:
    def large(epoch: int, share: float) -> dict[str, Any]:
        return {"train/opt/q/mean": 2000.0, "train/roll/reward/max": 0.001}

    assert "q_diverging" in raised(rows(large, sac_row))
    normalised = {"normalize_reward": True, "clip_reward": 10.0}
    assert raised(rows(large, sac_row), config=normalised) == []


# -- settings ---------------------------------------------------------------------------------


def test_alerts_can_be_muted() -> None:
    change, _ = ILL["kl_high"]
    assert "kl_high" not in raised(rows(change), config={"mute_alerts": ["kl_high"]})
    assert raised(rows(change), config={"mute_alerts": ["all"]}) == []


def test_a_wrong_name_is_refused() -> None:
    check_muted(["all", "kl_high"])
    with pytest.raises(
        ConfigError, match=r"mute_alerts: there is no alert 'kl_hihg'. Did you mean kl_high"
    ):
        check_muted(["kl_hihg"])


def test_a_run_of_an_earlier_version_is_judged_by_what_it_logged() -> None:
    new = {"ep_rew/std", "plateau", "ep_truncated", "actions", "activations", "obs/outside", "adv"}
    old = [{n: v for n, v in row.items() if not any(x in n for x in new)} for row in rows()]
    assert raised(old, meta={"threshold": META["threshold"], "action_space": None}) == []
    judge = Judge({}, {})
    for row in old:
        judge.see(row)
    assert {"dead_units", "observations_outside", "reward_stalled"} <= set(judge.not_judged)
    assert len(old) == N_EPOCHS


def test_a_task_of_fixed_length_is_not_all_truncated() -> None:
    """Its returns differ: it pays on the way, and its end is no goal."""
    assert "all_truncated" not in raised(
        rows(lambda e, s: stuck() | {"train/roll/ep_truncated": 1.0})
    )


@pytest.mark.parametrize("name", ["no_signal", "dead_units", "explained_variance_negative"])
def test_a_perfect_policy_raises_no_alert(name: str) -> None:
    change, facts = ILL[name]
    perfect = {"train/roll/ep_rew/mean": 500.0, "train/roll/ep_rew/best": 500.0}
    assert name not in raised(rows(lambda e, s: change(e, s) | perfect), **facts)


def test_memory_is_not_named_to_a_policy_that_has_it() -> None:
    change, _ = ILL["memory_needed"]
    assert "memory_needed" not in raised(rows(change), config={"recurrent": "gru"})
