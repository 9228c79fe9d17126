"""Do the shipped configs still learn? Minutes each: `make test-learning`.

The bars are published scores (or better) at the same budget. Results over more seeds are in
docs/results.md.
"""

from pathlib import Path

import numpy as np
import pytest

import gymnasium_solver as gs

BARS = {
    "CartPole-v1:ppo": 475,
    "Acrobot-v1:ppo": -85,
    "MountainCar-v0:ppo": -110,
    "Pendulum-v1:ppo": -175,
    "Pendulum-v1:tdmpc2": -175,
    "CartpoleSwingup-v1:tdmpc2_small": 800,
    "CartPole-v1:dreamerv3": 475,
    "LunarLander-v3:ppo": 240,
    "LunarLander-v3:a2c": 156,
    "Taxi-v3:ppo": 7.5,
    "MiniGrid-MemoryS7-v0:ppo": 0.85,
    "FetchReach-v4:sac": -2.0,
}
SEEDS = (101, 102, 103)  # not those the configs were tuned on


@pytest.mark.learning
@pytest.mark.parametrize("config", BARS)
def test_config_reaches_its_bar(config: str, tmp_path: Path) -> None:
    scores = []
    for seed in SEEDS:
        run = gs.train(config, seed=seed, runs_dir=tmp_path)
        assert run.test is not None
        scores.append(run.test.mean)
    assert np.mean(scores) >= BARS[config], f"greedy test of seeds {SEEDS}: {scores}"
