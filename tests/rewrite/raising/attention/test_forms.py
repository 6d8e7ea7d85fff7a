"""Attention in many nodes becomes one, whatever exporter wrote it, and computes the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.core.walk import nodes
from onnx_kvtool.ops.operators import Attention
from tests.rewrite.raising.attention.decomposed import Form, MaskForm, build, feeds, fused, run

TOLERANCES = {"float32": 2e-6, "float64": 1e-12, "float16": 4e-3, "bfloat16": 4e-2}

ADDED, HIDDEN = MaskForm(), MaskForm("where")

FORMS = {
    "scaled scores": Form(),
    "scores divided": Form(scales=("divided",)),
    "queries and keys scaled": Form(scales=("q", "k")),
    "all of them scaled": Form(scales=("q", "k", "scores", "divided")),
    "no scale": Form(scales=()),
    "sizes as numbers": Form(symbolic=False),
    "grouped heads": Form(group=2),
    "one head of keys": Form(group=6, kv=1),
    "keys stored as columns": Form(stored=True),
    "grouped keys stored as columns": Form(stored=True, group=2),
    "rows before heads": Form(rows_first=True),
    "grouped, rows before heads": Form(rows_first=True, group=2, masks=(ADDED,)),
    "keys turned in three axes": Form(turned=True, group=2),
    "five axes": Form(layout="five", group=2),
    "five axes and a mask": Form(layout="five", group=2, masks=(ADDED,)),
    "five axes, result as it is": Form(layout="five", group=2, back=False),
    "batch and heads joined": Form(layout="joined", group=2),
    "batch and heads joined, a mask for each": Form(
        layout="joined", masks=(MaskForm(shape="NLS"),), symbolic=False
    ),
    "batch and heads joined, result as it is": Form(layout="joined", back=False),
    "three axes": Form(layout="three"),
    "three axes and a mask": Form(layout="three", masks=(MaskForm(shape="NLS"),)),
    "two axes": Form(layout="two"),
    "two axes and a mask": Form(layout="two", masks=(MaskForm("where", "LS"),)),
    "Einsum": Form(layout="einsum"),
    "Einsum of keys as columns": Form(layout="einsum", stored=True),
    "a softcap": Form(softcap=2.5),
    "a softcap and a mask": Form(softcap=2.5, masks=(ADDED,)),
    "a mask": Form(masks=(ADDED,)),
    "a mask for each head": Form(masks=(MaskForm(shape="BHLS"),)),
    "a bias for each head": Form(masks=(MaskForm(shape="1HLS"),)),
    "ALiBi": Form(masks=(MaskForm(shape="BH1S"), ADDED)),
    "a mask of keys": Form(masks=(MaskForm(shape="B11S"),)),
    "a mask of two axes": Form(masks=(MaskForm(shape="LS"),)),
    "a mask of one axis": Form(masks=(MaskForm(shape="S"),)),
    "a mask that is taken away": Form(masks=(MaskForm("sub"),)),
    "a mask that is scaled": Form(masks=(MaskForm("add-scaled"), ADDED)),
    "a mask without keys": Form(masks=(MaskForm(shape="B1L1"),)),
    "hidden keys": Form(masks=(HIDDEN,)),
    "hidden keys, the other way round": Form(masks=(MaskForm("where-inverted"),)),
    "hidden keys at the lowest number": Form(masks=(MaskForm("where", fill="lowest"),)),
    "hidden keys of a batch": Form(masks=(MaskForm("where", "B11S"),)),
    "a bias and hidden keys": Form(masks=(ADDED, HIDDEN)),
    "hidden keys and a bias": Form(masks=(MaskForm("where", fill="lowest"), ADDED)),
    "a guard": Form(masks=(HIDDEN,), guard=True),
    "float16": Form(dtype="float16", masks=(ADDED,)),
    "float16, Softmax in float32": Form(dtype="float16", precise=True, masks=(ADDED,)),
    "bfloat16, Softmax in float32": Form(dtype="bfloat16", precise=True, masks=(HIDDEN,)),
    "float64": Form(dtype="float64", masks=(ADDED,)),
    "float64, a scale of many digits": Form(dtype="float64", scales=("divided",), group=2),
    "opset 15": Form(opset=15, masks=(ADDED,)),
}


def _attention(model: ir.Model) -> Attention:
    (node,) = [node for _, _, node in nodes(model) if node.op_type == "Attention"]
    return Attention(node, 24)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_it_becomes_one_attention_that_is_equal(form: Form) -> None:
    source = build(form)
    result = fused(source)

    assert [str(refusal) for refusal in result.outcome.refused] == []
    assert "Softmax" not in result.ops
    _attention(result.model)
    inputs = feeds(form, 1)
    wanted, got = run(ir.from_proto(source), inputs), run(result.model, inputs)
    tolerance = TOLERANCES[form.dtype]
    assert wanted.shape == got.shape
    np.testing.assert_allclose(
        got.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance
    )


def test_a_shared_mask_stands_before_all_that_read_it() -> None:
    source = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
    layers (float[B,6,L,7] q, float[B,6,S,7] k, float[B,6,S,13] v, float[B,1,1,S] m)
        => (float[B,6,L,13] y, float[B,6,L,13] z) {
      t = Transpose <perm = [0, 1, 3, 2]> (k)
      s = MatMul (q, t) a = Add (s, m) p = Softmax <axis = -1> (a)
      n = Neg (q) r = MatMul (n, t) b = Add (r, m) o = Softmax <axis = -1> (b)
      z = MatMul (o, v) y = MatMul (p, v)
    }""")
    result = fused(source)
    assert result.ops.count("Attention") == 2 and result.ops.count("Expand") == 1
    onnx.checker.check_model(ir.to_proto(result.model), full_check=True)
    assert [done.location.index for done in result.outcome.attention] == [3, 7]


@pytest.mark.parametrize(
    ("dtype", "factor", "scale"),
    [
        pytest.param("float32", "scores", 1.0, id="a float32 has digits for it"),
        pytest.param("float64", "scores", 1.0, id="the attribute would cut a float64"),
        pytest.param("float16", "scores", 0.375, id="a float16 has none to lose"),
        pytest.param("bfloat16", "scores", 0.375, id="nor has a bfloat16"),
    ],
)
def test_the_scale_goes_to_the_queries(dtype: str, factor: str, scale: float) -> None:
    found = fused(build(Form(dtype=dtype, scales=(factor,))))
    attention = _attention(found.model)
    assert attention.scale == scale
    made = attention.query.producer()
    assert (made is not None and made.op_type == "Mul") == (scale == 1.0)
