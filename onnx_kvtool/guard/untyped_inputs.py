"""Operators whose inference ends the process where the type of an input is unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx

from onnx_kvtool.guard.fault import Fault
from onnx_kvtool.guard.hiding import infer_hiding
from onnx_kvtool.guard.small_constants import Contents

FAULT = Fault(
    library="onnx",
    seen="1.23.2",
    what="ends the process where its inference meets a RegexFullMatch whose input has no type",
    instead="hides such a node from inference until its inputs have types",
)

CRASHING = frozenset({"RegexFullMatch"})
"""Observed with onnx 1.23.2, of all operators at opsets 13 and 24, each with one input untyped."""


def infer_past_untyped_inputs(
    contents: Contents, infer: Callable[[Contents], onnx.ModelProto]
) -> onnx.ModelProto:
    """Return `infer(contents)`, with nothing known of a node that would end the process.

    The inputs of such a node are looked at after a first inference without it. In a body or a
    function it stays unknown.
    """
    hidden = [node for node in contents.of(*CRASHING) if node.domain == ""]
    while hidden:
        result = infer_hiding(contents, infer, hidden)
        typed = set(_typed(result.graph))
        own = {id(node) for node in contents.message.graph.node}
        left = [n for n in hidden if id(n) not in own or not typed.issuperset(n.input)]
        if len(left) == len(hidden):
            return result
        hidden = left
    return infer(contents)


def _typed(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of the values of a graph whose type is known."""
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.WhichOneof("value"):
            yield value.name
    for tensor in graph.initializer:
        yield tensor.name
