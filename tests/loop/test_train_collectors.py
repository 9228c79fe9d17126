"""Collectors: one learner, several actors. Equal to a run without them where it must be, the bound
on staleness, losses of collectors, exact resume. On a real cluster: tests/backends."""

import pickle
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gymnasium_solver.algos.policy_loss import Batch, corrected, policy_gradient_loss
from gymnasium_solver.config.load import config_dict
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.training.collecting_actor import (
    CollectingActor,
    Start,
    Weights,
    rows_of_round,
)
from gymnasium_solver.training.ray_collectors import cut_to, joined_rollout
from tests.loop.conftest import (
    AtEpoch,
    Heard,
    crash,
    exact_resume,
    learning_rows,
    make_config,
    resume,
    train,
    weight_hash,
)

Call = Callable[..., Any]


class RayError(Exception):
    pass


class ActorDied(RayError):
    pass


class TaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class FakeRay:
    """Ray in this process: a call is made at once, so that rollouts are made as early as they may
    and weights are as stale as they can be. `losses` [(collector, round)] are lost once each."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=TaskError, GetTimeoutError=TimeoutError
    )

    def __init__(self) -> None:
        self.losses: list[tuple[int, int]] = []
        self.started: list[int] = []

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 4.0}

    def remote(self, **options: Any) -> Call:
        return lambda actor_class: SimpleNamespace(remote=lambda start: FakeActor(self, start))

    def get(self, ref: Call, timeout: float | None = None) -> Any:
        return ref()

    def kill(self, actor: "FakeActor") -> None:
        if hasattr(actor.own, "env"):
            actor.own.env.close()


class FakeActor:
    def __init__(self, ray: FakeRay, start: Start) -> None:
        self.ray, self.own = ray, CollectingActor(_sent(start))
        ray.started.append(start.index)

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(
            options=lambda **_: SimpleNamespace(remote=lambda *args: self._call(name, *args))
        )

    def _call(self, name: str, *args: Any) -> Call:
        try:
            result = _sent(getattr(self.own, name)(*map(_sent, args)))
        except Exception as error:
            failure = TaskError(error)
            return lambda: _raise(failure)
        who = (self.own.start.index, *args)
        return lambda: self._taken(who, result) if name == "rollout" else result

    def _taken(self, who: Any, result: Any) -> Any:
        if who in self.ray.losses:
            self.ray.losses.remove(who)
            raise ActorDied
        return result


def _raise(error: Exception) -> None:
    raise error


def _sent(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    ray = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


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
def test_one_that_takes_turns_is_a_run_without(case: str, here: FakeRay) -> None:
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
def test_a_lost_collector_changes_nothing(case: str, here: FakeRay) -> None:
    """It is rebuilt where its last rollout ended: same envs, same carry, same random stream."""
    algo_id, env_id, fields = CASES[case]
    fields = {"n_envs": 4, "collectors": 2, "env_boundary_steps": 60, **fields}
    whole = train(algo_id, env_id, **fields)
    assert here.started == [0, 1]
    here.losses = [(1, 2), (0, 3), (1, 3)]
    seen = Heard()
    again = train(algo_id, env_id, observer=seen, **fields)
    assert here.started == [0, 1, 0, 1, 1, 0, 1]
    assert weight_hash(again) == weight_hash(whole)
    assert seen.notes.count("collector 1 was lost (ActorDied) and is replaced") == 2


def test_one_that_is_lost_again_and_again_ends_the_run(here: FakeRay) -> None:
    here.losses = [(1, 2)] * 4
    with pytest.raises(EnvError, match="collector 1 was lost 4 times in a row"):
        train("ppo", "CartPole-v1", n_envs=4, collectors=2)


@pytest.mark.parametrize("case", ["ppo", "ppo continuous", "ppo gru", "ppo parts", "a2c", "dqn"])
def test_taking_turns_resumes_exactly(case: str, here: FakeRay) -> None:
    algo_id, env_id, fields = CASES[case]
    fields = {"n_envs": 4, "collectors": 2, "env_boundary_steps": 100, "max_epochs": 6, **fields}
    exact_resume(algo_id, env_id, every=3, **fields)


def test_a_stale_run_resumes_where_its_envs_were(here: FakeRay) -> None:
    """Not exact, but no episode is thrown away: the collectors continue those of the checkpoint."""
    fields = {"n_envs": 4, "collectors": {"n": 2, "max_staleness": 2}, "max_epochs": 6}
    run = crash(5, "ppo", "CartPole-v1", checkpoint_freq_epochs=3, **fields)
    before = learning_rows(run)[2]
    resume(run.id)
    rows = learning_rows(run)
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[2] == before
    assert rows[3]["train/cnt/total_episodes"] >= before["train/cnt/total_episodes"]


@pytest.mark.parametrize("algo_id", ["ppo", "a2c", "pqn", "dqn"])
def test_staleness_is_measured(algo_id: str, here: FakeRay) -> None:
    settings = {"n": 2, "max_staleness": 2}
    run = train(algo_id, "CartPole-v1", n_envs=4, collectors=settings, n_steps=18, max_epochs=6)
    lags = [row["train/roll/policy_lag/max"] for row in learning_rows(run)]
    means = [row["train/roll/policy_lag/mean"] for row in learning_rows(run)]
    assert max(lags) == 2  # these collectors run ahead as far as they may
    assert means[-1] == 2.0
    assert means[0] < 2.0  # the first rollout cannot be stale


def test_a_collector_waits_for_weights_that_are_new_enough() -> None:
    config = config_dict(make_config("ppo", "CartPole-v1", n_envs=2))
    actor = CollectingActor(Start(config, index=0, n=1, max_staleness=1))
    actor.ready()
    arrays = actor.agent.export_flat()

    def hear(version: int) -> None:
        actor.hear(Weights(version, arrays, config, 0, 100, {0: (0, 0)}))

    hear(0)
    assert actor.rollout(0).version == 0
    assert actor.rollout(1).version == 0  # one update behind: allowed
    made: list[int] = []
    thread = threading.Thread(target=lambda: made.append(actor.rollout(2).version))
    thread.start()
    time.sleep(0.1)
    assert made == []  # two updates behind would be too old
    hear(1)
    hear(2)
    thread.join(timeout=10)
    assert made in ([1], [2])
    actor.env.close()


def test_the_last_rollout_of_an_epoch_may_be_shorter() -> None:
    config = make_config("a2c", "CartPole-v1", n_steps=16, rollout_steps=5)
    assert [rows_of_round(config, j) for j in range(9)] == [5, 5, 5, 1, 5, 5, 5, 1, 5]


def test_a_live_edit_reaches_the_collectors(here: FakeRay) -> None:
    from gymnasium_solver.runs.edits import Request, put_request

    change = Request({"epsilon": 0.0, "policy_lr": 1e-9})
    edit = AtEpoch(2, lambda run: put_request(run, change))
    fields = {"n_envs": 4, "collectors": 2, "epsilon": 1.0}
    run = train("pqn", "CartPole-v1", observer=edit, **fields)
    plain = train("pqn", "CartPole-v1", **fields)
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
        ("ppo", {"collectors": {"n": 2, "backend": "process"}}, "removed.*mode: async"),
        ("ppo", {"n_envs": 6, "collectors": 6}, "6 collectors of 1 CPUs do not fit"),
        ("ppo", {"collectors": {"n": 0}}, "n"),
    ],
)  # fmt: skip
def test_what_cannot_be_collected(
    algo_id: str, fields: dict[str, Any], text: str, here: FakeRay
) -> None:
    with pytest.raises((ConfigError, EnvError), match=text):
        train(algo_id, "CartPole-v1", **fields)


def test_an_error_of_an_environment_is_the_runs(here: FakeRay) -> None:
    with pytest.raises(EnvError, match="no_such_option"):
        train("ppo", "CartPole-v1", n_envs=4, collectors=2, env_kwargs={"no_such_option": 1})


def test_a_rollout_is_cut_to_the_budget() -> None:
    def part(valid: list[int]) -> Rollout:
        zeros = np.zeros((3, 1), np.float32)
        rows = np.array(valid, bool).reshape(3, 1)
        return Rollout(obs=np.zeros((4, 1, 1), np.float32), actions=zeros, reward=zeros,
                       terminated=zeros > 0, truncated=zeros > 0, valid=rows,
                       is_first=np.zeros((4, 1), bool))  # fmt: skip

    def cut(budget: int | None) -> list[list[int]]:
        whole = joined_rollout([part([1, 1, 1]), part([0, 1, 1])])
        return cut_to(whole, budget).valid.astype(int).tolist()

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
    numbers = {"ent_coef": torch.tensor(0.0), "vf_coef": torch.tensor(0.0)}
    weighted = batch._replace(advantage=weight)
    _, found = policy_gradient_loss(agent.net, agent.actions, weighted, numbers)
    assert torch.allclose(found["opt/loss/policy"], -(weight * now.log()).mean(), atol=1e-6)
