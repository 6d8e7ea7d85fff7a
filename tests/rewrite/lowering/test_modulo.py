"""Mod of floats, where an older opset truncates."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.rewrite.lowering.single import check, one_node, results

_INF, _NAN = np.inf, np.nan


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_the_floored_remainder_has_the_sign_of_the_divisor(dtype: type) -> None:
    numbers = [5.5, -5.5, 0.0, -0.0, 2.0, -2.0, 0.7, -1e-3, _INF, -_INF, _NAN]
    pairs = np.array(list(itertools.product(numbers, numbers)), dtype)
    inputs = {"A": pairs[:, 0], "B": pairs[:, 1]}
    with np.errstate(all="ignore"):
        expected = np.mod(inputs["A"], inputs["B"])
    model = one_node("Mod", inputs, [dtype], opset=28)
    model.ir_version = 13
    check(model, inputs, 13, [expected])
    (got,) = results(_shaped(model), inputs, 13)
    zero = (expected == 0) & ~np.isinf(inputs["B"])
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(inputs["B"][zero]))


def _shaped(model):  # type: ignore[no-untyped-def]
    model.graph.output[0].type.tensor_type.shape.dim.add().dim_param = "n"
    return model
