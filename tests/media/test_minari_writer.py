"""Episodes written as Minari datasets."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.training import loop
from gymnasium_solver.training.prepare import build_config

minari = pytest.importorskip("minari")
pytest.importorskip("h5py")


def trained(env_id: str, root: Path, **fields: Any) -> None:
    small = {"algo_id": "ppo", "seed": 1, "n_envs": 2, "n_steps": 16, "hidden_dims": [8]}
    small |= {"max_epochs": 1, "eval_freq_epochs": None, "test_episodes": 2, "batch_size": 16}
    loop.train(build_config({**small, "env_id": env_id, **fields}), runs_root=root)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Probe/DictObs-v0", "Pendulum-v1"])
def test_a_dataset_holds_whole_episodes(
    env_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    trained(env_id, tmp_path / "runs", max_episode_steps=20)
    out = tmp_path / "data" / "mine-v0"
    argv = ["record", "@last", "--episodes", "3", "--out", str(out), "--seed", "5"]
    assert main([*argv, "--runs-dir", str(tmp_path / "runs")]) == 0
    assert "3 episodes" in capsys.readouterr().out
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "data"))
    dataset = minari.load_dataset("mine-v0")
    assert dataset.total_episodes == 3
    for episode in dataset.iterate_episodes():
        ends = np.asarray(episode.terminations) | np.asarray(episode.truncations)
        assert ends.tolist() == [False] * (len(ends) - 1) + [True]
        first = episode.observations
        part = next(iter(first.values())) if isinstance(first, dict) else first
        assert len(part) == len(ends) + 1
        assert dataset.action_space.contains(episode.actions[0])
    if env_id != "Probe/DictObs-v0":  # which Gymnasium cannot name
        env = dataset.recover_environment()
        assert env.spec is not None
        assert (env.spec.id, env.spec.max_episode_steps) == (env_id, 20)
        assert env.observation_space == dataset.observation_space
    assert main([*argv, "--runs-dir", str(tmp_path / "runs")]) == 2
    assert "exists" in capsys.readouterr().err


def test_a_wrong_name_is_refused(tmp_path: Path, capsys: Any) -> None:
    trained("CartPole-v1", tmp_path)
    argv = ["record", "@last", "--runs-dir", str(tmp_path), "--out", str(tmp_path / "data")]
    assert main(argv) == 2
    assert "must end in -v0" in capsys.readouterr().err
