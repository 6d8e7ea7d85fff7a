"""Dropout at opset 11."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.grids import part
from tests.rewrite.lowering.single import check, one_node, results

_X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_inference_is_an_identity_with_a_mask_of_true() -> None:
    inputs = {"data": _X, "ratio": np.array(0.5, np.float32), "mode": np.array(False)}
    model = one_node("Dropout", inputs, [np.float32, np.bool_], opset=13, constants=["mode"])
    check(model, inputs, 11, [_X, np.ones((2, 3), np.bool_)])


def test_without_further_inputs_and_outputs() -> None:
    inputs = {"data": _X}
    check(one_node("Dropout", inputs, [np.float32], opset=13), inputs, 11, [_X])


_EACH_TYPE = pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])


def _trained(
    dtype: Any, ratio: float | None, is_constant: bool, target: int, seed: int | None = None
) -> tuple[Any, Any]:
    """Return what a lowered Dropout in training gives for many ones and twos."""
    data = np.ones((60, 70), dtype)
    data[30:] = 2
    inputs = {"data": data, "ratio": None, "mode": np.array(True)}
    if ratio is not None:
        inputs["ratio"] = np.array(ratio, np.float32)
    constants = [name for name in ("ratio", "mode") if inputs[name] is not None]
    attributes = {} if seed is None else {"seed": seed}
    model = one_node(
        "Dropout", inputs, [dtype, np.bool_], opset=13,
        constants=constants if is_constant else [], **attributes,
    )  # fmt: skip
    result, mask = results(model, inputs, target)
    assert result.dtype == dtype
    assert mask.dtype == np.bool_
    share = 0.5 if ratio is None else ratio
    wide = np.float64 if dtype == np.float64 else np.float32
    scaled = (data.astype(wide) / wide(1 - wide(np.float32(share)))).astype(dtype)
    np.testing.assert_array_equal(result, np.where(mask, scaled, dtype(0)))
    return result, mask


@part(3)
@_EACH_TYPE
@pytest.mark.parametrize("target", [9, 11])
@pytest.mark.parametrize("is_constant", [False, True], ids=["given", "constant"])
@pytest.mark.parametrize("ratio", [None, 0.25, 0.75])
def test_training_drops_the_share_and_scales_the_rest(
    dtype: Any, ratio: float | None, is_constant: bool, target: int
) -> None:
    _, mask = _trained(dtype, ratio, is_constant, target)
    share = 0.5 if ratio is None else ratio
    assert abs(1 - mask.mean() - share) < 0.05  # seven standard deviations of 4200 draws


def test_a_seed_gives_the_same_numbers_in_each_session() -> None:
    first, again, other = (_trained(np.float32, 0.5, True, 11, seed)[1] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("target", [9, 11])
@pytest.mark.parametrize(("ratio", "mode"), [(0.5, False), (0.0, True)])
def test_nothing_is_dropped_where_the_run_says_so(ratio: float, mode: bool, target: int) -> None:
    inputs = {"data": _X, "ratio": np.array(ratio, np.float32), "mode": np.array(mode)}
    model = one_node("Dropout", inputs, [np.float32, np.bool_], opset=13)
    check(model, inputs, target, [_X, np.ones((2, 3), np.bool_)])


def test_training_without_anything_to_drop_is_an_identity() -> None:
    inputs = {"data": _X, "ratio": np.array(0, np.float32), "mode": np.array(True)}
    model = one_node("Dropout", inputs, [np.float32, np.bool_], opset=13, constants=["ratio"])
    check(model, inputs, 11, [_X, np.ones((2, 3), np.bool_)])
