"""Lowered LayerNormalization against the kernel: shapes of Scale and B, and its form."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto as T

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.runtime.onnxruntime import Session
from tests.grids import part
from tests.rewrite.lowering.single import check, one_node, refusal

B, H, D = 2, 3, 5
_TOLERANCE = {2: 2e-2, 4: 1e-3, 8: 1e-3}
"""By the bytes of an element. A double is computed in float32 too."""
_SCALES = {
    -1: [(D,), (1,), (), (H, D), (H, 1), (1, D), (1, 1, D), (B, H, D), (B, 1, 1)],
    -2: [(H, D), (D,), (H, 1), (1, H, D), (B, 1, D), (1,), ()],
    1: [(H, D), (D,), (1, D)],
    0: [(B, H, D), (D,), (B, 1, 1)],
    2: [(D,), (H, 1)],
}
# Sizes that coincide: where the schema's body, which flattens, would run and be wrong.
_SQUARE = [(4, 4, 4), (1, 4, 4), (4, 1, 4), (4, 4, 1), (4, 1), (4,)]


def _values(dtype: Any, *shapes: tuple[int, ...] | None, mean: float = 0) -> list[Any]:
    rng = np.random.default_rng(17)
    numbers = (None if s is None else rng.standard_normal(s) + mean for s in shapes)
    return [None if one is None else np.asarray(one, dtype) for one in numbers]


def _check(
    shape: tuple[int, ...],
    scale: tuple[int, ...],
    bias: tuple[int, ...] | None,
    *,
    target: int,
    dtype: Any = np.float32,
    outputs: int = 3,
    dims: Any = None,
    by_reference: bool = False,
    **attributes: Any,
) -> None:
    stash = ml_dtypes.bfloat16 if attributes.get("stash_type") == T.BFLOAT16 else np.float32
    narrow = min(np.dtype(dtype).itemsize, np.dtype(stash).itemsize)
    # Far from zero, where a variance as a difference of squares has few digits left.
    (x,) = _values(dtype, shape, mean=0 if narrow < 4 else 100)
    s, b = _values(dtype, scale, bias)
    inputs = {"x": x, "scale": s, "b": b}
    types = [dtype, stash, stash][:outputs]
    model = one_node("LayerNormalization", inputs, types, opset=17, dims=dims, **attributes)
    feeds = {name: value for name, value in inputs.items() if value is not None}
    expected = kv.ReferenceEvaluator(model).run(None, feeds)
    rtol = _TOLERANCE[narrow] * (3 if ml_dtypes.bfloat16 in (dtype, stash) else 1)
    check(model, inputs, target, expected, rtol=rtol, by_reference=by_reference)


@pytest.mark.long
@part(3)
@pytest.mark.parametrize("target", [11, 13, 16])
@pytest.mark.parametrize(
    ("axis", "scale"), [(axis, scale) for axis, scales in _SCALES.items() for scale in scales]
)
def test_shapes_of_the_scale(axis: int, scale: tuple[int, ...], target: int) -> None:
    _check((B, H, D), scale, scale, target=target, axis=axis)
    _check((B, H, D), (1,), scale, target=target, axis=axis)
    _check((B, H, D), scale, None, target=target, axis=axis, outputs=1)


@part(3)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("scale", _SQUARE, ids=str)
@pytest.mark.parametrize("bias", _SQUARE, ids=str)
def test_shapes_that_coincide(axis: int, scale: tuple[int, ...], bias: tuple[int, ...]) -> None:
    _check((4, 4, 4), scale, bias, target=16, axis=axis)


@part(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("stash", [T.FLOAT, T.BFLOAT16], ids=["float", "bfloat16"])
@pytest.mark.parametrize("scale", [(D,), (H, 1)], ids=str)
def test_types(dtype: Any, stash: int, scale: tuple[int, ...]) -> None:
    _check((B, H, D), scale, scale, target=13, dtype=dtype, stash_type=stash, by_reference=True)


@pytest.mark.long
@pytest.mark.parametrize("scale", [(D,), (1,), (H, 1)], ids=str)
def test_sizes_and_ranks_that_are_not_known(scale: tuple[int, ...]) -> None:
    for dims in (
        {"x": ["b", "h", "d"]},
        {"x": ["b", "h", D], "scale": ["s"] * len(scale)},
        {"x": None, "scale": None, "b": None},
    ):
        _check((B, H, D), scale, scale, target=13, dims=dims)


def test_absent_outputs_stay_absent() -> None:
    x, scale = _values(np.float32, (B, H, D), (D,))
    model = one_node("LayerNormalization", {"x": x, "scale": scale}, [np.float32] * 3, opset=17)
    model.graph.node[0].output[1] = ""
    del model.graph.output[1]
    lowered, _ = kv.lower(model, opset=13, verify=False)
    assert [value.name for value in lowered.graph.outputs] == ["out0", "out2"]
    before, after = (kv.evaluate(m, {"x": x, "scale": scale}) for m in (model, lowered))
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-4)


def _forms(x: tuple[int, ...], scale: tuple[int, ...], dtype: Any = np.float32) -> list[str]:
    inputs = dict(zip(("x", "scale", "b"), _values(dtype, x, scale, scale), strict=True))
    model = one_node("LayerNormalization", inputs, [dtype], opset=17)
    lowered, report = kv.lower(model, opset=13, verify=False)
    assert [done.rule for done in report.lowered] == ["layer_normalization"]
    return [node.op_type for node in lowered.graph]


def test_the_form_is_the_one_that_runtimes_fuse_where_the_scale_is_a_vector() -> None:
    head, tail = ["ReduceMean", "Sub"], ["ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add"]
    assert _forms((B, H, D), (D,)) == [*head, "Pow", *tail]
    assert _forms((B, H, D), (1,)) == [*head, "Mul", *tail]
    assert "Pow" not in _forms((B, H, D), (D,), np.float16)


@pytest.mark.needs_onnxruntime("1.29")
@pytest.mark.parametrize("scale", [(D,), (1,), (H, 1)], ids=str)
def test_onnxruntime_optimises_it_to_the_same_values(scale: tuple[int, ...]) -> None:
    inputs = dict(
        zip(("x", "scale", "b"), _values(np.float32, (B, H, D), scale, scale), strict=True)
    )
    model = one_node("LayerNormalization", inputs, [np.float32], opset=17)
    feeds = {name: value for name, value in inputs.items() if value is not None}
    lowered, _ = kv.lower(model, opset=13, verify=False)
    found = Session(serialize(lowered), "").run(feeds)["out0"]
    (expected,) = kv.ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_refusals() -> None:
    x, scale, large = _values(np.float32, (B, H, D), (D,), (7, B, H, D))
    for inputs, attributes, dims, code in (
        ({"x": x, "scale": scale}, {"axis": 1}, {"x": None}, "unknown-rank"),
        ({"x": x, "scale": large}, {}, None, "scale-shape"),
        ({"x": scale, "scale": x}, {}, None, "scale-shape"),
        ({"x": x, "scale": scale}, {"stash_type": T.INT32}, None, "element-type"),
    ):
        model = one_node(
            "LayerNormalization", inputs, [np.float32], opset=17, dims=dims, **attributes
        )
        assert refusal(model, 13).code == code


def test_bfloat16_is_refused_where_no_operator_takes_it() -> None:
    x, scale = _values(ml_dtypes.bfloat16, (B, H, D), (D,))
    model = one_node("LayerNormalization", {"x": x, "scale": scale}, [ml_dtypes.bfloat16], opset=17)
    assert refusal(model, 11).lowest_opset == 13


def test_it_can_be_asked_for() -> None:
    x, scale = _values(np.float32, (B, H, D), (H, 1))
    model = one_node("LayerNormalization", {"x": x, "scale": scale}, [np.float32], opset=18)
    lowered, _ = kv.lower(model, only=["LayerNormalization"], verify=False)
    assert "LayerNormalization" not in [node.op_type for node in lowered.graph]
    assert isinstance(lowered, ir.Model)
    before, after = (kv.evaluate(m, {"x": x, "scale": scale})["out0"] for m in (model, lowered))
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4)
