"""Nodes in model-local functions, whose types are known at their calls only."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import function_path, nodes
from onnx_kvtool.emit.emitter import Names
from onnx_kvtool.rewrite.engine.inline import inline_functions

_TAG = "onnx_kvtool.raise.place"
_BETWEEN = "\x1f"

FunctionId = tuple[str, str, str]


def functions_with(model: ir.Model, is_wanted: Callable[[ir.Node], bool]) -> dict[str, FunctionId]:
    """Return the functions that hold a wanted node, by the path of their graph."""
    return {
        function_path(*key): key
        for key, function in model.functions.items()
        if any(is_wanted(node) for node in function.all_nodes())
    }


def tag_nodes(model: ir.Model, is_wanted: Callable[[ir.Node], bool]) -> None:
    """Note at each wanted node of a function where it stands, in place; copies keep the note."""
    for path, index, node in list(nodes(model)):
        if "::" in path and is_wanted(node):
            place = Location.of(path, node, index)
            parts = (path, place.node or "", str(index), place.op or "")
            node.metadata_props[_TAG] = _BETWEEN.join(parts)


def place_of(node: ir.Node) -> Location | None:
    """Return the place that was noted at a node, or at the one that it is a copy of."""
    tag = node.metadata_props.get(_TAG)
    if tag is None:
        return None
    path, name, index, op = tag.split(_BETWEEN)
    return Location(path, name or None, int(index), op)


def remove_tags(model: ir.Model) -> None:
    """Remove all notes, in place."""
    for _, _, node in nodes(model):
        node.metadata_props.pop(_TAG, None)


def inline_tagged(
    model: ir.Model, keys: Iterable[FunctionId], held: str = "an update"
) -> list[str]:
    """Replace the calls of some functions by their bodies, in place.

    Returns:
        Remarks for people: which functions are gone.

    Raises:
        Refusal: If a function cannot be inlined.
    """
    chosen = set(keys)
    before = dict(model.functions)
    inline_functions(model, lambda f: f.identifier() in chosen, Names(model))
    gone = [function_path(*key) for key in before if key not in model.functions]
    return [f"function `{name}` is inlined, because it contains {held}" for name in gone]
