"""What a rule for an operator of onnxruntime is, and what its rules have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.emit.emitter import (
    AttributeValue,
    Emitter,
    Refusal,
    Replacement,
    ScopedValues,
)
from onnx_kvtool.emit.forms import known_dims, outputs_of
from onnx_kvtool.ops.schema import OpFacts
from onnx_kvtool.ops.view import NodeView


class Site(NodeView, Emitter):
    """A node of onnxruntime, and the nodes of ONNX that are written in its place.

    The node is not changed. The new nodes will stand in `scope`, and are of `opset`. `prefix` is
    the first part of the names of new nodes and values.
    """

    def __init__(
        self, node: ir.Node, facts: OpFacts, scope: ScopedValues, opset: int, prefix: str
    ) -> None:
        NodeView.__init__(self, node, 1, facts)
        Emitter.__init__(self, scope, opset, prefix)


Form = Callable[[Site], ir.Value | Replacement]


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

    def written(
        self, node: ir.Node, facts: OpFacts, scope: ScopedValues, opset: int, prefix: str
    ) -> tuple[Emitter, Replacement]:
        """Return what replaces a node, and the emitter with the new nodes; see `Site`.

        Raises:
            Refusal: If the node has no standard form; nothing is emitted then.
            MalformedNode: If the schema does not allow it.
        """
        site = Site(node, facts, scope, opset, prefix)
        try:
            found = self.apply(site)
            return site, found if isinstance(found, Replacement) else Replacement((found,))
        except BaseException:
            site.discard()
            raise


def is_read(site: Site, index: int) -> bool:
    """Return whether a node has an output at `index` that somebody reads."""
    if index >= len(site.node.outputs):
        return False
    value = site.node.outputs[index]
    return bool(value.uses()) or value.is_graph_output()


def read_outputs(site: Site, *values: ir.Value | None) -> Replacement:
    """Return what replaces a node: those of the values that somebody reads."""
    return outputs_of(site.node, *(v if is_read(site, i) else None for i, v in enumerate(values)))


def known_rank(site: Site, value: ir.Value) -> int:
    """Return the rank of an input of a node. Raise Refusal if it is unknown."""
    return len(known_dims(value, f"`{site.node.op_type}` depends on its rank, and "))


def known_type(value: ir.Value) -> ir.DataType:
    """Return the element type of a value. Raise Refusal if it is unknown."""
    if value.dtype is None or value.dtype == ir.DataType.UNDEFINED:
        raise Refusal(
            "unknown-type", f"the element type of `{value.name}` is unknown", help="declare it"
        )
    return value.dtype


def given(site: Site, *names: str) -> dict[str, AttributeValue]:
    """Return the named attributes that a node has."""
    found = {name: site.attribute(name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def no_form(text: str) -> Refusal:
    """Return the refusal of a node that has no standard form, in the words of `text`."""
    return Refusal("contrib-form", text)


def refuse_input(site: Site, *names: str) -> None:
    """Raise Refusal for the first input given that no standard operator can express."""
    for name in names:
        if site.input(name) is not None:
            raise no_form(f"`{name}` of `{site.node.op_type}` is given, which has no standard form")


def refuse_value(site: Site, name: str, *expected: object) -> None:
    """Refuse values of an attribute that no standard operator can express.

    Raises:
        Refusal: If the attribute, or its default, is none of `expected`.
    """
    given = site.attribute(name)
    if given not in expected:
        known = " or ".join(f"`{one}`" for one in expected if one is not None)
        raise no_form(
            f"`{name}` of `{site.node.op_type}` is `{given}`, which has no standard form: "
            f"expected {known}"
        )
