"""What models say differently is shown by a run, or is no reason to call them equal."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_kvtool as kv
from tests.runtime.recorded import model

pytestmark = pytest.mark.long

HEAD = '<ir_version: 10, opset_import: ["": 21]> g (float[N, 7] x) => (float[N, 7] y)'


def with_weights(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    """Return the model of a text, with weights that are not in it."""
    message = onnx.parser.parse_model(text)
    message.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
    return message


def table(row: int, rest: str, value: float = 1.0) -> onnx.ModelProto:
    """Return an embedding of 6,000 rows, one of which has another value, and what follows."""
    weights = np.random.default_rng(0).normal(size=(6000, 7)).astype(np.float32)
    weights[row, 3] = value
    head = HEAD.replace("float[N, 7] x", "int64[N] ids")
    return with_weights(f"{head} {{ e = Gather (w, ids) {rest} }}", w=weights)


ONE, OTHER = "y = Neg (e)", "z = Neg (e) y = Identity (z)"


@pytest.mark.parametrize("rest", [ONE, OTHER])
def test_a_row_that_no_id_reaches_is_a_difference(rest: str) -> None:
    report = kv.verify(table(5000, ONE), table(5000, rest, 2.0))
    assert report.status == "different"
    assert "initializer `w` at [5000, 3] is 2" in " ".join([report.detail or "", *report.notes])
    assert kv.verify(table(5000, ONE), table(5000, rest)).status == "equal"


def test_a_weight_behind_what_is_dead_is_a_difference() -> None:
    """The Relu lets nothing through, so that no output shows the weight before it."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(7, 7)).astype(np.float32)
    other = w.copy()
    other[5, 3] += 1
    text = f"{HEAD} {{ m = MatMul (x, w) s = Sub (m, big) r = Relu (s) y = Add (x, r) }}"
    after = text.replace("y = Add (x, r)", "z = Add (x, r) y = Identity (z)")
    big = np.array([1e6], np.float32)
    report = kv.verify(with_weights(text, w=w, big=big), with_weights(after, w=other, big=big))
    assert report.status == "different"
    assert report.detail is not None
    assert report.detail.startswith("initializer `w` at [5, 3] is")
    assert report.detail.endswith("; no output shows it in these runs")


def test_a_weight_that_is_not_read_is_no_difference() -> None:
    text, after = (f"{HEAD} {{ {rest} }}" for rest in ("y = Neg (x)", "z = Neg (x) y = Abs (z)"))
    after = after.replace("Abs", "Identity")
    ones, twos = np.ones(3, np.float32), np.full(3, 2, np.float32)
    report = kv.verify(with_weights(text, w=ones), with_weights(after, w=twos))
    assert (report.status, report.covered and report.covered.unnoticed) == ("equal", ())


def hidden(order: list[int], rest: str = "y = Add (p, x)", **changed: int) -> onnx.ModelProto:
    """Return a layer of five hidden units, in an order, and perhaps one weight in another."""
    rng = np.random.default_rng(0)
    w1, b1, w2 = (rng.normal(size=s).astype(np.float32) for s in ((7, 5), (5,), (5, 7)))
    w1, b1, w2 = w1[:, order], b1[order], w2[order]
    for name, row in changed.items():
        weight = {"b1": b1, "w2": w2}[name]
        weight[[0, row]] = weight[[row, 0]]
    text = f"{HEAD} {{ h = MatMul (x, w1) a = Add (h, b1) t = Tanh (a) p = MatMul (t, w2) {rest} }}"
    return with_weights(text, w1=w1, b1=b1, w2=w2)


def test_hidden_units_may_stand_in_another_order() -> None:
    a, b = hidden([0, 1, 2, 3, 4]), hidden([3, 0, 4, 1, 2])
    report = kv.verify(a, b)
    assert (report.status, report.detail) == ("equal", None)
    assert report.covered is not None
    assert report.covered.unnoticed == ()
    for wrong in (hidden([3, 0, 4, 1, 2], b1=2), hidden([3, 0, 4, 1, 2], w2=1)):
        assert kv.verify(a, wrong).status == "different"


def test_that_a_comparison_is_exact_is_said() -> None:
    a, b = hidden([0, 1, 2, 3, 4]), hidden([0, 1, 2, 3, 4])
    weight = next(t for t in b.graph.initializer if t.name == "w1")
    values = numpy_helper.to_array(weight) * np.float32(1 + 2**-22)
    weight.CopyFrom(numpy_helper.from_array(values, "w1"))
    report = kv.verify(a, b)
    assert report.status == "different"
    assert any("every bit" in note for note in report.notes)


_EQUAL = {
    "a scale that is folded into a weight of the same name": (
        "s = Mul (x, k) y = MatMul (s, w)",
        "y = MatMul (x, w)",
        2.0,
    ),
    "a square weight that is transposed": (
        "y = MatMul (x, w)",
        "t = Transpose <perm = [1, 0]> (w) y = MatMul (x, t)",
        None,
    ),
}


@pytest.mark.parametrize("name", _EQUAL)
def test_what_makes_up_for_a_weight_is_seen(name: str) -> None:
    text, after, scale = _EQUAL[name]
    w = np.random.default_rng(0).normal(size=(7, 7)).astype(np.float32)
    other = w.T.copy() if scale is None else w * np.float32(scale)
    k = np.full(1, 2, np.float32)
    a = with_weights(f"{HEAD} {{ {text} }}", w=w, k=k)
    report = kv.verify(a, with_weights(f"{HEAD} {{ {after} }}", w=other))
    assert (report.status, report.detail) == ("equal", None)
    assert report.covered is not None
    assert report.covered.noticed >= 1
    assert report.covered.unnoticed == ()


_ATTRIBUTES = {
    "a slope": ("y = LeakyRelu <alpha = 0.1> (x)", ("0.1", "0.2"), "different", []),
    "a slope that nothing reaches": (
        "p = Exp (x) y = LeakyRelu <alpha = 0.1> (p)",
        ("0.1", "0.2"),
        "equal",
        ["attribute `alpha` of node `y` is 0.2"],
    ),
    "an epsilon below the tolerance": (
        "m = Mul (x, x) v = Add (m, w) y = LayerNormalization <epsilon = 1e-7> (v, w)",
        ("1e-7", "2e-7"),
        "equal",
        ["attribute `epsilon` of node `y` is 2"],
    ),
    "a default that is written": (
        "y = LeakyRelu <alpha = 0.01> (x)",
        (" <alpha = 0.01>", ""),
        "equal",
        [],
    ),
    "an axis that counts from the end": (
        "y = Softmax <axis = 1> (x)",
        ("= 1", "= -1"),
        "equal",
        [],
    ),
}
"""The nodes, what A says and what B says instead, the status and what is not covered."""


@pytest.mark.parametrize("rest", ["", " y = Identity (q)"])
@pytest.mark.parametrize("name", _ATTRIBUTES)
def test_an_attribute_that_nothing_shows_is_not_covered(name: str, rest: str) -> None:
    """Nodes are paired by the names of their values, or by their order where those differ."""
    text, values, status, expected = _ATTRIBUTES[name]
    weights = "<float[7] w = {1, 2, 3, 4, 5, 6, 7}>"
    after = text.replace("y =", "q =") + rest if rest else text
    texts = text, after.replace(*values)
    report = kv.verify(*(model(f"{HEAD} {weights} {{ {body} }}") for body in texts))
    assert report.status == status, report.detail
    assert report.covered is not None
    found = [entry.why for entry in report.covered.unnoticed]
    assert [why[: len(start)] for why, start in zip(found, expected, strict=True)] == expected
