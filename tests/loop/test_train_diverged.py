"""Values that are not finite, and environments with bugs: found at once, told with the place and
advice, weights kept."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from gymnasium_solver.algos.ppo import PPO
from gymnasium_solver.algos.reinforce import Reinforce
from gymnasium_solver.cli.main import main
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.vector import Step, VectorEnv, VectorWrapper
from gymnasium_solver.envs.wrappers import register_wrapper
from gymnasium_solver.errors import ConfigError, DivergedError, EnvError, EnvValueError
from gymnasium_solver.fast.recorded import LossGradient
from gymnasium_solver.runs.checkpoint import load_checkpoint
from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.words import resume_command
from gymnasium_solver.spaces.actions import action_kind
from gymnasium_solver.training.agents import load_agent
from gymnasium_solver.training.finite import check_rollout, check_weights, dump_rollout
from tests.envs.faulty import FAULTY, Faulty
from tests.loop.conftest import SmallEnv, events, registered, resume, train, weight_hash

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")


@register_wrapper("SpoilOfDivergedTest")
class Spoil(VectorWrapper):
    """Puts `value` into `field` of env 1 at one step."""

    def __init__(self, env: VectorEnv, field: str, at_step: int, value: str = "nan") -> None:
        super().__init__(env)
        self.field, self.at_step, self.value = field, at_step, float(value)
        self.steps = 0

    def step(self, actions: Any) -> Step:
        step = self.env.step(actions)
        self.steps += 1
        if self.steps != self.at_step:
            return step
        spoilt = getattr(step, self.field).copy()
        spoilt[1] = self.value
        return step._replace(**{self.field: spoilt})


def spoil(field: str, at_step: int, value: str = "nan") -> list[dict[str, Any]]:
    """Wrappers of a config; a rollout has 16 steps, so step 40 is row 7 of the third."""
    wrapper = {"id": "SpoilOfDivergedTest", "field": field, "at_step": at_step, "value": value}
    return [wrapper]


def last_run() -> Run:
    return Run(Path("runs/@last").resolve())


def weights(run: Run) -> dict[str, np.ndarray]:
    return load_checkpoint(run.checkpoints_dir / "last").tensors["model"]


def assert_failed_well(run: Run, epoch: int) -> None:
    """The folder tells what happened and holds the last good state."""
    meta = run.meta()
    assert (meta["status"], meta["stop_reason"], meta["epoch"]) == ("failed", "diverged", epoch)
    dump = load_file(run.path / "diverged.safetensors")
    columns = {"obs", "actions", "reward", "terminated", "truncated", "valid", "is_first"}
    is_box = dump["actions"].dtype.kind == "f"
    assert set(dump) == columns | {"outputs"} | ({"log_std"} if is_box else set())
    checkpoint = load_checkpoint(run.checkpoints_dir / "last")
    for file in ("model", "optimizer"):
        for name, values in checkpoint.tensors[file].items():
            assert np.isfinite(values).all(), name
    assert checkpoint.env_steps == meta["env_steps"]


@pytest.mark.sample(6)
@pytest.mark.parametrize("algo_id", ["ppo", "reinforce"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize(
    ("field", "value", "row"),
    [("reward", "nan", 7), ("reward", "-inf", 7), ("obs", "nan", 8), ("obs", "inf", 8)],
)
def test_the_environment_gives_a_value_that_is_not_finite(
    field: str, value: str, row: int, env_id: str, algo_id: str
) -> None:
    good = train(algo_id, env_id, max_epochs=2)
    what = {"reward": "reward", "obs": "observation"}[field]
    with pytest.raises(DivergedError, match=rf"{what}.*env 1 at row {row} .*(nan|inf)") as caught:
        train(algo_id, env_id, env_wrappers=spoil(field, 40, value))
    assert "environment" in str(caught.value)
    run = last_run()
    assert_failed_well(run, epoch=3)
    assert run.meta()["error"] == str(caught.value)
    assert events(run, "diverged")[0]["text"] == str(caught.value)
    for name, values in weights(good).items():
        np.testing.assert_array_equal(weights(run)[name], values, err_msg=name)


def test_in_the_first_epoch_too(tmp_path: Path) -> None:
    with pytest.raises(DivergedError):
        train("ppo", "CartPole-v1", env_wrappers=spoil("reward", 3), normalize_obs="rolling")
    assert_failed_well(last_run(), epoch=1)
    agent = load_agent("@last", tmp_path / "runs")
    assert agent.act(np.zeros(4, np.float32), as_trained=True) in (0, 1)


def test_a_part_of_a_dict_is_named_and_every_part_is_dumped(tmp_path: Path) -> None:
    space = gymnasium.spaces.Dict(
        {
            "camera": gymnasium.spaces.Box(0, 255, (4, 4, 1), np.uint8),
            "speed": gymnasium.spaces.Box(-1, 1, (2,), np.float32),
        }
    )
    actions = action_kind(gymnasium.spaces.Discrete(2))
    rollout = Rollout.allocate(5, 3, space, actions)
    check_rollout(rollout, "Some-v0")
    assert isinstance(rollout.obs, dict)
    rollout.obs["speed"][4, 2, 1] = np.nan
    with pytest.raises(DivergedError, match=r"observation 'speed'.*env 2 at row 4 .*nan"):
        check_rollout(rollout, "Some-v0")
    dump_rollout(rollout, tmp_path)
    dump = load_file(tmp_path / "diverged.safetensors")
    assert {"obs.camera", "obs.speed", "actions", "reward"} <= set(dump)
    np.testing.assert_array_equal(dump["obs.speed"], rollout.obs["speed"])


class NanReward(SmallEnv):
    """The environment itself is at fault, so that the episode's return is spoilt as well."""

    n_steps = 0  # of all episodes

    def pay(self, action: int) -> float:
        self.n_steps += 1
        return np.nan if self.n_steps == 20 else 1.0

    def ends(self) -> bool:
        return self.t == 5


def test_a_spoilt_return_does_not_hide_the_error() -> None:
    with pytest.raises(DivergedError, match="reward"):
        train("ppo", registered(NanReward), n_steps=32)
    assert_failed_well(last_run(), epoch=1)


@pytest.mark.parametrize("compiled", ["auto", False])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_a_learning_rate_that_explodes(env_id: str, compiled: Any) -> None:
    with pytest.raises(DivergedError, match=r"(loss|norm|weights).*policy_lr"):
        train("ppo", env_id, policy_lr=1e30, compile=compiled)
    assert_failed_well(last_run(), epoch=1)


def test_a_step_that_overflows_though_its_gradient_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """REINFORCE measures its loss before the step: only the weights tell."""
    update = Reinforce.update

    def overflows(agent: Reinforce, *args: Any) -> dict[str, float]:
        metrics = update(agent, *args)
        agent.descent.optimizer.flat.data[3] = np.inf
        return metrics

    monkeypatch.setattr(Reinforce, "update", overflows)
    with pytest.raises(DivergedError, match=r"1 of \d+ weights are not finite.*policy_lr"):
        train("reinforce", "CartPole-v1")
    assert_failed_well(last_run(), epoch=1)


def test_a_gradient_that_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    good = train("ppo", "CartPole-v1", max_epochs=2)
    update = PPO.update
    n_updates = 0

    def spoilt(agent: PPO, *args: Any) -> dict[str, float]:
        nonlocal n_updates
        n_updates += 1
        if n_updates != 3:
            return update(agent, *args)
        gradient = LossGradient.__call__
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                LossGradient, "__call__", lambda *a: [gradient(*a)[0] * np.nan, *gradient(*a)[1:]]
            )
            return update(agent, *args)

    monkeypatch.setattr(PPO, "update", spoilt)
    with pytest.raises(DivergedError, match=r"grads/norm/all = nan.*[Ll]ower policy_lr"):
        train("ppo", "CartPole-v1")
    run = last_run()
    assert_failed_well(run, epoch=3)
    assert weight_hash(run) == weight_hash(good)
    # What is left can be gone on from.
    resume(run.id, policy_lr=1e-4, max_epochs=5)
    assert run.meta()["stop_reason"] == "max_epochs"
    assert weight_hash(run) != weight_hash(good)


@pytest.mark.parametrize(("field", "value"), [("reward", "nan"), ("obs", "inf")])
@pytest.mark.parametrize("algo_id", ["ppo", "dqn"])
def test_a_value_of_the_environment_is_resumed_exactly_from_the_last_checkpoint(
    algo_id: str, field: str, value: str
) -> None:
    how: dict[str, Any] = {"checkpoint_freq_epochs": 1, "max_epochs": 4}
    how |= {"learning_starts": 16} if algo_id == "dqn" else {}
    good = train(algo_id, "CartPole-v1", **how)
    with pytest.raises(EnvValueError) as caught:
        train(algo_id, "CartPole-v1", env_wrappers=spoil(field, 40, value), **how)
    assert ("Clip" in str(caught.value)) == (value == "inf")
    run = last_run()
    assert run.path != good.path
    summary = get_run(run)
    assert "--policy-lr" not in resume_command(summary)
    assert "environment" in resume_command(summary)
    (alert,) = [event for event in events(run, "alert") if event["name"] == "not_finite"]
    assert "policy_lr" not in alert["advice"]
    resume(run.id, env_wrappers=[])
    assert run.meta()["stop_reason"] == "max_epochs"
    assert weight_hash(run) == weight_hash(good)


def test_a_diverged_run_goes_on_with_new_episodes() -> None:
    with pytest.raises(DivergedError):
        train("ppo", "CartPole-v1", env_wrappers=spoil("reward", 40))
    run = last_run()
    before = run.meta()["env_steps"]
    resume(run.id, env_wrappers=[])
    meta = run.meta()
    assert (meta["status"], meta["stop_reason"], meta["epoch"]) == ("finished", "max_epochs", 4)
    assert meta["env_steps"] > before


@pytest.mark.parametrize("field", ["reward", "obs"])
def test_the_check_can_be_turned_off(field: str) -> None:
    run = train("ppo", "CartPole-v1", check_finite=False, env_wrappers=spoil(field, 40))
    assert run.meta()["stop_reason"] == "max_epochs"
    assert not (run.path / "diverged.safetensors").exists()
    assert not all(np.isfinite(values).all() for values in weights(run).values())


def test_without_the_check_an_action_of_nan_is_still_refused_by_the_envs() -> None:
    with pytest.raises(EnvError, match=r"nan.*env 1"):
        train("ppo", "Pendulum-v1", check_finite=False, env_wrappers=spoil("obs", 40))
    assert last_run().meta()["stop_reason"] == "error"


@pytest.mark.parametrize(("bad", "n_bad"), [(np.inf, 1), (-np.inf, 1), (np.nan, 1), (0.0, 0)])
def test_weights_that_are_not_finite_are_counted_and_large_ones_are_fine(
    bad: float, n_bad: int
) -> None:
    weights = [torch.full((5,), 3e38), torch.ones(3)]  # their sum is infinite
    check_weights(weights)
    weights[1][2] = bad
    if not n_bad:
        return check_weights(weights)
    with pytest.raises(DivergedError, match=f"{n_bad} of 8 weights"):
        check_weights(weights)


# -- environments with bugs in a run: one line that names them, their traceback in run.log --------


# Without random steps before the run, which decide the normalisation.
AS_IT_IS = {"normalize_obs": False, "normalize_reward": False}


@pytest.mark.parametrize("mode", ["sync", "async", "vector"])
def test_the_traceback_of_a_step_is_in_run_log(mode: str) -> None:
    kwargs = {"fault": "step", "at": 3}
    with pytest.raises(EnvError, match=rf"{FAULTY}.*step\(\) raised SizeError: size 3"):
        train("ppo", FAULTY, env_kwargs=kwargs, vectorization_mode=mode, **AS_IT_IS)
    log = last_run().log_path.read_text()
    assert "Traceback of the environment" in log
    assert 'fail("step")' in log
    assert "SizeError" in last_run().meta()["error"]


@pytest.mark.sample(5)
@pytest.mark.parametrize("mode", ["sync", "async", "vector"])
@pytest.mark.parametrize("algo_id", ["ppo", "dqn"])
@pytest.mark.parametrize(("fault", "what"), [("obs", "observation"), ("reward", "reward")])
def test_values_that_are_not_finite(mode: str, algo_id: str, fault: str, what: str) -> None:
    kwargs = {"fault": fault, "at": 3, "value": "nan"}
    with pytest.raises(DivergedError, match=rf"{FAULTY}: .* of the {what} are not finite"):
        train(algo_id, FAULTY, env_kwargs=kwargs, vectorization_mode=mode)


def test_numbers_that_float32_cannot_hold() -> None:
    kwargs = {"fault": "obs", "at": 2, "value": [1e300] * 3}
    with pytest.raises(DivergedError, match=rf"{FAULTY}: .*not finite.*inf"):
        train("ppo", FAULTY, env_kwargs=kwargs, vectorization_mode="sync")


def test_a_return_that_is_not_finite_has_no_score() -> None:
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


def test_observations_that_no_memory_holds() -> None:
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
