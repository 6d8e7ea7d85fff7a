"""Models of one node, and what their outputs must be."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

__all__ = ["SEED", "demand_same", "one_node"]

SEED = 0
"""Of the inputs."""


def one_node(op_type: str, opset: int, inputs: dict[str, np.ndarray], **attributes: Any) -> bytes:
    """Return a model of one node whose output has the type of its first input."""
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in inputs.items()
    ]
    first = next(iter(inputs.values()))
    element = helper.np_dtype_to_tensor_dtype(first.dtype)
    output = helper.make_tensor_value_info("output", element, first.shape)
    node = helper.make_node(op_type, list(inputs), ["output"], **attributes)
    graph = helper.make_graph([node], "one_node", values, [output])
    imports = [helper.make_opsetid("", opset)]
    model: bytes = helper.make_model(
        graph, opset_imports=imports, ir_version=10
    ).SerializeToString()
    return model


def demand_same(case: str, outputs: list[np.ndarray]) -> None:
    """Compare outputs.

    Raises:
        RuntimeError: If two of them differ in a bit.
    """
    if len({output.tobytes() for output in outputs}) != 1:
        raise RuntimeError(f"the outputs differ: {case}")
