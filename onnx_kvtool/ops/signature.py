"""What of a node its schema can be asked about, in a form that can be compared."""

from __future__ import annotations

from collections.abc import Hashable

import onnx_ir as ir

__all__ = ["signature"]

_BY_VALUE = frozenset({ir.AttributeType.STRING, ir.AttributeType.INT})


def signature(node: ir.Node) -> Hashable:
    """Return a key that is equal for two nodes only if `examine` says the same of both but names.

    A decoder has tens of thousands of nodes and a few dozen signatures, so that what is known of
    one node need not be found out again for the next. The key holds the operator, the types of
    inputs and outputs, which of them are absent, and of each attribute name, type, and the value
    of a string or an integer, which may be the name of an element type. Values of other attributes
    are left out: no schema says anything about them.
    """
    return (
        node.op_type,
        node.domain,
        tuple([None if value is None else _type(value.type) for value in node.inputs]),
        tuple([_type(value.type) if value.name else None for value in node.outputs]),
        tuple([_attribute(given) for given in node.attributes.data.values()]),
    )


def _type(type_: ir.TypeProtocol | None) -> Hashable:
    # The hash of a type of onnx_ir is that of its text, which takes long to make.
    if type_.__class__ is ir.TensorType:
        return type_.dtype
    return "unknown" if type_ is None else repr(type_)


def _attribute(given: ir.Attr) -> Hashable:
    kind = given.type
    return given.name, kind, given.is_ref(), given.value if kind in _BY_VALUE else None
