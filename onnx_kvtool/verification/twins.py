"""The float32 twin of a model that computes in 16 bits."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from onnx_kvtool.model_io.verbatim import every_holder, every_node
from onnx_kvtool.ops.traits import ELEMENT_TYPE_ATTRIBUTES
from onnx_kvtool.runtime.errors import NoTwin

_A = onnx.AttributeProto
_T = onnx.TensorProto
_LOW = frozenset({_T.FLOAT16, _T.BFLOAT16})

_SMALL_BYTES = 1 << 16
"""A larger tensor keeps its type and is widened by a Cast, which runtimes fold when they load the
model: the message of the twin would be twice as large otherwise, and may be 2 GiB at most."""

_Key = tuple[str, str, str]
"""Domain, name and overload of a function."""


def twin(model: bytes, shaken: Collection[bytes] = ()) -> tuple[bytes, int]:
    """Return the model with every float16 and bfloat16 as a float32.

    Inputs, outputs, initializers, declared values, bodies and functions become float32 and keep
    their values. So do tensors and types in attributes, and element types that attributes name,
    such as `to`, `dtype`, `stash_type` and `softmax_precision`. A Cast to the narrow type rounds no
    more. What is stored in 8 bits and fewer (quantised weights and caches, float8) stays as it is:
    it is data, and rounding to it is part of what the model means. Names and the order of nodes
    stay.

    Constants in `shaken` (see `roundable`) are moved by half a unit of the last place of the type
    that they had, some up and some down: rounding may have moved them as much. Return the model and
    the number of new nodes at the front of its main graph.

    Raises:
        NoTwin: If what the model computes depends on the bits of the type (BitCast), or its main
            domain is unknown.
    """
    message = onnx.ModelProto.FromString(model)
    del message.training_info[:]
    casts = _Widening(message, frozenset(shaken)).model()
    return message.SerializeToString(), casts


def roundable(model: bytes) -> set[bytes]:
    """Return the constants of a model that were perhaps rounded to float16 or bfloat16.

    These are initializers and Constants of a narrow type, but for external ones. Some of their
    values must be neither an integer nor a power of two, since any type can represent those. Each
    is named by its shape and its values, so that it is the same in another model whatever its name
    and type.
    """
    message = onnx.ModelProto.FromString(model)
    return {
        _digest(tensor)
        for tensor in _tensors(message)
        if tensor.data_type in _LOW and not tensor.external_data and _was_rounded(_array(tensor))
    }


def has_external(model: bytes) -> bool:
    """Return whether a constant of a narrow type is external, so that `roundable` leaves it out."""
    message = onnx.ModelProto.FromString(model)
    return any(t.data_type in _LOW and t.external_data for t in _tensors(message))


class _Widening:
    """Edits one message in place."""

    def __init__(self, message: onnx.ModelProto, shaken: frozenset[bytes]) -> None:
        self._message = message
        self._shaken = shaken
        self._typed = _typed_parameters(message)

    def model(self) -> int:
        """Edit the model, and return how many nodes stand at the front of its main graph."""
        if not any(not entry.domain for entry in self._message.opset_import):
            raise NoTwin("the model has no operator of the main domain")
        casts = self._graph(self._message.graph)
        for function in self._message.functions:
            for value in function.value_info:
                _widen_type(value.type)
            typed = self._typed[_key(function)]
            for attribute in function.attribute_proto:
                self._attribute(attribute, is_typed=attribute.name in typed)
            for node in function.node:
                self._node(node)
        return casts

    def _graph(self, graph: onnx.GraphProto) -> int:
        for values in (graph.input, graph.output, graph.value_info):
            for value in values:
                _widen_type(value.type)
        inputs = {value.name for value in graph.input}
        for node in graph.node:
            self._node(node)
        casts = []
        for tensor in graph.initializer:
            if tensor.data_type in _LOW and self._is_large(tensor) and tensor.name not in inputs:
                casts.append(self._widened_by_cast(tensor))
            else:
                self._tensor(tensor)
        for sparse in graph.sparse_initializer:
            self._tensor(sparse.values)
        if casts:
            nodes = [*casts, *graph.node]
            del graph.node[:]
            graph.node.extend(nodes)
        return len(casts)

    def _is_large(self, tensor: onnx.TensorProto) -> bool:
        if tensor.external_data:
            return True
        return tensor.ByteSize() > _SMALL_BYTES and not (
            self._shaken and _digest(tensor) in self._shaken
        )

    def _widened_by_cast(self, tensor: onnx.TensorProto) -> onnx.NodeProto:
        """Rename an initializer, and return the node that widens it under its old name."""
        name, fresh = tensor.name, f"{tensor.name}.kvtool_narrow"
        tensor.name = fresh
        return onnx.helper.make_node("Cast", [fresh], [name], f"{fresh}.cast", to=_T.FLOAT)

    def _node(self, node: onnx.NodeProto) -> None:
        if node.op_type == "BitCast" and not node.domain:
            raise NoTwin("BitCast reads the bits of a type")
        typed = _typed_of(node, self._typed)
        for attribute in node.attribute:
            self._attribute(attribute, is_typed=attribute.name in typed)

    def _attribute(self, attribute: onnx.AttributeProto, *, is_typed: bool) -> None:
        if is_typed and attribute.i in _LOW:
            attribute.i = _T.FLOAT
        # One of these fields is filled, and the others have nothing that is narrow.
        sparse = [attribute.sparse_tensor, *attribute.sparse_tensors]
        for tensor in (attribute.t, *attribute.tensors, *(held.values for held in sparse)):
            self._tensor(tensor)
        for graph in (attribute.g, *attribute.graphs):
            self._graph(graph)
        for type_ in (attribute.tp, *attribute.type_protos):
            _widen_type(type_)

    def _tensor(self, tensor: onnx.TensorProto) -> None:
        if tensor.data_type not in _LOW:
            return
        if tensor.external_data:
            raise NoTwin(f"the values of `{tensor.name}`, which a Cast cannot widen, are external")
        values = _array(tensor)
        wide = values.astype(np.float32)
        if self._shaken and (digest := _digest(tensor)) in self._shaken:
            wide = _shaken(wide, values, digest)
        name, doc = tensor.name, tensor.doc_string
        tensor.CopyFrom(onnx.numpy_helper.from_array(wide, name))
        if doc:
            tensor.doc_string = doc


def _widen_type(type_: onnx.TypeProto) -> None:
    """Replace the narrow element types in a type, however deep they stand."""
    match type_.WhichOneof("value"):
        case "tensor_type" | "sparse_tensor_type" as kind:
            inner = getattr(type_, kind)
            if inner.elem_type in _LOW:
                inner.elem_type = _T.FLOAT
        case "sequence_type" | "optional_type" as kind:
            _widen_type(getattr(type_, kind).elem_type)
        case "map_type":
            _widen_type(type_.map_type.value_type)


def _typed_parameters(message: onnx.ModelProto) -> dict[_Key, frozenset[str]]:
    """Return of each function the attributes that give an element type to a node of its body."""
    typed: dict[_Key, frozenset[str]] = {
        _key(function): frozenset() for function in message.functions
    }
    is_changed = True
    while is_changed:  # once for each level of calls
        is_changed = False
        for function in message.functions:
            found = frozenset(
                attribute.ref_attr_name
                for node in every_node(function)
                for attribute in node.attribute
                if attribute.ref_attr_name and attribute.name in _typed_of(node, typed)
            )
            is_changed |= found != typed[_key(function)]
            typed[_key(function)] = found
    return typed


def _typed_of(node: onnx.NodeProto, typed: Mapping[_Key, frozenset[str]]) -> frozenset[str]:
    """Return the attributes of a node that name an element type."""
    return typed.get((node.domain, node.op_type, node.overload), ELEMENT_TYPE_ATTRIBUTES)


def _key(function: onnx.FunctionProto) -> _Key:
    return function.domain, function.name, function.overload


def _tensors(message: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield the initializers of all graphs, and the tensors that nodes hold."""
    for holder in every_holder(message):
        if isinstance(holder, onnx.GraphProto):
            yield from holder.initializer
        for node in holder.node:
            yield from (a.t for a in node.attribute if a.type == _A.TENSOR)


def _array(tensor: onnx.TensorProto) -> npt.NDArray[np.generic]:
    return ir.serde.deserialize_tensor(tensor).numpy()


def _digest(tensor: onnx.TensorProto) -> bytes:
    wide = _array(tensor).astype(np.float32)
    return hashlib.sha256(f"{list(tensor.dims)} ".encode() + wide.tobytes()).digest()


def _was_rounded(values: npt.NDArray[np.generic]) -> bool:
    """Return whether some value is neither an integer nor a power of two."""
    wide = values.astype(np.float64)
    wide = wide[np.isfinite(wide)]
    fraction, _ = np.frexp(np.abs(wide))
    return bool(((fraction != 0.5) & (wide != np.round(wide))).any())


def _shaken(
    wide: npt.NDArray[np.float32], values: npt.NDArray[np.generic], digest: bytes
) -> npt.NDArray[np.float32]:
    """Return `wide` with each value moved by half a unit of the last place of `values`."""
    rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    half = 2.0**-9 if values.dtype == ml_dtypes.bfloat16 else 2.0**-12  # relative, of 8 and 11 bits
    factors = 1 + half * rng.choice([-1.0, 1.0], wide.shape)
    return np.asarray(wide * factors, np.float32)
