"""Operators that ONNX does not define, as releases of runtimes know them or do not."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from onnx_kvtool.ops.contrib_schema import DOMAIN, contrib_facts, default_of, is_contrib
from onnx_kvtool.ops.schema import is_standard

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.targets.release import Release

__all__ = ["stranger"]

LocalName = tuple[str, str]


def stranger(
    node: ir.Node, opset: int, release: Release, local: Container[LocalName]
) -> str | None:
    """Return how a release lacks the operator of a node, which ONNX does not define.

    Args:
        node: The node.
        opset: Version of the default domain that it was written for.
        release: The release.
        local: Domains and names of the functions of its model, of which a call is no stranger.

    Returns:
        A clause that follows the name of the release; None where it imports the operator as the
        node has it, or ONNX defines it.
    """
    if (node.domain, node.op_type) in local:
        return None
    if is_standard(node) and not is_contrib(node, opset):
        return None
    name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    if not release.imports(node.domain, node.op_type):
        return f"imports no `{name}`"
    known = release.narrower.get(node.op_type) if node.domain == DOMAIN else None
    if known is None:
        return None
    count = max((i for i, value in enumerate(node.inputs, start=1) if value is not None), default=0)
    if count > known.inputs:
        return f"imports `{name}` with {known.inputs} inputs at most, here it has {count}"
    facts = contrib_facts(DOMAIN, node.op_type)
    formals = () if facts is None else facts.inputs
    for value, formal in zip(node.inputs, formals, strict=False):
        if value is not None and formal.name in known.errs:
            return f"computes some forms of `{name}` with `{formal.name}` wrongly"
    later = sorted(known.without & node.attributes.keys())
    if later:
        return f"imports `{name}` without its attribute `{later[0]}`"
    for attribute, values in known.values.items():
        given = default_of(node.op_type, attribute, opset, node.domain)
        if (own := node.attributes.get(attribute)) is not None and not own.is_ref():
            given = own.value
        if given not in values:
            listed = " or ".join(f"`{value}`" for value in values)
            return (
                f"has kernels for `{name}` with a `{attribute}` of {listed}, here it is `{given}`"
            )
    return None
