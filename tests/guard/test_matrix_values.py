"""Matrices of sizes, which onnx's data propagation takes for vectors."""

from __future__ import annotations

import onnx.parser
import pytest

import onnx_kvtool as kv
from onnx_kvtool.guard.inference import infer_with_data

_HEAD = '<ir_version: 10, opset_import: ["": 20, "my": 1]>'

CASES = {
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


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("strict", [True, False])
def test_matrices_are_no_vectors(name: str, strict: bool) -> None:
    text, shape = CASES[name]
    model = onnx.parser.parse_model(text if text.strip().startswith("<") else _HEAD + text)
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
        f"{_HEAD} g (int64[2] x) => (y) <int64[1] a = {{7}}>"
        "{ [bad] u = Unsqueeze (x, a) y = Add (u, u) }"
    )
    errors = list(kv.check(model, select=["ON"]))
    assert errors
    assert all("`bad` (Unsqueeze)" in str(finding.location) for finding in errors)
