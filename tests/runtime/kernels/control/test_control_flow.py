"""If, Loop and Scan, run as whole models beside onnxruntime and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from onnx_kvtool.runtime.errors import RunFailed
from onnx_kvtool.runtime.sessions import open_session
from tests.grids import each
from tests.runtime.text_models import run

X = np.arange(15, dtype=np.float32).reshape(3, 5) - 4
TRUE, FALSE = np.array(True), np.array(False)

LOOP = """
g (int64 m, bool c, float[5] x) => (float[5] last, float[N, 5] all) {
  last, all = Loop (m, c, x) <body = b (int64 i, bool goes, float[5] s) =>
    (bool on, float[5] t, float[5] out) {
      f = Cast <to = 1> (i) t = Add (s, f) out = Mul (t, x)
      three = Constant <value_int = 3> () on = Less (i, three) }>
}
"""
ENDLESS = LOOP.replace("Loop (m, c, x)", "Loop (, , x)").replace("int64 m, bool c, ", "")
SCAN = """
g (float[5] s, float[3, 5] x) => (float[5] last, float[A, B] all) {
  last, all = Scan <num_scan_inputs = 1 OPTIONS, body = b (float[5] p, float[5] e) =>
    (float[5] q, float[5] out) { q = Add (p, e) out = Mul (q, e) }> (s, x)
}
"""
IF = """
g (bool c, float[5] x) => (float[5] y, float[5] z) {
  y, z = If (c) <then_branch = t () => (float[5] a, float[5] b) { a = Neg (x) b = Identity (x) },
                 else_branch = e () => (float[5] a, float[5] b) { a = Abs (x) b = Neg (x) }>
}
"""
IF_OF_MANY = IF.replace("bool c", "bool[K] c")

MODELS = [
    pytest.param(IF, {"c": TRUE, "x": X[0]}, id="If, taken"),
    pytest.param(IF, {"c": FALSE, "x": X[0]}, id="If, not taken"),
    pytest.param(
        IF_OF_MANY, {"c": np.array([True]), "x": X[0]}, id="If with a condition of rank 1"
    ),
    pytest.param(LOOP, {"m": np.array(2), "c": TRUE, "x": X[0]}, id="Loop ended by its trip count"),
    pytest.param(LOOP, {"m": np.array(9), "c": TRUE, "x": X[0]}, id="Loop ended by its condition"),
    pytest.param(LOOP, {"m": np.array(9), "c": FALSE, "x": X[0]}, id="Loop that never starts"),
    pytest.param(LOOP, {"m": np.array(0), "c": TRUE, "x": X[0]}, id="Loop of no trips"),
    pytest.param(LOOP, {"m": np.array(-1), "c": TRUE, "x": X[0]}, id="Loop of a negative count"),
    pytest.param(ENDLESS, {"x": X[0]}, id="Loop without count and condition"),
    pytest.param(SCAN.replace("OPTIONS", ""), {"s": X[0], "x": X}, id="Scan"),
    pytest.param(
        SCAN.replace("OPTIONS", ", scan_input_directions = [1], scan_output_directions = [1]"),
        {"s": X[0], "x": X},
        id="Scan backwards in and out",
    ),
    pytest.param(
        SCAN.replace("OPTIONS", ", scan_input_axes = [-1], scan_output_axes = [1]"),
        {"s": X[:, 0], "x": X},
        id="Scan along other axes",
    ),
    pytest.param(
        SCAN.replace("OPTIONS", ", scan_output_axes = [-1]"),
        {"s": X[0], "x": X},
        id="Scan stacked along the last axis",
    ),
]


def sized(text: str, inputs: dict[str, Any]) -> str:
    """Return the model for states of another size than 5."""
    size = inputs["s"].shape[0] if "s" in inputs else 5
    return text if size == 5 else text.replace("float[5]", f"float[{size}]")


@pytest.mark.parametrize(("text", "inputs"), MODELS)
def test_the_reference_and_onnxruntime_agree(text: str, inputs: dict[str, Any]) -> None:
    text = sized(text, inputs)
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]>' + text)
    expected = open_session("onnxruntime", model.SerializeToString(), "").run(inputs)
    got = run('<ir_version: 10, opset_import: ["": 21]>' + text, **inputs).values
    assert list(got) == list(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value)
        assert got[name].dtype == value.dtype


@each(
    ("text", "inputs", "message"),
    [
        pytest.param(
            IF_OF_MANY,
            {"c": np.array([True, False]), "x": X[0]},
            r"node `#0` \(If\): `cond` is bool \(2,\), expected one element",
            id="If with two conditions",
        ),
        pytest.param(
            LOOP.replace(
                "out = Mul (t, x)", "u = Range (zero, i, one) out = Cast <to = 1> (u)"
            ).replace(
                "{\n  last",
                "{\n zero = Constant <value_int = 0> () one = Constant <value_int = 1> ()\n last",
            ),
            {"m": np.array(3), "c": TRUE, "x": X[0]},
            r"output 2 of the body is float32 \(1,\) in iteration 1, expected float32 \(0,\)",
            id="Loop whose scan output changes shape",
        ),
        pytest.param(
            SCAN.replace("OPTIONS", ", scan_input_axes = [2]"),
            {"s": X[0], "x": X},
            "`scan_input_axes` is 2, expected -2 to 1",
            id="Scan along an axis that is not there",
        ),
        pytest.param(
            SCAN.replace("OPTIONS", ", scan_input_directions = [2]"),
            {"s": X[0], "x": X},
            r"`scan_input_directions` is \[2\], expected zeros and ones",
            id="Scan in a direction that is none",
        ),
    ],
)
def test_control_flow_that_makes_no_sense_fails(
    text: str, inputs: dict[str, Any], message: str
) -> None:
    with pytest.raises(RunFailed, match=message):
        run(text, **inputs)


@pytest.mark.parametrize(
    ("lengths", "options"),
    [
        pytest.param(None, "", id="whole rows"),
        pytest.param([3, 1], "", id="rows of different length"),
        pytest.param([3, 1], ", directions = [1]", id="backwards"),
    ],
)
def test_scan_8_goes_through_each_row_of_the_batch(lengths: list[int] | None, options: str) -> None:
    text = f"""
    <ir_version: 3, opset_import: ["": 8]>
    g (int64[2] n, float[2, 5] s, float[2, 3, 5] x) => (float[2, 5] last, float[2, 3, 5] all) {{
      last, all = Scan <num_scan_inputs = 1 {options}, body = b (float[5] p, float[5] e) =>
        (float[5] q, float[5] out) {{ q = Add (p, e) out = Identity (q) }}>
        ({"" if lengths is None else "n"}, s, x)
    }}
    """
    x = np.stack([X, X * 2])
    states = np.ones((2, 5), np.float32)
    got = run(text, n=np.array(lengths or [3, 3]), s=states, x=x).values
    for row, length in enumerate(lengths or [3, 3]):
        elements = x[row, :length]
        sums = 1 + np.cumsum(elements[::-1] if options else elements, axis=0)
        np.testing.assert_array_equal(got["last"][row], sums[-1])
        np.testing.assert_array_equal(got["all"][row, :length], sums)
        assert not got["all"][row, length:].any()


@each(
    ("scanned", "state", "x", "inputs", "message"),
    [
        pytest.param(1, (2, 5), (2,), "(, s, x)", r"scan inputs .* \[\(2,\)\]", id="rank 1"),
        pytest.param(
            2, (2,), (2, 3), "(, s, x)", r"scan inputs .* \[\(2,\), \(2, 3\)\]", id="both"
        ),
        pytest.param(2, (2, 4), (2, 3), "(n, s, x)", r"scan inputs .* \[\(2, 4\)", id="lengths"),
        pytest.param(1, (2, 5), (2, 3), "(, , x)", "an input is absent", id="no state"),
        pytest.param(1, (2, 5), (2, 3), "(n, s, x)", "rows .* differ", id="states that grow"),
    ],
)
def test_scan_8_of_rows_that_do_not_fit_fails(
    scanned: int, state: tuple[int, ...], x: tuple[int, ...], inputs: str, message: str
) -> None:
    text = f"""
    <ir_version: 3, opset_import: ["": 8]>
    g (int64[2] n, float[{str(state).strip("(,)")}] s, float[{str(x).strip("(,)")}] x)
      => (float[a, b] last, float[c, d] all) {{
      last, all = Scan <num_scan_inputs = {scanned}, body = b (float[i] p, float e) =>
        (float[j] q, float out) {{
          q = Concat <axis = 0> (p, p) out = Identity (e) }}> {inputs}
    }}
    """
    given = {name: np.ones(shape, np.float32) for name, shape in (("s", state), ("x", x))}
    with pytest.raises(RunFailed, match=message):
        run(text, n=np.array([1, 2]), **given)


def test_a_scan_output_that_is_also_a_state_keeps_each_iteration() -> None:
    # The cache is written in place from the second iteration on; what was stacked must not change.
    text = """
    g (float[1, 4, 1] past) => (float[1, 4, 1] last, float[3, 1, 4, 1] all) {
      m = Constant <value_int = 3> ()
      last, all = Loop (m, , past) <body = b (int64 i, bool c, float[1, 4, 1] s) =>
        (bool on, float[1, 4, 1] t, float[1, 4, 1] out) {
          on = Identity (c) axes = Constant <value_ints = [0]> () w = Unsqueeze (i, axes)
          one = Constant <value_float = 1.0> () shape = Constant <value_ints = [1, 1, 1]> ()
          u = Expand (one, shape)
          t = TensorScatter <axis = 1> (s, u, w) out = Identity (t) }>
    }
    """
    past = np.zeros((1, 4, 1), np.float32)
    got = run(text, past=past).values
    assert got["all"][:, 0, :, 0].tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]
    assert got["last"][0, :, 0].tolist() == [1, 1, 1, 0]
    assert not past.any()


def test_a_body_runs_the_same_in_each_iteration_although_its_inputs_are_consumed() -> None:
    # The captured cache is read in every iteration, so that none may write into it.
    text = """
    g (float[1, 4, 1] past) => (float[3, 1, 4, 1] all) {
      m = Constant <value_int = 3> () start = Identity (past)
      all = Loop (m, ) <body = b (int64 i, bool c) => (bool on, float[1, 4, 1] t) {
          on = Identity (c) axes = Constant <value_ints = [0]> () w = Unsqueeze (i, axes)
          one = Constant <value_float = 1.0> () shape = Constant <value_ints = [1, 1, 1]> ()
          u = Expand (one, shape)
          t = TensorScatter <axis = 1> (start, u, w) }>
    }
    """
    got = run(text, past=np.zeros((1, 4, 1), np.float32)).values
    assert got["all"][:, 0, :, 0].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
