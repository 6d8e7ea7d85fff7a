"""Bytes that tensors take, with the small elements packed."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnx_kvtool.core.storage import element_count, stored_bytes, tensor_bytes
from tests.grids import each

T = ir.DataType

SIZES: dict[str, tuple[list[int], ir.DataType, int | None]] = {
    "a scalar": ([], T.FLOAT, 4),
    "no elements": ([3, 0, 5], T.FLOAT, 0),
    "no elements and absurd dims": ([2**62, 0, 2**62], T.FLOAT, 0),
    "16 bits": ([3, 5], T.BFLOAT16, 30),
    "8 bits": ([3, 5], T.FLOAT8E8M0, 15),
    "booleans": ([3, 5], T.BOOL, 15),
    "complex numbers": ([3, 5], T.COMPLEX128, 240),
    "6 bits, filled up to a byte": ([3], T.FLOAT6E2M3, 3),
    "6 bits, four in three bytes": ([4], T.FLOAT6E3M2, 3),
    "4 bits, filled up to a byte": ([3, 5], T.INT4, 8),
    "2 bits, filled up to a byte": ([3, 3], T.UINT2, 3),
    "strings": ([3], T.STRING, None),
    "an undefined type": ([3], T.UNDEFINED, None),
    "the greatest size": ([2**63 - 1], T.UINT8, 2**63 - 1),
}


@each(("dims", "dtype", "expected"), SIZES)
def test_stored_bytes(dims: list[int], dtype: ir.DataType, expected: int | None) -> None:
    assert stored_bytes(dims, dtype) == expected


def test_every_type_agrees_with_onnx_ir() -> None:
    for dtype in ir.DataType:
        if dtype not in (T.UNDEFINED, T.STRING):
            tensor = ir.ExternalTensor("f", 0, 0, dtype, shape=ir.Shape([7, 3]), name="t")
            assert stored_bytes([7, 3], dtype) == tensor.nbytes == tensor_bytes(tensor), dtype


IMPOSSIBLE = {
    "a negative dim": ([3, -5], T.FLOAT, "dim -5 is negative"),
    "a negative dim beside a zero": ([0, -5], T.FLOAT, "dim -5 is negative"),
    "too many elements": ([2**32, 2**31], T.UINT8, "number of elements exceeds"),
    "too many bytes": ([2**62], T.FLOAT, "size exceeds"),
    "very many dims": ([2**62] * 100_000, T.UINT8, "number of elements exceeds"),
}


@each(("dims", "dtype", "words"), IMPOSSIBLE)
def test_sizes_that_cannot_be(dims: list[int], dtype: ir.DataType, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        stored_bytes(dims, dtype)


def test_element_count() -> None:
    assert element_count([]) == 1
    assert element_count([2, 3, 5]) == 30


def test_tensor_bytes_never_fails() -> None:
    strings = ir.StringTensor([b"abc", b"de"], shape=ir.Shape([2]), name="s")
    assert tensor_bytes(strings) == 5
    assert tensor_bytes(ir.Tensor(np.zeros((3, 5), np.float16))) == 30
    for shape, dtype in (([-3], T.FLOAT), ([3], T.UNDEFINED)):
        tensor = ir.ExternalTensor("f", 0, 0, dtype, shape=ir.Shape(shape), name="t")
        assert tensor_bytes(tensor) == 0
