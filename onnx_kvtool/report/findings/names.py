"""Places in a model in one word, for formats that know lines of text alone."""

from __future__ import annotations

from onnx_kvtool.core.diagnostic import Location

__all__ = ["qualified_name"]


def qualified_name(place: Location) -> str:
    """Return `graph:node` or `graph:value`, as far as the place goes; "" for the whole model."""
    parts = (place.graph, place.node_label or place.value)
    return ":".join(part for part in parts if part)
