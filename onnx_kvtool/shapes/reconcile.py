"""One output: the facts from its node, from onnx and from the file, compared and joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.words import shape_text
from onnx_kvtool.model_io.forms import VerbatimType
from onnx_kvtool.ops.schema import type_name
from onnx_kvtool.shapes.bodies import Outcome
from onnx_kvtool.shapes.infer import innermost, read_type
from onnx_kvtool.symbolic.dimensions import HEAVIEST, Shape, is_invented, shape_words
from onnx_kvtool.symbolic.expressions import Expr, Extent, integer
from onnx_kvtool.symbolic.knowledge import Conflict, Knowledge, Lost
from onnx_kvtool.symbolic.rules.site import Unknown

if TYPE_CHECKING:
    from onnx_kvtool.shapes.forward import Forward, GraphContext


_LONGEST = 8
"""Most values in a chain; `...` stands for earlier ones."""


def chain(knowledge: Knowledge, value: ir.Value, size: Expr | None) -> tuple[str, ...]:
    """Return the values on the way to `value`, the first one first, each with node and shape.

    Args:
        knowledge: Shapes so far.
        value: The last one.
        size: The size whose way is followed; None for the shape as a whole.
    """
    links = [_link(knowledge, value)]
    while (node := value.producer()) is not None:
        before = _before(knowledge, node, size)
        if before is None:
            break
        if len(links) == _LONGEST:
            links.append("...")
            break
        links.append(_link(knowledge, before))
        value = before
    return tuple(reversed(links))


def _before(knowledge: Knowledge, node: ir.Node, size: Expr | None) -> ir.Value | None:
    """Return the input with this size, otherwise the first one with a known shape."""
    inputs = [v for v in node.inputs if v is not None and v in knowledge.shapes]
    for value in inputs:
        if size is not None and size in knowledge.shapes[value]:
            return value
    return inputs[0] if inputs else None


def _link(knowledge: Knowledge, value: ir.Value) -> str:
    shape = shape_words(knowledge.shapes.get(value))
    text = "" if shape is None else shape_text(shape)
    node = value.producer()
    if node is None:
        return f"`{value.name}` {text}".rstrip()
    return f"{node.op_type} `{node.name or value.name}` gives `{value.name}` {text}".rstrip()


_LARGEST = 2**63 - 1
"""Largest size in a file, a signed integer of 64 bits."""


def reconcile(
    run: Forward, value: ir.Value, outcome: Outcome, place: Location, context: GraphContext
) -> None:
    """Add the type and shape of an output to the knowledge of a run, and compare with the file.

    Facts that follow from the inputs come first. Declarations of the file fill the gaps.
    """
    if not value.name:
        return
    place = Location(place.graph, place.node, place.index, place.op, value.name)
    if not context.in_function:
        run.values[value] = place
    told_type, told = _told(run, value, context, outcome)
    type_ = outcome.type or told_type
    knowledge = run.knowledge
    shape = outcome.shape
    if isinstance(shape, Unknown) and told is not None and None not in told:
        shape = tuple(size for size in told if size is not None)
    elif isinstance(shape, Unknown) and told is not None:
        lost = _lost(run, shape, place)
        shape = tuple(
            knowledge.unknown_size(value, axis, lost) if size is None else size
            for axis, size in enumerate(told)
        )
    elif not isinstance(shape, Unknown) and not run.is_complete(shape):
        shape = _filled(run, value, shape, told, place)
    is_declared = not context.in_function
    declared_type = value.type if is_declared else None
    # None first, as most values declare no type: a protocol takes a microsecond to deny it.
    if declared_type is not None and (
        isinstance(declared_type, VerbatimType) or _says_nothing(declared_type)
    ):
        declared_type = None
    _settle_type(run, value, type_, declared_type, place)
    final = knowledge.types.get(value)
    declared = run.declared(value) if is_declared else None
    is_holder = final is not None and not isinstance(final, ir.TensorType)
    if is_holder and isinstance(shape, Unknown) and declared is None:
        return  # elements of a sequence may differ in rank
    if not isinstance(shape, Unknown):
        shape = _possible(run, value, shape, place)
    _settle_shape(run, value, shape, declared, place, context)


def _possible(run: Forward, value: ir.Value, shape: Shape, place: Location) -> Shape:
    """Return a shape without impossible sizes, which are reported."""
    if all(size.number is None or 0 <= size.number <= _LARGEST for size in shape):
        return shape
    sizes = list(shape)
    found = shape_words(shape) or ()
    here = (place.graph, place.index)
    is_known = any((c.location.graph, c.location.index) == here for c in run.knowledge.conflicts)
    for axis, size in enumerate(shape):
        if size.number is not None and not 0 <= size.number <= _LARGEST:
            lost = Lost(place, "too-large", "no tensor can have that size")
            sizes[axis] = run.knowledge.unknown_size(value, axis, lost)
            if is_known:
                continue
            message = (
                f"`{value.name}` is {shape_text(found)}: no axis can have {size.number} elements"
            )
            conflict = Conflict("impossible-size", place, "0 to 2**63 - 1", found, message)
            run.knowledge.conflicts.append(conflict)
    return tuple(sizes)


def _says_nothing(type_: ir.TypeProtocol) -> bool:
    return isinstance(type_, ir.TensorType) and type_.dtype == ir.DataType.UNDEFINED


def _told(
    run: Forward, value: ir.Value, context: GraphContext, outcome: Outcome
) -> tuple[ir.TypeProtocol | None, Sequence[Expr | None] | None]:
    """Return the type and sizes from onnx's inference of the whole model, if the node has gaps."""
    complete = run.is_complete(outcome.shape)
    if not context.is_main or (complete and outcome.type is not None):
        return None, None
    found = run.told.get(value.name or "")
    if found is None or not found.WhichOneof("value"):
        return None, None
    type_ = read_type(found)
    tensor = innermost(found)
    if complete or tensor is None or not tensor.HasField("shape"):
        return type_, None
    # Some of onnx's rules take an unknown size for 0, and continue with it.
    return type_, [
        integer(dim.dim_value)
        if dim.dim_value > 0
        else None
        if not dim.dim_param or is_invented(dim.dim_param)
        else run.size(dim.dim_param)
        for dim in tensor.shape.dim
    ]


def _filled(
    run: Forward,
    value: ir.Value,
    shape: Shape,
    told: Sequence[Expr | None] | None,
    place: Location,
) -> Shape:
    """Return a shape with sizes from onnx's inference for those that are unknown here."""
    sizes = list(shape)
    for axis, size in enumerate(shape):
        atom = size.atom
        here = isinstance(atom, Extent) and atom.value is value
        other = told[axis] if here and told is not None and len(told) == len(shape) else None
        if other is not None:
            sizes[axis] = other
        elif size.weight > HEAVIEST:
            lost = Lost(place, "too-large", "its expression is too large")
            sizes[axis] = run.knowledge.unknown_size(value, axis, lost)
    return tuple(sizes)


def _lost(run: Forward, unknown: Unknown, place: Location) -> Lost:
    """Return why an output is unknown: the reason of an unknown input, or that of the node."""
    cause = unknown.cause
    if cause is None:
        return Lost(place, unknown.code, unknown.why)
    found = run.knowledge.lost.get(cause)
    if found is not None:
        return found
    return Lost(place, "unknown-input", f"nothing is known of `{cause.name}`")


def _settle_type(
    run: Forward,
    value: ir.Value,
    inferred: ir.TypeProtocol | None,
    declared: ir.TypeProtocol | None,
    place: Location,
) -> None:
    knowledge = run.knowledge
    type_ = inferred if inferred is not None and not _says_nothing(inferred) else declared
    if type_ is None:
        return
    knowledge.types[value] = type_
    if declared is None:
        value.type = type_
    elif type(declared) is not type(type_) or declared != type_:
        given, found = _type_text(declared), _type_text(type_)
        if given != found:
            message = f"`{value.name}` is declared as {given}, and is {found}"
            knowledge.conflicts.append(
                Conflict("type", place, given, found, message, chain(knowledge, value, None))
            )


def _type_text(type_: ir.TypeProtocol) -> str:
    return type_name(ir.Value(name="", type=type_)) or str(type_)


def _settle_shape(
    run: Forward,
    value: ir.Value,
    shape: Shape | Unknown,
    declared: Sequence[Expr | None] | None,
    place: Location,
    context: GraphContext,
) -> None:
    knowledge = run.knowledge
    if isinstance(shape, Unknown):
        lost = _lost(run, shape, place)
        if declared is None:
            knowledge.lost[value] = lost
            return
        shape = tuple(knowledge.unknown_size(value, axis, lost) for axis, _ in enumerate(declared))
    if declared is not None:
        shape = _compared(run, value, shape, declared, place, context)
    is_bounded = bool(knowledge.bounds.nonnegative)
    knowledge.shapes[value] = tuple(map(knowledge.within, shape)) if is_bounded else shape


def _compared(
    run: Forward,
    value: ir.Value,
    shape: Shape,
    declared: Sequence[Expr | None],
    place: Location,
    context: GraphContext,
) -> Shape:
    """Return the shape with gaps filled from the file; report contradictions."""
    knowledge = run.knowledge
    if len(declared) != len(shape):
        _report(run, value, shape, None, place)
        return shape
    sizes = list(shape)
    wrong: int | None = None
    for axis, (size, other) in enumerate(zip(shape, declared, strict=True)):
        if other is None or size == other:
            continue
        if not run.is_known(size):
            if run.is_known(other):
                sizes[axis] = other
            continue
        if knowledge.equalities.differ(size, other):
            wrong = axis if wrong is None else wrong
        elif not context.conditional and not knowledge.equalities.same(size, other):
            # What a body declares holds where it runs: optimum gives an empty result the names of
            # the sizes that it has in the other branch.
            knowledge.equalities.note(other, size, place, "declared and inferred size")
    if wrong is not None:
        _report(run, value, shape, wrong, place)
    return tuple(sizes)


def _report(
    run: Forward,
    value: ir.Value,
    shape: Shape,
    axis: int | None,
    place: Location,
) -> None:
    given = tuple(d if isinstance(d, int) else d.value for d in value.shape or ())
    found = shape_words(tuple(run.knowledge.equalities.resolved(size) for size in shape)) or ()
    at = "the ranks differ" if axis is None else f"axis {axis} differs"
    message = f"`{value.name}` is declared as {shape_text(given)}, and is {shape_text(found)}: {at}"
    size = None if axis is None else shape[axis]
    run.knowledge.shapes[value] = shape
    links = chain(run.knowledge, value, size)
    run.knowledge.conflicts.append(Conflict("shape", place, given, found, message, links))
