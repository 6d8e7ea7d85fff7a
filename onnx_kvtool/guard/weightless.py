"""The model for onnx's C++ services, without its weights, and inference past onnx's faults."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Set
from typing import Any, cast

import onnx
import onnx.defs
import onnx.shape_inference
import onnx_ir as ir

from onnx_kvtool.core import walk
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.machine import bounded_memory, collector_paused
from onnx_kvtool.core.storage import is_misdeclared, tensor_bytes
from onnx_kvtool.guard.crashes import (
    CRASHING,
    UNCHECKED,
    infer_past_negative_sizes,
    infer_past_unchecked,
    infer_past_untyped_inputs,
)
from onnx_kvtool.guard.exhaustion import (
    LONGEST,
    infer_in_subprocess,
    makes_long_vector,
    may_run_out,
)
from onnx_kvtool.guard.fault import HOLDERS, SMALL_BYTES, Contents, Infer
from onnx_kvtool.guard.scopes import infer_past_copied_scopes, infer_with_distinct_names
from onnx_kvtool.guard.wrong_sizes import (
    POOLS,
    SCALED,
    infer_past_last_windows,
    infer_past_matrix_values,
    infer_past_rounded_sizes,
    infer_past_scores,
)
from onnx_kvtool.model_io.message import MessageWriter
from onnx_kvtool.model_io.verbatim import (
    Holder,
    LongList,
    SparseInitializer,
    TypeWriter,
    VerbatimType,
    held,
)

_A = onnx.AttributeProto
_T = ir.AttributeType
# A tensor in an attribute other than that of Constant keeps its shape up to this size.
_ATTRIBUTE_BYTES = 1 << 20
_LISTS = {
    _T.FLOATS: ir.DataType.FLOAT,
    _T.INTS: ir.DataType.INT64,
    _T.STRING: ir.DataType.STRING,
    _T.STRINGS: ir.DataType.STRING,
}
"""Element types of a Constant, by the attributes that may be large and are no tensors."""


def weightless(model: ir.Model) -> onnx.ModelProto:
    """Return the message of `model` for onnx's checker and shape inference, without weights.

    No value of a weight is read or copied, and no file is opened. The message has the graphs,
    nodes, declared types and functions of the model. A weight is an initializer or a tensor of a
    Constant that is external, sparse or larger than 1 KiB. In its place stands:

    - in the main graph, an input of the same name and type, behind the inputs of the model; the
      Constant node is left out, so that the position of a node is not that of the model;
    - in a body or a function, which have no inputs that could be added, a RandomUniform of the
      same shape, cast to the type: only the type of such a value is known. Tensors of
      functions that are not external stay up to 1 MiB.

    Lists and texts of a Constant count as weights from 1 MiB on. An external tensor in any other
    attribute has zeros for its values, or no elements at all when it is larger than 1 MiB. Any
    attribute of that size is empty where onnx does not know the operator. Metadata, quantization
    annotations and training information are left out, and so is a declared type that says nothing
    (an undefined element type).

    Negative sizes, and the size of a vector of more than 2**20 elements, are left out
    (`guard.crashes`, `guard.exhaustion`). Inference stops at an initializer that contradicts its
    declaration, so the message lacks its `value_info`, or the tensor if an input declares it.

    Raises:
        KvtoolError: If the model holds something without a written form, as an unnamed value.
    """
    try:
        with collector_paused():
            return _Weightless(model).model(model)
    except (ir.serde.SerdeError, TypeError, ValueError) as error:
        raise KvtoolError(f"the model cannot be written: {error}") from error


class _Weightless(MessageWriter):
    def __init__(self, model: ir.Model) -> None:
        super().__init__(types=TypeWriter(_spare_inference))
        self._model = model
        self._in_function = False
        self._node: ir.Node | None = None  # whose attributes are being written
        self._hoisted: set[ir.Value] = set()
        self._inputs: list[onnx.ValueInfoProto] = []
        self._taken: set[str] = set()

    def graph(self, out: onnx.GraphProto, graph: ir.Graph) -> None:
        super().graph(out, graph)
        if graph is self._model.graph:
            out.input.extend(self._inputs)

    def function(self, out: onnx.FunctionProto, function: ir.Function) -> None:
        self._in_function, self._node = True, None
        super().function(out, function)

    def node(self, graph: Holder, node: ir.Node) -> None:
        tensor = self._constant_weight(node) if node.op_type == "Constant" else None
        self._node = node
        if tensor is None:
            super().node(graph, node)
        elif node.graph is self._model.graph:
            self._hoist(node.outputs[0], tensor)
        else:
            self._stand_in(graph, self.name(node.outputs[0]), tensor)

    def initializers(self, out: onnx.GraphProto, graph: ir.Graph) -> None:
        inputs = set(graph.inputs)
        for name, value in graph.initializers.items():
            tensor = value.const_value
            if tensor is None:
                raise KvtoolError(f"initializer `{name}` has no value")
            is_weight, is_wrong = _is_weight(tensor), is_misdeclared(value)
            if value in inputs and (is_weight or is_wrong):
                continue  # callers may feed another value, as declared
            if is_wrong:  # inference would stop at the contradiction
                self._hoisted.add(value)  # which leaves its declaration out
            if not is_weight:
                self.initializer(out, name, tensor)
            elif graph is self._model.graph:
                self._hoist(value, tensor)
            else:
                self._stand_in(out, name, tensor)

    def tensor(self, out: onnx.TensorProto, tensor: ir.TensorProtocol) -> None:
        if not isinstance(tensor, ir.ExternalTensor):
            super().tensor(out, tensor)
            return
        size = tensor_bytes(tensor)
        out.data_type = int(tensor.dtype)
        out.dims.extend(tensor.shape.numpy() if size <= _ATTRIBUTE_BYTES else (0,))
        out.raw_data = bytes(size if size <= _ATTRIBUTE_BYTES else 0)

    def attribute(self, out: onnx.AttributeProto, attribute: ir.Attr) -> None:
        """Write one attribute; of a large one that onnx has no use for, only its name and type."""
        if _is_large(attribute) and self._is_unknown(self._node):
            out.name = attribute.name
            out.type = cast("onnx.AttributeProto.AttributeType", attribute.type.value)
        else:
            super().attribute(out, attribute)

    def _is_unknown(self, node: ir.Node | None) -> bool:
        """Return whether neither onnx nor the model says what the operator of a node is."""
        if node is None or node.op_identifier() in self._model.functions:
            return False
        return not onnx.defs.has(node.op_type, node.domain)

    def value_info(self, out: Any, value: ir.Value, name: str = "") -> None:
        type_ = value.type
        if type_ is None or isinstance(type_, VerbatimType) or value in self._hoisted:
            return
        if type_.dtype is not ir.DataType.UNDEFINED:
            super().value_info(out, value, name)

    def metadata(self, out: Any, entries: Mapping[str, str]) -> None:
        """Leave it out: no service reads it, and exporters put stack traces there."""

    def annotations(self, out: onnx.GraphProto, graph: ir.Graph) -> None:
        """Leave them out: no service reads them."""

    def _constant_weight(self, node: ir.Node) -> ir.TensorProtocol | None:
        """Return the tensor of a Constant that is a weight; None for any other."""
        if node.domain:
            return None
        attribute = node.attributes.get("value")
        if attribute is None:
            return _listed(node)
        if attribute.is_ref() or attribute.type is not _T.TENSOR:
            return None
        tensor: ir.TensorProtocol = attribute.value  # `as_tensor()` asks for its size
        if self._in_function:
            external = isinstance(tensor, ir.ExternalTensor)
            return tensor if external or tensor_bytes(tensor) > _ATTRIBUTE_BYTES else None
        return tensor if _is_weight(tensor) else None

    def _hoist(self, value: ir.Value, tensor: ir.TensorProtocol) -> None:
        self._hoisted.add(value)
        info = onnx.ValueInfoProto(name=self.name(value))
        info.type.tensor_type.elem_type = int(tensor.dtype)
        info.type.tensor_type.shape.SetInParent()  # a scalar has a shape, too
        for dim in tensor.shape.numpy():
            info.type.tensor_type.shape.dim.add(dim_value=dim)
        _spare_inference(info.type)
        self._inputs.append(info)

    def _stand_in(self, out: Holder, name: str, tensor: ir.TensorProtocol) -> None:
        """Write nodes that produce an unknown value `name` of the type of `tensor`.

        Nothing is written for one of negative size: what reads it reads a value of no known type.
        """
        if _is_negative(tensor):
            return
        is_float = tensor.dtype is ir.DataType.FLOAT
        drawn = name if is_float else self._unused(name)
        node = out.node.add(op_type="RandomUniform", output=[drawn])
        node.attribute.add(name="shape", type=_A.INTS, ints=tensor.shape.numpy())
        if not is_float:
            node = out.node.add(op_type="Cast", input=[drawn], output=[name])
            node.attribute.add(name="to", type=_A.INT, i=int(tensor.dtype))

    def _unused(self, name: str) -> str:
        """Return a name that no value of the model has, made from `name`."""
        if not self._taken:
            self._taken = {value.name or "" for value in walk.values(self._model)}
            for _, graph in walk.graphs(self._model):
                self._taken.update(value.name or "" for value in graph.outputs)
        number = 0
        while (unused := f"{name}.{number}") in self._taken:
            number += 1
        self._taken.add(unused)
        return unused


def _is_large(attribute: ir.Attr) -> bool:
    """Return whether an attribute holds more than 1 MiB."""
    if type(attribute) is LongList:
        return True
    kind, value = attribute.type, attribute.value
    if kind is _T.TENSOR:
        return not attribute.is_ref() and tensor_bytes(value) > _ATTRIBUTE_BYTES
    if kind not in _LISTS or attribute.is_ref():
        return False
    bytes_each = _LISTS[kind].itemsize if kind in (_T.FLOATS, _T.INTS) else 1
    length = sum(map(len, value)) if kind is _T.STRINGS else len(value)
    return bool(length * bytes_each > _ATTRIBUTE_BYTES)


def _listed(node: ir.Node) -> ir.TensorProtocol | None:
    """Return a tensor without values for a large list or text of a Constant; None for any other."""
    if len(node.attributes) != 1:
        return None
    ((name, attribute),) = node.attributes.items()
    if name != f"value_{attribute.type.name.lower()}" or not _is_large(attribute):
        return None
    held = attribute.numbers if isinstance(attribute, LongList) else attribute.value
    sizes = () if attribute.type is _T.STRING else (len(held),)
    return ir.LazyTensor(_no_values, _LISTS[attribute.type], ir.Shape(sizes))


def _no_values() -> ir.TensorProtocol:
    raise AssertionError("nobody asks a weightless message for weights")


def _is_weight(tensor: ir.TensorProtocol) -> bool:
    if isinstance(tensor, ir.ExternalTensor | SparseInitializer):
        return True
    return tensor_bytes(tensor) > SMALL_BYTES or _is_negative(tensor)


def _is_negative(tensor: ir.TensorProtocol) -> bool:
    return any(dim < 0 for dim in tensor.shape.numpy())


def _spare_inference(type_: onnx.TypeProto) -> None:
    """Make the sizes unknown that `weightless` lists as left out."""
    inner = held(type_)
    kind = inner.WhichOneof("value")
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return
    dims = getattr(inner, kind).shape.dim
    for dim in dims:
        if dim.dim_value < 0 or (len(dims) == 1 and dim.dim_value > LONGEST):
            dim.Clear()


_Way = Callable[..., onnx.ModelProto]

_SPARE = 256 << 20
_SPARE_PER_BYTE = 32
"""Bytes that an inference may take, whatever the model and for each byte of it; a graph of 97,000
nodes and 12 MB took 200 MB."""

_PAST: tuple[tuple[Set[str], _Way], ...] = (
    ({"Slice"}, infer_past_negative_sizes),
    (CRASHING, infer_past_untyped_inputs),
    ({"Unsqueeze"}, infer_past_matrix_values),
    ({"Attention"}, infer_past_scores),
    (POOLS, infer_past_last_windows),
    (SCALED, infer_past_rounded_sizes),
    (UNCHECKED, infer_past_unchecked),
    (HOLDERS, infer_with_distinct_names),
)
"""The operators of each fault, and its guard; the innermost one first. A guard takes the contents
of a model and a function that infers them. It returns the model with inferred types, and leaves the
contents unchanged."""


def infer_with_data(
    message: onnx.ModelProto, *, strict: bool = False, check_types: bool = False
) -> onnx.ModelProto:
    """Return a message with inferred types, with data propagation through shape tensors.

    Data is not propagated if a vector would be too long. Nodes that onnx infers wrongly, or would
    not survive, stay unknown. `guard.table` has the faults.

    Args:
        message: The model, without weights.
        strict: Whether the first contradiction is an error.
        check_types: Whether types are compared with the schemas.

    Raises:
        onnx.shape_inference.InferenceError: If the model contradicts itself, and `strict`; if a
            type is not one of the schema, and `check_types`.
        onnx.checker.ValidationError: If functions call each other in a circle.
        RuntimeError: If inference cannot start.
        ValueError: If the message is too large.
    """
    infer: Infer = functools.partial(_infer, strict=strict, check_types=check_types)

    contents = Contents(message)
    for operators, past in _PAST:
        if not contents.operators.isdisjoint(operators):
            infer = functools.partial(past, infer=infer)
    return infer(contents)


def _infer(contents: Contents, strict: bool, check_types: bool) -> onnx.ModelProto:
    message = contents.message
    infer = functools.partial(
        onnx.shape_inference.infer_shapes, check_type=check_types, strict_mode=strict
    )
    if makes_long_vector(contents):
        return infer(message)
    spare = _SPARE + _SPARE_PER_BYTE * message.ByteSize()
    if may_run_out(contents):
        return infer_in_subprocess(message, strict, spare, check_types) or infer(message)
    try:
        with bounded_memory(spare):
            return infer_past_copied_scopes(contents, functools.partial(infer, data_prop=True))
    except MemoryError:
        return infer(message)
