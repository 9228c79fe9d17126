"""Intrinsic reward in training: exact resume, scores, and that it is learnt from."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.algos.extensions.intrinsic import IntrinsicReward
from gymnasium_solver.algos.ppo import PPO
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.training.agents import build_agent
from tests.loop.conftest import exact_resume, learning_rows, make_config, train

KINDS: dict[str, Any] = {
    "rnd": {"kind": "rnd", "hidden_dims": [8], "embed_dim": 4, "batch_size": 20, "coef": 0.5},
    "count": {"kind": "count", "coef": {"start": 1.0, "end": 0.1}, "first_visit": True},
    "novel_d": {"kind": "count", "difference": 0.5, "first_visit": True, "coef": 0.5},
    "rnd_rise": {"kind": "rnd", "difference": 0.5, "hidden_dims": [8], "embed_dim": 4},
    "episodic_count": {"kind": "episodic_count", "by": "bins", "n_bins": 5, "table_bits": 18},
    "episodic": {"kind": "episodic", "capacity": 20, "coef": 0.5, "normalize": True},
}
CASES = [
    *(("ppo", "CartPole-v1", kind) for kind in KINDS),
    ("dqn", "CartPole-v1", "episodic_count"),
    ("sac", "Pendulum-v1", "novel_d"),
    ("dqn", "CartPole-v1", "rnd"),
    ("sac", "Pendulum-v1", "count"),
    ("pqn", "CartPole-v1", "episodic"),
    ("reinforce", "Probe/DictObs-v0", "rnd"),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("algo_id", "env_id", "kind"), CASES)
def test_a_run_with_intrinsic_reward_resumes_exactly(algo_id: str, env_id: str, kind: str) -> None:
    fields = {"max_epochs": 7, "max_episode_steps": 30, "env_boundary_steps": 130}
    whole, _ = exact_resume(algo_id, env_id, at=6, every=4, intrinsic=KINDS[kind], **fields)
    assert all(row["train/roll/intrinsic/mean"] > 0 for row in learning_rows(whole))


def test_scores_stay_those_of_the_environment() -> None:
    fields = {"max_epochs": 1, "n_steps": 64, "max_episode_steps": 30}
    plain = train("ppo", "CartPole-v1", **fields)
    other = train("ppo", "CartPole-v1", intrinsic={"kind": "count", "coef": 100.0}, **fields)
    a, b = learning_rows(plain)[0], learning_rows(other)[0]
    assert a["train/roll/ep_rew/mean"] == b["train/roll/ep_rew/mean"]
    assert a["train/opt/loss/value"] != b["train/opt/loss/value"]


def test_the_networks_start_with_the_same_weights() -> None:
    from gymnasium import make

    env = make("CartPole-v1")
    spaces = (env.observation_space, env.action_space)
    nets = [
        build_agent(make_config("ppo", "CartPole-v1", intrinsic=kind), *spaces).net.state_dict()
        for kind in (None, "rnd")
    ]
    for name, value in nets[0].items():
        assert (value == nets[1][name]).all(), name


def test_the_predictor_learns_what_it_sees() -> None:
    """The error of states that were learnt from falls below that of others."""
    from gymnasium import make

    env = make("CartPole-v1")
    settings = {"kind": "rnd", "lr": 1e-3}
    config = make_config("ppo", "CartPole-v1", intrinsic=settings)
    agent = build_agent(config, env.observation_space, env.action_space)
    assert isinstance(agent, PPO)
    (intrinsic,) = agent.extensions
    assert isinstance(intrinsic, IntrinsicReward)
    rnd = intrinsic.rnd
    assert rnd is not None
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(256, 4)).astype(np.float32)
    rnd.encoder.observe(seen)
    before = rnd.novelty(seen).mean()
    for _ in range(200):
        rnd.learn(seen, 256, 256, rng)
    assert rnd.novelty(seen).mean() < 0.1 * before
    far = (seen + 3.0).astype(np.float32)
    assert rnd.novelty(far).mean() > 3 * rnd.novelty(seen).mean()


def test_a_sparse_corridor_is_crossed_with_it_and_not_without() -> None:
    """The reward lies at the end of 30 cells; a random walk does not get there in time."""
    fields = {
        "n_envs": 4,
        "n_steps": 64,
        "max_env_steps": 20_000,
        "eval_freq_epochs": 20,
        "eval_episodes": 4,
        "gamma": 0.98,
        "policy_lr": 3e-3,
        "n_epochs": 4,
        "batch_size": 64,
        "max_epochs": None,
        "hidden_dims": [32],
        "reward_threshold": 0.9,
        "early_stop_on_eval_threshold": True,
    }
    bonus = {"kind": "count", "coef": 0.3}
    plain = train("ppo", "Probe/Corridor-v0", **fields)
    curious = train("ppo", "Probe/Corridor-v0", intrinsic=bonus, **fields)
    assert curious.meta()["best"]["score"] >= 0.9
    assert plain.meta()["best"]["score"] < 0.5


def rewards_of(states: list[int], is_first: list[int], **settings: Any) -> Any:
    """Intrinsic rewards [T] of one environment that walks through the states of a Discrete(9)."""
    from gymnasium import spaces

    config = make_config(
        "ppo", "FrozenLake-v1", n_envs=1, intrinsic={"coef": 1.0, "by": "exact", **settings}
    )
    agent = build_agent(config, spaces.Discrete(9), spaces.Discrete(2))
    assert isinstance(agent, PPO)
    (intrinsic,) = agent.extensions
    intrinsic.follow(0, 100)
    first = np.array(is_first, bool)[:, None]
    rollout = SimpleNamespace(
        obs=np.array(states)[:, None],
        valid=~first[1:],  # the row that leads to the first state of an episode is a reset
        is_first=first,
        done=np.append(first[1:, 0], False)[1:, None],
        is_restart=True,
    )
    bonus = intrinsic.bonus(rollout)  # type: ignore[arg-type]
    assert bonus is not None
    return bonus[:, 0]


def test_episodic_counts_fade_within_an_episode_only() -> None:
    walk, starts = [0, 1, 2, 1, 0, 0, 1, 2], [1, 0, 0, 0, 0, 1, 0, 0]
    found = rewards_of(walk, starts, kind="episodic_count")
    half = 1 / np.sqrt(2)
    assert found == pytest.approx([1, 1, half, half, 0, 1, 1])
    first = rewards_of(walk, starts, kind="episodic_count", first_visit=True)
    assert first.tolist() == [1, 1, 0, 0, 0, 1, 1]


def test_a_difference_rewards_only_the_way_to_what_is_newer() -> None:
    """0 1 0 1 2 by counts: 1 / sqrt(n) after a step, less half of that before it."""
    found = rewards_of([0, 1, 0, 1, 2], [1, 0, 0, 0, 0], kind="count", difference=0.5)
    half = 1 / np.sqrt(2)
    # The start is no step, so state 0 is visited once, at the second step.
    assert found == pytest.approx([0.5, 0.5, half - 0.5, 1 - half / 2])
    full = rewards_of([0, 1, 0, 1, 2], [1, 0, 0, 0, 0], kind="count", difference=1.0)
    assert full == pytest.approx([0, 0, 0, 1 - half])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("rndd", "kind"),
        ({"kind": "count", "coeff": 1}, "coeff"),
        ({"kind": "count", "coef": -1}, "coef"),
        ({"kind": "episodic_count", "difference": 0.5}, "use rnd or count"),
        ({"kind": "rnd", "difference": 2}, "difference"),
        ({"coef": 1}, "kind: required"),
        (3, "expected a block"),
    ],
)
def test_wrong_settings_are_refused(given: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_config("ppo", "CartPole-v1", intrinsic=given)
