"""How many CPU threads the learner takes.

A small matrix product is slower on two threads than on one, and very much slower when another
process wants the second core: each call then waits for a thread that is not running. Both torch's
pool and NumPy's BLAS are limited while a run goes, and given back after it. So is the treatment of
denormal numbers, which belongs to a thread too.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits

from gymnasium_solver.config.schema import Config, cpu_count

SMALL_LAYER, SMALL_BATCH = 256, 4096


def pick_threads(config: Config) -> int:
    """`auto`: one thread for small networks, where a second only costs; else every CPU."""
    if config.n_threads != "auto":
        return config.n_threads
    widths = (*config.hidden_dims, *(getattr(config, "critic_hidden_dims", None) or ()))
    is_small = max(widths, default=0) <= SMALL_LAYER
    return 1 if is_small and getattr(config, "batch_size", 0) <= SMALL_BATCH else cpu_count()


@contextmanager
def limited_threads(n_threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    # Moments of weights whose gradient has become zero decay until they are denormal, numbers that
    # the CPU computes with ten times slower; after a thousand updates of a ReLU net that is half.
    torch.set_flush_denormal(True)
    try:
        with threadpool_limits(n_threads, user_api="blas"):
            yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)
