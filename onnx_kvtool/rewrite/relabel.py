"""Carrying out what the comparison of two schema versions asks of a node."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.analysis.constants import Folder
from onnx_kvtool.ops.legality import Fit

__all__ = ["can_relabel", "relabel"]


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
            _remove_unused(freed)
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


def _remove_unused(constant: ir.Value) -> None:
    """Remove a constant that became an attribute, unless it has another reader or is an output."""
    if constant.uses() or constant.is_graph_output() or constant.graph is None:
        return
    producer = constant.producer()
    if producer is not None:
        if producer.op_type == "Constant":
            constant.graph.remove(producer)
    elif not constant.is_graph_input() and constant.name is not None:
        del constant.graph.initializers[constant.name]
