"""Max, Min and Clip of types that older opsets do not take."""

from __future__ import annotations

import numpy as np
import pytest

from tests.grids import each, part
from tests.rewrite.lowering.integers import SIGNED, UNSIGNED
from tests.rewrite.lowering.single import check, one_node


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
@pytest.mark.parametrize("op", ["Max", "Min"])
def test_the_extremes_of_a_type_stay_exact(op: str, dtype: type) -> None:
    limits = np.iinfo(dtype)
    x = np.array([limits.max, limits.max - 1, limits.min, limits.min + 1, 3], dtype)
    inputs = {"a": x[:, None], "b": x, "c": np.array([5], dtype)}
    compute = np.maximum if op == "Max" else np.minimum
    expected = compute(compute(x[:, None], x), np.array([5], dtype))
    check(one_node(op, inputs, [dtype], opset=13), inputs, 11, [expected])


_BOUNDS = {"both": (-5, 9), "a lower one": (-5, None), "an upper one": (None, 9), "none": ()}


@part(2)
@pytest.mark.needs_onnxruntime("1.31")
@each("target", [11, 10, 9])
@pytest.mark.parametrize("bounds", list(_BOUNDS.values()), ids=list(_BOUNDS))
@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED, np.float64])
def test_clip_runs_in_onnxruntime(dtype: type, bounds: tuple[int | None, ...], target: int) -> None:
    limits = np.finfo(dtype) if dtype is np.float64 else np.iinfo(dtype)
    x = np.array([limits.max, limits.min, 3, 100, 9, 8, 5], dtype)
    if dtype is np.float64:
        x[-2:] = np.nan, -np.inf
    inputs = {"x": x}
    for name, bound in zip(("min", "max"), bounds, strict=False):
        inputs[name] = None if bound is None else np.array(abs(bound), dtype)
    low, high = (inputs.get(name) for name in ("min", "max"))
    expected = x if low is None else np.maximum(x, low)
    expected = expected if high is None else np.minimum(expected, high)
    source = one_node("Clip", inputs, [dtype], opset=13)
    check(source, inputs, target, [expected], by_reference=dtype is np.uint64)


@each("target", [10, 9])
def test_clip_of_float64_at_opset_11(target: int) -> None:
    x = np.array([-np.inf, -1e300, 2.0, np.nan, 1e300])
    inputs = {"x": x, "min": np.array(-3.0), "max": np.array(1e299)}
    source = one_node("Clip", inputs, [np.float64], opset=11)
    check(source, inputs, target, [np.clip(x, -3.0, 1e299)])
