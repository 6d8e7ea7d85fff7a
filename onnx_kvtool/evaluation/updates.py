"""Nodes that write into a value, and that value before and after."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.words import unknown_name
from onnx_kvtool.evaluation.loop import Outcome
from onnx_kvtool.evaluation.report import Update
from onnx_kvtool.ops.schema import op_facts
from onnx_kvtool.ops.traits import Trait, traits

__all__ = ["find_node", "updated_input", "updates_of"]


def find_node(model: ir.Model, name: str) -> tuple[int, ir.Node]:
    """Return a node of the main graph with its index.

    Args:
        model: The model.
        name: Name of the node, or `#3` for the fourth one.

    Raises:
        UsageError: If there is none, or several have the name.
    """
    nodes = list(enumerate(model.graph))
    found = [(index, node) for index, node in nodes if node.name == name]
    if not found and name.startswith("#") and name[1:].isdecimal():
        found = [(index, node) for index, node in nodes if index == int(name[1:])]
    if not found:
        known = [node.name for _, node in nodes if node.name]
        raise unknown_name(f"the main graph has no node `{name}`", name, known)
    if len(found) > 1:
        places = ", ".join(f"`#{index}`" for index, _ in found)
        raise UsageError(
            f"{len(found)} nodes are called `{name}`", help=f"name one by its place: {places}"
        )
    return found[0]


def updated_input(model: ir.Model, name: str) -> list[str]:
    """Return the name of the value that a node writes into; none if it is no such node."""
    _, node = find_node(model, name)
    if Trait.UPDATES not in traits(node) or not node.inputs or not node.outputs:
        return []
    opset = model.opset_imports.get("")
    if opset is None or op_facts(node.op_type, opset) is None:
        return []
    past = node.inputs[0]
    return [] if past is None or not past.name else [past.name]


def updates_of(model: ir.Model, name: str, outcome: Outcome) -> Iterator[Update]:
    """Yield what a node has written into, before and after, if it is a node that does so."""
    _, node = find_node(model, name)
    present = node.outputs[0].name if node.outputs else None
    for past in updated_input(model, name):
        old, new = outcome.values.get(past), outcome.values.get(present or "")
        if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
            yield Update.of(past, present or "", old, new)
