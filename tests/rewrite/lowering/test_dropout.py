"""Dropout at opset 11."""

from __future__ import annotations

import numpy as np

from tests.rewrite.lowering.single import check, one_node, refusal

_X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_inference_is_an_identity_with_a_mask_of_true() -> None:
    inputs = {"data": _X, "ratio": np.array(0.5, np.float32), "mode": np.array(False)}
    model = one_node("Dropout", inputs, [np.float32, np.bool_], opset=13, constants=["mode"])
    check(model, inputs, 11, [_X, np.ones((2, 3), np.bool_)])


def test_without_further_inputs_and_outputs() -> None:
    inputs = {"data": _X}
    check(one_node("Dropout", inputs, [np.float32], opset=13), inputs, 11, [_X])


def test_a_mode_known_at_run_time_only_is_refused() -> None:
    inputs = {"data": _X, "ratio": np.array(0.5, np.float32), "mode": np.array(False)}
    found = refusal(one_node("Dropout", inputs, [np.float32], opset=13), 11)
    assert (found.code, found.lowest_opset) == ("training-mode", 12)


def test_training_is_refused() -> None:
    inputs = {"data": _X, "ratio": None, "mode": np.array(True)}
    model = one_node("Dropout", inputs, [np.float32], opset=13, constants=["mode"])
    assert refusal(model, 11).code == "training-mode"


def test_training_without_anything_to_drop_is_an_identity() -> None:
    inputs = {"data": _X, "ratio": np.array(0, np.float32), "mode": np.array(True)}
    model = one_node("Dropout", inputs, [np.float32, np.bool_], opset=13, constants=["ratio"])
    check(model, inputs, 11, [_X, np.ones((2, 3), np.bool_)])
