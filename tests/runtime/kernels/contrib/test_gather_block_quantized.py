"""GatherBlockQuantized, against onnxruntime and against a table that is unpacked one by one."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnx_kvtool.core.errors import KvtoolError
from tests.grids import each
from tests.runtime.kernels.contrib.node import needs_onnxruntime, ours, theirs

ROWS, COLUMNS, BLOCK, BLOCKS = 9, 40, 16, 3

Arrays = dict[str, "np.ndarray[Any, Any] | None"]

INDICES = [
    pytest.param(np.array([[0, 3], [8, -1]]), id="some"),
    pytest.param(np.array(2), id="a scalar"),
    pytest.param(np.array([-9, 4, 8]), id="the first and the last"),
    pytest.param(np.zeros((2, 0), np.int64), id="none"),
]


def packed_inputs(
    bits: int, zero_points: bool, indices: Any = (0, 3), dtype: Any = np.float32
) -> Arrays:
    rng = np.random.default_rng(bits)
    zeros = rng.integers(0, 256, (ROWS, -(-BLOCKS * bits // 8)), np.uint8)
    return {
        "data": rng.integers(0, 256, (ROWS, COLUMNS * bits // 8), np.uint8),
        "indices": np.asarray(indices, np.int64),
        "scales": rng.standard_normal((ROWS, BLOCKS)).astype(dtype),
        "zero_points": zeros if zero_points else None,
    }


@pytest.mark.long
@needs_onnxruntime
@each("dtype", [np.float32, np.float16])
@each("indices", INDICES)
@each("zero_points", [False, True])
@each("bits", [2, 4, 8])
def test_packed_tables(bits: int, zero_points: bool, indices: Any, dtype: Any) -> None:
    inputs = packed_inputs(bits, zero_points, indices, dtype)
    attributes = {"bits": bits, "block_size": BLOCK, "quantize_axis": -1}
    found, expected = (
        run("GatherBlockQuantized", inputs, **attributes)["y"] for run in (ours, theirs)
    )
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=2e-3 if dtype == np.float16 else 1e-6)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_packed_table_element_by_element(bits: int) -> None:
    inputs = packed_inputs(bits, True, [5])
    data, scales, zeros = (inputs[name] for name in ("data", "scales", "zero_points"))
    assert data is not None and scales is not None and zeros is not None

    def element(row: Any, index: int) -> int:
        return int(row[index * bits // 8]) >> (index * bits % 8) & (2**bits - 1)

    found = ours("GatherBlockQuantized", inputs, bits=bits, block_size=BLOCK)["y"]
    for column in range(COLUMNS):
        block = column // BLOCK
        number = element(data[5], column) - element(zeros[5], block)
        assert found[0, column] == np.float32(number) * scales[5, block]


@pytest.mark.long
@each("indices", INDICES)
@each(("gather", "blocks"), [(0, 1), (1, 0), (1, 2), (-1, 0), (0, 2)])
@each("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
@each("zero_points", [False, True])
def test_tables_of_four_bits(
    zero_points: bool, dtype: Any, gather: int, blocks: int, indices: Any
) -> None:
    """Each slice is dequantized whole and then gathered."""
    rng = np.random.default_rng(3)
    shape = (17, 18, 33)
    counts = tuple(-(-n // BLOCK) if i == blocks % 3 else n for i, n in enumerate(shape))
    low, high = (-8, 8) if dtype == ml_dtypes.int4 else (0, 16)
    data, zeros = (rng.integers(low, high, s).astype(dtype) for s in (shape, counts))
    scales = rng.standard_normal(counts).astype(np.float32)
    inputs: Arrays = {
        "data": data,
        "indices": indices,
        "scales": scales,
        "zero_points": zeros if zero_points else None,
    }

    def spread(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        wide = np.repeat(values.astype(np.float32), BLOCK, axis=blocks)
        return np.take(wide, range(shape[blocks]), axis=blocks)

    table = data.astype(np.float32) - (spread(zeros) if zero_points else 0)
    table *= spread(scales)
    expected = np.take(table, indices, axis=gather)
    found = ours(
        "GatherBlockQuantized", inputs, block_size=BLOCK, gather_axis=gather, quantize_axis=blocks
    )["y"]
    assert np.array_equal(found, expected)


def test_an_index_out_of_range_is_refused() -> None:
    """onnxruntime returns zeros there."""
    with pytest.raises(KvtoolError, match=r"is 9, expected -9 to 8"):
        ours("GatherBlockQuantized", packed_inputs(4, False, [0, 9]), block_size=BLOCK)


@each(
    ("changes", "message"),
    [
        pytest.param({"bits": 3}, "`bits` of `GatherBlockQuantized` is `3`", id="three bits"),
        pytest.param({"block_size": 24}, "blocks of 24 along axis 1", id="a block of 24"),
        pytest.param({"block_size": 32}, "blocks of 32 along axis 1", id="other blocks"),
        pytest.param({"gather_axis": 1, "quantize_axis": 0}, "another axis than 0", id="axes"),
        pytest.param({"gather_axis": 2}, "`gather_axis` is 2", id="an axis beyond the rank"),
        pytest.param(
            {"zero_points": np.zeros((ROWS, BLOCKS), np.uint8)}, "`zero_points`", id="zero points"
        ),
        pytest.param(
            {"data": np.zeros((ROWS, COLUMNS), ml_dtypes.float8_e4m3fn)},
            "of FLOAT8E4M3FN has no standard form",
            id="floats of 8 bits",
        ),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    arrays = {n: v for n, v in changes.items() if isinstance(v, np.ndarray)}
    attributes = {"block_size": BLOCK} | {n: v for n, v in changes.items() if n not in arrays}
    with pytest.raises(KvtoolError, match=message):
        ours("GatherBlockQuantized", packed_inputs(4, False) | arrays, **attributes)
