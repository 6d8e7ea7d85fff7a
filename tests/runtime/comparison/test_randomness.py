"""Which values are random, and what is compared of them."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.runtime.comparison.randomness import random_values

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


@pytest.mark.parametrize(("text", "expected"), _RANDOM)
def test_values_that_random_numbers_go_into(text: str, expected: set[str]) -> None:
    assert random_values(ir.from_proto(_model(text))) == expected


_A = "g (float[N] x) => (float[N] y, float[N] z) { r = %s (x) y = Add (x, r) z = Neg (x) }"


@pytest.mark.parametrize("seed", ["", "<seed = 3.0>"], ids=["drawn anew", "from a seed"])
def test_only_type_and_shape_of_what_is_random_are_compared(seed: str) -> None:
    a, b = (_model(_A % f"{op} {seed}") for op in ("RandomNormalLike", "RandomUniformLike"))
    report = kv.verify(ir.from_proto(a), ir.from_proto(b))
    assert report.status == "equal"
    assert "only types and shapes are compared of what is random: `y`" in report.notes
    outputs = {output.name: output for output in report.outputs}
    assert (outputs["y"].bit_equal, outputs["y"].max_abs_diff) == (False, None)
    assert (outputs["z"].bit_equal, outputs["z"].max_abs_diff) == (True, 0.0)


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


def test_a_lowered_bernoulli_with_a_seed_is_not_called_different() -> None:
    text = "g (float[N] x) => (float[N] y) { p = Sigmoid (x) y = Bernoulli <seed = 2.0> (p) }"
    _, report = kv.lower(ir.from_proto(_model(text)), opset=11, verify=True)
    assert report.verification.status == "equal"
