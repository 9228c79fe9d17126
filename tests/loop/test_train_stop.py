"""When a run ends: early stops and budgets."""

import copy
import dataclasses
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.algos.dqn import DQN
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.policies.policy import Acted, ActObs, Carry, Mask, Policy
from gymnasium_solver.spaces.actions import action_kind
from gymnasium_solver.spaces.observations import obs_len
from gymnasium_solver.training.collect import Collector, boundary_steps
from gymnasium_solver.training.prepare import load_config
from tests.loop.conftest import Heard, learning_rows, resume, train

# One evaluation env: every evaluation and every test scores 5.
EVAL: dict[str, Any] = {"eval_freq_epochs": 2, "eval_episodes": 2, "n_eval_envs": 1}


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("setting", "threshold", "stop", "solved"),
    [
        (True, 5, ("solved", 2), True),
        (True, 5.01, ("max_epochs", 5), False),
        (True, None, ("max_epochs", 5), None),  # the env has no threshold of its own
        (5, 1000, ("goal_reached_eval", 2), False),  # a goal of one's own is not the env's
        (5, 4, ("goal_reached_eval", 2), True),
        (5, 5, ("solved", 2), True),
        (5, None, ("goal_reached_eval", 2), None),
        (5.01, 5, ("max_epochs", 5), True),
        (0, 1000, ("goal_reached_eval", 2), False),
        (None, 1, ("max_epochs", 5), True),
        (False, 1, ("max_epochs", 5), True),
    ],
)
def test_by_evaluation(
    setting: Any, threshold: Any, stop: tuple[str, int], solved: bool | None
) -> None:
    run = train(
        *("ppo", "Probe/Counting-v0"),
        max_epochs=5,
        reward_threshold=threshold,
        early_stop_on_eval_threshold=setting,
        **EVAL,
    )
    meta = run.meta()
    assert (meta["stop_reason"], meta["epoch"]) == stop
    assert meta["status"] == "finished"
    assert meta["solved"] is solved
    assert {"mean": 5, "stderr": 0, "episodes": 2, "greedy": True}.items() <= meta["test"].items()


def test_the_registered_threshold_counts_where_none_is_set() -> None:
    run = train("ppo", "CartPole-v1", max_epochs=2, **EVAL)
    assert run.meta()["threshold"] == 475
    assert run.meta()["solved"] is False


# Three envs with episodes of 5, 6 and 7 steps: the mean return of training is just below 6.
@pytest.mark.parametrize(
    ("setting", "threshold", "reason", "solved"),
    [
        (5.5, None, "goal_reached_train", None),
        (5.5, 1000, "goal_reached_train", False),
        (5.5, 4, "goal_reached_train", True),
        (True, 5.5, "max_epochs", False),  # the test scores 5: training continues
        (5.5, 5.3, "max_epochs", False),
        (True, 5, "solved", True),
        (7, 5.5, "max_epochs", False),
        (True, 7, "max_epochs", False),
        (True, None, "max_epochs", None),
        (None, 1, "max_epochs", True),
        (False, 1, "max_epochs", True),
    ],
)
def test_by_training_episodes_once_the_window_is_full(
    setting: Any, threshold: Any, reason: str, solved: bool | None
) -> None:
    run = train(
        *("ppo", "Probe/Counting-v0"),
        n_steps=32,
        max_epochs=10,
        reward_threshold=threshold,
        early_stop_on_train_threshold=setting,
        n_eval_envs=1,
    )
    counts = [row["train/cnt/total_episodes"] for row in learning_rows(run)]
    full = next(i for i, n in enumerate(counts) if n >= 100)
    assert 3 < full < 9, "both the wait and the stop must be visible"
    meta = run.meta()
    assert (meta["stop_reason"], meta["solved"]) == (reason, solved)
    assert len(counts) == (10 if reason == "max_epochs" else full + 1)
    assert (meta["test"] is None) == (threshold is None), "no evaluation: the last one is tested"


def test_a_good_start_is_not_enough() -> None:
    """Every episode reaches the goal, but a hundred are asked for."""
    run = train("ppo", "Probe/Counting-v0", max_epochs=5, early_stop_on_train_threshold=1)
    meta = run.meta()
    assert 0 < meta["episodes"] < 100
    assert meta["stop_reason"] == "max_epochs"


@pytest.mark.parametrize(
    ("overrides", "stop", "notes"),
    [
        ({"max_epochs": 6}, ("max_epochs", 6), 1),
        ({}, ("max_epochs", 5), 1),
        ({"early_stop_on_eval_threshold": True}, ("solved", 4), 0),  # as asked for
        ({"reward_threshold": 4.9}, ("solved", 4), 0),  # another goal
    ],
)
def test_a_solved_run_that_is_resumed_trains_on(
    overrides: dict[str, Any], stop: tuple[str, int], notes: int
) -> None:
    """It would stop again at its next evaluation."""
    run = train("ppo", "Probe/Counting-v0", max_epochs=5, reward_threshold=5, **EVAL)
    assert (run.meta()["stop_reason"], run.meta()["epoch"]) == ("solved", 2)
    heard = Heard()
    resume(run.id, observer=heard, **overrides)
    meta = run.meta()
    assert (meta["stop_reason"], meta["epoch"]) == stop
    assert (meta["status"], meta["solved"]) == ("finished", True)
    told = [note for note in heard.notes if "early_stop_on_eval_threshold: false" in note]
    assert len(told) == notes
    saved = load_config(str(run.config_path))
    assert saved.early_stop_on_eval_threshold is (notes == 0), "recorded, so a resume repeats it"


# -- budgets are exact, every env step is counted once, and no transition joins two episodes ------


ENDS = ["terminated", "truncated", "both", "alternate"]


class AnyAction(Policy):
    """Draws without looking."""

    def _draw(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Acted:
        return Acted(self.actions.uniform(obs_len(obs), self.rng, mask), carry)

    def greedy(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask = None) -> Acted:
        return self._draw(obs, carry, is_first, mask)


def counting(n_envs: int, n_steps: int, boundary_steps: int = 10**9, **kwargs: Any) -> Collector:
    env = JournaledEnv(make_vector_env("Probe/Counting-v0", n_envs, env_kwargs=kwargs))
    kind = action_kind(env.action_space)
    policy = AnyAction(env.observation_space, kind, np.random.default_rng(0))
    return Collector(env, policy, n_steps, seed=1, boundary_steps=boundary_steps)


def seen(rollout: Rollout) -> np.ndarray:
    assert isinstance(rollout.obs, np.ndarray)
    return rollout.obs


def copied(rollout: Rollout) -> Rollout:
    return copy.deepcopy(rollout)


@pytest.mark.parametrize("ends", ENDS)
def test_no_stored_transition_crosses_an_episode(ends: str) -> None:
    """obs is (episode, step): a valid row goes one step on within its episode, flagged or not."""
    collector = counting(4, 7, length=3, ends=ends)
    n_ended = 0
    for _ in range(5):
        rows = collector.collect(0, None)
        episode, step = np.moveaxis(seen(rows)[:-1], -1, 0)
        next_episode, next_step = np.moveaxis(seen(rows)[1:], -1, 0)
        valid, done = rows.valid, rows.done
        assert (next_episode == episode)[valid].all()
        assert (next_step == step + 1)[valid].all()
        lengths = np.broadcast_to(3 + np.arange(4), valid.shape)
        # The final observation is the last of its own episode, and only an end is flagged.
        np.testing.assert_array_equal(done, valid & (next_step == lengths))
        assert not rows.reward[~valid].any()
        assert (rows.reward[valid] == 1).all()
        # A row that is no step leads from the end of one episode to the start of the next.
        assert (step == lengths)[~valid].all()
        assert (next_step == 0)[~valid].all()
        assert (next_episode == episode + 1)[~valid].all()
        np.testing.assert_array_equal(rows.is_first, seen(rows)[..., 1] == 0)
        even = episode % 2 == 0
        expected = {
            "terminated": (done, ~done & done),
            "truncated": (~done & done, done),
            "both": (done, done),
            "alternate": (done & even, done & ~even),
        }[ends]
        np.testing.assert_array_equal(rows.terminated, expected[0])
        np.testing.assert_array_equal(rows.truncated, expected[1])
        n_ended += int(done.sum())
    assert n_ended == collector.n_episodes > 10


def test_rollouts_join_without_a_gap_or_an_overlap() -> None:
    long, short = counting(3, 40, length=4), counting(3, 8, length=4)
    whole = long.collect(0, None)
    parts = [copied(short.collect(0, None)) for _ in range(5)]
    np.testing.assert_array_equal(np.concatenate([seen(p)[:-1] for p in parts]), seen(whole)[:-1])
    for name in ("actions", "reward", "terminated", "truncated", "valid"):
        joined = np.concatenate([getattr(p, name) for p in parts])
        np.testing.assert_array_equal(joined, getattr(whole, name), err_msg=name)
    for before, after in pairwise(parts):
        np.testing.assert_array_equal(seen(before)[-1], seen(after)[0])
        np.testing.assert_array_equal(before.is_first[-1], after.is_first[0])


@pytest.mark.parametrize("budget", [1, 3, 4, 20, 29, 100, 101, 103, 1003])
def test_the_budget_is_exact_and_every_step_is_in_an_episode(budget: int) -> None:
    collector = counting(4, 9, length=3)
    env_steps = 0
    steps_of_env = np.zeros(4, int)
    while env_steps < budget:
        rows = collector.collect(env_steps, budget - env_steps)
        assert 0 < rows.env_steps <= budget - env_steps
        env_steps += rows.env_steps
        steps_of_env += rows.valid.sum(0)
    assert env_steps == budget == steps_of_env.sum()
    # Env i has episodes of 3 + i steps: what it stepped tells how many of them have ended.
    ended = steps_of_env // (3 + np.arange(4))
    running = steps_of_env % (3 + np.arange(4))
    # With a budget of 20 the first episode of env 3 would end on a step that is not in it.
    assert collector.n_episodes == ended.sum()
    assert env_steps == (ended * (3 + np.arange(4))).sum() + running.sum()
    if collector.n_episodes <= 100:
        assert sum(collector.lengths) == env_steps - running.sum()


def test_a_boundary_starts_all_envs_afresh_between_rollouts() -> None:
    collector = counting(3, 6, boundary_steps=30, length=50)
    first_steps = []
    env_steps = 0
    for _ in range(6):
        rows = collector.collect(env_steps, None)
        first_steps.append(seen(rows)[0, :, 1].tolist())
        env_steps += rows.env_steps
    # 18 steps a rollout: 30, 60 and 90 are passed during the second, fourth and fifth.
    assert first_steps == [[0] * 3, [6] * 3, [0] * 3, [6] * 3, [0] * 3, [0] * 3]


@pytest.mark.parametrize(
    ("limit", "n_envs", "given", "expected"),
    [
        (500, 8, "auto", 250_000),
        (27_000, 64, "auto", 1_728_000),  # Pong: a cut after 3,906 steps would end no game
        (None, 64, "auto", 250_000),
        (2**31 - 1, 16, "auto", 480_000),
        (27_000, 64, 1000, 1000),
    ],
)
def test_boundary_waits_for_the_longest_episode(
    limit: int | None, n_envs: int, given: Any, expected: int
) -> None:
    """Often enough for a quick resume, never before a game can end."""
    config = load_config("CartPole-v1:ppo").replace(n_envs=n_envs, env_boundary_steps=given)
    env = make_vector_env("Probe/ConstantReward-v0", 1)
    env.spec = dataclasses.replace(env.spec, max_episode_steps=limit)
    assert boundary_steps(config, env) == expected


@pytest.mark.parametrize("algo_id", ["ppo", "reinforce"])
def test_a_rollout_of_nothing_but_reset_rows_is_passed_over(algo_id: str) -> None:
    """One row a rollout, and all episodes end together: every second row has nothing in it."""
    run = train(algo_id, "Probe/ActionReward-v0", n_steps=1, max_env_steps=20)
    assert [row["env_steps"] for row in learning_rows(run)] == [3, 6, 9, 12, 15, 18, 20]


@pytest.mark.parametrize("algo_id", ["ppo", "reinforce"])
@pytest.mark.parametrize(
    ("env_id", "n_envs", "max_env_steps"),
    [("CartPole-v1", 8, 1003), ("Bandit-v0", 7, 211), ("Bandit-v0", 8, 3), ("Pendulum-v1", 3, 100)],
)
def test_a_run_uses_its_budget_to_the_step(
    env_id: str, n_envs: int, max_env_steps: int, algo_id: str
) -> None:
    run = train(algo_id, env_id, n_envs=n_envs, max_env_steps=max_env_steps)
    clock = [row["env_steps"] for row in learning_rows(run)]
    assert clock[-1] == max_env_steps == max(clock)
    assert clock == sorted(set(clock))
    meta = run.meta()
    assert (meta["env_steps"], meta["stop_reason"]) == (max_env_steps, "max_env_steps")
    assert [row["epoch"] for row in learning_rows(run)] == list(range(1, len(clock) + 1))


def test_epochs_alone_are_a_budget() -> None:
    run = train("ppo", "CartPole-v1", max_epochs=5)
    rows, meta = learning_rows(run), run.meta()
    assert (len(rows), meta["epoch"], meta["stop_reason"]) == (5, 5, "max_epochs")
    assert rows[-1]["env_steps"] == meta["env_steps"] <= 5 * 3 * 16


def test_whichever_budget_ends_first_ends_the_run() -> None:
    by_steps = train("ppo", "Bandit-v0", max_env_steps=50, max_epochs=9).meta()
    assert (by_steps["stop_reason"], by_steps["env_steps"]) == ("max_env_steps", 50)
    by_epochs = train("ppo", "Bandit-v0", max_env_steps=5000, max_epochs=2).meta()
    assert (by_epochs["stop_reason"], by_epochs["epoch"]) == ("max_epochs", 2)


@pytest.mark.parametrize(
    ("algo_id", "env_id"), [("ppo", "CartPole-v1"), ("dqn", "CartPole-v1"), ("td3", "Pendulum-v1")]
)
def test_a_schedule_starts_at_its_start_and_never_updates_with_its_end(
    algo_id: str, env_id: str
) -> None:
    """The rate of an update is the one at the start of its rollout."""
    run = train(algo_id, env_id, max_env_steps=192, policy_lr="lin_0.01", n_steps=16)
    rates = [row["train/hp/policy_lr"] for row in learning_rows(run)]
    assert rates[-1] > 0
    if algo_id == "ppo":  # one update in an epoch
        starts = [0, *(row["env_steps"] for row in learning_rows(run)[:-1])]
        assert rates == pytest.approx([0.01 * (1 - at / 192) for at in starts])


def test_the_target_network_is_copied_when_the_clock_passes_a_multiple(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copies: list[int] = []
    update = DQN.update

    def counted(self: DQN, rollout: Rollout, env_steps: int, total_steps: int) -> Any:
        def copy_target() -> None:
            copies.append(env_steps + rollout.env_steps)

        with monkeypatch.context() as patch:
            patch.setattr(self.descent.optimizer, "copy_to_targets", copy_target)
            return update(self, rollout, env_steps, total_steps)

    monkeypatch.setattr(DQN, "update", counted)
    train("dqn", "Bandit-v0", n_envs=1, max_env_steps=40, train_freq=4, target_update_freq=12)
    assert [copied - copied % 12 for copied in copies] == [12, 24, 36]
    assert all(copied % 12 < 4 for copied in copies), "by the first rollout that passes it"
