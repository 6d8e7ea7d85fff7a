"""Constants that are declared otherwise than what they hold."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["held", "is_misdeclared"]


def held(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer or of a Constant; None for any other value.

    None also for a Constant that holds no tensor, but a number or a list.
    """
    node = value.producer()
    if value.const_value is not None or node is None or node.op_type != "Constant" or node.domain:
        return value.const_value
    attribute = node.attributes.get("value")
    if attribute is None or attribute.is_ref() or attribute.type != ir.AttributeType.TENSOR:
        return None
    tensor: ir.TensorProtocol = attribute.value
    return tensor


def is_misdeclared(value: ir.Value) -> bool:
    """Return whether a constant is declared with a type or shape that its tensor has not.

    That is what a graph input of the name of an initializer says, or `value_info`. The elements are
    not read. What is not declared contradicts nothing, and neither does a name, or a negative size,
    with which some exporters mean one that they do not know.
    """
    tensor = held(value)
    if tensor is None:
        return False
    type_, shape = value.type, value.shape
    if type_ is not None and (
        isinstance(type_, ir.SequenceType | ir.OptionalType)
        or type_.dtype not in (tensor.dtype, ir.DataType.UNDEFINED)
    ):
        return True
    if shape is None or shape is tensor.shape:
        return False
    sizes = tensor.shape.numpy()
    return len(shape) != len(sizes) or any(
        isinstance(dim, int) and dim >= 0 and dim != size
        for dim, size in zip(shape, sizes, strict=True)
    )
