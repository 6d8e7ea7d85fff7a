"""Inputs and outputs of element types that the target lacks, told once for each type."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.quantity import counted
from onnx_kvtool.core.walk import graph_path
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.rewrite.engine.dtypes import takes
from onnx_kvtool.rewrite.lowering.packed import CARRIERS

__all__ = ["missing_at_border"]

_YOUNG = (*CARRIERS, ir.DataType.BFLOAT16)


def missing_at_border(model: ir.Model, source: int, target: int) -> list[Diagnostic]:
    """Return an error for each type of an input or output that no operator takes at `target`.

    Inputs and outputs keep their types, and whatever else is wrong follows from this or shows at
    the opset that has them. Values that only operators of other domains touch are not judged.

    Args:
        model: The model.
        source: Its opset, the highest that is named as the lowest one that works.
        target: The opset that it comes to.
    """
    found: dict[ir.DataType, list[ir.Value]] = {}
    for value in dict.fromkeys((*model.graph.inputs, *model.graph.outputs)):
        dtype = value.dtype
        if dtype in _YOUNG and not takes("Cast", 0, dtype, target) and _touching(value):
            found.setdefault(dtype, []).append(value)
    return [_error(model, dtype, values, source, target) for dtype, values in found.items()]


def _touching(value: ir.Value) -> list[ir.Node]:
    """Return the nodes of the default domain that make or read a value."""
    producer = value.producer()
    nodes = [use.node for use in value.uses()] + ([] if producer is None else [producer])
    return [node for node in nodes if is_standard(node)]


def _error(
    model: ir.Model, dtype: ir.DataType, values: list[ir.Value], source: int, target: int
) -> Diagnostic:
    higher = range(target + 1, source + 1)
    lowest = next((opset for opset in higher if takes("Cast", 0, dtype, opset)), None)
    name, more = values[0].name, len(values) - 1
    if more:
        others = counted(more, "other input or output", "other inputs and outputs")
        text = f"`{name}` and {others} are of type {dtype.name}, which opset {target} lacks"
    else:
        text = f"`{name}` is of type {dtype.name}, which opset {target} lacks"
    return Diagnostic(
        "element-type",
        "error",
        _place(model.graph, values[0]),
        text,
        "inputs and outputs keep their types: choose a higher opset, or export the model with "
        "another type",
        lowest,
    )


def _place(graph: ir.Graph, value: ir.Value) -> Location:
    touching = _touching(value)
    for index, node in enumerate(graph):
        if any(node is other for other in touching):
            return Location.of(graph_path(graph.name), node, index, value.name)
    return Location(graph_path(graph.name), value=value.name)
