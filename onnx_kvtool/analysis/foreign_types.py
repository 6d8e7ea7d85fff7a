"""Which values of a model have an element type that a release does not have."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.walk import graphs
from onnx_kvtool.targets.release import Release

__all__ = ["foreign_types"]


def foreign_types(model: ir.Model, release: Release) -> Iterator[tuple[Location, str]]:
    """Yield the first value of each element type that a release lacks, and what is wrong.

    Args:
        model: The model; a value whose type is not known is passed over.
        release: The release; one of which no types are known has all.
    """
    known, seen = release.types, set[ir.DataType]()
    for path, graph in graphs(model) if known is not None else ():
        inner = [output for node in graph for output in node.outputs]
        values = (*graph.inputs, *graph.initializers.values(), *inner)
        made = ((_cast_to(output), output) for output in inner)
        for dtype, value in (*((value.dtype, value) for value in values), *made):
            if dtype is None or dtype == ir.DataType.UNDEFINED or dtype in seen:
                continue
            if known is not None and dtype.name.lower() not in known:
                seen.add(dtype)
                place = Location(path, value=value.name)
                yield place, f"has no {dtype.name}, the type of `{value.name}`"


def _cast_to(output: ir.Value) -> ir.DataType | None:
    """Return the type that a Cast says it gives; None for any other node."""
    node = output.producer()
    if node is None or node.op_type != "Cast" or node.domain not in DEFAULT_DOMAINS:
        return None
    to = node.attributes.get("to")
    return None if to is None or to.is_ref() else ir.DataType(to.as_int())
