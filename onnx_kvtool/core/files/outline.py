"""The names in a model file, read without loading the model or importing onnx.

For the completion of words in a shell, where a tenth of a second is long. Weights are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap

from onnx_kvtool.core.files.wire import fields

__all__ = ["Outline", "outline"]

# Numbers of fields in onnx.proto.
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INPUT = 1, 11
_NODE_OUTPUT, _NODE_NAME = 2, 3
_VALUE_NAME, _VALUE_TYPE = 1, 2
_TYPE_TENSOR, _TENSOR_SHAPE, _SHAPE_DIM, _DIM_PARAM = 1, 2, 1, 2


@dataclass(frozen=True, slots=True)
class Outline:
    """Names of the main graph, each in the order of the file.

    Attributes:
        inputs: Names of the graph inputs.
        values: Names of the inputs and of what the nodes make.
        nodes: Names of the nodes that have one.
        dims: Names of the dimensions of the inputs.
    """

    inputs: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    dims: list[str] = field(default_factory=list)


def outline(path: str) -> Outline:
    """Return the names in a model file, as far as it can be read; none where it cannot."""
    found = Outline()
    try:
        with open(path, "rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            for start, end in _inner(data, 0, len(data), (_MODEL_GRAPH,)):
                _graph(data, start, end, found)
    except (OSError, ValueError):
        pass  # whoever presses a key learns nothing from an error
    return found


def _graph(data: mmap, start: int, end: int, found: Outline) -> None:
    made: list[str] = []
    for number, first, last in fields(data, start, end):
        if number == _GRAPH_NODE:
            for inner, one, other in fields(data, first, last):
                if inner == _NODE_OUTPUT and one < other:
                    made.append(_text(data, one, other))
                elif inner == _NODE_NAME and one < other:
                    found.nodes.append(_text(data, one, other))
        elif number == _GRAPH_INPUT:
            names = [_text(data, *place) for place in _inner(data, first, last, (_VALUE_NAME,))]
            found.inputs.extend(names[-1:])
            found.dims.extend(name for name in _dims(data, first, last) if name not in found.dims)
    found.values.extend((*found.inputs, *made))


def _dims(data: mmap, start: int, end: int) -> Iterator[str]:
    way = (_VALUE_TYPE, _TYPE_TENSOR, _TENSOR_SHAPE, _SHAPE_DIM, _DIM_PARAM)
    for first, last in _inner(data, start, end, way):
        yield from re.findall(r"[^\W\d]\w*", _text(data, first, last))


def _inner(data: mmap, start: int, end: int, way: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Yield start and end of each field that is reached through fields of these numbers."""
    for number, first, last in fields(data, start, end):
        if number == way[0]:
            if len(way) == 1:
                yield first, last
            else:
                yield from _inner(data, first, last, way[1:])


def _text(data: mmap, start: int, end: int) -> str:
    return data[start:end].decode("utf-8", "replace")
