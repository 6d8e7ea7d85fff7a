"""What kernels of operators refuse that exporters wrote while ONNX had none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_kvtool.core.errors import KvtoolError
from tests.grids import each
from tests.runtime.kernels.contrib.node import ours

X = np.ones((2, 3), np.float32)
IMAGE, GRID = np.ones((1, 2, 3, 5), np.float32), np.zeros((1, 2, 2, 2), np.float32)


@each(
    ("op_type", "inputs", "attributes", "said"),
    {
        "rows of different lengths": ("CDist", {"A": X, "B": X.T}, {}, "rows alike"),
        "a metric": ("CDist", {"A": X, "B": X}, {"metric": "cosine"}, "`metric`"),
        "three parts of a number": ("ComplexMul", {"A": X, "B": X}, {}, "2 parts"),
        "a grid of another batch": (
            "GridSample", {"X": IMAGE, "Grid": np.repeat(GRID, 2, 0)}, {}, "shapes",
        ),
        "a later name of a mode": (
            "GridSample", {"X": IMAGE, "Grid": GRID}, {"mode": "linear"}, "`mode`",
        ),
        "a matrix that is no square": ("Inverse", {"X": X}, {}, "square"),
        "a matrix without an inverse": ("Inverse", {"X": X[:, :2]}, {}, "no inverse"),
        "a normalized transform": ("Rfft", {"X": X}, {"normalized": 1}, "`normalized`"),
        "a transform of too many axes": ("Rfft", {"X": X}, {"signal_ndim": 3}, "`signal_ndim`"),
        "a window longer than the axis": ("UnfoldTensor", {"input": X}, {"size": 4}, "`size`"),
    },
)  # fmt: skip
def test_refused(op_type: str, inputs: Any, attributes: Any, said: str) -> None:
    with pytest.raises(KvtoolError, match=said):
        ours(op_type, inputs, ("y",), **attributes)
