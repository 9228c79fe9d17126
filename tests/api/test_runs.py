"""The results of a Run in Python."""

import gymnasium
import numpy as np
import pytest

import gymnasium_solver as gs
from gymnasium_solver.errors import RunError

from .conftest import MakeRun


def test_results_of_a_run(make_run: MakeRun) -> None:
    run = make_run(max_epochs=3)
    assert run.status == "finished"
    assert run.solved is False
    assert run.test is not None
    assert run.test.episodes == 3
    assert run.best is not None
    assert run.last is not None
    assert run.last.env_steps == run.meta()["env_steps"]
    assert run.best.score == run.meta()["best"]["score"]
    text = repr(run)
    assert "not solved" in text
    assert f"test {run.test.mean:.4g}" in text
    columns = run.metrics()
    assert len(columns["env_steps"]) == 3
    assert {len(column) for column in columns.values()} == {3}
    assert columns["epoch"] == [1, 2, 3]


def test_the_agent_of_a_run(make_run: MakeRun) -> None:
    run = make_run()
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=1)
    assert gs.load(run).act(obs) == run.agent().act(obs)
    for checkpoint in ("@best", "@last", str(run.last.env_steps if run.last else 0)):
        assert run.agent(checkpoint).act(obs) in (0, 1)
    with pytest.raises(RunError, match="has no checkpoint at 7"):
        run.agent("7")
    weights = [agent.net.state_dict() for agent in (run.agent("@last"), gs.load(f"{run.id}/@last"))]
    for name, values in weights[0].items():
        np.testing.assert_array_equal(values, weights[1][name])


def test_a_run_without_evaluations_has_its_last_agent(make_run: MakeRun) -> None:
    run = make_run("Bandit-v0:ppo", eval_freq_epochs=None)
    assert run.best is None
    assert run.agent().policy.loaded_from is not None
    assert "finished" in repr(run)
    stopped = make_run(eval_freq_epochs=None, on_epoch=lambda row: True)
    assert (stopped.test, stopped.status) == (None, "interrupted")
    assert "interrupted" in repr(stopped)


def test_runs_are_found(make_run: MakeRun) -> None:
    first, second = make_run(), make_run("Bandit-v0:ppo")
    assert gs.open_run().id == second.id
    assert gs.open_run(first.id[-4:]).path == first.path
    assert {run.id for run in gs.list_runs()} == {first.id, second.id}
    assert [run.id for run in gs.list_runs("bandit")] == [second.id]
    assert repr(gs.Run(first.path / "nothing")).startswith("Run('")
