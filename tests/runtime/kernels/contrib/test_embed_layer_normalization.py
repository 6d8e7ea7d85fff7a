"""EmbedLayerNormalization against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_kvtool.core.errors import KvtoolError
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"input_ids": ids([3, 1, 4, 1, 5], [9, 2, 11, 5, 10])},
            r"`input_ids`\[1, 2\] is 11, expected 0 to 10: axis 0 of `word_embedding`",
            id="a word that is not there",
        ),
        pytest.param(
            {"segment_ids": ids([0, 0, 1, 1, 2], [2, 1, 0, 0, -1])},
            r"`segment_ids`\[1, 4\] is -1, expected 0 to 2",
            id="a segment from the back",
        ),
        pytest.param(
            {"position_embedding": table(4)},
            r"`position_ids`\[0, 4\] is 4, expected 0 to 3",
            id="more tokens than positions",
        ),
        pytest.param({"segment_embedding": None}, "expected both `segment_ids`", id="no segments"),
        pytest.param({"position_ids": ids([3])}, "`position_ids` has shape", id="one position"),
        pytest.param({"mask": ids([1, 1, 1, 1, 1])}, "`mask` has shape", id="a mask of one row"),
        pytest.param({"beta": table(1)}, "`beta` has shape", id="a shift of two dimensions"),
        pytest.param({"input_ids": ids([1])[0]}, "expected two dimensions", id="a flat sentence"),
    ],
)
def test_refusals(changes: Arrays, message: str) -> None:
    with pytest.raises(KvtoolError, match=message):
        ours("EmbedLayerNormalization", INPUTS | changes, OUTPUTS)
