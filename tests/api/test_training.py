"""Progress, callbacks, resuming and environments given as code."""

import functools
import os
import signal
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest

import gymnasium_solver as gs
from gymnasium_solver.cli.main import main
from gymnasium_solver.errors import ConfigError, EnvError

from .conftest import SMALL, MakeRun, Walk


def weights(run: gs.Run) -> bytes:
    return (run.checkpoints_dir / "last" / "model.safetensors").read_bytes()


def test_sigterm_saves_and_ends_the_program(make_run: MakeRun) -> None:
    def terminate(row: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        make_run(on_epoch=terminate, max_epochs=4)
    assert ended.value.code == 75
    assert signal.getsignal(signal.SIGTERM) is before
    run = gs.open_run()
    assert (run.meta()["status"], run.meta()["epoch"]) == ("interrupted", 1)
    with pytest.raises(SystemExit):
        gs.resume(run, on_epoch=terminate)
    whole = make_run(max_epochs=4)
    assert weights(gs.resume(run)) == weights(whole)


# -- progress and callbacks -------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{"progress": True}, {"quiet": False}])
def test_progress_is_shown_if_asked_for(
    fields: Any, make_run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(**fields)
    shown = capsys.readouterr().out
    assert run.id in shown
    assert "env steps" in shown
    assert "test" in shown


def test_nothing_is_printed_otherwise(
    make_run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run()
    assert capsys.readouterr().out == ""


def test_a_callback_stops_the_run_which_can_be_resumed(make_run: MakeRun) -> None:
    whole = make_run(max_epochs=4)
    answers = {1: None, 2: "long enough", 3: np.bool_(True), 4: False}
    epochs = []

    def on_epoch(row: dict[str, Any]) -> Any:
        epochs.append(row["epoch"])
        return answers[row["epoch"]]

    run = make_run(max_epochs=4, on_epoch=on_epoch)
    assert (run.status, run.meta()["stop_reason"]) == ("interrupted", "requested")
    assert run.meta()["stop_detail"] == "long enough"
    assert gs.resume(run, on_epoch=on_epoch).meta()["stop_detail"] == "on_epoch asked for it"
    resumed = gs.resume(run, on_epoch=on_epoch)
    assert epochs == [1, 2, 3, 4]
    assert resumed.status == "finished"
    assert weights(resumed) == weights(whole)


def test_an_evaluation_can_stop_the_run(make_run: MakeRun) -> None:
    seen: list[gs.EvalResult] = []

    def on_eval(result: gs.EvalResult) -> bool:
        seen.append(result)
        return result.mean > -1

    run = make_run(max_epochs=4, on_eval=on_eval)
    assert len(seen) == 1
    assert run.meta()["epoch"] == 1
    assert gs.resume(run.id, on_eval=lambda result: False).meta()["epoch"] == 4


def test_a_callback_that_fails_is_heard_of_and_training_goes_on(make_run: MakeRun) -> None:
    with pytest.warns(UserWarning, match="on_epoch failed, training continues: KeyError: 'loss'"):
        run = make_run(on_epoch=lambda row: row["loss"] > 3)
    assert run.status == "finished"
    with pytest.raises(ConfigError, match="on_eval: got 3, expected a function"):
        make_run(on_eval=3)


def test_more_budget_for_a_finished_run(make_run: MakeRun) -> None:
    run = make_run()
    more = gs.resume(run, max_epochs=3)
    assert (more.id, more.meta()["epoch"]) == (run.id, 3)
    back = gs.resume(f"{run.id}/{more.best.env_steps if more.best else 0}", max_epochs=4)
    assert back.meta()["epoch"] == 4


# -- environments given as code ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("factory", "fields"),
    [
        (Walk, {"env_kwargs": {"length": 4}}),
        (lambda: Walk(4), {}),
        (functools.partial(Walk, length=4), {}),
    ],
)
def test_a_class_or_a_factory_is_trained(factory: Any, fields: Any, make_run: MakeRun) -> None:
    Walk.made = 0
    run = make_run(factory, algo="ppo", **fields)
    assert run.status == "finished"
    assert Walk.made >= 2 + 2 + 1, "separate ones for training and evaluation"
    assert run.meta()["env_id"] in ("Python/Walk-v0", "Python/lambda-v0")
    assert set(gs.evaluate(run, 3, env=factory).lengths) == {4}
    assert not [name for name in gymnasium.registry if name.startswith("Python/")]


def test_resuming_with_the_same_factory_is_exact(make_run: MakeRun) -> None:
    whole = make_run(Walk, max_epochs=4)
    run = make_run(Walk, max_epochs=4, on_epoch=lambda row: row["epoch"] == 2)
    assert run.meta()["epoch"] == 2
    resumed = gs.resume(run, env=Walk)
    assert weights(resumed) == weights(whole)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        repeated = gs.train(str(whole.config_path), env=Walk)
    assert weights(repeated) == weights(whole)


def test_the_folder_says_that_it_cannot_rebuild_the_environment(
    make_run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(Walk)
    assert "cannot rebuild it" in run.config_path.read_text()
    report = run.report_path.read_text()
    assert "cannot rebuild it" in report
    assert "gsolve train" not in report.partition("## Result")[2]
    for call in (gs.resume, gs.evaluate, gs.make_env):
        with pytest.raises(EnvError, match=r"Python/Walk-v0 was given .* env="):
            call(run)
    with pytest.raises(EnvError, match=r"given to gs\.train as Python code"):
        gs.train(str(run.config_path))
    assert main(["eval", run.id]) == 2
    assert main(["train", str(run.config_path)]) == 2
    errors = capsys.readouterr().err
    assert errors.count("gs.resume, gs.evaluate") == 2
    assert run.agent().act(Walk().reset(seed=1)[0])["turn"] in (0, 1)


def test_bad_environments(make_run: MakeRun) -> None:
    same = Walk()
    for given, message in (
        (Walk(), r"train\(\) got an environment object.*lambda: Walk\(\.\.\.\)\."),
        (gymnasium.make("CartPole-v1"), r"or its id, 'CartPole-v1'"),
        (lambda: same, "returns the same environment every time"),
        (lambda: 3, "returned int, expected a gymnasium.Env"),
        (lambda: gymnasium.make("Nope-v1"), "failed to make an environment"),
        (lambda: gymnasium.make_vec("CartPole-v1", 2), "expected a gymnasium.Env"),
        (functools.partial(Walk, size=3), "TypeError"),  # type: ignore[call-arg]
        (7, "got int 7 as an environment"),
    ):
        with pytest.raises(EnvError, match=message):
            make_run(given)
    with pytest.raises(EnvError, match="got an environment twice"):
        gs.train(Walk, env=Walk)
    with pytest.raises(EnvError, match="was trained on CartPole-v1; leave env out"):
        gs.resume(make_run(), env=Walk)
    with pytest.raises(ConfigError, match="algo 'dqn': the config is one of ppo"):
        gs.train(gs.load_config("CartPole-v1:ppo"), algo="dqn")


def test_the_algorithm_as_an_argument() -> None:
    run = gs.train("CartPole-v1", algo="reinforce", **{
        name: value for name, value in SMALL.items() if name not in ("batch_size", "n_epochs")
    })  # fmt: skip
    assert run.meta()["algo_id"] == "reinforce"
