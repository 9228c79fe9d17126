"""Tiny runs and stages of the counting environment."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gymnasium_solver as gs
from gymnasium_solver.media.player import RandomActor
from gymnasium_solver.media.stage import Stage, open_stage
from gymnasium_solver.training.targets import Found
from tests.media.counting import counting_config


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GSOLVE_RUNS", raising=False)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


@pytest.fixture
def counting_run() -> Callable[..., gs.Run]:
    """counting_run(**fields): trained for two epochs."""
    return lambda **fields: gs.train(counting_config(**fields))


@pytest.fixture
def counting_stage() -> Callable[..., Stage]:
    """counting_stage(n_envs=1, **fields)."""

    def make(n_envs: int = 1, **fields: Any) -> Stage:
        return open_stage(Found(counting_config(**fields)), n_envs)

    return make


@pytest.fixture
def chance() -> Callable[[Stage], RandomActor]:
    return lambda stage: RandomActor(stage.env.action_space)


@pytest.fixture(scope="session")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> gs.Run:
    """A run for tests that only read it; its runs folder is `shared_run.path.parent`."""
    root = tmp_path_factory.mktemp("shared")
    return gs.train(counting_config(), runs_dir=root / "runs")
