"""Products of wide layers: as precise as products of floats, whether the CPU has AMX or not."""

from ctypes import CDLL, c_int, c_long, c_void_p

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gymnasium_solver.fast import recorded
from gymnasium_solver.fast.native import products
from gymnasium_solver.fast.native.build import can_compile, load_compiled
from gymnasium_solver.fast.native.gradient import NativeGradient
from gymnasium_solver.fast.native.program import set_threads

pytestmark = pytest.mark.skipif(not can_compile(), reason="needs a C compiler")


@pytest.fixture(scope="module")
def library() -> CDLL:
    return load_compiled("static void run_flushed(Call *c) {}", steps=False)


def product(
    library: CDLL, a: np.ndarray, b: np.ndarray, c: np.ndarray, bias: np.ndarray | None
) -> None:
    """C = A B + bias, or C += A B without a bias."""
    (m, k), n = a.shape, b.shape[1]
    packed = np.zeros(-(-k // 32) * 32 * n * 3 // 2, np.float32)
    steps_a, steps_b = ([s // 4 for s in x.strides] for x in (a, b))
    library.gsolve_pack_wide(
        *map(c_long, (k, n)), c_void_p(b.ctypes.data), *map(c_long, steps_b),
        c_void_p(packed.ctypes.data),
    )  # fmt: skip
    library.gsolve_matmul_wide(
        *map(c_long, (m, n, k)), c_void_p(a.ctypes.data), *map(c_long, steps_a),
        c_void_p(packed.ctypes.data), c_void_p(c.ctypes.data), c_long(n),
        None if bias is None else c_void_p(bias.ctypes.data), c_int(bias is None), None,
    )  # fmt: skip


# Rows and sums that are no multiple of a tile; both operands along and across their memory.
@pytest.mark.parametrize(
    ("m", "n", "k"), [(64, 128, 128), (1, 32, 32), (37, 64, 96), (130, 96, 77)]
)
@pytest.mark.parametrize("turned", ["neither", "a", "b"])
def test_products_are_as_precise_as_those_of_floats(
    library: CDLL, m: int, n: int, k: int, turned: str
) -> None:
    rng = np.random.default_rng(m)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    a = np.ascontiguousarray(a.T).T if turned == "a" else a
    b = np.ascontiguousarray(b.T).T if turned == "b" else b
    exact = a.astype(np.float64) @ b.astype(np.float64)
    # Rounding of a sum of k products, each as precise as a float.
    most = 2.0**-23 * np.sqrt(k) * (np.abs(a) @ np.abs(b)).max()
    bias = rng.standard_normal(n).astype(np.float32)
    c = np.full((m, n), np.nan, np.float32)
    product(library, a, b, c, bias)
    assert np.abs(c - (exact + bias)).max() < most
    product(library, a, b, c, None)
    assert np.abs(c - (2 * exact + bias)).max() < 2 * most


def test_numbers_of_any_size(library: CDLL) -> None:
    """A product of bfloat16 alone would be off by a part in 256."""
    a = np.float32(1.0 + 2.0**-20) * np.float32(2.0) ** np.arange(-60, 68, 4, dtype=np.float32)
    a = a[:, None].repeat(32, 1)
    b = np.eye(32, dtype=np.float32) * np.float32(1.0 + 2.0**-22)
    c = np.empty((32, 32), np.float32)
    product(library, a, b, c, np.zeros(32, np.float32))
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=2.0**-22)


def gradient(batch: Tensor) -> tuple[NativeGradient, list[Tensor]]:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(5, 160), nn.ReLU(), nn.Linear(160, 256), nn.ReLU(), nn.Linear(256, 2)
    )

    def loss(batch: list[Tensor], c: object) -> tuple[Tensor, list[Tensor]]:
        return net(batch[0]).square().mean(), []

    found = recorded.record_gradient(loss, list(net.parameters()), [batch], (), form="compiled")
    assert isinstance(found, NativeGradient)
    return found, recorded.eager(loss, list(net.parameters()), [batch], ())


@pytest.mark.parametrize("has", [False, True])
@pytest.mark.parametrize("n", [3, 64, 200])
def test_gradients_of_wide_networks(n: int, has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The products that a CPU with AMX gets give the same gradients, for any number of threads.
    Without AMX these are those of other CPUs."""
    monkeypatch.setattr(products, "has_amx", lambda: has)
    batch = torch.randn(n, 5, generator=torch.Generator().manual_seed(n))
    native, expected = gradient(batch)
    found = []
    for threads in (1, 2):
        before = set_threads(threads)
        found.append(native([batch], ())[0].clone())
        set_threads(before)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-6)
    assert torch.equal(found[0], found[1])
