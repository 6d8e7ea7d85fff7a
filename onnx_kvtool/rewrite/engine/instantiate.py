"""Placing a copy of a function body where it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_kvtool.core.walk import subgraphs

if TYPE_CHECKING:
    from onnx_kvtool.emit.emitter import Emitter

__all__ = ["instantiate"]


def instantiate(
    body: ir.Graph,
    inputs: Sequence[ir.Value | None],
    em: Emitter,
    *,
    attributes: Mapping[str, ir.Attr] | None = None,
    version: int | None = None,
) -> tuple[ir.Value, ...]:
    """Add a copy of `body` to the emitter's nodes.

    Small initializers of the body become shared constants of the root graph. Every name is new.

    Args:
        body: The graph to copy; it is not changed.
        inputs: One value per input of `body`; None for an absent one. Inputs that are left out at
            the end are absent.
        em: Where the nodes are added.
        attributes: Values of the function's attribute parameters. A reference to a parameter that
            is not among them removes the attribute that refers, as ONNX defines it.
        version: Opset that the copied nodes are tagged with; their own tag when None.

    Returns:
        One value per output of `body`, each produced by a node of the copy.
    """
    copy = body.clone(allow_outer_scope_values=True)
    for index, formal in enumerate(copy.inputs):
        _replace(formal, inputs[index] if index < len(inputs) else None)
    for name, initializer in copy.initializers.items():
        tensor = initializer.const_value
        if tensor is not None:
            _replace(initializer, em.tensor(tensor, name))
    outputs = list(copy.outputs)
    given = {formal: inputs[i] for i, formal in enumerate(copy.inputs) if i < len(inputs)}
    copy.outputs.clear()
    nodes = list(copy)
    copy.remove(nodes)
    for node in nodes:
        _prepare(node, em, attributes or {}, version)
        em.adopt(node, node.name or node.op_type)
    return tuple(_distinct(em, outputs, given))


def _replace(formal: ir.Value, actual: ir.Value | None) -> None:
    for use in tuple(formal.uses()):
        use.node.replace_input_with(use.idx, actual)


def _prepare(
    node: ir.Node, em: Emitter, attributes: Mapping[str, ir.Attr], version: int | None
) -> None:
    """Bind the attribute parameters of a node and of the nodes in its bodies, and tag them."""
    if version is not None and node.domain == "":
        node.version = version
    for name, attribute in tuple(node.attributes.items()):
        if not attribute.is_ref():
            continue
        actual = attributes.get(attribute.ref_attr_name or "")
        if actual is None:
            del node.attributes[name]
        else:
            node.attributes[name] = ir.Attr(name, actual.type, actual.value)
    for _, graph in subgraphs(node):
        for value in graph.inputs:
            value.name = em.scope.names.fresh(value.name or "value")
        for inner in graph:
            _prepare(inner, em, attributes, version)
            inner.name = em.scope.names.fresh(inner.name or inner.op_type)
            for output in inner.outputs:
                if output.name:
                    output.name = em.scope.names.fresh(output.name)


def _distinct(
    em: Emitter, outputs: list[ir.Value], given: Mapping[ir.Value, ir.Value | None]
) -> list[ir.Value]:
    """Return the outputs, with an Identity for one that is an input or stands there twice."""
    result: list[ir.Value] = []
    for output in outputs:
        if output in given or output.producer() is None or output in result:
            actual = given.get(output, output)
            copied = em.op("Identity", actual, hint="Identity")
            copied.type = actual.type if actual is not None else None
            result.append(copied)
        else:
            result.append(output)
    return result
