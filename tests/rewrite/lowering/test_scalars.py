"""A scalar stays a scalar in what is written for it."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv


@pytest.mark.parametrize("shape", ["", "[3]"])
@pytest.mark.parametrize(("operator", "target"), [("Celu <alpha = 2.0>", 11), ("HardSwish", 13)])
def test_the_body_of_an_operator_gives_what_it_takes(
    operator: str, target: int, shape: str
) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 15]> g (float{shape} x) => (float{shape} y)'
        f" {{ y = {operator} (x) }}"
    )
    lowered, _ = kv.lower(model, opset=target)
    onnx.checker.check_model(ir.to_proto(lowered), full_check=True)
    x = np.float32([-1, 0, 2] if shape else -1)
    before, after = (kv.evaluate(m, {"x": x})["y"] for m in (model, lowered))
    assert before.shape == after.shape == x.shape
    np.testing.assert_allclose(after, before, rtol=1e-6)
