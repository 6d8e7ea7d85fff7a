"""Types that one version of an operator lets differ and another one does not."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import onnx_ir as ir

from onnx_kvtool.ops.schema import OpFacts, op_facts, type_name

__all__ = ["clashing_types"]

_Slot = tuple[str, int]
"""`input` or `output`, and the position."""


def clashing_types(node: ir.Node, old: OpFacts, new: OpFacts) -> Iterator[str]:
    """Yield what differs in type although `new` wants one type, where `old` takes several.

    The exponent of Pow-12 has a type of its own, that of Pow-7 the type of the base. Types that are
    unknown are not judged.

    Args:
        node: The node, written for `old`.
        old: One version of its operator.
        new: Another one.

    Yields:
        A sentence that ends before the number of the opset.
    """
    for slots in _joined(old.op_type, old.since_version, new.since_version):
        found: dict[str, str] = {}
        for kind, index in slots:
            values = node.inputs if kind == "input" else node.outputs
            value = values[index] if index < len(values) else None
            type_ = None if value is None or not value.name else type_name(value)
            if value is not None and type_ is not None:
                found.setdefault(type_, value.name or "")
        if len(found) > 1:
            given = " and ".join(f"`{name}` is {type_}" for type_, name in found.items())
            yield f"{given}, which `{node.op_type}` takes of one type only at opset"


@functools.cache
def _joined(op_type: str, old: int, new: int) -> tuple[tuple[_Slot, ...], ...]:
    """Return the inputs and outputs that have one type in version `new`, and had several."""
    before, after = op_facts(op_type, old), op_facts(op_type, new)
    if before is None or after is None:
        return ()
    groups: dict[str, list[_Slot]] = {}
    for kind, formals in (("input", after.inputs), ("output", after.outputs)):
        for index, formal in enumerate(formals):
            if not formal.variadic:
                groups.setdefault(formal.type_parameter, []).append((kind, index))

    def had(slot: _Slot) -> str | None:
        formal = (before.input if slot[0] == "input" else before.output)(slot[1])
        return None if formal is None else formal.type_parameter

    return tuple(
        tuple(slots) for slots in groups.values() if len({had(slot) for slot in slots} - {None}) > 1
    )
