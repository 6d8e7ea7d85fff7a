"""Names that stand for one value each, in a message for onnx's inference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import onnx

from onnx_kvtool.guard.fault import Fault
from onnx_kvtool.guard.small_constants import HOLDERS, Contents
from onnx_kvtool.model_io.forms import bodies, every_holder

FAULT = Fault(
    library="onnx",
    seen="1.23.2",
    what="keeps the elements of integer values by name alone while it infers, so that those of one"
    " branch are taken for those of another, or the second is said to exist already",
    instead="gives each value in a body its own name while inference runs",
)


def infer_with_distinct_names(
    contents: Contents, infer: Callable[[Contents], onnx.ModelProto]
) -> onnx.ModelProto:
    """Return `infer(contents)`, every name in bodies standing for one value while it runs.

    The branches of an If, and bodies beside each other, may name their values alike. Inference of
    onnx 1.23.2 keeps what it knows of the elements of integer values by name alone: it complains
    that the second one "already exists", or takes the elements of the first one for its own.
    """
    originals = _make_distinct(contents.message)
    if not originals:
        return infer(contents)
    try:
        result = infer(contents)
    finally:
        _rename_everywhere(contents.message, originals)
    _rename_everywhere(result, originals)
    return result


def _make_distinct(message: onnx.ModelProto) -> dict[str, str]:
    """Rename what bodies define and something else defines too; return the old names by the new."""
    roots = [message.graph, *message.functions]
    taken = {name for holder in every_holder(message, HOLDERS) for name in _defined(holder)}
    seen = {name for root in roots for name in _defined(root)}
    originals: dict[str, str] = {}
    names: dict[str, str] = {}  # of the values that can be read where the walk is

    def fresh(name: str) -> str:
        number = len(originals)
        while (new := f"{name}~{number}") in taken:
            number += 1
        taken.add(new)
        originals[new] = name
        return new

    def visit(holder: onnx.GraphProto | onnx.FunctionProto) -> None:
        for body in _inner(holder):
            defined = _defined(body)
            hidden = {name: names.pop(name, None) for name in defined}
            names.update((name, fresh(name)) for name in defined if name in seen)
            seen.update(defined)
            _rename(body, names)
            visit(body)
            for name, outer in hidden.items():
                names.pop(name, None)
                if outer is not None:
                    names[name] = outer

    for root in roots:
        visit(root)
    return originals


def _defined(holder: onnx.GraphProto | onnx.FunctionProto) -> dict[str, None]:
    """Return the names of the values that a graph or a function itself defines, in order."""
    found: dict[str, None] = {}
    if isinstance(holder, onnx.FunctionProto):
        found.update(dict.fromkeys(holder.input))
    else:
        found.update(dict.fromkeys(value.name for value in holder.input))
        found.update(dict.fromkeys(tensor.name for tensor in holder.initializer))
        found.update(dict.fromkeys(tensor.values.name for tensor in holder.sparse_initializer))
    for node in holder.node:
        found.update(dict.fromkeys(node.output))
    found.pop("", None)
    return found


def _rename_everywhere(message: onnx.ModelProto, names: Mapping[str, str]) -> None:
    inner = every_holder(message, HOLDERS)[1 + len(message.functions) :]
    for graph in inner:
        assert isinstance(graph, onnx.GraphProto)
        _rename(graph, names)


def _inner(holder: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.GraphProto]:
    for node in holder.node:
        if node.op_type in HOLDERS:
            yield from bodies(node)


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename the values that a graph itself defines and reads, in place."""
    if not names:
        return
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        if value.name in names:
            value.name = names[value.name]
    for tensor in graph.sparse_initializer:
        if tensor.values.name in names:
            tensor.values.name = names[tensor.values.name]
    for node in graph.node:
        for slots in (node.input, node.output):
            for index, name in enumerate(slots):
                if name in names:
                    slots[index] = names[name]
