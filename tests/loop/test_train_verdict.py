"""A run is solved by a held-out test, never by the luck of a validation that chose it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.envs.spec import EnvSpec
from gymnasium_solver.errors import RunError
from gymnasium_solver.runs import query
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.evaluate import Evaluator, n_test_episodes
from gymnasium_solver.training.judge import is_solved, required_mean
from gymnasium_solver.training.observer import EvalResult
from gymnasium_solver.training.progress import Plan
from tests.loop.conftest import (
    Crash,
    Heard,
    SmallEnv,
    events,
    exact_resume,
    learning_rows,
    make_config,
    registered,
    resume,
    train,
    weight_hash,
)


class Noisy(SmallEnv):
    """One step: action 1 is worth `gain` on average, action 0 nothing, with a deviation of 1."""

    gain = 0.0

    def pay(self, action: int) -> float:
        return float(self.gain * action + self.np_random.normal())


NOISY = registered(Noisy)
LUCK: dict[str, Any] = {
    "eval_freq_epochs": 1,
    "eval_episodes": 4,
    "test_episodes": 300,
    "eval_deterministic": False,
}


def stages(run: Run, stage: str) -> list[dict[str, Any]]:
    return [event for event in events(run, "eval") if event["stage"] == stage]


def test_a_lucky_validation_does_not_solve() -> None:
    heard = Heard()
    run = train("ppo", NOISY, observer=heard, reward_threshold=0.3, max_epochs=20, **LUCK)
    summary, meta = query.get_run(run), run.meta()
    assert meta["best"]["score"] > 0.3, "validation alone would have said solved"
    assert (summary.solved, summary.stop_reason) == (False, "max_epochs")
    assert summary.test is not None
    assert summary.test["mean"] < 0.3
    assert set(summary.test) == {"mean", "stderr", "episodes", "greedy"}
    assert summary.test["stderr"] == pytest.approx(1 / 300**0.5, rel=0.2)
    failed = stages(run, "failed_test")
    assert len(failed) == len(heard.tests) >= 2
    seeds = [event["seed"] for event in (*failed, stages(run, "test")[0])]
    assert len(set(seeds)) == len(seeds), "every test has episodes of its own"


def test_training_goes_on_after_a_failed_test_and_solves_later() -> None:
    run = train(
        *("ppo", NOISY),
        env_kwargs={"gain": 1.0},
        reward_threshold=0.8,
        policy_lr=0.01,
        max_epochs=60,
        **LUCK,
    )
    summary = query.get_run(run)
    failed = stages(run, "failed_test")
    assert failed, "the first tests fall short"
    assert (summary.solved, summary.stop_reason, summary.status) == (True, "solved", "finished")
    assert summary.test is not None
    assert summary.test["mean"] >= 0.8
    [sampled] = [e for e in stages(run, "test") if not e["greedy"]]
    assert sampled["env_steps"] == summary.env_steps == run.meta()["best"]["env_steps"]
    assert sampled["mean"] == summary.test["mean"], "what passed is what is reported"
    assert (run.checkpoints_dir / "best").resolve() == (run.checkpoints_dir / "last").resolve()


def test_tests_leave_training_alone() -> None:
    fields = {**LUCK, "reward_threshold": 0.3, "max_epochs": 12}
    tested = train("ppo", NOISY, **fields)
    untested = train("ppo", NOISY, early_stop_on_eval_threshold=None, **fields)
    assert weight_hash(tested) == weight_hash(untested)
    assert learning_rows(tested) == learning_rows(untested)


def test_a_resume_remembers_the_failed_tests() -> None:
    fields = {**LUCK, "reward_threshold": 0.3, "max_epochs": 16}
    whole, run = exact_resume("ppo", NOISY, at=14, every=1, **fields)
    for stage in ("val", "failed_test", "test"):
        own, other = (stages(r, stage) for r in (run, whole))
        for event in (*own, *other):
            del event["at"]
        assert own == other, stage
    assert len(stages(run, "failed_test")) >= 2
    assert run.meta()["test"] == whole.meta()["test"]


@pytest.mark.parametrize("threshold", [0.5, -0.5], ids=["budget", "solved"])
def test_a_run_killed_in_its_final_test_is_finished_by_a_resume(
    threshold: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {**LUCK, "reward_threshold": threshold, "max_epochs": 3, "eval_deterministic": True}
    whole = train("ppo", NOISY, **fields)
    with monkeypatch.context() as patch:
        evaluate = Evaluator.evaluate

        def die(self: Evaluator, *args: Any, greedy: bool, **clock: Any) -> Any:
            if greedy is False:  # the greedy test is done
                raise Crash
            return evaluate(self, *args, greedy=greedy, **clock)

        patch.setattr(Evaluator, "evaluate", die)
        with pytest.raises(Crash):
            train("ppo", NOISY, **fields)
    run = Run(Path("runs/@last").resolve())
    run.update_meta(status="running", pid=2**22 + 1)  # as kill -9 leaves it
    assert query.get_run(run).status == "killed"
    assert query.get_run(run).test is None
    resume(run.id)
    meta = run.meta()
    for name in ("status", "stop_reason", "solved", "test", "env_steps", "epoch", "best"):
        assert meta[name] == whole.meta()[name], name
    assert meta["status"] == "finished"
    assert len(stages(run, "test")) == 2
    assert run.report_path.exists()
    assert weight_hash(run) == weight_hash(whole)
    if threshold > 0:
        with pytest.raises(RunError, match="used up its budget"):
            resume(run.id)


def test_without_evaluations_the_last_checkpoint_is_tested() -> None:
    run = train("ppo", NOISY, reward_threshold=-1.0, max_epochs=3, test_episodes=50)
    assert run.meta()["solved"] is True
    assert {e["env_steps"] for e in events(run, "eval")} == {run.meta()["env_steps"]}
    assert not (run.checkpoints_dir / "best").exists()


def test_a_training_goal_is_tested_and_waits_for_new_episodes_after_a_failure() -> None:
    heard = Heard()
    run = train(
        *("ppo", "Probe/Counting-v0"),  # training scores 6, a test in one env 5
        observer=heard,
        n_steps=32,
        max_epochs=20,
        n_eval_envs=1,
        reward_threshold=5.5,
        early_stop_on_train_threshold=True,
    )
    assert run.meta()["stop_reason"] == "max_epochs"
    episodes = run.meta()["episodes"]
    assert 1 <= len(heard.tests) <= episodes // 100


@pytest.mark.parametrize(
    ("limit", "eval_episodes", "fixed", "expected"),
    [
        (None, 20, "auto", 100),
        (500, 20, "auto", 100),
        (1000, 20, "auto", 100),
        (2000, 20, "auto", 50),
        (27_000, 5, "auto", 30),
        (27_000, 40, "auto", 40),
        (None, 2000, "auto", 2000),
        (500, 20, 7, 7),
    ],
)
def test_how_many_episodes_a_test_has(
    limit: int | None, eval_episodes: int, fixed: Any, expected: int
) -> None:
    config = make_config("ppo", NOISY, eval_episodes=eval_episodes, test_episodes=fixed)
    spec = EnvSpec(NOISY, "sync", "", limit, None, "other")
    assert n_test_episodes(config, spec) == expected


def test_a_repeated_test_must_be_clearer() -> None:
    plan = Plan(make_config("ppo", NOISY, reward_threshold=10.0), None)
    returns = [8.0, 12.0] * 50
    result = EvalResult(0, 0, 100, True, 1, 10.0, 2.0, 8, 12, 1, returns, [1] * 100)
    assert result.stderr == pytest.approx(np.std(returns, ddof=1) / 10)
    needed = [required_mean(plan, result, n) for n in (0, 1, 9)]
    assert needed == pytest.approx([10.0, 10 + 1.177 * 0.201, 10 + 2.146 * 0.201], abs=1e-3)
    assert is_solved(plan, result)
    assert is_solved(plan, None) is False


def test_luck_of_many_tests_is_paid_for() -> None:
    """A policy half a standard error below the threshold, tested 50 times in each of 400 runs."""
    plan = Plan(make_config("ppo", NOISY, reward_threshold=0.0), None)
    rng = np.random.default_rng(0)
    means = rng.normal(-0.5, 1.0, (400, 50))
    unit = EvalResult(0, 0, 2, True, 1, 0.0, 1.0, 0, 0, 1, [], [])  # standard error 1
    assert unit.stderr == 1
    required = np.array([required_mean(plan, unit, k) for k in range(50)])
    naive, guarded = ((means >= need).any(1).mean() for need in (0.0, required))
    assert naive > 0.99
    assert guarded < 0.55, "little above the 0.31 of a single test"
