"""Compiled acting of learners with a replay buffer: the actions that NumPy would choose from the
same random numbers, in a form that is saved with the run."""

from typing import Any

import numpy as np
import pytest

from gymnasium_solver.fast.native import build
from tests.unit.test_learner_state import BOX, DISCRETE, agent_for
from tests.unit.test_native_acting import FIRST, observations

pytestmark = pytest.mark.skipif(not build.can_compile(), reason="needs a C compiler")
CASES = [
    ("dqn", DISCRETE, {"epsilon": 0.3}),
    ("dqn", DISCRETE, {"exploration": "boltzmann", "dueling": True}),
    ("pqn", DISCRETE, {}),
    ("sac", BOX, {"noise_correlation": 0.5}),
    ("sac", DISCRETE, {}),
    ("td3", BOX, {}),
]
NAMES = ["dqn", "dueling", "pqn", "sac", "discrete sac", "td3"]


def pair(algo_id: str, space: Any, fields: dict[str, Any]) -> list[Any]:
    """An agent that compiles and one that does not, with the same weights."""
    agents = [agent_for(algo_id, space, compile=c, **fields) for c in ("native", False)]
    agents[1].load_weights({k: v.numpy().copy() for k, v in agents[0].net.state_dict().items()})
    return agents


@pytest.mark.sample(3)
@pytest.mark.parametrize(("algo_id", "space", "fields"), CASES, ids=NAMES)
def test_actions_are_those_of_the_same_random_numbers(
    algo_id: str, space: Any, fields: dict[str, Any]
) -> None:
    ours, plain = pair(algo_id, space, fields)
    for n in (1, 5, 2):  # a few rows are not multiplied as many are
        carries = [agent.policy.initial_carry(n) for agent in (ours, plain)]
        for seed in range(4):
            obs, found = observations(seed, n), []
            for i, agent in enumerate((ours, plain)):
                acted = agent.policy.sample(obs, carries[i], FIRST[:n])
                carries[i] = acted.carry
                found.append(acted.actions)
            np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-5)
            assert found[0].dtype == found[1].dtype
    assert ours.policy.rng.bit_generator.state == plain.policy.rng.bit_generator.state
    assert ours.forwards["act"].mode == "compiled"
    assert plain.forwards["act"].mode == "torch"


@pytest.mark.parametrize(("algo_id", "kind"), [("dqn", "gru"), ("pqn", "lstm"), ("dqn", "rnn")])
def test_values_and_carries_are_those_of_numpy(algo_id: str, kind: str) -> None:
    memory = {"recurrent": kind, "recurrent_dim": 4, "sequence_length": 4}
    ours, plain = pair(algo_id, DISCRETE, {"epsilon": 0.3, **memory})
    n = 5
    carries = [agent.policy.initial_carry(n) for agent in (ours, plain)]
    firsts = np.random.default_rng(1).random((6, n)) < 0.4
    for seed, first in enumerate(firsts):
        obs = observations(seed, n)
        greedy = ours.policy.greedy(obs, carries[0], first)
        mine, other = (
            agent.policy.sample(obs, carry, first)
            for agent, carry in zip((ours, plain), carries, strict=True)
        )
        for found in (other, greedy):  # where the carry is reset, and where it is not
            core = found.carry["core"]
            np.testing.assert_allclose(mine.carry["core"], core, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(mine.actions, other.actions)
        carries = [mine.carry, other.carry]
    assert ours.policy.rng.bit_generator.state == plain.policy.rng.bit_generator.state
    assert ours.forwards["act"].mode == "compiled"


@pytest.mark.parametrize(
    ("algo_id", "space", "fields"),
    [*CASES, ("ppo", DISCRETE, {}), ("a2c", BOX, {"normalize_obs": "rolling"})],
    ids=[*NAMES, "ppo", "a2c"],
)
def test_greedy_actions_use_the_program_of_exploration(
    algo_id: str, space: Any, fields: dict[str, Any]
) -> None:
    ours, plain = pair(algo_id, space, fields)
    policy, n = ours.policy, 5
    carry = policy.initial_carry(n)
    before = policy.greedy(observations(0, n), carry, FIRST[:n]).actions
    assert modes_of(ours) == {None}  # nothing is compiled for greedy actions alone
    policy.sample(observations(0, n), carry, FIRST[:n])
    assert modes_of(ours) == {"compiled"}
    random_numbers = policy.rng.bit_generator.state
    policy._infer = None  # the NumPy form, not to be used any more
    for rows in (n, 2, n):
        obs = observations(rows, rows)
        mine = policy.greedy(obs, policy.initial_carry(rows), FIRST[:rows]).actions
        wanted = plain.policy.greedy(obs, policy.initial_carry(rows), FIRST[:rows]).actions
        np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-5)
        assert mine.dtype == wanted.dtype
    again = policy.greedy(observations(0, n), carry, FIRST[:n]).actions
    np.testing.assert_allclose(again, before, rtol=1e-4, atol=1e-5)
    assert policy.rng.bit_generator.state == random_numbers


def modes_of(agent: Any) -> set[str | None]:
    """The modes in which an agent acts."""
    if "act" in agent.forwards:
        return {agent.forwards["act"].mode}
    return {agent.policy.state()["sampler"]}


def test_masked_greedy_actions_in_c() -> None:
    for algo_id in ("ppo", "dqn"):
        ours, plain = pair(algo_id, DISCRETE, {})
        n = 5
        ours.policy.sample(observations(0, n), {}, FIRST)
        obs, mask = observations(1, n), np.ones((n, int(DISCRETE.n)), bool)
        best = plain.policy.greedy(obs, {}, FIRST).actions
        mask[np.arange(n), best] = False
        mine = ours.policy.greedy(obs, {}, FIRST, mask).actions
        np.testing.assert_array_equal(mine, plain.policy.greedy(obs, {}, FIRST, mask).actions)
        assert not (mine == best).any()


def test_noisy_networks_act_as_before() -> None:
    ours, plain = pair("dqn", DISCRETE, {"noisy": True})
    n, found = 5, []
    for agent in (ours, plain):
        acted = agent.policy.sample(observations(0, n), agent.policy.initial_carry(n), FIRST[:n])
        found.append(acted.actions)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-5)
    assert ours.forwards["act"].mode == "torch"


def test_a_resumed_run_acts_in_the_same_form() -> None:
    ours, _ = pair("dqn", DISCRETE, {})
    ours.policy.sample(observations(0), {}, FIRST)
    tensors, extra = ours.state()
    assert extra["forwards"]["act"] == "compiled"
    for saved, mode in ((extra, "compiled"), (extra | {"forwards": {}}, "torch")):
        resumed = agent_for("dqn", DISCRETE, compile="native")
        resumed.load_state(tensors, saved)
        resumed.policy.sample(observations(0), {}, FIRST)
        assert resumed.forwards["act"].mode == mode
