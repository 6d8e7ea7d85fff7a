"""GRU, LSTM and RNN of opset 14 with `layout=1`, for opsets below 14."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Replacement
from onnx_kvtool.rewrite.engine.rule import Rewritten

_STATES = ("initial_h", "initial_c")


def lower_recurrent_14(view: Rewritten, em: Emitter) -> Replacement:
    """Transpose the batch axis behind the others and back, where it comes first.

    X (batch, seq, input) and the states (batch, directions, hidden) change their first two axes;
    Y (seq, directions, batch, hidden) becomes (batch, seq, directions, hidden).
    """
    turn = view.integer("layout") != 0

    def move(value: ir.Value, perm: list[int]) -> ir.Value:
        return em.op("Transpose", value, perm=perm)

    inputs = list(view.node.inputs)
    if turn:
        for index, formal in enumerate(view.facts.inputs[: len(inputs)]):
            given = inputs[index]
            if given is not None and formal.name in ("X", *_STATES):
                inputs[index] = move(given, [1, 0, 2])
    attributes: dict[str, AttributeValue] = {
        name: given.value for name, given in view.node.attributes.items() if name != "layout"
    }
    outputs = em.multi(
        view.node.op_type, *inputs, attributes=attributes, count=len(view.node.outputs)
    )
    results: list[ir.Value | None] = []
    for index, (old, new) in enumerate(zip(view.node.outputs, outputs, strict=True)):
        if not old.name:
            new.name = ""
            results.append(None)
        elif turn:
            results.append(move(new, [2, 0, 1, 3] if index == 0 else [1, 0, 2]))
        else:
            results.append(new)
    return Replacement(tuple(results))
