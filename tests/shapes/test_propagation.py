"""Small models whose shapes would make onnx's inference fill the memory."""

from __future__ import annotations

import resource
import sys

import onnx
import pytest

from onnx_kvtool.shapes.apart import may_run_out
from onnx_kvtool.shapes.propagation import infer_with_data

_ENDS = "a = Constant <value_ints = [0]> () b = Constant <value_ints = [9]> ()"

BOMBS = [
    pytest.param(
        "g (int64[600000000] x) => (int64 y) { i = Constant <value_int = 0> () y = Gather (x, i) }",
        id="a declared size, gathered from",
    ),
    pytest.param(
        "g (float[600000000] x) => (float y) { i = Constant <value_int = 0> () y = Gather (x, i) }",
        id="the same of floats",
    ),
    pytest.param(
        "g (int64[N] x) => (int64[M] y) { s = Constant <value_ints = [2803883501]> ()"
        f"r = Reshape (x, s) {_ENDS} y = Slice (r, a, b) }}",
        id="a size from a Reshape, sliced",
    ),
    pytest.param(
        "g (int64[N] x) => (int64[M] y) { s = Constant <value_ints = [60000]> () t = Mul (s, s)"
        f"r = Reshape (x, t) {_ENDS} y = Slice (r, a, b) }}",
        id="a size that is computed",
    ),
]


@pytest.mark.skipif(sys.platform != "linux", reason="no bound on memory elsewhere")
@pytest.mark.parametrize("text", BOMBS)
def test_a_huge_size_does_not_fill_the_memory(text: str) -> None:
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 18]>' + text)
    limit = resource.getrlimit(resource.RLIMIT_AS)
    inferred = infer_with_data(model)
    assert resource.getrlimit(resource.RLIMIT_AS) == limit
    assert inferred.graph.output[0].name == "y"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert peak < 2 << 30


@pytest.mark.parametrize("text", BOMBS)
def test_a_huge_size_is_looked_at_in_a_process_of_its_own(text: str) -> None:
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 18]>' + text)
    assert may_run_out(model)


@pytest.mark.parametrize(
    ("executable", "size"),
    [
        pytest.param(sys.executable, 70000, id="in a process of its own"),
        pytest.param("/no/such/python", None, id="without data where no process can be started"),
    ],
)
def test_a_model_with_large_sizes_is_inferred(
    executable: str, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]>'
        "g (float[140000] z, int64[1] at) => (float[A, B] y, int64 n) {"
        "  s = Constant <value_ints = [2, 70000]> () i = Constant <value_int = 1> ()"
        "  n = Gather (s, i) zero = Constant <value_ints = [0]> () m = Unsqueeze (n, zero)"
        "  minus = Constant <value_ints = [-1]> () t = Concat <axis = 0> (minus, m)"
        "  y = Reshape (z, t) }"
    )
    assert may_run_out(model)
    monkeypatch.setattr(sys, "executable", executable)
    dims = infer_with_data(model).graph.output[0].type.tensor_type.shape.dim
    known = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
    assert known == ([2, size] if size else [None, None])


def test_a_contradiction_found_in_another_process_is_an_error_when_strict() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> g (float[70000] x, float[3] z) => (float[A] y)'
        "{ i = Constant <value_ints = [70000]> () j = Constant <value_int = 0> ()"
        "  n = Gather (i, j) y = Add (x, z) }"
    )
    assert may_run_out(model)
    with pytest.raises(onnx.shape_inference.InferenceError, match="Incompatible dimensions"):
        infer_with_data(model, strict=True)
    assert infer_with_data(model).graph.output[0].name == "y"


def test_values_of_shape_tensors_are_taken_into_account() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> g (float[2, 3] x, float[6] z) => (float[A, B] y)'
        "{ s = Shape (x) y = Reshape (z, s) }"
    )
    dims = infer_with_data(model).graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [2, 3]


def test_a_contradiction_is_an_error_when_strict() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> g (float[2] x, float[3] z) => (float[A] y)'
        "{ y = Add (x, z) }"
    )
    with pytest.raises(onnx.shape_inference.InferenceError):
        infer_with_data(model, strict=True)
