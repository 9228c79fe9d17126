"""How many CPU threads the learner takes.

A small matrix product is slower on two threads than on one, and very much slower when another
process wants the second core: each call then waits for a thread that is not running. So threads are
given by the work in a product. They are torch's alone: NumPy multiplies small matrices only here,
and a second pool of spinning threads on the same cores makes everything four times slower. Limits
hold while a run goes, and are taken back after it. So is the treatment of denormal numbers, which
belongs to a thread too.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from gymnasium import spaces
from threadpoolctl import threadpool_limits

from gymnasium_solver.config.schema import Config, cpu_count
from gymnasium_solver.nets.network import is_cnn

# Multiplications in the largest product for which another thread pays: 256 x 256 x 256 (SAC's
# default) is 1.3 to 1.4 times as fast on two threads as on one, 64 x 256 x 256 no faster.
WORK_A_THREAD = 256**3 // 2


def pick_threads(config: Config, observation_space: spaces.Space | None = None) -> int:
    """`auto`: one thread for small products, where a second only costs; every CPU for images.

    Without an observation space, for an MLP."""
    if config.n_threads != "auto":
        return config.n_threads
    if observation_space is not None and is_cnn(config, observation_space):
        return cpu_count()
    return min(cpu_count(), max(1, largest_product(config) // WORK_A_THREAD))


def largest_product(config: Config) -> int:
    """Multiplications in the largest matrix product of an MLP's update."""
    widths = (*config.hidden_dims, *(getattr(config, "critic_hidden_dims", None) or ()))
    return int(getattr(config, "batch_size", 0) * max(widths, default=0) ** 2)


@contextmanager
def limited_threads(n_threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    # Moments of weights whose gradient has become zero decay until they are denormal, numbers that
    # the CPU computes with ten times slower; after a thousand updates of a ReLU net that is half.
    torch.set_flush_denormal(True)
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)
