"""`gsolve envs`, `gsolve envs show` and `gsolve baselines`: what they tell, and that listing is
light."""

import io
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from rich.console import Console

from gymnasium_solver.cli.envs import print_environments
from gymnasium_solver.config.find import SHIPPED, find_configs
from gymnasium_solver.envs import baselines, catalogue
from gymnasium_solver.envs.baselines import (
    Baseline,
    all_baselines,
    normalized_score,
    random_baseline,
)
from gymnasium_solver.envs.catalogue import list_environments, space_text
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.envs.random_steps import RandomPolicy, random_episodes
from gymnasium_solver.errors import EnvError, MissingError
from gymnasium_solver.experiments.measure_baselines import games, measure, write_records
from gymnasium_solver.training.prepare import load_config
from tests.cli.conftest import Gsolve


def printed(found: Any, width: int) -> str:
    """The table as a terminal of this width shows it."""
    text = io.StringIO()
    print_environments(
        Console(file=text, width=width, force_terminal=True, color_system=None, highlight=False),
        found,
    )
    return text.getvalue()


# --- the list


def test_listing_imports_nothing_heavy() -> None:
    script = (
        "import sys; from gymnasium_solver.cli.main import main; main(['envs']);"
        "print([m for m in ('torch', 'gymnasium', 'envpool', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_list_tells_suite_spaces_threshold_engine_and_algorithms(gsolve: Gsolve) -> None:
    text = gsolve("envs")
    assert "classic_control\n" in text
    line = next(line for line in text.splitlines() if line.startswith("  CartPole-v1 "))
    assert line.split()[:3] == ["CartPole-v1", "Box(4)", "Discrete(2)"]
    assert " 475 " in line
    assert " vector " in line
    assert "ppo a2c reinforce dqn" in line


def test_the_filter_and_json(gsolve: Gsolve) -> None:
    rows = gsolve.json("envs lunarlander")
    assert [row["env_id"] for row in rows] == ["LunarLander-v3", "LunarLanderContinuous-v3"]
    assert rows[0]["spec"]["action_space"]["labels"][2] == "fire_main_engine"
    assert rows[0]["threshold"] == 200
    assert "LunarLander-v3:dqn" in rows[0]["configs"]
    gsolve("envs", "no such thing", code=1)


@pytest.mark.parametrize("width", [80, 120])
def test_every_column_fits_the_terminal(width: int) -> None:
    lines = printed(list_environments(), width).splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines), "something was cut"
    assert "algorithms" in lines[0]


def test_a_suite_whose_package_is_absent_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue.SUITE_PACKAGES, "bandit", ("no_such_module", "bandits"))
    found = list_environments("Bandit-v0")
    assert found[0].extra == "bandits"
    text = printed(found, 120)
    assert 'pip install "gymnasium-solver[bandits]"' in text
    assert "needs [bandits]" in text


def test_a_config_of_ones_own_is_listed(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("configs").mkdir()
    Path("configs/Mine-v0.yaml").write_text(
        "env_id: Mine-v0\nspec: {action_space: {labels: [a, b]}}\nppo: {n_steps: 32}\n_x: 1\n"
    )
    Path("configs/Generic.yaml").write_text("env_id: ${env}\nppo: {n_steps: 32}\n")
    mine = next(env for env in list_environments() if env.env_id == "Mine-v0")
    assert (mine.actions, mine.observations, mine.engine) == ("Discrete(2)", "-", None)
    assert not any("<" in env.env_id for env in list_environments())


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (gymnasium.spaces.Discrete(4), "Discrete(4)"),
        (gymnasium.spaces.Box(0, 1, (3,)), "Box(3)"),
        (gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8), "uint8 4×84×84"),
        (gymnasium.spaces.MultiBinary(8), "MultiBinary(8)"),
        (gymnasium.spaces.MultiDiscrete([2, 3]), "MultiDiscrete(2×3)"),
    ],
)
def test_spaces_in_short(space: Any, text: str) -> None:
    assert space_text(space) == text


# --- one environment


def test_the_sheet_of_a_shipped_environment(gsolve: Gsolve) -> None:
    text = gsolve("envs show CartPole-v1")
    for part in ("push_left", "10 N to the left", "pole_angle", "-0.418 … 0.418", "solved at 475",
                 "random actions 2", "CartPole-v1:ppo", "sutton_barto_reward"):  # fmt: skip
        assert part in text, part


def test_the_sheet_of_an_id_without_a_config(gsolve: Gsolve) -> None:
    text = gsolve("envs show CartPole-v0")
    assert "solved at 195" in text
    assert "200 steps at most" in text
    assert "observation_3" in text
    assert "gsolve train CartPole-v0 --algo-id ppo" in text


def test_the_sheet_as_json_and_with_a_frame(gsolve: Gsolve, tmp_path: Path) -> None:
    path = tmp_path / "frames" / "pole.png"
    sheet = gsolve.json("envs show CartPole-v1 --frame", str(path))
    assert sheet["engine"] == "vector"
    assert sheet["max_episode_steps"] == 500
    assert sheet["frame"] == str(path)
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_an_unknown_id_is_told_with_its_neighbours(gsolve: Gsolve) -> None:
    assert "Did you mean CartPole-v1" in gsolve("envs show CartPol-v1", code=2)


def test_an_environment_that_cannot_be_drawn_says_so(gsolve: Gsolve, tmp_path: Path) -> None:
    path = tmp_path / "no.png"
    assert "no frame" in gsolve("envs show Bandit-v0 --frame", str(path), code=1)
    assert not path.exists()


# --- random baselines


def test_normalized_scores_count_from_random_to_solved() -> None:
    record = random_baseline("CartPole-v1")
    assert record is not None
    assert normalized_score("CartPole-v1", record.mean) == pytest.approx(0)
    assert normalized_score("CartPole-v1", 475) == pytest.approx(1)
    assert normalized_score("NoSuch-v0", 1) is None
    assert normalized_score("CartPole-v1", float("nan")) is None
    assert normalized_score("CartPole-v1", 1, {"max_episode_steps": 7}) is None


def test_settings_tell_games_apart_and_views_do_not() -> None:
    kwargs = {"noop_max": 30, "mode": None, "episodic_life": True, "obs_type": "ram"}
    config = {"env_kwargs": kwargs, "max_episode_steps": None, "n_envs": 8}
    assert baselines.game_settings(config) == {"env_kwargs": {"noop_max": 30}}
    assert baselines.game_settings({"env_kwargs": {"reward_clip": True}}) == {}
    slippery, dry = (
        random_baseline("FrozenLake-v1"),
        random_baseline("FrozenLake-v1", {"env_kwargs": {"is_slippery": False}}),
    )
    assert slippery is not None
    assert dry is not None
    assert (slippery.target, dry.target) == (0.7, 1.0)


def test_without_a_target_the_runs_own_counts() -> None:
    record = Baseline("X-v0", mean=10, std=1, n=5, length_mean=3, seed=1, engine="sync")
    assert record.normalize(15) is None
    assert record.normalize(15, target=20) == 0.5
    assert record.normalize(15, target=5) is None, "a target below random measures nothing"
    assert record.normalize(15, target=10.01) is None, "nor does one beside it"


def test_a_run_tells_its_relative_score(tmp_path: Path) -> None:
    from gymnasium_solver.cli.summary import measured_from_random, result_rows, score_text
    from gymnasium_solver.runs.query import get_run
    from gymnasium_solver.training.config_tests import short_config
    from gymnasium_solver.training.loop import train

    run = get_run(train(short_config("Bandit-v0:ppo", max_episode_steps=None), runs_root=tmp_path))
    found = measured_from_random(run)
    assert found is not None
    assert run.test is not None
    assert found["score"] == normalized_score("Bandit-v0", run.test["mean"])
    assert result_rows(run, [], score_text(run))[0][0] == "relative"
    cut = get_run(train(short_config("Bandit-v0:ppo"), runs_root=tmp_path))
    assert measured_from_random(cut) is None, "with another time limit it is another game"


SHIPPED_ENTRIES = [e for e in find_configs() if e.path.is_relative_to(SHIPPED)]


def _can_be_made(name: str) -> bool:
    try:
        env_from_config(load_config(name), 1).close()
    except MissingError:
        return False
    return True


def test_every_shipped_game_has_a_baseline() -> None:
    stored = {f"{b.env_id} {json.dumps(b.settings, sort_keys=True)}" for b in all_baselines()}
    missing = [name for key, name in games(SHIPPED_ENTRIES).items() if key not in stored]
    missing = [name for name in missing if _can_be_made(name)]  # a ROM may not be shipped
    assert not missing, f"run: gsolve baselines --measure --out {baselines.PATH} ({missing})"
    for record in all_baselines():
        assert record.n >= 10
        assert np.isfinite([record.mean, record.std, record.length_mean]).all()


@pytest.mark.parametrize("name", ["CartPole-v1:ppo", "FrozenLake-v1:ppo", "Bandit-v0:ppo"])
def test_the_stored_engine_is_the_one_that_auto_takes(name: str) -> None:
    config = load_config(name)
    env = env_from_config(config, 2)  # a single CartPole has an engine of its own
    env.close()
    record = random_baseline(config.env_id)
    assert record is not None
    assert record.engine == env.spec.engine


def test_measuring_is_repeatable_and_near_the_stored_value(tmp_path: Path) -> None:
    job = {"name": "CartPole-v1:ppo", "episodes": 100, "seconds": 30.0, "seed": 5}
    row = measure(job)
    assert row == measure(job)
    assert row["n"] == 100
    assert row["target"] == 475
    stored = random_baseline("CartPole-v1")
    assert stored is not None
    assert row["mean"] == pytest.approx(stored.mean, abs=5 * stored.std / 10)
    path = tmp_path / "random.json"
    assert write_records(path, [row]) == 1
    assert write_records(path, [row | {"mean": 0.0}]) == 1, "the same game is replaced"
    assert write_records(path, [row | {"settings": {"max_episode_steps": 9}}]) == 2
    stored_means = [record["mean"] for record in json.loads(path.read_text())["baselines"]]
    assert sorted(stored_means) == [0.0, row["mean"]]


def test_the_time_bounds_the_rounds_but_not_the_first() -> None:
    row = measure({"name": "CartPole-v1:ppo", "episodes": 10**6, "seconds": 1e-9, "seed": 1})
    assert row["n"] == 20


def test_an_episode_without_end_is_an_error() -> None:
    env = env_from_config(load_config("MountainCar-v0:ppo"), 2)
    with pytest.raises(EnvError, match="max_episode_steps"):
        random_episodes(env, 1, most_steps=50)
    env.close()


def test_random_actions_are_legal_and_everywhere() -> None:
    space = gymnasium.spaces.Discrete(4, start=2)
    policy = RandomPolicy(space, 500, seed=1)
    assert set(policy.act().tolist()) == {2, 3, 4, 5}
    mask = np.tile([False, True, False, True], (500, 1))
    assert set(policy.act(mask).tolist()) == {3, 5}
    low, high = np.array([[-1, -np.inf], [3, np.inf]], np.float32)
    box = gymnasium.spaces.Box(low, high)
    actions = RandomPolicy(box, 500, seed=1).act()
    assert -1 <= actions[:, 0].min() < -0.9
    assert 2.9 < actions[:, 0].max() <= 3
    assert 0.8 < actions[:, 1].std() < 1.2
    buttons = RandomPolicy(gymnasium.spaces.MultiBinary(3), 50, seed=1).act()
    assert buttons.shape == (50, 3)


def test_the_verb_shows_what_is_stored(gsolve: Gsolve) -> None:
    text = gsolve("baselines pendulum")
    assert "Pendulum-v1" in text
    assert "-150*" in text
    rows = gsolve.json("baselines --filter CartPole-v1")
    assert [row["env_id"] for row in rows] == ["CartPole-v1", "c:cartpole"]
    gsolve("baselines", "nothing like it", code=1)
    gsolve("baselines --out x.json", code=2)
    gsolve("baselines --env-kwargs a=1", code=2)


OWN_ENV = """
import gymnasium
from gymnasium.spaces import Discrete

class OneStep(gymnasium.Env):
    observation_space, action_space = Discrete(2), Discrete(2)

    def __init__(self, reward=1.0):
        self.reward = reward

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 1, self.reward, True, False, {}

gymnasium.register("OneStep-v0", OneStep)
"""


def test_the_verb_measures(gsolve: Gsolve, tmp_path: Path, monkeypatch: Any) -> None:
    """An environment of a module, with arguments of its own."""
    monkeypatch.chdir(tmp_path)
    Path("baseline_env.py").write_text(OWN_ENV)
    path = tmp_path / "random.json"
    line = "baselines OneStep-v0 --plugins baseline_env --env-kwargs reward=3 --measure --episodes"
    rows = gsolve.json(line, "4", "--out", str(path))
    assert (rows[0]["n"], rows[0]["mean"]) == (4, 3.0)
    assert rows[0]["settings"]["env_kwargs"] == {"reward": 3}
    assert json.loads(path.read_text())["baselines"] == rows


# --- console games


FREE = "Airstriker-Genesis-v0"


@pytest.fixture
def retro() -> Any:
    return pytest.importorskip("stable_retro", reason="it has wheels for Linux x86_64 only")


def test_console_games_that_are_not_installed_are_said_once(
    gsolve: Gsolve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "stable_retro", None)
    text = gsolve("roms list", code=2)
    assert text.startswith("gsolve roms: console games are an extra")
    assert text.count("gsolve roms") == 1


def test_roms_are_listed(gsolve: Gsolve, retro: Any) -> None:
    assert {"env_id": f"Retro/{FREE}", "has_rom": True} in gsolve.json("roms list")
    assert gsolve("roms list airstriker --all") == f"Retro/{FREE}\n"
    assert "no game has 'no such game'" in gsolve("roms list", "no such game")


def test_import_finds_a_rom_by_its_content_in_an_archive(
    tmp_path: Path, gsolve: Gsolve, monkeypatch: pytest.MonkeyPatch, retro: Any
) -> None:
    """Into a copy of the package's data, from which the ROM was taken away."""
    rom = Path(retro.data.get_romfile_path(FREE))
    data = tmp_path / "data"
    for kind in retro.data.Integrations.ALL.paths:
        (data / kind).mkdir(parents=True)
    shutil.copytree(rom.parent, data / "stable" / FREE)
    (data / "stable" / FREE / rom.name).unlink()
    monkeypatch.setattr(retro.data, "path", lambda hint=None: str(data))
    assert "no game has ''" in gsolve("roms list")
    (tmp_path / "mine").mkdir()
    with zipfile.ZipFile(tmp_path / "mine" / "old games.zip", "w") as archive:
        archive.write(rom, "unknown name.md")
    (tmp_path / "mine" / "broken.zip").write_bytes(b"no archive")
    assert gsolve("roms import", str(tmp_path / "mine")) == f"imported Retro/{FREE}\n"
    assert "no new ROM" in gsolve("roms import", str(tmp_path / "mine"))


def test_mistakes_with_roms(gsolve: Gsolve, retro: Any) -> None:
    assert "needs a folder" in gsolve("roms import", code=2)
    assert "/nowhere does not exist" in gsolve("roms import /nowhere", code=2)
