"""Whether a runtime may write an update into the buffer of the past, and if not, why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import InPlace
from onnx_kvtool.analysis.caches.routes import Frame, Program, Route
from onnx_kvtool.analysis.caches.updates import Link, Update
from onnx_kvtool.core.walk import is_output_of, read_values
from onnx_kvtool.core.words import shape_text
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.symbolic.dimensions import contradict, dims_of

_MOST_ABOVE = 64
"""Most nodes above the positions of an update that are looked through."""


def judge_in_place(
    program: Program,
    frame: Frame,
    update: Update,
    source: Route | None,
    target: Route | None,
) -> InPlace:
    """Return whether past and present of an update can share one buffer.

    It can when nothing but the update needs the old content: the past is an input of the model that
    reaches the update as it is and that no other node reads, the present is an output as it is, and
    both have one shape. Reading the shape of the past alone does no harm, nor does a node on whose
    result it depends where the update writes: it has read before.

    Args:
        program: The graphs of the model.
        frame: Where the node of the update is.
        update: What it does.
        source: Where the past comes from; None when there is none.
        target: The output that carries the present on; None when there is none.
    """
    reasons = _reasons(program, frame, update, source, target)
    reason = next(reasons, None)
    return InPlace(reason is None, reason)


def _reasons(
    program: Program,
    frame: Frame,
    update: Update,
    source: Route | None,
    target: Route | None,
) -> Iterator[str]:
    if source is None:
        yield "there is no past"
        return
    past = source.end.name or ""
    if not source.end.is_graph_input() or source.frame is not program.main:
        yield f"the past `{past}` is {source_in_words(source.end, _named)}, not a graph input"
    if (owner := program.owner(update.node)) is not None:
        yield f"the update is in a body of {_named(owner[0])}, which may run more or less than once"
    if source.link is not None:
        yield f"the past {_link(source.link)} before the update"
    elif update.kind == "tensor_scatter" and (
        update.mode is None or (update.axis is None and source.end.shape is not None)
    ):
        yield "the `TensorScatter` is not valid"
    if update.present is None:
        yield "the operator does not output the present"
    elif target is None:
        yield f"the present `{update.present.name}` is not a graph output"
    elif target.link is not None:
        yield f"the present {_link(target.link)} before it is the output `{target.end.name}`"
    if update.is_growing:
        yield "the present is longer than the past by the new rows"
    if update.copies is not None:
        yield update.copies
    if target is not None and not update.shares:
        yield from _different_shapes(source.end, target.end, exact=update.kind == "where")
    yield from _readers(program, frame, update, source)


def source_in_words(value: ir.Value, named: Callable[[ir.Node], str]) -> str:
    """Return the source of a value that is no graph input, as text; `named` formats a node."""
    node = value.producer()
    if node is not None:
        return "a constant" if node.op_type == "Constant" else f"computed by {named(node)}"
    return "an initializer" if value.is_initializer() else "an input of a body"


def _link(link: Link) -> str:
    name = _named(link.node)
    return {
        "same": f"goes through {name}",
        "view": f"goes through {name}",
        "cast": f"is cast by {name}",
        "moved": f"has its rows moved or cut by {name}",
        "updated": f"is also updated by {name}",
    }[link.how]


def _named(node: ir.Node) -> str:
    if node.name:
        return f"`{node.op_type}` node `{node.name}`"
    return f"{'an' if node.op_type[:1] in 'AEIOU' else 'a'} `{node.op_type}` node"


def _different_shapes(past: ir.Value, present: ir.Value, *, exact: bool) -> Iterator[str]:
    """Compare what the file declares; what it leaves open an operator other than Where ensures.

    An exporter may call one size by two names, and a name may be given for what is a number.
    """
    before, after = dims_of(past), dims_of(present)
    if before is None or after is None:
        if exact:
            yield "it is unknown whether past and present have one shape"
        return
    different = len(before) != len(after) or any(
        a != b if exact else contradict(a, b) for a, b in zip(before, after, strict=False)
    )
    if different:
        yield f"the declared shapes differ: {shape_text(before)} and {shape_text(after)}"


def _readers(program: Program, frame: Frame, update: Update, source: Route) -> Iterator[str]:
    """Return the other readers of the old content, through copies and function calls."""
    past = source.end
    stack, seen = [(past, source.frame)], {(id(past), id(source.frame))}
    while stack:
        value, here = stack.pop()
        if here is program.main and is_output_of(value, program.model.graph):
            yield f"the past `{past.name}` is an output itself"
        following = list(program.returned(value, here))
        for reader, index in value.uses():
            inner = program.enter(here, reader)
            if inner is not None and inner.function is not None:
                if index < len(inner.function.inputs):
                    following.append((inner.function.inputs[index], inner))
            elif Trait.SAME in traits(reader):
                following.append((reader.outputs[0], here))
            elif Trait.READS_SHAPE in traits(reader):
                continue
            elif not (reader is update.node and here is frame and index in update.reads):
                if here is frame and reads_before(reader, _positions(update)):
                    continue
                yield f"the past `{past.name}` is also read by {_named(reader)}"
        for place in following:
            key = id(place[0]), id(place[1])
            if key not in seen:
                seen.add(key)
                stack.append(place)


def reads_before(reader: ir.Node, positions: Iterable[ir.Value | None]) -> bool:
    """Return whether a node has to be done before it is known where an update writes.

    Args:
        reader: A node that reads the content of a past.
        positions: What says where the update writes. It is followed upwards a few nodes far.
    """
    pending = [value for value in positions if value is not None]
    seen: set[ir.Node] = set()
    while pending and len(seen) < _MOST_ABOVE:
        node = pending.pop().producer()
        if node is reader:
            return True
        if node is not None and node not in seen:
            seen.add(node)
            pending += read_values(node)
    return False


def _positions(update: Update) -> Iterator[ir.Value | None]:
    """Yield the inputs of an update that are neither the past nor new rows."""
    for index, value in enumerate(update.node.inputs):
        if index not in update.reads and value is not update.update:
            yield value
