"""What kernels of operators refuse that exporters wrote while ONNX had none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_kvtool.core.errors import KvtoolError
from tests.grids import each
from tests.runtime.kernels.contrib.node import ours

X = np.ones((2, 3), np.float32)
WIDE = np.ones((2, 2), np.uint16)
IMAGE, GRID = np.ones((1, 2, 3, 5), np.float32), np.zeros((1, 2, 2, 2), np.float32)


@each(
    ("op_type", "inputs", "attributes", "said"),
    {
        "rows of different lengths": ("CDist", {"A": X, "B": X.T}, {}, "rows alike"),
        "a metric": ("CDist", {"A": X, "B": X}, {"metric": "cosine"}, "`metric`"),
        "three parts of a number": ("ComplexMul", {"A": X, "B": X}, {}, "2 parts"),
        "two axes": ("ExpandDims", {"X": X, "axis": np.zeros(2, np.int32)}, {}, "one element"),
        "an axis too far": ("ExpandDims", {"X": X, "axis": np.array(3, np.int32)}, {}, "axis"),
        "an index too far": (
            "GatherND", {"data": X, "indices": np.array([[2]])}, {}, "`indices`",
        ),
        "a grid of another batch": (
            "GridSample", {"X": IMAGE, "Grid": np.repeat(GRID, 2, 0)}, {}, "shapes",
        ),
        "a later name of a mode": (
            "GridSample", {"X": IMAGE, "Grid": GRID}, {"mode": "linear"}, "`mode`",
        ),
        "both flags": ("IsAllFinite", {"x": X}, {"isinf_only": 1, "isnan_only": 1}, "both set"),
        "a matrix that is no square": ("Inverse", {"X": X}, {}, "square"),
        "a matrix without an inverse": ("Inverse", {"X": X[:, :2]}, {}, "no inverse"),
        "an uncertain type": ("MatMulInteger16", {"A": WIDE, "B": WIDE}, {}, "uint16"),
        "a normalized transform": ("Rfft", {"X": X}, {"normalized": 1}, "`normalized`"),
        "a transform of too many axes": ("Rfft", {"X": X}, {"signal_ndim": 3}, "`signal_ndim`"),
        "a window longer than the axis": ("UnfoldTensor", {"input": X}, {"size": 4}, "`size`"),
        "elements of a matrix": ("Unique", {"x": X}, {}, "one axis"),
    },
)  # fmt: skip
def test_refused(op_type: str, inputs: Any, attributes: Any, said: str) -> None:
    outputs = ("y", "idx", "counts") if op_type == "Unique" else ("y",)
    with pytest.raises(KvtoolError, match=said):
        ours(op_type, inputs, outputs, **attributes)
