"""Datasets of demonstrations: what is read, how it is split, and what does not fit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.data.demonstrations import Demonstrations, load_demonstrations
from gymnasium_solver.data.episode_file import Episode, write_episodes
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.spaces.action_dists import chosen_kind
from gymnasium_solver.spaces.actions import action_kind

X = spaces.Box(-1.0, 1.0, (3,), np.float32)
PARTS = spaces.Dict([("x", X), ("kind", spaces.Discrete(4))])
TWO = spaces.Discrete(2, start=5)
BOUNDED = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))
ACTIONS: dict[str, Any] = {
    "discrete": TWO,
    "box": BOUNDED,
    "unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "multi discrete": spaces.MultiDiscrete(
        np.array([[2, 3], [4, 2]]), start=np.array([[0, 1], [0, 0]])
    ),
    "multi binary": spaces.MultiBinary(3),
    "dict": spaces.Dict(go=TWO, how=BOUNDED, bits=spaces.MultiBinary(2)),
}


def episode(n: int, first: float = 0.0, actions: Any = None, obs: Any = None) -> Episode:
    x = np.full((n + 1, 3), first, np.float32) + np.arange(n + 1)[:, None] / 100
    last = np.arange(n) == n - 1
    return Episode(
        observations=x if obs is None else obs,
        actions=np.full(n, 5) if actions is None else actions,
        rewards=np.full(n, first),
        terminations=last,
        truncations=np.zeros(n, bool),
    )


def saved(path: Path, *episodes: Episode, env_id: str = "Mine-v0") -> str:
    write_episodes(path, list(episodes), {"env_id": env_id})
    return str(path)


DISTS = ("gaussian_state", "beta", "multivariate", "squashed")
KINDS = [(name, "auto") for name in ACTIONS]
KINDS += [(name, dist) for name in ("box", "dict") for dist in DISTS]


@pytest.mark.parametrize(("name", "dist"), KINDS)
def test_actions_return_from_the_environments_units(name: str, dist: str) -> None:
    kind = chosen_kind(ACTIONS[name], dist)
    rows = kind.to_env(kind.uniform(50, np.random.default_rng(0)))
    back = kind.from_env(rows)
    assert back.shape == (50, *kind.shape)
    # A squashed action close to its bound is moved away from it.
    np.testing.assert_allclose(kind.to_env(back), rows, atol=0.02 if dist == "squashed" else 1e-5)


def test_a_file_is_read_in_the_policys_units(tmp_path: Path) -> None:
    a = episode(3, 0.1, np.array([5, 6, 5]))
    demos = load_demonstrations(
        saved(tmp_path / "a.npz", a, episode(2, 0.2)), X, action_kind(TWO), "Mine-v0"
    )
    assert demos.actions.tolist() == [0, 1, 0, 0, 0]
    assert demos.starts.tolist() == [0, 3, 5]
    assert isinstance(demos.obs, np.ndarray)
    np.testing.assert_allclose(demos.obs[:3], a.observations[:3], rtol=1e-6)  # not the last one
    np.testing.assert_allclose(demos.returns, [0.3, 0.4], rtol=1e-6)
    assert demos.terminated.tolist() == [False, False, True, False, True]
    assert demos.env_id == "Mine-v0"


def test_a_folder_of_files_is_one_dataset(tmp_path: Path) -> None:
    for i in range(3):
        saved(tmp_path / f"{i}.npz", episode(2, i / 10))
    demos = load_demonstrations(str(tmp_path), X, action_kind(TWO), "Mine-v0")
    assert demos.n_episodes == 3


def test_parts_are_taken_by_name_and_others_left_out(tmp_path: Path) -> None:
    obs = {"kind": np.array([1, 2, 3]), "extra": np.zeros(3), "x": np.zeros((3, 3), np.float64)}
    demos = load_demonstrations(
        saved(tmp_path / "a.npz", episode(2, obs=obs)), PARTS, action_kind(TWO), "Mine-v0"
    )
    assert isinstance(demos.obs, dict)
    assert list(demos.obs) == ["x", "kind"]
    assert demos.obs["kind"].tolist() == [1, 2]
    assert demos.obs["x"].dtype == np.float32


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (episode(2, obs=np.zeros((3, 4), np.float32)), r"shape \(4,\) in the dataset and \(3,\)"),
        (episode(2, actions=np.array([5, 7])), "from 5 to 7, the environment takes Discrete"),
        (episode(2, actions=np.array([[5], [5]])), r"actions of shape \(1,\)"),
        (episode(2, actions=np.array([5, np.nan])), "the environment takes Discrete"),
        (episode(2, np.nan), "not finite"),
        (episode(0, actions=np.zeros(0)), "is empty"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(tmp_path: Path, given: Episode, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as error:
        load_demonstrations(saved(tmp_path / "a.npz", given), X, action_kind(TWO), "Mine-v0")
    assert "\n" not in str(error.value)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_text("no")
    with pytest.raises(ConfigError, match="not a file of episodes"):
        load_demonstrations(str(path), X, action_kind(TWO), "Mine-v0")


def demos_of(*lengths: int) -> Demonstrations:
    n = sum(lengths)
    starts = np.cumsum([0, *lengths])
    reward = np.concatenate([np.full(k, i / k) for i, k in enumerate(lengths)])
    no = np.zeros(n, bool)
    return Demonstrations(
        "d", np.zeros((n, 1)), np.zeros(n), reward.astype(np.float32), no, no, starts
    )


def test_whole_episodes_are_held_out() -> None:
    demos = demos_of(3, 4, 5, 6, 7)
    demos.split(0.4, np.random.default_rng(0))
    episode_of = np.repeat(np.arange(5), [3, 4, 5, 6, 7])
    held, learnt = set(episode_of[demos.held_out]), set(episode_of[demos.train])
    assert len(held) == 2
    assert held | learnt == set(range(5))
    assert not held & learnt


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
def test_something_is_left_to_learn_from(share: float) -> None:
    for demos in (demos_of(10), demos_of(1), demos_of(2, 3)):
        demos.split(share, np.random.default_rng(0))
        assert len(demos.train)
        assert sorted([*demos.train, *demos.held_out]) == list(range(len(demos)))
        if share == 0:
            assert not len(demos.held_out)


def test_only_the_best_episodes_are_learnt_from() -> None:
    demos = demos_of(3, 3, 3, 3)
    demos.split(0.0, np.random.default_rng(0), top=0.5)
    assert demos.train.tolist() == [6, 7, 8, 9, 10, 11]


# -- Minari -----------------------------------------------------------------------------------


@pytest.fixture
def minari() -> Any:
    pytest.importorskip("h5py")
    return pytest.importorskip("minari")


def test_what_is_no_dataset_is_told(minari: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no dataset D4RL/no-v0.*minari download"):
        load_demonstrations("D4RL/no-v0", X, action_kind(TWO), "Mine-v0")
    with pytest.raises(ConfigError, match="there is no dataset"):
        load_demonstrations(str(tmp_path), X, action_kind(TWO), "Mine-v0")
    (tmp_path / "metadata.json").write_text(json.dumps({"dataset_id": "a-v0"}))
    with pytest.raises(ConfigError, match="does not tell its spaces"):
        load_demonstrations(str(tmp_path), X, action_kind(TWO), "Mine-v0")


@pytest.mark.parametrize("observation", [X, PARTS], ids=["array", "parts"])
@pytest.mark.parametrize("name", ACTIONS)
def test_a_minari_dataset_is_read(
    minari: Any, name: str, observation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    kind = action_kind(ACTIONS[name])
    stored = kind.uniform(4, np.random.default_rng(0))
    native = [kind.to_native(row) for row in kind.to_env(stored)]
    observation.seed(0)
    buffer = EpisodeBuffer(
        id=0,
        observations=listed([observation.sample() for _ in range(5)]),
        actions=listed(native),
        rewards=[1.0] * 4,
        terminations=[False] * 3 + [True],
        truncations=[False] * 4,
    )
    minari.create_dataset_from_buffers(
        "mine-v0", [buffer], observation_space=observation, action_space=ACTIONS[name]
    )
    for where in ("mine-v0", str(tmp_path / "mine-v0")):
        demos = load_demonstrations(where, observation, kind, "Mine-v0")
        np.testing.assert_allclose(demos.actions, stored, atol=1e-5)
    other = action_kind(spaces.Discrete(3))
    with pytest.raises(ConfigError, match=r"has the actions .* but Mine-v0 has Discrete"):
        load_demonstrations("mine-v0", observation, other, "Mine-v0")
    with pytest.raises(ConfigError, match="has the observations"):
        load_demonstrations("mine-v0", spaces.Box(-1, 1, (9,)), kind, "Mine-v0")


def listed(rows: list[Any]) -> Any:
    if isinstance(rows[0], dict):
        return {name: listed([row[name] for row in rows]) for name in rows[0]}
    return rows
