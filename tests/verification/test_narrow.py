"""Models of 16-bit types, judged by their float32 twins and by their own rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from tests.grids import part, thinned
from tests.narrow_models import FAULTS, Fault, behind_logits, decoder, epsilon, softcap
from tests.runtime.recorded import model

pytestmark = pytest.mark.long


TYPES = ("bfloat16", "float16")


def lowered(source: ir.Model, opset: int = 18) -> ir.Model:
    return kv.lower(source, opset=opset, verify=False)[0]


def compared(
    dtype: str, std: float, right: list[Fault], wrong: list[Fault], **settings: Any
) -> kv.VerifyReport:
    """Compare a decoder with the lowered form of one that has `wrong` in place of `right`."""
    source, other = decoder(dtype, std, 0, *right), decoder(dtype, std, 0, *wrong)
    return kv.verify(source, lowered(other), cases=2, steps=1, **settings)


def strictly(std: float, right: list[Fault], wrong: list[Fault]) -> kv.VerifyReport:
    """Compare in float16 and the reference, which rounds where onnxruntime computes in float32."""
    return compared("float16", std, right, wrong, runtime="reference")


@part(8)
@pytest.mark.parametrize("std", [0.02, 0.2])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_lowered_decoder_is_equal(dtype: str, std: float) -> None:
    source = decoder(dtype, std)
    found = kv.verify(source, lowered(source))
    assert (found.status, found.detail) == ("equal", None)
    assert found.twins is not None
    assert found.twins.dtype == dtype
    assert 0 < found.twins.max_abs_diff < 1e-5 < found.twins.rounding
    assert found.max_abs_diff is not None
    assert found.max_abs_diff < 4 * found.twins.rounding
    assert any("the float32 twins agree to" in note for note in found.notes)
    assert found.to_json()["twins"]["dtype"] == dtype


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("std", [0.02, 0.2])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_lowered_decoder_is_equal_whatever_its_weights(dtype: str, std: float, seed: int) -> None:
    opset = (17 if dtype == "bfloat16" else 13, 16, 18, 23)[seed % 4]
    source = decoder(dtype, std, seed)
    found = kv.verify(source, lowered(source, opset), seed=seed)
    assert (found.status, found.detail) == ("equal", None)


_SIZES = [
    pytest.param("bfloat16", 0.2, id="bfloat16, large weights"),
    pytest.param("float16", 0.02, id="float16, small weights"),
    pytest.param("bfloat16", 0.02, id="bfloat16, small weights"),
    pytest.param("float16", 0.2, id="float16, large weights"),
]


_PLANTED = [
    pytest.param(name, *size.values, id=f"{name}-{size.id}")
    for number, name in enumerate(FAULTS)
    for size in (_SIZES[number % 4], _SIZES[(number + 1) % 4])
]
"""Each fault in both types."""


@pytest.mark.parametrize(("name", "dtype", "std"), thinned(_PLANTED, 2))
def test_a_planted_fault_is_found(name: str, dtype: str, std: float) -> None:
    found = compared(dtype, std, [], [FAULTS[name]])
    assert found.status == "different", found.notes
    assert found.detail is not None


@pytest.mark.parametrize("dtype", thinned(TYPES, 2))
def test_a_softcap_that_was_dropped_is_found(dtype: str) -> None:
    assert compared(dtype, 0.2, [softcap(2.0)], []).status == "different"
    assert compared(dtype, 0.2, [softcap(2.0)], [softcap(2.0)]).status == "equal"


@pytest.mark.parametrize("dtype", thinned(TYPES, 2))
def test_an_epsilon_that_was_dropped_is_found(dtype: str) -> None:
    """It changes activations of weights of 0.02 by a hundredth, less than bfloat16 rounds."""
    found = compared(dtype, 0.02, [epsilon(1e-5)], [epsilon(0.0)])
    assert found.status == "different"
    assert found.outputs[0].first_mismatch is not None
    assert "in the float32 twins" in (found.detail or "")


@pytest.mark.parametrize("dtype", thinned(TYPES, 2))
def test_the_earliest_node_is_found_in_the_twins(dtype: str) -> None:
    found = compared(dtype, 0.02, [], [FAULTS["the scale of one layer is 4 % too large"]])
    assert found.earliest is not None
    assert "layers.1" in (found.earliest.a.value or "")
    source = decoder(dtype)
    index = found.earliest.a.index
    assert index is not None
    assert list(source.graph)[index].outputs[0].name == found.earliest.a.value


@pytest.mark.parametrize("dtype", thinned(TYPES, 2))
def test_a_fault_of_the_narrow_type_alone_is_found(dtype: str) -> None:
    """64 swallows what is smaller than a half in bfloat16, a sixteenth in float16."""
    lossy = behind_logits(("Add", 64.0), ("Sub", 64.0), dtype=dtype)
    found = compared(dtype, 0.02, [], [lossy], runtime="reference")
    assert found.status == "different"
    assert "twins" not in (found.detail or "")
    assert found.twins is not None
    assert found.twins.max_abs_diff < 1e-5


def test_a_model_that_overflows_where_the_source_does_not_is_different() -> None:
    huge = behind_logits(("Mul", 60000.0), ("Div", 60000.0), dtype="float16")
    found = strictly(0.2, [], [huge])
    assert found.status == "different"
    assert "expected" in (found.detail or "")


@pytest.mark.exhaustive
def test_where_the_source_itself_overflows_the_twins_judge() -> None:
    huge = behind_logits(("Mul", 60000.0), ("Div", 60000.0), dtype="float16")
    for wrong in ([], [huge]):
        found = strictly(0.2, [huge], wrong)
        assert (found.status, found.detail) == ("equal", None)
        assert found.twins is not None
        assert found.twins.overflows > 0
        assert any("overflow in float16" in note for note in found.notes)
    fault = FAULTS["the scale of one layer is 4 % too large"]
    assert strictly(0.2, [huge], [huge, fault]).status == "different"


def test_a_constant_that_was_rounded_explains_a_difference() -> None:
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    g (bfloat16[N, 5] x) => (bfloat16[N, 5] y) { ONE y = Tanh (z) }
    """
    # A computes the root in its own type, which the twin does not round; B holds it rounded.
    root = "c = Constant <value = bfloat16 {16416}> () r = Sqrt (c) z = Mul (x, r)"
    value = int(np.sqrt(2.5).astype("float32").view("uint32") + 0x8000 >> 16)
    held = f"r = Constant <value = bfloat16 {{{value}}}> () z = Mul (x, r)"
    one, other = model(text.replace("ONE", root)), model(text.replace("ONE", held))
    found = kv.verify(one, other)
    assert (found.status, found.detail) == ("equal", None)
    assert found.twins is not None
    assert found.twins.max_abs_diff > 1e-4
    wrong = model(text.replace("ONE", held.replace(str(value), str(value + 4))))
    assert kv.verify(one, wrong).status == "different"


def test_gemma_in_bfloat16_is_equal() -> None:
    """It has Constants of every form, and a cache inside Attention."""
    source = decoder("bfloat16", name="gemma4_hybrid_static")
    found = kv.verify(source, lowered(source), cases=2, steps=1)
    assert (found.status, found.detail) == ("equal", None)
    assert found.twins is not None
    assert found.twins.max_abs_diff < 1e-5 < found.twins.rounding
