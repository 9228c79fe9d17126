"""Faulty environments: their mistakes are explained when they are used, and found by the check."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.envs import env_bugs
from gymnasium_solver.envs.env_findings import Finding, all_findings, examine, raw_findings
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.random_steps import RepeatedPairs, Rollout, ambiguity
from gymnasium_solver.errors import EnvError, MissingError, details_of
from tests.envs.faulty import FAULTY, Faulty

MODES = ("sync", "async", "vector")
ACTIONS = np.zeros(2, np.int64)


def make(mode: str, **kwargs: Any) -> Any:
    return make_vector_env(FAULTY, 2, vectorization_mode=mode, env_kwargs=kwargs)


def play(mode: str, n_steps: int = 6, **kwargs: Any) -> tuple[Any, list[Any]]:
    """The first observation and the steps; the env is closed whatever happens."""
    env = make(mode, **kwargs)
    try:
        return env.reset(1), [env.step(ACTIONS) for _ in range(n_steps)]
    finally:
        env.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", ["init", "reset", "step"])
def test_an_exception_of_the_env_keeps_its_traceback(mode: str, fault: str) -> None:
    with pytest.raises(EnvError) as caught:
        play(mode, fault=fault)
    message, details = str(caught.value), details_of(caught.value)
    assert message.startswith(FAULTY)
    assert f"SizeError: size 3 is wrong in {fault}" in message
    assert "faulty.py, line" in message
    assert "\n" not in message
    assert f"fail({fault!r})".replace("'", '"') in details  # the line that called it
    assert "gymnasium_solver" not in details.replace("gymnasium_solver/tests", "")


@pytest.mark.parametrize("mode", MODES)
def test_a_sound_env_has_no_fault(mode: str) -> None:
    first, steps = play(mode)
    assert first.shape == (2, 3)
    assert [step.reward.tolist() for step in steps[:4]] == [[1.0, 1.0]] * 4


@pytest.mark.sample(14)
@pytest.mark.parametrize(
    ("space", "value", "problem"),
    [
        ("box", np.zeros(4, np.float32), r"shape \(4,\), expected \(3,\)"),
        ("box", np.zeros(1, np.float32), r"shape \(1,\), expected \(3,\)"),  # would be broadcast
        ("box", "abc", "expected numbers"),
        ("box", None, "expected numbers"),
        ("bytes", np.full(3, 0.5), "0.5, expected whole numbers"),  # would be cut to 0
        ("bytes", np.full(3, 300), "300, expected 0 to 255"),  # would wrap around
        ("discrete", 7, "7, expected 0 to 3"),
        ("discrete", -1, "-1, expected 0 to 3"),
    ],
)
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("fault", ["reset_value", "obs"])
def test_observations_that_do_not_fit(
    mode: str, fault: str, space: str, value: Any, problem: str
) -> None:
    with pytest.raises(EnvError, match=rf"{FAULTY}: env 0 returned .*{problem}"):
        play(mode, fault=fault, space=space, value=value)


@pytest.mark.parametrize(
    ("space", "value", "problem"),
    [
        ("box", np.zeros((2, 4), np.float32), r"shape \(2, 4\), expected \(2, 3\)"),
        ("box", np.zeros(3, np.float32), r"shape \(3,\), expected \(2, 3\)"),
        ("bytes", np.full((2, 3), 0.5), "0.5, expected whole numbers"),
        ("discrete", np.array([1, 7]), "7, expected 0 to 3"),
    ],
)
def test_batches_that_do_not_fit(space: str, value: Any, problem: str) -> None:
    with pytest.raises(EnvError, match=rf"{FAULTY}: it returned .*{problem}"):
        play("vector", fault="obs", space=space, value=value)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("space", ["scalar", "discrete", "bytes"])
def test_spaces_of_any_shape_are_delivered(mode: str, space: str) -> None:
    first, steps = play(mode, space=space)
    assert first.shape == steps[0].obs.shape == ((2, 3) if space == "bytes" else (2,))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_equal_numbers_in_another_form_are_taken(mode: str) -> None:
    _, steps = play(mode, fault="obs", value=[[0.25, 0.5, 1.0]])  # a list, (1, 3)
    assert steps[0].obs.tolist() == [[0.25, 0.5, 1.0]] * 2
    _, steps = play(mode, fault="obs", space="discrete", value=np.array([2.0]))
    assert steps[0].obs.tolist() == [2, 2]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("reward", [2, np.array([2.0]), np.array([[2.0]]), True])
def test_rewards_that_are_one_number(mode: str, reward: Any) -> None:
    _, steps = play(mode, fault="reward", value=reward)
    assert steps[0].reward.tolist() == [float(np.asarray(reward).item())] * 2
    assert steps[0].reward.dtype == np.float32


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("reward", [np.zeros(3), "much", None, [1.0, 2.0]])
def test_rewards_that_are_no_number(mode: str, reward: Any) -> None:
    with pytest.raises(EnvError, match=rf"{FAULTY}: env 0 returned the reward .*expected a number"):
        play(mode, fault="reward", value=reward)


def test_a_vector_of_rewards_is_refused_with_the_wrapper_that_helps() -> None:
    with pytest.raises(EnvError, match=r"LinearReward', weight: \[0\.333, 0\.333, 0\.333\]"):
        play("sync", fault="reward", value=np.zeros(3))


def test_batches_of_rewards() -> None:
    _, steps = play("vector", fault="reward", value=np.array([[2.0], [3.0]]))
    assert steps[0].reward.tolist() == [2.0, 3.0]
    with pytest.raises(EnvError, match=rf"{FAULTY}: it returned rewards of shape \(3,\)"):
        play("vector", fault="reward", value=np.zeros(3))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_old_step_of_four_values(mode: str) -> None:
    with pytest.raises(EnvError, match=r"step\(\) returned 4 values, expected 5"):
        play(mode, fault="old")


@pytest.mark.parametrize("mode", MODES)
def test_an_env_that_cannot_be_closed_is_a_warning(mode: str) -> None:
    with pytest.warns(UserWarning, match=rf"{FAULTY}.*close\(\) raised SizeError"):
        play(mode, fault="close")


def test_an_env_that_hangs_in_a_process_of_its_own() -> None:
    env = make_vector_env(
        FAULTY, 2, vectorization_mode="async", env_kwargs={"fault": "hang"}, timeout_s=0.3
    )
    env.reset(1)
    started = time.perf_counter()
    with pytest.raises(EnvError, match=r"env 0, 1 did not answer within 0.3 s.*env_timeout_s"):
        env.step(ACTIONS)
    env.close()
    assert time.perf_counter() - started < 20  # it does not wait for what hangs


LATE = 3  # the guards are off by then
BAD_ANSWERS = [
    ("terminated", "False", "returned terminated='False', expected true or false"),
    ("terminated", None, "returned terminated=None"),
    ("truncated", [], r"returned truncated=\[\]"),
    ("terminated", 0.5, "returned terminated=0.5"),
    ("reward", "7", "returned the reward '7', expected a number"),
    ("reward", None, "returned the reward None"),
    ("info", None, "returned info=None, expected a dict"),
    ("info", [1], r"returned info=\[1\]"),
    ("info", "", "returned info=''"),
    ("obs", np.float32(1.0), r"returned .*has shape \(\), expected \(3,\)"),
    ("obs", 0.5, r"returned .*has shape \(\), expected \(3,\)"),
    ("obs", np.zeros((3, 1), np.float32), r"returned .*has shape \(3, 1\)"),
    ("obs", np.array(["1", "2", "3"]), "returned .*expected numbers"),
    ("obs", np.array([1.0, None, 2.0]), "returned .*has dtype object, expected numbers"),
    ("obs", "123", "returned .*expected numbers"),
    ("answer", (1, 2, 3, 4, 5, 6), r"step\(\) (returned 6 values, expected|must return) 5 values"),
    ("answer", (1, 2, 3, 4), r"step\(\) (returned 4 values, expected|must return) 5 values"),
    ("answer", None, r"step\(\) (returned a NoneType, expected|must return) 5 values"),
    ("exit", None, r"step\(\) raised SystemExit: 3 \(.*faulty.py"),
]


@pytest.mark.parametrize("at", [1, LATE])
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(("fault", "value", "problem"), BAD_ANSWERS)
def test_sync_refuses_a_wrong_answer_at_any_step(
    fault: str, value: Any, problem: str, at: int, wrapped: bool
) -> None:
    limit = 50 if wrapped else None  # TimeLimit unpacks the answer before anybody else
    env = make_vector_env(
        FAULTY, 2, vectorization_mode="sync", max_episode_steps=limit,
        env_kwargs={"fault": fault, "value": value, "at": at},
    )  # fmt: skip
    env.reset(1)
    for _ in range(at - 1):
        env.step(ACTIONS)
    with pytest.raises(EnvError, match=f"{FAULTY}: env 0:? {problem}"):
        env.step(ACTIONS)
    env.close()


@pytest.mark.parametrize(
    ("fault", "value", "problem"),
    [case for case in BAD_ANSWERS if case[0] in ("terminated", "info", "answer", "exit")],
)
def test_async_refuses_a_wrong_answer(fault: str, value: Any, problem: str) -> None:
    with pytest.raises(EnvError, match=problem):
        play("async", fault=fault, value=value)


@pytest.mark.parametrize(
    ("fault", "value", "problem"),
    [
        ("obs", np.zeros((2, 4), np.float32), r"shape \(2, 4\), expected \(2, 3\)"),
        ("obs", np.zeros((3, 3), np.float32), r"shape \(3, 3\), expected \(2, 3\)"),
        ("obs", None, "expected numbers"),
        ("info", None, r"info=None from step\(\), expected a dict"),
        ("terminated", np.array([0.5, 1.0]), "terminated=.*expected true or false"),
        ("terminated", np.array([np.nan, 1.0]), "terminated=.*expected true or false"),
        ("terminated", True, r"terminated of shape \(\), expected \(2,\)"),
        ("truncated", ["False", "True"], "truncated=.*expected true or false"),
        ("reward", ["1", "2"], "the rewards .*expected numbers"),
        ("answer", (1, 2, 3, 4), r"4 values from step\(\), expected 5 values"),
        ("exit", None, r"step\(\) raised SystemExit: 3"),
    ],
)
@pytest.mark.parametrize("at", [1, LATE])
def test_batches_are_checked_at_any_step(fault: str, value: Any, problem: str, at: int) -> None:
    with pytest.raises(EnvError, match=rf"^{FAULTY}: .*{problem}"):
        play("vector", fault=fault, value=value, at=at)


def test_a_batch_that_never_begins_an_episode() -> None:
    env = make("vector", fault="terminated", value=np.ones(2, np.bool_), at=1)
    env.reset(1)
    env.step(ACTIONS)
    env._vec.at = 2
    with pytest.raises(EnvError, match="ends in the step that resets it"):
        env.step(ACTIONS)
    env.close()


def test_any_error_between_send_and_receive_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    env: Any = make_vector_env(FAULTY, 2, vectorization_mode="async", timeout_s=20.0)
    env.reset(1)

    def fail_here(*_: Any) -> Any:
        raise LookupError("in the parent")

    monkeypatch.setattr(env._vec, "_add_info", fail_here)
    started = time.perf_counter()
    with pytest.raises(EnvError, match=r"answers of step\(\) cannot be read: LookupError: in the"):
        env.step(ACTIONS)
    env.close()
    assert time.perf_counter() - started < 15
    assert not any(process.is_alive() for process in env._vec.processes)


def test_a_process_that_does_not_close_is_killed() -> None:
    env: Any = make_vector_env(
        FAULTY, 2, vectorization_mode="async", env_kwargs={"fault": "close_hangs"}, timeout_s=2.0
    )
    env.reset(1)
    with pytest.warns(UserWarning, match=r"close\(\) of env 0, 1 did not end within 2 s"):
        env.close()
    assert not any(process.is_alive() for process in env._vec.processes)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_long_text_of_an_error_costs_nothing_and_is_cut(mode: str) -> None:
    started = time.process_time()
    with pytest.raises(EnvError, match=r"step\(\) raised ValueError: xxx") as caught:
        play(mode, fault="long")
    assert time.process_time() - started < 5  # it was a minute and a half
    assert len(str(caught.value)) < 1000
    assert len(details_of(caught.value)) < 5000


def test_an_env_whose_process_dies() -> None:
    class Dying(Faulty):
        def step(self, action: int) -> Any:
            os._exit(3)

    gymnasium.register(
        "GsolveTest/Dying-v0", entry_point=lambda **_: Dying(), disable_env_checker=True
    )
    env = make_vector_env("GsolveTest/Dying-v0", 2, vectorization_mode="async")
    env.reset(1)
    with pytest.raises(EnvError, match=r"Dying-v0: the process of env \d ended"):
        env.step(ACTIONS)
    env.close()


@pytest.mark.parametrize(
    "source",
    ["raise OSError('no display')", "import no_such_package", "1 +", "raise SystemExit(3)"],
)
def test_a_module_that_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    (tmp_path / "broken_envs.py").write_text(f"x = 1\n{source}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_envs", raising=False)
    with pytest.raises(EnvError) as caught:
        make_vector_env("broken_envs:Some-v0", 1)
    message = str(caught.value)
    assert message.startswith("broken_envs:Some-v0: cannot import 'broken_envs'")
    assert "\n" not in message
    assert ("xvfb-run" in message) == ("display" in source)


def test_what_mujoco_4_breaks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gymnasium_robotics"
    folder.mkdir()
    (folder / "__init__.py").write_text("assert 1 == 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gymnasium_robotics", raising=False)
    found = {"mujoco": "4.0.0", "gymnasium-robotics": "1.4.2"}
    monkeypatch.setattr(env_bugs, "installed", found.get)
    advice = r"gymnasium-robotics 1.4.2 fails with mujoco 4.0.0: pip install mujoco==3.3.7"
    with pytest.raises(EnvError, match=rf"AssertionError.*{advice}"):
        make_vector_env("gymnasium_robotics:FetchReach-v4", 1)
    found["mujoco"] = "3.3.7"
    with pytest.raises(EnvError, match=r"AssertionError \(.*__init__.py, line 1\)$"):
        make_vector_env("gymnasium_robotics:FetchReach-v4", 1)


def test_a_data_file_that_envpool_does_not_bring_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "site-packages" / "envpool_assets" / "jumanji" / "puzzles.npy"
    error = RuntimeError(f"failed to open Sudoku database: {path}")
    found = env_bugs.env_bug("Sudoku-v0: reset() raised", error)
    assert isinstance(found, MissingError)
    file = Path("envpool_assets", "jumanji", "puzzles.npy")
    assert str(found) == (
        f"Sudoku-v0: the installed EnvPool does not bring its data file {file}. "
        "Choose another environment."
    )
    path.parent.mkdir(parents=True)
    path.touch()  # it is there: something else is wrong with it
    assert not isinstance(env_bugs.env_bug("Sudoku-v0: reset() raised", error), MissingError)


class Walk(gymnasium.Env[Any, Any]):
    """A sound environment, and what a flaw makes of it."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}
    observation_space = gymnasium.spaces.Box(-5.0, 5.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, flaw: str = "", render_mode: str | None = None) -> None:
        self.flaw, self.render_mode, self.ever = flaw, render_mode, 0
        if flaw == "unbounded":
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.place = 0, self.np_random.uniform(-1, 1)
        self.length = int(self.np_random.integers(5, 20))
        return self._obs(), {}

    def step(self, action: int) -> Any:
        self.steps += 1
        self.ever += 1
        self.place = float(np.clip(self.place + (0.3 if action else -0.3), -4, 4))
        ended = self.steps >= (10 if self.flaw == "same_length" else self.length)
        if self.flaw == "endless":
            ended = False
        reward: Any = {"nan_reward": np.nan, "large": 5000.0 * self.place}.get(self.flaw, 0.5)
        if self.flaw == "never_paid":
            reward = 0.0
        flag: Any = 1 if self.flaw == "int_flag" and ended else ended
        return self._obs(), reward, flag, False, {}

    def _obs(self) -> Any:
        values = [self.place, self.steps / 20]
        if self.flaw == "nan" and self.steps == 3:
            values[1] = np.nan
        if self.flaw == "outside":
            values[0] = 7 * values[0]
        if self.flaw == "unbounded":
            values[1] = 1000.0 * self.steps
        if self.flaw == "drifts":
            values[1] = self.ever / 1e6
        return np.array(values, np.float64 if self.flaw == "dtype" else np.float32)

    def render(self) -> Any:
        return np.zeros((8, 8, 3), np.uint8)


for _name, _limit in (("Walk", 50), ("WalkFree", None)):
    _id = f"GsolveTest/{_name}-v0"
    if _id not in gymnasium.registry:
        gymnasium.register(_id, lambda **kwargs: Walk(**kwargs), max_episode_steps=_limit)


def findings(flaw: str, name: str = "Walk") -> dict[str, Finding]:
    env_id = f"GsolveTest/{name}-v0"
    found = [*raw_findings(env_id, {"flaw": flaw}), *examine(env_id, {"flaw": flaw}, 800)]
    return {finding.name: finding for finding in found}


def test_a_sound_environment_is_left_in_peace() -> None:
    found = findings("")
    assert {finding.level for finding in found.values()} == {"ok"}
    names = {"class", "finite", "bounds", "scale", "reward", "episodes", "seeding", "autoreset"}
    assert names | {"time limit"} == set(found)


@pytest.mark.parametrize(
    ("flaw", "name", "level", "text"),
    [
        ("nan", "finite", "problem", "number 1 is nan after 3 steps"),
        ("outside", "bounds", "problem", "number 0 of 2 leave the bounds"),
        ("unbounded", "scale", "advice", "2 of 2 numbers unbounded"),
        ("nan_reward", "reward", "problem", "not finite"),
        ("large", "reward", "advice", "returns"),
        ("never_paid", "reward", "advice", "not 0 in 0%"),
        ("drifts", "seeding", "problem", "the same seed and actions gave another"),
        ("dtype", "class", "problem", "step() returns float64, but float32 is declared"),
        ("int_flag", "class", "problem", "step() returns terminated=1, expected a bool"),
    ],
)
def test_a_flaw_is_found(flaw: str, name: str, level: str, text: str) -> None:
    finding = findings(flaw)[name]
    assert finding.level == level
    assert text in finding.text
    assert finding.fix


def test_episodes_without_end_or_with_a_disguised_limit() -> None:
    endless = findings("endless", "WalkFree")["episodes"]
    assert (endless.level, "max_episode_steps" in endless.fix) == ("problem", True)
    limited = findings("endless")["episodes"]
    assert limited.level == "ok"
    disguised = findings("same_length", "WalkFree")["episodes"]
    assert disguised.level == "advice"
    assert "truncated=True" in disguised.fix
    free = findings("", "WalkFree")["episodes"]
    assert (free.level, "max_episode_steps" in free.fix) == ("advice", True)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1", "Bandit-v0", "Pendulum-v1"])
def test_shipped_environments_have_no_problem(env_id: str) -> None:
    assert [f for f in all_findings(env_id, {}, 400) if f.level == "problem"] == []


def test_the_verb_prints_advises_and_exits(capsys: Any) -> None:
    assert main(["doctor", "env", "GsolveTest/Walk-v0", "--steps", "400"]) == 0
    text = capsys.readouterr().out
    assert "✓ 8 × 8 pixels by sync" in text
    assert "sync " in text
    assert "nothing to fix" in text
    argv = ["doctor", "env", "GsolveTest/Walk-v0", "--env-kwargs", "flaw=outside", "--json"]
    assert main(argv) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["healthy"] is False
    assert "bounds" in [row["name"] for row in told["findings"] if row["level"] == "problem"]


def test_bad_words_are_told(capsys: Any) -> None:
    assert main(["doctor", "env", "NoSuchThing-v0"]) == 2
    captured = capsys.readouterr()
    assert "Unknown environment 'NoSuchThing-v0'" in captured.err
    assert captured.out == ""
    assert main(["doctor", "env", "CartPole-v1", "--env-kwargs", "oops"]) == 2
    assert main(["doctor", "env", "CartPole-v1", "--steps", "1"]) == 2


def test_rewards_that_depend_on_the_past_are_found() -> None:
    pairs = RepeatedPairs()
    obs, actions = np.zeros((400, 1)), np.zeros(400, np.int64)
    pairs.add([obs, actions], np.tile([0.0, 1.0], 200))
    assert pairs.ambiguous == pytest.approx(0.5, abs=0.01)
    plain = RepeatedPairs()
    plain.add([np.arange(400) % 4, actions], np.arange(400.0) % 4)
    assert plain.ambiguous == 0
    new = RepeatedPairs()
    new.add([np.arange(400.0), actions], np.zeros(400))
    assert new.ambiguous is None, "nothing is repeated"


@pytest.mark.parametrize(("depends_on", "history"), [("past", 2), ("chance", None)])
def test_aliasing_is_told_from_chance(depends_on: str, history: int | None) -> None:
    """Noise stays where earlier observations are equal; what depends on them is explained."""
    rng, shape = np.random.default_rng(0), (500, 4)
    obs, actions = rng.integers(3, size=shape), rng.integers(2, size=shape)
    before = np.roll(obs, 3, axis=0)  # the one that was seen two steps before the last
    reward = (actions == before % 2) if depends_on == "past" else rng.random(shape) < 0.3
    never = np.zeros(shape, bool)
    rollout = Rollout(
        obs[0], obs, actions, reward.astype(np.float32), never, never, never, never, [], [], []
    )
    share, found = ambiguity(rollout)
    assert share is not None
    assert share > 0.2
    assert found == history


def test_gymnasium_warns_of_an_environment_once(recwarn: pytest.WarningsRecorder) -> None:
    checker = gymnasium.wrappers.PassiveEnvChecker
    for _ in range(2):
        env: Any = make_vector_env("MountainCar-v0", 3, vectorization_mode="sync")
    wrappers = [type(one.env) for one in env._vec.envs]
    assert checker not in wrappers
