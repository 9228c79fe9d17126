"""Settings of the process while a run trains: CPU threads, precision on a GPU, and Python's garbage
collector.

A small matrix product is slower on two threads than on one, and much slower if another process uses
the second core: each call then waits for a thread that is not running. The number of threads
therefore depends on the size of the products. These are torch's threads. NumPy multiplies only
small matrices here, so its BLAS gets one thread: a second pool of spinning threads on the same
cores makes everything four times slower.

All of it applies during a run and is restored afterwards.
"""

import gc
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from threadpoolctl import ThreadpoolController

from gymnasium_solver.config.cpus import cpu_share
from gymnasium_solver.config.schema import Config, LearnerConfig
from gymnasium_solver.fast.native.program import set_threads
from gymnasium_solver.lanes import current_lane
from gymnasium_solver.nets.network import is_cnn

log = logging.getLogger(__name__)

# Multiplications in the largest product for which a second thread pays off: 256 x 256 x 256 (SAC's
# default) is 1.3 to 1.4 times as fast on two threads, 64 x 256 x 256 no faster.
WORK_A_THREAD = 256**3 // 2
# Compiled programs have workers of their own, which a smaller product keeps busy: 256 x 64 x 64
# (PPO's default).
WORK_A_WORKER, FEWEST_SAMPLES = 256 * 64**2 // 2, 256
# Names for an unspecified system BLAS: conda's NumPy, a torch built against a generic BLAS.
GENERIC_BLAS = ("blas", "cblas", "auto", "generic")


def pick_threads(config: Config, observation_space: spaces.Space | None = None) -> int:
    """Resolve `n_threads: auto`: one thread for small products, every CPU for images.

    Without an observation space an MLP is assumed."""
    if config.n_threads != "auto":
        return config.n_threads
    if not isinstance(config, LearnerConfig):
        return 1
    if observation_space is not None and is_cnn(config, observation_space):
        return cpu_share()
    return min(cpu_share(), max(1, largest_product(config) // WORK_A_THREAD))


def pick_compiled_threads(config: Config, n_threads: int) -> int:
    """Threads of compiled programs, where torch has `n_threads`. What they compute does not depend
    on it, and a worker that other programs keep from running is left out for a while."""
    if config.n_threads != "auto" or not isinstance(config, LearnerConfig):
        return n_threads
    if config.gradient_samples < FEWEST_SAMPLES:
        return n_threads
    return max(n_threads, min(2, cpu_share(), largest_product(config) // WORK_A_WORKER))


def largest_product(config: LearnerConfig) -> int:
    """Multiplications in the largest matrix product of an MLP's update."""
    return config.gradient_samples * config.widest_layer**2


@contextmanager
def limited_threads(n_threads: int, compiled: int | None = None) -> Iterator[None]:
    """Give torch `n_threads` threads, compiled programs as many or `compiled`, NumPy one; restore
    them afterwards.

    One of several lanes (lanes.py) leaves the rest to the one that runs them: the first lane to end
    would lift the limits for all."""
    if current_lane() is not None:
        torch.set_num_threads(n_threads)
        yield
        return
    before, compiled_before = torch.get_num_threads(), set_threads(compiled or n_threads)
    torch.set_num_threads(n_threads)
    log.debug("threads of torch: %d, of NumPy: 1", n_threads)
    # Adam moments of weights with zero gradient decay until they are denormal, and the CPU computes
    # with denormals ten times slower. After a thousand updates of a ReLU net half of the moments
    # are denormal.
    torch.set_flush_denormal(True)
    pools = ThreadpoolController()
    try:
        with pools.select(filepath=numpy_blas_files(pools.info())).limit(limits=1):
            yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)
        set_threads(compiled_before)


@contextmanager
def gpu_arithmetic(perf: Literal["fast", "exact"] | None) -> Iterator[None]:
    """Compute on a GPU as the field `perf` says, and as before afterwards. A CPU computes the
    same."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    names = ("allow_tf32", "benchmark", "deterministic")
    before = products.allow_tf32, [getattr(convolutions, name) for name in names]
    if perf is not None:
        is_fast = perf == "fast"
        products.allow_tf32 = is_fast
        for name, value in zip(names, (is_fast, is_fast, not is_fast), strict=True):
            setattr(convolutions, name, value)
    try:
        yield
    finally:
        if perf is not None and current_lane() is None:  # lanes have the same config
            products.allow_tf32 = before[0]
            for name, value in zip(names, before[1], strict=True):
                setattr(convolutions, name, value)


def numpy_blas_files(
    pools: Iterable[Mapping[str, Any]],
    numpy_folder: Path | None = None,
    torch_folder: Path | None = None,
    numpy_blas: str | None = None,
    torch_blas: str | None = None,
) -> list[str]:
    """The BLAS libraries in `pools` (threadpoolctl's info) that NumPy uses and torch does not.

    Torch may bring its own BLAS: its aarch64 wheel contains an OpenBLAS that runs on torch's OpenMP
    threads, so limiting it would limit torch. Both may also share one, as in conda; then there is
    no second pool and nothing to limit. A library is NumPy's only if it is in NumPy's own folders
    (wheels), or if NumPy was built against that kind of BLAS and torch against another. The other
    arguments describe the installation and are read from it by default."""
    numpy_folder = numpy_folder or Path(np.__file__).resolve().parent
    torch_folder = torch_folder or Path(torch.__file__).resolve().parent
    numpy_blas = numpy_blas or np.show_config("dicts")["Build Dependencies"]["blas"]["name"]
    torch_blas = torch_blas or _torch_blas()
    blas = {
        pool["filepath"]: pool["internal_api"]
        for pool in pools
        if pool["user_api"] == "blas" and not _is_inside(pool["filepath"], torch_folder)
    }
    own = [file for file in blas if _is_inside(file, numpy_folder)]
    return own or [
        file
        for file, api in blas.items()
        if _may_be(numpy_blas, api) and not _may_be(torch_blas, api)
    ]


def _is_inside(file: str, package: Path) -> bool:
    """Whether a library belongs to a package: in `<package>/` or a wheel's `<package>.libs/`."""
    parents = Path(file).parents
    return package in parents or package.with_name(f"{package.name}.libs") in parents


def _may_be(blas: str, api: str) -> bool:
    """Whether a BLAS named by a build (`mkl-sdl`, `scipy-openblas`, ...) can be this library."""
    return api in blas.lower() or blas.lower() in GENERIC_BLAS


def _torch_blas() -> str:
    named = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    name = named[1] if named else "generic"
    return {"open": "openblas", "flexi": "flexiblas"}.get(name, name)


def helper_environ() -> dict[str, str]:
    """Environment variables of a process that works next to a training: one thread, no GPU, and
    the same modules are found."""
    own = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return os.environ | own | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


_n_running = 0
_has_ended = False  # a run of this process


@contextmanager
def old_objects_left_out() -> Iterator[None]:
    """Leave what exists when a run begins out of garbage collections until it ends.

    A full collection visits every object of the process. Most of them belong to torch and other
    imported modules and stay: one visit takes 100 ms, about 5 % of the time of a short training."""
    global _n_running, _has_ended
    is_own = _n_running == 0 and not gc.get_freeze_count()  # or the program has done it itself
    if is_own:
        if _has_ended:
            gc.collect()  # what remains of an earlier run, a replay buffer say, must not stay
        gc.freeze()
    _n_running += 1
    try:
        yield
    finally:
        _n_running -= 1
        _has_ended = True
        if is_own:
            gc.unfreeze()
