"""For each measured limit of a release, a small model to which it applies.

A limit that applies to every node of its operator takes a case of onnx's own backend tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper
from onnx.backend.test.case.node import collect_testcases

from onnx_kvtool.targets.release import Limit, Release

__all__ = ["AFFECTED", "backend_case", "feeds_of", "tolerance"]

B, H, D, KEYS = 2, 3, 7, 5
MASK = [True, False, True, True, False]


def attention(
    rows: int = 2, opset: int = 23, outputs: tuple[str, ...] = ("Y",), **settings: object
) -> onnx.ModelProto:
    """Return Attention of `rows` queries over five keys.

    Args:
        rows: L.
        opset: Version of the default domain.
        outputs: Names of the outputs; "" for one that is left out.
        settings: `mask` (one row of booleans per query) and `nonpad` (valid keys per batch row)
            become constants; everything else is an attribute.
    """
    inputs = ["Q", "K", "V", "", "", "", ""]
    constants = []
    if (mask := settings.pop("mask", None)) is not None:
        constants.append(onnx.numpy_helper.from_array(np.array(mask), "mask"))
        inputs[3] = "mask"
    if (nonpad := settings.pop("nonpad", None)) is not None:
        constants.append(onnx.numpy_helper.from_array(np.array(nonpad), "nonpad"))
        inputs[6] = "nonpad"
    while not inputs[-1]:
        inputs.pop()
    node = helper.make_node("Attention", inputs, list(outputs), name="attention", **settings)
    shapes = {"Q": [B, H, rows, D], "K": [B, H, KEYS, D], "V": [B, H, KEYS, D]}
    return _model([node], shapes, [name for name in outputs if name], opset, constants)


def lost_infinity(op_type: str, hidden: float) -> onnx.ModelProto:
    """Return a reduction of rows of which one holds nothing but infinities."""
    numbers = np.array([[0], [hidden]], np.float32)
    constants = [
        onnx.numpy_helper.from_array(numbers, "numbers"),
        onnx.numpy_helper.from_array(np.array([-1]), "last"),
    ]
    nodes = [
        helper.make_node("Add", ["X", "numbers"], ["rows"]),
        helper.make_node(op_type, ["rows", "last"], ["Y"]),
    ]
    return _model(nodes, {"X": [2, KEYS]}, ["Y"], 24, constants)


def computed_heads() -> onnx.ModelProto:
    """Return Attention of grouped heads, 4-D, whose query gets its shape from computed sizes."""
    heads = onnx.numpy_helper.from_array(np.array([-1, D]), "heads")
    nodes = [
        helper.make_node("Shape", ["Q"], ["sizes"], start=0, end=2),
        helper.make_node("Concat", ["sizes", "heads"], ["split"], axis=0),
        helper.make_node("Reshape", ["Q", "split"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["query"], perm=[0, 2, 1, 3]),
        helper.make_node("Attention", ["query", "K", "V"], ["Y"], name="attention"),
    ]
    keys: list[int | str] = ["batch", H, KEYS, D]
    shapes = {"Q": ["batch", "rows", 2 * H * D], "K": keys, "V": keys}
    return _model(nodes, shapes, ["Y"], 23, [heads])


def rotated_part() -> onnx.ModelProto:
    """Return RotaryEmbedding of a half of each head, 4-D."""
    inputs = ["X", "cos", "sin"]
    node = helper.make_node("RotaryEmbedding", inputs, ["Y"], name="op", rotary_embedding_dim=4)
    angles: list[int | str] = [B, KEYS, 2]
    return _model([node], {"X": [B, H, KEYS, 8], "cos": angles, "sin": angles}, ["Y"], 23, [])


def empty_branch() -> onnx.ModelProto:
    """Return an If on a number, of whose branches one gives a constant without elements."""
    nothing = onnx.numpy_helper.from_array(np.zeros((0, H), np.float32), "nothing")

    def branch(name: str, node: onnx.NodeProto) -> onnx.GraphProto:
        given = helper.make_tensor_value_info(node.output[0], T.FLOAT, ["some", H])
        return helper.make_graph([node], name, [], [given])

    nodes = [
        helper.make_node("Cast", ["number"], ["is_other"], to=T.BOOL),
        helper.make_node(
            "If",
            ["is_other"],
            ["Y"],
            then_branch=branch("other", helper.make_node("Neg", ["X"], ["rows"])),
            else_branch=branch("none", helper.make_node("Constant", [], ["no"], value=nothing)),
        ),
    ]
    return _model(nodes, {"number": [], "X": ["rows", H]}, ["Y"], 18, [])


def scatter(cache: int = T.FLOAT) -> onnx.ModelProto:
    """Return TensorScatter of an element type, between Casts from and to float."""
    nodes = [
        helper.make_node("Cast", ["past"], ["past_cache"], to=cache),
        helper.make_node("Cast", ["new"], ["update"], to=cache),
        helper.make_node("TensorScatter", ["past_cache", "update", "at"], ["present"], name="ts"),
        helper.make_node("Cast", ["present"], ["Y"], to=T.FLOAT),
    ]
    at = onnx.numpy_helper.from_array(np.array([1, 2]), "at")
    return _model(nodes, {"past": [B, H, KEYS, D], "new": [B, H, 2, D]}, ["Y"], 24, [at])


def mean_variance() -> onnx.ModelProto:
    """Return MeanVarianceNormalization over the axes of its default, in a function."""
    inner = helper.make_node("MeanVarianceNormalization", ["x"], ["y"], name="op")
    imports = [helper.make_opsetid("", 18)]
    body = helper.make_function("local", "F", ["x"], ["y"], [inner], imports)
    call = helper.make_node("F", ["X"], ["Y"], domain="local")
    model = _model([call], {"X": [B, H, KEYS, D]}, ["Y"], 18, [])
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("local", 1))
    return model


def normalized() -> onnx.ModelProto:
    """Return LayerNormalization without bias before three MatMuls, as attention has them."""
    scale = onnx.numpy_helper.from_array(np.linspace(1, 2, D, dtype=np.float32), "scale")
    weights = [
        onnx.numpy_helper.from_array(np.full((D, D), number, np.float32), name)
        for name, number in (("wq", 0.5), ("wk", 0.25), ("wv", 2))
    ]
    nodes = [
        helper.make_node("LayerNormalization", ["X", "scale"], ["rows"], name="op"),
        *(helper.make_node("MatMul", ["rows", "w" + name], [name]) for name in "qkv"),
        helper.make_node("Sum", ["q", "k", "v"], ["Y"]),
    ]
    return _model(nodes, {"X": [B, KEYS, D]}, ["Y"], 18, [scale, *weights])


def half(op_type: str, **attributes: object) -> onnx.ModelProto:
    """Return an operator in float16 at opset 18, between Casts from and to float."""
    scale = onnx.numpy_helper.from_array(np.linspace(1, 2, D, dtype=np.float16), "scale")
    weighted = op_type == "LayerNormalization"
    nodes = [
        helper.make_node("Cast", ["X"], ["x"], to=T.FLOAT16),
        helper.make_node(
            op_type, ["x", "scale"] if weighted else ["x"], ["y"], name="op", **attributes
        ),
        helper.make_node("Cast", ["y"], ["Y"], to=T.FLOAT),
    ]
    return _model(nodes, {"X": [B, H, D]}, ["Y"], 18, [scale] if weighted else [])


def half_clip() -> onnx.ModelProto:
    """Return Clip of float16 that has no lower bound, between Casts from and to float."""
    top = onnx.numpy_helper.from_array(np.float16(0.5), "top")
    nodes = [
        helper.make_node("Cast", ["X"], ["x"], to=T.FLOAT16),
        helper.make_node("Clip", ["x", "", "top"], ["y"], name="clip"),
        helper.make_node("Cast", ["y"], ["Y"], to=T.FLOAT),
    ]
    return _model(nodes, {"X": [B, H, D]}, ["Y"], 18, [top])


def half_extremes(op_type: str) -> onnx.ModelProto:
    """Return two extremes of three float16 operands, which are no results of Casts.

    Small shapes do not show it, nor does one node, nor operands whose Casts the release leaves out.
    """
    shapes = {"A": [33], "B": [16, 33], "C": [16, 1]}
    first = onnx.numpy_helper.from_array(np.array([0]), "first")
    nodes = []
    for name in shapes:
        nodes += [
            helper.make_node("Cast", [name], [f"{name}_half"], to=T.FLOAT16),
            helper.make_node("Unsqueeze", [f"{name}_half", "first"], [f"{name}_wide"]),
            helper.make_node("Squeeze", [f"{name}_wide", "first"], [f"{name}_operand"]),
        ]
    for name, order in (("Y", "ABC"), ("Z", "BCA")):  # one order alone would be computed once
        operands = [f"{operand}_operand" for operand in order]
        nodes.append(helper.make_node(op_type, operands, [f"{name}_half"], name=name))
        nodes.append(helper.make_node("Cast", [f"{name}_half"], [name], to=T.FLOAT))
    return _model(nodes, shapes, ["Y", "Z"], 18, [first])


def quotients() -> onnx.ModelProto:
    """Return quotients of bytes whose highest bit is set, between Casts from and to float."""
    constants = [
        onnx.numpy_helper.from_array(np.float32(200), "high"),
        onnx.numpy_helper.from_array(np.uint8(3), "three"),
    ]
    nodes = [
        helper.make_node("Sign", ["X"], ["sign"]),
        helper.make_node("Add", ["sign", "high"], ["number"]),
        helper.make_node("Cast", ["number"], ["byte"], to=T.UINT8),
        helper.make_node("Div", ["byte", "three"], ["quotient"], name="div"),
        helper.make_node("Cast", ["quotient"], ["Y"], to=T.FLOAT),
    ]
    return _model(nodes, {"X": [H, D]}, ["Y"], 18, constants)


def _model(
    nodes: list[onnx.NodeProto],
    shapes: Mapping[str, Sequence[int | str]],
    outputs: list[str],
    opset: int,
    constants: list[onnx.TensorProto],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "affected",
        [helper.make_tensor_value_info(name, T.FLOAT, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info(name, T.FLOAT, None) for name in outputs],
        initializer=constants,
    )
    ir_version = {18: 8, 23: 11, 24: 11, 25: 12}[opset]
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version
    )


def code_product(op_type: str, *types: int) -> onnx.ModelProto:
    """Return a product of codes, the first of them computed and the others weights.

    The zero point of the result is even: where halves are rounded before it is added, and where
    behind, they go to the same number.

    Args:
        op_type: ConvInteger, MatMulInteger, QLinearConv or QLinearMatMul.
        types: Element types of both operands, and of the result of the last two.
    """
    convolves, requantizes = "Conv" in op_type, op_type.startswith("QLinear")
    shape = [D, H, 2, 2] if convolves else [4, D]
    weights = np.arange(np.prod(shape)).reshape(shape) % 50
    first, second, result = (helper.tensor_dtype_to_np_dtype(one) for one in (*types, T.INT8)[:3])
    constants = {
        "ten": np.float32(10),
        "scale": np.float32(0.25),
        "first_zero": first.type(3),
        "weights": weights.astype(second),
        "second_zero": second.type(2),
        "result_zero": result.type(6),
    }
    given = ["codes", "weights", "first_zero", "second_zero"]
    if requantizes:
        given = ["codes", "scale", "first_zero", "weights", "scale", "second_zero"]
        given += ["scale", "result_zero"]
    window = {"pads": [1, 1, 0, 0]} if convolves else {}
    nodes = [
        helper.make_node("Mul", ["X", "ten"], ["tenfold"]),
        helper.make_node("Abs" if types[0] == T.UINT8 else "Identity", ["tenfold"], ["numbers"]),
        helper.make_node("Cast", ["numbers"], ["codes"], to=types[0]),
        helper.make_node(op_type, given, ["product"], name="op", **window),
        helper.make_node("Cast", ["product"], ["Y"], to=T.FLOAT),
    ]
    kept = [onnx.numpy_helper.from_array(np.asarray(one), name) for name, one in constants.items()]
    dims: list[int | str] = [B, H, 5, 6] if convolves else [5, 4]
    return _model(nodes, {"X": dims}, ["Y"], 18, kept)


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return seeded inputs of a model of this module."""
    rng = np.random.default_rng(5)
    return {
        value.name: rng.standard_normal(
            [dim.dim_value or B for dim in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in model.graph.input
    }


def tolerance(model: onnx.ModelProto) -> float:
    """Return the largest difference that the element types of a model justify."""
    casts = [node.attribute[0].i for node in model.graph.node if node.op_type == "Cast"]
    return 5e-3 if T.FLOAT16 in casts else 1e-5


SCORES = ("Y", "", "", "scores")

AFFECTED: dict[str, Callable[[], onnx.ModelProto]] = {
    "tensor-scatter": scatter,
    "tensor-scatter-types": lambda: scatter(T.FLOAT8E4M3FN),
    "softmax-body": lambda: half("Softmax"),
    "log-softmax-body": lambda: half("LogSoftmax"),
    "mean-variance-types": lambda: half("MeanVarianceNormalization", axes=[1]),
    "mean-variance-unsaid-axes": mean_variance,
    "layer-normalization-body": lambda: half("LayerNormalization"),
    "layer-normalization-bias": normalized,
    "attention-nonpad-ignored": lambda: attention(1, 24, nonpad=[4, 2]),
    "attention-causal-nonpad": lambda: attention(2, 24, nonpad=[4, 3], is_causal=1),
    "attention-empty-rows": lambda: attention(2, mask=[[False] * KEYS, MASK]),
    "attention-causal-row": lambda: attention(1, is_causal=1),
    "attention-softcap": lambda: attention(2, mask=[MASK, MASK], softcap=2.0),
    "attention-scores-1": lambda: attention(
        2, mask=[MASK, MASK], outputs=SCORES, qk_matmul_output_mode=1
    ),
    "attention-scores-1-2": lambda: attention(
        2, 24, mask=[MASK, MASK], outputs=SCORES, qk_matmul_output_mode=2
    ),
    "attention-scores-2": lambda: attention(
        2, 24, mask=[MASK, MASK], outputs=SCORES, qk_matmul_output_mode=2
    ),
    "attention-short-mask": lambda: attention(2, 24, mask=[MASK[:4], MASK[:4]], nonpad=[4, 3]),
    "attention-window": lambda: attention(2, 25, left_window_size=1),
    "attention-computed-heads": computed_heads,
    "rotary-embedding-part": rotated_part,
    "clip-half-bounds": half_clip,
    "max-half-several": lambda: half_extremes("Max"),
    "min-half-several": lambda: half_extremes("Min"),
    "reduce-max-infinite": lambda: lost_infinity("ReduceMax", -np.inf),
    "reduce-min-infinite": lambda: lost_infinity("ReduceMin", np.inf),
    "attention-window-ignored": lambda: attention(2, 25, right_window_size=1),
    "empty-constant": empty_branch,
    "div-unsigned": quotients,
    "conv-integer-types": lambda: code_product("ConvInteger", T.UINT8, T.INT8),
    "mat-mul-integer-types": lambda: code_product("MatMulInteger", T.INT8, T.UINT8),
    "q-linear-conv-types": lambda: code_product("QLinearConv", T.INT8, T.UINT8, T.INT8),
    "q-linear-mat-mul-types": lambda: code_product("QLinearMatMul", T.UINT8, T.INT8, T.INT8),
}
"""Limit -> model, whose native form a release with that limit refuses or computes wrongly."""


@cache
def _cases() -> dict[str, onnx.ModelProto]:
    """Return the first backend case of each operator that is a model of one node."""
    found: dict[str, onnx.ModelProto] = {}
    for case in collect_testcases(None):
        if len(case.model.graph.node) == 1 and len(case.model.opset_import) == 1:
            found.setdefault(case.model.graph.node[0].op_type, case.model)
    for op_type, (shapes, attributes, output) in _WITHOUT_CASE.items():
        node = helper.make_node(op_type, list(shapes), ["Y"], **attributes)
        inputs = [helper.make_tensor_value_info(n, T.FLOAT, s) for n, s in shapes.items()]
        outputs = [helper.make_tensor_value_info("Y", output, None)]
        graph = helper.make_graph([node], "affected", inputs, outputs)
        found[op_type] = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    return found


_WITHOUT_CASE: dict[str, tuple[dict[str, list[int]], dict[str, Any], int]] = {
    "RandomUniform": ({}, {"shape": [B, D]}, T.FLOAT),
    "RandomNormal": ({}, {"shape": [B, D]}, T.FLOAT),
    "RandomUniformLike": ({"X": [B, D]}, {}, T.FLOAT),
    "RandomNormalLike": ({"X": [B, D]}, {}, T.FLOAT),
    "Multinomial": ({"X": [B, D]}, {}, T.INT32),
    "GlobalLpPool": ({"X": [B, H, D, KEYS]}, {}, T.FLOAT),
    "MaxRoiPool": ({"X": [B, H, D, KEYS], "rois": [1, 5]}, {"pooled_shape": [2, 2]}, T.FLOAT),
}
"""Operators that onnx has no backend case for: shapes of inputs, attributes, type of the output."""


def backend_case(limit: Limit, release: Release) -> onnx.ModelProto:
    """Return a model of the operator of a limit, at an opset that the release loads."""
    model = onnx.ModelProto()
    model.CopyFrom(_cases()[limit.operator])
    (opset,) = model.opset_import
    opset.version = max(limit.since, min(opset.version, release.max_opset or opset.version))
    model.ir_version = 8
    return model
