"""What two models are held to, and what is said of their difference."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.runtime import onnxruntime
from onnx_kvtool.runtime.errors import ModelRejected, RuntimeUnavailable
from onnx_kvtool.verification import subject
from onnx_kvtool.verification.subject import capture
from onnx_kvtool.verification.weights import alike, likeness
from tests.grids import each
from tests.runtime.recorded import model

CHAIN = """
<ir_version: 10, opset_import: ["": 18]>
g (float[N, 3] x) => (float[N, 3] y, float[N, 3] z)
{
  [first] a = Sin (x)
  [second] b = Mul (a, a)
  [third] c = Add (b, x)
  [fourth] y = Neg (c)
  [fifth] z = Sqrt (b)
}
"""


def verified(one: str, other: str, **settings: object) -> kv.VerifyReport:
    return kv.verify(model(one), model(other), **settings)  # type: ignore[arg-type]


def test_the_earliest_node_that_differs_is_named_in_both() -> None:
    other = CHAIN.replace("[second] b = Mul (a, a)", "h = Cos (x) [product] b = Mul (a, h)")
    found = verified(CHAIN, other)
    assert found.status == "different"
    assert found.earliest is not None
    assert str(found.earliest.a) == "g, node `second` (Mul), value `b`"
    assert str(found.earliest.b) == "g, node `product` (Mul), value `b`"
    assert found.earliest.mismatch is not None
    assert found.earliest.mismatch.index == (0, 0)
    assert found.notes == ()


def test_values_of_models_that_are_alike_are_paired_without_their_names() -> None:
    weight = "<float[3] w = {1, 2, 3}>"
    one = CHAIN.replace("{\n", f"{weight} {{\n", 1).replace("Mul (a, a)", "Mul (a, w)")
    other = one.replace("{1, 2, 3}", "{1, 2, 4}").replace("b = ", "q = ")
    other = other.replace("(b", "(q").replace("w = {", "v = {").replace("(a, w)", "(a, v)")
    found = verified(one, other)
    assert found.status == "different"
    assert found.earliest is not None
    assert (found.earliest.a.value, found.earliest.b.value) == ("b", "q")
    assert found.notes == (
        "initializer `w` at [2] is 4 in B, 3 in A",
        "A and B are the same but for names and weights: every bit has to agree",
    )


@pytest.mark.long
def test_that_no_node_can_be_named_is_said() -> None:
    other = """
    <ir_version: 10, opset_import: ["": 18]>
    h (float[N, 3] x) => (float[N, 3] y, float[N, 3] z)
    { s = Sin (x) r = Abs (s) z = Sqrt (r) t = Neg (r) y = Sub (t, x) }
    """
    found = verified(CHAIN, other)
    assert found.status == "different"
    # The outputs are what the models name in common.
    assert found.earliest is not None
    assert found.earliest.a.value == "y"
    no_outputs = CHAIN.replace("y = Neg (c)", "e = Neg (c) y = Identity (e)")
    assert verified(no_outputs, other).earliest is not None


def test_values_that_are_no_tensors_are_passed_over() -> None:
    text = """
    <ir_version: 10, opset_import: ["": 18]>
    g (float[N, 3] x) => (float[M, 3] y)
    {
      s = SequenceConstruct (x, x)
      [joined] c = ConcatFromSequence <axis = 0> (s)
      [last] y = OP (c)
    }
    """
    found = verified(text.replace("OP", "Sin"), text.replace("OP", "Cos"))
    assert found.status == "different"
    assert found.earliest is not None
    assert found.earliest.a.node == "last"


def test_every_output_is_compared_in_every_run() -> None:
    other = CHAIN.replace("Sqrt (b)", "Exp (b)")
    found = verified(CHAIN, other)
    by_name = {output.name: output for output in found.outputs}
    assert list(by_name) == ["y", "z"]
    assert (by_name["y"].bit_equal, by_name["y"].first_mismatch) == (True, None)
    assert by_name["z"].bit_equal is False
    assert by_name["z"].first_mismatch is not None
    assert by_name["z"].max_abs_diff is not None
    assert found.cases == 5  # one more, as the inputs have few elements


@pytest.mark.long
def test_a_tolerance_that_is_given_is_the_only_one() -> None:
    # |sin x|: rounding apart the same.
    other = CHAIN.replace("Mul (a, a)", "Mul (h, a)").replace(
        "[second]", "k = Constant <value_float = 1.0000002> () h = Mul (a, k) [second]"
    )
    assert verified(CHAIN, other).status == "equal"
    found = verified(CHAIN, other, rtol=0.0, atol=0.0)
    assert found.status == "different"
    assert verified(CHAIN, other, rtol=0.0, atol=1e-5).status == "equal"
    # Data that is only moved stays exact.
    move = "g (float[N] x) => (float[N] y) { y = Identity (x) }"
    scaled = move.replace(
        "y = Identity (x)", "k = Constant <value_float = 1.0000002> () y = Mul (x, k)"
    )
    assert verified(move, scaled, atol=1.0).status == "different"


def test_nan_equals_nan() -> None:
    text = "g (float[N] x) => (float[N] y) { z = Neg (x) a = Abs (z) b = Neg (a) y = Sqrt (b) }"
    other = text.replace("b = Neg (a)", "c = Neg (a) b = Identity (c)")
    found = verified(text, other)
    assert found.status == "equal"


@pytest.mark.long
def test_what_changes_for_a_reason_that_is_not_known_cannot_be_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subject, "random_values", lambda model: frozenset())
    text = "g (float[N] x) => (float[N] y) { r = RandomNormalLike (x) y = Add (x, r) }"
    found = verified(text, text.replace("Add", "Sub"))
    assert found.status == "unrunnable"
    assert found.detail is not None
    assert "output `y` changes when a model is run again on the same inputs" in found.detail


@pytest.mark.long
def test_one_model_that_does_not_run_where_the_other_does_is_different() -> None:
    right = "g (float[N, 4] x) => (float[N, 4] y) { y = Neg (x) }"
    wrong = """
    g (float[N, 4] x) => (float[N, 4] y)
    {
      n = Neg (x)
      s = Constant <value_ints = [100, 4]> ()
      r = Reshape (n, s)
      y = Identity (r)
    }
    """
    for pair in ((right, wrong), (wrong, right)):
        found = verified(*pair)
        assert found.status == "different"
        assert "fails in case 1 with `x` of shape (2, 4)" in (found.detail or "")
        assert found.earliest is None
    assert verified(wrong, wrong).status == "unrunnable"


@pytest.mark.long
def test_more_cases_differ_in_size() -> None:
    found = verified(CHAIN, CHAIN, cases=11, steps=0)
    assert (found.status, found.cases, found.steps) == ("equal", 11, 11)
    assert verified(CHAIN, CHAIN, cases=1).cases == 1


@pytest.mark.long
def test_the_seed_chooses_the_inputs() -> None:
    other = CHAIN.replace("Sin (x)", "Cos (x)")
    texts = {str(verified(CHAIN, other, seed=seed).outputs[0].first_mismatch) for seed in (0, 0, 1)}
    assert len(texts) == 2


@pytest.mark.parametrize("name", ["onnxruntime", "reference"])
def test_a_runtime_that_is_forced_is_the_only_one(name: str) -> None:
    found = verified(CHAIN, CHAIN, runtime=name)
    assert (found.status, (found.runtime or "").split()[0]) == ("equal", name)


def test_a_runtime_that_is_forced_and_lacks_a_kernel_leaves_the_models_unrun() -> None:
    text = """
    g (float8e5m2[B, 5, 3] past, float8e5m2[B, L, 3] update, int64[B] start)
        => (float8e5m2[B, 5, 3] present)
    { present = TensorScatter <axis = 1> (past, update, start) }
    """
    found = verified(text, text, runtime="onnxruntime")
    assert found.status == "unrunnable"
    assert "onnxruntime" in (found.detail or "")
    found = verified(text, text)
    assert (found.status, (found.runtime or "").split()[0]) == ("equal", "reference")
    assert any("onnxruntime" in note for note in found.notes)


@pytest.mark.parametrize("refused", ["A", "B"])
def test_a_model_that_breaks_the_specification_is_different_from_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    real = onnxruntime.Session
    calls: list[int] = []

    def open_(*args: object, **options: object) -> object:
        calls.append(1)
        if len(calls) == ("A", "B").index(refused) + 1:
            raise ModelRejected("it is broken")
        return real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(onnxruntime, "Session", open_)
    found = verified(CHAIN, CHAIN.replace("Sin", "Cos"))
    assert (found.status, found.detail) == ("different", "it is broken")


def test_whose_fault_it_is_that_nothing_runs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise RuntimeUnavailable("not available")

    monkeypatch.setattr(onnxruntime, "Session", refuse)
    found = verified(CHAIN, CHAIN, runtime="onnxruntime")
    assert (found.status, found.detail) == ("unrunnable", "not available")


BASE = """
<ir_version: 10, opset_import: ["": 18]>
g (float[N, 3] x) => (float[N, 3] y)
<float[3] w = {1, 2, 3}, float[3] v = {4, 5, 6}>
{
  a = Mul (x, w)
  b = Add (a, v)
  y = Softmax <axis = 1> (b)
}
"""


@each(
    ("changes", "expected"),
    [
        pytest.param([], True, id="the same model"),
        pytest.param([("a = ", "q = "), ("(a, v)", "(q, v)")], True, id="another name of a value"),
        pytest.param([("w = ", "u = "), ("(x, w)", "(x, u)")], True, id="of a weight"),
        pytest.param([("{1, 2, 3}", "{1, 2, 7}")], True, id="another value of a weight"),
        pytest.param([("axis = 1", "axis = 0")], False, id="another attribute"),
        pytest.param([("Mul", "Div")], False, id="another operator"),
        pytest.param([("(x, w)", "(w, x)")], False, id="operands the other way round"),
        pytest.param([("18]", "21]")], False, id="another opset"),
        pytest.param([("float[3] w = {1, 2, 3}", "float[1] w = {1}")], False, id="another shape"),
        pytest.param([("(b)", "(a)")], False, id="another connection"),
    ],
)
def test_models_are_alike_but_for_names_and_weights(
    changes: list[tuple[str, str]], expected: bool
) -> None:
    text = BASE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    found = likeness(capture(model(BASE), "A"), capture(model(text), "B"))
    assert (found is not None) == expected
    if found is not None:
        assert len(found.weights) == 2
        assert [name for name, _ in found.values] == ["a", "b", "y"]


def test_a_name_that_is_read_too_early_is_no_connection() -> None:
    text = """
    <ir_version: 10, opset_import: ["": 18]>
    g (float[3] x, float[3] y) => (float[3] z)
    {
      z = Neg (a)
      a = Relu (x)
      b = Relu (y)
    }
    """
    one = onnx.parser.parse_model(text)
    other = onnx.parser.parse_model(text.replace("a = ", "c = ").replace("b = ", "a = "))
    assert alike(one, other) is None


def test_models_are_alike_though_a_node_has_neither_name_nor_result() -> None:
    one = onnx.parser.parse_model(BASE)
    one.graph.node.add(op_type="Neg", input=["x"])
    assert alike(one, one) is not None


def test_a_constant_in_a_body_or_an_attribute_is_a_weight_too() -> None:
    text = """
    <ir_version: 10, opset_import: ["": 18]>
    g (bool c, float[2] x) => (float[2] y)
    {
      y = If (c) <
        then_branch = t () => (float[2] p) {
          k = Constant <value = float[2] {1, 2}> ()
          p = Add (x, k)
        },
        else_branch = e () => (float[2] q) { q = Neg (x) }
      >
    }
    """
    other = text.replace("{1, 2}", "{1, 2.0000002}")
    found = verified(text, other)
    assert found.status == "different"
    assert "attribute `value` of node `k` at [1] is 2.00000024 in B, 2 in A" in (
        "; ".join([found.detail or "", *found.notes])
    )


def test_models_are_not_changed() -> None:
    one, other = model(CHAIN), model(CHAIN.replace("Sin", "Cos"))
    before = [ir.to_proto(m).SerializeToString(deterministic=True) for m in (one, other)]
    kv.verify(one, other)
    after = [ir.to_proto(m).SerializeToString(deterministic=True) for m in (one, other)]
    assert before == after


@each(
    "settings",
    [
        {"cases": 0},
        {"steps": -1},
        {"seed": -1},
        {"runtime": "torch"},
        {"rtol": -1.0},
        {"atol": np.nan},
        {"dims": {"nobody": 2}},
    ],
)
def test_wrong_use_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(kv.UsageError):
        verified(CHAIN, CHAIN, **settings)


def test_data_that_is_missing_is_unreadable() -> None:
    source = model(BASE)
    tensor = ir.ExternalTensor(
        "gone.bin", 0, 12, ir.DataType.FLOAT, shape=ir.Shape([3]), name="w", base_dir="/nowhere"
    )
    source.graph.initializers["w"].const_value = tensor
    with pytest.raises(kv.UnreadableModel, match=r"gone\.bin"):
        kv.verify(model(BASE), source)


@pytest.mark.long
@pytest.mark.parametrize("outputs", ["y", "y, nk, nv"], ids=["without", "with"])
@pytest.mark.parametrize(("query", "key"), [("S", "S"), ("1", "4"), ("S", "T")])
def test_the_kernel_of_one_runtime_is_no_oracle(query: str, key: str, outputs: str) -> None:
    """It has no kernel for a past without presents, and one that is wrong for a single query."""
    given = "".join(f", float[B, 2, R, 4] {name}" for name in outputs.split(", ")[1:])
    text = f"""<ir_version: 11, opset_import: ["": 23]>
    g (float[B, 2, {query}, 4] q, float[B, 2, {key}, 4] k, float[B, 2, P, 4] p)
    => (float[B, 2, {query}, 4] y{given})
    {{ {outputs} = Attention <is_causal = 1> (q, k, k, , p, p) }}"""
    source = model(text)
    found = kv.verify(source, kv.lower(source, opset=18, verify=False)[0])
    assert (found.status, found.detail) == ("equal", None)
    is_right = (query, key) == ("S", "S") and outputs != "y"
    assert (found.runtime or "").startswith("onnxruntime" if is_right else "reference")
