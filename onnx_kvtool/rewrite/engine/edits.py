"""The edits of one node: another form, other nodes in its place, known by its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from onnx_kvtool.analysis.constants import Folder
from onnx_kvtool.core.walk import remove_node, subgraphs, supersede
from onnx_kvtool.emit.emitter import Emitter, Replacement
from onnx_kvtool.ops.legality import Fit

__all__ = [
    "can_relabel",
    "copy_metadata",
    "put_in_place",
    "relabel",
    "remove_unused",
    "replace_node",
]


def relabel(node: ir.Node, fitted: Fit, target: int, folder: Folder) -> bool:
    """Give a node the form of `target`, in place.

    Args:
        node: A node that fits `target` (`fitted` has no problems).
        fitted: The answer of `ops.legality.fit`.
        target: The opset of the new form.
        folder: Knows the values of inputs that become attributes.

    Returns:
        False, with the node unchanged, when an input that must become an attribute is not
        constant, or is empty where an attribute cannot say so.
    """
    constants = _constants(node, fitted, folder)
    if constants is None:
        return False
    for name in fitted.drop:
        del node.attributes[name]
    for name, value in fitted.add.items():
        node.attributes[name] = ir.convenience.convert_attribute(name, value)
    for index, name in fitted.as_attribute:
        freed = node.inputs[index]
        node.replace_input_with(index, None)
        if freed is not None:
            remove_unused(freed)
        if constants[name]:  # for a reduction, no axes mean all axes, as an absent attribute does
            node.attributes[name] = ir.AttrInt64s(name, constants[name])
    last = len(node.inputs)
    while last and node.inputs[last - 1] is None:
        last -= 1
    if last < len(node.inputs):
        node.resize_inputs(last)
    node.version = target
    return True


def can_relabel(node: ir.Node, fitted: Fit, folder: Folder) -> bool:
    """Return whether `relabel` would return true; the node is not changed."""
    return _constants(node, fitted, folder) is not None


def _constants(node: ir.Node, fitted: Fit, folder: Folder) -> dict[str, tuple[int, ...]] | None:
    """Return the inputs that become attributes; None when one of them cannot."""
    constants: dict[str, tuple[int, ...]] = {}
    for index, name in fitted.as_attribute:
        numbers = folder.integers(node.inputs[index])
        if numbers is None:
            return None
        constants[name] = tuple(int(n) for n in numbers.ravel())
        if not constants[name] and not node.op_type.startswith("Reduce"):
            return None  # an empty attribute reads like an absent one, which means another thing
    return constants


def remove_unused(constant: ir.Value) -> None:
    """Remove a constant that a node no longer reads, unless others do or it is an output."""
    if constant.uses() or constant.is_graph_output() or constant.graph is None:
        return
    producer = constant.producer()
    if producer is not None:
        if producer.op_type == "Constant":
            constant.graph.remove(producer)
    elif not constant.is_graph_input() and constant.name is not None:
        del constant.graph.initializers[constant.name]


def replace_node(node: ir.Node, em: Emitter, replacement: Replacement) -> list[ir.Node]:
    """Put the emitted nodes in the place of `node`, in place; nothing can be refused any more.

    Each output takes the name of the one it replaces, so that graph outputs keep theirs, and the
    new nodes take the node's metadata.

    Args:
        node: The node; it is removed from its graph.
        em: Holds the new nodes; it is committed.
        replacement: What takes the place of the outputs.

    Returns:
        The new nodes, as they now stand in the graph.
    """
    graph = node.graph
    assert graph is not None
    old, new = [], []
    produced = {value for emitted in em.nodes for value in emitted.outputs}
    for output, value in zip(node.outputs, replacement.outputs, strict=True):
        if value is None:
            continue
        old.append(output)
        if value in produced and value not in new:
            new.append(value)
            continue
        # An output takes the name of the one it replaces; a value that has another name already
        # keeps it behind an Identity.
        copied = em.op("Identity", value, dtype=value.dtype or ir.DataType.UNDEFINED)
        copied.type = output.type
        new.append(copied)
    nodes = em.commit()
    for emitted in nodes:
        emitted.metadata_props.update(node.metadata_props)
    put_in_place(node, nodes, old, new)
    return nodes


def put_in_place(
    node: ir.Node, nodes: Sequence[ir.Node], old: Sequence[ir.Value], new: Sequence[ir.Value]
) -> None:
    """Replace a node of a graph by `nodes`, and each value of `old` by that of `new`.

    A new value gets name, type, shape and constant value of the one that it replaces, as far as
    that has them.
    """
    graph = node.graph
    assert graph is not None
    for before, value in zip(old, new, strict=True):
        value.type = before.type or value.type
        value.shape = value.shape if before.shape is None else before.shape
        value.const_value = value.const_value if before.const_value is None else before.const_value
        value.name = value.name if before.name is None else before.name
    for before, value in zip(old, new, strict=True):
        supersede(before, value)
    graph.insert_after(node, nodes)
    remove_node(node)


def copy_metadata(node: ir.Node, emitted: Sequence[ir.Node]) -> None:
    """Make new nodes known by what the node was known by whose place they took, in place.

    The node that computes the first output takes the name, the documentation and the device
    configurations; each output takes documentation and metadata of the one it replaces. A value
    whose element type is unknown declares no type: a file has no form for one without.

    Args:
        node: The node that was replaced; it no longer stands in a graph.
        emitted: What replaced it; outputs have the names of those they replace.
    """
    for value in _values(emitted):
        if value.dtype == ir.DataType.UNDEFINED:
            value.type = None
    producers = {output.name: output for new in emitted for output in new.outputs if output.name}
    for old in node.outputs:
        output = producers.get(old.name) if old.name else None
        if output is None:
            continue
        output.doc_string = old.doc_string
        output.metadata_props.update(old.metadata_props)
    found = (producers.get(output.name) for output in node.outputs if output.name)
    first = next((output for output in found if output is not None), None)
    producer = None if first is None else first.producer()
    if producer is None:
        return
    producer.name = node.name or producer.name
    producer.doc_string = node.doc_string
    producer.device_configurations = node.device_configurations


def _values(emitted: Sequence[ir.Node]) -> Iterator[ir.Value]:
    for node in emitted:
        yield from node.outputs
        for _, body in subgraphs(node):
            yield from _values(tuple(body))
