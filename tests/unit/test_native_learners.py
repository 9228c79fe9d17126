"""Compiled updates of the algorithms: what torch learns; the choice, and a machine without cc."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymnasium_solver.algos.ppo import PPO, PPOConfig
from gymnasium_solver.fast import execution, recorded
from gymnasium_solver.fast.native import build
from tests.unit.test_actor_critics_state import agent_for, copied, rollout_for
from tests.unit.test_learner_state import agent_for as learner_for
from tests.unit.test_learner_state import assert_same_weights, random_rollout

needs_compiler = pytest.mark.skipif(not build.can_compile(), reason="needs a C compiler")


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "can_compile", lambda: False)
    monkeypatch.setattr(recorded, "can_compile", lambda: False)


def trained(agent: Any, case: str, n: int = 3) -> Any:
    for i in range(n):
        agent.update(rollout_for(case, seed=i), 12 * (i + 1), 100)
    return agent


@needs_compiler
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "case", ["sac", "sac masked", "td3", "sac batch norm", "sac sphere", "crossq"]
)
def test_compiled_updates_learn_what_torch_learns(case: str) -> None:
    ours, plain = (
        trained(agent_for(case, compile=c, optimizer="sgd"), case) for c in ("native", False)
    )
    assert {g.mode for g in ours.gradients.values()} == {"compiled"}
    assert ours.update_mode == "compiled C programs"
    for a, b in zip(ours.learnt_weights(), plain.learnt_weights(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    for name, optimizer in plain.optimizers.items():  # they move in the pass of the weights
        for group, target in optimizer.targets.items():
            assert not torch.equal(target.flat, target.source)
            found = ours.optimizers[name].targets[group].flat
            torch.testing.assert_close(found, target.flat, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("fields", "wants"),
    [
        ({}, False),
        ({"max_env_steps": 1_000_000}, True),
        ({"max_env_steps": 1_000_000, "compile": "numpy"}, False),
        ({"max_env_steps": 1_000_000, "compile": False}, False),
        ({"max_env_steps": None, "max_epochs": 5}, True),
        ({"compile": "native"}, True),
        ({"compile": True}, False),
    ],
)
def test_the_choice_depends_on_the_config(
    fields: dict[str, Any], wants: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "WORTH_COMPILING", 3.0)
    agent = agent_for("sac", **{"max_env_steps": 2_000, **fields})
    assert agent.execution.wants_compiled is wants


@pytest.mark.parametrize(("recurrent", "wants"), [(None, False), ("gru", True)])
def test_with_a_recurrent_core_compiling_pays_earlier(
    recurrent: Any, wants: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "WORTH_COMPILING", 3.0)
    config = PPOConfig(
        env_id="x", algo_id="ppo", n_envs=2, n_steps=8, batch_size=16, n_epochs=4,
        hidden_dims=(6,), max_env_steps=20_000, recurrent=recurrent,
    )  # fmt: skip
    agent = PPO(config, spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Discrete(2), 1)
    assert agent.execution.wants_compiled is wants


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_there_is_one_note_and_numpy() -> None:
    agent = agent_for("sac", compile="native")
    agent.start_training()
    assert sum("no C compiler" in note for note in agent.notes) == 1
    assert agent.update_mode == "recorded NumPy programs"
    trained(agent, "sac")
    assert {g.mode for g in agent.gradients.values()} == {"recorded"}


def test_a_compiled_run_is_resumed_without_a_compiler(no_compiler: None) -> None:
    tensors, extra = copied(agent_for("sac").state())
    extra["gradients"] = {"critic": "compiled", "policy": "compiled"}
    agent = agent_for("sac", compile="native")
    agent.load_state(tensors, extra)
    assert sum("continues with NumPy" in note for note in agent.notes) == 1
    trained(agent, "sac")
    assert {g.mode for g in agent.gradients.values()} == {"recorded"}


@needs_compiler
def test_a_run_keeps_its_form_on_resume() -> None:
    tensors, extra = copied(trained(agent_for("sac"), "sac").state())
    assert set(extra["gradients"].values()) == {"recorded"}
    agent = agent_for("sac", compile="native")
    agent.load_state(tensors, extra)
    trained(agent, "sac")
    assert {g.mode for g in agent.gradients.values()} == {"recorded"}


# -- PQN: all gradient steps of an update in one call ---------------------------------------------


@needs_compiler
@pytest.mark.parametrize(
    "fields",
    [
        {"batch_size": 7},
        {"batch_size": 100},
        {"batch_size": 8, "recurrent": "gru", "recurrent_dim": 4, "sequence_length": 4},
    ],
)
def test_joined_steps_of_pqn_are_steps_one_by_one(fields: dict[str, Any]) -> None:
    """Also their metrics, and the details of the first minibatch."""

    def learnt(is_joined: bool) -> tuple[Any, list[dict[str, float]], list[int]]:
        agent = learner_for("pqn", n_epochs=3, compile="native", **fields)
        together, calls, metrics = agent.fit.descent._in_one_call, list[int](), []

        def steps(*arguments: Any) -> Any:
            calls.append(1)
            return together(*arguments) if is_joined else None

        agent.fit.descent._in_one_call = steps
        for i in range(3):
            rollout = random_rollout(agent.action_space, seed=i)
            shape = rollout.is_first.shape
            rollout.carry = {
                name: np.zeros((*shape, part.shape[1]), np.float32)
                for name, part in agent.policy.initial_carry(1).items()
            }
            agent.wants_details = i == 2
            metrics.append(agent.update(rollout, 12 * i, 100))
        return agent, metrics, calls

    (joined, found, calls), (single, expected, _) = learnt(True), learnt(False)
    assert joined.gradients["q"].mode == "compiled"
    assert len(calls) == 3
    assert found == expected
    assert len(found[2]) > len(found[1])
    assert_same_weights(joined, single)
