"""Einsum against numpy, and where its text is stricter or says more."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.linear import einsum_12
from tests.grids import each
from tests.runtime.kernels.arrays import same


def whole(dtype: Any, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 4, shape).astype(dtype)


@each(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 5)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 5, 7), (2, 3, 4, 7)]),
        ("ij->ji", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("ij->", [(2, 3)]),
        ("i,j->ij", [(2,), (3,)]),
        ("ba", [(2, 3)]),
        ("aB,Bc", [(2, 3), (3, 5)]),
        (" i j , j k -> i k ", [(2, 3), (3, 5)]),
        ("...ij,...jk->...ik", [(7, 2, 3), (7, 3, 5)]),
        ("...ij,...jk", [(7, 2, 3), (1, 3, 5)]),
        ("a...,...b->b...a", [(2, 7), (7, 5)]),
        ("ij,jk,kl->il", [(2, 3), (3, 5), (5, 7)]),
        (",i->i", [(), (3,)]),
    ],
)
@each("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8])
def test_as_numpy(equation: str, shapes: list[tuple[int, ...]], dtype: Any) -> None:
    operands = [whole(dtype, *shape, seed=n) for n, shape in enumerate(shapes)]
    got = einsum_12(*operands, equation=equation)
    expected = np.einsum(equation, *[x.astype(np.int64) for x in operands])
    assert same(got, np.asarray(expected).astype(dtype))


def test_an_ellipsis_that_the_output_leaves_out_is_summed() -> None:
    x = whole(np.float32, 2, 3, 5)
    got = einsum_12(x, equation="...i->i")
    assert got.tolist() == x.sum((0, 1)).tolist()


def test_capitals_come_first_in_the_implicit_output() -> None:
    x = whole(np.float32, 2, 3)
    assert einsum_12(x, equation="aB").tolist() == x.T.tolist()


@each(("equation", "shapes", "message"), [
        ("ij,jk->ik", [(2, 3), (5, 7)],
         r"`j` of `equation` .* is 3 in `Inputs`\[0\] with shape \(2, 3\) and 5 in `Inputs`\[1\]"),
        ("ij,jk->ik", [(2, 1), (5, 7)], "`j` of `equation`"),
        ("ij", [(2, 3, 5)], "expected rank 2 by the term `ij`"),
        ("ij,jk", [(2, 3)], "`equation` has 2 terms, expected 1"),
        ("i.j->ij", [(2, 3)], "has `.` in the term"),
        ("i1->i", [(2, 3)], "has `1` in the term"),
        ("i......->i", [(2, 3)], "has `.` in the term"),
        ("ij->ik", [(2, 3)], "must name letters of the operands, each once"),
        ("ij->ii", [(2, 3)], "must name letters of the operands, each once"),
        ("...i,...j->ij", [(2, 3), (3,)], r"the ellipses .* stand for \[0, 1\] dimensions"),
        ("...i,...i->i", [(2, 3), (5, 3)], r"the ellipsis .* is 2 in `Inputs`\[0\]"),
        ("...ijk->i", [(2, 3)], "terms longer than the ranks"),
    ])  # fmt: skip
def test_refusals(equation: str, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        einsum_12(*[np.ones(shape, np.float32) for shape in shapes], equation=equation)
