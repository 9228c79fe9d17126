"""Several processes that learn together, one for each GPU: torch.distributed, started by torchrun.

    torchrun --nproc-per-node 4 -m gymnasium_solver train Torch/CartPole-v1:ppo --n-envs 4096 ...

Each steps its share of the environments and learns from its share of every minibatch. All of them
step along the mean of their gradients, with statistics of all data, so that their weights stay the
same, bit for bit. The first process leads (training/several.py): it alone has the run folder,
evaluates and decides, and tells the others what comes next. Without torchrun nothing happens here.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from gymnasium_solver.errors import ConfigError, RunError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

# Orders of the first process, which the others wait for.
END, START, EPOCH, STATE = range(4)
LONGEST_WAIT = timedelta(days=2)  # of the others, while the first one evaluates

OF_PROCESS = "process{}."  # prefix of the arrays of a process in a checkpoint, but the first

_n_joined = 1
_is_busy = False  # the processes are within an epoch, where none waits for an order


class ProcessLostError(RunError):
    """Another process of the training ended."""


def n_launched() -> int:
    """Number of processes that torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_follower() -> bool:
    """Whether this process was started to follow the first one."""
    return n_launched() > 1 and int(os.environ["RANK"]) > 0


def count() -> int:
    """Number of processes that learn together now."""
    return _n_joined


def rank() -> int:
    """The number of this process among them; 0 leads."""
    return int(os.environ["RANK"]) if _n_joined > 1 else 0


@contextmanager
def joined() -> Iterator[None]:
    """Learn together with the other processes that torchrun started. At its end the first one tells
    the others to end."""
    global _n_joined
    if n_launched() == 1 or _n_joined > 1:
        yield
        return
    import torch
    import torch.distributed as dist

    has_gpu = torch.cuda.is_available() and dist.is_nccl_available()
    if has_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    backend = "cpu:gloo,cuda:nccl" if has_gpu else "gloo"
    _called(dist.init_process_group, backend, timeout=LONGEST_WAIT)
    _n_joined = n_launched()
    try:
        yield
    finally:
        if rank() == 0 and not _is_busy:
            with suppress(ProcessLostError):
                tell(END)
        _n_joined = 1
        dist.destroy_process_group()


def _called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    try:
        function(*args, **kwargs)
    except RuntimeError as error:  # of torch.distributed: a connection was closed
        raise ProcessLostError(
            "another process of this training ended, so this one ends too. Its message says why; "
            "continue with torchrun ... -m gymnasium_solver train --resume @last"
        ) from error


def share_of(config: Any) -> Any:
    """One process's share of environments and minibatches. ConfigError if it cannot be divided."""
    n = _n_joined
    if n == 1:
        return config
    if config.interventions or config.collectors is not None:
        name = "interventions" if config.interventions else "collectors"
        raise ConfigError(f"{name}: {n} processes that learn together have none; remove it")
    if config.device.startswith("cuda:"):
        raise ConfigError(
            f"device: {config.device} is one GPU of {n} processes; use cuda, and each takes its own"
        )
    shares = {}
    for name in ("n_envs", "batch_size"):
        total = getattr(config, name, None)
        if not isinstance(total, int) or total % n:
            raise ConfigError(f"{name}: {total} cannot be divided among {n} processes")
        shares[name] = total // n
    return config.replace(**shares)


# -- numbers of all processes -------------------------------------------------------------------


def mean_(tensor: "Tensor") -> "Tensor":
    """The mean over all processes, in place."""
    if _n_joined > 1:
        import torch.distributed as dist

        _called(dist.all_reduce, tensor)
        tensor.div_(_n_joined)
    return tensor


def largest_(tensor: "Tensor") -> "Tensor":
    """The largest over all processes, in place."""
    if _n_joined > 1:
        import torch.distributed as dist

        _called(dist.all_reduce, tensor, op=dist.ReduceOp.MAX)
    return tensor


def moments(x: "Tensor") -> tuple[int, "Tensor", "Tensor"]:
    """Number, mean and variance of the rows of all processes, of which each has as many."""
    mean, var = x.mean(0), x.var(0, correction=0)
    if _n_joined > 1:
        own = mean
        mean = mean_(own.clone())
        var = mean_(var + (own - mean).square())
    return len(x) * _n_joined, mean, var


def gathered(tensor: "Tensor") -> list["Tensor"]:
    """The tensors of all processes, in their order."""
    if _n_joined == 1:
        return [tensor]
    import torch
    import torch.distributed as dist

    found = [torch.empty_like(tensor) for _ in range(_n_joined)]
    _called(dist.all_gather, found, tensor)
    return found


def gathered_arrays(arrays: "Mapping[str, np.ndarray]") -> list[dict[str, "np.ndarray"]]:
    """Arrays by name of all processes, whose shapes may differ."""
    import torch
    from safetensors.numpy import load, save

    own = torch.frombuffer(bytearray(save(dict(arrays))), dtype=torch.uint8)
    sizes = [int(size) for size in gathered(torch.tensor(len(own)))]
    padded = torch.zeros(max(sizes), dtype=torch.uint8)
    padded[: len(own)] = own
    parts = zip(gathered(padded), sizes, strict=True)
    return [load(part[:size].numpy().tobytes()) for part, size in parts]


# -- what the first process tells ---------------------------------------------------------------


def from_first(tensor: "Tensor") -> "Tensor":
    """The first process's tensor, in place."""
    if _n_joined > 1:
        import torch.distributed as dist

        _called(dist.broadcast, tensor, src=0)
    return tensor


def tell(order: int) -> None:
    """Tell the others what comes next; called by the first process."""
    if _n_joined > 1:
        told(order)


@contextmanager
def epoch() -> Iterator[None]:
    """What all processes do together: an epoch of collecting and learning."""
    global _is_busy
    tell(EPOCH)
    _is_busy = True
    yield
    _is_busy = False  # not after an error: the others may wait for numbers


def states_of_others() -> dict[str, "np.ndarray"]:
    """What the other processes add to a checkpoint: their environments."""
    if _n_joined == 1:
        return {}
    tell(STATE)
    _, *others = gathered_arrays({})
    return {
        OF_PROCESS.format(i) + name: array
        for i, arrays in enumerate(others, 1)
        for name, array in arrays.items()
    }


def told(order: int = END) -> int:
    """What comes next; waits for the first process."""
    import torch

    return int(from_first(torch.tensor(order)))


def text_of_first(text: str = "") -> str:
    """A text of the first process, for all."""
    import torch

    size = int(from_first(torch.tensor(len(text.encode()))))
    data = bytearray(text.encode().ljust(size, b" ")) if rank() == 0 else bytearray(size)
    return bytes(from_first(torch.frombuffer(data, dtype=torch.uint8)).numpy()).decode()
