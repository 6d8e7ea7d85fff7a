"""What is written for tinygrad in the place of what it spoils, and what it is refused.

`tests/compat/test_tinygrad.py` runs the same models in it.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.runtime.onnxruntime import Session
from onnx_kvtool.targets.releases import releases
from tests.grids import each
from tests.targets.test_limits import HEAD, source, written
from tests.targets.tinygrad_cases import CASES, expected_of, feeds_of
from tests.targets.tinygrad_cases import HEAD as PLAIN


@pytest.mark.long
@each(("name", "words", "opset", "text", "expected"), CASES)
def test_what_tinygrad_spoils_is_written_in_another_form_or_refused(
    name: str, words: str, opset: int, text: str, expected: list[str] | None
) -> None:
    found = written("tinygrad", opset, text)
    if expected:
        assert found == expected
    elif expected is None:
        assert found is None
    else:
        limits = next(r for r in releases() if r.runtime == "tinygrad").limits
        assert found
        assert not {limit.operator for limit in limits if limit.name == name} & set(found)


@pytest.mark.long
@each(("name", "words", "opset", "text", "expected"), CASES)
def test_what_is_written_for_tinygrad_computes_what_the_source_says(
    name: str, words: str, opset: int, text: str, expected: list[str] | None
) -> None:
    if expected is None:
        return  # nothing is written
    model = onnx.parser.parse_model(PLAIN.format(opset) + text)
    feeds = feeds_of(model)
    wanted = expected_of(model, text, opset, feeds)
    lowered, _ = kv.lower(model, target="tinygrad", verify=False)
    # onnxruntime makes the output of a pool with gaps shorter than SAME says, but not by numbers.
    found = Session(serialize(lowered), "").run(feeds).values()
    for actual, right in zip(found, wanted, strict=True):
        assert (actual.shape, actual.dtype) == (right.shape, right.dtype)
        np.testing.assert_allclose(actual, right, rtol=1e-6, atol=1e-6)


SPARED = [
    (
        "g (float[5] x, float[1] u) => (float[5] z) <float[1] o = {1.0}, int64[1, 1] i = {1}> "
        "{ y = Mul (x, o)  z = ScatterND (y, i, u) }"
    ),
    "g (float[5, 3] x) => (float[2, 3] z) <int64[2] i = {4, 0}> { z = Gather (x, i) }",
    "g (float[6] x) => (float[3] a, float[3] b) { a, b = Split <num_outputs = 2> (x) }",
    "g (float[2, 1, 3, 1] x) => (float[2, 3] z) <int64[2] a = {3, 1}> { z = Squeeze (x, a) }",
    "g (float[2, 3, 1] x) => (float[2, 3] z) <int64[1] a = {-1}> { z = Squeeze (x, a) }",
    (
        "g (float[1, 1, n] x, float[1, 1, 3] w) => (float[1, 1, m] z) "
        '{ z = Conv <auto_pad = "SAME_LOWER", strides = [3]> (x, w) }'
    ),
    "g (float[1, 2, 4] x) => (float[1, 2, 2] z) { z = MaxPool <kernel_shape = [2]> (x) }",
    "g (int32 n) => (int32[m] z) <int32 o = {0}, int32 d = {1}> { z = Range (o, n, d) }",
    "g (float[3] x, float s, int8 o) => (int8[3] z) { z = QuantizeLinear (x, s, o) }",
    "g (float[3, 3] x) => (float[3, 3] z) { z = EyeLike (x) }",
    "g (float[2, 3, 5] x) => (float[2, 3, 5] z) { z = Softmax <axis = 0> (x) }",
    "g (float[2, 3] x, float[3, 2] y) => (float[2, 2] z) { z = Gemm (x, y) }",
    "g (int64[1] s) => (float[n] z) { z = ConstantOfShape (s) }",
    "g (float[3] x, float[3] e) => (float[3] z) { z = Pow (x, e) }",
]


@pytest.mark.long
@each("text", SPARED)
def test_what_tinygrad_computes_rightly_stays(text: str) -> None:
    assert written("tinygrad", 18, text) == source(18, text)


@each(
    ("dtype", "code"),
    [("string", "STRING"), ("float8e4m3fn", "FLOAT8E4M3FN"), ("float16", None)],
)
def test_element_types_that_a_release_lacks_are_refused(dtype: str, code: str | None) -> None:
    text = f"g ({dtype}[3] x) => ({dtype}[3] z) {{ z = Identity (x) }}"
    model = onnx.parser.parse_model(HEAD.replace("{opset}", "21").replace(": 8", ": 10") + text)
    if code is None:
        kv.lower(model, target="tinygrad", verify=False)
        return
    with pytest.raises(Refused) as refused:
        kv.lower(model, target="tinygrad", verify=False)
    found = [one.message for one in refused.value.report.refused]
    assert found == [f"tinygrad 0.14.0 has no {code}, the type of `x`"]


def test_an_operator_of_another_domain_is_refused_where_none_can_be_added() -> None:
    text = """<ir_version: 8, opset_import: ["": 18, "own": 1]>
        g (float[3] x) => (float[3] z) { z = own.Twice (x) }"""
    with pytest.raises(Refused) as refused:
        kv.lower(onnx.parser.parse_model(text), target="tinygrad", verify=False)
    message = refused.value.report.refused[0].message
    assert message == "tinygrad 0.14.0 imports no `own::Twice`"
    kv.lower(onnx.parser.parse_model(text), target="onnxruntime", verify=False)


def test_dimensions_of_inputs_are_named_where_a_release_needs_a_name() -> None:
    text = "g (float[dim_0, s, 3] x, float[a, b] y) => (float[p, q, r] z) { z = Add (x, y) }"
    model = onnx.parser.parse_model(HEAD.replace("{opset}", "18") + text)
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in ("s", "a", "b"):
                dim.Clear()
    named, report = kv.lower(model, target="tinygrad", verify=False)
    shapes = [[str(dim) for dim in value.shape] for value in named.graph.inputs]
    assert shapes == [["dim_0", "dim_1", "3"], ["dim_2", "dim_3"]]
    assert "3 dimensions of inputs named: tinygrad 0.14.0 refuses one without" in report.notes
    model.graph.input[1].type.tensor_type.ClearField("shape")
    with pytest.raises(Refused) as refused:
        kv.lower(model, target="tinygrad", verify=False)
    message = refused.value.report.refused[0].message
    assert message == "tinygrad 0.14.0 takes no input of unknown rank"
