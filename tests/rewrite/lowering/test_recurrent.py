"""GRU, LSTM and RNN with the batch in front, below opset 14."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rewrite.lowering.single import check, one_node, results

_RNG = np.random.default_rng(41)
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_B, _S, _D, _H = 2, 3, 5, 7


@pytest.mark.parametrize("op", list(_GATES))
def test_the_batch_in_front(op: str) -> None:
    """Held against the same operator with the sequence in front, which opset 13 has."""
    gates = _GATES[op]
    inputs = {
        "X": _RNG.normal(size=(_B, _S, _D)).astype(np.float32),
        "W": _RNG.normal(size=(1, gates * _H, _D)).astype(np.float32),
        "R": _RNG.normal(size=(1, gates * _H, _H)).astype(np.float32),
        "bias": None,
        "lengths": None,
        "initial_h": _RNG.normal(size=(_B, 1, _H)).astype(np.float32),
    }
    turned = inputs | {
        "X": inputs["X"].swapaxes(0, 1),
        "initial_h": inputs["initial_h"].swapaxes(0, 1),
    }
    count = 3 if op == "LSTM" else 2
    plain = one_node(op, turned, [np.float32] * count, opset=13, hidden_size=_H)
    for output, rank in zip(plain.graph.output, (4, 3, 3), strict=False):
        for axis in range(rank):
            output.type.tensor_type.shape.dim.add().dim_param = f"{output.name}{axis}"
    y, *states = results(plain, turned, 13)
    expected = [y.transpose(2, 0, 1, 3)] + [state.swapaxes(0, 1) for state in states]
    model = one_node(op, inputs, [np.float32] * count, opset=14, hidden_size=_H, layout=1)
    check(model, inputs, 13, expected, rtol=1e-6)


@pytest.mark.parametrize("op", list(_GATES))
def test_an_absent_output_has_no_type_to_know(op: str) -> None:
    gates = _GATES[op]
    inputs = {
        "X": _RNG.normal(size=(_S, _B, _D)).astype(np.float32),
        "W": _RNG.normal(size=(1, gates * _H, _D)).astype(np.float32),
        "R": _RNG.normal(size=(1, gates * _H, _H)).astype(np.float32),
    }
    model = one_node(op, inputs, [np.float32, np.float32], opset=22, hidden_size=_H)
    model.graph.node[0].output[0] = ""
    del model.graph.output[0]
    check(model, inputs, 11, rtol=1e-5)
