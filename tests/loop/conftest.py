"""Tiny trainings in a folder of their own, and what is compared of them."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import gymnasium_solver.fast.execution  # noqa: F401  (so that the first test finds it: tests/conftest.py)
from gymnasium_solver.config import code
from gymnasium_solver.config.schema import Config
from gymnasium_solver.registry import config_class
from gymnasium_solver.runs.alerts.alert import Alert
from gymnasium_solver.runs.edits import Request, put_request
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training import loop
from gymnasium_solver.training.observer import Control, EvalResult, Observer, TrainInfo
from gymnasium_solver.training.prepare import build_config
from tests.small import WORLD_MODELS

OFF_POLICY: dict[str, Any] = {
    "batch_size": 8,
    "buffer_size": 60,  # goes round within a tiny run
    "learning_starts": 10,
    "train_freq": 6,
    "updates_per_step": 0.7,
}
# In env steps: a share of the budget would mean something else in a run that is longer.
EPSILON = {"start": 1.0, "end": 0.1, "to": 200}
TINY: dict[str, dict[str, Any]] = {
    "dqn": {**OFF_POLICY, "epsilon": EPSILON},
    "ppo": {"batch_size": 24, "n_epochs": 2},
    "a2c": {"rollout_steps": 5},
    "bc": {"batch_size": 16},
    "random": {},
    "reinforce": {},
    "pqn": {"batch_size": 24, "n_epochs": 2, "epsilon": EPSILON},
    "sarsa": {"batch_size": 24, "epsilon": EPSILON},
    "mbie": {"bonus": {"start": 0.1, "end": 0.0, "to": 200}},
    "sac": OFF_POLICY,
    "td3": OFF_POLICY,
    "ddpg": OFF_POLICY,
    "tdmpc2": {
        **OFF_POLICY,
        **WORLD_MODELS["tdmpc2"],
        "simnorm_dim": 4,
        "pretrain_updates": 2,
        "n_atoms": 11,
    },
    "dreamerv3": {
        **OFF_POLICY,
        **WORLD_MODELS["dreamerv3"],
        "batch_size": 4,
        "updates_per_step": 0.2,
    },
    "crossq": {**OFF_POLICY, "critic_hidden_dims": [9], "renorm_warmup": 40},
}
NOT_LEARNT = ("train/sys/", "wall_s", "progress")

RUNS = Path("runs")  # in the folder of the test


class Crash(BaseException):
    """Ends a run the hard way."""


class AtEpoch(Observer):
    """Calls a function with the run after an epoch was logged, before it is saved."""

    run: Run
    control: Control

    def __init__(self, epoch: int, do: Callable[[Run], object]):
        self.epoch, self.do = epoch, do

    def on_start(self, run: Run, config: Any, info: Any) -> None:
        self.run, self.control = run, info.control

    def on_epoch(self, row: dict[str, Any]) -> None:
        if row["epoch"] == self.epoch:
            self.do(self.run)


class Asks(AtEpoch):
    """Asks for something, such as `stop`, at the end of an epoch."""

    def __init__(self, what: str, epoch: int, *args: Any):
        super().__init__(epoch, lambda run: getattr(self.control, what)(*args))


class CrashAt(AtEpoch):
    """Ends the run after an epoch was logged and before it is saved."""

    def __init__(self, epoch: int):
        super().__init__(epoch, crash_now)


def crash_now(run: Run) -> None:
    raise Crash


class Edits(Observer):
    """Requests changes after some epochs: fields, or a function of the run; and ends the run after
    an epoch was logged and before it is saved, if asked to."""

    run: Run

    def __init__(self, after: dict[int, Any], crash_at: int | None = None):
        self.after, self.crash_at = after, crash_at
        self.messages: list[str] = []

    def on_start(self, run: Run, config: Any, info: Any) -> None:
        self.run = run
        self.messages += info.notes

    def on_message(self, level: str, text: str) -> None:
        self.messages.append(text)

    def on_epoch(self, row: dict[str, Any]) -> None:
        change = self.after.get(row["epoch"])
        if callable(change):
            change(self.run)
        elif change is not None:
            put_request(self.run, Request(change))
        if row["epoch"] == self.crash_at:
            raise Crash


class Heard(Observer):
    """Keeps what a run tells; the notes of its start are before its messages."""

    info: TrainInfo

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.evals: list[tuple[EvalResult, bool]] = []
        self.tests: list[tuple[EvalResult, float]] = []
        self.final: dict[str, EvalResult] = {}
        self.saved: list[str] = []
        self.alerts: list[Alert] = []
        self.tables: list[list[str]] = []

    def on_start(self, run: Run, config: Any, info: TrainInfo) -> None:
        self.info = info
        self.notes += info.notes

    def on_message(self, level: str, text: str) -> None:
        self.notes.append(text)

    def on_eval(self, result: EvalResult, is_best: bool) -> None:
        self.evals.append((result, is_best))

    def on_test(self, result: EvalResult, required: float) -> None:
        self.tests.append((result, required))

    def on_checkpoint(self, path: Path, kind: str) -> None:
        self.saved.append(kind)

    def on_alert(self, alert: Alert) -> None:
        self.alerts.append(alert)

    def on_profile(self, table: list[str], trace: Path) -> None:
        self.tables.append(table)

    def on_end(self, summary: Any, final: dict[str, EvalResult]) -> None:
        self.final = final


class SmallEnv(gymnasium.Env[np.ndarray, int]):
    """An environment of which a test says what is seen, paid and when it ends."""

    observation_space: spaces.Space[Any] = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(2)
    t = 0

    def __init__(self, **kwargs: Any) -> None:
        vars(self).update(kwargs)

    def see(self) -> np.ndarray:
        return np.zeros(self.observation_space.shape or (), self.observation_space.dtype)

    def pay(self, action: int) -> float:
        return 1.0

    def ends(self) -> bool:
        return True

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.see(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.t += 1
        reward = self.pay(int(action))
        return self.see(), reward, self.ends(), False, {}


def registered(env: type[SmallEnv]) -> str:
    """The id under which Gymnasium makes it."""
    env_id = f"GsolveLoop/{env.__name__}-v0"
    if env_id not in gymnasium.registry:
        made: Any = env
        gymnasium.register(env_id, entry_point=made, disable_env_checker=True)
    return env_id


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing lands in the checkout, and a run does not record the checkout's git state."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GSOLVE_RUNS", raising=False)
    # A folder of another test is a stranger's: the modules that it names would not be imported.
    monkeypatch.setattr(code, "_strange", {})


def make_config(algo_id: str, /, env_id: str, **fields: Any) -> Any:
    """A config small enough to run in a blink."""
    small: dict[str, Any] = {
        "env_id": env_id,
        "algo_id": algo_id,
        "seed": 1,
        "n_envs": 3,
        "n_steps": 16,
        "hidden_dims": [8],
        "eval_freq_epochs": None,
        "test_episodes": 2,
        "checkpoint_freq_epochs": 1000,
        "normalize_obs": False,  # decided: `auto` looks at random steps first
        "normalize_reward": False,
    }
    if env_id == "CartPole-v1":
        small["max_episode_steps"] = 40  # final tests would play up to 500
    if "cnn_channels" in fields or algo_id in WORLD_MODELS:
        del small["hidden_dims"]
    small = {name: small[name] for name in small if name in config_class(algo_id).model_fields}
    budget = {} if "max_env_steps" in fields else {"max_epochs": 4}
    return build_config({**small, **TINY[algo_id], **budget, **fields})


def train(what: str | Config, env_id: str = "", /, observer: Any = None, **fields: Any) -> Run:
    """A config, or the tiny one of an algorithm and an environment, in the folder runs."""
    if isinstance(what, Config):
        config = what.replace(**fields)
    else:
        config = make_config(what, env_id, **fields)
    return loop.train(config, runs_root=RUNS, observers=[observer] if observer else [])


def resume(ref: str, /, observer: Any = None, **overrides: Any) -> Run:
    observers = [observer] if observer else []
    return loop.resume(ref, runs_root=RUNS, overrides=overrides, observers=observers)


def crash(epoch: int, what: str | Config, env_id: str = "", /, **fields: Any) -> Run:
    """Trained up to this epoch, then killed."""
    observer = CrashAt(epoch)
    with pytest.raises(Crash):
        train(what, env_id, observer=observer, **fields)
    return observer.run


def exact_resume(
    *args: Any, at: int = 5, every: int = 2, saves_alike: Any = False, **fields: Any
) -> tuple[Run, Run]:
    """Trained at once, and killed after epoch `at` and resumed from a checkpoint before it, with
    the same result. The first one is saved as often only if `saves_alike`: saving does not change
    learning."""
    whole = train(*args, checkpoint_freq_epochs=every if saves_alike else 1000, **fields)
    resumed = resume(crash(at, *args, checkpoint_freq_epochs=every, **fields).id)
    assert weight_hash(resumed) == weight_hash(whole)
    assert learning_rows(resumed) == learning_rows(whole)
    return whole, resumed


def weight_hash(run: Run, pointer: str = "last") -> str:
    """Of the last checkpoint's model, statistics included."""
    file = run.checkpoints_dir / pointer / "model.safetensors"
    return hashlib.sha256(file.read_bytes()).hexdigest()


def learning_rows(run: Run) -> list[dict[str, Any]]:
    """Its metrics without what the clock decides."""
    return [
        {name: value for name, value in row.items() if not name.startswith(NOT_LEARNT)}
        for row in read_jsonl(run.metrics_path)
    ]


def events(run: Run, kind: str) -> list[dict[str, Any]]:
    """Those of a kind, in order."""
    return [event for event in read_jsonl(run.events_path) if event["kind"] == kind]
