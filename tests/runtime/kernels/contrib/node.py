"""One node in our runtime and in onnxruntime, whose operators these are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper

from onnx_kvtool.runtime.engine.evaluator import Evaluator

__all__ = ["RELEASE", "needs_newest", "needs_onnxruntime", "ours", "theirs"]

RELEASE = tuple(int(part) for part in ort.__version__.split(".")[:2])

needs_onnxruntime = pytest.mark.skipif(
    RELEASE < (1, 31), reason="the semantics of these operators are those of onnxruntime 1.31"
)

needs_newest = pytest.mark.skipif(
    RELEASE < (1, 32), reason="these operators came with onnxruntime 1.32"
)

Arrays = Mapping[str, "np.ndarray[Any, Any] | None"]


def node_model(
    op_type: str, inputs: Arrays, outputs: Sequence[str], domain: str, attributes: Mapping[str, Any]
) -> onnx.ModelProto:
    """Return a model of one node; inputs that are None, and outputs called "", are absent."""
    names = [name if value is not None else "" for name, value in inputs.items()]
    while not names[-1]:
        names.pop()
    fed = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in inputs.items()
        if v is not None
    ]
    node = helper.make_node(op_type, names, list(outputs), domain=domain, **attributes)
    made = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    graph = helper.make_graph([node], "node", fed, made)
    # Below opset 17 onnx has no LayerNormalization of its own.
    imports = [helper.make_opsetid("", 16), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def theirs(
    op_type: str,
    inputs: Arrays,
    outputs: Sequence[str] = ("y",),
    domain: str = "com.microsoft",
    **attributes: Any,
) -> dict[str, np.ndarray[Any, Any]]:
    """Return what onnxruntime computes on a CPU."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    model = node_model(op_type, inputs, outputs, domain, attributes)
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    fed = {name: value for name, value in inputs.items() if value is not None}
    return dict(zip([n for n in outputs if n], session.run(None, fed), strict=True))


def ours(
    op_type: str,
    inputs: Arrays,
    outputs: Sequence[str] = ("y",),
    domain: str = "com.microsoft",
    **attributes: Any,
) -> dict[str, np.ndarray[Any, Any]]:
    """Return what our runtime computes, defaults of attributes and all."""
    model = node_model(op_type, inputs, outputs, domain, attributes)
    evaluator = Evaluator(ir.from_proto(model))
    assert evaluator.borrowed == ()
    fed = {name: value for name, value in inputs.items() if value is not None}
    return evaluator.run(fed).values
