"""What `docs/developing/dialect.md` says of the nodes that kvtool writes, held against a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.walk import graphs, nodes
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.shapes.annotations import annotate
from onnx_kvtool.symbolic.dimensions import Dim, dims_of

__all__ = ["FORMS", "departures"]

_INT32 = np.iinfo(np.int32)
_WIDE = (ir.DataType.INT64, ir.DataType.UINT64)
_OF_64_BITS = ("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Mod")
"""Operators whose arithmetic needs numbers beyond int32 where its integers do (`_is_wide`)."""

OF_THE_SOURCE = frozenset({"readers", "Constant", "Pad value", "Pad axes", "Squeeze", "bytes"})
"""Forms that the nodes of the source are brought to as well."""


def departures(lowered: ir.Model, source: ir.Model) -> list[str]:
    """Return where a lowered model leaves the dialect: `<form>: <operator> <name>: <what>`.

    What cannot be known (a rank) departs from nothing. Nodes and constants of the source, known by
    their names or by having none, are held against the forms that they are brought to alone.

    Args:
        lowered: What was lowered; types and shapes are inferred and taken away again.
        source: What it was lowered from.
    """
    own = {name for _, _, node in nodes(source) for name in (node.name, *_names(node.outputs))}
    own |= {name for _, graph in graphs(source) for name in graph.initializers}
    wide = tuple({node.op_type for _, _, node in nodes(source) if _is_wide(node)})
    annotations = annotate(lowered, fully=True)
    try:
        return [
            f"{form}: {node.op_type} `{node.name}`: {what}"
            for _, _, node in nodes(lowered)
            for form, look in FORMS.items()
            if form in OF_THE_SOURCE or (node.name and node.name not in own)
            if form != "int32" or not (node.name or "").startswith(wide or (" ",))
            for what in look(node, own)
        ]
    finally:
        annotations.remove()


def _is_wide(node: ir.Node) -> bool:
    """Return whether the integers that a node of the source reads may be beyond int32."""
    read = {value.dtype for value in node.inputs if value is not None}
    return node.op_type in _OF_64_BITS and not read.isdisjoint((*_WIDE, ir.DataType.UINT32, None))


def _where(node: ir.Node, own: Collection[str]) -> Iterator[str]:
    """The chosen operands have the shape of the result or one element; the condition its rank."""
    if node.op_type != "Where":
        return
    result = dims_of(node.outputs[0])
    for value in node.inputs[1:]:
        dims = dims_of(value)
        if dims is None or all(dim == 1 for dim in dims):
            continue
        if result is not None and not _same(dims, result):
            yield f"chooses from {dims} for {result}"
    condition = dims_of(node.inputs[0])
    if condition is not None and result is not None and len(condition) != len(result):
        yield f"is asked by {condition} for {result}"


def _same(dims: tuple[Dim, ...], others: tuple[Dim, ...]) -> bool:
    """Return whether an operand may have the shape of the result.

    A number but 1 has that of the result, whatever that is called; what is unknown there is no 1.
    """
    return len(dims) == len(others) and all(
        a == b or a is None or (a != 1 and (b is None or isinstance(a, int)))
        for a, b in zip(dims, others, strict=True)
    )


def _int32(node: ir.Node, own: Collection[str]) -> Iterator[str]:
    for value in node.inputs:
        tensor = None if value is None or value.name in own else _tensor(value)
        if tensor is not None and tensor.dtype in _WIDE and tensor.size:
            numbers = tensor.numpy()
            if numbers.max() > _INT32.max or numbers.min() < _INT32.min:
                yield f"reads {numbers.min()} to {numbers.max()}"


def _readers(node: ir.Node, own: Collection[str]) -> Iterator[str]:
    if is_standard(node) and not any(o.uses() or o.is_graph_output() for o in node.outputs):
        yield "nobody reads it"


def _constant(node: ir.Node, own: Collection[str]) -> Iterator[str]:
    if node.op_type == "Constant" and not set(node.attributes) <= {"value", "sparse_value"}:
        yield f"holds {', '.join(node.attributes)}"


def _pad_value(node: ir.Node, own: Collection[str]) -> Iterator[str]:
    value = node.inputs[2] if node.op_type == "Pad" and len(node.inputs) > 2 else None
    if value is not None and _tensor(value) is not None and dims_of(value):
        yield f"fills with {dims_of(value)}"


def _pad_axes(node: ir.Node, own: Collection[str]) -> Iterator[str]:
    if node.op_type == "Pad" and any(node.inputs[3:]) and dims_of(node.inputs[0]) is not None:
        yield "names axes"


def _squeeze(node: ir.Node, own: Collection[str]) -> Iterator[str]:
    if node.op_type != "Squeeze" or "axes" in node.attributes or any(node.inputs[1:]):
        return
    dims = dims_of(node.inputs[0])
    if dims is not None and 1 in dims and all(isinstance(dim, int) for dim in dims):
        yield f"names no axes of {dims}"


def _sizes(node: ir.Node, own: Collection[str]) -> Iterator[str]:
    if node.op_type in ("Shape", "Size"):
        dims = dims_of(node.inputs[0])
        if dims is not None and all(isinstance(dim, int) for dim in dims):
            yield f"measures {dims}"
    elif node.op_type == "Gather":
        shape, index = node.inputs[0], node.inputs[1]
        producer = None if shape is None else shape.producer()
        if producer is None or producer.op_type != "Shape" or index is None:
            return
        dims, tensor = dims_of(producer.inputs[0]), _tensor(index)
        if dims is not None and tensor is not None and tensor.size == 1:
            dim = dims[int(tensor.numpy().ravel()[0])]
            if isinstance(dim, int):
                yield f"looks {dim} up"


def _bytes(node: ir.Node, own: Collection[str]) -> Iterator[str]:
    held = [value.const_value for value in node.inputs if value is not None]
    held += [one.as_tensor() for one in node.attributes.values() if one.type == _TENSOR]
    for tensor in held:
        if not isinstance(tensor, ir.TensorProtoTensor) or tensor.raw.HasField("raw_data"):
            continue
        if not tensor.size or tensor.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
            yield f"holds {tensor.dtype.name} of {tuple(tensor.shape)} as no bytes"


_TENSOR = ir.AttributeType.TENSOR

FORMS: dict[str, Callable[[ir.Node, Collection[str]], Iterator[str]]] = {
    "Where": _where,
    "int32": _int32,
    "readers": _readers,
    "Constant": _constant,
    "Pad value": _pad_value,
    "Pad axes": _pad_axes,
    "Squeeze": _squeeze,
    "sizes": _sizes,
    "bytes": _bytes,
}
"""By the name of a form in the table of the page: what says where a node does not have it."""


def _tensor(value: ir.Value) -> ir.TensorProtocol | None:
    if value.is_graph_input():
        return None
    if value.const_value is not None:
        return value.const_value
    producer = value.producer()
    if producer is None or producer.op_type != "Constant":
        return None
    return ir.convenience.get_const_tensor(value)


def _names(values: Collection[ir.Value]) -> list[str]:
    return [value.name for value in values if value.name]
