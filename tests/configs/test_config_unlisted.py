"""Environments that no config file is about: `gsolve train Custom-v0 --algo-id ppo`."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.config.load import config_dict
from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.spec import UNLIMITED_STEPS
from gymnasium_solver.errors import GsolveError
from gymnasium_solver.training import choose
from gymnasium_solver.training.prepare import build_config, load_config

CORRIDOR = """
import gymnasium
import numpy as np

class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length=3):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.place = max(0, self.place + 2 * int(action) - 1)
        done = self.place >= self.length
        return np.array([self.place / self.length], np.float32), float(done), done, False, {}

gymnasium.register("UnlistedCorridor-v0", entry_point=Corridor, max_episode_steps=20)
"""


class Endless(gymnasium.Env[np.ndarray, np.ndarray]):
    """Continuous, and without a time limit."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)


def setup_module() -> None:
    if "UnlistedEndless-v0" not in gymnasium.registry:
        made: Any = Endless
        gymnasium.register("UnlistedEndless-v0", entry_point=made)


def test_fields_suit_the_spaces() -> None:
    config = load_config("UnlistedEndless-v0", overrides={"algo_id": "ppo"})
    assert isinstance(config, LearnerConfig)
    assert (config.env_id, config.algo_id, config.variant) == ("UnlistedEndless-v0", "ppo", "ppo")
    assert config.project_id == "UnlistedEndless-v0"
    assert config.normalize_obs == "rolling"
    assert config.max_episode_steps == UNLIMITED_STEPS  # it has no limit of its own
    assert config.max_env_steps == 300_000
    assert build_config(config_dict(config)) == config  # so that the run can be resumed
    images = load_config("CarRacing-v2:ppo")
    assert isinstance(images, LearnerConfig)
    assert images.normalize_obs == "auto"
    assert images.max_episode_steps is None


def test_what_is_given_wins() -> None:
    given = {"algo_id": "ppo", "n_envs": 3, "normalize_obs": False, "max_episode_steps": 7}
    config = load_config("UnlistedEndless-v0", overrides=given)
    assert isinstance(config, LearnerConfig)
    assert (config.n_envs, config.normalize_obs, config.max_episode_steps) == (3, False, 7)
    assert load_config("UnlistedEndless-v0", fill={"algo_id": "sac"}).algo_id == "sac"
    assert load_config("UnlistedEndless-v0:sac").algo_id == "sac"


def test_ppo_is_the_default_where_nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "probe", None)  # nothing is measured
    config = load_config("UnlistedEndless-v0")
    assert config == load_config("UnlistedEndless-v0:ppo")
    assert (config.algo_id, config.variant) == ("ppo", "ppo")


MEASURED = "Probe/ObsActionReward-v0"


def test_the_algorithm_of_a_training_is_chosen_by_measurements() -> None:
    config = load_config(MEASURED, overrides={"max_env_steps": 4000}, chooses=True)
    assert (config.algo_id, config.variant, config.max_env_steps) == ("ppo", "ppo_discrete", 4000)
    assert config.project_id == MEASURED.replace("/", "-")
    assert "random steps" in config.description  # stays with the run
    assert any(note.startswith("chosen: ppo_discrete. ") for note in config.notices())
    assert config_dict(build_config(config_dict(config))) == config_dict(config)


@pytest.mark.parametrize(
    ("target", "overrides", "algo_id"),
    [
        (f"{MEASURED}:a2c", {}, "a2c"),
        (MEASURED, {"algo_id": "pqn"}, "pqn"),
        (MEASURED, {"n_epochs": 3}, "ppo"),
        (MEASURED, {"buffer_size": 500}, "dqn"),  # a field that the first choice does not have
    ],
)
def test_what_is_given_overrules_the_choice(
    target: str, overrides: dict[str, Any], algo_id: str
) -> None:
    config = load_config(target, overrides=overrides, chooses=True)
    assert config.algo_id == algo_id
    assert {name: getattr(config, name) for name in overrides} == overrides


def test_an_environment_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_config(MEASURED, chooses=True)
    monkeypatch.setattr(choose, "probe", None)
    assert load_config(MEASURED, chooses=True) == first


def test_an_algorithm_finds_the_variant_named_after_it() -> None:
    assert load_config("CartPole-v1", overrides={"algo_id": "dqn"}) == load_config(
        "CartPole-v1:dqn"
    )


def test_an_algorithm_without_a_variant_gets_its_defaults() -> None:
    config = load_config("Taxi-v3:a2c")
    assert (config.env_id, config.algo_id, config.variant) == ("Taxi-v3", "a2c", "a2c")
    assert any("Tuned: Taxi-v3:" in note for note in config.notices())


@pytest.mark.parametrize("name", ["CartPole-v1:PPO", "cartpole-V1:Ppo", "CartPole-v1:PPO_Zoo"])
def test_letters_of_any_case_name_a_config(name: str) -> None:
    assert load_config(name) == load_config(f"CartPole-v1:{name.rpartition(':')[2].lower()}")


def test_an_old_id_is_told_which_one_is_tuned() -> None:
    notes = load_config("LunarLander-v2").notices()
    assert any("LunarLander-v3:ppo" in note for note in notes)
    with pytest.raises(GsolveError, match=r"Tuned: HalfCheetah-v5:"):
        load_config("HalfCheetah-v2")


MODULE = """
import gymnasium

class Sized(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size):
        self.size = size

class Old(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(2)

    def reset(self):
        return 0

gymnasium.register("UnlistedSized", Sized, max_episode_steps=9)
gymnasium.register("UnlistedOld-v0", Old, max_episode_steps=9)
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unlisted_own.py").write_text(MODULE)
    (tmp_path / "unlisted_agents.py").write_text("def parallel_env(): ...")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("own_module")
def test_ids_without_a_version() -> None:
    config = load_config("unlisted_own:UnlistedSized", overrides={"env_kwargs": {"size": 3}})
    assert config.env_id == "unlisted_own:UnlistedSized"


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("unlisted_own", "it registers unlisted_own:UnlistedOld-v0, unlisted_own:UnlistedSized"),
        ("./unlisted_own.py", "it registers unlisted_own:UnlistedOld-v0, unlisted_own:Unl"),
        ("unlisted_own:Other-v0", "it registers unlisted_own:UnlistedOld-v0, unlisted_own:Unl"),
        ("unlisted_own:UnlistedSized", "--env-kwargs size=VALUE"),
        ("unlisted_agents", "several agents"),
        ("no_such_package_x:Env-v0", "pip install no-such-package-x"),
    ],
)
def test_what_is_meant_by_a_module_is_told(target: str, message: str) -> None:
    with pytest.raises(GsolveError) as told:
        load_config(target)
    assert message in str(told.value)
    assert "frozen" not in str(told.value)


@pytest.mark.usefixtures("own_module")
def test_the_old_gym_is_named() -> None:
    env = make_vector_env("unlisted_own:UnlistedOld-v0", 1)
    with pytest.raises(GsolveError, match="the API of the old Gym"):
        env.reset(1)


@pytest.mark.parametrize(
    ("target", "overrides", "message"),
    [
        ("UnlistedEndles-v0", {}, "Did you mean UnlistedEndless-v0"),
        ("UnlistedEndles-v0", {"algo_id": "ppo"}, "Did you mean UnlistedEndless-v0"),
        ("UnlistedEndless-v0", {"algo_id": "pppo"}, "Did you mean ppo"),
        ("UnlistedEndless-v0", {"algo_id": "ppo", "n_env": 3}, "n_envs"),
        ("no_such_module:Env-v0", {"algo_id": "ppo"}, "cannot import 'no_such_module'"),
        ("UnlistedEndless-v0", {"algo_id": "ppo", "plugins": ["nope_x"]}, "cannot import 'nope_x'"),
        ("CartPole-v1:a2cc", {}, "it has: CartPole-v1:ppo"),
        ("nonsense", {}, "there is no config named 'nonsense'"),
    ],
)
@pytest.mark.parametrize("chooses", [False, True])
def test_mistakes_are_explained(target, overrides, message, chooses):
    with pytest.raises(GsolveError) as told:
        load_config(target, overrides=overrides, chooses=chooses)
    assert message in str(told.value)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_plugin_is_imported_for_training_resuming_and_evaluating(mode, tmp_path):
    (tmp_path / "unlisted_corridor.py").write_text(CORRIDOR)
    run = [sys.executable, "-m", "gymnasium_solver"]
    short = "--n-envs 2 --n-steps 32 --batch-size 32 --max-env-steps 128 -q"
    few = "--eval-episodes 2 --test-episodes 2"
    how = ["UnlistedCorridor-v0", "--plugins", "unlisted_corridor"]
    if mode == "async":
        how = ["unlisted_corridor:UnlistedCorridor-v0", "--vectorization-mode", "async"]
    for command in (
        ["train", *how, "--algo-id", "ppo", *short.split(), *few.split()],
        ["train", "--resume", "@last", "--max-env-steps", "256", "-q"],
        ["eval", "@last", "--episodes", "2"],
    ):
        done = subprocess.run(
            [*run, *command], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        assert "not an exact resume" not in done.stdout + done.stderr
    assert len(list(Path(tmp_path, "runs").glob("*Corridor*"))) == 1
