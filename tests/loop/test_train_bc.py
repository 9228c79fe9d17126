"""Behaviour cloning: it learns what is demonstrated, resumes exactly, and starts other runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.cli.main import main
from gymnasium_solver.data.demonstrations import Demonstrations
from gymnasium_solver.data.episode_file import Episode, write_episodes
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.policies.policy import Policy
from gymnasium_solver.runs import query
from gymnasium_solver.runs.checkpoint import load_checkpoint
from gymnasium_solver.training import loop
from gymnasium_solver.training.agents import build_agent, load_agent
from gymnasium_solver.training.collect import DemoFeed
from gymnasium_solver.training.prepare import build_config, load_config
from gymnasium_solver.training.score import score
from gymnasium_solver.training.targets import find_target
from tests.loop.conftest import Heard, exact_resume, train, weight_hash

BEST: dict[str, Callable[[Any], np.ndarray]] = {
    "Probe/ObsActionReward-v0": lambda obs: (obs[:, 0] > 0).astype(int),
    "Probe/ObsActionRewardContinuous-v0": lambda obs: obs / 2,
    "Probe/DictObs-v0": lambda obs: (obs["signal"][:, 0] > 0).astype(int),
    "Probe/MultiDiscrete-v0": lambda obs: np.where(obs > 0, [[1, 2]], [[0, 0]]),
    "Probe/MultiBinary-v0": lambda obs: np.where(obs > 0, [[1, 0, 1]], [[0, 1, 1]]),
    "Probe/DictAction-v0": lambda obs: np.concatenate([obs > 0, obs / 2], axis=1),
}


def demonstrate(env_id: str, path: Path, episodes: int = 60) -> str:
    """One-step episodes with the right answer of a probe."""
    env = make_vector_env(env_id, episodes)
    obs = env.reset(1)
    actions = np.asarray(BEST[env_id](obs))
    rewards = env.step(actions).reward
    env.close()

    def twice(part: np.ndarray, i: int) -> np.ndarray:
        return np.stack([part[i], part[i]])

    rows = [
        Episode(
            {name: twice(part, i) for name, part in obs.items()}
            if isinstance(obs, dict)
            else twice(obs, i),
            actions[i : i + 1],
            rewards[i : i + 1],
            np.ones(1, bool),
            np.zeros(1, bool),
        )
        for i in range(episodes)
    ]
    write_episodes(path, rows, {"env_id": env_id})
    return str(path)


def config_of(env_id: str, dataset: str, **fields: Any) -> Any:
    small = {
        "env_id": env_id,
        "algo_id": "bc",
        "dataset": dataset,
        "seed": 1,
        "n_steps": 64,
        "batch_size": 16,
        "hidden_dims": [16],
        "max_epochs": 20,
        "policy_lr": 0.01,
        "eval_freq_epochs": None,
        "test_episodes": 50,
    }
    return build_config(small | fields)


@pytest.mark.parametrize(
    ("env_id", "kind"),
    [
        *((env_id, "nll") for env_id in BEST),
        ("Probe/ObsActionRewardContinuous-v0", "mse"),
        ("Probe/DictAction-v0", "mse"),
    ],
)
def test_it_does_what_was_demonstrated(env_id: str, kind: str, tmp_path: Path) -> None:
    data = demonstrate(env_id, tmp_path / "a.npz")
    run = loop.train(
        config_of(env_id, data, imitation_loss=kind, reward_threshold=-9.0), runs_root=tmp_path
    )
    best = 0.0 if "Continuous" in env_id else 1.0
    tests = [e for e in query.get_events(run, "eval") if e["stage"] == "test" and e["greedy"]]
    assert tests[0]["mean"] == pytest.approx(best, abs=0.02)
    assert run.meta()["env_steps"] == 20 * 64
    assert run.meta()["episodes"] == 0


@pytest.mark.parametrize("dist", ["gaussian", "gaussian_state", "squashed", "multivariate"])
def test_the_deviation_is_that_of_the_demonstrations(dist: str, tmp_path: Path) -> None:
    env_id, rng = "Probe/ObsActionRewardContinuous-v0", np.random.default_rng(0)
    obs, noise = rng.choice([-1.0, 1.0], (400, 2, 1)), rng.normal(0, 0.1, (400, 1, 1))
    actions = np.clip(obs[:, :1] / 4 + noise, -1, 1)
    no = np.zeros(1, bool)
    rows = [Episode(o, a, np.zeros(1), ~no, no) for o, a in zip(obs, actions, strict=True)]
    write_episodes(tmp_path / "a.npz", rows, {})
    fields = {"action_dist": dist, "max_epochs": 90, "n_steps": 512, "batch_size": 128}
    run = loop.train(config_of(env_id, str(tmp_path / "a.npz"), **fields), runs_root=tmp_path)
    policy = load_agent(run).policy
    view = np.ones((1, 1), np.float32)
    sampled = [policy.sample(view, {}, np.ones(1, bool)).actions for _ in range(2000)]
    drawn = policy.to_env(np.concatenate(sampled))
    assert drawn.mean() == pytest.approx(0.25, abs=0.03)
    assert drawn.std() == pytest.approx(0.1, abs=0.03)


def test_the_environment_is_not_stepped_to_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = demonstrate("Probe/ObsActionReward-v0", tmp_path / "a.npz")
    stepped = []
    monkeypatch.setattr(JournaledEnv, "step", lambda *given: stepped.append(given))
    loop.train(config_of("Probe/ObsActionReward-v0", data), runs_root=tmp_path)
    assert not stepped


# -- the clock --------------------------------------------------------------------------------


def feed_of(n: int, n_envs: int, seed: int = 3) -> DemoFeed:
    env = make_vector_env("Probe/ObsActionReward-v0", n_envs)
    config = config_of("Probe/ObsActionReward-v0", "unused", n_envs=n_envs)
    policy: Policy = build_agent(config, env.observation_space, env.action_space).policy
    numbers, no = np.arange(n), np.zeros(n, bool)
    demos = Demonstrations(
        "d", numbers[:, None].astype(np.float32), numbers, numbers / 1.0, no, no, np.array([0, n])
    )
    demos.train = numbers[: n - 2]
    return DemoFeed(JournaledEnv(env), policy, demos, 8, seed)


def test_every_pass_has_every_step_once_in_its_own_order() -> None:
    feed = feed_of(12, n_envs=2)
    got = np.concatenate([feed.collect(i * 16, None).actions.flatten() for i in range(5)])
    passes = got[:80].reshape(8, 10)
    assert all(sorted(one) == list(range(10)) for one in passes)
    assert len({tuple(one) for one in passes}) > 1
    one = feed.collect(32, None)
    assert isinstance(one.obs, np.ndarray)
    np.testing.assert_array_equal(one.obs[:-1, :, 0], one.actions)  # rows stay together
    np.testing.assert_array_equal(one.reward, one.actions)
    np.testing.assert_array_equal(one.actions.reshape(-1), got[32:48])


def test_the_budget_is_exact() -> None:
    rollout = feed_of(12, n_envs=3).collect(0, 7)
    assert rollout.env_steps == 7
    assert rollout.valid.shape == (3, 3)


# -- resume -----------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ["Probe/DictObs-v0", "Probe/DictAction-v0"])
def test_a_resume_is_exact(env_id: str, tmp_path: Path) -> None:
    data = demonstrate(env_id, tmp_path / "a.npz", 50)
    config = config_of(env_id, data, normalize_obs="rolling", max_epochs=8)
    whole, resumed = exact_resume(config, every=3)
    assert weight_hash(train(config)) == weight_hash(whole)
    assert weight_hash(train(config, seed=2)) != weight_hash(whole)
    states = [
        load_checkpoint(run.checkpoints_dir / "last").tensors["optimizer"]
        for run in (whole, resumed)
    ]
    for name, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][name])


def test_a_resume_with_other_data_is_refused(tmp_path: Path) -> None:
    env_id = "Probe/ObsActionReward-v0"
    data = demonstrate(env_id, tmp_path / "a.npz", 50)
    loop.train(config_of(env_id, data, max_epochs=2), runs_root=tmp_path)
    demonstrate(env_id, tmp_path / "a.npz", 51)
    with pytest.raises(RunError, match="is not the one that this run learnt from"):
        loop.resume("@last", runs_root=tmp_path, overrides={"max_epochs": 4})


# -- as initialisation ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algo_id", "env_id", "fields"),
    [
        ("ppo", "Probe/MultiDiscrete-v0", {}),
        ("ppo", "Probe/ObsActionRewardContinuous-v0", {}),
        ("a2c", "Probe/DictAction-v0", {}),
        ("sac", "Probe/ObsActionReward-v0", {"activation": "relu"}),
        (
            "sac",
            "Probe/ObsActionRewardContinuous-v0",
            {"activation": "relu", "action_dist": "squashed"},
        ),
    ],
)
def test_another_algorithm_starts_at_its_score(
    algo_id: str, env_id: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    data = demonstrate(env_id, tmp_path / "a.npz")
    loop.train(config_of(env_id, data, **fields), runs_root=tmp_path)
    score_of: dict[str, Any] = {"episodes": 40, "seed": 5, "modes": {"greedy": True}}
    cloned = score(find_target("@last", tmp_path), **score_of).results["greedy"]
    assert cloned.mean == pytest.approx(0.0 if "Continuous" in env_id else 1.0, abs=0.02)
    small: dict[str, Any] = {"n_envs": 2, "n_steps": 2, "hidden_dims": [16], "seed": 3}
    # So slow that the first epoch changes nothing that an evaluation would notice.
    small |= {"max_epochs": 1, "policy_lr": 1e-9, "eval_freq_epochs": None, "test_episodes": 1}
    small |= {"env_id": env_id, "algo_id": algo_id, "init_from_run": "@last"}
    watch = Heard()
    loop.train(build_config(small), runs_root=tmp_path, observers=[watch])
    begun = score(find_target("@last", tmp_path), **score_of).results["greedy"]
    assert begun.mean == pytest.approx(cloned.mean, abs=1e-4)
    assert any(note.startswith("started from") for note in watch.notes)
    assert not any("warning" in note for note in watch.notes)


def test_another_activation_is_told(tmp_path: Path) -> None:
    env_id = "Probe/ObsActionReward-v0"
    data = demonstrate(env_id, tmp_path / "a.npz")
    loop.train(config_of(env_id, data, max_epochs=1), runs_root=tmp_path)
    small = {"env_id": env_id, "algo_id": "ppo", "n_steps": 8, "hidden_dims": [16], "seed": 1}
    small |= {"max_epochs": 1, "activation": "relu", "init_from_run": "@last"}
    watch = Heard()
    loop.train(build_config(small), runs_root=tmp_path, observers=[watch])
    assert any("activation: tanh, here it is relu" in note for note in watch.notes)


# -- the command ------------------------------------------------------------------------------


def test_it_trains_on_any_environment_without_a_config(tmp_path: Path) -> None:
    config = load_config("CartPole-v1:bc", overrides={"dataset": "x"})
    assert (config.algo_id, config.variant, config.project_id) == ("bc", "bc", "CartPole-v1")
    assert config.spec  # the file's own lines about the environment
    config = load_config("Probe/DictObs-v0:bc", overrides={"dataset": "x"})
    assert config.algo_id == "bc"


def test_the_walk_from_an_agent_to_its_clone(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("minari")
    pytest.importorskip("h5py")
    small = {"env_id": "CartPole-v1", "algo_id": "ppo", "seed": 1, "n_envs": 2, "n_steps": 16}
    small |= {"hidden_dims": [8], "max_epochs": 1, "eval_freq_epochs": None, "test_episodes": 2}
    loop.train(build_config(small), runs_root=tmp_path)
    # A relative folder: Minari by itself cannot write to one.
    root = ["--runs-dir", str(tmp_path)]
    assert main([*["record", "@last", "--episodes", "3", "--out", "data/c-v0"], *root]) == 0
    how = ["--dataset", "data/c-v0", "--max-env-steps", "300", "-q", *root]
    short = ["--n-steps", "100", "--test-episodes", "2"]
    assert main(["train", "CartPole-v1:bc", *how, *short]) in (0, 1)
    capsys.readouterr()
    assert main(["train", "Acrobot-v1:bc", *how]) == 2
    error = capsys.readouterr().err
    assert "has the observations" in error
    assert "Acrobot-v1 has" in error


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"dataset": None}, "give --dataset PATH"),
        ({"dataset": "nowhere-v0"}, "there is no dataset nowhere-v0"),
        ({"imitation_loss": "mse"}, "mse needs real-valued actions"),
        ({"action_dist": "gumbel"}, "use categorical"),
        ({"intrinsic": {"kind": "rnd"}}, "learns from no rewards"),
        ({"collectors": 1}, "learns from demonstrations and steps no environment"),
    ],
)
def test_mistakes_are_told_in_one_line(fields: dict[str, Any], text: str, tmp_path: Path) -> None:
    pytest.importorskip("minari")
    pytest.importorskip("h5py")
    data = demonstrate("Probe/ObsActionReward-v0", tmp_path / "a.npz", 4)

    def train() -> None:
        config = config_of("Probe/ObsActionReward-v0", **{"dataset": data, **fields})
        loop.train(config, runs_root=tmp_path / "runs")

    with pytest.raises(ConfigError, match=text) as error:
        train()
    assert "\n" not in str(error.value)
    assert not (tmp_path / "runs").exists()


def test_another_environments_demonstrations_are_told(tmp_path: Path) -> None:
    data = demonstrate("Probe/ObsActionReward-v0", tmp_path / "a.npz", 4)
    watch = Heard()
    config = config_of("Probe/ActionReward-v0", data, max_epochs=1)
    loop.train(config, runs_root=tmp_path, observers=[watch])
    text = "warning: the demonstrations are of Probe/ObsActionReward-v0, not of Probe/ActionReward"
    assert any(note.startswith(text) for note in watch.notes)
