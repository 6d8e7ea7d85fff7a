"""GRU, LSTM and RNN of opset 14 with `layout=1`, for opsets below 14."""

from __future__ import annotations

from onnx_kvtool.emit.emitter import Emitter, Replacement
from onnx_kvtool.emit.forms import again
from onnx_kvtool.rewrite.engine.rule import Rewritten

_STATES = ("initial_h", "initial_c")


def lower_recurrent_14(view: Rewritten, em: Emitter) -> Replacement:
    """Transpose the batch axis behind the others and back, where it comes first.

    X (batch, seq, input) and the states (batch, directions, hidden) change their first two axes;
    Y (seq, directions, batch, hidden) becomes (batch, seq, directions, hidden).
    """
    inputs = list(view.node.inputs)
    turn = view.integer("layout") != 0
    if turn:
        for index, formal in enumerate(view.facts.inputs[: len(inputs)]):
            given = inputs[index]
            if given is not None and formal.name in ("X", *_STATES):
                inputs[index] = em.op("Transpose", given, perm=[1, 0, 2])
    same = again(em, view.node, inputs, without=("layout",))
    if not turn:
        return same
    perms = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
    return Replacement(
        tuple(
            value and em.op("Transpose", value, perm=perm)
            for value, perm in zip(same.outputs, perms, strict=False)
        )
    )
