"""Nodes in model-local functions, whose types are known at their calls only."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import function_path, nodes
from onnx_kvtool.emit.emitter import Names, Refusal
from onnx_kvtool.model_io.model import clone
from onnx_kvtool.rewrite.engine.inline import inline_functions
from onnx_kvtool.rewrite.raise_report import Unraised

_TAG = "onnx_kvtool.raise.place"
_BETWEEN = "\x1f"

FunctionId = tuple[str, str, str]


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


def open_functions(
    model: ir.Model,
    is_wanted: Callable[[ir.Node], bool],
    prove: Callable[[ir.Model], tuple[Iterable[Location], Iterable[Unraised]]],
    what: str,
    notes: list[str],
) -> list[Unraised]:
    """Inline the functions with a node that is proven at one of their calls, in place.

    Which functions these are is found on a copy, so that all others stay. Wanted nodes keep a note
    of where they stood.

    Args:
        model: The model.
        is_wanted: Returns whether a node is a candidate.
        prove: Returns of a model where nodes are proven, and the refusals of others.
        what: What the functions contain, as words.
        notes: Gets what was inlined, or why nothing can be.

    Returns:
        The candidates in functions that stay, each once, with the reason at the first call.
    """
    holding = {
        function_path(*key): key
        for key, function in model.functions.items()
        if any(is_wanted(node) for node in function.all_nodes())
    }
    if not holding:
        return []
    copy = clone(model)
    tag_nodes(copy, is_wanted)
    try:
        inline_tagged(copy, holding.values(), what)
    except Refusal as refusal:
        notes.append(f"functions that contain {what} stay unchanged: {refusal.message}")
        return []
    proven, refused = prove(copy)
    roots = {place.graph.split("/")[0] for place in proven}
    tag_nodes(model, is_wanted)
    opened = [key for path, key in holding.items() if path in roots]
    if opened:
        notes += inline_tagged(model, opened, what)
    stay: dict[Location, Unraised] = {}
    for one in refused:
        root = one.location.graph.split("/")[0]
        if root in holding and root not in roots:
            stay.setdefault(one.location, one)
    return list(stay.values())


def inline_tagged(model: ir.Model, keys: Iterable[FunctionId], what: str) -> list[str]:
    """Replace the calls of some functions by their bodies, in place; say which ones are gone.

    Raises:
        Refusal: If a function cannot be inlined.
    """
    chosen = set(keys)
    before = dict(model.functions)
    inline_functions(model, lambda f: f.identifier() in chosen, Names(model))
    gone = [function_path(*key) for key in before if key not in model.functions]
    return [f"function `{name}` is inlined, because it contains {what}" for name in gone]
