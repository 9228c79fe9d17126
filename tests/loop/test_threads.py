"""Threads by the work in a product, and one pool of them only."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from threadpoolctl import threadpool_info

from gymnasium_solver.config.load import load_config
from gymnasium_solver.training import threads
from gymnasium_solver.training.threads import limited_threads, pick_threads


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"batch_size": 64, "hidden_dims": (256, 256)}, 1),
        ({"batch_size": 256, "hidden_dims": (256, 256)}, 2),
        ({"batch_size": 256, "hidden_dims": (64, 64)}, 1),
        ({"batch_size": 512, "hidden_dims": (512, 512)}, 8),  # 16 by the work, 8 CPUs
        ({"batch_size": 256, "hidden_dims": (256, 256), "n_threads": 3}, 3),
        ({"batch_size": 64, "hidden_dims": ()}, 1),
    ],
)
def test_threads_follow_the_largest_product(monkeypatch, fields, expected):
    monkeypatch.setattr(threads, "cpu_count", lambda: 8)
    config = load_config("CartPole-v1:dqn").replace(**fields)
    assert pick_threads(config, spaces.Box(-1, 1, (4,))) == expected


def test_images_take_every_cpu(monkeypatch):
    monkeypatch.setattr(threads, "cpu_count", lambda: 8)
    image = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert pick_threads(load_config("CartPole-v1:dqn"), image) == 8


def test_numpy_gets_no_second_pool():
    """Two pools that spin on the same cores made SAC four times slower."""
    np.ones((8, 8)) @ np.ones((8, 8))  # the pool exists from the first product on
    before = torch.get_num_threads()
    with limited_threads(2):
        assert torch.get_num_threads() == 2
        blas = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        assert blas
        assert set(blas) == {1}
    assert torch.get_num_threads() == before
