"""Which values are random, and what is compared of them."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.verification.comparison.randomness import RUNS, random_values
from tests.grids import each, thinned

_HEAD = '<ir_version: 10, opset_import: ["": 15, "m": 1]> '


def _model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(_HEAD + text)


_RANDOM = [
    pytest.param("g (float[N] x) => (float[N] y) { y = Neg (x) }", set(), id="nothing"),
    pytest.param(
        "g (float[N] x) => (float[N] y, int64[1] s)"
        " { r = RandomNormalLike (x) y = Add (x, r) s = Shape (r) }",
        {"r", "y"},
        id="what is computed from it, but no size of it",
    ),
    pytest.param(
        "g (float[N] x, bool t) => (float[N] y) { y = Dropout (x, , t) }",
        {"y"},
        id="Dropout that may train",
    ),
    pytest.param(
        "g (float[N] x) => (float[N] y) <bool t = {0}> { y = Dropout (x, , t) }",
        set(),
        id="Dropout that never trains",
    ),
    pytest.param("g (float[N] x) => (float[N] y) { y = Dropout (x) }", set(), id="Dropout"),
    pytest.param(
        "g (float[N] x, float[7] b, bool t) => (float[N] y)"
        " { y = com.microsoft.BiasDropout (x, b, , , t) }",
        {"y"},
        id="an operator of onnxruntime that may train",
    ),
    pytest.param(
        "g (bool c, float[N] x) => (float[N] y) { r = Bernoulli (x) y = If (c) <"
        "then_branch = t () => (float[N] a) { a = Neg (r) },"
        "else_branch = e () => (float[N] b) { b = Neg (x) }> }",
        {"r", "y"},
        id="a body that reads it",
    ),
    pytest.param(
        "g (float[N] x) => (float[N] y) { z = m.outer (x) y = Neg (z) }"
        '<domain: "m", opset_import: ["": 15, "m": 1]> outer (a) => (b) { b = m.inner (a) }'
        '<domain: "m", opset_import: ["": 15]> inner (a) => (b) { b = RandomUniformLike (a) }',
        {"z", "y"},
        id="a function that calls one",
    ),
]


@each(("text", "expected"), _RANDOM)
def test_values_that_random_numbers_go_into(text: str, expected: set[str]) -> None:
    assert random_values(ir.from_proto(_model(text))) == expected


_A = "g (float[N] x) => (float[N] y, float[N] z) { r = %s (x) y = Add (x, r) z = Neg (x) }"


@pytest.mark.long
@pytest.mark.parametrize("seed", ["", "<seed = 3.0>"], ids=["drawn anew", "from a seed"])
def test_what_is_random_is_compared_over_many_runs(seed: str) -> None:
    a, b = (_model(_A % f"{op} {seed}") for op in ("RandomNormalLike", "RandomUniformLike"))
    other = _model(_A % "RandomNormalLike <seed = 7.0>")
    report = kv.verify(ir.from_proto(a), ir.from_proto(other))
    assert report.status == "equal"
    assert f"random, and compared by the means over {RUNS} runs alone: `y`" in report.notes
    assert report.covered is not None
    assert report.covered.unproven == ("y",)
    outputs = {output.name: output for output in report.outputs}
    assert (outputs["y"].bit_equal, outputs["y"].max_abs_diff) == (False, None)
    assert (outputs["z"].bit_equal, outputs["z"].max_abs_diff) == (True, 0.0)
    assert kv.verify(ir.from_proto(a), ir.from_proto(b)).status == "different"


_FIVE = (
    "g (float[N, 5] x) => (float[N, 5] y) <float zero = {{0}}, float half = {{0.5}}, "
    "float tenth = {{0.1}}, float rare = {{0.001}}, float most = {{0.99}}, bool true = {{1}}> "
    "{{ {} }}"
)
_NOTHING = "r = RandomNormalLike (x) q = Mul (r, zero) y = Add (q, {})"
_PAIRS = {
    "noise in B alone": ("y = Neg (x)", "n = Neg (x) r = RandomNormalLike (x) y = Add (n, r)", 0),
    "noise in A alone": ("n = Neg (x) r = RandomNormalLike (x) y = Add (n, r)", "y = Neg (x)", 0),
    "training in B alone": ("y = Neg (x)", "n = Neg (x) y = Dropout (n, half, true)", 0),
    "noise times zero in B alone": ("y = Neg (x)", "n = Neg (x) " + _NOTHING.format("n"), 1),
    "noise times zero that hides a factor": (
        "y = Mul (x, half)",
        "n = Mul (x, x) " + _NOTHING.format("n"),
        0,
    ),
    "another order": (
        "r = RandomNormalLike (x) y = Add (r, x)",
        "r = RandomNormalLike (x) y = Add (x, r)",
        1,
    ),
    "a mean": ("y = RandomNormalLike (x)", "y = RandomNormalLike <mean = 1.0> (x)", 0),
    "a spread": ("y = RandomNormalLike (x)", "y = RandomNormalLike <scale = 2.0> (x)", 0),
    "a share": ("y = Dropout (x, half, true)", "y = Dropout (x, tenth, true)", 0),
    "rare numbers": ("y = Dropout (x, rare, true)", "q = Dropout (x, rare, true) y = Abs (q)", 0),
    "rare numbers of one kind": ("y = Dropout (x, rare, true)", "y = Dropout (x, rare, true)", 1),
    "a fixed part beside a random one": (
        (
            "r = Dropout (x, half, true) z = Concat <axis = 1> (x, r)"
            " i = Constant <value_ints = [0, 1, 2, 3, 7]> () y = Gather <axis = 1> (z, i)"
        ),
        (
            "r = Dropout (x, half, true) n = Mul (x, most) z = Concat <axis = 1> (n, r)"
            " i = Constant <value_ints = [0, 1, 2, 3, 7]> () y = Gather <axis = 1> (z, i)"
        ),
        0,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("seed", thinned(range(4), 4))
@pytest.mark.parametrize("name", _PAIRS)
def test_random_outputs_are_told_apart(name: str, seed: int) -> None:
    *texts, is_equal = _PAIRS[name]
    a, b = (ir.from_proto(_model(_FIVE.format(text))) for text in texts)
    report = kv.verify(a, b, seed=seed)
    assert (report.status == "equal") == bool(is_equal), report.detail


@pytest.mark.long
@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (
            (_A % "RandomNormalLike").replace("Neg", "Abs"),
            "output `z`",
        ),
        (
            (_A % "RandomNormalLike")
            .replace("float[N] y", "float[M] y")
            .replace("Add", "Concat <axis = 0>"),
            "output `y` is of dtype float32 and shape",
        ),
    ],
    ids=["what is not random differs", "the shape differs"],
)
def test_all_else_has_to_agree(other: str, expected: str) -> None:
    a, b = _model(_A % "RandomNormalLike"), _model(other)
    report = kv.verify(ir.from_proto(a), ir.from_proto(b))
    assert report.status == "different"
    assert (report.detail or "").startswith(expected)


@pytest.mark.long
def test_a_lowered_bernoulli_with_a_seed_is_not_called_different() -> None:
    text = "g (float[N] x) => (float[N] y) { p = Sigmoid (x) y = Bernoulli <seed = 2.0> (p) }"
    _, report = kv.lower(ir.from_proto(_model(text)), opset=11, verify=True)
    assert report.verification.status == "equal"
