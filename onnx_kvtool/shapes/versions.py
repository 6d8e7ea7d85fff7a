"""Nodes that the opset which the model declares does not have."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import onnx.defs

from onnx_kvtool.core.words import counted
from onnx_kvtool.ops.schema import NEWEST, op_facts
from onnx_kvtool.symbolic.knowledge import Conflict
from onnx_kvtool.symbolic.rules.site import ShapeSite

__all__ = ["report_wrong_opset"]


@functools.cache
def _versions() -> Mapping[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and not schema.deprecated:
            found.setdefault(schema.name, []).append(schema.since_version)
    return {name: tuple(sorted(versions)) for name, versions in found.items()}


def report_wrong_opset(site: ShapeSite) -> int | None:
    """Report that a node needs another opset than the declared one.

    Args:
        site: A node of the default domain that its schema does not allow.

    Returns:
        An opset that has the operator with as many inputs; None, and nothing is reported, where no
        opset does.
    """
    node = site.node
    fitting = [
        version
        for version in _versions().get(node.op_type, ())
        if version <= NEWEST
        and (facts := op_facts(node.op_type, version)) is not None
        and not facts.deprecated
        and facts.max_inputs >= len(node.inputs)
    ]
    newer = [version for version in fitting if version > site.opset]
    if not fitting:
        return None
    found = newer[0] if newer else fitting[-1]
    value = node.outputs[0] if node.outputs else None
    here = op_facts(node.op_type, site.opset)
    gone = here is None or here.deprecated
    has = "has no such operator" if gone else "has fewer inputs"
    site.knowledge.conflicts.append(
        Conflict(
            "wrong-opset",
            site.at(value),
            f"opset {site.opset}",
            f"opset {found}",
            f"`{node.op_type}` of {counted(len(node.inputs), 'input')} is of opset {found}, "
            f"and opset {site.opset}, which is declared, {has}",
        )
    )
    return found
