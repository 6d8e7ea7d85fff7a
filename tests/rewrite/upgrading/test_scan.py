"""Scan-8, whose first axis is the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.rewrite.upgrading.single import check, refusal, run

_B, _S, _D = 2, 5, 3


def _model(directions: str = "", lengths: str = '""', extra: str = "") -> onnx.ModelProto:
    """Return running sums over sequences, scaled by a value of the outer graph."""
    return onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 8]>
    sums (float[{_B},{_D}] start, float[{_B},{_S},{_D}] x{extra}, float[1] scale)
        => (float[{_B},{_D}] last, float[{_B},{_S},{_D}] sums)
    {{
        last, sums = Scan <num_scan_inputs = 1{directions}, body = step
            (float[{_D}] before, float[{_D}] one) => (float[{_D}] after, float[{_D}] out) {{
                scaled = Mul (one, scale)
                after = Add (before, scaled)
                out = Identity (after)
            }}> ({lengths}, start, x)
    }}
    """)


def _inputs() -> dict[str, Any]:
    numbers = np.arange(_B * _S * _D, dtype=np.float32).reshape(_B, _S, _D)
    return {"start": np.ones((_B, _D), np.float32), "x": numbers, "scale": np.float32([0.5])}


@pytest.mark.parametrize(
    ("directions", "order"),
    [("", slice(None)), (", directions = [1]", slice(None, None, -1))],
    ids=["forward", "backward"],
)
def test_each_sample_is_scanned(directions: str, order: slice) -> None:
    inputs = _inputs()
    sums = 1 + np.cumsum(inputs["x"][:, order] * np.float32(0.5), axis=1, dtype=np.float32)
    model = _model(directions)
    expected = run(model, inputs)
    np.testing.assert_array_equal(expected[0], sums[:, -1])
    check(model, inputs, expected)


def test_sequences_of_different_length_are_refused() -> None:
    model = _model(lengths="lengths", extra=f", int64[{_B}] lengths")
    assert refusal(model).code == "sequence-lens"
