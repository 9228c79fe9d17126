"""Small matrix products of compiled programs: any shape, with a bias, added to what is there."""

from ctypes import CDLL, c_int, c_long, c_void_p

import numpy as np
import pytest

from gymnasium_solver.fast.native.build import can_compile, load_compiled

pytestmark = pytest.mark.skipif(not can_compile(), reason="needs a C compiler")


@pytest.fixture(scope="module")
def library() -> CDLL:
    return load_compiled("void run_flushed(Call *c) {}")


def product(
    library: CDLL,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    *,
    bias: np.ndarray | None = None,
    adds: bool = False,
    gate: np.ndarray | None = None,
    is_packed: bool = True,
) -> None:
    """C [:, :n] = A B, and so on; the strides of A are its own."""
    (m, k), n = a.shape, b.shape[1]
    panels = b
    if is_packed:
        panels = np.zeros(k * (n + 64), np.float32)
        library.gsolve_pack(
            *map(c_long, (k, n)), c_void_p(b.ctypes.data), *map(c_long, (n, 1)),
            c_void_p(panels.ctypes.data),
        )  # fmt: skip
    library.gsolve_matmul(
        *map(c_long, (m, n, k)), c_void_p(a.ctypes.data),
        *(c_long(stride // 4) for stride in a.strides), c_void_p(panels.ctypes.data),
        c_long(0 if is_packed else n), c_void_p(c.ctypes.data), c_long(c.shape[1]),
        None if bias is None else c_void_p(bias.ctypes.data), c_int(adds),
        None if gate is None else c_void_p(gate.ctypes.data),
    )  # fmt: skip


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# Whole tiles, rests of rows and of columns, few columns, one.
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 16, 31, 33, 64, 100])
@pytest.mark.parametrize(("m", "k"), [(1, 1), (8, 64), (35, 19), (64, 32), (131, 5), (24, 300)])
@pytest.mark.parametrize("is_turned", [False, True], ids=["a", "transposed a"])
def test_products_are_numpys(library: CDLL, m: int, n: int, k: int, is_turned: bool) -> None:
    a = normal(k, m).T if is_turned else normal(m, k)
    b, bias = normal(k, n, seed=1), normal(n, seed=2)
    exact = a.astype(np.float64) @ b
    # C is a part of a wider matrix, whose other columns are left alone.
    c, in_place = (np.full((m, n + 3), 7.0, np.float32) for _ in range(2))
    for given, adds, wanted in (
        (None, False, exact),
        (bias, False, exact + bias),
        (None, True, 2 * exact + bias),
        (bias, True, 3 * exact + 2 * bias),
    ):
        product(library, a, b, c, bias=given, adds=adds)
        np.testing.assert_allclose(c[:, :n], wanted, rtol=1e-4, atol=1e-4)
        assert (c[:, n:] == 7.0).all()
        product(library, a, b, in_place, bias=given, adds=adds, is_packed=False)
        np.testing.assert_array_equal(c, in_place)  # the same sums in the same order


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (203, 140, 131)])
def test_wide_transposed_products_have_the_bits_of_narrow_ones(
    library: CDLL, m: int, n: int, k: int
) -> None:
    """The rows are copied for the wide product, and not for its parts."""
    a, b, gate = normal(k, m).T, normal(k, n, seed=1), normal(m, n, seed=2)
    wide, parts = (np.ones((m, n), np.float32) for _ in range(2))
    product(library, a, b, wide, adds=True, gate=gate, is_packed=False)
    for start in range(0, m, 64):
        rows = slice(start, start + 64)
        product(library, a[rows], b, parts[rows], adds=True, gate=gate[rows], is_packed=False)
    np.testing.assert_array_equal(wide, parts)


@pytest.mark.parametrize("n", [1, 3, 8, 23, 64, 100])
@pytest.mark.parametrize("m", [5, 40])
def test_a_gate_is_part_of_the_product(library: CDLL, m: int, n: int) -> None:
    a, b, gate = normal(m, 9), normal(9, n, seed=1), normal(m, n, seed=2)
    gate[0, 0], b[0, -1] = 0.0, np.nan  # a zero shuts the gate, NaN is not hidden by one
    plain, relu, derivative = (np.zeros((m, n), np.float32) for _ in range(3))
    product(library, a, b, plain)
    product(library, a, b, relu, gate=relu)
    product(library, a, b, derivative, gate=gate)
    np.testing.assert_array_equal(relu, np.where(plain <= 0, 0, plain))
    np.testing.assert_array_equal(derivative, np.where(gate <= 0, 0, plain))


@pytest.mark.parametrize("n", [23, 64, 100])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_rows_of_zeros_are_left_out(library: CDLL, n: int, share: float) -> None:
    a, b, gate = normal(40, 70), normal(70, n, seed=1), normal(40, n, seed=2)
    expected = np.zeros((40, n), np.float32)
    product(library, a, b, expected, gate=gate)
    is_left_out = np.random.default_rng(3).random(40) < share
    expected[is_left_out], a[is_left_out] = 0.0, 0.0
    a[is_left_out, ::3] = -0.0
    c = np.full((40, n), 7.0, np.float32)
    for is_packed in (True, False):
        product(library, a, b, c, gate=gate, is_packed=is_packed)
        np.testing.assert_array_equal(c, expected)  # of the other rows the same bits


@pytest.mark.parametrize(("m", "n", "k"), [(1, 256, 256), (3, 5, 37), (4, 1, 2)])
def test_a_few_rows_need_no_packing(library: CDLL, m: int, n: int, k: int) -> None:
    a, weights, bias = normal(m, k), normal(n, k, seed=1), normal(n, seed=2)
    c = np.zeros((m, n), np.float32)
    library.gsolve_few(
        *map(c_long, (m, n, k)), c_void_p(a.ctypes.data), *map(c_long, (k, 1)),
        c_void_p(weights.ctypes.data), c_long(k), c_void_p(c.ctypes.data), c_long(n),
        c_void_p(bias.ctypes.data), c_int(0), c_void_p(c.ctypes.data),
    )  # fmt: skip
    exact = np.maximum(a.astype(np.float64) @ weights.T + bias, 0)
    np.testing.assert_allclose(c, exact, rtol=1e-4, atol=1e-4)
