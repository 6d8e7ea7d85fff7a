"""How wide the tolerance of an output is, and why."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnx_kvtool as kv
from tests.runtime.recorded import model

pytestmark = pytest.mark.long

HEAD = '<ir_version: 10, opset_import: ["": 21]> g (float[N, 7] x) => (float[N, 7] y)'


def pictures(dtype: str = "float32", offset: float = 0.0) -> onnx.ModelProto:
    """Return a small CNN (N, 3, 7, 5) -> (N, 2) that computes in `dtype`."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(size=(5, 3, 3, 3)) / 5,
        "w2": rng.normal(size=(7, 5, 3, 3)) / 7,
        "w3": rng.normal(size=(7, 2)) / 3,
        "offset": np.full(1, offset),
    }
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=number),
        helper.make_node("Conv", ["h", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "w3"], ["m"]),
        helper.make_node("Add", ["m", "offset"], ["s"]),
        helper.make_node("Cast", ["s"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, ["N", 3, 7, 5])],
        [helper.make_tensor_value_info("y", 1, ["N", 2])],
        [numpy_helper.from_array(value.astype(dtype), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def because(report: kv.VerifyReport) -> str:
    assert report.covered is not None
    return report.covered.tolerance["y"].because


def test_a_type_beside_the_path_widens_nothing() -> None:
    texts = [
        f"{HEAD} <bfloat16[1] unread = {{1}}> {{ m = Mul (x, x) {rest} }}"
        for rest in (
            "y = Neg (m)",
            "o = Constant <value_float = 0.02> () n = Neg (m) y = Add (n, o)",
        )
    ]
    report = kv.verify(*map(model, texts))
    assert report.status == "different"
    assert kv.verify(model(texts[0]), model(texts[0])).status == "equal"


def test_a_float16_twin_is_held_to_what_rounding_does() -> None:
    """An offset of 0.02 is four units of the coarser type, which is no reason to let it pass."""
    wide, narrow = pictures(), pictures("float16")
    for pair in ((wide, narrow), (narrow, wide)):
        report = kv.verify(*pair)
        assert (report.status, report.detail) == ("equal", None)
        assert because(report).startswith("float16 from `c1`")
        assert report.covered is not None
        found = [entry.why[:37] for entry in report.covered.unnoticed]
        assert found == ["B computes in float16 where A does in"] * (pair[1] is narrow)
        assert any("rounding to float16 alone moves" in note for note in report.notes)
    for pair in ((wide, pictures("float16", 0.02)), (pictures(offset=0.02), narrow)):
        report = kv.verify(*pair)
        assert report.status == "different"
        assert "float32 twins" in (report.detail or "")


@pytest.mark.parametrize("settings", [{}, {"rtol": 1e-3}, {"atol": 1e-2}])
def test_what_decides_a_tolerance_is_named(settings: dict[str, Any]) -> None:
    a = model(f"{HEAD} {{ m = Mul (x, x) y = Exp (m) }}")
    b = model(f"{HEAD} {{ m = Mul (x, x) z = Exp (m) y = Identity (z) }}")
    moved = model(f"{HEAD} {{ y = Identity (x) }}")
    alike = kv.verify(a, a, **settings)
    if settings:
        assert because(alike) == "the tolerance that was given"
    else:
        assert because(alike) == "A and B compute the same operators"
        assert because(kv.verify(a, b)) == "float32"
    assert because(kv.verify(moved, moved, **settings)) == "data that is moved and never rounded"


def test_small_outputs_have_a_small_tolerance() -> None:
    texts = [f"s = Constant <value_float = {s}> () y = Mul (x, s) " for s in ("1e-7", "3e-7")]
    a, b = (model(f"{HEAD} {{ {text} }}") for text in texts)
    copied = model(f"{HEAD} {{ {texts[0].replace('y =', 'z =')} y = Identity (z) }}")
    other = model(f"{HEAD} {{ {texts[1].replace('y =', 'z =')} y = Identity (z) }}")
    assert kv.verify(a, b).status == "different"
    assert kv.verify(a, other).status == "different"
    report = kv.verify(a, copied)
    assert report.status == "equal"
    assert "whose values are" in because(report)


def test_what_rounding_leaves_over_is_no_difference() -> None:
    """What is left of a sum that cancels out is as large as its rounding."""
    text = "ax = Constant <value_ints = [1]> () m = ReduceMean (x, ax) d = Sub (x, m)"
    one = f"one = Constant <value = float[7, 7] {{{', '.join(['1'] * 49)}}}> ()"
    ends = "s = ReduceSum (d, ax) z = Sub (x, x) y = Add (s, z)", f"{one} y = MatMul (d, one)"
    report = kv.verify(*(model(f"{HEAD} {{ {text} {end} }}") for end in ends))
    assert (report.status, report.detail) == ("equal", None)
