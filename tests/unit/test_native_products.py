"""Small matrix products of compiled programs: any shape, with a bias, added to what is there."""

from ctypes import CDLL, c_int, c_long, c_void_p

import numpy as np
import pytest

from gymnasium_solver.fast.native.build import can_compile, load_compiled

pytestmark = pytest.mark.skipif(not can_compile(), reason="needs a C compiler")


@pytest.fixture(scope="module")
def library() -> CDLL:
    return load_compiled("static void run_flushed(Call *c) {}", steps=False)


# Whole tiles, rests of rows and of columns, few columns, one.
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 16, 31, 33, 64, 100])
@pytest.mark.parametrize(("m", "k"), [(1, 1), (8, 64), (35, 19), (64, 32), (131, 5)])
@pytest.mark.parametrize("is_turned", [False, True], ids=["a", "transposed a"])
def test_products_are_numpys(library: CDLL, m: int, n: int, k: int, is_turned: bool) -> None:
    rng = np.random.default_rng(n)
    a = rng.standard_normal((k, m) if is_turned else (m, k)).astype(np.float32)
    b, bias = rng.standard_normal((k, n)).astype(np.float32), rng.standard_normal(n)
    bias = bias.astype(np.float32)
    packed = np.zeros(k * (n + 64), np.float32)
    library.gsolve_pack(
        *map(c_long, (k, n)), c_void_p(b.ctypes.data), *map(c_long, (n, 1)),
        c_void_p(packed.ctypes.data),
    )  # fmt: skip
    exact = (a.T if is_turned else a).astype(np.float64) @ b
    ldc = n + 3  # C is a part of a wider matrix, whose other columns are left alone
    c = np.full((m, ldc), 7.0, np.float32)
    for given, adds, wanted in (
        (None, 0, exact),
        (bias, 0, exact + bias),
        (None, 1, 2 * exact + bias),
        (bias, 1, 3 * exact + 2 * bias),
    ):
        library.gsolve_matmul(
            *map(c_long, (m, n, k)), c_void_p(a.ctypes.data),
            *map(c_long, (1, m) if is_turned else (k, 1)), c_void_p(packed.ctypes.data),
            c_void_p(c.ctypes.data), c_long(ldc),
            None if given is None else c_void_p(given.ctypes.data), c_int(adds), None,
        )  # fmt: skip
        np.testing.assert_allclose(c[:, :n], wanted, rtol=1e-4, atol=1e-4)
        assert (c[:, n:] == 7.0).all()
