"""The evaluator around the kernels: scopes, functions, partial runs, errors, warnings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_kvtool.model_io.model import read
from onnx_kvtool.runtime.engine import compiler
from onnx_kvtool.runtime.engine.evaluator import Evaluator
from onnx_kvtool.runtime.engine.program import Trace
from onnx_kvtool.runtime.errors import ModelRejected, RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.kernels.kernel import KernelFunction
from onnx_kvtool.runtime.kernels.table import find_kernel
from tests.grids import each
from tests.runtime.text_models import evaluator, run

X = np.arange(6, dtype=np.float32).reshape(2, 3)

SCOPES = [
    pytest.param(
        "g (float[2, 3] x) => (float[2, 3] y) { y = local.Twice (x) }"
        '<domain: "local", opset_import: ["": 24]> Twice (a) => (b) { b = Add (a, a) }',
        X + X,
        id="a function",
    ),
    pytest.param(
        "g (float[2, 3] x) => (float[2, 3] y) { z = local.F <k = 0.5> (x) y = local.F (z) }"
        '<domain: "local", opset_import: ["": 24]> F <k: float = 2.0> (a) => (b)'
        "{ c = Constant <value_float: float = @k> () b = Add (a, c) }",
        X + 2.5,
        id="a function with a parameter, given once and once at its default",
    ),
    pytest.param(
        "g (float[2, 3] x) => (float[2, 3] y) { y = local.Outer <s = 3.0> (x) }"
        '<domain: "local", opset_import: ["": 24, "local": 1]> Outer <s> (a) => (b)'
        "{ b = local.Inner <t: float = @s> (a) }"
        '<domain: "local", opset_import: ["": 24]> Inner <t> (a) => (b)'
        "{ c = Constant <value_float: float = @t> () b = Mul (a, c) }",
        X * 3,
        id="a parameter handed on to another function",
    ),
    pytest.param(
        "g (float[2, 3] x) => (float[2, 3] y) { y = local.Maybe (x) }"
        '<domain: "local", opset_import: ["": 24]> Maybe (a, m) => (b)'
        "{ b = Clip (a, m) }",
        X,
        id="an input of a function that the call leaves out",
    ),
    pytest.param(
        "g (float[2, 3] x) => (float[2, 3] y) { y = local.Old (x) }"
        '<domain: "local", opset_import: ["": 11]> Old (a) => (b)'
        "{ c = Unsqueeze <axes = [0]> (a) b = Squeeze <axes = [0]> (c) }",
        X,
        id="a function of an older opset than the model",
    ),
    pytest.param(
        "g (float[2, 3] x) => (float[2, 3] y) <bool t = {1}> { two = Add (x, x) y = If (t) <"
        "then_branch = a () => (float[2, 3] p) { q = If (t) < then_branch = c () => (float[2, 3] r)"
        "{ r = Add (two, x) }, else_branch = d () => (float[2, 3] s) { s = Identity (x) } >"
        "p = Add (q, two) },"
        "else_branch = b () => (float[2, 3] w) { w = Identity (x) } > }",
        5 * X,
        id="nested bodies that read values of both graphs around them",
    ),
    pytest.param(
        "g (float[2, 3] x) => (float[2, 3] y) <bool t = {1}> { y = If (t) <"
        "then_branch = a () => (float[2, 3] p) { p = local.Twice (x) },"
        "else_branch = b () => (float[2, 3] w) { w = Identity (x) } > }"
        '<domain: "local", opset_import: ["": 24]> Twice (a) => (b) { b = Add (a, a) }',
        X + X,
        id="a function called in a body",
    ),
    pytest.param(
        "g (float[2, 3] x) => (float[2, 3] y) <bool t = {1}> { y = If (t) <"
        "then_branch = a () => (float[2, 3] x) { x = Neg (w) w = Identity (x) },"
        "else_branch = b () => (float[2, 3] w) { w = Identity (x) } > }",
        None,
        id="nodes of a body out of order",
    ),
    pytest.param(
        "g (float[2, 3] x) => (float[2, 3] y) <bool t = {1}> { y = If (t) <"
        "then_branch = a () => (float[2, 3] x) { x = Identity (x) },"
        "else_branch = b () => (float[2, 3] w) { w = Identity (x) } > }",
        None,
        id="a name of the graph around, defined again in a body after it was read",
    ),
]


@each(("text", "expected"), SCOPES)
def test_values_are_found_where_the_scopes_put_them(text: str, expected: np.ndarray | None) -> None:
    if expected is None:
        with pytest.raises(RuntimeUnavailable, match="nothing before produces the value"):
            evaluator(text)
        return
    np.testing.assert_array_equal(run(text, x=X).values["y"], expected)


@each("op", ["Relu (x)", "Div (x, x)", "Equal (x, x)", "ArgMax <axis = 0> (v)", "Max (x, x)"])
def test_a_number_of_numpy_that_a_kernel_returns_becomes_an_array(op: str) -> None:
    text = f"g (float x, float[N] v) => (float y) {{ c = {op} y = Identity (c) }}"
    for value in run(text, x=np.full((), 2, np.float32), v=X[0]).values.values():
        assert isinstance(value, np.ndarray)


CHAIN = """
g (float[N] x, float[N] z) => (float[N] d, float[N] e)
{ b = Neg (x) c = Exp (b) d = Add (c, c) e = Add (b, z) }
"""


def ran(**inputs: Any) -> tuple[list[str], dict[str, np.ndarray]]:
    fetch = inputs.pop("fetch")
    seen: list[Trace] = []
    result = evaluator(CHAIN).run(inputs, fetch=fetch, observe=seen.append)
    return [str(line.location.op) for line in seen], result.values


def test_only_what_is_fetched_is_computed() -> None:
    ops, values = ran(x=X[0], fetch=["c"])
    assert ops == ["Neg", "Exp"]
    np.testing.assert_array_equal(values["c"], np.exp(-X[0]))


def test_a_value_that_is_given_is_not_computed() -> None:
    ops, values = ran(c=X[0], fetch=["d"])
    assert ops == ["Add"]
    np.testing.assert_array_equal(values["d"], X[0] * 2)


def test_an_input_can_be_fetched_and_a_value_twice() -> None:
    _, values = ran(x=X[0], fetch=["x", "b", "b"])
    np.testing.assert_array_equal(values["x"], X[0])
    np.testing.assert_array_equal(values["b"], -X[0])


@each(
    ("inputs", "message"),
    [
        pytest.param({"x": X[0]}, "the graph input `z` is missing", id="a missing input"),
        pytest.param({"x": X[0], "y": X[0]}, "the main graph has no value `y`", id="unknown"),
        pytest.param(
            {"x": X[0].astype(np.float64), "z": X[0]},
            r"`x` is tensor\(double\), expected tensor\(float\)",
            id="another element type",
        ),
        pytest.param(
            {"x": X, "z": X[0]}, r"`x` has rank 2, expected 1: shape \(2, 3\) for \(N\)", id="rank"
        ),
        pytest.param({"x": [X], "z": X[0]}, "`x` is a list, expected an array", id="a sequence"),
        pytest.param(
            {"x": X[0], "z": X[0, :2]},
            r"g, node `#3` \(Add\): .*\(inputs: `b` float32 \(3,\), `z` float32 \(2,\)\)",
            id="shapes that do not fit, found by a node",
        ),
    ],
)
def test_a_run_that_fails_says_what_and_where(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(RunFailed, match=message):
        evaluator(CHAIN).run(inputs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "g (float[N] x) => (float[N] y) { y = Nonsense (x) }",
            r"g, node `#0` \(Nonsense\): there is no kernel",
            id="an operator nobody knows",
        ),
        pytest.param(
            "g (float[N] x) => (float[N] y) { y = com.example.Op (x) }",
            r"g, node `#0` \(com.example::Op\): the domain `com.example` .* is not imported",
            id="a domain that is not imported",
        ),
        pytest.param(
            "g (float[N] x) => (float[N] y) { y = Concat (x) }",
            "the attribute `axis` is required and missing",
            id="a required attribute is missing",
        ),
        pytest.param(
            "g (float[N] x) => (float[N] y) { y = Concat <axis = 0, keepdims = 1> (x) }",
            "`Concat` has no attribute `keepdims`",
            id="an attribute that the operator does not have",
        ),
        pytest.param(
            "g (float[N] x) => (float[N] y) { y = Concat <axis = 0.5> (x) }",
            "the attribute `axis` is of type FLOAT, expected INT",
            id="an attribute of another type",
        ),
        pytest.param(
            "g (float[N] x) => (float[N] y) { y = CumSum (, x) }",
            r"g, node `#0` \(CumSum\): `CumSum` requires its input `x`, which is absent",
            id="a required input is left out",
        ),
        pytest.param(
            "g (float[N] x) => (float[N] y) { y = Neg (x, x) }",
            "`Neg` takes at most 1 input at opset 24, got 2",
            id="too many inputs",
        ),
        pytest.param(
            "g (float[N] x) => (float[N] y) { y = local.F (x) }"
            '<domain: "local", opset_import: ["": 24, "local": 1]> F (a) => (b)'
            "{ b = local.G (a) }"
            '<domain: "local", opset_import: ["": 24, "local": 1]> G (a) => (b)'
            "{ b = local.F (a) }",
            r"local::G, node `#0` \(local::F\): the function `F` calls itself",
            id="functions that call each other in a circle",
        ),
        pytest.param(
            "g (float[N] x) => (float[N] y) { y = local.F129 (x) }"
            '<domain: "local", opset_import: ["": 24]> F0 (a) => (b) { b = Neg (a) }'
            + "".join(
                f'<domain: "local", opset_import: ["": 24, "local": 1]> F{k} (a) => (b)'
                f"{{ b = local.F{k - 1} (a) }}"
                for k in range(1, 130)
            ),
            "the function `F1` is called more than 128 functions deep",
            id="functions that call each other too deep",
        ),
        pytest.param(
            "g (float[N] x) => (float[N] y) { y = local.F (x, x) }"
            '<domain: "local", opset_import: ["": 24]> F (a) => (b) { b = Neg (a) }',
            "the function `F` takes 1 input, got 2",
            id="too many inputs for a function",
        ),
        pytest.param(
            "g (float[N] x) => (float[N] y) { y = Neg (z) z = Neg (x) }",
            "nothing before produces the value `z`",
            id="nodes out of order",
        ),
    ],
)
def test_a_model_that_cannot_be_prepared_says_why(text: str, message: str) -> None:
    with pytest.raises(RuntimeUnavailable, match=message):
        evaluator(text)


@each(
    ("text", "message"),
    [
        pytest.param(
            "g (int32[N] x) => (int32[N] y) { y = Add (x, x) }",
            None,
            id="a type that the schema lists",
        ),
        pytest.param(
            "g (bool[N] x) => (bool[N] y) { y = Add (x, x) }",
            r"`A` is tensor\(bool\), which version 14 of `Add` does not take",
            id="a type that the schema does not list",
        ),
        pytest.param(
            "g (int32[N] x) => (float[N] y) { z = Cast <to = 1> (x) y = Add (z, x) }",
            r"`B` is tensor\(int32\), expected tensor\(float\) as `A`",
            id="two types for one type parameter",
        ),
        pytest.param(
            "g (int32[N] x) => (float[N] y) { z = Cast <to = 1> (x) y = Concat <axis = 0> (z, x) }",
            r"`inputs\[1\]` is tensor\(int32\), expected tensor\(float\) as `inputs\[0\]`",
            id="two types for one variadic input",
        ),
    ],
)
def test_element_types_are_held_against_the_schema(text: str, message: str | None) -> None:
    model = evaluator(text)
    name = "x"
    dtype = np.bool_ if "bool" in text else np.int32
    value = np.ones(3, dtype)
    if message is None:
        model.run({name: value})
        return
    with pytest.raises(RunFailed, match=message):
        model.run({name: value})


def test_a_result_that_the_text_leaves_undefined_is_a_warning_with_its_node() -> None:
    found = run(
        "g (float[5] d, int64[2] i, float[2] u) => (float[5] y){ y = ScatterElements (d, i, u) }",
        d=np.zeros(5, np.float32),
        i=np.array([3, 3]),
        u=np.array([1, 2], np.float32),
    )
    (warning,) = found.warnings
    assert (warning.severity, warning.location.op) == ("warning", "ScatterElements")
    assert found.values["y"].tolist() == [0, 0, 0, 2, 0]


def test_an_operator_without_a_kernel_of_our_own_runs_and_is_named() -> None:
    model = evaluator("g (float[2, 2] x) => (float y) { y = Det (x) }")
    x = np.array([[2, 1], [3, 5]], np.float32)
    seen: list[Trace] = []
    assert round(float(model.run({"x": x}, observe=seen.append).values["y"]), 5) == 7
    assert [place.op for place in model.borrowed] == ["Det"]
    assert [line.runtime for line in seen] == ["onnx.reference"]


def test_an_initializer_that_is_an_input_is_its_default() -> None:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N"]) for n in ("x", "w")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])],
        [numpy_helper.from_array(np.array([10], np.float32), "w")],
    )
    model = Evaluator(ir.from_proto(helper.make_model(graph)))
    x = np.array([1], np.float32)
    assert model.required == ("x",)
    assert model.run({"x": x}).values["y"].tolist() == [11]
    assert model.run({"x": x, "w": x}).values["y"].tolist() == [2]
    assert model.run({"x": x}).values["y"].tolist() == [11]


def sparse(indices: Any, dims: list[int]) -> onnx.ModelProto:
    values = numpy_helper.from_array(np.array([7, 9], np.float32), "w")
    held = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(indices), "i"), dims)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)],
        sparse_initializer=[held],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])


@each(
    ("indices", "dims", "expected"),
    {
        "flat indices": ([1, 5], [2, 3], [[0, 7, 0], [0, 0, 9]]),
        "one index per axis": ([[0, 1], [1, 2]], [2, 3], [[0, 7, 0], [0, 0, 9]]),
        "out of range": ([1, 6], [2, 3], r"index 6 at position 1, outside"),
        "too many": ([1, 2, 3], [2, 3], r"indices of shape \(3,\), expected \(2,\)"),
        "a scalar": ([0, 0], [], 9),
        "no axes of a scalar": (np.zeros((2, 0), np.int64), [], r"of shape \(2, 0\), expected"),
    },
)
def test_a_sparse_initializer_is_made_dense(
    indices: Any, dims: list[int], expected: Any, tmp_path: Path
) -> None:
    path = tmp_path / "sparse.onnx"
    onnx.save(sparse(indices, dims), path)
    if isinstance(expected, str):
        with pytest.raises(RuntimeUnavailable, match=expected):
            Evaluator(read(path))
        return
    assert Evaluator(read(path)).run({}).values["y"].tolist() == expected


def test_weights_that_no_fetched_value_needs_are_not_read(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 24]> g (float[3] x) => (float[3] y)'
        "{ y = Neg (x) z = Add (y, w) }"
    )
    gone = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3])
    gone.data_location = TensorProto.EXTERNAL
    gone.external_data.append(onnx.StringStringEntryProto(key="location", value="gone.bin"))
    model.graph.initializer.append(gone)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    model_with_gap = Evaluator(read(tmp_path / "m.onnx"))
    x = np.ones(3, np.float32)
    assert model_with_gap.run({"x": x}).values["y"].tolist() == [-1, -1, -1]
    with pytest.raises(RuntimeUnavailable, match=r"gone\.bin"):
        model_with_gap.run({"x": x}, fetch=["z"])


def test_constants_cannot_be_written_into() -> None:
    found = run("g () => (float[2] y) <float[2] w = {1, 2}> { y = Identity (w) }")
    with pytest.raises(ValueError, match="read-only"):
        found.values["y"][0] = 5


@pytest.mark.parametrize(
    ("nodes", "calls"),
    [
        pytest.param("y = Transpose (w)", ["Transpose"], id="a view"),
        pytest.param("v = Reshape (w, all) y = Transpose (v)", ["Reshape", "Transpose"], id="two"),
        pytest.param(
            "v = Transpose (w) y = Reshape (v, all)", ["Transpose", *["Reshape"] * 3], id="a copy"
        ),
        pytest.param("y = Neg (w)", ["Neg"] * 2, id="computed"),
        pytest.param("y = Transpose (x)", ["Transpose"] * 3, id="a default, and then what is fed"),
    ],
)
def test_views_of_constants_are_taken_once(
    nodes: str, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is prepared and runs twice calls these kernels; a trace shows all nodes."""
    seen: list[str] = []

    def counting(op: str, version: int) -> KernelFunction:
        kernel = find_kernel(op, version)
        assert kernel is not None

        def called(*inputs: Any, **attributes: Any) -> Any:
            seen.append(op)
            return kernel(*inputs, **attributes)

        return called

    monkeypatch.setattr(compiler, "find_kernel", counting)
    model = evaluator(
        "g (float[2, 3] x) => (y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}, "
        f"float[2, 3] x = {{0, 0, 0, 0, 0, 0}}, int64[1] all = {{-1}}> {{ {nodes} }}"
    )
    feeds = {"x": X + 1} if "x" in nodes else {}
    first, second = (model.run(feeds).values["y"] for _ in range(2))
    assert seen == calls
    traced: list[Trace] = []
    observed = model.run(feeds, observe=traced.append).values["y"]
    assert len(traced) == nodes.count("=")
    expected = {"Neg ": -(X + 1), "Tran": (X + 1).T}.get(nodes[4:8], (X + 1).reshape(-1))
    if nodes.startswith("v = T"):
        expected = (X + 1).T.reshape(-1)
    for found in (first, second, observed, traced[-1].outputs[0][1]):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("held", [np.zeros((8, 7), np.float32), np.zeros((4, 3), np.int64)])
def test_a_default_that_contradicts_its_input_is_refused(held: np.ndarray) -> None:
    message = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> m (float[4, 3] x) => (float[4, 3] y) '
        "{ y = Relu (x) }"
    )
    message.graph.initializer.append(numpy_helper.from_array(held, "x"))
    with pytest.raises(ModelRejected, match="`x` is declared as float32"):
        Evaluator(ir.from_proto(message))
