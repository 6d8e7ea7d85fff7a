"""One output: the facts from its node, from onnx and from the file, compared and joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.words import shape_text
from onnx_kvtool.model_io.verbatim import VerbatimType
from onnx_kvtool.ops.schema import type_name
from onnx_kvtool.shapes.annotations import innermost, read_type
from onnx_kvtool.shapes.bodies import Outcome
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
    alike = (value for value in inputs if size in knowledge.shapes[value])
    return next(alike, inputs[0] if inputs else None)


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
    if value.name:
        _Output(run, value, place.of_value(value), context).settle(outcome)


class _Output(NamedTuple):
    """An output that a run has come to, and its place."""

    run: Forward
    value: ir.Value
    place: Location
    context: GraphContext

    @property
    def knowledge(self) -> Knowledge:
        return self.run.knowledge

    def settle(self, outcome: Outcome) -> None:
        run, value, knowledge = self.run, self.value, self.knowledge
        is_declared = not self.context.in_function
        if is_declared:
            run.values[value] = self.place
        told_type, told = self._told(outcome)
        shape = outcome.shape
        if isinstance(shape, Unknown):
            shape = shape if told is None else self._with_gaps(told, shape)
        elif not run.is_complete(shape):
            shape = self._filled(shape, told)
        declared_type = value.type if is_declared else None
        # None first, as most values declare no type: a protocol takes a microsecond to deny it.
        if declared_type is not None and (
            isinstance(declared_type, VerbatimType) or _says_nothing(declared_type)
        ):
            declared_type = None
        self._settle_type(outcome.type or told_type, declared_type)
        declared = run.declared(value) if is_declared else None
        if not isinstance(shape, Unknown):
            shape = self._possible(shape)
        elif declared is not None:
            shape = self._with_gaps([None] * len(declared), shape)
        else:
            # Elements of a sequence may differ in rank.
            if isinstance(knowledge.types.get(value), ir.TensorType | None):
                knowledge.lost[value] = self._lost(shape)
            return
        if declared is not None:
            shape = self._compared(shape, declared)
        is_bounded = bool(knowledge.bounds.nonnegative)
        knowledge.shapes[value] = tuple(map(knowledge.within, shape)) if is_bounded else shape

    def _told(
        self, outcome: Outcome
    ) -> tuple[ir.TypeProtocol | None, Sequence[Expr | None] | None]:
        """Return the type and sizes from onnx's inference of the model, if the node has gaps."""
        complete = self.run.is_complete(outcome.shape)
        if not self.context.is_main or (complete and outcome.type is not None):
            return None, None
        found = self.run.told.get(self.value.name or "")
        if found is None or not found.WhichOneof("value"):
            return None, None
        type_, tensor = read_type(found), innermost(found)
        if complete or tensor is None or not tensor.HasField("shape"):
            return type_, None
        # Some of onnx's rules take an unknown size for 0, and continue with it.
        return type_, [
            integer(dim.dim_value)
            if dim.dim_value > 0
            else None
            if not dim.dim_param or is_invented(dim.dim_param)
            else self.run.size(dim.dim_param)
            for dim in tensor.shape.dim
        ]

    def _lost(self, unknown: Unknown) -> Lost:
        """Return why it is unknown: the reason of an unknown input, or that of the node."""
        cause = unknown.cause
        if cause is None:
            return Lost(self.place, unknown.code, unknown.why)
        why = f"nothing is known of `{cause.name}`"
        return self.knowledge.lost.get(cause) or Lost(self.place, "unknown-input", why)

    def _with_gaps(self, sizes: Sequence[Expr | None], unknown: Unknown) -> Shape:
        """Return sizes of an output, unknown ones for None."""
        lost = self._lost(unknown)
        return tuple(
            self.knowledge.unknown_size(self.value, axis, lost) if size is None else size
            for axis, size in enumerate(sizes)
        )

    def _filled(self, shape: Shape, told: Sequence[Expr | None] | None) -> Shape:
        """Return a shape with sizes from onnx's inference for those that are unknown here."""
        sizes = list(shape)
        for axis, size in enumerate(shape):
            atom = size.atom
            here = isinstance(atom, Extent) and atom.value is self.value
            other = told[axis] if here and told is not None and len(told) == len(shape) else None
            if other is not None:
                sizes[axis] = other
            elif size.weight > HEAVIEST:
                lost = Lost(self.place, "too-large", "its expression is too large")
                sizes[axis] = self.knowledge.unknown_size(self.value, axis, lost)
        return tuple(sizes)

    def _possible(self, shape: Shape) -> Shape:
        """Return a shape without impossible sizes, which are reported."""
        wrong = [i for i, size in enumerate(shape) if not 0 <= (size.number or 0) <= _LARGEST]
        if not wrong:
            return shape
        sizes, found, conflicts = list(shape), shape_words(shape) or (), self.knowledge.conflicts
        here = (self.place.graph, self.place.index)
        is_known = any((c.location.graph, c.location.index) == here for c in conflicts)
        for axis in wrong:
            lost = Lost(self.place, "too-large", "no tensor can have that size")
            sizes[axis] = self.knowledge.unknown_size(self.value, axis, lost)
            if not is_known:
                what = f"`{self.value.name}` is {shape_text(found)}"
                message = f"{what}: no axis can have {shape[axis].number} elements"
                code, expected = "impossible-size", "0 to 2**63 - 1"
                conflicts.append(Conflict(code, self.place, expected, found, message))
        return tuple(sizes)

    def _settle_type(
        self, inferred: ir.TypeProtocol | None, declared: ir.TypeProtocol | None
    ) -> None:
        value, knowledge = self.value, self.knowledge
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
                links = chain(knowledge, value, None)
                knowledge.conflicts.append(
                    Conflict("type", self.place, given, found, message, links)
                )

    def _compared(self, shape: Shape, declared: Sequence[Expr | None]) -> Shape:
        """Return the shape with gaps filled from the file; report contradictions."""
        run, equalities = self.run, self.knowledge.equalities
        if len(declared) != len(shape):
            self._report(shape, None)
            return shape
        sizes = list(shape)
        wrong: list[int] = []
        for axis, (size, other) in enumerate(zip(shape, declared, strict=True)):
            if other is None or size == other:
                continue
            if not run.is_known(size):
                if run.is_known(other):
                    sizes[axis] = other
            elif equalities.differ(size, other):
                wrong.append(axis)
            elif not self.context.conditional and not equalities.same(size, other):
                # What a body declares holds where it runs: optimum gives an empty result the names
                # of the sizes that it has in the other branch.
                equalities.note(other, size, self.place, "declared and inferred size")
        if wrong:
            self._report(shape, wrong[0])
        return tuple(sizes)

    def _report(self, shape: Shape, axis: int | None) -> None:
        value, knowledge = self.value, self.knowledge
        given = tuple(d if isinstance(d, int) else d.value for d in value.shape or ())
        found = shape_words(tuple(map(knowledge.equalities.resolved, shape))) or ()
        at = "the ranks differ" if axis is None else f"axis {axis} differs"
        whole = f"declared as {shape_text(given)}, and is {shape_text(found)}"
        knowledge.shapes[value] = shape
        links = chain(knowledge, value, None if axis is None else shape[axis])
        message = f"`{value.name}` is {whole}: {at}"
        knowledge.conflicts.append(Conflict("shape", self.place, given, found, message, links))


def _says_nothing(type_: ir.TypeProtocol) -> bool:
    return isinstance(type_, ir.TensorType) and type_.dtype == ir.DataType.UNDEFINED


def _type_text(type_: ir.TypeProtocol) -> str:
    return type_name(ir.Value(name="", type=type_)) or str(type_)
