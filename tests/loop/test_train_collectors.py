"""Collectors: one learner, several processes that act. Equal to a run without them where it must
be, the bound on staleness, losses of collectors, exact resume."""

import io
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gymnasium_solver.algos.on_policy import Batch, corrected, policy_gradient_loss
from gymnasium_solver.config.load import config_dict
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.training.collectors import remote
from gymnasium_solver.training.collectors.handle import CollectorLost
from gymnasium_solver.training.collectors.messages import Message, read, write
from gymnasium_solver.training.collectors.parts import cut_to, joined_rollout
from gymnasium_solver.training.collectors.worker import Worker
from gymnasium_solver.training.observer import Observer

Call = Callable[..., Any]


class Here:
    """Collectors in this process. They make rollouts as early as they may, so that weights are as
    stale as they can be; `losses` [(collector, round)] are lost once each."""

    def __init__(self) -> None:
        self.losses: list[tuple[int, int]] = []
        self.started: list[int] = []
        self.asked: list[tuple[int, int]] = []

    def start(self, message: Message) -> "HereHandle":
        self.started.append(message.fields["index"])
        return HereHandle(self, message)

    def close(self) -> None:
        pass


class HereHandle:
    def __init__(self, backend: Here, start: Message) -> None:
        self.backend, self.start = backend, start
        self.worker: Worker | None = None
        self.ready: dict[int, Message] = {}
        self.next = start.fields["round"]

    def wait_ready(self) -> Message:
        try:
            self.worker = Worker(self.start)
        except EnvError as error:
            return Message({"kind": "error", "text": str(error)}, {})
        return Message({"kind": "ready"}, {})

    def send(self, message: Message) -> None:
        assert self.worker is not None
        self.worker.hear(_through_a_pipe(message))
        while self.next <= message.fields["version"] + self.worker.max_staleness:
            self.ready[self.next] = _through_a_pipe(self.worker.rollout(self.next))
            self.next += 1

    def take(self, j: int) -> Message:
        who = (self.start.fields["index"], j)
        if who in self.backend.losses:
            self.backend.losses.remove(who)
            raise CollectorLost("it was shot")
        self.backend.asked.append(who)
        return self.ready.pop(j)

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()


def _through_a_pipe(message: Message) -> Message:
    pipe = io.BytesIO()
    write(pipe, message)
    pipe.seek(0)
    return read(pipe)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    backend = Here()
    monkeypatch.setattr(remote, "backend_for", lambda settings: backend)
    return backend


CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ppo", "CartPole-v1", {"normalize_obs": "rolling", "normalize_reward": True}),
    "ppo continuous": ("ppo", "Pendulum-v1", {"max_episode_steps": 30}),
    "ppo gru": ("ppo", "Probe/Memory-v0", {"recurrent": "gru", "recurrent_dim": 8}),
    "ppo parts": ("ppo", "Probe/DictObs-v0", {}),
    "a2c": ("a2c", "CartPole-v1", {"n_steps": 16}),
    "pqn": ("pqn", "CartPole-v1", {}),
    "reinforce": ("reinforce", "CartPole-v1", {}),
    "dqn": ("dqn", "CartPole-v1", {"train_freq": 1, "n_step": 2, "prioritized": True}),
    "sac": ("sac", "Pendulum-v1", {"max_episode_steps": 30}),
}


@pytest.mark.parametrize("case", list(CASES))
def test_one_that_takes_turns_is_a_run_without(
    case: str, train: Call, weight_hash: Call, learning_rows: Call, here: Here
) -> None:
    algo_id, env_id, fields = CASES[case]
    fields = {"max_env_steps": 157, "env_boundary_steps": 60, **fields}
    alone = train(algo_id, env_id, **fields)
    same = train(algo_id, env_id, collectors=1, **fields)
    assert weight_hash(same) == weight_hash(alone)
    rows = learning_rows(same)
    for row in rows:
        assert row.pop("train/roll/policy_lag/mean") == row.pop("train/roll/policy_lag/max") == 0
        assert row.pop("train/cnt/lost_collectors") == 0
    assert rows == learning_rows(alone)


@pytest.mark.parametrize("case", ["ppo", "ppo gru", "a2c", "dqn", "sac"])
def test_a_lost_collector_changes_nothing(
    case: str, train: Call, weight_hash: Call, here: Here
) -> None:
    """It is rebuilt where its last rollout ended: same envs, same carry, same random stream."""
    algo_id, env_id, fields = CASES[case]
    fields = {"n_envs": 4, "collectors": 2, "env_boundary_steps": 60, **fields}
    whole = train(algo_id, env_id, **fields)
    assert here.started == [0, 1]
    here.losses = [(1, 2), (0, 3), (1, 3)]
    seen = Messages()
    again = train(algo_id, env_id, observer=seen, **fields)
    assert here.started == [0, 1, 0, 1, 1, 0, 1]
    assert weight_hash(again) == weight_hash(whole)
    assert seen.lines.count("collector 1 was lost (it was shot) and is replaced") == 2


class Messages(Observer):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_message(self, level: str, text: str) -> None:
        self.lines.append(text)


def test_one_that_is_lost_again_and_again_ends_the_run(train: Call, here: Here) -> None:
    here.losses = [(1, 2)] * 4
    with pytest.raises(EnvError, match="collector 1 was lost 4 times in a row"):
        train("ppo", "CartPole-v1", n_envs=4, collectors=2)


class Crash(BaseException):
    pass


class CrashAt(Observer):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_start(self, run: Any, config: Any, info: Any) -> None:
        self.run = run

    def on_epoch(self, row: dict[str, Any]) -> None:
        if row["epoch"] == self.epoch:
            raise Crash


@pytest.mark.parametrize("case", ["ppo", "ppo continuous", "ppo gru", "ppo parts", "a2c", "dqn"])
def test_taking_turns_resumes_exactly(
    case: str, train: Call, resume: Call, weight_hash: Call, learning_rows: Call, here: Here
) -> None:
    algo_id, env_id, fields = CASES[case]
    fields = {"n_envs": 4, "collectors": 2, "env_boundary_steps": 100, "max_epochs": 6, **fields}
    whole = train(algo_id, env_id, **fields)
    crash = CrashAt(5)
    with pytest.raises(Crash):
        train(algo_id, env_id, observer=crash, checkpoint_freq_epochs=3, **fields)
    seen = Messages()
    resume(crash.run.id, observer=seen)
    assert weight_hash(crash.run) == weight_hash(whole)
    assert learning_rows(crash.run) == learning_rows(whole)


def test_a_stale_run_resumes_where_its_envs_were(
    train: Call, resume: Call, learning_rows: Call, here: Here
) -> None:
    """Not exact, but no episode is thrown away: the collectors continue those of the checkpoint."""
    fields = {"n_envs": 4, "collectors": {"n": 2, "max_staleness": 2}, "max_epochs": 6}
    crash = CrashAt(5)
    with pytest.raises(Crash):
        train("ppo", "CartPole-v1", observer=crash, checkpoint_freq_epochs=3, **fields)
    before = learning_rows(crash.run)[2]
    resume(crash.run.id)
    rows = learning_rows(crash.run)
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[2] == before
    assert rows[3]["train/cnt/total_episodes"] >= before["train/cnt/total_episodes"]


@pytest.mark.parametrize("algo_id", ["ppo", "a2c", "pqn", "dqn"])
def test_staleness_is_measured(algo_id: str, train: Call, learning_rows: Call, here: Here) -> None:
    settings = {"n": 2, "max_staleness": 2}
    run = train(algo_id, "CartPole-v1", n_envs=4, collectors=settings, n_steps=18, max_epochs=6)
    lags = [row["train/roll/policy_lag/max"] for row in learning_rows(run)]
    means = [row["train/roll/policy_lag/mean"] for row in learning_rows(run)]
    assert max(lags) == 2  # these collectors run ahead as far as they may
    assert means[-1] == 2.0
    assert means[0] < 2.0  # the first rollout cannot be stale


def test_a_collector_waits_for_weights_that_are_new_enough(make_config: Call) -> None:
    config = make_config("ppo", "CartPole-v1", n_envs=2)
    worker = Worker(Message({"config": config_dict(config), "index": 0, "n": 1,
                             "max_staleness": 1}, {}))  # fmt: skip
    weights = worker.agent.export_flat()

    def order(version: int) -> Message:
        fields = {"version": version, "env_steps": 0, "total_steps": 100,
                  "rows": {str(j): 4 for j in range(9)}, "restarts": {"0": [0, 0]},
                  "config": config_dict(config)}  # fmt: skip
        return Message(fields, weights)

    worker.hear(order(0))
    assert worker.rollout(0).fields["version"] == 0
    assert worker.rollout(1).fields["version"] == 0  # one update behind: allowed
    made: list[int] = []
    thread = threading.Thread(target=lambda: made.append(worker.rollout(2).fields["version"]))
    thread.start()
    time.sleep(0.1)
    assert made == []  # two updates behind would be too old
    worker.hear(order(1))
    worker.hear(order(2))
    thread.join(timeout=10)
    assert made in ([1], [2])
    worker.close()


def test_a_live_edit_reaches_the_collectors(train: Call, learning_rows: Call, here: Here) -> None:
    from gymnasium_solver.runs.edits import Request, put_request

    class Edit(CrashAt):
        def on_epoch(self, row: dict[str, Any]) -> None:
            if row["epoch"] == 2:
                put_request(self.run, Request({"epsilon": 0.0, "policy_lr": 1e-9}))

    run = train("pqn", "CartPole-v1", observer=Edit(0), n_envs=4, collectors=2, epsilon=1.0)
    plain = train("pqn", "CartPole-v1", n_envs=4, collectors=2, epsilon=1.0)
    rows, others = learning_rows(run), learning_rows(plain)
    assert rows[1] == others[1]
    assert rows[2]["train/roll/episodes"] != others[2]["train/roll/episodes"]  # greedy from here on


@pytest.mark.parametrize(
    ("algo_id", "fields", "text"),
    [
        ("ppo", {"n_envs": 3, "collectors": 2}, "n_envs 3 cannot be divided among 2 .* n_envs: 4"),
        ("reinforce", {"collectors": {"n": 3, "max_staleness": 1}}, "reinforce learns only"),
        ("ppo", {"collectors": {"m": 2}}, "m"),
        ("ppo", {"collectors": {"n": 2, "backend": "rey"}}, "ray"),
        ("ppo", {"collectors": {"n": 0}}, "n"),
    ],
)  # fmt: skip
def test_what_cannot_be_collected(
    algo_id: str, fields: dict[str, Any], text: str, train: Call, here: Here
) -> None:
    with pytest.raises(ConfigError, match=text):
        train(algo_id, "CartPole-v1", **fields)


def test_an_error_of_an_environment_is_the_runs(train: Call, here: Here) -> None:
    with pytest.raises(EnvError, match="no_such_option"):
        train("ppo", "CartPole-v1", n_envs=4, collectors=2, env_kwargs={"no_such_option": 1})


def test_a_rollout_is_cut_to_the_budget() -> None:
    rows: dict[str, np.ndarray] = {
            "actions": np.zeros((3, 2)), "reward": np.zeros((3, 2), np.float32),
            "terminated": np.zeros((3, 2), bool), "truncated": np.zeros((3, 2), bool),
            "valid": np.array([[1, 0], [1, 1], [1, 1]], bool), "is_first": np.zeros((4, 2), bool),
            "obs.": np.zeros((4, 2, 1), np.float32)}  # fmt: skip

    def cut(budget: int | None) -> list[list[int]]:
        parts = [{name: a.copy()[:, :1] for name, a in rows.items()},
                 {name: a.copy()[:, 1:] for name, a in rows.items()}]  # fmt: skip
        return cut_to(joined_rollout(parts, 0), budget).valid.astype(int).tolist()

    assert cut(None) == cut(9) == [[1, 0], [1, 1], [1, 1]]
    assert cut(5) == [[1, 0], [1, 1], [1, 1]]
    assert cut(4) == [[1, 0], [1, 1], [1, 0]]
    assert cut(3) == [[1, 0], [1, 1]]
    assert cut(1) == [[1, 0]]


def test_actions_of_an_older_policy_are_weighted() -> None:
    """A2C's gradient from them is that of the truncated importance-weighted objective."""
    from gymnasium.spaces import Box, Discrete

    from gymnasium_solver.training.agents import build_agent
    from gymnasium_solver.training.prepare import load_config

    config = load_config("CartPole-v1:ppo").replace(seed=1)
    agent: Any = build_agent(config, Box(-1, 1, (4,)), Discrete(2))
    n = 6
    obs, actions = torch.randn(n, 4), torch.tensor([0, 1, 0, 1, 1, 0])
    old = torch.log(torch.tensor([0.1, 0.9, 0.5, 0.5, 0.99, 0.01]))
    batch = Batch(obs, actions, old, torch.ones(n), torch.zeros(n), torch.zeros(n))
    now = torch.log_softmax(agent.net.actor(obs), 1)[torch.arange(n), actions].exp()
    weight = corrected(agent.net, agent.actions, batch).advantage
    assert torch.allclose(weight, (now / old.exp()).clamp(max=1.0), atol=1e-6)
    assert weight.requires_grad is False
    loss = policy_gradient_loss(agent.net, agent.actions, batch._replace(advantage=weight),
                                torch.tensor(0.0), torch.tensor(0.0))  # fmt: skip
    assert torch.allclose(loss.policy, -(weight * now.log()).mean(), atol=1e-6)


class Kill(Observer):
    """Kills a collector, a process, after an epoch."""

    def __init__(self, at: int) -> None:
        self.at, self.killed = at, 0
        self.lines: list[str] = []

    def on_message(self, level: str, text: str) -> None:
        self.lines.append(text)

    def on_epoch(self, row: dict[str, Any]) -> None:
        if row["epoch"] == self.at:
            for pid in _collector_pids():
                os.kill(pid, signal.SIGKILL)
                self.killed += 1
                break


def _collector_pids() -> list[int]:
    import psutil

    return [
        child.pid
        for child in psutil.Process().children(recursive=True)
        if "gymnasium_solver.training.collectors.process" in child.cmdline()
    ]


def test_processes_and_one_of_them_killed(train: Call, weight_hash: Call, here: Here) -> None:
    """The same weights as with collectors in this process; none outlives the run."""
    fields = {"n_envs": 4, "max_epochs": 6}
    whole = train("ppo", "CartPole-v1", collectors=2, **fields)
    here_only = remote.backend_for
    try:
        from gymnasium_solver.training.collectors.process import ProcessBackend

        remote.backend_for = lambda settings: ProcessBackend()
        kill = Kill(at=3)
        run = train("ppo", "CartPole-v1", observer=kill, collectors=2, **fields)
    finally:
        remote.backend_for = here_only
    assert kill.killed == 1
    assert any("was lost (its process ended with exit code -9)" in line for line in kill.lines)
    assert weight_hash(run) == weight_hash(whole)
    assert _collector_pids() == []
