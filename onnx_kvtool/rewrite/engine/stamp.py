"""Opset and IR version of the result, and the fields that its IR version does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping

import onnx.helper
import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.walk import contents, graphs, tensors
from onnx_kvtool.ops.changes import CONSTANTS, FIRST_IR


def ir_version_of(opset: int) -> int:
    """Return the IR version that was released with an opset of the default domain."""
    version = onnx.helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", opset))
    if version is None:
        raise ValueError(f"no IR version is known for opset {opset}")
    return int(version)


def ir_version_for(model: ir.Model, opset: int, highest: int | None = None) -> int:
    """Return the IR version of a model that is brought to an opset.

    That of the model, but at most the one released with the opset, and `highest`, the highest that
    the runtime loads. Runtimes enforce it apart from the opset.
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


def forget_unused(model: ir.Model, meant: Callable[[str], bool] = lambda domain: True) -> None:
    """Remove imports of domains that nothing uses, from a model and its functions, in place.

    Tools import every domain that they know, and older releases refuse versions of unused ones, too
    (onnxruntime 1.17.3: `ai.onnx.ml` 5). `meant` says which domains may go; the default one stays.
    """
    used = {"", *(domain for domain, *_ in model.functions)}
    for _, _, nodes in contents(model):
        used.update(node.domain for node in nodes)
    holders = [(model.opset_imports, used)]
    for function in model.functions.values():
        own = {"", *(node.domain for node in function.all_nodes())}
        holders.append((function.opset_imports, own))
    for imports, needed in holders:
        for domain in tuple(imports):
            if domain not in needed and meant(domain):
                del imports[domain]


def stamp(model: ir.Model, opset: int, ir_version: int, *, functions: bool = True) -> list[str]:
    """Write opset and IR version, and remove fields that the IR version lacks, in place.

    Constants that are no inputs, as new ones are, raise the IR version to the first that has such.
    Without `functions`, functions keep their own opset. Return notes for people.
    """
    own = {key: dict(function.opset_imports) for key, function in model.functions.items()}
    set_versions(model, opset, ir_version)
    for key, imports in own.items() if not functions else ():
        model.functions[key].opset_imports.update(imports)
    held = (value for graph in model.graphs() for value in graph.initializers.values())
    if ir_version >= CONSTANTS or all(value.is_graph_input() for value in held):
        return strip(model)
    model.ir_version = CONSTANTS
    note = f"IR version {CONSTANTS} instead of {ir_version}, which has no constants beside inputs"
    return [note, *strip(model)]


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


def lacking_types(model: ir.Model) -> Iterator[Diagnostic]:
    """Yield an error for each input, output and constant of a type that the IR version lacks.

    The nodes between them are judged by their operators; what no operator of the default domain
    touches, a value that goes straight through or to a custom operator, shows here only.
    """
    for path, graph in graphs(model):
        for value in dict.fromkeys((*graph.inputs, *graph.outputs)):
            if value.dtype is not None and (problem := _lacks(value.dtype, model.ir_version)):
                yield Diagnostic("ir-version", "error", Location(path, value=value.name), problem)
    for place, tensor in tensors(model):
        if problem := _lacks(tensor.dtype, model.ir_version):
            yield Diagnostic("ir-version", "error", place, problem)


def _lacks(dtype: ir.DataType, ir_version: int) -> str | None:
    since = FIRST_IR.get(dtype, 0)
    if since <= ir_version:
        return None
    return f"{dtype.name} came with IR version {since}, the result has IR version {ir_version}"


def strip(model: ir.Model) -> list[str]:
    """Remove fields that the IR version of a model does not have, in place; return what it was.

    Metadata of graphs, nodes, values, tensors and functions came with IR 10, device configurations
    with IR 11. Functions and overloads are inlined before.
    """
    notes: list[str] = []
    metadata = list(filter(None, _metadata(model) if model.ir_version < 10 else ()))
    for given in metadata:
        given.clear()
    if metadata:
        notes.append(
            f"metadata of graphs, nodes and values removed: IR version {model.ir_version} "
            "has it on the model only"
        )
    holders: list[ir.Model | ir.Node] = []
    if model.ir_version < 11:
        holders = [model, *(node for _, _, nodes in contents(model) for node in nodes)]
    if found := [holder for holder in holders if holder.device_configurations]:
        for holder in found:
            holder.device_configurations = ()
        notes.append(f"device configurations removed: IR version {model.ir_version} has none")
    return notes


def _metadata(model: ir.Model) -> Iterator[MutableMapping[str, str]]:
    for _, graph, nodes in contents(model):
        yield graph.metadata_props
        for value in (*graph.inputs, *graph.initializers.values()):
            yield value.metadata_props
        for node in nodes:
            yield node.metadata_props
            for output in node.outputs:
                yield output.metadata_props
    for function in model.functions.values():
        yield function.metadata_props
    for _, tensor in tensors(model):
        yield tensor.metadata_props
