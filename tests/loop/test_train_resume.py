"""The seed decides the weights, bit for bit, and so does a run that was broken off and resumed:
weights, statistics and metrics are those of a run without a break."""

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.algos.tdmpc2 import TDMPC2
from gymnasium_solver.errors import RunError
from gymnasium_solver.policies.policy import ActorPolicy
from gymnasium_solver.runs.checkpoint import load_checkpoint
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.seeds import derive, stage_seed
from tests.loop.conftest import (
    AtEpoch,
    Crash,
    CrashAt,
    Heard,
    SmallEnv,
    crash,
    events,
    exact_resume,
    learning_rows,
    make_config,
    registered,
    resume,
    train,
    weight_hash,
)
from tests.nets.test_layers import ALL as ALL_LAYERS

SHORT: dict[str, Any] = {"max_episode_steps": 30}
NORMALISED: dict[str, Any] = {"normalize_obs": "rolling", "normalize_reward": True}
SLOPE = {"policy_lr": "lin_0.01"}
GRU: dict[str, Any] = {"recurrent": "gru", "recurrent_dim": 8}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "envpool": ("CartPole-v1", {"vectorization_mode": "envpool"}),
    "vector": ("CartPole-v1", {"vectorization_mode": "vector"}),
    "sync": ("CartPole-v1", {"vectorization_mode": "sync"}),
    "async": ("CartPole-v1", {"vectorization_mode": "async"}),
    "own": ("Bandit-v0", {}),
    "table": ("Taxi-v3", {}),
    "device": ("Torch/CartPole-v1", SHORT),
    "device normalised": ("Torch/Pendulum-v1", NORMALISED | SHORT),
    "device copied": ("Torch/CartPole-v1", {"target_kl": 0.1, **SHORT}),
    "continuous": ("Pendulum-v1", {"vectorization_mode": "envpool", **SHORT}),
    "normalised": ("Pendulum-v1", NORMALISED | SHORT),
    "wrapped": (
        "MountainCar-v0",
        {
            "max_episode_steps": 40,
            "env_wrappers": [
                {"id": "FrameSkipWrapper", "skip": [1, 3]},
                {"id": "MountainCarV0_RewardShaper"},
                {"id": "MountainCarV0_StateCountBonus", "position_bins": 9},
            ],
        },
    ),
    "adamw": ("Bandit-v0", {"optimizer": "adamw", "weight_decay": 0.1}),
    "sgd": ("Bandit-v0", {"optimizer": "sgd"}),
    "plain torch": ("Bandit-v0", {"compile": False}),
    "compiled": ("CartPole-v1", {"compile": "native", **SHORT}),
    "in C": ("c:cartpole", SHORT),
    "compiled normalised": ("Pendulum-v1", {"compile": "native", **NORMALISED, **SHORT}),
    "discrete normalised": ("CartPole-v1", NORMALISED | SHORT),
    "parts": ("Probe/DictObs-v0", {"normalize_obs": "rolling"}),
    "action parts": ("Probe/DictAction-v0", {}),
    "gru": ("Probe/Memory-v0", GRU),
    "lstm": (
        "CartPole-v1",
        {
            **GRU,
            "recurrent": "lstm",
            "sequence_length": 6,
            "compile": "native",
            "normalize_obs": "rolling",
        },
    ),
    "rloo": ("CartPole-v1", {"baseline": "rloo", "group_size": 3, "n_envs": 6}),
    "switches": (
        "CartPole-v1",
        {
            "dual_clip": 3.0,
            "normalize_values": True,
            "adaptive_kl": 0.001,
            "normalize_advantages": "percentile",
            "recompute_advantages": True,
            "n_epochs": 3,
        },
    ),
    "memory in parts": ("Probe/MemoryParts-v0", {**GRU, "sequence_length": 4}),
    "r2d2": (
        "Probe/MemoryParts-v0",
        {**GRU, "sequence_length": 4, "burn_in": 2, "prioritized": True},
    ),
    "compiled plans": ("Pendulum-v1", {"compile": "native", **SHORT}),
    "rounds": (  # of steps in one compiled call, with a target network that moves
        "CartPole-v1",
        {"compile": "native", "tau": 0.05, "train_freq": 8, **SHORT},
    ),
}
DQN_ONLY = ("r2d2", "rounds")
PLANNED = ("compiled plans",)
DEVICE = ("device normalised", "device copied")
DISCRETE = ("envpool", "sync", "own", "adamw", "plain torch", "discrete normalised", "parts")
# Cases, for what an algorithm can act on.
ALGOS: dict[str, tuple[str, ...]] = {
    "ppo": tuple(case for case in CASES if case not in ("rloo", *DQN_ONLY, *PLANNED)),
    "a2c": (
        *("envpool", "normalised", "parts", "action parts", "lstm", "memory in parts", "adamw"),
        "compiled normalised",
    ),
    "reinforce": tuple(
        case
        for case in CASES
        if case not in ("switches", "compiled normalised", *DEVICE, *DQN_ONLY, *PLANNED)
    ),
    "pqn": (*DISCRETE, "gru", "memory in parts", "device"),
    "sarsa": DISCRETE,
    "mbie": ("table",),
    "sac": (
        *("continuous", "normalised", "adamw", "plain torch", "discrete normalised", "parts"),
        "compiled normalised",
        "device normalised",
    ),
    "td3": ("continuous", "normalised", "device normalised"),
    "ddpg": ("continuous",),
    "crossq": ("continuous", "normalised", "discrete normalised"),
    "tdmpc2": ("continuous", "normalised", "compiled plans"),
    "dreamerv3": ("envpool", "continuous", "normalised", "parts"),
    "dqn": (*DQN_ONLY, "device"),
}
IMAGE: dict[str, Any] = {
    "env_kwargs": {"shape": [2, 12, 12]},
    "cnn_channels": [4, 4, 4],
    "cnn_hidden_dims": [8],
    "n_threads": 1,
}
NETS = ("branches", "listed layers", "optimiser of torch", "sde", "sde with memory")
CASES |= {
    "branches": (
        "Probe/DictAction-v0",
        {"output_dims": [8], "embedding_dim": 4, "input_dims": [6]},
    ),
    "listed layers": ("CartPole-v1", {"layers": ALL_LAYERS}),
    "image": ("Probe/Image-v0", IMAGE),
    "normalised image": ("Probe/Image-v0", {**IMAGE, "normalize_obs": "rolling"}),
    "optimiser of torch": (
        "CartPole-v1",
        {"optimizer": "NAdam", "optimizer_kwargs": {"betas": [0.9, 0.99]}},
    ),
    "sde": ("Pendulum-v1", {**SHORT, "sde": True, "sde_sample_freq": 5}),
    "sde with memory": ("Pendulum-v1", {**SHORT, **GRU, "sde": True}),
    **{
        dist: ("Pendulum-v1", {**SHORT, "action_dist": dist})
        for dist in ("beta", "squashed", "multivariate")
    },
}
REPLAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "polyak": ("CartPole-v1", {"tau": 0.1, "exploration": "boltzmann"}),
    "combined": ("CartPole-v1", {"combined_replay": True, "n_step": 2}),
    "masked": ("Probe/Masked-v0", {"double": True}),
    "discrete obs": ("FrozenLake-v1", {"n_envs": 1, "train_freq": 1}),
    "n steps normalised": ("CartPole-v1", {**NORMALISED, "n_step": 3}),
    "boundary": ("CartPole-v1", {"env_boundary_steps": 50, "n_step": 5}),
    "mapped": ("CartPole-v1", {"replay_dir": "."}),
    "per": ("CartPole-v1", {"prioritized": True}),
    "rainbow": (
        "CartPole-v1",
        {"double": True, "dueling": True, "prioritized": True, "n_step": 3, "noisy": True}
        | {"distributional": True, "v_max": 20.0, "n_atoms": 11},
    ),
    "her": (
        "Probe/BitFlip-v0",
        {"env_kwargs": {"bits": 4}, "her": {"strategy": "episode", "k": 2}, "n_step": 3}
        | {"prioritized": True, "combined_replay": True, "env_boundary_steps": 50}
        | NORMALISED,
    ),
    "her to a point": (
        "PointMaze_UMaze-v3",
        {"her": True, "max_episode_steps": 9, "n_envs": 1},
    ),
}
CASES |= REPLAYS
ALGOS["ppo"] += (*NETS, "beta", "squashed", "multivariate", "image", "normalised image")
ALGOS["dqn"] += (
    "listed layers",
    "optimiser of torch",
    "image",
    "envpool",
    "plain torch",
    "compiled",
)
ALGOS["dqn"] += tuple(case for case in REPLAYS if case != "her to a point")
ALGOS["pqn"] += ("image",)
ALGOS["a2c"] += ("sde",)
ALGOS["sac"] += ("sde", "image", "her to a point")
CONTINUOUS_ONLY = ("td3", "ddpg", "crossq", "tdmpc2")
PAIRS = [(case, algo_id) for algo_id, cases in ALGOS.items() for case in cases]
ENGINES = ("envpool", "vector", "sync", "async", "own", "device", "continuous")
SEEDED_CASES = (*ENGINES, *REPLAYS, "normalised", "discrete normalised", "image")
SEEDED = [pair for pair in PAIRS if pair[0] in SEEDED_CASES]


@pytest.mark.sample(5)
@pytest.mark.parametrize("pair", SEEDED, ids="-".join)
def test_the_seed_decides_the_weights(pair: tuple[str, str]) -> None:
    case, algo_id = pair
    env_id, fields = CASES[case]
    first, again, other = (
        weight_hash(train(algo_id, env_id, seed=seed, max_epochs=3, **fields)) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_the_threads_of_the_process_do_not_matter(tmp_path: Path) -> None:
    """Weights are drawn by a decomposition that rounds otherwise on two threads than on one."""
    hashes = set()
    for threads in ("1", "2"):
        variables = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        environment = os.environ | dict.fromkeys(variables, threads)
        runs = tmp_path / threads
        command = [sys.executable, "-m", "gymnasium_solver", "train", "CartPole-v1:ppo"]
        command += ["--seed", "1", "--max-epochs", "3", "-q", "--runs-dir", str(runs)]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        weights = (runs / "@last/checkpoints/last/model.safetensors").read_bytes()
        hashes.add(hashlib.sha256(weights).hexdigest())
    assert len(hashes) == 1


def test_a_run_without_a_seed_records_the_one_it_drew() -> None:
    run = train("ppo", "Bandit-v0", seed=None)
    drawn = run.meta()["seed"]
    assert isinstance(drawn, int)
    assert weight_hash(train("ppo", "Bandit-v0", seed=drawn)) == weight_hash(run)


def test_adjacent_stages_have_their_own_seeds() -> None:
    config = make_config("ppo", "Bandit-v0", seed=5)
    seeds = [stage_seed(config, stage) for stage in ("train", "val", "test")]
    neighbours = [stage_seed(config.replace(seed=6), stage) for stage in ("train", "val", "test")]
    assert len({*seeds, *neighbours, derive(5, "agent"), derive(6, "agent")}) == 8
    assert stage_seed(config.replace(seed_val=77), "val") == 77


# -- resume -------------------------------------------------------------------------------------


@pytest.mark.sample(7)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_a_crashed_run_resumed_equals_the_uninterrupted_one(pair: tuple[str, str]) -> None:
    case, algo_id = pair
    env_id, special = CASES[case]
    # A boundary inside what is trained before the crash, and one after it.
    slope = {} if algo_id == "mbie" else SLOPE
    fields = {"env_boundary_steps": 130, **slope, **special, "max_epochs": 7}
    has_segments = case in REPLAYS  # those of a replay are the same if it was saved as often
    whole, run = exact_resume(algo_id, env_id, at=6, every=4, saves_alike=has_segments, **fields)
    meta = run.meta()
    assert meta["status"] == "finished"
    assert meta["resumed"][0]["from_env_steps"] == learning_rows(whole)[3]["env_steps"]
    if has_segments:
        one, two = (
            [segment["sha256"] for segment in load_checkpoint(path).state["replay"]["segments"]]
            for path in (whole.checkpoints_dir / "last", run.checkpoints_dir / "last")
        )
        assert one == two


def test_the_checkpoint_resumed_from_lies_inside_episodes_and_after_a_boundary() -> None:
    """What the exactness above must hold for: it is no accident of where the crash fell."""
    fields = {**SLOPE, "max_epochs": 7, "env_boundary_steps": 130}
    crash(6, "ppo", "CartPole-v1", checkpoint_freq_epochs=4, **fields)
    saved = load_checkpoint(Path("runs/@last/checkpoints/last"))
    assert saved.state["collector"]["boundary"] == 1
    assert (saved.tensors["env"]["episode_length"] > 0).any()
    assert len(saved.tensors["env"]["actions"]) < 4 * 16, "the journal begins at the boundary"


def test_a_checkpoint_from_before_acting_was_compiled_is_continued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its state does not say how actions were sampled: as they were then."""
    whole = train("ppo", "CartPole-v1", max_epochs=4)
    with monkeypatch.context() as before:
        before.setattr(ActorPolicy, "state", lambda self: {})
        half = train("ppo", "CartPole-v1", max_epochs=2)
    assert weight_hash(resume(half.id, max_epochs=4)) == weight_hash(whole)


def test_a_long_journal_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    run = train("ppo", "CartPole-v1", max_epochs=3)
    quick, slow = Heard(), Heard()
    resume(run.id, max_epochs=4, observer=quick)
    assert not any("Replaying" in note for note in quick.notes)
    monkeypatch.setattr("gymnasium_solver.training.trainer.LONG_JOURNAL", 1)
    resume(run.id, max_epochs=5, observer=slow)
    assert slow.notes[0].startswith("Replaying 192 env steps")


@pytest.mark.sample(1)
@pytest.mark.parametrize("algo_id", ALGOS)
def test_half_the_epochs_and_then_the_rest(algo_id: str) -> None:
    env_id = "Pendulum-v1" if algo_id in CONTINUOUS_ONLY else "CartPole-v1"
    env_id = "Taxi-v3" if algo_id == "mbie" else env_id
    whole = train(algo_id, env_id, max_epochs=6, eval_freq_epochs=2, eval_episodes=2)
    half = train(algo_id, env_id, max_epochs=3, eval_freq_epochs=2, eval_episodes=2)
    assert weight_hash(half) != weight_hash(whole)
    rest = resume(half.id, max_epochs=6)
    assert weight_hash(rest) == weight_hash(whole)


def test_resumed_again_and_again() -> None:
    fields = {**SLOPE, "max_epochs": 8, "normalize_obs": True, "checkpoint_freq_epochs": 2}
    whole = train("ppo", "CartPole-v1", **fields)
    crash(3, "ppo", "CartPole-v1", **fields)
    for epoch in (5, 7):
        with pytest.raises(Crash):
            resume("@last", observer=CrashAt(epoch))
    run = resume("@last")
    assert weight_hash(run) == weight_hash(whole)
    assert len(run.meta()["resumed"]) == 3


def test_from_an_older_checkpoint() -> None:
    run = train("ppo", "CartPole-v1", max_epochs=5, checkpoint_freq_epochs=1)
    expected, rows = weight_hash(run), learning_rows(run)
    resume(f"{run.id}/{rows[2]['env_steps']}")
    assert weight_hash(run) == expected
    assert learning_rows(run) == rows


def test_a_folder_means_its_last_checkpoint_not_its_best() -> None:
    # Evaluated once, so that the best lies before the last.
    fields = {"max_epochs": 4, "eval_freq_epochs": 2, "eval_episodes": 2}
    crash(4, "ppo", "CartPole-v1", eval_warmup_epochs=1, checkpoint_freq_epochs=3, **fields)
    folder = Path("runs") / os.readlink("runs/@last")
    run = resume(f"{folder}/")
    third = learning_rows(run)[2]["env_steps"]
    assert run.meta()["resumed"][0]["from_env_steps"] == third


def test_evaluations_are_the_same_after_a_resume() -> None:
    fields = {"max_epochs": 6, "eval_freq_epochs": 1, "eval_episodes": 3, "seed": 3}
    whole, run = exact_resume("ppo", "CartPole-v1", **fields)

    def told(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{k: v for k, v in event.items() if k != "at"} for event in events]

    assert told(events(run, "eval")) == told(events(whole, "eval"))
    assert weight_hash(run, "best") == weight_hash(whole, "best")
    for name in ("best", "last_eval", "test", "episodes", "solved", "env_steps", "epoch"):
        assert run.meta()[name] == whole.meta()[name], name


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_epoch_and_saves(number: int) -> None:
    before = signal.getsignal(number)
    whole = train("ppo", "CartPole-v1", **SLOPE, max_epochs=6)
    fields = {**SLOPE, "max_epochs": 6}
    run = train(
        "ppo",
        "CartPole-v1",
        observer=AtEpoch(2, lambda run: os.kill(os.getpid(), number)),
        **fields,
    )
    assert signal.getsignal(number) is before
    meta = run.meta()
    assert (meta["status"], meta["stop_reason"], meta["epoch"]) == ("interrupted",) * 2 + (2,)
    assert meta["stop_detail"] == signal.Signals(number).name
    assert (meta["test"], meta["solved"]) == (None, False)
    resume(run.id)
    assert weight_hash(run) == weight_hash(whole)
    assert learning_rows(run) == learning_rows(whole)
    assert run.meta()["stop_reason"] == "max_epochs"


def test_a_signal_ends_a_burst_of_updates_and_a_resume_makes_up_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = {**SHORT, **SLOPE, "max_epochs": 2, "pretrain_updates": 24, "learning_starts": 10}
    whole = train("tdmpc2", "Pendulum-v1", **fields)
    step, made = TDMPC2.step, []

    def signalled(self: Any, *given: Any) -> Any:
        made.append(1)
        if len(made) in (5, 9):  # the second time in the rest of the burst
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, *given)

    monkeypatch.setattr(TDMPC2, "step", signalled)
    run = train("tdmpc2", "Pendulum-v1", **fields)
    assert len(made) == 5
    meta = run.meta()
    assert (meta["status"], meta["stop_detail"]) == ("interrupted", "SIGTERM")
    saved = load_checkpoint(run.path / "checkpoints" / "last").state["progress"]
    assert saved["cut"]["rows"] > 0
    resume(run.id)
    assert len(made) == 9
    resume(run.id)
    assert run.meta()["stop_reason"] == "max_epochs"
    assert weight_hash(run) == weight_hash(whole)
    assert [r["train/cnt/total_env_steps"] for r in learning_rows(run)] == [
        r["train/cnt/total_env_steps"] for r in learning_rows(whole)
    ]


def test_a_second_signal_stops_at_once() -> None:
    def twice(run: Run) -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train("ppo", "Bandit-v0", observer=AtEpoch(2, twice), max_epochs=4)
    meta = Run(Path("runs/@last")).meta()
    assert (meta["status"], meta["stop_reason"]) == ("interrupted", "interrupted")


def test_a_run_that_used_its_budget_says_how_to_give_it_more() -> None:
    run = train("ppo", "Bandit-v0", max_epochs=2)
    with pytest.raises(RunError, match=r"used up its budget, max_epochs.*--max-e"):
        resume(run.id)
    assert run.meta()["status"] == "finished", "a refused resume leaves the run as it was"


def test_other_weights_are_refused_in_words() -> None:
    run = train("ppo", "Bandit-v0", max_epochs=2)
    before = weight_hash(run)
    with pytest.raises(RunError, match=r"actor_torso\.0\.weight.*hidden_dims"):
        resume(run.id, max_epochs=4, hidden_dims=[9])
    assert weight_hash(run) == before


def test_another_number_of_envs_is_told_as_not_exact() -> None:
    run = train("ppo", "Bandit-v0", max_epochs=2, normalize_reward=True)
    heard = Heard()
    resume(run.id, observer=heard, max_epochs=4, n_envs=5)
    assert "not an exact resume" in heard.notes[0]
    assert run.meta()["epoch"] == 4


class Drifting(SmallEnv):
    """Counts its resets over all copies ever made: not deterministic under its seed."""

    resets = 0

    def see(self) -> np.ndarray:
        Drifting.resets += self.t == 0
        return np.array([Drifting.resets], np.float32)

    def ends(self) -> bool:
        return self.t == 7


def test_an_env_that_cannot_be_replayed_goes_on_with_new_episodes() -> None:
    run = train("ppo", registered(Drifting), max_epochs=2)
    heard = Heard()
    resume(run.id, observer=heard, max_epochs=4)
    assert "not deterministic under its seed" in heard.notes[0]
    assert "not an exact resume" in heard.notes[0]
    assert run.meta()["epoch"] == 4
