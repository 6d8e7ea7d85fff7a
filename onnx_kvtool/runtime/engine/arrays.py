"""Constants of a model as arrays, and the attributes of a node as its kernel takes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.model_io.external_data import array
from onnx_kvtool.model_io.verbatim import SparseInitializer
from onnx_kvtool.ops.schema import OpFacts
from onnx_kvtool.runtime.engine.borrowed import Attributes
from onnx_kvtool.runtime.errors import KernelError, RuntimeUnavailable
from onnx_kvtool.runtime.kernels.axes import require_room
from onnx_kvtool.runtime.kernels.kernel import Array, Value

# Constants of a model as arrays, sparse ones made dense.


def constant(tensor: ir.TensorProtocol) -> Array:
    """Return the values of a tensor as kernels take them: read-only, strings as objects.

    An external tensor stays mapped from its file. A sparse initializer becomes dense.

    Raises:
        RuntimeUnavailable: If the values cannot be read, or a sparse tensor contradicts itself.
    """
    if isinstance(tensor, SparseInitializer):
        return dense(tensor.raw)
    try:
        values = array(tensor)
    except KvtoolError as error:
        raise RuntimeUnavailable(error.message, help=error.help) from error
    if tensor.dtype == ir.DataType.STRING:
        return _text(values)
    constants: Array = np.asarray(values).view()
    constants.flags.writeable = False
    return constants


def dense(sparse: onnx.SparseTensorProto) -> Array:
    """Return a sparse tensor as an array, with zeros (or empty strings) for absent elements.

    The indices are (NNZ,), into the flat tensor, or (NNZ, rank).

    Raises:
        RuntimeUnavailable: If values or indices cannot be read; if there are not as many indices
            as values, or one is out of range; if there is no room for the array.
    """
    shape = tuple(sparse.dims)
    if any(size < 0 for size in shape):
        raise RuntimeUnavailable(
            f"sparse tensor `{sparse.values.name}` has shape {shape}, which is negative"
        )
    values, indices = _part(sparse, sparse.values), _part(sparse, sparse.indices)
    if indices.dtype.kind not in "iu":
        raise RuntimeUnavailable(
            f"sparse tensor `{sparse.values.name}` has indices of dtype {indices.dtype}, "
            "expected integers"
        )
    try:
        require_room(shape, values.dtype, f"sparse tensor `{sparse.values.name}`")
    except KernelError as error:
        raise RuntimeUnavailable(error.message, help=error.help) from error
    expected = ((values.size,), (values.size, len(shape) or 1))
    if indices.shape not in expected:
        raise RuntimeUnavailable(
            f"sparse tensor `{sparse.values.name}` has indices of shape {indices.shape}, "
            f"expected {expected[0]} or {expected[1]}"
        )
    limits = shape if shape and indices.ndim == 2 else (math.prod(shape),)
    places = indices.reshape(values.size, len(limits))
    wrong = np.flatnonzero(((places < 0) | (places >= np.asarray(limits, np.int64))).any(axis=1))
    if wrong.size:
        raise RuntimeUnavailable(
            f"sparse tensor `{sparse.values.name}` has the index {indices[wrong[0]].tolist()} at "
            f"position {wrong[0]}, outside of its shape {shape}"
        )
    result: Array = np.zeros(shape, values.dtype)
    if values.dtype == object:
        result[...] = ""
        values = _text(values)
    result.reshape(limits)[tuple(places.T)] = values
    result.flags.writeable = False
    return result


def _part(sparse: onnx.SparseTensorProto, part: onnx.TensorProto) -> np.ndarray[Any, Any]:
    """Return the values or the indices of a sparse tensor."""
    try:
        return np.asarray(array(ir.serde.deserialize_tensor(part)))
    except (KvtoolError, ir.serde.SerdeError) as error:
        raise RuntimeUnavailable(
            f"sparse tensor `{sparse.values.name}` cannot be read: {error}"
        ) from error


def _text(values: Array) -> Array:
    try:
        return text_objects(values)
    except UnicodeDecodeError as error:
        raise RuntimeUnavailable("a constant has text that is not UTF-8") from error


def text_objects(values: Array) -> Array:
    """Return an array of bytes or strings as objects of type str.

    Raises:
        UnicodeDecodeError: If bytes are not UTF-8.
    """
    text = np.empty(values.size, object)
    flat = values.reshape(-1).tolist()
    text[:] = [v.decode() if isinstance(v, bytes) else str(v) for v in flat]
    return text.reshape(values.shape)


# The attributes of a node as its kernel takes them.


def resolve(attributes: Attributes, parameters: Attributes) -> dict[str, ir.Attr]:
    """Return attributes with references to function parameters replaced by their values.

    If the caller of the function omitted an attribute, one that refers to it is omitted as well.
    """
    resolved = {}
    for name, attribute in attributes.items():
        if not attribute.is_ref():
            resolved[name] = attribute
        elif (given := parameters.get(attribute.ref_attr_name or "")) is not None:
            resolved[name] = ir.Attr(name, given.type, given.value)
    return resolved


def bound_attributes(
    facts: OpFacts,
    attributes: Attributes,
    body: Callable[[str, ir.Graph], Value],
) -> dict[str, Value]:
    """Return a value for each attribute of an operator.

    The attributes have no references. `body` returns the value for the name and graph of one. Other
    values are integers, floats, strings and tuples of them, arrays for tensors, and None for an
    attribute that has no default and was not given.

    Raises:
        RuntimeUnavailable: If an attribute is unknown to the operator, of another type than the
            schema's, or required and missing.
    """
    if unknown := sorted(attributes.keys() - facts.attributes.keys()):
        raise RuntimeUnavailable(
            f"version {facts.since_version} of `{facts.op_type}` has no attribute `{unknown[0]}`"
        )
    values: dict[str, Value] = {}
    for name, declared in facts.attributes.items():
        given = attributes.get(name)
        if given is None:
            if declared.required:
                raise RuntimeUnavailable(f"the attribute `{name}` is required and missing")
            values[name] = declared.default
        elif given.type.value != declared.type:
            raise RuntimeUnavailable(
                f"the attribute `{name}` is of type {given.type.name}, "
                f"expected {ir.AttributeType(declared.type).name}"
            )
        else:
            values[name] = _value(name, given, body)
    return values


def _value(name: str, attribute: ir.Attr, body: Callable[[str, ir.Graph], Value]) -> Value:
    kind, value = attribute.type, attribute.value
    if kind is ir.AttributeType.GRAPH:
        return body(name, attribute.as_graph())
    if kind is ir.AttributeType.TENSOR:
        return constant(value)  # `as_tensor()` asks for its size, which not every type has
    if kind is ir.AttributeType.SPARSE_TENSOR:
        return dense(value)
    if isinstance(value, (list, tuple)):
        return tuple(value)
    return value
