"""What is compared within models, and what planted mistakes say of a comparison."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.reporting import Covered
from onnx_kvtool.emit import forms
from onnx_kvtool.rewrite.report import Verification
from onnx_kvtool.rewrite.verify import Verifier
from onnx_kvtool.runtime.sessions import open_session
from onnx_kvtool.verification import planting
from onnx_kvtool.verification import probes as module
from onnx_kvtool.verification.comparison.tolerances import Measure
from onnx_kvtool.verification.engine import compare_models
from onnx_kvtool.verification.planting import (
    GraphView,
    Recorder,
    mistake,
    open_to_mistakes,
    places_between,
    port,
)
from onnx_kvtool.verification.probes import Probes
from onnx_kvtool.verification.report import Settings
from onnx_kvtool.verification.subject import capture
from tests.grids import each
from tests.runtime.recorded import model

HEAD = """
<ir_version: 10, opset_import: ["": 18]>
g (float[N, 5] x) => (float[N, 5] y)
<float[1] one = {1}, float[1] two = {2}, float[1] big = {1e7}, float[1] tiny = {1e-9},
 float[1] odd = {1.001}, float[1] zero = {0}, float[5] even = {0, 1e4, 2e4, 3e4, 4e4}>
"""

SOURCE = "a = Abs (x) [rewritten] v = Add (a, one)"

RIGHT = "a = Abs (x) h = Sub (a, two) i = Add (h, one) v = Add (i, two)"
"""The same but for rounding."""

WRONG = "a = Abs (x) h = Mul (a, odd) v = Add (h, one)"
"""Off by a thousandth."""

HIDING = {
    "a dead Relu": "n = Neg (v) r = Relu (n) y = Add (r, x)",
    "no number": "n = Neg (v) y = Log (n)",
    "a saturated softmax": "m = Add (v, even) b = Mul (m, big) s = Softmax <axis = 1> (b) "
    "y = Add (s, x)",
    "the tolerance": "y = Mul (v, tiny)",
    "a product with zero": "z = Mul (v, zero) y = Add (z, x)",
    "a comparison": "c = Greater (v, zero) f = Cast <to = 1> (c) y = Add (f, x)",
}
"""What comes behind a value, so that no output shows whether it is right."""


hidden = pytest.mark.parametrize("behind", HIDING.values(), ids=HIDING)


def graph(computed: str, behind: str) -> ir.Model:
    return model(f"{HEAD} {{ {computed} {behind} }}")


def rewritten(computed: str, behind: str) -> Verification:
    """Return the proof of a rewrite of the source."""
    return Verifier(graph(SOURCE, behind)).compare(graph(computed, behind))


def test_a_constant_of_the_same_bits_hides_no_mistake() -> None:
    """One that is written anew is compared bit for bit, below every tolerance."""
    before = "c = Constant <value = float[1] {1e-7}> () v = Add (x, c)"
    after = "c = Constant <value_floats = [1e-7]> () v = Add (x, c)"
    behind = "y = Abs (v)"
    found = Verifier(graph(before, behind)).compare(graph(after, behind))
    assert (found.status, counts(found.covered)) == ("equal", (1, 1, 0))


@pytest.mark.long
def test_models_that_are_the_same_leave_nothing_to_cover() -> None:
    """A run has to show nothing of what both compute by the same nodes from the same weights."""
    text = graph(SOURCE, HIDING["no number"])
    found = kv.verify(text, text)
    assert (found.status, found.covered.gaps) == ("equal", ())
    other = kv.verify(text, graph(RIGHT, HIDING["no number"]))
    assert (other.status, other.covered.not_finite) == ("equal", ("y",))


def counts(covered: Covered | None) -> tuple[int, int, int]:
    """Return how many places there are, and in how many a mistake is noticed or not."""
    assert covered is not None
    return covered.places, covered.noticed, len(covered.unnoticed)


@hidden
def test_a_fault_of_a_rewrite_that_no_output_shows_is_found_where_it_happened(behind: str) -> None:
    found = rewritten(WRONG, behind)
    assert found.status == "different"
    assert "value `v` at [0, 2] is " in (found.detail or "")
    assert "no output shows it" in (found.detail or "")
    assert "node `rewritten` (Add)" in (found.detail or "")


@hidden
def test_a_right_rewrite_is_covered_whatever_hides_it(behind: str) -> None:
    found = rewritten(RIGHT, behind)
    assert (found.status, counts(found.covered)) == ("equal", (1, 1, 0))


@hidden
def test_a_hidden_difference_of_two_models_is_not_passed_over(behind: str) -> None:
    found = kv.verify(graph(SOURCE, behind), graph(WRONG, behind))
    assert found.status == "equal"
    assert found.covered is not None
    assert (found.covered.places, found.covered.noticed) == (1, 0)
    [place] = found.covered.unnoticed
    assert (place.location.node, place.location.value) == ("rewritten", "v")
    assert place.why.startswith("value `v` at [0, ")


@pytest.mark.long
@hidden
def test_values_that_are_no_longer_the_same_ones_are_no_difference(behind: str) -> None:
    # A name for another value: what follows takes that into account.
    other = behind.replace("(v", "(u")
    computed = "a = Abs (x) h = Add (a, one) v = Mul (h, two) half = Reciprocal (two)"
    found = kv.verify(graph(SOURCE, behind), graph(f"{computed} u = Mul (v, half)", other))
    assert found.status == "equal"
    shown = kv.verify(
        graph(SOURCE, "y = Sub (v, x)"), graph(f"{computed} u = Mul (v, half)", "y = Sub (u, x)")
    )
    assert shown.covered is not None
    assert (shown.status, shown.covered.noticed, shown.covered.unnoticed) == ("equal", 2, ())


@pytest.mark.long
def test_a_fault_in_a_rule_is_found_where_no_output_shows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = """
    <ir_version: 11, opset_import: ["": 23]>
    g (float[N, 5] x) => (float[N, 5] y)
    <float[5] scale = {1, 2, 3, 5, 7}>
    { v = RMSNormalization (x, scale) a = Abs (v) n = Neg (a) r = Relu (n) y = Add (r, x) }
    """
    _, report = kv.lower(model(text), opset=18)
    assert (report.verification.status, counts(report.verification.covered)) == ("equal", (1, 1, 0))

    right = forms.reduce

    def wrong(em: Any, op_type: str, *rest: Any, **options: Any) -> ir.Value:
        return right(em, "ReduceMax", *rest, **options)

    monkeypatch.setattr(forms, "reduce", wrong)
    with pytest.raises(kv.Refused, match=r"value `v` at .* no output shows it"):
        kv.lower(model(text), opset=18)


NARROW = """
<ir_version: 10, opset_import: ["": 18]>
g (TYPE[N, 5] x) => (TYPE[N, 5] y)
<float[1] f = {1}, float[1] g = {2}, float[1] h = {1.25}>
{
  one = CastLike (f, x) two = CastLike (g, x) odd = CastLike (h, x)
  a = Abs (x) [rewritten] LINES n = Neg (v) r = Relu (n) y = Add (r, x)
}
"""


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_fault_in_a_narrow_type_is_found_where_it_happened(dtype: str) -> None:
    source, right, wrong = (
        model(NARROW.replace("TYPE", dtype).replace("LINES", lines))
        for lines in (
            "v = Add (a, one)",
            "i = Sub (a, two) j = Add (i, one) v = Add (j, two)",
            "i = Mul (a, odd) v = Add (i, one)",
        )
    )
    verifier = Verifier(source)
    assert counts(verifier.compare(right).covered) == (1, 1, 0)
    found = verifier.compare(wrong)
    assert found.status == "different"
    assert "no output shows it" in (found.detail or "")


BODY = """
<ir_version: 10, opset_import: ["": 18, "own": 1]>
g (float[N, 5] x, bool[1] c) => (float[N, 5] y)
{
  [inner] v = If (c) <
    then_branch = t () => (float[N, 5] p) { p = THEN (x) },
    else_branch = e () => (float[N, 5] q) { q = Abs (x) }
  >
  [called] w = own.twice (v)
  a = Abs (w) n = Neg (a) r = Relu (n) y = Add (r, x)
}
<domain: "own", opset_import: ["": 18, "own": 1]>
twice (h) => (k) { m = own.once (h) k = Add (m, m) }
<domain: "own", opset_import: ["": 18]>
once (h) => (k) { k = ONCE (h) }
"""


@each(
    ("then", "once", "places"),
    [
        pytest.param("Sin", "Neg", [], id="nothing"),
        pytest.param("Cos", "Neg", ["v"], id="a branch"),
        pytest.param("Sin", "Identity", ["w"], id="a function that another calls"),
        pytest.param("Cos", "Identity", ["v", "w"], id="both"),
    ],
)
def test_a_place_within_is_that_of_the_node_that_holds_it(
    then: str, once: str, places: list[str]
) -> None:
    one, other = (
        GraphView(capture(model(BODY.replace("THEN", a).replace("ONCE", b)), "A"))
        for a, b in (("Sin", "Neg"), (then, once))
    )
    found = places_between(one, other, Settings(is_a_right=True))
    assert [place.a for place in found] == places
    names = {"v": "inner", "w": "called"}
    assert [place.location.node for place in found] == [names[name] for name in places]


DTYPES = [
    *("float", "double", "float16", "bfloat16", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
]


@each("dtype", DTYPES)
def test_an_open_model_is_the_model_itself_until_a_mistake_is_planted(dtype: str) -> None:
    text = """
    <ir_version: 10, opset_import: ["": 18]>
    g (TYPE[N, 3] x, bool c) => (TYPE[N, 3] y, TYPE[N, 3] z)
    {
      v = Identity (x)
      y = If (c) <
        then_branch = t () => (TYPE[N, 3] p) { p = Identity (v) },
        else_branch = e () => (TYPE[N, 3] q) { q = Identity (x) }
      >
      z = Identity (v)
    }
    """
    source = model(text.replace("TYPE", dtype))
    view = GraphView(capture(source, "A"))
    before = view.proto.SerializeToString()
    x = _edges(ir.DataType[dtype.upper()].numpy())
    data, ports = open_to_mistakes(view, ["v"], {"v": x.dtype})
    assert ports == {"v"}
    assert view.proto.SerializeToString() == before
    session = open_session("reference", data, "")
    right = session.run({"x": x, "c": np.array(True)})
    assert all(array.tobytes() == x.tobytes() for array in right.values())
    planted = mistake(x)
    assert planted is not None
    wrong = session.run({"x": x, "c": np.array(True), port("v"): planted})
    assert all(array.tobytes() != x.tobytes() for array in wrong.values())
    wrong = session.run({"x": x, "c": np.array(False), port("v"): planted})
    assert wrong["y"].tobytes() == x.tobytes()
    assert wrong["v"].tobytes() != x.tobytes()


def _edges(dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return six values of a type, its limits and zeros of both signs among them."""
    if dtype == np.bool_:
        return np.array([[True, False, True], [False, False, True]])
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.array([[0, 1, limits.max], [limits.min, 7, 5]], dtype)
    return np.array([[0.0, -0.0, 3.0], [np.inf, 2**-7, -5.0]]).astype(dtype)


def test_a_place_that_the_first_runs_leave_empty_is_looked_at_in_the_last_one() -> None:
    runs = [{"x": np.zeros((n, 5), np.float32)} for n in (0, 0, 3)]
    a, b = (capture(graph(lines, "y = Neg (v)"), "A") for lines in (SOURCE, RIGHT))
    measure = Measure(frozenset())

    def found(last: dict[str, npt.NDArray[Any]] | None) -> tuple[int, list[str]]:
        views = GraphView(a), GraphView(b)
        places = places_between(*views, Settings(is_a_right=True))
        probes = Probes(*views, places, measure, "onnxruntime", is_binding=True)
        seen, _ = probes.look(runs[:2], last, 0.0)
        return seen.noticed, [place.why for place in seen.unnoticed]

    assert found(None) == (0, ["it has no element in these runs"])
    assert found(runs[2]) == (1, [])


@pytest.mark.parametrize("number", ["1e-9", "-inf", "3.0"])
def test_a_constant_is_compared_bit_for_bit(number: str) -> None:
    text = """
    g (float[N] x) => (float[N] y)
    { h = Constant <value = float {NUMBER}> () c = Constant <FORM> () m = Max (x, c) y = Neg (m) }
    """
    source, result = (
        model(text.replace("FORM", form).replace("NUMBER", "2"))
        for form in ("value = float {1}", "value_float = 1.0")
    )
    for changed in (source, result):
        node = next(node for node in changed.graph if node.outputs[0].name == "c")
        node.attributes.add(_constant("value" in node.attributes, float(number)))
    found = Verifier(source).compare(result)
    assert (found.status, counts(found.covered)) == ("equal", (1, 1, 0))


def _constant(is_tensor: bool, number: float) -> ir.Attr:
    if not is_tensor:
        return ir.AttrFloat32("value_float", number)
    return ir.AttrTensor("value", ir.tensor(np.float32(number)))


@pytest.mark.parametrize(("thorough", "least"), [(False, 1), (True, 7)])
def test_mistakes_are_planted_at_every_place_if_the_caller_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, thorough: bool, least: int
) -> None:
    planted: set[str] = set()
    notices = Probes._notices

    def note(self: Probes, opened: Any, probes: Any, probe: Any, *rest: Any) -> bool:
        planted.add(probe.place.a)
        return notices(self, opened, probes, probe, *rest)

    monkeypatch.setattr(Probes, "_notices", note)
    names = [*"vwabcd", "y"]
    forward, back = (
        " ".join(
            f"{name} = {line.format(read)}"
            for read, name in zip("x" + "vwabcd", names, strict=True)
        )
        for line in ("Add ({}, one)", "Add (one, {})")
    )
    source, result = (capture(graph(lines, ""), "A") for lines in (forward, back))
    found = compare_models(source, result, Settings(is_a_right=True, thorough=thorough))
    assert counts(found.covered) == (7, 7, 0)
    assert least <= len(planted) <= (7 if thorough else 2)


def test_a_recorder_keeps_runs_without_padding_and_no_more_than_fit() -> None:
    session = open_session("onnxruntime", capture(graph(SOURCE, "y = Neg (v)"), "A").model, "")
    runs = [{"x": np.full((n, 5), n, np.float32)} for n in (2, 3, 7, 5, 1)]
    padded = {2, 7}

    def kept(memory: int, *, is_every: bool = False) -> tuple[list[int], int | None]:
        recorder = Recorder(
            session,
            memory,
            Measure(frozenset()),
            lambda inputs: len(inputs["x"]) not in padded,
            is_every=is_every,
        )
        for run in runs:
            recorder.run(run)
        last = None if recorder.last is None else len(recorder.last["x"])
        return [len(run["x"]) for run in recorder.runs], last

    assert kept(1 << 20) == ([3, 5], 1)
    assert kept(1 << 20, is_every=True) == ([3, 5, 1], None)
    assert kept(16 * 3 * 5 * 4) == ([3], None)
    padded |= {3, 5, 1}
    assert kept(1 << 20) == ([2], None)


def test_of_alike_places_of_a_larger_model_two_are_looked_at_with_one_loading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[int] = []
    handed: list[str] = []
    compared = Probes._compare

    def load(*args: Any, **options: Any) -> Any:
        loaded.append(1)
        return open_session(*args, **options)

    def note(self: Probes, probe: Any, *rest: Any) -> None:
        handed.append(probe.place.a)
        compared(self, probe, *rest)

    monkeypatch.setattr(module, "_LIGHT", 0)
    for one in (module, planting):
        monkeypatch.setattr(one, "open_session", load)
    monkeypatch.setattr(Probes, "_compare", note)
    forward, back = (
        " ".join(f"{to} = {line.format(of)}" for of, to in zip("xvwabcd", "vwabcdy", strict=True))
        for line in ("Add ({}, one)", "Add (one, {})")
    )
    source, result = (capture(graph(lines, ""), "A") for lines in (forward, back))
    found = compare_models(source, result, Settings(is_a_right=True))
    assert counts(found.covered) == (7, 7, 0)
    assert {*handed} == {"v", "w"}
    assert len(loaded) == 2


@hidden
def test_values_of_other_names_correspond_as_their_nodes_are_matched(behind: str) -> None:
    other = re.sub(r"\b([a-z])(?= =|[,)])", r"n_\1", f"{WRONG} {behind}").replace("n_x", "x")
    found = kv.verify(graph(SOURCE, behind), graph(other.replace("n_y =", "y ="), ""))
    assert found.status == "equal"
    assert found.covered is not None
    assert [place.location.value for place in found.covered.unnoticed] == ["v"]
