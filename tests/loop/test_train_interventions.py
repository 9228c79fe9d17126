"""Rules that change fields when a metric stalls."""

from collections.abc import Callable
from typing import Any

import pytest

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.runs.edits import read_edits
from gymnasium_solver.training.interventions import check_interventions, watch_row

Call = Callable[..., Any]
NEVER = 1e9  # no metric improves by this much


def fired(config: Any, metric: str, values: list[float]) -> list[Any]:
    """The change decided after each value."""
    states: dict[str, Any] = {}
    found = []
    for value in values:
        watch_row(config, states, {metric: value})
        (state,) = states.values()
        found.append(state["due"])
        state["due"] = None
    return found


def test_patience_cooldown_and_limits(make_config: Call) -> None:
    rule = {
        "metric": "m",
        "patience": 2,
        "cooldown": 1,
        "max_times": 2,
        "change": {"policy_lr": {"multiply": 0.5}},
    }
    config = make_config("ppo", "CartPole-v1", policy_lr=0.1, interventions=[rule])
    change = {"policy_lr": 0.05}
    # improves, stalls, stalls: change; cooldown; stalls, stalls: change; then the limit
    seen = fired(config, "m", [1, 1, 1, 1, 1, 1, 1, 1, 1])
    assert seen == [None, None, change, None, None, change, None, None, None]
    assert not any(fired(config, "m", [1, 2, 3, 4, 5, 6]))
    assert not any(fired(config, "m", [1, 1, 2, 2, 3, 3])), "an improvement starts the count anew"


def test_a_metric_to_minimise_and_a_least_difference(make_config: Call) -> None:
    rule = {"metric": "m", "mode": "min", "patience": 2, "min_delta": 0.5, "change": {"gamma": 0.5}}
    config = make_config("ppo", "CartPole-v1", interventions=[rule])
    assert not any(fired(config, "m", [5, 4, 3, 2]))
    assert fired(config, "m", [5, 4.9, 4.8])[-1] == {"gamma": 0.5}


@pytest.mark.parametrize(
    ("old", "rule", "new"),
    [
        (0.1, {"multiply": 0.5}, 0.05),
        (0.1, {"add": 0.1, "max": 0.15}, 0.15),
        (0.1, {"multiply": 0.01, "min": 0.01}, 0.01),
        ({"start": 0.1, "end": 0.2}, {"multiply": 2}, {"start": 0.2, "end": 0.4}),
        (0.1, {"start": 0.3, "end": 0.1}, {"start": 0.3, "end": 0.1}),
    ],
)
def test_new_values(make_config: Call, old: Any, rule: Any, new: Any) -> None:
    rules = [{"metric": "m", "patience": 1, "change": {"policy_lr": rule}}]
    config = make_config("ppo", "CartPole-v1", policy_lr=old, interventions=rules)
    assert fired(config, "m", [1, 1])[-1] == {"policy_lr": pytest.approx(new)}


def test_a_whole_number_stays_one(make_config: Call) -> None:
    rules = [{"metric": "m", "patience": 1, "change": {"n_epochs": {"multiply": 1.6}}}]
    config = make_config("ppo", "CartPole-v1", n_epochs=2, interventions=rules)
    assert fired(config, "m", [1, 1])[-1] == {"n_epochs": 3}


REVERTED: dict[str, Any] = {
    "name": "explore",
    "metric": "train/opt/loss/value",
    "patience": 2,
    "min_delta": NEVER,
    "max_times": None,
    "revert_after": 2,
    "change": {"policy_lr": {"multiply": 10}, "ent_coef": 0.1},
}


def test_a_run_changes_itself_reverts_and_resumes_exactly(
    train: Call,
    crash: Call,
    resume: Call,
    weight_hash: Call,
    learning_rows: Call,
    events: Call,
) -> None:
    fields = {"max_epochs": 9, "policy_lr": 0.001, "interventions": [REVERTED]}
    whole = train("ppo", "CartPole-v1", **fields)
    rates = [row["train/hp/policy_lr"] for row in learning_rows(whole)]
    # The first value is the best for ever; two stall; changed for two values, and so on.
    assert rates == pytest.approx([1e-3] * 3 + [1e-2] * 2 + [1e-3] + [1e-2] * 2 + [1e-3])
    assert [edit.source.partition(":")[2] for edit in read_edits(whole)][:2] == [
        " train/opt/loss/value stalled 2 times",
        " reverted",
    ]
    for epoch in (4, 5, 6):
        run = resume(crash(epoch, "ppo", "CartPole-v1", checkpoint_freq_epochs=3, **fields).id)
        assert weight_hash(run) == weight_hash(whole), f"crashed after epoch {epoch}"
        assert learning_rows(run) == learning_rows(whole)
        changed = [event["changed"] for event in events(run, "config")]
        assert changed == [event["changed"] for event in events(whole, "config")]


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"change": {"policy_l": 0.1}}, "no field policy_l"),
        ({"change": {"hidden_dims": [4]}}, "hidden_dims cannot change"),
        ({"change": {"policy_lr": -1}}, "policy_lr"),
        ({"change": {"target_kl": {"multiply": 2}}}, "cannot be multiplied"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_at_the_start(
    make_config: Call, rule: Any, why: str
) -> None:
    config = make_config("ppo", "CartPole-v1", interventions=[rule])
    with pytest.raises(ConfigError, match=why):
        check_interventions(config)


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ([{"patience": 0, "change": {"gamma": 1}}], "patience: got 0"),
        ([{"change": {}}], "at least one field"),
        ([{"chnge": {"gamma": 1}}], "chnge"),
        ([{"change": {"gamma": {"multiply": "x"}}}], "must be a number"),
        ([{"change": {"gamma": {"multiply": 1, "ad": 1}}}], "expected {multiply"),
        ("x", "expected a list"),
    ],
)
def test_a_rule_that_is_written_wrongly_is_refused(make_config: Call, rules: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_config("ppo", "CartPole-v1", interventions=rules)


def test_rules_round_trip(make_config: Call) -> None:
    config = make_config("ppo", "CartPole-v1", interventions=[REVERTED])
    assert type(config)(**config.model_dump(mode="json")) == config
