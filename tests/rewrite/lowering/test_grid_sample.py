"""GridSample-20, for older opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rewrite.lowering.single import check, one_node, refusal

_RNG = np.random.default_rng(23)
_IMAGE = _RNG.normal(size=(2, 3, 5, 7)).astype(np.float32)
_GRID = _RNG.uniform(-1.2, 1.2, (2, 4, 6, 2)).astype(np.float32)


@pytest.mark.parametrize("mode", [None, "linear", "nearest", "cubic"])
@pytest.mark.parametrize("target", [16, 19])
def test_grid_sample_keeps_its_mode_under_its_old_name(mode: str | None, target: int) -> None:
    inputs = {"X": _IMAGE, "grid": _GRID}
    attributes = {} if mode is None else {"mode": mode}
    model = one_node("GridSample", inputs, [np.float32], opset=20, **attributes)
    check(model, inputs, target, rtol=1e-4)


_VOLUME = {"X": np.zeros((1, 1, 2, 3, 5)), "grid": np.zeros((1, 2, 2, 2, 3))}


@pytest.mark.parametrize(
    ("inputs", "dims", "target", "code", "lowest"),
    [
        (_VOLUME, None, 19, "rank", 20),
        (_VOLUME, {"X": None}, 19, "unknown-rank", 20),
        ({"X": _IMAGE, "grid": _GRID}, None, 15, "new-operator", 16),
    ],
    ids=["a volume", "an unknown rank", "before the operator"],
)
def test_grid_sample_is_refused(
    inputs: Any, dims: Any, target: int, code: str, lowest: int
) -> None:
    feeds = {name: value.astype(np.float32) for name, value in inputs.items()}
    model = one_node("GridSample", feeds, [np.float32], opset=20, dims=dims)
    found = refusal(model, target)
    assert (found.code, found.lowest_opset) == (code, lowest)
