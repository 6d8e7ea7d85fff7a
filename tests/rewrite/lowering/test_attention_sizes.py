"""Grouped heads of Attention whose sizes are known at run time alone, with no query as well."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.runtime.engine.evaluator import Evaluator
from tests.grids import each, part

SIZES = {
    "several": (2, 3, 5),
    "one of each": (1, 1, 1),
    "a step": (2, 1, 7),
    "no query": (2, 0, 5),
}


def _same(source: onnx.ModelProto, lowered: ir.Model, fed: dict[str, np.ndarray]) -> None:
    feeds = {name: values.astype(np.float32) for name, values in fed.items()}
    before, after = (
        Evaluator(model).run(feeds).values["y"] for model in (ir.from_proto(source), lowered)
    )
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


@part(2)
@pytest.mark.parametrize("opset", [13, 14, 18])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("mask", ["", ", m"])
def test_of_any_number(sizes: tuple[int, int, int], mask: str, opset: int) -> None:
    batch, length, keys = sizes
    source = onnx.parser.parse_model(f"""<ir_version: 11, opset_import: ["" : 24]>
    layer (float[B,6,L,7] q, float[B,3,S,7] k, float[B,3,S,11] v, float[B,1,L,S] m)
      => (float[B,6,L,11] y) {{ y = Attention <scale = 0.5> (q, k, v{mask}) }}""")
    lowered, _ = kv.lower(source, opset=opset, verify=False)

    ops = [node for _, _, node in nodes(lowered)]
    products = [node for node in ops if node.op_type == "MatMul"]
    assert len(products) == 2
    # One product for all heads of a group needs a Reshape that takes a size of 0 for what it is.
    apart = [n for n in ops if n.op_type == "Reshape" and "allowzero" in n.attributes]
    assert bool(apart) == (opset >= 14)
    rng = np.random.default_rng(1)
    shapes = {
        "q": (batch, 6, length, 7),
        "k": (batch, 3, keys, 7),
        "v": (batch, 3, keys, 11),
        "m": (batch, 1, length, keys),
    }
    _same(source, lowered, {n: rng.standard_normal(shape) for n, shape in shapes.items()})


@pytest.mark.parametrize("opset", [11, 18])
def test_a_step_of_one_query_needs_no_sizes(opset: int) -> None:
    source = onnx.parser.parse_model("""<ir_version: 11, opset_import: ["" : 24]>
    layer (float[B,6,1,7] q, float[B,3,S,7] k, float[B,3,S,11] v) => (float[B,6,1,11] y)
    { y = Attention (q, k, v) }""")
    lowered, _ = kv.lower(source, opset=opset, verify=False)

    assert "Shape" not in [node.op_type for _, _, node in nodes(lowered)]
    rng = np.random.default_rng(1)
    shapes = {"q": (2, 6, 1, 7), "k": (2, 3, 5, 7), "v": (2, 3, 5, 11)}
    _same(source, lowered, {n: rng.standard_normal(shape) for n, shape in shapes.items()})


TOGETHER = {
    "two heads, any rows": (4, "L", False),
    "two heads, a step": (4, 1, False),
    "two heads, four rows": (4, 4, True),
    "three heads, any rows": (6, "L", True),
    "three heads, a step": (6, 1, True),
}


@pytest.mark.parametrize(("heads", "length", "together"), TOGETHER.values(), ids=TOGETHER)
def test_rows_that_are_one_operand(heads: int, length: int | str, together: bool) -> None:
    """Two single rows are multiplied faster than the keys are packed for a product of both."""
    source = onnx.parser.parse_model(f"""<ir_version: 11, opset_import: ["" : 24]>
    layer (float[B,{heads},{length},7] q, float[B,2,5,7] k, float[B,2,5,11] v)
      => (float[B,{heads},{length},11] y) {{ y = Attention (q, k, v) }}""")
    lowered, _ = kv.lower(source, opset=18, verify=False)

    # Keys and values get an axis to broadcast along where each head is multiplied by itself.
    apart = [n.inputs[0].name for _, _, n in nodes(lowered) if n.op_type == "Unsqueeze"]
    assert len({"k", "v"} & set(apart)) == (0 if together else 2)
    rng = np.random.default_rng(1)
    rows = length if isinstance(length, int) else 3
    shapes = {"q": (3, heads, rows, 7), "k": (3, 2, 5, 7), "v": (3, 2, 5, 11)}
    _same(source, lowered, {n: rng.standard_normal(s) for n, s in shapes.items()})


RANKS = [
    ("K", "float[2, 5, 12] q, float[12] k, float[2, 7, 12] v"),
    ("V", "float[2, 5, 12] q, float[2, 7, 12] k, float[2, 3, 7, 4] v"),
]


@each(("operand", "inputs"), RANKS)
def test_operands_of_another_rank_are_refused(operand: str, inputs: str) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 11, opset_import: ["": 24]> g ({inputs}) => (y)'
        "{ y = Attention <q_num_heads = 3, kv_num_heads = 3, is_causal = 1> (q, k, v) }"
    )
    with pytest.raises(kv.KvtoolError, match=rf"rank-mismatch: .* `{operand}` has rank \d, exp"):
        kv.lower(model, opset=18, verify=False)
