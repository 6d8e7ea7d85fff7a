"""What the rules have in common: the same node in a later form, and constants beside it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.result import Refusal, Replacement

__all__ = ["again", "fixed", "number_like"]


def again(
    em: Emitter,
    node: ir.Node,
    inputs: Sequence[ir.Value | None],
    *,
    without: Collection[str] = (),
    attributes: Mapping[str, AttributeValue] | None = None,
    op_type: str | None = None,
    outputs: int | None = None,
) -> Replacement:
    """Return a node in its later form: attributes are kept as they are, references among them.

    Args:
        em: Where to build.
        node: The node; it is not changed.
        inputs: Inputs of the new form; absent ones at the end are left out.
        without: Attributes that the new form lacks.
        attributes: Attributes that the new form has besides, or with another value.
        op_type: The new operator; that of the node when None.
        outputs: How many outputs the new form has; as many as the node when None. Those that the
            new form lacks must have no reader.
    """
    given = list(inputs)
    while given and given[-1] is None:
        given.pop()
    added = ir.convenience.convert_attributes(attributes or {})
    dropped = {*without, *(attribute.name for attribute in added)}
    kept = [a for a in node.attributes.values() if a.name not in dropped]
    count = len(node.outputs) if outputs is None else outputs
    new = ir.Node(
        "", op_type or node.op_type, given, [*kept, *added], num_outputs=count, version=em.opset
    )
    for old, output in zip(node.outputs, new.outputs, strict=False):
        output.name, output.type, output.shape = old.name, old.type, old.shape
    em.adopt(new, new.op_type)
    results: list[ir.Value | None] = [o if o.name else None for o in new.outputs]
    return Replacement((*results, *[None] * (len(node.outputs) - count)))


def fixed(numbers: Sequence[int] | int, em: Emitter, hint: str) -> ir.Value:
    """Return integers as a constant: int64; (n,) for a sequence, () for one number."""
    return em.tensor(ir.Tensor(np.asarray(numbers, np.int64)), hint)


def number_like(em: Emitter, number: float, data: ir.Value, hint: str) -> ir.Value:
    """Return a number as a constant of the element type of `data`: ().

    Where the type is unknown, as in a function, a CastLike takes it from the value.

    Raises:
        Refusal: If the type is unknown and the target has no CastLike.
    """
    array = np.asarray(number, np.float32)
    if data.dtype is not None:
        return em.tensor(ir.tensor(array.astype(data.dtype.numpy()), dtype=data.dtype), hint)
    if em.opset < 15:
        raise Refusal("unknown-element-type", f"the type of `{data.name}` is unknown")
    constant = em.constant(array, hint)
    return em.op("CastLike", constant, data, dtype=ir.DataType.UNDEFINED, hint=hint)
