"""What looks like attention is refused, or is equal as one node."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.runtime.engine.evaluator import Evaluator
from tests.rewrite.raising.attention.decomposed import fused
from tests.rewrite.raising.attention.decoys import DECOYS, Decoy

SIZES = {"B": 2, "L": 5, "S": 11, "C": 2, "T": 11}


def _feeds(model: ir.Model) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(7)
    found = {}
    for value in model.graph.inputs:
        assert value.shape is not None and value.dtype is not None
        shape = [d if isinstance(d, int) else SIZES[str(d)] for d in value.shape]
        drawn = rng.standard_normal(shape)
        if value.dtype == ir.DataType.BOOL:
            drawn[..., 0] = 1
            found[value.name or ""] = drawn > 0
        else:
            found[value.name or ""] = drawn.astype(value.dtype.numpy())
    return found


@pytest.mark.parametrize("decoy", DECOYS.values(), ids=DECOYS)
def test_it_stays_or_is_equal(decoy: Decoy) -> None:
    source = onnx.parser.parse_model(decoy.text)
    before = ir.from_proto(source)

    result = fused(source)

    codes = [refusal.code for refusal in result.outcome.refused]
    if decoy.becomes != "one":
        assert codes == ([] if decoy.becomes == "no" else [decoy.becomes])
        assert serialize(result.model) == serialize(before)
        return
    assert codes == []
    (done,) = result.outcome.attention
    assert decoy.says in " ".join([*done.proof, done.mask])
    assert result.ops.count("Attention") == 1 and "Softmax" not in result.ops
    inputs = _feeds(before)
    wanted, got = (Evaluator(model).run(inputs).values["y"] for model in (before, result.model))
    limit = 2e-3 if decoy.dtype == "float16" else 2e-6
    np.testing.assert_allclose(got, wanted, rtol=limit, atol=limit)


def test_sizes_may_be_granted() -> None:
    decoy = DECOYS["a batch that may be broadcast"]
    source = ir.from_proto(onnx.parser.parse_model(decoy.text))
    _, report = kv.raise_(source, assume=["same-dim:B=C"])
    (done,) = report.attention
    assert done.proof[-1] == "assumed: same-dim:B=C"
    assert report.verification.status == "equal"
