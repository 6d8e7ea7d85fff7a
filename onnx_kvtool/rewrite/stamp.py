"""Opset and IR version of the result, and what an older IR version cannot hold."""

from __future__ import annotations

import onnx.helper
import onnx_ir as ir

from onnx_kvtool.core.walk import graphs

__all__ = ["ir_version_of", "normalise_domains", "stamp"]


def ir_version_of(opset: int) -> int:
    """Return the IR version that was released with an opset of the default domain."""
    version = onnx.helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", opset))
    if version is None:
        raise ValueError(f"no IR version is known for opset {opset}")
    return int(version)


def normalise_domains(model: ir.Model) -> None:
    """Spell the default domain as "" in all opset imports and nodes, in place."""
    for imports in (model.opset_imports, *(f.opset_imports for f in model.functions.values())):
        if "ai.onnx" in imports:
            version = imports.pop("ai.onnx")
            imports.setdefault("", version)
    for _, graph in graphs(model):
        for node in graph:
            if node.domain == "ai.onnx":
                node.domain = ""


def stamp(model: ir.Model, opset: int) -> list[str]:
    """Write opset and IR version, and strip what the IR version lacks, in place.

    The IR version never rises. Runtimes enforce it apart from the opset.

    Returns:
        What was left out, for people.
    """
    model.opset_imports[""] = opset
    for function in model.functions.values():
        if "" in function.opset_imports:
            function.opset_imports[""] = opset
    model.ir_version = min(model.ir_version or ir_version_of(opset), ir_version_of(opset))
    for _, graph in graphs(model):
        for node in graph:
            node.version = None
    return _strip(model)


def _strip(model: ir.Model) -> list[str]:
    notes: list[str] = []
    if model.ir_version < 10 and _strip_metadata(model):
        notes.append(
            f"metadata of graphs, nodes and values left out: IR version {model.ir_version} "
            "has it on the model only"
        )
    return notes


def _strip_metadata(model: ir.Model) -> bool:
    found = False
    for _, graph in graphs(model):
        holders = [graph.metadata_props]
        holders += [v.metadata_props for v in (*graph.inputs, *graph.initializers.values())]
        for node in graph:
            holders.append(node.metadata_props)
            holders += [v.metadata_props for v in node.outputs]
        for holder in holders:
            if holder:
                holder.clear()
                found = True
    for function in model.functions.values():
        if function.metadata_props:
            function.metadata_props.clear()
            found = True
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and tensor.metadata_props:
            tensor.metadata_props.clear()
            found = True
    return found
