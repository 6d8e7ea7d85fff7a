"""Reductions whose axes, or whose bool, an older opset does not take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.runtime import reference
from tests.grids import each, part
from tests.rewrite.lowering.single import check, one_node, refusal

_X = np.random.default_rng(3).normal(size=(2, 3, 5)).astype(np.float32)
_FLAGS = np.array([[[1, 0, 0], [0, 0, 0]], [[1, 1, 1], [0, 1, 0]]], np.bool_)  # (2, 2, 3)


def _axes(*axes: int) -> np.ndarray:
    return np.array(axes, np.int64)


_RUN_TIME: dict[str, tuple[str, np.ndarray, np.ndarray, dict[str, Any]]] = {
    "one axis": ("ReduceSum", _X, _axes(1), {}),
    "two axes, dropped": ("ReduceSum", _X, _axes(2, 0), {"keepdims": 0}),
    "a negative axis": ("ReduceMax", _X, _axes(-1), {}),
    "a negative axis, dropped": ("ReduceMin", _X, _axes(-2), {"keepdims": 0}),
    "no axes mean all": ("ReduceProd", _X, _axes(), {}),
    "no axes mean all, dropped": ("ReduceMean", _X, _axes(), {"keepdims": 0}),
    "no axes mean none": ("ReduceSum", _X, _axes(), {"noop_with_empty_axes": 1}),
    "the mean of integers along one axis": ("ReduceMean", np.arange(6).reshape(2, 3), _axes(1), {}),
    "the mean of two axes": ("ReduceMean", _X, _axes(0, 2), {}),
    "integers": ("ReduceProd", np.arange(1, 7).reshape(2, 3), _axes(1), {"keepdims": 0}),
    "an empty sum": ("ReduceSum", np.zeros((2, 0, 3), np.float32), _axes(1), {"keepdims": 0}),
    "an empty result": ("ReduceSum", np.zeros((2, 0, 3), np.float32), _axes(0), {"keepdims": 0}),
    "a norm of float64": ("ReduceL2", _X.astype(np.float64), _axes(1), {"keepdims": 0}),
    "a norm over two axes": ("ReduceL2", _X, _axes(2, 0), {"keepdims": 0}),
    "norms of one number each": ("ReduceL2", _X, _axes(), {"noop_with_empty_axes": 1}),
    "exponentials that overflow": ("ReduceLogSumExp", _X + 1000, _axes(1), {"keepdims": 0}),
    "exponentials that vanish": ("ReduceLogSumExp", _X - 1000, _axes(0, 2), {}),
    "any of bool": ("ReduceMax", _FLAGS, _axes(2), {"keepdims": 0}),
    "all of bool": ("ReduceMin", _FLAGS, _axes(0, 2), {}),
}


@pytest.mark.long
@part(4)
@pytest.mark.parametrize("target", [11, 12, 13, 17])
@pytest.mark.parametrize(
    ("op", "data", "axes", "attributes"), list(_RUN_TIME.values()), ids=list(_RUN_TIME)
)
def test_axes_known_at_run_time_only(
    op: str, data: np.ndarray, axes: np.ndarray, attributes: Any, target: int
) -> None:
    inputs = {"data": data, "axes": axes}
    model = one_node(op, inputs, [data.dtype], opset=20, **attributes)
    check(model, inputs, target, rtol=1e-5 if data.dtype == np.float32 else 0)


@pytest.mark.needs_onnxruntime("1.28")
@pytest.mark.parametrize("target", [11, 17])
def test_squares_do_not_overflow(target: int) -> None:
    for data, norm in ((np.full((2, 3), 300, np.float16), 519.5), (np.array([[2**40, 0]]), 2**40)):
        inputs = {"data": data, "axes": _axes(1)}
        model = one_node("ReduceL2", inputs, [data.dtype], opset=20)
        check(model, inputs, target, [np.full((len(data), 1), norm, data.dtype)])


@pytest.mark.parametrize("axes", [(), (1,), (0, 2)], ids=str)
@pytest.mark.parametrize("noop", [0, 1])
def test_a_norm_is_never_negative(axes: tuple[int, ...], noop: int) -> None:
    inputs = {"data": _X, "axes": _axes(*axes)}
    dims = {"axes": ["n"]}
    model = one_node(
        "ReduceL2", inputs, [np.float32], opset=18, dims=dims, noop_with_empty_axes=noop
    )
    check(model, inputs, 13, rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("axes", [(), (1,), (0, 2)], ids=str)
@pytest.mark.parametrize("target", [12, 17])
def test_their_number_may_be_unknown(axes: tuple[int, ...], target: int) -> None:
    inputs = {"data": _X, "axes": _axes(*axes)}
    for noop in (0, 1):
        model = one_node(
            "ReduceMax",
            inputs,
            [np.float32],
            opset=18,
            dims={"axes": ["n"]},
            noop_with_empty_axes=noop,
            keepdims=0,
        )
        check(model, inputs, target)


@pytest.mark.parametrize("target", [11, 13, 18])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_an_empty_reduction_of_bool_gives_false_for_any_and_true_for_all(
    op: str, target: int
) -> None:
    inputs = {"data": np.zeros((2, 0, 3), np.bool_), "axes": _axes(1)}
    model = one_node(op, inputs, [np.bool_], opset=20, constants=["axes"])
    check(model, inputs, target, [np.full((2, 1, 3), op == "ReduceMin")])


def test_no_axes_of_a_constant_become_an_identity() -> None:
    inputs = {"data": _X, "axes": _axes()}
    model = one_node(
        "ReduceMean",
        inputs,
        [np.float32],
        opset=18,
        constants=["axes"],
        noop_with_empty_axes=1,
    )
    check(model, inputs, 17)


def test_an_unknown_rank_is_refused() -> None:
    inputs = {"data": _X, "axes": _axes(1)}
    model = one_node("ReduceMax", inputs, [np.float32], opset=18, dims={"data": None})
    found = refusal(model, 13)
    assert (found.code, found.lowest_opset) == ("unknown-rank", 18)


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceL2", "ReduceLogSumExp"])
def test_what_is_rounded_once_is_refused_for_integers(op: str) -> None:
    inputs = {"data": np.arange(6).reshape(2, 3), "axes": _axes(0, 1)}
    found = refusal(one_node(op, inputs, [np.int64], opset=18), 17)
    assert (found.code, found.lowest_opset) == ("dynamic-input", 18)


@each("opset", [20, 18, 13])
@each("keepdims", [0, 1])
@each("axes", [(1,), (0, -1), ()])
@each(("op", "nothing"), [("ReduceMax", -np.inf), ("ReduceMin", np.inf)])
def test_infinities_stay_where_a_release_loses_them(
    op: str, nothing: float, axes: tuple[int, ...], keepdims: int, opset: int
) -> None:
    data = _X.copy()
    data[0] = data[:, :, 2] = nothing
    inputs = {"data": data, **({"axes": _axes(*axes)} if axes else {})}
    model = one_node(op, inputs, [np.float32], opset=20, constants=[*inputs][1:], keepdims=keepdims)
    lowered, _ = kv.lower(model, target="openvino", opset=opset, verify=False)
    assert op not in {node.op_type for node in lowered.graph}
    (found,) = reference.Session(serialize(lowered), "").run({"data": data}).values()
    reduce = np.max if op == "ReduceMax" else np.min
    expected = reduce(data, axis=axes or None, keepdims=bool(keepdims))
    assert np.array_equal(found, expected)
