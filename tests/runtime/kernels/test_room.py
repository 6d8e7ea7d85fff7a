"""Results that no machine has room for are refused before anything is allocated."""

from __future__ import annotations

import numpy as np
import pytest

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels import axes
from onnx_kvtool.runtime.kernels.elementwise.binary import check_operands
from onnx_kvtool.runtime.kernels.linear import check_factors
from onnx_kvtool.runtime.kernels.movement.choosing import constant_of_shape, one_hot, range_11
from onnx_kvtool.runtime.kernels.movement.reshaping import expand, reshape_5, tile, unsqueeze_1
from onnx_kvtool.runtime.kernels.movement.slicing import pad_11
from tests.grids import each

_BITS = 2**62
_PAIR = np.ones(2, np.float32)


def _numbers(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def _column(size: int) -> np.ndarray:
    return np.broadcast_to(np.ones(1, np.float32), (size, 1))


_VAST = {
    "ConstantOfShape": lambda: constant_of_shape(_numbers(_BITS), value=None),
    "ConstantOfShape of many axes": lambda: constant_of_shape(_numbers(*[2**20] * 5), value=None),
    "Expand": lambda: expand(_PAIR, _numbers(2**40, 1)),
    "Tile": lambda: tile(_PAIR, _numbers(_BITS)),
    "Pad": lambda: pad_11(_PAIR, _numbers(2**50, 0), mode="constant"),
    "Pad by repeating": lambda: pad_11(_PAIR, _numbers(2**50, 0), mode="edge"),
    "Range": lambda: range_11(*(np.array(n) for n in (0, _BITS, 1))),
    "Range of floats": lambda: range_11(*(np.array(n) for n in (0.0, 1e30, 1.0))),
    "OneHot": lambda: one_hot(_numbers(1), np.array(2**50), _PAIR, axis=-1),
    "a sum of a row and a column": lambda: check_operands(
        [_column(2**30), _column(2**30).T], ("A", "B")
    ),
    "a product of a column and a row": lambda: check_factors(_column(2**30), _column(2**30).T),
}


@each("call", _VAST)
def test_a_result_without_room_is_refused(call) -> None:
    with pytest.raises(KernelError, match=r"takes [\d.]+ [A-Z]iB") as caught:
        call()
    assert caught.value.help


@each(
    "call",
    [
        pytest.param(lambda ones: reshape_5(_PAIR[:1], ones, allowzero=0), id="Reshape"),
        pytest.param(lambda ones: expand(_PAIR[:1], ones), id="Expand"),
        pytest.param(lambda ones: constant_of_shape(ones, value=None), id="ConstantOfShape"),
        pytest.param(lambda ones: unsqueeze_1(_PAIR, axes=tuple(range(len(ones)))), id="Unsqueeze"),
    ],
)
def test_more_axes_than_numpy_has_are_refused(call) -> None:
    with pytest.raises(KernelError, match=f"{axes.MOST_AXES} at most"):
        call(_numbers(*[1] * (axes.MOST_AXES + 1)))


def test_what_is_left_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, dtype = (1 << 25, 4), np.dtype(np.float32)  # 512 MiB
    monkeypatch.setattr(axes, "available_memory", lambda: 1 << 30)
    axes.require_room(sizes, dtype)
    monkeypatch.setattr(axes, "available_memory", lambda: 1 << 28)
    with pytest.raises(KernelError, match="takes 512 MiB, and 256 MiB are left"):
        axes.require_room(sizes, dtype)
    monkeypatch.setattr(axes, "available_memory", lambda: None)
    axes.require_room(sizes, dtype)
