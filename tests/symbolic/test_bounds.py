"""Bounds of expressions are remembered no longer than what is asked about."""

from __future__ import annotations

import gc
import weakref

import onnx_ir as ir

from onnx_kvtool.symbolic.index_maps import IndexMaps


def test_no_model_is_kept() -> None:
    """Sizes without a name are atoms that hold their value, and with it the whole model."""
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["": 18]>'
        "g (float[?] x) => (int64[?] y) <int64 zero = {0}, int64 one = {1}>"
        "{ s = Shape (x) n = Squeeze (s) y = Range (zero, n, one) }"
    )
    graph = weakref.ref(model.graph)
    (output,) = model.graph.outputs
    assert str(IndexMaps(18).of(output).element) == "i"
    del model, output
    gc.collect()
    assert graph() is None
