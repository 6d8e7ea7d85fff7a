"""Every rule below opset 11, on drawn nodes: what the text says, and onnxruntime on the result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.lowering.early.steps import STEPS
from onnx_kvtool.runtime import onnxruntime
from tests.grids import part, search
from tests.rewrite.lowering.early_boxes import DRAWN_BOXES
from tests.rewrite.lowering.early_draws import DRAWN, Array, Case, Draw
from tests.rewrite.lowering.single import check, one_node, refusal

pytestmark = pytest.mark.long

_FLOATS = [np.float32, np.float64]
_ALL = [np.float32, np.float16, np.int64, np.int32, np.uint8, np.bool_]


def _array(rng: np.random.Generator, shape: Sequence[int], dtype: Any = np.float32) -> Array:
    return np.asarray(rng.standard_normal(tuple(shape)) * 3).astype(dtype)


def _shape(draw: st.DrawFn, least: int = 1, most: int = 3) -> list[int]:
    rank = draw(st.integers(least, most))
    return [draw(st.integers(1, 4)) for _ in range(rank)]


def _axis(draw: st.DrawFn, rank: int) -> int:
    return draw(st.integers(-rank, rank - 1))


def _maybe(draw: st.DrawFn, *names: str) -> list[str]:
    return [name for name in names if draw(st.booleans())]


def _range(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    dtype: Any = draw(st.sampled_from([np.int64, np.int32, np.float32]))
    start, limit = draw(st.integers(-9, 9)), draw(st.integers(-9, 9))
    delta = draw(st.sampled_from([-4, -1, 1, 3]))
    inputs = {
        name: np.array(n, dtype)
        for name, n in (("start", start), ("limit", limit), ("delta", delta))
    }
    expected = np.arange(start, limit, delta).astype(dtype)
    return Case("Range", inputs, [dtype], constants=_maybe(draw, *inputs), expected=[expected])


def _slice(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    shape = _shape(draw)
    axes = draw(st.lists(st.integers(0, len(shape) - 1), unique=True, min_size=1))
    steps = [draw(st.sampled_from([1, 1, 2, -1, -3])) for _ in axes]
    # onnxruntime 1.31.1 takes the largest end of a slice backwards for the one before the first.
    near, far = st.integers(-6, 6), st.sampled_from([-(2**63), -(2**31), 2**31 - 1, 2**63 - 1])
    starts = [draw(near | far) for _ in steps]
    ends = [draw(near | far if step > 0 else near) for step in steps]
    bounds = [starts, ends]
    signed = [axis - len(shape) if draw(st.booleans()) else axis for axis in axes]
    inputs = {
        "data": _array(rng, shape, draw(st.sampled_from(_ALL))),
        "starts": np.array(bounds[0], np.int64),
        "ends": np.array(bounds[1], np.int64),
        "axes": np.array(signed, np.int64),
        "steps": np.array(steps, np.int64),
    }
    data = inputs["data"]
    expected = data
    for axis, *given_bounds, step in zip(axes, *bounds, steps, strict=True):
        size, last = shape[axis], shape[axis] - 1
        start, end = (n + size if n < 0 else n for n in given_bounds)
        if step > 0:
            start, end = min(max(start, 0), size), min(max(end, 0), size)
        else:
            start, end = min(max(start, 0), last), min(max(end, -1), last)
        expected = np.take(expected, np.arange(start, end, step), axis)
    constants = _maybe(draw, "axes", "steps", "starts", "ends")
    return Case("Slice", inputs, [data.dtype], constants=constants, expected=[expected])


def _pad(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    shape = _shape(draw)
    pads = [draw(st.integers(-1, 3)) if size > 2 else draw(st.integers(0, 3)) for size in shape * 2]
    dtype: Any = draw(st.sampled_from([np.float32, np.float32, np.int64, np.int32]))
    data, fill = _array(rng, shape, dtype), np.array(draw(st.integers(-2, 2)), dtype)
    ends = list(zip(pads[: len(shape)], pads[len(shape) :], strict=True))
    kept = [slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(ends, shape, strict=True)]
    more = [(max(a, 0), max(b, 0)) for a, b in ends]
    expected = np.pad(data[tuple(kept)], more, constant_values=fill)
    mode = draw(st.sampled_from(["constant", "constant", "edge", "reflect"]))
    if mode != "constant":
        reach = [size - (mode == "reflect") for size in shape * 2]
        pads = [min(max(pad, 0), most) for pad, most in zip(pads, reach, strict=True)]
        ends = list(zip(pads[: len(shape)], pads[len(shape) :], strict=True))
        expected = np.pad(data, ends, mode=mode)
    inputs = {"data": data, "pads": np.array(pads, np.int64), "constant_value": fill}
    constants = _maybe(draw, "pads", "constant_value")
    attributes = {"mode": mode}
    return Case(
        "Pad", inputs, [dtype], constants=constants, attributes=attributes, expected=[expected]
    )


def _gather(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    shape = _shape(draw)
    axis = _axis(draw, len(shape))
    size = shape[axis]
    kind: Any = draw(st.sampled_from([np.int64, np.int32]))
    indices = rng.integers(-size, size, _shape(draw, 0, 2)).astype(kind)
    inputs = {"data": _array(rng, shape, draw(st.sampled_from(_ALL))), "indices": indices}
    constants = _maybe(draw, "indices")
    outputs = [inputs["data"].dtype]
    return Case("Gather", inputs, outputs, constants=constants, attributes={"axis": axis})


def _gather_elements(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    shape = _shape(draw)
    axis = _axis(draw, len(shape))
    counts = [draw(st.integers(1, size)) for size in shape]
    indices = rng.integers(-shape[axis], shape[axis], counts)
    inputs = {"data": _array(rng, shape), "indices": indices}
    attributes = {"axis": axis}
    constants = _maybe(draw, "indices")
    where = np.where(indices < 0, indices + shape[axis], indices)
    grid = list(np.indices(counts))
    grid[axis] = where
    expected = [inputs["data"][tuple(grid)]]
    return Case(
        "GatherElements", inputs, [np.float32], constants=constants, attributes=attributes,
        expected=expected,
    )  # fmt: skip


def _tuples(draw: st.DrawFn, rng: np.random.Generator, shape: list[int]) -> Array:
    """Return tuples of indices of which no two name the same place."""
    length = draw(st.integers(1, len(shape)))
    places = np.stack(list(np.ndindex(*shape[:length])))
    chosen = rng.permutation(places)[: draw(st.integers(1, 3))]
    negative = rng.integers(0, 2, chosen.shape) * np.array(shape[:length])
    return np.asarray(chosen - negative, np.int64)


def _gather_nd(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    shape = _shape(draw)
    indices = _tuples(draw, rng, shape)
    inputs = {"data": _array(rng, shape, draw(st.sampled_from(_ALL))), "indices": indices}
    outputs = [inputs["data"].dtype]
    expected = [inputs["data"][tuple(indices.T)]]
    constants = _maybe(draw, "indices")
    return Case("GatherND", inputs, outputs, constants=constants, expected=expected)


def _scatter_nd(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    shape = _shape(draw)
    indices = _tuples(draw, rng, shape)
    data = _array(rng, shape, draw(st.sampled_from(_ALL)))
    updates = _array(rng, [len(indices), *shape[indices.shape[1] :]], data.dtype)
    expected = data.copy()
    expected[tuple(indices.T)] = updates
    inputs = {"data": data, "indices": indices, "updates": updates}
    constants = _maybe(draw, "indices")
    return Case("ScatterND", inputs, [data.dtype], constants=constants, expected=[expected])


def _scatter_elements(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    shape = _shape(draw)
    axis = _axis(draw, len(shape))
    count = draw(st.integers(1, shape[axis]))
    places = np.argsort(rng.standard_normal(shape), axis=axis)
    indices = np.take(places, range(count), axis=axis)  # none twice
    indices = indices - rng.integers(0, 2, indices.shape) * shape[axis]
    data = _array(rng, shape, draw(st.sampled_from(_ALL)))
    inputs = {"data": data, "indices": indices, "updates": _array(rng, indices.shape, data.dtype)}
    expected = data.copy()
    np.put_along_axis(expected, indices, inputs["updates"], axis)
    attributes = {"axis": axis}
    return Case("ScatterElements", inputs, [data.dtype], attributes=attributes, expected=[expected])


def _one_hot(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    shape, depth = _shape(draw, 1, 2), draw(st.integers(1, 5))
    indices = rng.integers(-2 * depth, 2 * depth, shape)
    axis = draw(st.integers(-len(shape) - 1, len(shape)))
    kind: Any = draw(st.sampled_from([np.int64, np.int32, np.float32]))
    inputs = {
        "indices": indices.astype(kind),
        "depth": np.array(depth, np.int64),
        "values": np.array([2, 5], np.float32),
    }
    front = np.where(indices < 0, indices + depth, indices)
    hot = np.expand_dims(front, axis) == np.arange(depth).reshape(
        [-1 if d == axis % (len(shape) + 1) else 1 for d in range(len(shape) + 1)]
    )
    expected = [np.where(hot, np.float32(5), np.float32(2))]
    return Case("OneHot", inputs, [np.float32], attributes={"axis": axis}, expected=expected)


_OF_64_BITS = np.array([0, 1, -1, 2**31, 2**32, -(2**32), 2**62, 2**62 + 1, -(2**63), 2**63 - 1])


def _top_k(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    shape = _shape(draw)
    dtype: Any = draw(st.sampled_from([np.float32, np.int32, np.int64, np.uint64]))
    axis, values = _axis(draw, len(shape)), rng.integers(-3, 3, shape).astype(dtype)
    if values.itemsize == 8:
        values = rng.choice(_OF_64_BITS, shape).astype(dtype)
    k = draw(st.integers(1, shape[axis]))
    largest = draw(st.integers(0, 1))
    inputs = {"X": values, "K": np.array([k], np.int64)}
    exact = values.astype(object)
    order = np.argsort(-exact if largest else exact, axis=axis, kind="stable")
    places = np.take(order, range(k), axis=axis)
    expected = [np.take_along_axis(values, places, axis), places]
    attributes = {"axis": axis, "largest": largest}
    constants = _maybe(draw, "K")
    return Case(
        "TopK", inputs, [dtype, np.int64], constants=constants, attributes=attributes,
        expected=expected,
    )  # fmt: skip


_SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 1e10, np.inf, -np.inf, np.nan]


def _equal(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    a: Array
    b: Array
    a, b = (rng.choice(_SPECIAL, 7).astype(np.float32) for _ in range(2))
    if draw(st.booleans()):
        a, b = (np.nan_to_num(x, posinf=9, neginf=-9).clip(-99, 99).astype(np.int8) for x in (a, b))
    with np.errstate(invalid="ignore"):
        return Case("Equal", {"A": a, "B": b}, [np.bool_], expected=[a == b])


def _round(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    x = np.concatenate([rng.choice(_SPECIAL, 7), rng.standard_normal(5) * 9]).astype(np.float32)
    return Case("Round", {"X": x}, [np.float32], expected=[np.round(x)])


def _clip(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    x = rng.choice(_SPECIAL, 7).astype(np.float32)
    low: Any = draw(st.sampled_from([None, np.float32(-1.25)]))
    high: Any = draw(st.sampled_from([None, np.float32(0.5)]))
    inputs: dict[str, Array | None] = {"input": x}
    expected = x
    for name, bound, choose in (("min", low, np.maximum), ("max", high, np.minimum)):
        inputs[name] = None if bound is None else np.array(bound)
        # A bound that is left out is the largest number.
        limit = np.finfo(np.float32).max * (1 if name == "max" else -1)
        expected = choose(expected, np.float32(limit) if bound is None else bound)
    while list(inputs.values())[-1] is None:
        inputs.popitem()
    constants = _maybe(draw, *(n for n in ("min", "max") if inputs.get(n) is not None))
    return Case("Clip", inputs, [np.float32], constants=constants, expected=[expected])


def _cum_sum(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    shape = _shape(draw)
    axis = _axis(draw, len(shape))
    x = _array(rng, shape, draw(st.sampled_from([np.float32, np.int64])))
    exclusive, reverse = draw(st.integers(0, 1)), draw(st.integers(0, 1))
    turned = np.flip(x, axis) if reverse else x
    total = np.cumsum(turned, axis, dtype=x.dtype)
    if exclusive:
        first = np.zeros_like(np.take(total, [0], axis))
        total = np.concatenate([first, np.take(total, range(shape[axis] - 1), axis)], axis)
    expected = np.flip(total, axis) if reverse else total
    inputs = {"x": x, "axis": np.array(axis, np.int64)}
    attributes = {"exclusive": exclusive, "reverse": reverse}
    return Case(
        "CumSum", inputs, [x.dtype], constants=["axis"], attributes=attributes,
        expected=[expected], rtol=1e-6,
    )  # fmt: skip


def _depth_to_space(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    block, channels = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    x = _array(rng, [2, channels * block * block, 2, 3])
    attributes = {"blocksize": block, "mode": draw(st.sampled_from(["CRD", "DCR"]))}
    return Case("DepthToSpace", {"input": x}, [np.float32], attributes=attributes)


def _gemm(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    inputs = {"A": _array(rng, [2, 3]), "B": _array(rng, [3, 5])}
    return Case("Gemm", inputs, [np.float32], rtol=1e-5)


def _reduction(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    shape = _shape(draw, 2)
    op = draw(st.sampled_from(["ReduceSum", "ReduceMax", "ReduceMean", "ReduceL1", "ReduceProd"]))
    axes = [axis - len(shape) for axis in draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))]
    attributes = {"axes": axes, "keepdims": draw(st.integers(0, 1))}
    return Case(op, {"data": _array(rng, shape)}, [np.float32], attributes=attributes, rtol=1e-5)


def _axis_of(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    shape = _shape(draw, 2)
    axis = draw(st.integers(-len(shape), -1))
    op = draw(st.sampled_from(["Softmax", "ArgMax", "Concat", "Flatten", "Unsqueeze"]))
    x = _array(rng, shape)
    if op == "Unsqueeze":
        attributes: dict[str, Any] = {"axes": [axis - 1, -1]}
        expected = [np.expand_dims(x, tuple(attributes["axes"]))]
        return Case(op, {"x": x}, [np.float32], attributes=attributes, expected=expected)
    inputs: dict[str, Array | None] = {"x": x, "z": x} if op == "Concat" else {"x": x}
    outputs = [np.int64 if op == "ArgMax" else np.float32]
    if op == "Softmax":  # of all that is behind the axis, which onnx's reference forgets
        rows = np.exp(x.reshape(int(np.prod(shape[: axis % len(shape)])), -1))
        expected = [(rows / rows.sum(-1, keepdims=True)).reshape(shape).astype(np.float32)]
        return Case(op, {"x": x}, outputs, attributes={"axis": axis}, expected=expected, rtol=1e-5)
    return Case(op, inputs, outputs, attributes={"axis": axis}, rtol=1e-5)


def _is_inf(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    x = rng.choice(_SPECIAL, 7).astype(draw(st.sampled_from(_FLOATS)))
    positive, negative = draw(st.integers(0, 1)), draw(st.integers(0, 1))
    expected = (np.isposinf(x) & bool(positive)) | (np.isneginf(x) & bool(negative))
    attributes = {"detect_positive": positive, "detect_negative": negative}
    return Case("IsInf", {"X": x}, [np.bool_], 10, attributes=attributes, expected=[expected])


def _quantize(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    kind: Any = draw(st.sampled_from([np.uint8, np.int8]))
    x = np.append(_array(rng, [7]) * 40, [0.25, 0.75, -0.25]).astype(np.float32)
    zero = np.array(draw(st.integers(0, 9)), kind)
    inputs = {"x": x, "y_scale": np.array(0.5, np.float32), "y_zero_point": zero}
    limits = np.iinfo(kind)
    value = np.round(x / np.float32(0.5)) + zero
    expected = [value.clip(limits.min, limits.max).astype(kind)]
    return Case("QuantizeLinear", inputs, [kind], 10, expected=expected)


def _dequantize(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    kind: Any = draw(st.sampled_from([np.uint8, np.int8]))
    x = rng.integers(0, 127, 7).astype(kind)
    inputs: dict[str, Array | None] = {"x": x, "x_scale": np.array(0.5, np.float32)}
    zero = draw(st.integers(0, 9))
    inputs["x_zero_point"] = np.array(zero, kind)
    expected = [(x.astype(np.float32) - zero) * np.float32(0.5)]
    return Case("DequantizeLinear", inputs, [np.float32], 10, expected=expected)


def _thresholded_relu(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    x = rng.choice(_SPECIAL, 7).astype(np.float32)
    alpha = draw(st.sampled_from([1.0, 2.5, -1.0]))
    expected = [np.where(x > alpha, x, np.float32(0))]
    attributes = {"alpha": alpha}
    return Case(
        "ThresholdedRelu", {"X": x}, [np.float32], 10, attributes=attributes, expected=expected
    )


def _bit_shift(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    kind: Any = draw(st.sampled_from([np.uint8, np.uint32]))
    bits = np.iinfo(kind).bits
    x = rng.integers(0, 2**bits, 7, dtype=np.uint64).astype(kind)
    y = rng.integers(0, bits, 7).astype(kind)
    left = draw(st.booleans())
    expected = [np.left_shift(x, y) if left else np.right_shift(x, y)]
    attributes = {"direction": "LEFT" if left else "RIGHT"}
    return Case("BitShift", {"X": x, "Y": y}, [kind], attributes=attributes, expected=expected)


def _dynamic_quantize(draw: st.DrawFn, rng: np.random.Generator) -> Case:
    x = _array(rng, _shape(draw)) * np.float32(draw(st.sampled_from([0.0, 0.1, 50.0])))
    low, high = np.minimum(x.min(), np.float32(0)), np.maximum(x.max(), np.float32(0))
    scale = (high - low) / np.float32(255) if high > low else np.float32(1)
    place = np.clip(np.rint(0 - low / scale), 0, 255)
    y = np.clip(np.rint(x / scale) + place, 0, 255).astype(np.uint8)
    expected = [y, np.array(scale, np.float32), np.array(place, np.uint8)]
    types = [np.uint8, np.float32, np.uint8]
    return Case("DynamicQuantizeLinear", {"x": x}, types, expected=expected)


_DRAWN: dict[str, Draw] = {
    **DRAWN,
    **DRAWN_BOXES,
    "BitShift": _bit_shift,
    "Clip": _clip,
    "CumSum": _cum_sum,
    "DepthToSpace": _depth_to_space,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "Equal": _equal,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "IsInf": _is_inf,
    "OneHot": _one_hot,
    "Pad": _pad,
    "QuantizeLinear": _quantize,
    "Range": _range,
    "Round": _round,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "ThresholdedRelu": _thresholded_relu,
    "TopK": _top_k,
    "a negative axis": _axis_of,
    "negative axes": _reduction,
}


def test_every_rule_is_drawn() -> None:
    ruled = {op for table in STEPS.values() for op in table}
    axes = {op for op, rule in STEPS[10].items() if rule.name == "negative_axes"}
    of_its_own = {"AveragePool", "MaxPool", "Resize"}  # in test_pool.py and test_resize.py
    assert ruled - axes - of_its_own == {name for name in _DRAWN if "negative" not in name}


def _needs_size(case: Case, target: int) -> bool:
    """Return whether the size of the axis of a TopK has to be known.

    That of opset 9 has its number as an attribute, and 64-bit integers are first sorted as a whole.
    """
    return not case.constants or (target < 10 and case.inputs["X"].dtype in (np.int64, np.uint64))


@pytest.mark.parametrize("name", _DRAWN)
@search(12)
@given(data=st.data(), symbolic=st.booleans(), target=st.sampled_from([9, 10]))
@part(4)
def test_a_drawn_node_is_equal(name: str, data: st.DataObject, symbolic: bool, target: int) -> None:
    seed = data.draw(st.integers(0, 2**16), label="seed")
    rng = np.random.default_rng(seed)
    case = data.draw(st.composite(lambda draw: _DRAWN[name](draw, rng))(), label="case")
    dims: dict[str, Any] = {}
    if symbolic and not case.is_fixed:
        for value in ("data", "x", "X", "A", "input", "boxes", "scores"):
            if (array := case.inputs.get(value)) is not None and value not in case.constants:
                dims[value] = [f"{value}{axis}" for axis in range(array.ndim)]
        if name == "DepthToSpace" or (name == "TopK" and _needs_size(case, target)):
            dims = {}
    model = one_node(
        case.op, case.inputs, case.outputs, opset=case.opset, constants=case.constants,
        dims=dims, **case.attributes,
    )  # fmt: skip
    if case.is_run:
        feeds = {n: v for n, v in case.inputs.items() if n not in case.constants}
        found = onnxruntime.Session(model.SerializeToString(), "").run(feeds)
        for got, one in zip(found.values(), case.expected or (), strict=True):
            np.testing.assert_allclose(got, one, rtol=case.rtol, atol=case.rtol)
    # At its own opset a node is what it was.
    check(model, case.inputs, min(target, case.opset - 1), case.expected, rtol=case.rtol)


@pytest.mark.parametrize(
    ("op", "inputs", "target", "code", "lowest"),
    [
        ("Unique", {"X": np.array(["a", "b"], object)}, 9, "element-type", 11),
    ],
)
def test_what_cannot_be_written_is_refused_with_the_lowest_opset(
    op: str, inputs: dict[str, Array], target: int, code: str, lowest: int
) -> None:
    outputs = [next(iter(inputs.values())).dtype]
    found = refusal(one_node(op, inputs, outputs, opset=11), target)
    assert (found.code, found.lowest_opset) == (code, lowest)
    assert found.location.node == "node"


def test_the_number_of_top_k_is_refused_where_nothing_bounds_it() -> None:
    inputs = {"X": np.ones(3), "K": np.array([1])}
    model = one_node("TopK", inputs, [np.float64, np.int64], opset=11, dims={"X": ["n"]})
    found = refusal(model, 9)
    assert (found.code, found.lowest_opset) == ("dynamic-input", 10)


def test_a_refusal_of_what_a_rule_has_written_names_the_node_of_the_source() -> None:
    """The rule needs a TopK of as many places as there are at run time, which opset 9 lacks."""
    text = (
        '<ir_version: 10, opset_import: ["": 18]> g (float[A, B] x, int64[n, m] i, float[n, m] u)'
        ' => (y) { y = ScatterElements <reduction = "add"> (x, i, u) }'
    )
    model = onnx.parser.parse_model(text)
    found = refusal(model, 9)
    assert found.location.op == "ScatterElements"
    assert found.message.startswith("`ScatterElements` is written with TopK: ")
    assert found.lowest_opset == 10


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "g (float[2, 3] x) => (float[2, 3] y) { y = Scan <num_scan_inputs = 1,"
            " scan_input_axes = [-1], scan_output_axes = [1],"
            " body = b (float[2] e) => (float[2] s) { s = Neg (e) }> (x) }",
            "axes are counted from the front before opset 11",
            id="Scan along a negative axis",
        ),
        pytest.param(
            "g (bool c, float[2] x) => (float[N] y) { y = If (c) <"
            "then_branch = t () => (float[2] a) { a = Neg (x) },"
            "else_branch = e () => (float[4] b) { b = Concat <axis = 0> (x, x) }> }",
            "branches give equal shapes before opset 11",
            id="If of two shapes",
        ),
    ],
)
def test_bodies_that_mean_another_thing_are_refused(text: str, expected: str) -> None:
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 11]> ' + text)
    found = refusal(model, 10)
    assert (found.message, found.lowest_opset) == (expected, 11)


@pytest.mark.parametrize(
    ("attributes", "dims", "expected"),
    [
        ({"output_shape": [9]}, [2, 3, "n"], "the pads depend on the sizes of `X`"),
        ({"auto_pad": "SAME_UPPER", "strides": [3]}, [2, 3, 5], "runtimes do not agree"),
        ({"output_shape": [7], "strides": [1]}, [2, 3, 5], "runtimes do not agree"),
    ],
)
def test_pads_of_a_convolution_that_nothing_says_are_refused(
    attributes: dict[str, Any], dims: list[Any], expected: str
) -> None:
    inputs = {"X": np.ones((2, 3, 5), np.float32), "W": np.ones((3, 2, 2), np.float32)}
    model = one_node(
        "ConvTranspose", inputs, [np.float32], opset=11, dims={"X": dims}, constants=["W"],
        **attributes,
    )  # fmt: skip
    found = refusal(model, 10)
    assert found.message.startswith(expected)
    assert found.lowest_opset == 11


@part(2)
@pytest.mark.parametrize("target", [9, 10])
@pytest.mark.parametrize("index", [4, -5, 7])
@pytest.mark.parametrize(
    "op", ["ScatterND", "GatherND", "GatherElements", "ScatterElements", "Gather"]
)
def test_an_index_out_of_range_fails_and_touches_no_other_row(
    op: str, index: int, target: int
) -> None:
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    is_tuple = op.endswith("ND")
    indices = np.array([[1, index]] if is_tuple else [[index]])
    inputs = {"data": data, "indices": indices}
    if op.startswith("Scatter"):
        inputs["updates"] = np.ones(1 if is_tuple else (1, 1), np.float32)
    attributes = {} if is_tuple else {"axis": 1}
    model = one_node(op, inputs, [np.float32], opset=11, **attributes)
    lowered, _ = lower(ir.from_proto(model), opset=target, verify=False)
    with pytest.raises(KvtoolError):
        onnxruntime.Session(serialize(lowered), "").run(inputs)


@pytest.mark.parametrize("target", [9, 10])
@pytest.mark.parametrize("via", ["auto", "scatternd"])
def test_a_negative_start_of_a_cache_fails(via: Any, target: int) -> None:
    inputs = {
        "past": np.zeros((2, 3, 5, 7), np.float32),
        "update": np.ones((2, 3, 1, 7), np.float32),
        "start": np.array([1, -1], np.int64),
    }
    model = one_node("TensorScatter", inputs, [np.float32], opset=24)
    lowered, _ = lower(ir.from_proto(model), opset=target, via=via, verify=False)
    session = onnxruntime.Session(serialize(lowered), "")
    with pytest.raises(KvtoolError):
        session.run(inputs)
    (cache,) = session.run(inputs | {"start": np.array([1, 4])}).values()
    assert cache.sum() == 2 * 3 * 7
    assert cache[0, :, 1].all() and cache[1, :, 4].all()


@pytest.mark.parametrize("target", ["onnxruntime@1.17", "openvino"])
def test_a_decoder_for_a_release_comes_to_opset_9(target: str, root: Path) -> None:
    """Attention for onnxruntime has no If there, whose branches have to give equal shapes."""
    path = root / "fixtures/models/native/llama_static.onnx"
    result, report = lower(str(path), opset=9, target=target)
    assert report.verification.status == "equal"
    assert (report.target_opset, result.ir_version) == (9, 4)


@pytest.mark.parametrize(("opset", "ir_version"), [(21, 10), (17, 8), (10, 5), (9, 4)])
def test_versions_are_those_of_the_opset(opset: int, ir_version: int) -> None:
    model = one_node("Neg", {"x": np.ones(3, np.float32)}, [np.float32], opset=24)
    result, report = lower(ir.from_proto(model), opset=opset)
    assert result.opset_imports[""] == opset
    assert result.ir_version == ir_version
    assert report.target_opset == opset
    assert report.verification.status == "equal"


def test_a_model_of_opset_10_goes_to_9_alone() -> None:
    inputs = {
        "data": np.arange(6, dtype=np.float32),
        "starts": np.array([1], np.int64),
        "ends": np.array([-1], np.int64),
    }
    model = one_node("Slice", inputs, [np.float32], opset=10, constants=["starts", "ends"])
    check(model, inputs, 9, [inputs["data"][1:-1]])
