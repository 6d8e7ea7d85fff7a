"""What a rule for an operator of onnxruntime is, and what its rules have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import known_dims, outputs_of
from onnx_kvtool.ops.view import NodeView

Form = Callable[[NodeView, Emitter], Replacement]


@dataclass(frozen=True, slots=True)
class ContribRule:
    """One rule.

    Attributes:
        apply: Guard, then emit standard operators of the emitter's opset, which is the newest that
            a rule may want; lowering takes them from there. Raises `Refusal` or `MalformedNode`
            before anything is edited.
        producer: What writes the operator today: an exporter, optimiser or builder, with the
            release that was looked at.
    """

    apply: Form
    producer: str

    @property
    def name(self) -> str:
        """What the report calls it: `skip_layer_normalization`."""
        return self.apply.__name__.rstrip("_")


def only(value: ir.Value, *others: ir.Value | None) -> Replacement:
    """Return what replaces a node whose outputs after the first are computed or unread."""
    return Replacement((value, *others))


def is_read(view: NodeView, index: int) -> bool:
    """Return whether a node has an output at `index` that somebody reads."""
    if index >= len(view.node.outputs):
        return False
    value = view.node.outputs[index]
    return bool(value.uses()) or value.is_graph_output()


def read_outputs(view: NodeView, *values: ir.Value | None) -> Replacement:
    """Return what replaces a node: those of the values that somebody reads."""
    return outputs_of(view.node, *(v if is_read(view, i) else None for i, v in enumerate(values)))


def known_rank(view: NodeView, value: ir.Value) -> int:
    """Return the rank of an input of a node.

    Raises:
        Refusal: If it is unknown.
    """
    return len(known_dims(value, f"`{view.node.op_type}` depends on its rank, and "))


def known_type(value: ir.Value) -> ir.DataType:
    """Return the element type of a value.

    Raises:
        Refusal: If it is unknown.
    """
    if value.dtype is None or value.dtype == ir.DataType.UNDEFINED:
        raise Refusal(
            "unknown-type", f"the element type of `{value.name}` is unknown", help="declare it"
        )
    return value.dtype


def given(view: NodeView, *names: str) -> dict[str, AttributeValue]:
    """Return the named attributes that a node has."""
    found = {name: view.attribute(name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def no_form(text: str) -> Refusal:
    """Return the refusal of a node that has no standard form, in the words of `text`."""
    return Refusal("contrib-form", text)


def refuse_input(view: NodeView, *names: str) -> None:
    """Refuse inputs that no standard operator can express.

    Raises:
        Refusal: With the name of the first that is given.
    """
    for name in names:
        if view.input(name) is not None:
            raise no_form(f"`{name}` of `{view.node.op_type}` is given, which has no standard form")


def refuse_value(view: NodeView, name: str, *expected: object) -> None:
    """Refuse values of an attribute that no standard operator can express.

    Raises:
        Refusal: If the attribute, or its default, is none of `expected`.
    """
    given = view.attribute(name)
    if given not in expected:
        known = " or ".join(f"`{one}`" for one in expected if one is not None)
        raise no_form(
            f"`{name}` of `{view.node.op_type}` is `{given}`, which has no standard form: "
            f"expected {known}"
        )
