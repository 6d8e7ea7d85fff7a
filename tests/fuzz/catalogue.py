"""What random graphs are grown of: operators, element types, and the attributes of onnx's cases."""

from __future__ import annotations

import functools
from collections import defaultdict

import ml_dtypes
import numpy as np
import onnx

from onnx_kvtool.ops.schema import OpFacts, op_facts, operators
from onnx_kvtool.runtime.kernels.table import KERNELS
from tests.conformance.corpus import cases

__all__ = ["DTYPES", "NAMES", "OFTEN", "OPSETS", "attributes", "candidates", "element"]

DTYPES = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(double)": np.dtype(np.float64),
    "tensor(float16)": np.dtype(np.float16),
    "tensor(bfloat16)": np.dtype(ml_dtypes.bfloat16),
    "tensor(int64)": np.dtype(np.int64),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(int8)": np.dtype(np.int8),
    "tensor(uint8)": np.dtype(np.uint8),
    "tensor(bool)": np.dtype(np.bool_),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
OFTEN = ("tensor(float)", "tensor(float)", "tensor(float)", "tensor(int64)", "tensor(float16)")

_LEFT_OUT = frozenset(
    {
        # What they give is drawn, or is no tensor.
        *("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike"),
        *("RandomUniform", "RandomUniformLike", "ImageDecoder", "Constant"),
        # Memory that nobody has written.
        *("MaxUnpool",),
    }
)
OPSETS = (11, 13, 15, 17, 18, 20, 21, 23, 24)


@functools.cache
def attributes() -> dict[str, list[list[onnx.AttributeProto]]]:
    """Return the attributes that onnx's cases give each operator."""
    found: dict[str, list[list[onnx.AttributeProto]]] = defaultdict(list)
    for case in cases():
        for node in case.model.graph.node:
            given = [a for a in node.attribute if not (a.HasField("g") or a.ref_attr_name)]
            if len(given) == len(node.attribute):
                found[node.op_type].append(given)
    return found


@functools.cache
def candidates(opset: int) -> tuple[OpFacts, ...]:
    """Return the operators that graphs of an opset may have."""
    found = []
    for name in sorted(operators()):
        facts = op_facts(name, opset)
        if facts is None or facts.deprecated or name in _LEFT_OUT:
            continue
        if name not in KERNELS:  # onnx.reference runs it, which computes what is no valid call
            continue
        has_body = any(a.type == onnx.AttributeProto.GRAPH for a in facts.attributes.values())
        if not has_body and all(set(formal.types) & DTYPES.keys() for formal in facts.outputs):
            found.append(facts)
    return tuple(found)


def element(value: np.ndarray) -> int:
    """Return the number of the element type of an array."""
    return onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
