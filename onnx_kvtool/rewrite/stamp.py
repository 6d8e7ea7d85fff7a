"""Opset and IR version of the result, and what an older IR version cannot hold."""

from __future__ import annotations

import onnx.helper
import onnx_ir as ir

from onnx_kvtool.core.walk import contents
from onnx_kvtool.rewrite.ir_features import strip

__all__ = ["ir_version_for", "ir_version_of", "normalise_domains", "set_versions", "stamp"]


def ir_version_of(opset: int) -> int:
    """Return the IR version that was released with an opset of the default domain."""
    version = onnx.helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", opset))
    if version is None:
        raise ValueError(f"no IR version is known for opset {opset}")
    return int(version)


def ir_version_for(model: ir.Model, opset: int, highest: int | None = None) -> int:
    """Return the IR version of a model that comes to an opset.

    It never rises, and is not above the one that was released with the opset. Runtimes enforce it
    apart from the opset.

    Args:
        model: The model as it was.
        opset: Version of the default domain that it comes to.
        highest: The highest IR version that the runtime loads; None without a limit.
    """
    released = ir_version_of(opset)
    return min(model.ir_version or released, released, highest or released)


def normalise_domains(model: ir.Model) -> None:
    """Spell the default domain as "" in all opset imports and nodes, in place."""
    for imports in (model.opset_imports, *(f.opset_imports for f in model.functions.values())):
        if "ai.onnx" in imports:
            version = imports.pop("ai.onnx")
            imports.setdefault("", version)
    for _, _, nodes in contents(model):
        for node in nodes:
            if node.domain == "ai.onnx":
                node.domain = ""


def stamp(model: ir.Model, opset: int, ir_version: int) -> list[str]:
    """Write opset and IR version, and strip what the IR version lacks, in place.

    Args:
        model: The model.
        opset: Version of the default domain.
        ir_version: IR version, see `ir_version_for`.

    Returns:
        What was left out, for people.
    """
    set_versions(model, opset, ir_version)
    return strip(model)


def set_versions(model: ir.Model, opset: int, ir_version: int) -> None:
    """Write opset and IR version of a model whose nodes are all of that opset, in place.

    Functions that import the default domain import that opset of it.
    """
    model.opset_imports[""] = opset
    for function in model.functions.values():
        if "" in function.opset_imports:
            function.opset_imports[""] = opset
    model.ir_version = ir_version
    for _, _, nodes in contents(model):
        for node in nodes:
            node.version = None
