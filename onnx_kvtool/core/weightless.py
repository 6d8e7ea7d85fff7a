"""The model for onnx's C++ services, without its weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
import onnx_ir as ir

from onnx_kvtool.core import walk
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.forms import SparseInitializer, VerbatimType
from onnx_kvtool.core.message import MessageWriter
from onnx_kvtool.core.storage import tensor_bytes

__all__ = ["weightless"]

# More than any list of sizes, axes or indices that inference reads; less than a weight.
_SMALL_BYTES = 1024
# A tensor in an attribute other than that of Constant keeps its shape up to this size.
_ATTRIBUTE_BYTES = 1 << 20


def weightless(model: ir.Model) -> onnx.ModelProto:
    """Return a message that onnx's checker and shape inference take for `model`.

    No value of a weight is read or copied and no file is looked at. The message has the graphs,
    nodes, declared types and functions of the model; what it has instead of weights, which are
    all initializers and Constant tensors that are external, sparse or larger than 1 KiB:

    - in the main graph, an input of the same name and type, behind the inputs of the model; the
      Constant node is left out, so that the position of a node is not that of the model;
    - in a body, an input of the main graph under a name that nothing else has, which the nodes of
      the body read directly;
    - in a function and its bodies, a further input of the function, which no call supplies. Its
      tensors that are not external stay.

    An external tensor in any other attribute has zeros for its values, or no elements at all when
    it is larger than 1 MiB. Metadata, quantization annotations and training information are left
    out, and so is a declared type that says nothing (an undefined element type).

    Raises:
        KvtoolError: If the model holds something that has no written form, such as a value
            without a name.
    """
    try:
        return _Weightless(model).model(model)
    except (ir.serde.SerdeError, TypeError, ValueError) as error:
        raise KvtoolError(f"the model cannot be written: {error}") from error


class _Weightless(MessageWriter):
    def __init__(self, model: ir.Model) -> None:
        super().__init__()
        self._model = model
        # The main graph, or the graph of the function that is being written: what gets inputs.
        self._root: ir.Graph = model.graph
        self._names: dict[ir.Value, str] = {}
        self._added: list[onnx.ValueInfoProto] = []
        self._taken: set[str] = set()

    def graph(self, out: onnx.GraphProto, graph: ir.Graph) -> None:
        if graph is not self._root:
            for node in graph:  # before any node that reads it by its name in the body
                self._hoist_constant(node, graph)
        super().graph(out, graph)
        if graph is self._model.graph:
            out.input.extend(self._added)

    def function(self, out: onnx.FunctionProto, function: ir.Function) -> None:
        self._root, self._added = function.graph, []
        super().function(out, function)
        out.input.extend(info.name for info in self._added)
        out.value_info.extend(self._added)

    def node(self, graph: onnx.GraphProto | onnx.FunctionProto, node: ir.Node) -> None:
        if not self._hoist_constant(node, node.graph):
            super().node(graph, node)

    def name(self, value: ir.Value) -> str:
        return self._names[value] if value in self._names else super().name(value)

    def initializers(self, out: onnx.GraphProto, graph: ir.Graph) -> None:
        inputs = set(graph.inputs)
        for name, value in graph.initializers.items():
            tensor = value.const_value
            if tensor is None:
                raise KvtoolError(f"initializer `{name}` has no value")
            if not _is_weight(tensor):
                self.initializer(out, name, tensor)
            elif value not in inputs:
                self._hoist(value, tensor, graph)

    def tensor(self, out: onnx.TensorProto, tensor: ir.TensorProtocol) -> None:
        if not isinstance(tensor, ir.ExternalTensor):
            super().tensor(out, tensor)
            return
        size = tensor_bytes(tensor)
        out.data_type = int(tensor.dtype)
        out.dims.extend(tensor.shape.numpy() if size <= _ATTRIBUTE_BYTES else (0,))
        out.raw_data = bytes(size if size <= _ATTRIBUTE_BYTES else 0)

    def value_info(self, out: Any, value: ir.Value, name: str = "") -> None:
        type_ = value.type
        if type_ is None or isinstance(type_, VerbatimType) or value in self._names:
            return
        if type_.dtype is not ir.DataType.UNDEFINED:
            super().value_info(out, value, name)

    def metadata(self, out: Any, entries: Mapping[str, str]) -> None:
        """Leave it out: no service reads it, and exporters put stack traces there."""

    def annotations(self, out: onnx.GraphProto, graph: ir.Graph) -> None:
        """Leave them out: no service reads them."""

    def _hoist_constant(self, node: ir.Node, graph: object) -> bool:
        """Turn the output of a Constant node into an input if it is a weight; say whether."""
        if node.op_type != "Constant" or node.domain:
            return False
        attribute = node.attributes.get("value")
        if attribute is None or attribute.is_ref() or attribute.type is not ir.AttributeType.TENSOR:
            return False
        tensor: ir.TensorProtocol = attribute.value  # `as_tensor()` asks for its size
        external = isinstance(tensor, ir.ExternalTensor)
        if not external and (self._root is not self._model.graph or not _is_weight(tensor)):
            return False
        self._hoist(node.outputs[0], tensor, graph)
        return True

    def _hoist(self, value: ir.Value, tensor: ir.TensorProtocol, graph: object) -> None:
        if value in self._names:
            return
        name = super().name(value)
        if graph is not self._root:
            name = self._unused(name)
        self._names[value] = name
        info = onnx.ValueInfoProto(name=name)
        info.type.tensor_type.elem_type = int(tensor.dtype)
        for dim in tensor.shape.numpy():
            info.type.tensor_type.shape.dim.add(dim_value=dim)
        info.type.tensor_type.shape.SetInParent()
        self._added.append(info)

    def _unused(self, name: str) -> str:
        """Return a name that no value of the model has, made from `name`."""
        if not self._taken:
            for _, graph in walk.graphs(self._model):
                self._taken.update(value.name or "" for value in (*graph.inputs, *graph.outputs))
                self._taken.update(graph.initializers)
                for node in graph:
                    self._taken.update(value.name or "" for value in node.outputs)
        number = 0
        while (unused := f"{name}.{number}") in self._taken:
            number += 1
        self._taken.add(unused)
        return unused


def _is_weight(tensor: ir.TensorProtocol) -> bool:
    if isinstance(tensor, ir.ExternalTensor | SparseInitializer):
        return True
    return tensor_bytes(tensor) > _SMALL_BYTES
