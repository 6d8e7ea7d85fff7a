"""Sizes and elements that onnx's inference gets wrong are right, or unknown."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx.parser
import onnx.shape_inference
import onnx_ir as ir
import onnxruntime
import pytest

import onnx_kvtool as kv
from onnx_kvtool.guard.weightless import infer_with_data
from onnx_kvtool.guard.wrong_sizes import scaled
from onnx_kvtool.shapes.inference import infer_model
from onnx_kvtool.symbolic.dimensions import shape_words
from tests.grids import each

_MATRIX_HEAD = '<ir_version: 10, opset_import: ["": 20, "my": 1]>'

MATRICES = {
    "a column and a vector": (
        """
        g (int64[2] x) => (int64[2,3] y) <int64[1] a = {1}, int64[3] v = {2,3,5}>
        { u = Unsqueeze (x, a) y = Sub (u, v) }
        """,
        (2, 3),
    ),
    "a column of a vector that is computed": (
        """
        g (float[2,3] x) => (y) <int64[1] a = {-1}, int64[5] v = {2,3,5,7,11}>
        { s = Shape (x) z = Add (s, s) u = Unsqueeze (z, a) y = Sub (u, v) }
        """,
        (2, 5),
    ),
    "two axes of a scalar": (
        """
        g (float[2,3] x) => (y) <int64[2] a = {0,1}, int64 i = {1}, int64[5] v = {2,3,5,7,11}>
        { s = Shape (x) n = Gather (s, i) u = Unsqueeze (n, a) y = Sub (u, v) }
        """,
        (1, 5),
    ),
    "a sum of a column and a row, of which a row is read as a shape": (
        """
        g (float[2,3] x, float[N] z) => (y) <int64[1] a = {0}, int64[1] b = {1}, int64 i = {1}>
        { s = Shape (x) c = Unsqueeze (s, b) r = Unsqueeze (s, a) m = Add (c, r)
        n = Gather (m, i) y = Reshape (z, n) }
        """,
        2,
    ),
    "axes as an attribute, at an old opset": (
        """
        <ir_version: 7, opset_import: ["": 12]>
        g (int64[2] x) => (int64[2,3] y) <int64[3] v = {2,3,5}>
        { u = Unsqueeze <axes = [1]> (x) y = Mul (u, v) }
        """,
        (2, 3),
    ),
    "in a function": (
        """
        g (int64[2] x) => (int64[2,3] y) { y = my.f (x) }
        <domain: "my", opset_import: ["": 20]> f (x) => (y)
        { a = Constant <value_ints = [1]> () v = Constant <value_ints = [2,3,5]> ()
        u = Unsqueeze (x, a) y = Add (u, v) }
        """,
        (2, 3),
    ),
    "in a body": (
        """
        g (bool q, int64[2] x) => (int64[2,3] y) <int64[1] a = {1}, int64[3] v = {2,3,5}> {
        y = If (q) <then_branch = b () => (t) { u = Unsqueeze (x, a) t = Sub (u, v) },
        else_branch = c () => (e) { w = Unsqueeze (x, a) e = Add (w, v) }> }
        """,
        (2, 3),
    ),
    "a scalar to a vector, whose element is known": (
        """
        g (float[2,3] x, float[N] z) => (y) <int64[1] a = {0}, int64 i = {1}>
        { s = Shape (x) n = Gather (s, i) u = Unsqueeze (n, a) y = Reshape (z, u) }
        """,
        (3,),
    ),
}


@each("name", [*MATRICES])
@each("strict", [True, False])
def test_matrices_are_no_vectors(name: str, strict: bool) -> None:
    text, shape = MATRICES[name]
    model = onnx.parser.parse_model(text if text.strip().startswith("<") else _MATRIX_HEAD + text)
    before = model.SerializeToString(deterministic=True)
    result = infer_with_data(model, strict=strict, check_types=strict)
    assert model.SerializeToString(deterministic=True) == before
    dims = result.graph.output[0].type.tensor_type.shape.dim
    if isinstance(shape, int):
        assert [dim.HasField("dim_value") for dim in dims] == [False] * shape
    else:
        assert tuple(dim.dim_value for dim in dims) == shape
    assert list(result.graph.node) == list(model.graph.node) or name == "in a body"
    assert not any("\0" in info.name for info in result.graph.value_info)
    assert not list(kv.check(model, select=["ON"]))
    assert not kv.infer(model)[1].failed


def test_what_is_wrong_with_such_an_unsqueeze_is_said_of_it() -> None:
    model = onnx.parser.parse_model(
        f"{_MATRIX_HEAD} g (int64[2] x) => (y) <int64[1] a = {{7}}>"
        "{ [bad] u = Unsqueeze (x, a) y = Add (u, u) }"
    )
    errors = list(kv.check(model, select=["ON"]))
    assert errors
    assert all("`bad` (Unsqueeze)" in str(finding.location) for finding in errors)


_ATTENTION_HEAD = '<ir_version: 10, opset_import: ["": 24]>'
_ATTENTION = (
    "g (float[b, 2, 4, 8] q, float[b, 2, 1, 8] k, float[b, 2, 1, 8] v,"
    "  float[b, 2, P, 8] pk, float[b, 2, P, 8] pv) => (z) {"
    "  y, none, nothing, scores = Attention (q, k, v, mask, pk, pv) z = Relu (scores) }"
)


def _attention() -> onnx.ModelProto:
    proto = onnx.parser.parse_model(_ATTENTION_HEAD + _ATTENTION)
    attention = proto.graph.node[0]
    attention.input[3] = attention.output[1] = attention.output[2] = ""
    return proto


def _named_dims(message: onnx.ModelProto, name: str) -> list[int | str]:
    declared = (*message.graph.value_info, *message.graph.output)
    value = next(v for v in declared if v.name == name and v.type.tensor_type.HasField("shape"))
    dims = value.type.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in dims]


def test_onnx_leaves_past_keys_out() -> None:
    assert _named_dims(onnx.shape_inference.infer_shapes(_attention()), "z") == ["b", 2, 4, 1]


@pytest.mark.parametrize("strict", [False, True])
def test_past_keys_are_not_left_out(strict: bool) -> None:
    message = _attention()
    inferred = infer_with_data(message, strict=strict)
    for name in ("scores", "z"):
        *others, width = _named_dims(inferred, name)
        assert others == ["b", 2, 4]
        assert not isinstance(width, int)
    assert message == _attention()
    assert list(inferred.graph.node) == list(message.graph.node)
    assert not any("kvtool" in v.name for v in inferred.graph.value_info)


def test_past_keys_are_not_left_out_in_a_body_of_a_graph_with_others() -> None:
    message, inner = _attention(), _attention().graph
    inner.node[0].output[0], inner.node[0].output[3] = "y2", "scores2"
    inner.node[1].input[0] = "scores2"
    del inner.input[:]
    inner.output[0].name = inner.node[1].output[0] = "z2"
    message.graph.input.append(onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    branches = {"then_branch": inner, "else_branch": inner}
    message.graph.node.append(onnx.helper.make_node("If", ["c"], ["w"], **branches))
    for attribute in infer_with_data(message).graph.node[2].attribute:
        values = (*attribute.g.value_info, *attribute.g.output)
        dims = {v.name: v.type.tensor_type.shape.dim for v in values}
        assert dims["y2"][3].dim_value == 8
        assert not dims["scores2"][3].HasField("dim_value")
        assert not dims["z2"][3].HasField("dim_value")


def test_one_without_past_keys_is_inferred_as_it_is() -> None:
    message = _attention()
    del message.graph.node[0].input[3:]
    assert _named_dims(infer_with_data(message), "z") == ["b", 2, 4, 1]


_POOL = "g (float[2, 3, %d, 6] x) => (z) { y = %s <ceil_mode = 1, %s> (x) z = Relu (y) }"
WAYS = [
    "kernel_shape = [1, 1], strides = [2, 2]",
    "kernel_shape = [1, 2], strides = [3, 1]",
    "kernel_shape = [2, 2], strides = [3, 3], pads = [1, 0, 1, 1]",
    "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]",
    "kernel_shape = [2, 3], strides = [4, 2], pads = [1, 0, 0, 2]",
    'kernel_shape = [1, 1], strides = [2, 2], auto_pad = "VALID"',
    'kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_UPPER"',
    'kernel_shape = [2, 2], strides = [3, 3], auto_pad = "SAME_LOWER"',
    "kernel_shape = [2, 2]",
]
FIRST = {"AveragePool": 10, "LpPool": 18, "MaxPool": 10}


def _pool(op: str, way: str, opset: int, size: int = 4) -> onnx.ModelProto:
    head = f'<ir_version: 10, opset_import: ["": {opset}]>'
    return onnx.parser.parse_model(head + _POOL % (size, op, way))


def _dims(message: onnx.ModelProto) -> list[int]:
    return [dim.dim_value for dim in message.graph.output[0].type.tensor_type.shape.dim]


def test_onnx_counts_windows_behind_the_axis() -> None:
    message = _pool("MaxPool", WAYS[0], 21)
    assert _dims(onnx.shape_inference.infer_shapes(message)) == [2, 3, 3, 4]
    assert _dims(infer_with_data(message, strict=True)) == [2, 3, 2, 3]


@pytest.mark.long
@each(
    ("op", "way", "opset"),
    [
        pytest.param(op, way, opset, id=f"{op} {way} at {opset}")
        for op, first in FIRST.items()
        for way in WAYS
        for opset in {first, 21}
    ],
)
def test_as_many_windows_as_from_opset_22_on(op: str, way: str, opset: int) -> None:
    for size in range(4, 10):
        message = _pool(op, way, opset, size)
        inferred = infer_with_data(message)
        right = onnx.shape_inference.infer_shapes(_pool(op, way, 22, size))
        assert _dims(inferred) == _dims(right), size
        assert message == _pool(op, way, opset, size)
        assert list(inferred.graph.node) == list(message.graph.node)


_SCALES = "<float[4] s = {1, 1, 1.3, %s}>"
FORMS = {
    "Resize at 10": (10, _SCALES + " { y = Resize (x, s) }"),
    "Resize at 18": (18, _SCALES + " { y = Resize (x, , s) }"),
    "Resize by axes": (18, "<float[2] s = {1.3, %s}> { y = Resize <axes = [-2, 3]> (x, , s) }"),
    "Upsample at 7": (7, "{ y = Upsample <scales = [1.0, 1.0, 1.3, %s]> (x) }"),
    "Upsample at 9": (9, _SCALES + " { y = Upsample (x, s) }"),
}
EACH_FORM = each(
    ("opset", "text"), {n: (opset, text % "2.0") for n, (opset, text) in FORMS.items()}
)


def _resized(opset: int, text: str, height: int) -> onnx.ModelProto:
    head = f'<ir_version: 8, opset_import: ["": {opset}]> g (float[1, 2, {height}, 3] x) => (z) '
    return onnx.parser.parse_model(f"{head}{text[:-1]} z = Relu (y) }}")


@EACH_FORM
def test_onnx_multiplies_exactly(opset: int, text: str) -> None:
    assert _dims(onnx.shape_inference.infer_shapes(_resized(opset, text, 10))) == [1, 2, 12, 6]


@EACH_FORM
def test_what_differs_is_not_known(opset: int, text: str) -> None:
    message = _resized(opset, text, 10)
    inferred = infer_with_data(message, strict=True)
    assert 12 not in _dims(inferred)
    assert list(inferred.graph.node) == list(message.graph.node)
    found = infer_model(ir.from_proto(message))
    z = next(v for v in found.run.values if v.name == "z")
    words = shape_words(found.run.knowledge.shapes[z]) or ()
    assert words[:2] == (1, 2) and words[3] == 6 and not isinstance(words[2], int)
    assert any("depends on how a runtime rounds" in u.lost.why for u in found.report.unknown)


@EACH_FORM
def test_what_does_not_differ_is_known(opset: int, text: str) -> None:
    message = _resized(opset, text, 9)
    assert _dims(infer_with_data(message, strict=True)) == [1, 2, 11, 6]
    found = infer_model(ir.from_proto(message))
    z = next(v for v in found.run.values if v.name == "z")
    assert shape_words(found.run.knowledge.shapes[z]) == (1, 2, 11, 6)


@pytest.mark.needs_onnxruntime("1.29")
def test_onnxruntime_has_the_sizes_on_which_runtimes_agree() -> None:
    text = "m (float[1, 1, H, 1] x, float[4] s) => (float[A, B, C, D] y) { y = Resize (x, , s) }"
    message = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]> ' + text)
    session = onnxruntime.InferenceSession(message.SerializeToString())
    unknown = 0
    for scale in np.array([1.3, 0.7, 1.1, 0.1, 1 / 3, 2.9, 1.15], np.float32):
        for size in range(1, 41):
            x, scales = (
                np.zeros((1, 1, size, 1), np.float32),
                np.array([1, 1, scale, 1], np.float32),
            )
            if (expected := scaled(size, float(scale))) is None:
                unknown += 1
            elif expected:
                (y,) = session.run(None, {"x": x, "s": scales})
                assert y.shape[2] == expected == math.floor(size * float(scale)), (size, scale)
    assert unknown > 5
