"""Several processes that learn together (processes.py): here two on the CPU, by Gloo.

This file is also what they run: `python -m tests.loop.test_train_several FOLDER`.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from gymnasium_solver import processes
from gymnasium_solver.cli.main import main
from gymnasium_solver.data.device_rollout import DeviceRollout
from gymnasium_solver.envs.device import State, TorchEnv
from gymnasium_solver.envs.make import training_env
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.training import loop
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.prepare import build_config

N_ENVS, N_STEPS, N_UPDATES = 6, 8, 3
ROOT = Path(__file__).parents[2]


class Walk(TorchEnv):
    """The sum of the actions, with noise; one of the processes may fail."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Discrete(2)
    max_episode_steps = 5

    def __init__(self, device: torch.device, fails: bool = False):
        super().__init__(device)
        self.fails_at = 30 if fails and processes.rank() else 10**9
        self.n_steps = 0

    def reset(self, n: int, rng: torch.Generator) -> State:
        return {"x": self.uniform(n, -1.0, 1.0, rng, width=2)}

    def step(
        self, state: State, actions: torch.Tensor, rng: torch.Generator
    ) -> tuple[State, torch.Tensor, torch.Tensor]:
        self.n_steps += 1
        if self.n_steps >= self.fails_at:
            raise ValueError("the simulator has stopped")
        x = state["x"] + actions.unsqueeze(1) - 0.4
        return {"x": x}, x[:, 0], x[:, 1] > 3

    def observe(self, state: State) -> torch.Tensor:
        return state["x"]


WALK = f"Torch/{__name__ if __name__ != '__main__' else 'tests.loop.test_train_several'}:Walk"
FIELDS = {
    "env_id": WALK, "algo_id": "ppo", "n_envs": N_ENVS, "n_steps": N_STEPS, "seed": 1,
    "batch_size": N_ENVS * N_STEPS, "n_epochs": 2, "hidden_dims": [8], "policy_lr": 0.01,
    "normalize_obs": "rolling", "normalize_reward": True, "normalize_advantages": "rollout",
    "adaptive_kl": 0.01, "eval_freq_epochs": 0,
}  # fmt: skip


rollout_of: Any = DeviceRollout  # of columns that a loop makes


def rollouts() -> list[DeviceRollout]:
    """Of all environments."""
    rng, grid = np.random.default_rng(1), (N_STEPS, N_ENVS)
    return [
        rollout_of(
            *torch.from_numpy(rng.standard_normal((2, *grid, 2), np.float32) * (1 + i)),
            torch.from_numpy(rng.integers(2, size=grid)),
            torch.from_numpy(np.log(rng.uniform(0.3, 0.7, grid)).astype(np.float32)),
            torch.from_numpy(rng.standard_normal(grid, np.float32)),
            *torch.from_numpy(rng.random((2, *grid)) < 0.1),
            is_restart=i == 0,
        )
        for i in range(N_UPDATES)
    ]


def of_process(rollout: DeviceRollout) -> DeviceRollout:
    size = N_ENVS // processes.count()
    rows = slice(processes.rank() * size, (processes.rank() + 1) * size)
    columns = (
        column[:, rows] for column in vars(rollout).values() if isinstance(column, torch.Tensor)
    )
    return DeviceRollout(*columns, is_restart=rollout.is_restart)


def learnt(compile: bool | str) -> dict[str, np.ndarray]:
    """Weights, statistics and metrics after updates from this process's share of the rollouts."""
    config = processes.share_of(build_config({**FIELDS, "compile": compile}))
    env = training_env(config)
    agent: Any = build_agent(config, env.observation_space, env.action_space)
    for rollout in rollouts():
        found = agent.update(of_process(rollout), 0, 1000)
    names = next(iter(found))
    tensors = {**agent.flat_tensors(), **agent.optimizers["policy"].state()}
    numbers = {"lr_factor": torch.tensor(agent.lr_factor)}
    measured = dict(zip(names, found[names], strict=True))
    return {k: np.array(v.numpy()) for k, v in {**tensors, **numbers, **measured}.items()}


def learn(folder: Path, form: str) -> int:
    """Leave what this process learns in the folder."""
    with processes.joined():
        found = learnt(compile=form != "torch" and form)
        np.savez(folder / f"{processes.rank()}.npz", allow_pickle=False, **found)
    return 0


def train(folder: Path, *words: str) -> int:
    """Run a command line, and leave the weights of this process in the folder."""
    trainers, original = list[Any](), loop.collect_and_learn

    def kept(trainer: Any) -> dict[str, float]:
        trainers.append(trainer)
        return original(trainer)

    loop.collect_and_learn = kept
    try:
        code = main(["train", *words, "--runs-dir", str(folder), "-q"])
    finally:
        loop.collect_and_learn = original
    np.savez(folder / f"{os.environ['RANK']}.npz", **trainers[-1].agent.export_flat())
    return code


def run_tasks(root: Path) -> None:
    """What one of the processes does: tasks one after the other, each with a port of its own."""
    codes = {}
    kinds: dict[str, Any] = {"learn": learn, "train": train}
    for name, port, kind, folder, *words in json.loads((root / "tasks.json").read_text()):
        os.environ["MASTER_PORT"] = str(port)
        (root / folder).mkdir(exist_ok=True)
        log = (root / f"{name}.{os.environ['RANK']}.txt").open("w")
        with log, redirect_stdout(log), redirect_stderr(log):
            codes[name] = kinds[kind](root / folder, *words)
    (root / f"codes.{os.environ['RANK']}.json").write_text(json.dumps(codes))


def flags(**fields: Any) -> list[str]:
    words = []
    for name, value in {**FIELDS, **fields}.items():
        if name not in ("env_id", "algo_id"):
            texts = value if isinstance(value, list) else [value]
            words += [f"--{name.replace('_', '-')}", *(str(text).lower() for text in texts)]
    return words


def tasks() -> list[list[Any]]:
    """Name, kind, folder and words of each."""
    config = f"{WALK}:ppo"
    small = flags(batch_size=12)
    shared = ("n_envs", "n_steps", "seed", "normalize_obs", "normalize_reward", "eval_freq_epochs")
    of_pqn = [f"--{name.replace('_', '-')}={str(FIELDS[name]).lower()}" for name in shared]
    return [
        ["torch", "learn", "torch", "torch"],
        ["numpy", "learn", "numpy", "numpy"],
        ["whole", "train", "whole", config, *small, "--max-epochs", "4"],
        ["half", "train", "parts", config, *small, "--max-epochs", "2"],
        ["resumed", "train", "parts", "--resume", "@last", "--max-epochs", "4"],
        ["pqn", "train", "pqn", f"{WALK}:pqn", *of_pqn, "--batch-size", "12", "--max-epochs", "3"],
        ["fails", "train", "fails", config, *small, "--max-epochs", "50", "--env-kwargs",
         "fails=true"],
    ]  # fmt: skip


class Outcome(NamedTuple):
    root: Path
    codes: list[dict[str, int]]

    def text(self, name: str) -> str:
        return "".join((self.root / f"{name}.{i}.txt").read_text() for i in range(2))

    def weights(self, name: str) -> list[dict[str, np.ndarray]]:
        return [dict(np.load(self.root / name / f"{i}.npz")) for i in range(2)]

    def meta(self, name: str) -> dict[str, Any]:
        (path,) = (self.root / name).glob("Torch-*/meta.json")
        return json.loads(path.read_text())


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Of all tasks, in two processes: starting them takes longest."""
    root, planned = tmp_path_factory.mktemp("several"), tasks()
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in planned]
        for found in sockets:
            found.bind(("127.0.0.1", 0))
        ports = [found.getsockname()[1] for found in sockets]
    named = [[name, port, *rest] for (name, *rest), port in zip(planned, ports, strict=True)]
    (root / "tasks.json").write_text(json.dumps(named))
    shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", __name__, str(root)]
    started = [
        subprocess.Popen(command, cwd=ROOT, env={**shared, "RANK": str(i), "LOCAL_RANK": str(i)})
        for i in range(2)
    ]
    try:
        assert [process.wait(timeout=300) for process in started] == [0, 0]
    finally:
        for process in started:
            process.kill()
    return Outcome(root, [json.loads((root / f"codes.{i}.json").read_text()) for i in range(2)])


def assert_same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert np.array_equal(value, second[name]), name


@pytest.mark.parametrize("form", ["torch", "numpy"])
def test_two_processes_learn_what_one_does(form, outcome):
    first, second = outcome.weights(form)
    assert_same(first, second)
    assert first["lr_factor"] != 1
    for name, value in learnt(compile=form != "torch" and form).items():
        if name != "opt/value/explained_var":  # the mean of both
            np.testing.assert_allclose(first[name], value, rtol=2e-4, atol=2e-6, err_msg=name)


def test_the_first_process_has_the_run_and_all_have_the_weights(outcome):
    assert [codes["whole"] for codes in outcome.codes] == [0, 0], outcome.text("whole")
    assert outcome.meta("whole")["env_steps"] == 4 * N_ENVS * N_STEPS
    (path,) = (outcome.root / "whole").glob("Torch-*/metrics.jsonl")
    last = json.loads(path.read_text().splitlines()[-1])
    assert last["train/cnt/total_episodes"] >= 6 * N_ENVS, "those of both processes"
    assert_same(*outcome.weights("whole"))
    assert (outcome.root / "whole.1.txt").read_text() == ""


def test_pqn_learns_in_several_processes(outcome):
    assert [codes["pqn"] for codes in outcome.codes] == [0, 0], outcome.text("pqn")
    assert outcome.meta("pqn")["env_steps"] == 3 * N_ENVS * N_STEPS
    assert_same(*outcome.weights("pqn"))


def test_a_resumed_training_is_the_same(outcome):
    for name in ("half", "resumed"):
        assert [codes[name] for codes in outcome.codes] == [0, 0], outcome.text(name)
    assert "not an exact resume" not in outcome.text("resumed")
    assert_same(*outcome.weights("parts"))
    assert_same(outcome.weights("whole")[0], outcome.weights("parts")[0])


def test_a_process_that_fails_ends_all(outcome):
    assert all(codes["fails"] for codes in outcome.codes)
    text = outcome.text("fails")
    assert "process 1: " in text
    assert "the simulator has stopped" in text
    assert "another process of this training ended" in text
    assert outcome.meta("fails")["status"] == "failed"


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"n_envs": 5}, "n_envs: 5 cannot be divided among 2 processes"),
        ({"batch_size": 7}, "batch_size: 7 cannot be divided among 2 processes"),
        ({"device": "cuda:1"}, "use cuda, and each takes its own"),
        ({"collectors": 2}, "collectors: 2 processes that learn together have none"),
    ],
)
def test_what_cannot_be_shared_is_refused(fields, match, monkeypatch):
    monkeypatch.setattr(processes, "_n_joined", 2)
    with pytest.raises(ConfigError, match=match):
        processes.share_of(build_config({**FIELDS, **fields}))


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"target_kl": 0.1}, "target_kl"), ({"env_id": "CartPole-v1"}, "env_id: CartPole-v1")],
)
def test_rollouts_on_the_host_are_refused(fields, named, monkeypatch):
    monkeypatch.setattr(processes, "_n_joined", 2)
    monkeypatch.setenv("RANK", "0")
    with (
        pytest.raises(ConfigError, match=f"{named} needs rollouts on the host"),
        loop._built(build_config({**FIELDS, **fields}), ()),
    ):
        pass


if __name__ == "__main__":
    signal.alarm(280)
    run_tasks(Path(sys.argv[1]))
