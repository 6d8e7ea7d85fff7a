"""AffineGrid below opset 20: where the places lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_kvtool.runtime import onnxruntime
from tests.grids import part
from tests.rewrite.lowering.single import check, one_node


def _grid(theta: Any, size: Any, corners: bool) -> Any:
    lines = []
    for count in size[2:]:
        if corners:
            line = np.linspace(-1, 1, count) if count > 1 else np.array([-1.0])
        else:
            line = -1 + 1 / count + np.arange(count) * 2 / count
        lines.append(line)
    places = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(size[2:])], -1)
    return np.einsum("nij,...j->n...i", theta, places).astype(theta.dtype)


@pytest.mark.long
@pytest.mark.parametrize("is_constant", [False, True], ids=["given", "constant"])
@pytest.mark.parametrize("target", [9, 10, 11, 13])
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("sizes", [[5, 4], [1, 4], [3, 5, 4], [1, 5, 4], [3, 1, 1]])
@part(8)
def test_every_place_is_the_one_that_the_text_names(
    sizes: list[int], corners: int, target: int, is_constant: bool
) -> None:
    rng = np.random.default_rng(len(sizes) + corners)
    rank = len(sizes)
    theta = rng.standard_normal((2, rank, rank + 1)).astype(np.float32)
    inputs = {"theta": theta, "size": np.array([2, 7, *sizes])}
    model = one_node(
        "AffineGrid", inputs, [np.float32], opset=20, align_corners=corners,
        constants=["size"] if is_constant else [],
    )  # fmt: skip
    check(model, inputs, target, [_grid(theta, inputs["size"], bool(corners))], rtol=1e-5)
    if 1 not in sizes:  # onnxruntime puts a single row at 1
        feeds = {name: value for name, value in inputs.items() if not is_constant or name != "size"}
        found = onnxruntime.Session(model.SerializeToString(), "").run(feeds)
        expected = _grid(theta, inputs["size"], bool(corners))
        np.testing.assert_allclose(found["out0"], expected, rtol=1e-5, atol=1e-5)
