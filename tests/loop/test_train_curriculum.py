"""Easier environments first, and several environments at once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.config.curriculum import Curriculum
from gymnasium_solver.config.load import config_dict
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.runs import query
from gymnasium_solver.training import loop
from gymnasium_solver.training.evaluate import row_shares
from gymnasium_solver.training.prepare import build_config
from tests.loop.conftest import exact_resume, make_config, train

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


def trained(algo_id: str = "ppo", **fields: Any) -> Any:
    return train(algo_id, fields.pop("env_id"), **fields)


def test_a_score_promotes_to_the_next_stage() -> None:
    stages = [stage(2, promote_at=2.0), stage(4, promote_at=3.9)]
    run = trained(**fields_of({"stages": stages, "window": 4}, eval_freq_epochs=1))
    # A window of four episodes fits into an epoch; then the config's own environment follows.
    assert moves(run) == [(0, 1), (1, 2), (2, 3)]
    assert lengths(run) == [2, 4, 8, 8, 8, 8]
    rows = query.get_metrics(run, ["train/curriculum/*"])
    assert [value for _, value in rows["train/curriculum/stage"]] == [1, 2, 3, 3, 3, 3]
    # Evaluations are always of the config's own environment.
    assert {event["mean"] for event in query.get_events(run, "eval")} == {8.5}


def test_a_stage_that_is_not_mastered_goes_on() -> None:
    stages = [stage(2, promote_at=2.5)]
    run = trained(**fields_of({"stages": stages, "window": 4}))
    assert moves(run) == [(0, 1)]
    run = trained(**fields_of({"stages": [stage(2, promote_at=9, max_env_steps=45)]}))
    assert [number for _, number in moves(run)] == [1, 2]
    assert "env steps in the stage before" in query.get_events(run, "curriculum")[1]["text"]


def test_a_low_score_demotes() -> None:
    stages = [stage(2, promote_at=2), stage(4, promote_at=9, demote_at=4.5)]
    run = trained(**fields_of({"stages": stages, "window": 3}))
    assert [number for _, number in moves(run)][:4] == [1, 2, 1, 2]
    own = {"stages": [stage(2, promote_at=2)], "window": 2, "demote_at": 9}
    run = trained(**fields_of(own))
    assert [number for _, number in moves(run)][:4] == [1, 2, 1, 2]


def test_an_evaluation_promotes() -> None:
    block = {"stages": [stage(3, promote_at=3.0)], "score": "eval"}
    run = trained(**fields_of(block, eval_freq_epochs=2))
    assert moves(run) == [(0, 1), (2, 2)]
    seen = [e for e in query.get_events(run, "eval") if e["stage"] == "curriculum"]
    assert seen[0]["mean"] == 3.5  # two envs, of 3 and of 4 steps
    assert seen[0]["number"] == 1


def test_arguments_change_in_levels() -> None:
    block = {"env_kwargs": {"length": {"start": 2, "levels": 3, "to": 0.5}}}
    run = trained(**fields_of(block, max_epochs=8))
    changes = [event["env_kwargs"]["length"] for event in query.get_events(run, "curriculum")]
    assert changes == [2, 4, 6, 8]
    assert lengths(run)[-1] == 8
    rows = query.get_metrics(run, ["train/curriculum/kwargs/length"])
    assert [value for _, value in rows["train/curriculum/kwargs/length"]][-1] == 8


def test_the_training_goal_waits_for_the_last_stage() -> None:
    goal = {"early_stop_on_train_threshold": 2.0, "max_epochs": 12}
    run = trained(**fields_of({"stages": [stage(2, promote_at=99)]}, **goal))
    assert run.meta()["stop_reason"] == "max_epochs"


# -- resume -----------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("algo_id", "more"),
    [("ppo", {"normalize_reward": True}), ("dqn", {}), ("ppo", {"recurrent": "gru"})],
    ids=["ppo", "dqn", "gru"],
)
@pytest.mark.parametrize("epoch", [3, 4, 5])
def test_a_resume_is_exact(algo_id: str, more: dict[str, Any], epoch: int) -> None:
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


def test_the_config_is_written_and_read_as_it_was() -> None:
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
def test_mistakes_in_the_block(block: Any, text: str) -> None:
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
def test_stages_that_do_not_fit(given: dict[str, Any], text: str, tmp_path: Path) -> None:
    fields = fields_of({"stages": [{"promote_at": 1, **given}]})
    config = make_config("ppo", fields.pop("env_id"), **fields)
    with pytest.raises(ConfigError, match=text) as error:
        loop.train(config, runs_root=tmp_path / "runs")
    assert "\n" not in str(error.value)


# -- several tasks in one vector env: their rows, scores and verdict, and exact resume ------------


SHORT = {"name": "short", "env_kwargs": {"length": 2}}
LONG = {"name": "long", "env_kwargs": {"length": 6}}


def config_of(tasks: Any, env_id: str = COUNTING, **fields: Any) -> Any:
    small = {"env_id": env_id, "algo_id": "ppo", "seed": 1, "n_envs": 4, "n_steps": 16}
    small |= {"hidden_dims": [8], "max_epochs": 2, "batch_size": 16, "eval_episodes": 4}
    return build_config({**small, "tasks": tasks, **fields})


# -- the environment --------------------------------------------------------------------------


def test_rows_are_shared_out_evenly() -> None:
    env = env_from_config(config_of([SHORT, LONG]), 5)
    env.reset(1)
    ends: dict[int, int] = {}
    for t in range(1, 9):
        step = env.step(np.zeros(5, int))
        for row in np.flatnonzero(step.is_over):
            ends.setdefault(int(row), t)
    env.close()
    assert [ends[row] for row in range(5)] == [2, 3, 4, 6, 7]
    assert [task.name for task in env.spec.tasks] == ["short", "long"]


def test_tasks_of_one_kind_do_not_play_the_same_episodes() -> None:
    tasks = [{"name": "a", "env_id": "CartPole-v1"}, {"name": "b", "env_id": "CartPole-v1"}]
    env = env_from_config(config_of(tasks, "CartPole-v1"), 2)
    first, again, other = env.reset(1), env.reset(1), env.reset(2)
    env.close()
    assert not np.array_equal(first[0], first[1])
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_policy_is_told_the_task_if_asked() -> None:
    env = env_from_config(config_of([SHORT, LONG], task_one_hot=True), 3)
    obs = env.reset(1)
    assert obs.shape == (3, 4)
    assert obs[:, 2:].tolist() == [[1, 0], [1, 0], [0, 1]]
    assert env.observation_space.contains(obs[0])
    assert env.step(np.zeros(3, int)).obs[:, 2:].tolist() == [[1, 0], [1, 0], [0, 1]]
    one = env_from_config(config_of([SHORT, LONG], task_one_hot=True), 1)
    assert one.reset(1)[:, 2:].tolist() == [[1, 0]]  # to watch or record: the first task
    assert one.observation_space == env.observation_space
    env.close()
    one.close()


@pytest.mark.parametrize("env_id", ["Probe/DictObs-v0", "FrozenLake-v1"])
def test_other_observations_get_a_part(env_id: str) -> None:
    tasks = [{"name": "a"}, {"name": "b"}]
    env = env_from_config(config_of(tasks, env_id, task_one_hot=True), 2)
    obs = env.reset(1)
    assert obs["task"].tolist() == [[1, 0], [0, 1]]
    assert env.observation_space.contains({name: part[0] for name, part in obs.items()})
    env.close()


def test_masks_and_tasks_go_together() -> None:
    env = env_from_config(config_of([{"name": "a"}, {"name": "b"}], "Probe/Masked-v0"), 4)
    env.reset(1)
    assert env.action_mask is not None
    assert env.action_mask.shape[0] == 4
    env.close()


@pytest.mark.parametrize(("episodes", "n_envs"), [(4, 4), (7, 4), (5, 2), (10, 3)])
def test_evaluations_are_balanced_over_tasks(episodes: int, n_envs: int) -> None:
    env = env_from_config(config_of([SHORT, LONG]), n_envs)
    shares = row_shares(episodes, env)
    env.close()
    assert shares.sum() == episodes
    n_first = -(-n_envs // 2)
    assert abs(int(shares[:n_first].sum()) - int(shares[n_first:].sum())) <= 1


# -- training ---------------------------------------------------------------------------------


def test_every_task_has_its_scores(tmp_path: Path) -> None:
    config = config_of([SHORT, LONG], eval_freq_epochs=1, reward_threshold=2.5, test_episodes=4)
    run = loop.train(config, runs_root=tmp_path)
    rows = query.get_metrics(run, ["train/task/*", "val/task/*"])
    assert {name for name, _ in rows.items()} == {
        f"{where}/task/{name}/ep_rew/mean"
        for where in ("train", "val")
        for name in ("short", "long")
    }
    assert rows["val/task/short/ep_rew/mean"][0][1] == 2.5
    assert rows["val/task/long/ep_rew/mean"][0][1] == 6.5
    last = rows["train/task/short/ep_rew/mean"][-1][1]
    assert last is not None
    assert 2 <= last <= 3
    event = query.get_events(run, "eval")[0]
    assert event["tasks"]["short"]["episodes"] == 2
    text = run.report_path.read_text()
    assert "| task short | 2.5" in text
    assert "| task long | 6.5" in text


@pytest.mark.parametrize(
    ("short", "long", "solved"), [(2.4, 6.4, True), (2.4, 7.5, False), (2.6, 6.0, False)]
)
def test_solved_means_that_every_task_is(
    short: float, long: float, solved: bool, tmp_path: Path
) -> None:
    tasks = [{**SHORT, "reward_threshold": short}, {**LONG, "reward_threshold": long}]
    # Two envs each: means of 2.5 and 6.5.
    config = config_of(tasks, eval_freq_epochs=1, test_episodes=4)
    run = loop.train(config, runs_root=tmp_path)
    assert run.meta()["solved"] is solved
    assert run.meta()["threshold"] == pytest.approx((short + long) / 2)


def test_without_thresholds_there_is_no_verdict(tmp_path: Path) -> None:
    tasks = [{**SHORT, "reward_threshold": 1}, LONG]
    run = loop.train(config_of(tasks, eval_freq_epochs=1), runs_root=tmp_path)
    assert run.meta()["solved"] is None


@pytest.mark.parametrize("mode", ["auto", "sync"])
def test_a_run_with_tasks_resumes_exactly(mode: str) -> None:
    tasks = ["CartPole-v1", {"env_id": "CartPole-v0", "max_episode_steps": 20}]
    more = {"max_epochs": 6, "vectorization_mode": mode, "eval_freq_epochs": None}
    exact_resume(config_of(tasks, "CartPole-v1", task_one_hot=True, **more), every=3)


def test_names_tell_tasks_apart() -> None:
    config = config_of(["CartPole-v1", {"env_kwargs": {"length": 3}}, {"env_id": "Probe/A-v0"}])
    assert [task.name for task in config.tasks] == ["CartPole-v1", "length=3", "Probe-A-v0"]
    again = build_config(config_dict(config))
    assert again == config


# -- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tasks", "fields", "text"),
    [
        (["A-v0"], {}, "at least two"),
        (["A-v0", "A-v0"], {}, "same name"),
        ("A-v0", {}, "expected a list"),
        ([{"name": "a b"}, "A-v0"], {}, "letters, digits"),
        ([{"env": "A-v0"}, "B-v0"], {}, "Did you mean env_id"),
        (["A-v0", "B-v0"], {"n_envs": 1}, "n_envs 1 is less than the 2 tasks"),
        ([], {"task_one_hot": True}, "task_one_hot needs tasks"),
        (
            ["A-v0", "B-v0"],
            {"curriculum": {"stages": [{"promote_at": 1}]}},
            "curriculum and tasks cannot be combined",
        ),
    ],
)
def test_mistakes_in_the_tasks(tasks: Any, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        config_of(tasks, **fields)


@pytest.mark.parametrize(
    ("tasks", "text"),
    [
        (["CartPole-v1", "Acrobot-v1"], "CartPole-v1 has the observations .* Acrobot-v1 has"),
        ([COUNTING, "Probe/ObsActionReward-v0"], "all tasks need the same spaces"),
    ],
)
def test_tasks_with_other_spaces(tasks: list[str], text: str, tmp_path: Path) -> None:
    with pytest.raises(EnvError, match=text) as error:
        loop.train(config_of(tasks), runs_root=tmp_path)
    assert "\n" not in str(error.value)
