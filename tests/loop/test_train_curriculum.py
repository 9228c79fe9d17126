"""Curricula: promotion and demotion, arguments that change, exact resume, what is judged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.config.curriculum import Curriculum
from gymnasium_solver.config.load import config_dict
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.runs import query
from gymnasium_solver.training import loop
from gymnasium_solver.training.prepare import build_config

Call = Callable[..., Any]
COUNTING = "Probe/Counting-v0"  # an episode of `length` steps returns `length`


def stage(length: int, **fields: Any) -> dict[str, Any]:
    return {"env_kwargs": {"length": length}, **fields}


def fields_of(curriculum: Any, **more: Any) -> dict[str, Any]:
    small = {
        "env_id": COUNTING,
        "env_kwargs": {"length": 8},
        "n_envs": 1,
        "n_steps": 20,
        "max_epochs": 6,
        "eval_episodes": 2,
    }
    return {**small, "curriculum": curriculum, **more}


def lengths(run: Any) -> list[float]:
    return [row["train/roll/ep_len/last"] for row in query.get_rows(run) if "epoch" in row]


def moves(run: Any) -> list[tuple[int, int]]:
    return [(e["epoch"], e["stage"]) for e in query.get_events(run, "curriculum")]


def trained(train: Call, algo_id: str = "ppo", **fields: Any) -> Any:
    return train(algo_id, fields.pop("env_id"), **fields)


def test_a_score_promotes_to_the_next_stage(train: Call) -> None:
    stages = [stage(2, promote_at=2.0), stage(4, promote_at=3.9)]
    run = trained(train, **fields_of({"stages": stages, "window": 4}, eval_freq_epochs=1))
    # A window of four episodes fits into an epoch; then the config's own environment follows.
    assert moves(run) == [(0, 1), (1, 2), (2, 3)]
    assert lengths(run) == [2, 4, 8, 8, 8, 8]
    rows = query.get_metrics(run, ["train/curriculum/*"])
    assert [value for _, value in rows["train/curriculum/stage"]] == [1, 2, 3, 3, 3, 3]
    # Evaluations are always of the config's own environment.
    assert {event["mean"] for event in query.get_events(run, "eval")} == {8.5}


def test_a_stage_that_is_not_mastered_goes_on(train: Call) -> None:
    stages = [stage(2, promote_at=2.5)]
    run = trained(train, **fields_of({"stages": stages, "window": 4}))
    assert moves(run) == [(0, 1)]
    run = trained(train, **fields_of({"stages": [stage(2, promote_at=9, max_env_steps=45)]}))
    assert [number for _, number in moves(run)] == [1, 2]
    assert "env steps in the stage before" in query.get_events(run, "curriculum")[1]["text"]


def test_a_low_score_demotes(train: Call) -> None:
    stages = [stage(2, promote_at=2), stage(4, promote_at=9, demote_at=4.5)]
    run = trained(train, **fields_of({"stages": stages, "window": 3}))
    assert [number for _, number in moves(run)][:4] == [1, 2, 1, 2]
    own = {"stages": [stage(2, promote_at=2)], "window": 2, "demote_at": 9}
    run = trained(train, **fields_of(own))
    assert [number for _, number in moves(run)][:4] == [1, 2, 1, 2]


def test_an_evaluation_promotes(train: Call) -> None:
    block = {"stages": [stage(3, promote_at=3.0)], "score": "eval"}
    run = trained(train, **fields_of(block, eval_freq_epochs=2))
    assert moves(run) == [(0, 1), (2, 2)]
    seen = [e for e in query.get_events(run, "eval") if e["stage"] == "curriculum"]
    assert seen[0]["mean"] == 3.5  # two envs, of 3 and of 4 steps
    assert seen[0]["number"] == 1


def test_arguments_change_in_levels(train: Call) -> None:
    block = {"env_kwargs": {"length": {"start": 2, "levels": 3, "to": 0.5}}}
    run = trained(train, **fields_of(block, max_epochs=8))
    changes = [event["env_kwargs"]["length"] for event in query.get_events(run, "curriculum")]
    assert changes == [2, 4, 6, 8]
    assert lengths(run)[-1] == 8
    rows = query.get_metrics(run, ["train/curriculum/kwargs/length"])
    assert [value for _, value in rows["train/curriculum/kwargs/length"]][-1] == 8


def test_the_training_goal_waits_for_the_last_stage(train: Call) -> None:
    goal = {"early_stop_on_train_threshold": 2.0, "max_epochs": 12}
    run = trained(train, **fields_of({"stages": [stage(2, promote_at=99)]}, **goal))
    assert run.meta()["stop_reason"] == "max_epochs"


# -- resume -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algo_id", "more"),
    [("ppo", {"normalize_reward": True}), ("dqn", {}), ("ppo", {"recurrent": "gru"})],
    ids=["ppo", "dqn", "gru"],
)
@pytest.mark.parametrize("epoch", [3, 4, 5])
def test_a_resume_is_exact(
    algo_id: str, more: dict[str, Any], epoch: int, exact_resume: Call
) -> None:
    block = {
        "stages": [stage(2, promote_at=2), stage(4, promote_at=4.4, demote_at=4.1)],
        "window": 4,
        "env_kwargs": {"length": {"start": 5, "levels": 2}},
    }
    fields = fields_of(block, n_envs=2, max_epochs=8, **more)
    fields["curriculum"]["stages"][0]["env_kwargs"] = {"ends": "truncated"}
    fields["curriculum"]["stages"][1]["env_kwargs"] = {"ends": "both"}
    whole, resumed = exact_resume(algo_id, fields.pop("env_id"), at=epoch, **fields)
    assert len(moves(whole)) > 2
    assert moves(resumed) == moves(whole)


def test_the_config_is_written_and_read_as_it_was(make_config: Call) -> None:
    block = {"stages": [stage(2, promote_at=2)], "env_kwargs": {"length": {"start": 3}}}
    fields = fields_of(block)
    config = make_config("ppo", fields.pop("env_id"), **fields)
    again = build_config(config_dict(config))
    assert again == config
    assert config_dict(config)["curriculum"] == block


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"schedule": "cosine"},
        {"schedule": "exponential"},
        {"schedule": "polynomial", "power": 2},
    ],
)
def test_an_argument_leads_from_start_to_the_number_of_the_config(shape: dict[str, Any]) -> None:
    block = Curriculum(env_kwargs={"gravity": {"start": 5.0, **shape}})
    argument = block.schedules({"gravity": 10.0})["gravity"]
    values = [argument.at(step, 100) for step in range(101)]
    assert (values[0], values[-1]) == (5.0, 10.0)
    assert values == sorted(values)


# -- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({}, "expected stages"),
        ({"stages": [{}]}, "stage 1: a stage needs promote_at or max_env_steps"),
        ({"stages": [{"promote": 1}]}, "Did you mean promote_at"),
        ({"stages": [stage(2, promote_at=1, demote_at=1)]}, "must be below promote_at"),
        ({"stages": 3}, "expected a list"),
        ({"stages": [stage(2, promote_at=1)], "window": 101}, "window"),
        ({"env_kwargs": {"ends": {"start": 1}}}, "which is not given"),
        ({"env_kwargs": {"length": {"start": 8}}}, "start must be a number other than 8"),
        ({"env_kwargs": {"length": {"start": 1, "end": 2}}}, "remove end"),
        ({"env_kwargs": {"length": {"start": 1, "levels": 0}}}, "levels must be"),
        ({"env_kwargs": {"length": {"start": 1, "too": 1}}}, "too"),
        ({"env_kwargs": {"length": {"start": 1, "warmup": 0.2}}}, "remove warmup"),
        (
            {"env_kwargs": {"length": {"start": 1, "schedule": "periodic", "cycles": 2}}},
            "a periodic schedule returns to start",
        ),
        ({"demote_at": 1, "env_kwargs": {"length": {"start": 1}}}, "demote_at needs stages"),
    ],
)
def test_mistakes_in_the_block(block: Any, text: str, make_config: Call) -> None:
    fields = fields_of(block)
    with pytest.raises(ConfigError, match=text):
        make_config("ppo", fields.pop("env_id"), **fields)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"env_id": "CartPole-v1"}, r"stage 1 \(CartPole-v1\) has the observations"),
        ({"env_id": "Probe/Nothing-v0"}, "Probe/Nothing-v0"),
        ({"env_kwargs": {"lenght": 2}}, "lenght"),
    ],
)
def test_stages_that_do_not_fit(
    given: dict[str, Any], text: str, tmp_path: Path, make_config: Call
) -> None:
    fields = fields_of({"stages": [{"promote_at": 1, **given}]})
    config = make_config("ppo", fields.pop("env_id"), **fields)
    with pytest.raises(ConfigError, match=text) as error:
        loop.train(config, runs_root=tmp_path / "runs")
    assert "\n" not in str(error.value)
