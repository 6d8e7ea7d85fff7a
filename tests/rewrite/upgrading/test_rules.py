"""Each rule: one node of an old opset, before and after, in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnx_kvtool.rewrite.upgrading.upgrades import UPGRADES
from tests.grids import each
from tests.rewrite.lowering.single import one_node
from tests.rewrite.upgrading.single import check

_RNG = np.random.default_rng(7)


def _data(*shape: int) -> np.ndarray:
    return _RNG.normal(size=shape).astype(np.float32)


def _ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


F = np.float32
I = np.int64  # noqa: E741  # beside F
_CUBE = _data(2, 3, 5)
_IMAGE = _data(2, 3, 5, 7)
_INFINITE = np.array([[-np.inf, -2, 0.5], [3, np.inf, np.nan]], np.float32)
_SCALES = np.array([1, 1, 2, 3], np.float32)


@dataclass(frozen=True)
class Case:
    """One node.

    Attributes:
        op: The operator.
        opset: What it is written for.
        inputs: By name, in order.
        attributes: Of the node.
        outputs: Element types.
        constants: Inputs that are initializers.
        expected: The outputs; None to run the source.
        dims: Declared dimensions that are not those of the values.
        rtol: Tolerance; 0 compares bit for bit.
        ops: Operators of the result, where they matter.
        target: The opset to come to.
    """

    op: str
    opset: int
    inputs: Mapping[str, np.ndarray | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[Any, ...] = (F,)
    constants: tuple[str, ...] = ()
    expected: tuple[np.ndarray, ...] | None = None
    dims: Mapping[str, Any] | None = None
    rtol: float = 0.0
    ops: tuple[str, ...] | None = None
    target: int = 24


_UNKNOWN: Any = {"x": None}
_NAMES: Any = {"x": ["A", "B", "C"]}
_INDICES = _ints(-1, 0, 2, 4, 9)
_HOT = np.array([3, 8], np.float32)
_NO_NEGATIVE = np.where((_INDICES[:, None] == np.arange(4)), F(8), F(3)).astype(F)

_CASES: Mapping[str, Case] = {
    # axes
    "Squeeze of some axes": Case("Squeeze", 11, {"x": _data(1, 3, 1, 5)}, {"axes": [0, -2]}),
    "Squeeze of all axes of size 1": Case("Squeeze", 7, {"x": _data(1, 3, 1, 5)}),
    "Unsqueeze at both ends": Case("Unsqueeze", 11, {"x": _CUBE}, {"axes": [-1, 0]}),
    "ReduceSum of an axis, dropped": Case(
        "ReduceSum", 11, {"x": _CUBE}, {"axes": [1], "keepdims": 0}
    ),
    "ReduceSum of all axes": Case("ReduceSum", 7, {"x": _CUBE}),
    "ReduceSum to an opset that keeps the attribute": Case(
        "ReduceSum", 7, {"x": _CUBE}, {"axes": [1]}, target=12
    ),
    "ReduceMean of two axes": Case("ReduceMean", 13, {"x": _CUBE}, {"axes": [0, -1]}),
    "ReduceMax from opset 11": Case("ReduceMax", 11, {"x": _CUBE}, {"axes": [2]}),
    "ReduceMin": Case("ReduceMin", 13, {"x": _CUBE}, {"axes": [2]}),
    "ReduceProd": Case("ReduceProd", 13, {"x": _CUBE}, {"axes": [2]}),
    "ReduceL1": Case("ReduceL1", 13, {"x": _CUBE}, {"axes": [0]}),
    "ReduceL2": Case("ReduceL2", 13, {"x": _CUBE}, {"axes": [0]}, rtol=1e-6),
    "ReduceLogSum": Case("ReduceLogSum", 13, {"x": abs(_CUBE)}, {"axes": [0]}, rtol=1e-6),
    "ReduceLogSumExp": Case("ReduceLogSumExp", 13, {"x": _CUBE}, {"axes": [0]}, rtol=1e-6),
    "ReduceSumSquare": Case("ReduceSumSquare", 13, {"x": _CUBE}, {"axes": [0]}),
    # arguments that became inputs
    "Slice with negative and far ends": Case(
        "Slice", 9, {"x": _CUBE}, {"starts": [0, -4], "ends": [-1, 2**31 - 1], "axes": [1, 2]}
    ),
    "Slice of the first axes": Case("Slice", 7, {"x": _CUBE}, {"starts": [1, 0], "ends": [2, 9]}),
    "Split into given sizes": Case(
        "Split", 11, {"x": _CUBE}, {"axis": -1, "split": [1, 4]}, (F, F)
    ),
    "Split into equal parts": Case("Split", 7, {"x": _data(2, 6)}, {"axis": 1}, (F, F, F)),
    "Split by an input": Case("Split", 13, {"x": _CUBE, "split": _ints(2, 3)}, {"axis": 2}, (F, F)),
    "Split of a value of unknown shape": Case(
        "Split", 13, {"x": _data(4, 2)}, {}, (F, F), dims=_UNKNOWN
    ),
    "TopK": Case("TopK", 9, {"x": _CUBE}, {"k": 2, "axis": 1}, (F, I)),
    "Pad with a value": Case("Pad", 10, {"x": _CUBE}, {"pads": [0, 1, 2, 0, 0, -1], "value": 1.5}),
    "Pad with zeros": Case("Pad", 7, {"x": _CUBE}, {"pads": [0, 1, 2, 0, 0, 1]}, ops=("Pad",)),
    "Pad by reflection": Case(
        "Pad", 7, {"x": _CUBE}, {"pads": [0, 0, 2, 0, 0, 1], "mode": "reflect", "value": 3.0}
    ),
    "Clip to both bounds": Case("Clip", 10, {"x": _INFINITE}, {"min": -1.0, "max": 2.0}),
    "Clip to a lower bound cuts infinity": Case("Clip", 10, {"x": _INFINITE}, {"min": -1.0}),
    "Clip without a bound cuts infinities": Case("Clip", 7, {"x": _INFINITE}),
    "Clip of float16 cuts at its own largest number": Case(
        "Clip",
        10,
        {"x": np.array([-np.inf, 5, np.inf], np.float16)},
        {"min": 0.0},
        (np.float16,),
        expected=(np.array([0, 5, 65504], np.float16),),
        ops=("Clip",),
    ),
    "Clip of float64 cuts what float32 cannot hold": Case(
        "Clip",
        10,
        {"x": np.array([-1e300, 1e38, 1e39])},
        {},
        (np.float64,),
        expected=(np.array([-np.finfo(np.float32).max, 1e38, np.finfo(np.float32).max]),),
    ),
    "Dropout passes its data through": Case("Dropout", 7, {"x": _CUBE}, {"ratio": 0.25}),
    "Dropout from opset 10 to 11": Case("Dropout", 10, {"x": _CUBE}, target=11),
    # changed meanings
    "Softmax over the last axis of a matrix": Case("Softmax", 11, {"x": _data(3, 5)}),
    "Softmax over all but the batch": Case("Softmax", 11, {"x": _CUBE}, rtol=1e-6),
    "Softmax over the last axis of a cube": Case("Softmax", 11, {"x": _CUBE}, {"axis": 2}),
    "Softmax over -1 of an unknown rank": Case(
        "Softmax", 11, {"x": _CUBE}, {"axis": -1}, dims=_UNKNOWN, ops=("Softmax",)
    ),
    "Softmax from the first axis": Case("Softmax", 8, {"x": _CUBE}, {"axis": 0}, rtol=1e-6),
    "Softmax of an unknown rank": Case("Softmax", 7, {"x": _CUBE}, dims=_UNKNOWN, rtol=1e-6),
    "Softmax of symbolic sizes, counted from the end": Case(
        "Softmax", 11, {"x": _CUBE}, {"axis": -2}, dims=_NAMES, rtol=1e-6
    ),
    "Softmax of nothing": Case("Softmax", 11, {"x": _data(2, 3, 0)}, dims=_NAMES),
    "LogSoftmax": Case("LogSoftmax", 11, {"x": _CUBE}, rtol=1e-6),
    "Hardmax": Case("Hardmax", 11, {"x": _CUBE}),
    "BatchNormalization of channels": Case(
        "BatchNormalization",
        7,
        {"x": _IMAGE, "s": _data(3), "b": _data(3), "m": _data(3), "v": abs(_data(3))},
        {"spatial": 1, "epsilon": 1e-3},
    ),
    "BatchNormalization of elements": Case(
        "BatchNormalization",
        7,
        {n: abs(_data(*([2] if n == "x" else []), 3, 5)) for n in ("x", "s", "b", "m", "v")},
        {"spatial": 0, "epsilon": 1e-3},
        rtol=1e-6,
    ),
    "OneHot of negative indices": Case(
        "OneHot",
        9,
        {"i": _INDICES, "d": _ints(4), "v": _HOT},
        expected=(_NO_NEGATIVE,),
    ),
    "OneHot of constant indices": Case(
        "OneHot",
        10,
        {"i": _ints(0, 2, 5), "d": np.array(4, np.int64), "v": _HOT},
        {"axis": 0},
        constants=("i",),
        ops=("OneHot",),
    ),
    "OneHot of another type": Case(
        "OneHot",
        9,
        {"i": np.array([-1, 1.5], F), "d": np.array([3], F), "v": _HOT},
        expected=(np.array([[3, 3, 3], [3, 8, 3]], F),),
    ),
    "RoiAlign without a shift": Case(
        "RoiAlign",
        10,
        {
            "x": _IMAGE,
            "rois": np.array([[0.2, 0.1, 4.5, 3.7], [1, 1, 1.3, 1.2]], F),
            "b": _ints(0, 1),
        },
        {"output_height": 2, "output_width": 3},
        target=21,  # onnxruntime 1.31 has no kernel of a later version
    ),
    "GridSample under a new name": Case(
        "GridSample",
        16,
        {"x": _IMAGE, "g": _RNG.uniform(-1.2, 1.2, (2, 4, 6, 2)).astype(F)},
        {"mode": "bicubic"},
        rtol=1e-5,
    ),
    "GridSample under the default name": Case(
        "GridSample",
        16,
        {"x": _IMAGE, "g": _RNG.uniform(-1.2, 1.2, (2, 4, 6, 2)).astype(F)},
    ),
    "GroupNormalization": Case(
        "GroupNormalization",
        18,
        {"x": _data(2, 6, 5), "s": _data(3), "b": _data(3)},
        {"num_groups": 3},
        rtol=1e-6,
    ),
    "GroupNormalization of unknown channels, in half precision": Case(
        "GroupNormalization",
        18,
        {
            n: _data(*s).astype(np.float16)
            for n, s in {"x": (2, 6, 5), "s": (3,), "b": (3,)}.items()
        },
        {"num_groups": 3},
        (np.float16,),
        dims=_NAMES,
        rtol=4e-3,  # a few units in the last place: onnxruntime computes parts in float32
    ),
    "DFT along the default axis": Case("DFT", 17, {"x": _data(2, 5, 3, 1)}, rtol=1e-5),
    "DFT along another axis, of a given length": Case(
        "DFT",
        17,
        {"x": _data(2, 5, 3, 1), "n": np.array(4, np.int64)},
        {"axis": 2, "onesided": 1},
        rtol=1e-5,
    ),
    "DequantizeLinear with a scale of one element": Case(
        "DequantizeLinear",
        10,
        {"x": np.arange(-3, 3, dtype=np.int8).reshape(2, 3), "s": np.array([0.5], F)},
        dims={"s": None},
    ),
    "QuantizeLinear with scalars": Case(
        "QuantizeLinear",
        10,
        {"x": _CUBE, "s": np.array(0.1, F), "z": np.array(7, np.uint8)},
        outputs=(np.uint8,),
        ops=("QuantizeLinear",),
    ),
    "QuantizeLinear of int32": Case(
        "QuantizeLinear",
        13,
        {"x": np.arange(6, dtype=np.int32).reshape(2, 3) * 3, "s": np.array(2, F)},
        outputs=(np.uint8,),
        expected=(np.array([[0, 2, 3], [4, 6, 8]], np.uint8),),
        target=21,
    ),
    "Scatter": Case(
        "Scatter",
        9,
        {"x": _CUBE, "i": _ints(2, 0).reshape(1, 2, 1), "u": _data(1, 2, 1)},
        {"axis": 1},
        ops=("ScatterElements",),
    ),
    # images
    "Upsample by whole numbers": Case("Upsample", 7, {"x": _IMAGE}, {"scales": _SCALES.tolist()}),
    "Upsample by fractions": Case(
        "Upsample", 9, {"x": _IMAGE, "s": np.array([1, 1, 1.3, 2.6], F)}, ops=("Resize",)
    ),
    "Upsample linearly": Case("Upsample", 9, {"x": _IMAGE, "s": _SCALES}, {"mode": "linear"}),
    "Upsample to opset 9": Case(
        "Upsample", 7, {"x": _IMAGE}, {"scales": _SCALES.tolist()}, target=9
    ),
    "Upsample to opset 10": Case("Upsample", 9, {"x": _IMAGE, "s": _SCALES}, target=10),
    "Upsample to opset 11": Case("Upsample", 9, {"x": _IMAGE, "s": _SCALES}, target=11),
    "Resize-10 that shrinks": Case(
        "Resize",
        10,
        {"x": _IMAGE, "s": np.array([1, 1, 0.6, 0.4], F)},
        constants=("s",),
        ops=("Resize",),
    ),
    "Resize-10 that grows": Case(
        "Resize", 10, {"x": _IMAGE, "s": _SCALES}, constants=("s",), ops=("Resize",)
    ),
    "Resize-10 that grows and shrinks": Case(
        "Resize", 10, {"x": _IMAGE, "s": np.array([1, 1, 0.6, 2.5], F)}
    ),
    "Resize-10 that shrinks linearly": Case(
        "Resize", 10, {"x": _IMAGE, "s": np.array([1, 1, 0.6, 0.4], F)}, {"mode": "linear"}
    ),
    "Resize-11 to sizes, with empty scales": Case(
        "Resize",
        11,
        {"x": _IMAGE, "roi": _data(0), "s": _data(0), "z": _ints(2, 3, 4, 9)},
        {"mode": "cubic"},
    ),
    **{
        f"Resize-11 at whole pixels, rounded by {rounding}, times {factor}": Case(
            "Resize",
            11,
            {"x": _data(1, 1, 1, 12), "roi": _data(0), "s": np.array([1, 1, 1, factor], F)},
            {
                "coordinate_transformation_mode": "tf_half_pixel_for_nn",
                "nearest_mode": rounding,
            },
        )
        for rounding in ("floor", "round_prefer_floor")
        for factor in (0.3, 0.5, 1, 1.7, 2, 3)
    },
}


@each("name", [*_CASES])
def test_a_node_means_the_same_at_the_later_opset(name: str) -> None:
    case = _CASES[name]
    model = one_node(
        case.op,
        case.inputs,
        case.outputs,
        opset=case.opset,
        constants=case.constants,
        dims=case.dims,
        **case.attributes,
    )
    result = check(
        model,
        case.inputs,
        case.expected,
        target=case.target,
        rtol=case.rtol,
    )
    if case.ops is not None:
        assert tuple(node.op_type for node in result.graph.node) == case.ops


def test_every_rule_has_a_case() -> None:
    covered = {case.op for case in _CASES.values()}
    assert set(UPGRADES) - covered == {"Cast", "CastLike", "Scan"}  # they have tests of their own
