"""EmbedLayerNormalization against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.runtime.kernels.contrib.node import needs_onnxruntime, ours, theirs

B, L, HIDDEN = 2, 5, 8

Arrays = dict[str, "np.ndarray[Any, Any] | None"]

OUTPUTS = ("y", "mask_index", "sum")


def ids(*rows: list[int]) -> np.ndarray[Any, Any]:
    return np.array(rows, np.int32)


def table(rows: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(rows).standard_normal((rows, HIDDEN)).astype(np.float32)


INPUTS: Arrays = {
    "input_ids": ids([3, 1, 4, 1, 5], [9, 2, 6, 5, 10]),
    "segment_ids": ids([0, 0, 1, 1, 2], [2, 1, 0, 0, 0]),
    "word_embedding": table(11),
    "position_embedding": table(9),
    "segment_embedding": table(3),
    "gamma": table(1)[0],
    "beta": table(2)[1],
    "mask": None,
    "position_ids": None,
}
WITHOUT_SEGMENTS = {"segment_ids": None, "segment_embedding": None}


@needs_onnxruntime
@pytest.mark.parametrize(("dtype", "limit"), [(np.float32, 1e-5), (np.float16, 1e-2)])
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="three tables"),
        pytest.param(WITHOUT_SEGMENTS, id="no segments"),
        pytest.param({"mask": ids([1, 1, 1, 0, 0], [1, 0, 1, 1, 0])}, id="a mask"),
        pytest.param({"mask": ids([2, 1, 1, 0, 0], [-1, 0, 3, 1, 0])}, id="a mask of numbers"),
        pytest.param({"position_ids": ids([3, 1, 4, 1, 5])}, id="positions for all"),
        pytest.param({"position_ids": ids([3, 1, 4, 1, 5], [2, 7, 1, 8, 0])}, id="positions"),
    ],
)
def test_against_onnxruntime(changes: Arrays, dtype: Any, limit: float) -> None:
    inputs = {
        name: value.astype(dtype) if value is not None and value.dtype == np.float32 else value
        for name, value in (INPUTS | changes).items()
    }
    found, expected = (
        run("EmbedLayerNormalization", inputs, OUTPUTS, epsilon=1e-2) for run in (ours, theirs)
    )
    for name in OUTPUTS:
        assert found[name].dtype == expected[name].dtype
        np.testing.assert_allclose(found[name], expected[name], rtol=limit, atol=limit)
