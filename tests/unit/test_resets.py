"""Resets of the networks (`reset_every`, `shrink_perturb`) of algorithms with a replay."""

from typing import Any

import numpy as np
import pytest
import torch

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.training.prepare import build_config
from tests.acting import collecting

CASES: dict[str, dict[str, Any]] = {
    "sac": {"env_id": "Pendulum-v1", "unit_norm": True, "norm": "batch"},
    "td3": {"env_id": "Pendulum-v1", "optimizer": "NAdam"},
    "dqn": {"env_id": "CartPole-v1", "tau": 0.5},
}


def config_of(algo_id: str, **fields: Any) -> Any:
    small = {
        "n_envs": 2, "n_steps": 20, "train_freq": 40, "hidden_dims": [6, 6], "batch_size": 8,
        "buffer_size": 200, "learning_starts": 10, "seed": 4, "normalize_obs": "rolling",
        "normalize_reward": False, "updates_per_step": 0.1, "compile": False,
    }  # fmt: skip
    return build_config({"algo_id": algo_id, **small, **CASES[algo_id], **fields})


def learnt(algo_id: str, n_rounds: int, **fields: Any) -> Any:
    """An agent after some rounds of 4 updates each."""
    agent, collector = collecting(config_of(algo_id, **fields))
    for n in range(n_rounds):
        agent.metrics = agent.update(collector.collect(0, None), 40 * n, 10_000)
    return agent


def weights_of(agent: Any) -> list[torch.Tensor]:
    return [weights.clone() for weights in agent.learnt_weights()]


@pytest.mark.parametrize("algo_id", CASES)
def test_a_reset_is_a_start_with_the_same_replay(algo_id: str) -> None:
    agent, before = learnt(algo_id, 2, reset_every=6), learnt(algo_id, 2)
    assert agent.metrics["opt/resets"] == 1
    seed = np.random.SeedSequence([agent.seed, agent.n_updates]).generate_state(1)[0]
    fresh = type(agent)(agent.config, agent.observation_space, agent.action_space, int(seed))
    for own, other, new in zip(*map(weights_of, (agent, before, fresh)), strict=True):
        assert torch.equal(own, new)
        assert not torch.equal(own, other)
    for name, optimizer in agent.optimizers.items():
        assert optimizer.n_steps == 0
        saved, first = optimizer.state(), fresh.optimizers[name].state()
        assert saved.keys() == first.keys()
        assert all(torch.equal(saved[key], first[key]) for key in saved)
        for target in optimizer.targets.values():
            assert torch.equal(target.flat, target.source)
    for (name, own), (_, other) in zip(
        agent.net.named_buffers(), before.net.named_buffers(), strict=True
    ):
        assert torch.equal(own, other) == name.startswith("encoder."), name
    assert len(agent.memory) == len(before.memory)
    assert agent.rng.bit_generator.state == before.rng.bit_generator.state


@pytest.mark.parametrize("algo_id", ["td3", "dqn"])
def test_shrink_and_perturb_keeps_a_share(algo_id: str) -> None:
    agent = learnt(algo_id, 2, reset_every=6, shrink_perturb=0.75)
    before, anew = learnt(algo_id, 2), learnt(algo_id, 2, reset_every=6)
    for own, other, new in zip(*map(weights_of, (agent, before, anew)), strict=True):
        torch.testing.assert_close(own, 0.75 * other + 0.25 * new)
    assert all(optimizer.n_steps == 0 for optimizer in agent.optimizers.values())


def test_weights_on_a_sphere_stay_there() -> None:
    agent = learnt("sac", 2, reset_every=6, shrink_perturb=0.5, norm=None, block="simbav2")
    other = learnt("sac", 2, norm=None, block="simbav2")
    for own, expected in zip(agent.net.modules(), other.net.modules(), strict=True):
        if isinstance(own, torch.nn.Linear):
            assert own.weight.norm(dim=1).tolist() == pytest.approx(
                expected.weight.norm(dim=1).tolist(), rel=1e-4
            )


def test_a_share_without_resets_is_refused() -> None:
    with pytest.raises(ConfigError, match="set reset_every"):
        config_of("dqn", shrink_perturb=0.5)
