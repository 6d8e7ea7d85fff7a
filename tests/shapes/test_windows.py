"""Sizes of convolutions, pooling and resizing as formulas, beside onnx's inference for numbers."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest

from onnx_kvtool.guard.weightless import infer_with_data
from onnx_kvtool.shapes.inference import infer_model
from onnx_kvtool.symbolic.dimensions import read_size, shape_words
from onnx_kvtool.symbolic.expressions import Dimension, integer
from onnx_kvtool.symbolic.simplification import Facts, substitute
from tests.grids import each

CONV = "m (float[2, 6, S] x, float[4, 3, 5] w) => (y) { y = Conv <group = 2%s> (x, w) }"
POOL = "m (float[2, 6, S] x) => (y) { y = %s <kernel_shape = [%d]%s> (x) }"
UP = "m (float[2, 6, S] x, float[6, 2, 5] w) => (y) { y = ConvTranspose <group = 3%s> (x, w) }"
RESIZE = (
    "m (float[2, 6, S, T] x) => (y) <float[4] s = {1, 1, %s}, int64[4] n = {2, 6, 5, 7}> "
    "{ y = Resize %s }"
)
QUANTIZED = (
    "m (uint8[2, 6, S] x, float[1] s, uint8[1] z, uint8[4, 6, 3] w) => (y) "
    "{ y = QLinearConv <strides = [2]> (x, s, z, w, s, z, s, z) }"
)
MOVES = (
    "",
    ", strides = [3]",
    ", pads = [2, 1]",
    ", dilations = [2]",
    ", strides = [2], pads = [1, 2], dilations = [2]",
    ', auto_pad = "VALID", strides = [2]',
    ', auto_pad = "SAME_UPPER", strides = [3]',
    ', auto_pad = "SAME_LOWER", strides = [2]',
)
CASES = [
    *((f"Conv{moves}", 18, CONV % moves) for moves in MOVES),
    *((f"ConvTranspose{moves}", 18, UP % moves) for moves in MOVES),
    ("ConvTranspose with more", 18, UP % ", strides = [3], output_padding = [2]"),
    ("ConvTranspose asked", 18, UP % ", strides = [2], output_shape = [23]"),
    *(
        (f"{op}{moves}{more} at {opset}", opset, POOL % (op, kernel, moves + more))
        for op, opset, extras in (
            ("MaxPool", 1, ("",)),
            ("MaxPool", 18, ("", ", ceil_mode = 1")),
            ("MaxPool", 22, ("", ", ceil_mode = 1")),
            ("AveragePool", 22, ("", ", ceil_mode = 1")),
            ("LpPool", 18, ("", ", ceil_mode = 1")),
        )
        for moves in MOVES
        if opset >= 10 or "dilations" not in moves
        for more in extras
        for kernel in (2, 3)
    ),
    ("MaxPool with a wide window", 18, POOL % ("MaxPool", 5, ", strides = [2], ceil_mode = 1")),
    ("Resize by whole scales", 18, RESIZE % ("2, 3", "(x, , s)")),
    ("Resize by parts", 18, RESIZE % ("0.5, 1.5", "(x, , s)")),
    ("Resize to sizes", 18, RESIZE % ("1, 1", "(x, , , n)")),
    ("Resize at 10", 10, RESIZE % ("0.25, 2", "(x, s)")),
    ("Upsample", 9, (RESIZE % ("2, 3", "(x, s)")).replace("Resize", "Upsample")),
    (
        "DepthToSpace",
        18,
        "m (float[2, 12, S, T] x) => (y) { y = DepthToSpace <blocksize = 2> (x) }",
    ),
    (
        "QLinearConv",
        18,
        QUANTIZED,
    ),
]


def parsed(text: str, opset: int) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {text}')


@each(("op", "opset"), [("LpPool", 1), ("MaxPool", 18)])
def test_pooling_without_a_window_says_no_size(op: str, opset: int) -> None:
    message = parsed(f"m (float[2, 3, S, T] x) => (y) {{ y = {op}(x) }}", opset)
    found = infer_model(ir.from_proto(message))
    y = next(v for v in found.run.values if v.name == "y")
    assert y not in found.run.knowledge.shapes


@pytest.mark.long
@each(("text", "opset"), [pytest.param(t, o, id=n) for n, o, t in CASES])
def test_a_formula_gives_the_numbers_of_onnx(text: str, opset: int) -> None:
    message = parsed(text, opset)
    found = infer_model(ir.from_proto(message))
    assert found.report.unknown == () and found.report.conflicts == ()
    y = next(v for v in found.run.values if v.name == "y")
    formula = [read_size(str(dim)) for dim in shape_words(found.run.knowledge.shapes[y]) or ()]
    compared = 0
    for size in range(1, 24):
        bound = {Dimension("S"): integer(size), Dimension("T"): integer(size + 4)}
        for axis, dim in enumerate(message.graph.input[0].type.tensor_type.shape.dim[2:]):
            dim.dim_value = size + 4 * axis
        inferred = infer_with_data(message)
        dims = [dim.dim_value for dim in inferred.graph.output[0].type.tensor_type.shape.dim]
        numbers = [substitute(n, {}, Facts(), bound).number or 0 for n in formula]
        # A window that is larger than the axis fails when it runs; onnx rounds to 0 there.
        if min(numbers) < 1 or len(dims) != len(numbers):
            continue
        compared += 1
        assert numbers == dims, size
    assert compared > 8


@pytest.mark.long
@pytest.mark.needs_onnxruntime("1.29")
@each(
    ("opset", "more"),
    [
        pytest.param(opset, more, id=f"{more} at {opset}")
        for opset in (10, 21, 22)
        for more in ("strides = [2]", "strides = [3], pads = [0, 0]", 'auto_pad = "VALID"')
    ],
)
def test_a_window_that_begins_behind_the_axis_is_none(opset: int, more: str) -> None:
    text = POOL.replace("S]", "4]") % ("MaxPool", 1, f", ceil_mode = 1, {more}")
    message = parsed(text, opset)
    message.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    session = onnxruntime.InferenceSession(message.SerializeToString())
    shape = session.run(None, {"x": np.ones((2, 6, 4), np.float32)})[0].shape
    found = infer_model(ir.from_proto(message))
    y = next(v for v in found.run.values if v.name == "y")
    assert shape_words(found.run.knowledge.shapes[y]) == shape
    assert found.report.conflicts == ()


def test_channels_of_data_and_filters_are_one() -> None:
    text = "m (float[B, C, H, W] x, float[4, 3, 5, 5] w) => (y) { y = Conv (x, w) }"
    report = infer_model(ir.from_proto(parsed(text, 18))).report
    assert [(e.name, e.equals) for e in report.equalities] == [("C", "3")]
