"""Small models whose shapes would make onnx's inference fill the memory."""

from __future__ import annotations

import sys

import onnx
import pytest

from onnx_kvtool.guard.exhaustion import HANDED_ON, may_run_out
from onnx_kvtool.guard.fault import Contents
from onnx_kvtool.guard.weightless import infer_with_data
from tests.grids import each, thinned

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
    pytest.param(
        "g (float[600000000] x) => (float[M] y) { y = Add (x, x) }",
        id="a declared size, added to",
    ),
    pytest.param(
        "g (bool c, int64[N] x) => (int64 y) {"
        "  s = If (c) <then_branch = a () => (int64[1] t) <int64[1] t = {3000000000}> { },"
        "              else_branch = b () => (int64[1] e) <int64[1] e = {3000000000}> { }>"
        "  r = Reshape (x, s) y = Size (r) }",
        id="a size that branches return",
    ),
    pytest.param(
        "g (float[2] v0) => (float[M] y) {"
        + " ".join(f"v{n + 1} = Concat <axis = 0> (v{n}, v{n})" for n in range(40))
        + " y = Identity (v40) }",
        id="Concats that double a vector",
    ),
]

HARMLESS = [
    pytest.param(
        "g (float[1, 2, 3, 3] x, float[7] s, float[7] b) => (float[M, N, O, P] y) {"
        + " ".join(
            f"r{n} = Relu ({'x' if n == 0 else f'v{n - 1}'}) c{n} = GlobalAveragePool (r{n})"
            f" v{n} = Concat <axis = 1> (r{n}, c{n})"
            for n in range(40)
        )
        + " y = Identity (v39) }",
        id="channels that layers add to",
    ),
    pytest.param(
        "g (float[N, 8] x) => (float[M, 8] y) <int64[1] a = {0}, int64[1] b = {2147483647}>"
        "{ y = Slice (x, a, b) }",
        id="the end of a Slice",
    ),
    pytest.param(
        "g (int64[N] x, bool[N] c) => (int64[N] y) <int64 m = {2147483647}>"
        "{ w = Where (c, x, m) z = Mod (w, m) y = Add (z, x) }",
        id="what Where puts in",
    ),
    pytest.param(
        "g (float[N] x) => (float[N] y) <float m = {-65504.0}, int64[1] a = {1}>"
        "{ w = Add (x, m) s = Unsqueeze (w, a) y = MatMul (w, s) }",
        id="the filling of a mask",
    ),
    pytest.param(
        "g (float[N] x) => (float[1] y) <int64[1] i = {70000}> { y = Gather (x, i) }",
        id="an index",
    ),
    pytest.param(
        "g (int64[N] x) => (int64[N] y) <int64 m = {151936}>"
        "{ w = Mul (x, m) z = Cast <to = 1> (w) y = Cast <to = 7> (z) }",
        id="an offset that reaches no size",
    ),
    pytest.param(
        "g (int64[N] x) => (int64[N] y) <int64[1] m = {131072}>"
        "{ w = com.example.Cache (x, m) y = Add (w, x) }",
        id="what an operator reads that inference does not know",
    ),
]


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="no bound on memory elsewhere")
@pytest.mark.parametrize("text", thinned(BOMBS, 6))
def test_a_huge_size_does_not_fill_the_memory(text: str) -> None:
    import resource  # which Windows does not have

    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 18]>' + text)
    limit = resource.getrlimit(resource.RLIMIT_AS)
    inferred = infer_with_data(model)
    assert resource.getrlimit(resource.RLIMIT_AS) == limit
    assert inferred.graph.output[0].name == "y"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert peak < 2 << 30


@each("text", BOMBS)
def test_a_huge_size_is_looked_at_in_a_process_of_its_own(text: str) -> None:
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 18]>' + text)
    assert may_run_out(Contents(model))


@each("text", HARMLESS)
def test_a_large_number_that_is_no_size_needs_no_process(text: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18, "com.example": 1]>' + text
    )
    assert not may_run_out(Contents(model))


def test_the_operators_that_inference_computes_the_elements_of_are_those_of_onnx() -> None:
    schemas = onnx.defs.get_all_schemas_with_history()
    assert {schema.name for schema in schemas if schema.has_data_propagation_function} == set(
        HANDED_ON
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("executable", "size"),
    [
        pytest.param(sys.executable, 70000, id="in a separate process"),
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
    assert may_run_out(Contents(model))
    monkeypatch.setattr(sys, "executable", executable)
    dims = infer_with_data(model).graph.output[0].type.tensor_type.shape.dim
    known = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
    assert known == ([2, size] if size else [None, None])


@pytest.mark.long
def test_a_contradiction_found_in_another_process_is_an_error_when_strict() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> g (float[70000] x, float[3] z) => (float[A] y)'
        "{ i = Constant <value_ints = [70000]> () j = Constant <value_int = 0> ()"
        "  n = Gather (i, j) t = Reshape (x, i) y = Add (x, z) }"
    )
    assert may_run_out(Contents(model))
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
