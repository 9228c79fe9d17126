"""Images end to end: bytes up to the network, learnt from, saved, resumed, loaded and acted on."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymnasium_solver.algos.ppo import PPO
from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import Run
from gymnasium_solver.spaces.actions import action_kind
from gymnasium_solver.spaces.observations import take_rows
from gymnasium_solver.training import trainer
from gymnasium_solver.training.agents import build_agent, load_agent, pick_device
from gymnasium_solver.training.loop import train
from gymnasium_solver.training.observer import Observer, TrainInfo
from gymnasium_solver.training.prepare import build_config
from tests.acting import best, drawn, random_rollout
from tests.unit.test_learner_state import prepared

SHAPE = [1, 16, 16]
OFF_POLICY: dict[str, Any] = {
    "n_envs": 4,
    "n_steps": 16,
    "batch_size": 16,
    "buffer_size": 200,
    "learning_starts": 40,
    "updates_per_step": 0.25,
}
TINY: dict[str, dict[str, Any]] = {
    "ppo": {"n_envs": 4, "n_steps": 8, "batch_size": 16, "n_epochs": 2},
    "reinforce": {"n_envs": 4, "n_steps": 8},
    "pqn": {"n_envs": 4, "n_steps": 8, "batch_size": 16, "n_epochs": 2},
    "sarsa": {"n_envs": 4, "n_steps": 8},
    "dqn": OFF_POLICY,
    "sac": OFF_POLICY,
}
CONTINUOUS: dict[str, dict[str, Any]] = dict.fromkeys(("td3", "ddpg", "crossq"), OFF_POLICY)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def config(algo_id: str, **fields: Any) -> Config:
    base = {
        "env_id": "Probe/Image-v0",
        "env_kwargs": {"shape": SHAPE},
        "algo_id": algo_id,
        "seed": 1,
        "n_threads": 1,
        "max_epochs": 4,
        "eval_freq_epochs": None,
        "checkpoint_freq_epochs": 1000,
    }
    return build_config({**base, **(TINY | CONTINUOUS)[algo_id], **fields})


def narrow(algo_id: str, **fields: Any) -> Run:
    return run(algo_id, **{**NARROW, **fields})


def run(algo_id: str, observer: Observer | None = None, **fields: Any) -> Run:
    return train(
        config(algo_id, **fields), runs_root=Path("runs"), observers=[observer] if observer else []
    )


def digest(trained: Run) -> str:
    weights = (trained.checkpoints_dir / "last/model.safetensors").read_bytes()
    return hashlib.sha256(weights).hexdigest()


# -- learning -----------------------------------------------------------------------------------

NARROW: dict[str, Any] = {"cnn_channels": [8, 8, 16], "cnn_hidden_dims": [32]}
LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo_nature": ("ppo", {"env_kwargs": {"shape": [4, 36, 36]}, "max_env_steps": 1500}),
    "ppo_impala": ("ppo", {"model_id": "impala", "cnn_channels": [8, 8], "max_env_steps": 1500}),
    "ppo_colour_last": ("ppo", {"env_kwargs": {"shape": [16, 16, 3]}, "max_env_steps": 2000}),
    "ppo_apart": ("ppo", {"share_trunk": False, **NARROW, "max_env_steps": 1500}),
    "dqn": ("dqn", {**NARROW, "max_env_steps": 1500}),
    "rainbow": (
        "dqn",
        {
            **NARROW,
            "max_env_steps": 1000,
            **dict.fromkeys(("dueling", "noisy", "double", "prioritized", "distributional"), True),
            "v_min": -2.0,
            "v_max": 2.0,
        },
    ),
    "sac": ("sac", {**NARROW, "ent_coef": "auto_1.0", "max_env_steps": 1000}),
    "pqn": ("pqn", {**NARROW, "max_env_steps": 1500}),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_the_side_of_a_square_is_learnt(name: str) -> None:
    algo_id, fields = LEARNERS[name]
    sizes = {"n_envs": 16, "n_steps": 8, "batch_size": 64} if algo_id in ("ppo", "pqn") else {}
    replay = {"buffer_size": 2000, "learning_starts": 100} if algo_id in ("dqn", "sac") else {}
    small = {"model_id": "cnn_small"} if "env_kwargs" not in fields else {}
    lr = {"policy_lr": 1e-3, "max_epochs": None}
    trained = run(algo_id, **{**sizes, **replay, **small, **lr, **fields})
    agent = load_agent(trained.id, "runs")
    env = make_vector_env("Probe/Image-v0", 200, env_kwargs=config(algo_id, **fields).env_kwargs)
    step = env.step(agent.act(env.reset(seed=5)))
    assert step.reward.mean() > 0.9


IMAGE = spaces.Box(0, 255, (16, 16, 3), np.uint8)
CAMERA = spaces.Dict({"camera": IMAGE, "speed": spaces.Box(-1, 1, (2,), np.float32)})
BOX = spaces.Box(-2, 2, (2,), np.float32)
STEPS: list[tuple[str, spaces.Space[Any], spaces.Space[Any]]] = [
    ("sac", IMAGE, BOX),
    ("sac", IMAGE, spaces.Discrete(3)),
    ("td3", IMAGE, BOX),
    ("ddpg", IMAGE, BOX),
    ("crossq", IMAGE, BOX),
    ("ppo", CAMERA, spaces.Discrete(3)),
    ("ppo", CAMERA, BOX),
    ("dqn", CAMERA, spaces.Discrete(3)),
    ("sac", CAMERA, BOX),
    ("sac", CAMERA, spaces.Discrete(3)),
]


@pytest.mark.sample(8)
@pytest.mark.parametrize(("algo_id", "space", "actions"), STEPS, ids=str)
@pytest.mark.parametrize("normalize", [False, "rolling"])
def test_a_step_is_learnt_from_images_alone_and_beside_numbers(
    algo_id: str, space: spaces.Space[Any], actions: spaces.Space[Any], normalize: Any
) -> None:
    """Every weight moves, and acting computes what was learnt."""
    small: dict[str, Any] = {"learning_starts": 4} if algo_id != "ppo" else {}
    small |= {"policy_delay": 1} if algo_id in ("td3", "crossq") else {}
    small |= {"normalize_obs": normalize, **NARROW, "model_id": "cnn_small"}
    agent = build_agent(config(algo_id, **small), space, actions)
    before = {name: weight.detach().clone() for name, weight in agent.net.named_parameters()}
    for i in range(2):
        metrics = agent.update(random_rollout(agent.policy, 8, 4, seed=i), 32 * i, 1000)
    assert all(np.isfinite(float(value)) for value in metrics.values())
    still = [n for n, weight in agent.net.named_parameters() if torch.equal(before[n], weight)]
    assert not still
    obs = random_rollout(agent.policy, 1, 5, seed=9).obs
    first = take_rows(obs, 0)
    np.testing.assert_array_equal(agent.act(first), agent.policy.to_env(best(agent.policy, first)))
    assert len(drawn(agent.policy, first)) == 5


# -- bytes --------------------------------------------------------------------------------------


def test_a_rollout_is_learnt_from_as_bytes() -> None:
    image, actions = spaces.Box(0, 255, (4, 36, 36), np.uint8), spaces.Discrete(2)
    agent = build_agent(config("ppo"), image, actions)
    assert isinstance(agent, PPO)
    rollout = random_rollout(agent.policy, 8, 4)
    batch = prepared(agent, rollout).batch
    assert isinstance(rollout.obs, np.ndarray)
    assert rollout.obs.dtype == np.uint8
    assert batch.obs.dtype == torch.uint8
    assert batch.obs.shape == (32, 4, 36, 36)


def test_moments_are_not_looked_at_where_nothing_is_normalised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Taking the valid rows out copies the whole rollout."""
    monkeypatch.setattr(Rollout, "valid_obs", lambda self: pytest.fail("copied"))
    for algo_id in ("ppo", "dqn"):
        run(algo_id, max_epochs=1)


# -- the same again -----------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
def test_the_seed_decides_the_weights_with_every_number_of_threads(threads: int) -> None:
    fields: dict[str, Any] = {
        "n_threads": threads,
        "env_kwargs": {"shape": [4, 36, 36]},
        "max_epochs": 2,
    }
    assert digest(run("ppo", **fields)) == digest(run("ppo", **fields))


# -- acting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo_id", TINY)
def test_a_loaded_agent_acts(algo_id: str) -> None:
    agent = load_agent(narrow(algo_id, max_epochs=1).id, "runs")
    obs = np.random.default_rng(0).integers(0, 256, (5, *SHAPE), dtype=np.uint8)
    batch = agent.act(obs)
    assert [agent.act(one) for one in obs] == list(batch)
    assert agent.act(obs, greedy=False).shape == (5,)
    with pytest.raises(EnvError, match=r"shape \(16, 16\)"):
        agent.act(obs[0, 0])


def test_evaluations_run_on_images() -> None:
    trained = run("ppo", max_epochs=2, eval_freq_epochs=1, eval_episodes=8)
    assert trained.meta()["best"]["score"] >= -1.0
    assert -1.0 <= trained.meta()["test"]["mean"] <= 1.0
    events = read_jsonl(trained.events_path)
    tested = [event["greedy"] for event in events if event.get("stage") == "test"]
    assert tested == [True, False]


# -- before the start ---------------------------------------------------------------------------


class Notes(Observer):
    notes: list[str]

    def on_start(self, run: Run, config: Config, info: TrainInfo) -> None:
        self.notes = info.notes


def test_the_rollouts_memory_is_told() -> None:
    observer = Notes()
    run("ppo", observer, n_steps=100, n_envs=16, batch_size=400, n_epochs=1, max_epochs=1)
    # 101 rows of observations, each with a flag; 8 bytes of action, 4 of reward, 3 flags and two
    # logits in 100
    expected = 16 * (101 * 257 + 100 * (8 + 4 + 3 + 8)) / 2**20
    assert observer.notes == [
        f"rollout: 100 rows of 16 envs take {expected:.1f} MB, twice that during an update"
    ]


def test_a_rollout_that_cannot_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "available_memory_bytes", lambda: 2**20)
    with pytest.raises(ConfigError, match=r"the rollout .*takes .* GiB.*n_steps or n_envs"):
        run("ppo", n_steps=10_000)


def test_the_estimate_is_what_a_rollout_takes() -> None:
    image = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    camera = spaces.Dict({"camera": image, "speed": spaces.Box(-1, 1, (3,), np.float32)})
    for space in (image, camera):
        for actions in (spaces.Discrete(6), spaces.Box(-1, 1, (3,), np.float32)):
            for n_outputs in (None, 6):
                sizes = (7, 3, space, action_kind(actions))
                rollout = Rollout.allocate(*sizes, n_outputs=n_outputs)
                columns = vars(rollout) | (rollout.obs if isinstance(rollout.obs, dict) else {})
                arrays = [value for value in columns.values() if isinstance(value, np.ndarray)]
                taken = sum(array.nbytes for array in arrays)
                assert Rollout.estimate_bytes(*sizes, n_outputs=n_outputs) == taken


def test_auto_takes_a_gpu_for_convolutions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto", is_large=True) == "cuda"
    assert pick_device("auto", is_large=False) == "cpu"
    assert pick_device("cpu", is_large=True) == "cpu"


# -- the probe ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [[4, 84, 84], [16, 16, 3], [1, 2, 2]], ids=str)
def test_the_probe_pays_for_the_side(shape: list[int]) -> None:
    env = make_vector_env("Probe/Image-v0", 100, env_kwargs={"shape": shape})
    obs = env.reset(seed=1)
    assert obs.shape == (100, *shape)
    planes = obs if shape[0] <= shape[2] else obs.transpose(0, 3, 1, 2)
    half = planes.shape[3] // 2
    side = planes[..., half:].any(axis=(1, 2, 3)).astype(int)
    assert 20 < side.sum() < 80
    assert not (
        planes[..., half:].any(axis=(1, 2, 3)) & planes[..., :half].any(axis=(1, 2, 3))
    ).any()
    step = env.step(side)
    assert (step.reward == 1).all()
    assert step.terminated.all()
    assert np.array_equal(step.obs, obs)  # the final observation
    assert env.step(side).is_reset.all()
    env.reset(seed=1)
    assert (env.step(1 - side).reward == -1).all()


def test_a_shape_that_is_no_image_is_refused() -> None:
    for shape, told in (([1, 84, 1], "a width of 1"), ([84, 84], "three ints")):
        with pytest.raises(EnvError, match=told):
            make_vector_env("Probe/Image-v0", 1, env_kwargs={"shape": shape})
