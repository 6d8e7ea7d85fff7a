"""AveragePool, LpPool and MaxPool that round up or skip pixels, for opsets that know neither."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from onnx_kvtool.emit.emitter import Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import cast, computed_in, dtype_of, known_type
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.symbolic.dimensions import Dim, dim_of, dims_of

_FIRST_WITHOUT = 22
"""The opset whose texts of AveragePool and MaxPool leave out windows that begin in the padding.

Earlier texts count them, and so does every text of LpPool. onnxruntime and onnx's reference leave
them out at every opset.
"""


_Moves = dict[str, Any]
"""How windows move, as attributes."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """How a window moves along one axis.

    Attributes:
        kernel: Elements of the window.
        dilation: Elements from one of the window to the next.
        count: Number of windows; None where it is unknown.
    """

    dim: Dim
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    count: int | None

    @property
    def end(self) -> int:
        """Padding behind that lets as many windows as there are fit in, rounded down."""
        if self.count is None or not isinstance(self.dim, int):
            return self.after
        reach = (self.count - 1) * self.stride + (self.kernel - 1) * self.dilation + 1
        return max(0, reach - self.dim - self.before)

    def places(self) -> NDArray[np.int64]:
        """Return where each element of each window is in the input: (windows, kernel)."""
        starts = np.arange(self.count or 0) * self.stride - self.before
        taps: NDArray[np.int64] = starts[:, None] + np.arange(self.kernel) * self.dilation
        return taps

    def counted(self, with_padding: bool) -> NDArray[np.int64]:
        """Return how many elements of each window count: those of the input, or padding as well.

        What a window reaches behind the padding, because of rounding up, never counts.
        """
        assert isinstance(self.dim, int)
        before, after = (self.before, self.after) if with_padding else (0, 0)
        places = self.places()
        inside = (places >= -before) & (places < self.dim + after)
        counts: NDArray[np.int64] = inside.sum(1)
        return counts


def lower_pool_22(view: Rewritten, em: Emitter) -> Replacement:
    """Pad such that rounding down gives as many windows; skip pixels in a Conv with ones.

    MaxPool:      the largest of rows that are gathered, one axis after the other
    AveragePool:  Conv(x, ones) / number of elements of the window that count
    LpPool:       Conv(|x| ^ p, ones) ^ (1 / p)

    Refuses to round up where the sizes are unknown, and a window that begins in the padding behind,
    which texts below opset 22 count and runtimes leave out; of windows with gaps an unknown number
    of channels, `auto_pad` with strides where the sizes are unknown, and the indices of MaxPool
    before opset 10.
    """
    data, op_type = view.required("X"), view.node.op_type
    dtype = known_type(data)
    axes, auto_pad = _axes(view, data, op_type)
    has_gaps = any(axis.dilation != 1 for axis in axes)
    padded = [*(a.before for a in axes), *(a.end for a in axes)]
    is_changed = padded[len(axes) :] != [a.after for a in axes]
    with_padding = op_type == "AveragePool" and view.integer("count_include_pad") != 0
    moves = _moves(axes, padded, auto_pad)
    lacks_gaps = em.opset < {"AveragePool": 19, "LpPool": 18, "MaxPool": 10}[op_type]
    fits = all(p < a.kernel for p, a in zip(padded, (*axes, *axes), strict=True))
    if fits and not (is_changed and with_padding) and not (has_gaps and lacks_gaps):
        return _again(view, em, op_type, moves)
    if op_type == "MaxPool":
        return Replacement((_largest(view, em, data, axes, padded),), via="gathered")
    channels = dim_of(data, 1)
    if not isinstance(channels, int):
        text = f"windows with gaps depend on the number of channels of `{data.name}`"
        raise Refusal("unknown-dimension", text, help="declare the shape of the input")
    if has_gaps and auto_pad != "NOTSET":  # onnxruntime computes no Conv with both
        text = f"`auto_pad` of windows with gaps depends on the sizes of `{data.name}`"
        raise Refusal("unknown-dimension", text, help="declare the shape of the input")
    wide = computed_in(dtype)
    x, power = cast(em, data, wide), float(view.integer("p", 1))
    if op_type == "LpPool":
        x = em.op("Pow", em.op("Abs", x), np.array(power, wide.numpy()))
    result = _sums(em, x, channels, moves)
    if op_type == "LpPool":
        result = em.op("Pow", result, np.array(1 / power, wide.numpy()))
    else:
        counted = _counts(em, data, axes, moves, with_padding, wide)
        result = em.op("Div", result, counted)
    return Replacement((cast(em, result, dtype),), via="conv")


def _axes(view: NodeView, data: ir.Value, op_type: str) -> tuple[list[_Axis], str]:
    """Return how the window moves along each axis, and `auto_pad` where it decides on the pads."""
    kernel = view.integers("kernel_shape")
    rank = len(kernel)
    dims = dims_of(data) or (None,) * (rank + 2)
    strides = view.integers("strides") or [1] * rank
    dilations = view.integers("dilations") or [1] * rank
    pads = view.integers("pads") or [0] * 2 * rank
    auto_pad = view.string("auto_pad")
    has_ceil = view.integer("ceil_mode", 0) != 0
    axes = []
    for i in range(rank):
        dim, reach = dims[2 + i], (kernel[i] - 1) * dilations[i] + 1
        before, after, count = pads[i], pads[rank + i], None
        if auto_pad == "VALID":
            before = after = 0
        if auto_pad.startswith("SAME") and (isinstance(dim, int) or strides[i] == 1):
            # As many windows as elements need the same padding, however many there are.
            size = dim if isinstance(dim, int) else 1
            both = max(0, (-(-size // strides[i]) - 1) * strides[i] + reach - size)
            before = both // 2 if auto_pad == "SAME_UPPER" else both - both // 2
            after = both - before
        if isinstance(dim, int):
            count = (dim + before + after - reach) // strides[i] + 1
        if has_ceil and auto_pad == "NOTSET" and strides[i] != 1:
            if not isinstance(dim, int):
                text = f"`ceil_mode=1` depends on the sizes of `{data.name}`, which are unknown"
                raise Refusal("changed-meaning", text, help="declare the shape of the input")
            room = dim + before + after - reach
            count = -(-room // strides[i]) + 1
            if (count - 1) * strides[i] >= dim + before:
                if view.opset < _FIRST_WITHOUT or op_type == "LpPool":
                    text = (
                        f"a window begins in the padding behind: the text of {op_type} at opset "
                        f"{view.opset} counts it, and onnxruntime leaves it out"
                    )
                    raise Refusal("changed-meaning", text)
                count -= 1
        axes.append(_Axis(dim, kernel[i], strides[i], dilations[i], before, after, count))
    known = all(axis.count is not None or axis.stride == 1 for axis in axes)
    return axes, "NOTSET" if known or not auto_pad.startswith("SAME") else auto_pad


def _again(view: NodeView, em: Emitter, op_type: str, moves: _Moves) -> Replacement:
    """Return the same pool with pads that make rounding up needless."""
    attributes = dict(moves)
    if set(moves["dilations"]) == {1}:
        del attributes["dilations"]
    for name in ("count_include_pad", "p", "storage_order"):
        if number := view.integer(name, 0):
            attributes[name] = number
    data = view.required("X")
    count = len(view.node.outputs)
    return Replacement(em.multi(op_type, data, attributes=attributes, count=count))


def _largest(
    view: NodeView, em: Emitter, data: ir.Value, axes: list[_Axis], padded: list[int]
) -> ir.Value:
    """Return the largest element of each window, one axis after the other."""
    dtype = dtype_of(data)
    if len(view.node.outputs) > 1 and view.node.outputs[1].uses():
        raise Refusal("attribute", "the indices of such windows need MaxPool of opset 10")
    if dtype not in FLOAT_TYPES:
        raise Refusal("element-type", f"MaxPool of {dtype.name} has no padding value")
    if any(axis.count is None for axis in axes):
        text = f"windows with gaps depend on the sizes of `{data.name}`, which are unknown"
        raise Refusal("unknown-dimension", text, help="declare the shape of the input")
    if any(padded):
        rank = len(axes)
        pads, lowest = [0, 0, *padded[:rank], 0, 0, *padded[rank:]], -np.inf
        if em.opset < 11:
            data = em.op("Pad", data, pads=pads, value=lowest)
        else:
            filling = em.constant(np.array(lowest, dtype.numpy()), "lowest")
            data = em.op("Pad", data, pads, filling)
    for place, axis in enumerate(axes, 2):
        rows = axis.places() + axis.before
        taps = [em.op("Gather", data, rows[:, tap], axis=place) for tap in range(axis.kernel)]
        data = em.op("Max", *taps) if len(taps) > 1 else taps[0]
    return data


def _sums(em: Emitter, x: ir.Value, channels: int, moves: _Moves) -> ir.Value:
    """Return the sum of each window: (N, C, ...), where C is `channels`."""
    ones = np.ones((channels, 1, *moves["kernel_shape"]), dtype_of(x).numpy())
    return em.op("Conv", x, ones, attributes=moves, group=channels)


def _moves(axes: list[_Axis], padded: list[int], auto_pad: str) -> _Moves:
    """Return the attributes that say how a window moves."""
    return {
        "kernel_shape": [axis.kernel for axis in axes],
        "strides": [axis.stride for axis in axes],
        "dilations": [axis.dilation for axis in axes],
        **({"pads": padded} if auto_pad == "NOTSET" else {"auto_pad": auto_pad}),
    }


def _counts(
    em: Emitter,
    data: ir.Value,
    axes: list[_Axis],
    moves: _Moves,
    with_padding: bool,
    dtype: ir.DataType,
) -> ir.Value:
    """Return how many elements of each window count, of a shape that the sums are divided by."""
    everything = np.array(math.prod(axis.kernel for axis in axes), dtype.numpy())
    padded = moves.get("pads")
    given = [*(a.before for a in axes), *(a.after for a in axes)]
    if padded is not None and (not any(padded) or (with_padding and padded == given)):
        return em.constant(everything, "count")
    if all(axis.count is not None for axis in axes):
        total = None
        for place, axis in enumerate(axes):
            shape = [1] * (len(axes) + 2)
            shape[place + 2] = -1
            counted = axis.counted(with_padding).reshape(shape).astype(dtype.numpy())
            one = em.constant(counted, "count")
            total = one if total is None else em.op("Mul", total, one)
        assert total is not None
        return total
    sizes = em.op("Gather", em.op("Shape", data), np.arange(2, len(axes) + 2))
    shape_ = em.op("Concat", [1, 1], sizes, axis=0)
    one_ = ir.Tensor(np.ones(1, dtype.numpy()))
    ones = em.op("ConstantOfShape", shape_, value=one_)
    return _sums(em, ones, 1, moves)
