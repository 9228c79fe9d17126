"""Fields changed while a run trains, by a person or by a rule: when they take effect, what is
recorded, exact resume."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.config.load import config_dict
from gymnasium_solver.config.marks import live_fields
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.registry import ALGOS
from gymnasium_solver.runs.edits import Request, put_request, read_edits
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.live import check_interventions, edited, request_edit, watch_row
from gymnasium_solver.training.prepare import load_config
from tests.loop.conftest import (
    Crash,
    Edits,
    crash,
    events,
    learning_rows,
    make_config,
    resume,
    train,
    weight_hash,
)
from tests.loop.test_train_bc import demonstrate

CHANGES: dict[str, dict[str, Any]] = {
    "ppo": {"policy_lr": 0.05, "n_epochs": 3, "gamma": 0.5, "ent_coef": 0.1, "target_kl": 1.0},
    "dqn": {"policy_lr": 0.05, "gamma": 0.5, "batch_size": 5, "n_step": 2, "epsilon": 0.5},
    "pqn": {"policy_lr": 0.05, "td_lambda": 0.2, "max_grad_norm": None},
    "sac": {"policy_lr": 0.05, "tau": 0.3, "updates_per_step": 1.5},
}
ENVS = {"sac": "Pendulum-v1"}


@pytest.mark.parametrize("algo_id", list(CHANGES))
def test_an_edited_run_that_crashed_resumes_exactly(algo_id: str) -> None:
    """The edit falls between the checkpoint and the crash, so that the resume must repeat it."""
    env_id = ENVS.get(algo_id, "CartPole-v1")
    fields = {"max_epochs": 8, "policy_lr": "lin_0.01", "max_episode_steps": 30}
    plain = train(algo_id, env_id, **fields)
    whole = train(algo_id, env_id, observer=Edits({5: CHANGES[algo_id]}), **fields)
    assert weight_hash(whole) != weight_hash(plain)
    assert learning_rows(whole)[:5] == learning_rows(plain)[:5]
    observer = Edits({5: CHANGES[algo_id]}, crash_at=7)
    with pytest.raises(Crash):
        train(algo_id, env_id, observer=observer, checkpoint_freq_epochs=4, **fields)
    run = resume("@last")
    assert weight_hash(run) == weight_hash(whole)
    assert learning_rows(run) == learning_rows(whole)
    saved = load_config(str(whole.config_path)).replace(checkpoint_freq_epochs=4)
    assert load_config(str(run.config_path)) == saved
    made = events(run, "config")
    assert [event["changed"].keys() for event in made] == [CHANGES[algo_id].keys()]


# -- every field that may change ------------------------------------------------------------------

# New values; of all other numbers half.
NEW_VALUES: dict[str, Any] = {
    "max_env_steps": 100_000,
    "max_epochs": 14,
    "reward_threshold": 1e6,
    "eval_freq_epochs": 4,
    "eval_freq_steps": 150,
    "eval_warmup_epochs": 3,
    "eval_episodes": 3,
    "eval_deterministic": False,
    "test_episodes": 3,
    "n_eval_envs": 2,
    "early_stop_on_train_threshold": 1e6,
    "early_stop_on_eval_threshold": 1e6,
    "checkpoint_freq_epochs": 5,
    "keep_checkpoints": 1,
    "log_details_freq_epochs": 2,
    "monitor": ["weights", "updates", "rank"],
    "mute_alerts": ["all"],
    "check_finite": False,
    "policy_lr": {"start": 0.01, "end": 0.001},
    "momentum": 0.5,
    "weight_decay": 0.01,
    "max_grad_value": 0.1,
    "max_grad_norm": {"start": 1.0, "end": 0.1},
    "intrinsic": {"kind": "count", "coef": 0.3},
    "ent_coef": 0.05,
    "sequence_length": 5,
    "sil": True,
    "sil_elite": 0.5,
    "clip_range_vf": 0.1,
    "target_kl": 0.5,
    "normalize_advantages": "off",
    "dual_clip": 3.0,
    "recompute_advantages": True,
    "adaptive_kl": 0.05,
    "returns_type": "mc:episode",
    "normalize_returns": False,
    "elite": 0.5,
    "n_epochs": 3,
    "n_step": 2,
    "per_beta": 0.7,
    "combined_replay": True,
    "tau": 0.3,
    "double": True,
    "loss": "mse",
    "burn_in": 3,
    "max_minutes": 60.0,
    "value_rescaling": True,
    "bonus": 0.3,
    "epsilon": 0.5,
    "td_lambda": 0.4,
    "critic_lr": 0.01,
    "target_entropy": -0.7,
    "alpha_lr": 0.02,
    "log_alpha_min": -0.2,
    "log_alpha_max": 0.2,
    "policy_delay": 2,
    "entropy_penalty_coef": 0.2,
}
DISCRETE, CONTINUOUS = "Probe/Memory-v0", "Probe/ObsActionRewardContinuous-v0"
SIL = {"sil_updates": 2, "sil_batch_size": 8, "sil_buffer_size": 60}
MEMORY = {"recurrent": "gru", "sequence_length": 4}
# Algorithm, environment and settings with which the fields have an effect.
EDITED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ppo", DISCRETE, SIL),
    "ppo memory": ("ppo", DISCRETE, MEMORY),
    "a2c": ("a2c", DISCRETE, {**SIL, "normalize_reward": True, "normalize_advantages": "rollout"}),
    "reinforce": ("reinforce", DISCRETE, {"baseline": "value", "clip_range": 0.2}),
    "dqn": ("dqn", DISCRETE, {"prioritized": True}),
    "dqn memory": ("dqn", DISCRETE, {**MEMORY, "burn_in": 2, "prioritized": True}),
    "pqn": ("pqn", DISCRETE, {}),
    "pqn memory": ("pqn", DISCRETE, MEMORY),
    "sarsa": ("sarsa", DISCRETE, {}),
    "sac": ("sac", CONTINUOUS, {"prioritized": True}),
    "sac discrete": ("sac", DISCRETE, {"entropy_penalty_coef": 0.1, "ent_coef": 0.2}),
    "crossq": ("crossq", CONTINUOUS, {"ent_coef": 0.2}),
    "td3": ("td3", CONTINUOUS, {"policy_delay": 1}),
    "ddpg": ("ddpg", CONTINUOUS, {}),
    "tdmpc2": ("tdmpc2", CONTINUOUS, {}),
    "dreamerv3": ("dreamerv3", DISCRETE, {}),
    "bc": ("bc", "Probe/ObsActionReward-v0", {}),
    "random": ("random", DISCRETE, {}),
    "mbie": ("mbie", "Taxi-v3", {}),
}
LEFT_OUT = {
    "ppo memory": ["sil"],
    "dqn memory": ["combined_replay"],
    "sac": ["ent_coef"],  # a learnt one stays so
    "tdmpc2": ["n_step", "combined_replay"],
    "dreamerv3": ["n_step", "combined_replay"],
    "bc": ["intrinsic"],
}
PER_EDIT = 6  # fields


def new_values(config: Any, left_out: Sequence[str]) -> dict[str, Any]:
    """Another value for every field that may change."""
    fields = {name: config_dict(config)[name] for name in live_fields(type(config))}
    halves = {
        name: -(-old // 2) if isinstance(old, int) else old / 2
        for name, old in fields.items()
        if name not in NEW_VALUES
    }
    values = {name: NEW_VALUES.get(name, halves.get(name)) for name in fields}
    return {name: value for name, value in values.items() if name not in left_out}


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", EDITED)
def test_every_live_field_can_change(case: str) -> None:
    """One run with all of them, some at a time: it trains on and resumes exactly, from a checkpoint
    after some of the edits and before others."""
    algo_id, env_id, own = EDITED[case]
    fields = {"compile": False, "max_epochs": 13, "max_env_steps": None, **own}
    if algo_id == "bc":
        fields["dataset"] = demonstrate(env_id, Path("demonstrations"))
    elif algo_id not in ("random", "mbie"):
        fields = {"intrinsic": "count", **fields}
    values = new_values(make_config(algo_id, env_id, **fields), LEFT_OUT.get(case, []))
    names = sorted(values, key=lambda name: name not in ("checkpoint_freq_epochs", "sil"))
    n_edits = -(-len(names) // PER_EDIT)
    assert n_edits < 11
    # Neighbours apart: some of them exclude each other.
    edits = {i + 1: {name: values[name] for name in names[i::n_edits]} for i in range(n_edits)}
    whole = train(algo_id, env_id, observer=Edits(edits), **fields)
    assert [event["text"] for event in events(whole, "config_refused")] == []
    assert whole.meta()["epoch"] == NEW_VALUES["max_epochs"]
    recorded = [event["changed"] for event in events(whole, "config")]
    for changed, edit in zip(recorded, edits.values(), strict=True):
        assert edit == {name: changed[name] for name in edit}
    with pytest.raises(Crash):
        train(algo_id, env_id, observer=Edits(edits, crash_at=12), **fields)
    assert weight_hash(resume("@last")) == weight_hash(whole)


def test_the_fields_of_every_algorithm_are_edited() -> None:
    assert {algo_id for algo_id, _, _ in EDITED.values()} == set(ALGOS)


@pytest.mark.parametrize(
    ("algo_id", "field", "value"), [("sac", "noise_correlation", 0.5), ("a2c", "rollout_steps", 8)]
)
def test_a_field_without_the_mark_is_refused(algo_id: str, field: str, value: Any) -> None:
    env_id = CONTINUOUS if algo_id == "sac" else DISCRETE
    run = train(algo_id, env_id, observer=Edits({2: {field: value}}))
    (event,) = events(run, "config_refused")
    assert event["text"].startswith(f"{field} cannot change while a run trains: only what is read")
    assert "\n" not in event["text"]
    assert weight_hash(run) == weight_hash(train(algo_id, env_id))


@pytest.mark.parametrize(("before", "after"), [(0.0, 0.5), (0.5, 0.0)])
def test_what_cannot_change_in_a_running_training_can_in_a_resume(
    before: float, after: float
) -> None:
    """Noise that lasts is a part of the carry, which a checkpoint without it does not have."""
    run = train("sac", CONTINUOUS, noise_correlation=before, max_epochs=2)
    observer = Edits({})
    again = resume(run.id, observer, noise_correlation=after, max_epochs=4)
    assert again.meta()["epoch"] == 4
    starts_anew = any("New episodes are started" in text for text in observer.messages)
    assert starts_anew == (after > 0)


def test_an_edit_at_the_very_checkpoint_is_logged_once() -> None:
    fields = {"max_epochs": 6}
    whole = train("ppo", "CartPole-v1", observer=Edits({4: {"policy_lr": 0.1}}), **fields)
    observer = Edits({4: {"policy_lr": 0.1}}, crash_at=5)
    with pytest.raises(Crash):
        train("ppo", "CartPole-v1", observer=observer, checkpoint_freq_epochs=4, **fields)
    run = resume("@last")
    assert weight_hash(run) == weight_hash(whole)
    assert len(events(run, "config")) == 1
    assert len(read_edits(run)) == 1


def test_the_value_takes_effect_at_the_next_epoch_and_is_recorded() -> None:
    observer = Edits({2: {"policy_lr": 0.05}})
    run = train("ppo", "CartPole-v1", observer=observer)
    rows = learning_rows(run)
    assert [row["train/hp/policy_lr"] for row in rows] == [3e-4, 3e-4, 0.05, 0.05]
    (event,) = events(run, "config")
    assert (event["changed"], event["before"]) == ({"policy_lr": 0.05}, {"policy_lr": 3e-4})
    assert (event["env_steps"], event["epoch"]) == (rows[1]["env_steps"], 2)
    assert load_config(str(run.config_path)).policy_lr.start == 0.05  # type: ignore[attr-defined]
    assert any("policy_lr: 0.0003 → 0.05" in text for text in observer.messages)
    assert not list(run.requests_dir.iterdir())


def test_saving_the_config_file_does_the_same() -> None:
    def save(run: Run) -> None:
        text = run.config_path.read_text()
        run.config_path.write_text(text.replace("policy_lr: 0.0003", "policy_lr: 5e-2"))

    run = train("ppo", "CartPole-v1", observer=Edits({2: save}))
    rows = learning_rows(run)
    assert [row["train/hp/policy_lr"] for row in rows] == [3e-4, 3e-4, 0.05, 0.05]
    assert read_edits(run)[0].source == "config.yaml"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("n_envs: 3", "n_envs: 4", "n_envs cannot change while a run trains"),
        ("policy_lr: 0.0003", "policy_lr: -1", "policy_lr"),
        ("policy_lr: 0.0003", "policy_lr: [", "config.yaml"),
    ],
)
def test_a_wrong_edit_of_the_file_is_refused_and_restored(old: str, new: str, why: str) -> None:
    def save(run: Run) -> None:
        self_text.append(run.config_path.read_text())
        run.config_path.write_text(self_text[0].replace(old, new))

    self_text: list[str] = []
    plain = train("ppo", "CartPole-v1")
    run = train("ppo", "CartPole-v1", observer=Edits({2: save}))
    assert weight_hash(run) == weight_hash(plain)
    (event,) = events(run, "config_refused")
    assert why in event["text"]
    assert run.config_path.read_text() == self_text[0]
    assert new in (run.path / "config.refused.yaml").read_text()


def test_a_request_for_later_waits() -> None:
    def ask(run: Run) -> None:
        put_request(run, Request({"policy_lr": 0.05}, at_env_steps=130))

    run = train("ppo", "CartPole-v1", observer=Edits({1: ask}), max_epochs=5)
    rows = learning_rows(run)
    first = next(row for row in rows if row["train/hp/policy_lr"] == 0.05)
    assert rows[first["epoch"] - 2]["env_steps"] >= 130 > rows[first["epoch"] - 3]["env_steps"]


def test_going_back_before_an_edit_undoes_it() -> None:
    plain = train("ppo", "CartPole-v1", max_epochs=4)
    run = train(
        "ppo", "CartPole-v1", observer=Edits({3: {"policy_lr": 0.1}}), max_epochs=4,
        checkpoint_freq_epochs=1, keep_checkpoints=9,
    )  # fmt: skip
    assert weight_hash(run) != weight_hash(plain)
    second = sorted(
        (p for p in run.checkpoints_dir.iterdir() if p.name.isdigit()), key=lambda p: int(p.name)
    )[1]
    back = resume(f"{run.id}/{second.name}")
    assert weight_hash(back) == weight_hash(plain)
    assert read_edits(back) == []


def test_a_damaged_request_does_not_stop_training() -> None:
    def damage(run: Run) -> None:
        run.requests_dir.mkdir()
        (run.requests_dir / "1.json").write_text("{")

    observer = Edits({2: damage})
    run = train("ppo", "CartPole-v1", observer=observer)
    assert weight_hash(run) == weight_hash(train("ppo", "CartPole-v1"))
    assert any("1.json" in text for text in observer.messages)


def test_what_cannot_change_is_refused_before_it_is_asked() -> None:
    config = make_config("ppo", "CartPole-v1")
    with pytest.raises(ConfigError, match="hidden_dims cannot change while a run trains"):
        edited(config, {"hidden_dims": [16]})
    with pytest.raises(ConfigError, match="policy_lr"):
        edited(config, {"policy_l": 1e-3})
    assert {"policy_lr", "gamma", "n_epochs", "max_env_steps"} <= set(live_fields(type(config)))


def test_a_run_that_does_not_train_cannot_be_edited() -> None:
    run = train("ppo", "CartPole-v1", max_epochs=1)
    with pytest.raises(RunError, match=r"gsolve train --resume .* --policy-lr 0\.1"):
        request_edit(run, {"policy_lr": 0.1})


def test_a_budget_can_grow_while_a_run_trains() -> None:
    run = train("ppo", "CartPole-v1", observer=Edits({2: {"max_epochs": 6}}), max_epochs=4)
    assert run.meta()["epoch"] == 6
    assert json.loads(Path(run.meta_path).read_text())["stop_reason"] == "max_epochs"


# -- rules that change fields when a metric stalls ------------------------------------------------


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


def test_patience_cooldown_and_limits() -> None:
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


def test_a_metric_to_minimise_and_a_least_difference() -> None:
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
def test_new_values(old: Any, rule: Any, new: Any) -> None:
    rules = [{"metric": "m", "patience": 1, "change": {"policy_lr": rule}}]
    config = make_config("ppo", "CartPole-v1", policy_lr=old, interventions=rules)
    assert fired(config, "m", [1, 1])[-1] == {"policy_lr": pytest.approx(new)}


def test_a_whole_number_stays_one() -> None:
    rules = [{"metric": "m", "patience": 1, "change": {"n_epochs": {"multiply": 1.6}}}]
    config = make_config("ppo", "CartPole-v1", n_epochs=2, interventions=rules)
    assert fired(config, "m", [1, 1])[-1] == {"n_epochs": 3}


def test_a_change_that_made_it_worse_is_undone() -> None:
    rule = {
        "metric": "m",
        "patience": 1,
        "max_times": None,
        "min_delta": 0.5,
        "revert_on_worse": True,
        "change": [{"policy_lr": {"multiply": 0.5}}, {"gamma": 0.5}],
    }
    config = make_config("ppo", "CartPole-v1", policy_lr=0.1, gamma=0.9, interventions=[rule])
    halved, back = {"policy_lr": 0.05}, {"policy_lr": 0.1}
    # Stalls: a change. 0.6 is not worse by more than 0.5, 0.2 is. Then it is the next one's turn.
    assert fired(config, "m", [1, 1, 0.6, 0.2, 0.2]) == [None, halved, None, back, {"gamma": 0.5}]
    kept = fired(config, "m", [1, 1, 2, 3])
    assert kept == [None, halved, None, None], "a change that helps stays"


def test_the_old_key_of_rules_is_read() -> None:
    old = {
        "monitor": "m",
        "patience": 1,
        "cooldown": 2,
        "actions": [
            {"param": "policy_lr", "operation": "multiply", "factor": 0.5, "min": 0.06},
            {"param": "gamma", "operation": "set", "value": 0.5, "revert_on_worse": True},
        ],
    }
    config = make_config("ppo", "CartPole-v1", policy_lr=0.1, plateau_interventions=old)
    (rule,) = config.interventions
    assert (rule.metric, rule.cooldown, rule.max_times, rule.revert_on_worse) == (
        "m",
        2,
        None,
        True,
    )
    assert rule.change == [{"policy_lr": {"multiply": 0.5, "min": 0.06}}, {"gamma": 0.5}]
    assert fired(config, "m", [1, 1])[-1] == {"policy_lr": 0.06}
    for wrong in ({"actions": "x"}, {"actions": [{"param": "gamma", "operation": "divide"}]}):
        with pytest.raises(ConfigError, match="actions: expected"):
            make_config("ppo", "CartPole-v1", plateau_interventions=wrong)


REVERTED: dict[str, Any] = {
    "name": "explore",
    "metric": "train/opt/loss/value",
    "patience": 2,
    "min_delta": NEVER,
    "max_times": None,
    "revert_after": 2,
    "change": {"policy_lr": {"multiply": 10}, "ent_coef": 0.1},
}


def test_a_run_changes_itself_reverts_and_resumes_exactly() -> None:
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
def test_a_rule_that_cannot_work_is_refused_at_the_start(rule: Any, why: str) -> None:
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
def test_a_rule_that_is_written_wrongly_is_refused(rules: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_config("ppo", "CartPole-v1", interventions=rules)


def test_rules_round_trip() -> None:
    config = make_config("ppo", "CartPole-v1", interventions=[REVERTED])
    assert type(config)(**config.model_dump(mode="json")) == config
