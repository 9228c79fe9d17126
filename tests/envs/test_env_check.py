"""`gsolve doctor env`: each kind of broken environment is found, sound ones are left in peace."""

import json
from typing import Any

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.envs.env_findings import Finding, all_findings, examine, raw_findings


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
