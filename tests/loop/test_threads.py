"""Threads follow the work in a product, and there is one pool of them; the garbage collector leaves
out what existed before a run."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from threadpoolctl import threadpool_info

from gymnasium_solver.training import threads
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.training.threads import (
    gpu_arithmetic,
    limited_threads,
    numpy_blas_files,
    old_objects_left_out,
    pick_compiled_threads,
    pick_threads,
)


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
    monkeypatch.setattr(threads, "cpu_share", lambda: 8)
    config = load_config("CartPole-v1:dqn").replace(**fields)
    assert pick_threads(config, spaces.Box(-1, 1, (4,))) == expected


@pytest.mark.parametrize(
    ("fields", "torch_threads", "expected"),
    [
        ({"batch_size": 256, "hidden_dims": (64, 64)}, 1, 2),
        ({"batch_size": 64, "hidden_dims": (256, 256)}, 1, 1),  # two blocks of samples
        ({"batch_size": 256, "hidden_dims": (32, 32)}, 1, 1),
        ({"batch_size": 512, "hidden_dims": (512, 512)}, 8, 8),
        ({"batch_size": 256, "hidden_dims": (64, 64), "n_threads": 1}, 1, 1),
    ],
)
def test_compiled_programs_get_a_second_thread_earlier(
    monkeypatch, fields, torch_threads, expected
):
    monkeypatch.setattr(threads, "cpu_share", lambda: 8)
    config = load_config("CartPole-v1:dqn").replace(**fields)
    assert pick_compiled_threads(config, torch_threads) == expected


@pytest.mark.parametrize("perf", ["fast", "exact", None])
def test_arithmetic_on_a_gpu_is_set_for_a_run_and_restored(perf: Any) -> None:
    def settings() -> list[bool]:
        cudnn = torch.backends.cudnn
        return [torch.backends.cuda.matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark]

    before, wanted = settings(), {"fast": [True] * 3, "exact": [False] * 3}
    with gpu_arithmetic(perf):
        assert settings() == wanted.get(perf, before)
        assert torch.backends.cudnn.deterministic == (perf == "exact")
    assert settings() == before
    assert not torch.backends.cudnn.deterministic


def test_images_take_every_cpu(monkeypatch):
    monkeypatch.setattr(threads, "cpu_share", lambda: 8)
    image = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert pick_threads(load_config("CartPole-v1:dqn"), image) == 8


SITE = Path("/venv/lib/python3.12/site-packages")
CONDA = Path("/conda/lib")


def pool(file: Path, api: str, n_threads: int = 8) -> dict[str, Any]:
    """An entry of threadpoolctl's info, as far as it is read here."""
    user_api = "openmp" if api == "openmp" else "blas"
    found = {"user_api": user_api, "internal_api": api, "filepath": str(file)}
    return {**found, "num_threads": n_threads}


NUMPY_FILE = SITE / "numpy.libs/libscipy_openblas64_-32a4b2a6.so"
NUMPY_WHEEL = pool(NUMPY_FILE, "openblas")
TORCH_OPENMP = pool(SITE / "torch/lib/libgomp.so.1", "openmp")
TORCH_BLAS = [
    pool(SITE / "torch/lib/libopenblas.so.0", "openblas"),
    pool(SITE / "torch.libs/libopenblas-1a2b.so", "openblas"),
]
SCIPY_WHEEL = pool(SITE / "scipy.libs/libscipy_openblas-68440149.so", "openblas")
MAC_FILE = SITE / "numpy/.dylibs/libscipy_openblas64_.dylib"
CONDA_FILE, CONDA_SITE = CONDA / "libopenblasp-r0.3.30.so", CONDA / "python3.12/site-packages"
CONDA_MKL = [pool(CONDA / "libmkl_rt.so.2", "mkl"), pool(CONDA / "libiomp5.so", "openmp")]
# Pools, NumPy's BLAS, torch's BLAS, the libraries to limit.
INSTALLATIONS: dict[str, tuple[list[dict[str, Any]], str, str, list[Path]]] = {
    "x86_64 wheels": ([NUMPY_WHEEL, TORCH_OPENMP], "scipy-openblas", "mkl", [NUMPY_FILE]),
    "aarch64 wheels: torch brings an OpenBLAS on its own threads":
        ([NUMPY_WHEEL, *TORCH_BLAS, TORCH_OPENMP], "scipy-openblas", "open", [NUMPY_FILE]),
    "aarch64 wheels with CUDA: torch brings a BLAS that threadpoolctl does not know":
        ([NUMPY_WHEEL, TORCH_OPENMP], "scipy-openblas", "nvpl", [NUMPY_FILE]),
    "wheels with SciPy's own OpenBLAS":
        ([SCIPY_WHEEL, NUMPY_WHEEL], "scipy-openblas", "mkl", [NUMPY_FILE]),
    "macOS: Accelerate has no pool to limit": ([TORCH_OPENMP], "accelerate", "accelerate", []),
    "macOS wheel with OpenBLAS":
        ([pool(MAC_FILE, "openblas")], "scipy-openblas", "accelerate", [MAC_FILE]),
    "conda: one MKL for both": (CONDA_MKL, "mkl-sdl", "mkl", []),
    "conda-forge: one OpenBLAS for both":
        ([pool(CONDA_FILE, "openblas")], "blas", "generic", []),
    "conda-forge's NumPy, torch's wheel":
        ([pool(CONDA_FILE, "openblas")], "blas", "mkl", [CONDA_FILE]),
}  # fmt: skip


@pytest.mark.parametrize("name", INSTALLATIONS)
def test_only_the_blas_of_numpy_alone_is_limited(name):
    pools, numpy_blas, torch_blas, expected = INSTALLATIONS[name]
    site = CONDA_SITE if name.startswith("conda") else SITE
    found = numpy_blas_files(pools, site / "numpy", site / "torch", numpy_blas, torch_blas)
    assert found == [str(file) for file in expected]


def test_torch_keeps_its_own_blas(monkeypatch):
    """As on aarch64, where torch's OpenBLAS and its threads are one pool."""

    class Fake:
        limited: list[str] = []

        def info(self) -> list[dict[str, Any]]:
            theirs = Path(torch.__file__).resolve().parent / "lib/libopenblas.so.0"
            ours = (
                Path(np.__file__).resolve().parent.with_name("numpy.libs")
                / "libscipy_openblas64_.so"
            )
            return [pool(theirs, "openblas"), pool(ours, "openblas")]

        def select(self, filepath: list[str]) -> "Fake":
            self.limited.extend(filepath)
            return self

        def limit(self, limits: int) -> Any:
            assert limits == 1
            return nullcontext()

    monkeypatch.setattr(threads, "ThreadpoolController", Fake)
    with limited_threads(2):
        assert torch.get_num_threads() == 2
    assert [Path(file).name for file in Fake.limited] == ["libscipy_openblas64_.so"]


def test_numpy_gets_no_second_pool():
    """Two pools that spin on the same cores made SAC four times slower."""
    np.ones((8, 8)) @ np.ones((8, 8))  # the pool exists from the first product on
    before = torch.get_num_threads()
    with limited_threads(2):
        assert torch.get_num_threads() == 2
        pools = threadpool_info()
        files = numpy_blas_files(pools)
        assert all(pool["num_threads"] == 1 for pool in pools if pool["filepath"] in files)
    assert torch.get_num_threads() == before


# -- garbage ----------------------------------------------------------------------------------


class Node:
    other: Any


def cycle() -> weakref.ref[Node]:
    """Garbage that only the collector frees."""
    one, two = Node(), Node()
    one.other, two.other = two, one
    return weakref.ref(one)


@pytest.fixture
def nothing_left_out(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process of its own: the tests leave out what they share."""
    monkeypatch.setattr(threads, "_n_running", 0)
    was_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    yield
    if was_frozen:
        gc.freeze()


def test_a_program_that_does_it_itself_is_left_alone(nothing_left_out: None) -> None:
    gc.freeze()
    n = gc.get_freeze_count()
    with old_objects_left_out():
        assert gc.get_freeze_count() == n
    assert gc.get_freeze_count() == n


def test_objects_are_left_out_until_the_run_ends(nothing_left_out: None) -> None:
    with old_objects_left_out():
        n = gc.get_freeze_count()
        assert n > 1000
        with old_objects_left_out():  # another thread, or a run inside a run
            assert gc.get_freeze_count() == n
        assert gc.get_freeze_count() == n
    assert gc.get_freeze_count() == 0
    with pytest.raises(ValueError, match="stop"), old_objects_left_out():
        raise ValueError("stop")
    assert gc.get_freeze_count() == 0


def test_garbage_of_a_run_and_of_the_one_before_it_is_freed(nothing_left_out: None) -> None:
    with old_objects_left_out():
        pass
    gc.disable()
    try:
        earlier = cycle()
        with old_objects_left_out():
            assert earlier() is None
            own = cycle()
            gc.collect()
            assert own() is None
            last = cycle()
        gc.collect()
        assert last() is None
    finally:
        gc.enable()
