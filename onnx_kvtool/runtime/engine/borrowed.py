"""Operators without a kernel of our own: one node, run by onnx.reference."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnx_kvtool.runtime.engine.type_check import element_type
from onnx_kvtool.runtime.errors import KernelError, RuntimeUnavailable
from onnx_kvtool.runtime.kernels.elementwise.binary import widened
from onnx_kvtool.runtime.kernels.kernel import Value

__all__ = ["BorrowedNode"]


_WIDENED = {"GridSample": 1}
"""The input that says where, and of 16 bits is not to be computed with in its own type."""


class BorrowedNode:
    """One node that onnx.reference computes.

    Args:
        node: The node; it has no bodies.
        attributes: Its attributes, without references to function parameters.
        opsets: The opset imports of its scope.

    Raises:
        RuntimeUnavailable: If onnx.reference does not know the operator.
    """

    def __init__(
        self, node: ir.Node, attributes: Mapping[str, ir.Attr], opsets: Mapping[str, int]
    ) -> None:
        proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=node.name or "")
        proto.input.extend(f"i{k}" if v is not None else "" for k, v in enumerate(node.inputs))
        proto.output.extend(f"o{k}" if v.name else "" for k, v in enumerate(node.outputs))
        proto.attribute.extend(ir.to_proto(attribute) for attribute in attributes.values())
        self._node = proto
        self._wide = None if node.domain else _WIDENED.get(node.op_type)
        self._opsets = dict(opsets)
        self._evaluators: dict[tuple[object, ...], Any] = {}
        from onnx.reference.op_run import RuntimeContextError  # costs a tenth of a second

        try:
            self._evaluator((), None)
        except RuntimeContextError:
            pass  # a function body that depends on the types of the inputs, which a run brings
        # The evaluator is plain Python: it signals what it does not know by whatever its code
        # runs into (NotImplementedError, KeyError, TypeError, ...).
        except Exception as error:
            raise RuntimeUnavailable(
                "there is no kernel for the operator, and onnx.reference cannot load it: "
                f"{_first_line(error)}",
                help="run the model with `--runtime onnxruntime`",
            ) from error

    def __call__(self, inputs: Sequence[Value]) -> list[Value]:
        """Compute the node.

        Raises:
            KernelError: If onnx.reference fails on these inputs.
        """
        key = tuple(getattr(value, "dtype", type(value)) for value in inputs)
        feeds = {
            name: _borrowed(widened(value) if place == self._wide else value)
            for place, (name, value) in enumerate(zip(self._node.input, inputs, strict=True))
            if name
        }
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                evaluator = self._evaluators.get(key) or self._evaluator(key, feeds)
                results = evaluator.run(None, feeds)
        except Exception as error:  # as above
            raise KernelError(f"onnx.reference fails: {_first_line(error)}") from error
        found = dict(zip(evaluator.output_names, results, strict=True))
        return [_returned(found[name]) if name else None for name in self._node.output]

    def _evaluator(self, key: tuple[object, ...], feeds: dict[str, Any] | None) -> Any:
        """Return an evaluator, with the types of the inputs when there are any."""
        outputs = [onnx.ValueInfoProto(name=name) for name in self._node.output if name]
        graph = onnx.GraphProto(name="node", node=[self._node], output=outputs)
        for name in dict.fromkeys(self._node.input):
            if name:
                graph.input.append(_typed(name, (feeds or {}).get(name)))
        model = onnx.ModelProto(ir_version=onnx.IR_VERSION, graph=graph)
        for domain, version in self._opsets.items():
            model.opset_import.append(onnx.OperatorSetIdProto(domain=domain, version=version))
        from onnx.reference import ReferenceEvaluator

        evaluator: Any = ReferenceEvaluator(model)
        if feeds is not None:
            self._evaluators[key] = evaluator
        return evaluator


def _typed(name: str, value: Any) -> onnx.ValueInfoProto:
    info = onnx.ValueInfoProto(name=name)
    if isinstance(value, np.ndarray):
        element = element_type(value.dtype)
        info.type.tensor_type.elem_type = 0 if element is None else element.value
        # A shape without dimensions would be that of a scalar.
        for size in value.shape:
            info.type.tensor_type.shape.dim.add(dim_value=size)
    return info


def _borrowed(value: Value) -> Any:
    """Return a value as onnx.reference takes it: text in an array of text."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value.astype(np.str_)
    return value


def _returned(value: Any) -> Value:
    if isinstance(value, (list, tuple)):
        return [_returned(item) for item in value]
    if value is None:
        return None
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind == "U" else array


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    line = text.splitlines()[0].rstrip(".") if text else ""
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
