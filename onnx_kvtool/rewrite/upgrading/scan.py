"""Scan-8, for opsets from 9 on."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext

__all__ = ["upgrade_scan_9"]


def upgrade_scan_9(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Scan the batch, which version 8 has as the first axis of all inputs and outputs.

    Scan over the batch, without a state:
        body(states of a sample, sequences of a sample) = Scan over the sequence, the old body

    Refuses `sequence_lens`: Scan-9 runs every sequence to its end.
    """
    view = NodeView(node, context.opset_of(node))
    if node.inputs and node.inputs[0] is not None:
        raise Refusal(
            "sequence-lens",
            "`sequence_lens` is given, and sequences have one length from opset 9 on",
        )
    scanned, directions = view.integer("num_scan_inputs"), view.attribute("directions")
    body = node.attributes["body"].as_graph()
    batched = [value for value in node.inputs[1:] if value is not None]
    samples = [_sample(em, value) for value in batched]
    attributes: dict[str, AttributeValue] = {"body": body, "num_scan_inputs": scanned}
    if isinstance(directions, tuple):
        attributes["scan_input_directions"] = [int(one) for one in directions]
    dtypes = [output.dtype or ir.DataType.UNDEFINED for output in node.outputs]

    def one_sample() -> Sequence[ir.Value]:
        return em.multi("Scan", *samples, attributes=attributes, dtypes=dtypes, hint="sequence")

    outer: dict[str, AttributeValue] = {
        "body": em.nested(one_sample, samples, hint="sample"),
        "num_scan_inputs": len(samples),
    }
    results: list[ir.Value | None] = list(
        em.multi("Scan", *batched, attributes=outer, dtypes=dtypes)
    )
    for index, output in enumerate(node.outputs):
        if not output.name:
            results[index] = None
    return Replacement(tuple(results))


def _sample(em: Emitter, batched: ir.Value) -> ir.Value:
    """Return an input of the body: a value without its first axis."""
    shape = None if batched.shape is None else ir.Shape(list(batched.shape)[1:])
    name = em.scope.names.fresh(f"{em.prefix}/sample")
    return ir.Value(name=name, type=batched.type, shape=shape)
