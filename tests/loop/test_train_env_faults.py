"""Environments with bugs in a run: one line that names them, their traceback in run.log."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.errors import ConfigError, DivergedError, EnvError
from gymnasium_solver.runs.run import Run
from tests.envs.faulty import FAULTY, Faulty
from tests.loop.conftest import Train

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")


# Without random steps before the run, which decide the normalisation.
AS_IT_IS = {"normalize_obs": False, "normalize_reward": False}


def last_run() -> Run:
    return Run(Path("runs/@last").resolve())


@pytest.mark.parametrize("mode", ["sync", "async", "vector"])
def test_the_traceback_of_a_step_is_in_run_log(train: Train, mode: str) -> None:
    kwargs = {"fault": "step", "at": 3}
    with pytest.raises(EnvError, match=rf"{FAULTY}.*step\(\) raised SizeError: size 3"):
        train("ppo", FAULTY, env_kwargs=kwargs, vectorization_mode=mode, **AS_IT_IS)
    log = last_run().log_path.read_text()
    assert "Traceback of the environment" in log
    assert 'fail("step")' in log
    assert "SizeError" in last_run().meta()["error"]


@pytest.mark.parametrize("mode", ["sync", "async", "vector"])
@pytest.mark.parametrize("algo_id", ["ppo", "dqn"])
@pytest.mark.parametrize(("fault", "what"), [("obs", "observation"), ("reward", "reward")])
def test_values_that_are_not_finite(
    train: Train, mode: str, algo_id: str, fault: str, what: str
) -> None:
    kwargs = {"fault": fault, "at": 3, "value": "nan"}
    with pytest.raises(DivergedError, match=rf"{FAULTY}: .* of the {what} are not finite"):
        train(algo_id, FAULTY, env_kwargs=kwargs, vectorization_mode=mode)


def test_numbers_that_float32_cannot_hold(train: Train) -> None:
    kwargs = {"fault": "obs", "at": 2, "value": [1e300] * 3}
    with pytest.raises(DivergedError, match=rf"{FAULTY}: .*not finite.*inf"):
        train("ppo", FAULTY, env_kwargs=kwargs, vectorization_mode="sync")


def test_a_return_that_is_not_finite_has_no_score(train: Train) -> None:
    """Found in an evaluation too, where no rollout is checked."""
    kwargs = {"fault": "reward", "at": 2, "value": "inf"}
    fields = {"normalize_reward": False, "check_finite": False, "eval_freq_epochs": 1}
    with pytest.raises(DivergedError, match=rf"{FAULTY}: the return of an episode is inf"):
        train("ppo", FAULTY, env_kwargs=kwargs, vectorization_mode="sync", **fields)


def test_the_command_shows_the_traceback_below_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plugins = "--plugins=tests.envs.faulty"
    assert main(["train", FAULTY, "--algo-id", "ppo", "--env-kwargs", "fault=init", plugins]) == 2
    first, blank, heading, *rest = capsys.readouterr().err.splitlines()
    assert first.startswith(f"gsolve train: {FAULTY} cannot be made by gymnasium")
    assert "no config named" not in first
    assert (blank, heading) == ("", "Traceback of the environment (most recent call last):")
    assert rest[-1].endswith("SizeError: size 3 is wrong in init")


def test_observations_that_no_memory_holds(train: Train) -> None:
    """Told before a network for them is built, which would take longer than this test may."""

    class Huge(Faulty):
        observation_space = gymnasium.spaces.Box(0, 255, (600, 800, 3), np.uint8)

        def __init__(self) -> None:
            pass

    gymnasium.register(
        "GsolveTest/Huge-v0", entry_point=lambda **_: Huge(), disable_env_checker=True
    )
    with pytest.raises(ConfigError, match=r"GsolveTest/Huge-v0: the rollout .* GiB.*resize_obs"):
        train(
            *("ppo", "GsolveTest/Huge-v0"),
            vectorization_mode="sync",
            n_steps=1_000_000,
            **AS_IT_IS,
        )
