"""Layer, group, instance, batch and other normalizations against their formulas in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Context
from onnx_kvtool.runtime.kernels.normalization.batch import (
    batch_normalization_7,
    batch_normalization_14,
    lp_normalization_1,
    lrn_1,
    mean_variance_normalization_9,
)
from onnx_kvtool.runtime.kernels.normalization.layer import (
    group_normalization_18,
    group_normalization_21,
    instance_normalization_1,
    layer_normalization_17,
    rms_normalization_23,
)
from tests.grids import each

_EPSILON = float(np.float32(1e-5))
_BF16 = ml_dtypes.bfloat16


def _normal(*dims: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dims).astype(np.float32)


def _standard(x: np.ndarray, axes: tuple[int, ...], epsilon: float = _EPSILON) -> Any:
    wide = x.astype(np.float64)
    mean = wide.mean(axis=axes, keepdims=True)
    inverse = 1 / np.sqrt(wide.var(axis=axes, keepdims=True) + epsilon)
    return (wide - mean) * inverse, mean, inverse


@pytest.mark.parametrize("axis", [-3, -1, 1])
def test_layer_normalization_takes_the_axes_from_one_on(axis: int) -> None:
    x, scale, bias = _normal(2, 3, 5) + 4, _normal(3, 5, seed=1), _normal(5, seed=2)
    attributes = {"axis": axis, "epsilon": _EPSILON, "stash_type": 1}
    y, mean, inverse = layer_normalization_17(x, scale, bias, **attributes)
    standard = _standard(x, tuple(range(axis % 3, 3)))
    np.testing.assert_allclose(y, standard[0] * scale + bias, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(mean, standard[1], rtol=1e-6)
    np.testing.assert_allclose(inverse, standard[2], rtol=1e-5)
    assert mean.shape == standard[1].shape
    (without, *_) = layer_normalization_17(x, scale, **attributes)
    np.testing.assert_allclose(without, standard[0] * scale, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("stash", "stashed"), [(1, np.float32), (16, _BF16)], ids=["f32", "bf16"])
@pytest.mark.parametrize("dtype", [np.float64, np.float16, _BF16], ids=lambda t: t.__name__)
def test_layer_normalization_rounds_between_its_stages(
    dtype: Any, stash: int, stashed: Any
) -> None:
    x, scale = (_normal(3, 64) + 2).astype(dtype), (_normal(64, seed=1) * 3).astype(dtype)
    y, mean, inverse = layer_normalization_17(x, scale, axis=-1, epsilon=_EPSILON, stash_type=stash)
    assert (y.dtype, mean.dtype, inverse.dtype) == (dtype, stashed, stashed)
    normalized = _standard(x.astype(stashed), (1,))[0].astype(stashed).astype(dtype)
    expected = normalized.astype(np.float64) * scale.astype(np.float64)
    unit = float(max(ml_dtypes.finfo(t).eps for t in (dtype, stashed, np.float32)))
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=4 * unit, atol=8 * unit)


def test_a_variance_beside_a_great_mean_does_not_cancel() -> None:
    """The function body subtracts squares: 1e8 twice, of which float32 keeps no unit."""
    x = np.array([[9999.0, 10000.0, 10001.0, 10000.0]], np.float32)
    attributes = {"axis": -1, "epsilon": 0.0, "stash_type": 1}
    y, *_ = layer_normalization_17(x, np.ones(4, np.float32), **attributes)
    np.testing.assert_allclose(y, [[-(2**0.5), 0, 2**0.5, 0]], rtol=1e-6)


@each("dtype", [np.float32, np.float16, _BF16])
@each("stash", [1, 10, 11, 16])
def test_rms_normalization(dtype: Any, stash: int) -> None:
    x, scale = (_normal(2, 3, 64) * 2).astype(dtype), _normal(64, seed=1)
    y = rms_normalization_23(x, scale, axis=-1, epsilon=_EPSILON, stash_type=stash)
    assert y.dtype == np.float32  # the type of scale
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + _EPSILON) * scale
    narrow = dtype == _BF16 or stash == 16
    tolerance = 3e-2 if narrow else 4e-3 if dtype == np.float16 or stash == 10 else 1e-5
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance / 10)


def test_rms_normalization_rounds_to_the_type_of_x_before_the_scale() -> None:
    x = (_normal(4, 64) * 2).astype(_BF16)
    y = rms_normalization_23(x, np.full(64, 3, np.float32), axis=-1, epsilon=_EPSILON, stash_type=1)
    wide = x.astype(np.float32)
    root = np.sqrt(np.mean(wide * wide, axis=-1, keepdims=True) + np.float32(_EPSILON))
    assert np.array_equal(y, (wide / root).astype(_BF16).astype(np.float32) * 3)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_normalization(groups: int) -> None:
    x = _normal(2, 6, 5, 7)
    standard = _standard(x.reshape(2, groups, -1), (2,))[0].reshape(x.shape)
    scale, bias = _normal(6, seed=1), _normal(6, seed=2)
    y = group_normalization_21(x, scale, bias, epsilon=_EPSILON, num_groups=groups, stash_type=1)
    column = (slice(None), None, None)
    np.testing.assert_allclose(y, standard * scale[column] + bias[column], rtol=1e-4, atol=1e-5)
    y = group_normalization_18(
        x, scale[:groups], bias[:groups], epsilon=_EPSILON, num_groups=groups
    )
    wide_scale, wide_bias = (np.repeat(a[:groups], 6 // groups)[column] for a in (scale, bias))
    np.testing.assert_allclose(y, standard * wide_scale + wide_bias, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dims", [(5,), (5, 7)], ids=["one dimension", "two"])
def test_instance_normalization(dims: tuple[int, ...]) -> None:
    x, scale, bias = _normal(2, 3, *dims), _normal(3, seed=1), _normal(3, seed=2)
    y = instance_normalization_1(x, scale, bias, epsilon=_EPSILON)
    column = (slice(None), *(None,) * len(dims))
    expected = _standard(x, tuple(range(2, x.ndim)))[0] * scale[column] + bias[column]
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


_STATISTICS = {"epsilon": _EPSILON, "momentum": float(np.float32(0.9))}


@pytest.mark.parametrize("dims", [(4,), (4, 3), (4, 3, 5), (4, 3, 5, 7)], ids=len)
def test_batch_normalization_with_statistics_and_in_training(dims: tuple[int, ...]) -> None:
    x, count = _normal(*dims), 3 if len(dims) > 1 else 1
    scale, bias, mean = (_normal(count, seed=n) for n in (1, 2, 3))
    var = np.abs(_normal(count, seed=4))
    shape = (count, *(1,) * (len(dims) - 2)) if len(dims) > 1 else (1,)
    s, b, m, v = (a.reshape(shape).astype(np.float64) for a in (scale, bias, mean, var))
    expected = (x - m) / np.sqrt(v + _EPSILON) * s + b
    given = (x, scale, bias, mean, var)
    for y in (
        *batch_normalization_14(*given, **_STATISTICS, training_mode=0),
        batch_normalization_7(*given, **_STATISTICS),
    ):
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)

    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    y, running_mean, running_var = batch_normalization_14(*given, **_STATISTICS, training_mode=1)
    np.testing.assert_allclose(y, _standard(x, axes)[0] * s + b, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        running_mean, 0.9 * mean + 0.1 * x.mean(axis=axes), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(running_var, 0.9 * var + 0.1 * x.var(axis=axes), rtol=1e-4)


def test_batch_normalization_7_may_have_statistics_of_each_position() -> None:
    x, mean = _normal(2, 3, 5), _normal(3, 5, seed=1)
    ones = np.ones((3, 5), np.float32)
    y = batch_normalization_7(x, ones, 0 * ones, mean, ones, **_STATISTICS, spatial=0)
    np.testing.assert_allclose(y, x - mean, rtol=1e-4, atol=1e-5)


def test_batch_normalization_keeps_the_types_of_its_operands() -> None:
    x, one = _normal(4, 3, 5).astype(np.float16), np.ones(3, np.float32)
    y, mean, var = batch_normalization_14(
        x, one, one, one.astype(np.float64), one.astype(np.float64), **_STATISTICS, training_mode=1
    )
    assert (y.dtype, mean.dtype, var.dtype) == (np.float16, np.float64, np.float64)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_lp_normalization_takes_absolute_values(axis: int) -> None:
    x = _normal(3, 4, 5)
    x[:, :, 2] = x[1, :, :] = 0
    for p in (1, 2):
        norm = (np.abs(x.astype(np.float64)) ** p).sum(axis=axis, keepdims=True) ** (1 / p)
        expected = np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm))
        np.testing.assert_allclose(lp_normalization_1(x, axis=axis, p=p), expected, rtol=1e-6)


def test_a_norm_of_tiny_numbers_does_not_vanish() -> None:
    x = np.array([[3e-30, -4e-30]], np.float32)
    np.testing.assert_allclose(lp_normalization_1(x, axis=1, p=2), [[0.6, -0.8]], rtol=1e-6)


@each("size", [1, 2, 3, 4, 7, 20])
def test_lrn_sums_over_neighbouring_channels(size: int) -> None:
    x = _normal(2, 6, 5)
    y = lrn_1(x, alpha=0.5, beta=0.75, bias=2.0, size=size)
    for c in range(6):
        first, last = c - (size - 1) // 2, c + -(-(size - 1) // 2)
        near = x[:, max(0, first) : last + 1].astype(np.float64)
        expected = x[:, c] / (2 + 0.5 / size * (near**2).sum(axis=1)) ** 0.75
        np.testing.assert_allclose(y[:, c], expected, rtol=1e-5)


def test_mean_variance_normalization_makes_constants_zero() -> None:
    x = _normal(2, 3, 5, 7)
    x[:, 1] = 4
    y = mean_variance_normalization_9(x, axes=(0, 2, -1))
    varied = x[:, ::2]
    np.testing.assert_allclose(y[:, ::2], _standard(varied, (0, 2, 3), 0.0)[0], atol=1e-5)
    assert not y[:, 1].any()


_X = _normal(2, 6, 5)
_LAYER = {"axis": -1, "epsilon": _EPSILON, "stash_type": 1}
_GROUP = {"num_groups": 2, "epsilon": _EPSILON, "stash_type": 1}
_ONES = np.ones(6, np.float32)

_REFUSED: dict[str, tuple[Any, str]] = {
    "layer: scale": (
        lambda: layer_normalization_17(_X, _ONES, **_LAYER),
        "`Scale` has shape (6,), which does not broadcast to (2, 6, 5) of `X`",
    ),
    "layer: stash type": (
        lambda: layer_normalization_17(_X, _ONES[:5], **{**_LAYER, "stash_type": 11}),
        "`stash_type` is 11, expected 1 (float) or 16 (bfloat16)",
    ),
    "layer: axis": (
        lambda: layer_normalization_17(_X, _ONES[:5], **{**_LAYER, "axis": 3}),
        "`axis` is 3, expected -3 to 2: `X` has rank 3",
    ),
    "rms: scale": (
        lambda: rms_normalization_23(_X, np.ones((1, 1, 1, 5), np.float32), **_LAYER),
        "`scale` has shape (1, 1, 1, 5), which does not broadcast to (2, 6, 5) of `X`",
    ),
    "group: groups": (
        lambda: group_normalization_21(_X, _ONES, _ONES, **{**_GROUP, "num_groups": 4}),
        "`num_groups` is 4, expected a divisor of 6, the channels of `X` with shape (2, 6, 5)",
    ),
    "group: scale of groups in 21": (
        lambda: group_normalization_21(_X, _ONES[:2], _ONES, **_GROUP),
        "`scale` has shape (2,), expected (6,): one number for each channel",
    ),
    "group: scale of channels in 18": (
        lambda: group_normalization_18(_X, _ONES, _ONES, num_groups=2, epsilon=_EPSILON),
        "`scale` has shape (6,), expected (2,): one number for each group",
    ),
    "instance: rank": (
        lambda: instance_normalization_1(_X[..., 0], _ONES, _ONES, epsilon=_EPSILON),
        "`input` has rank 2 (shape (2, 6)), expected at least 3: (N, C, D1, ..., Dn)",
    ),
    "batch: mean": (
        lambda: batch_normalization_14(
            _X, _ONES, _ONES, _ONES[:5], _ONES, **_STATISTICS, training_mode=0
        ),
        "`input_mean` has shape (5,), expected (6,): channels of `X` with shape (2, 6, 5)",
    ),
    "batch: training in version 9": (
        lambda: batch_normalization_7(
            _X, _ONES, _ONES, _ONES, _ONES, **_STATISTICS, context=Context(9, 5, print)
        ),
        "the node has 5 outputs, which means training, expected 1",
    ),
    "lp: order": (
        lambda: lp_normalization_1(_X, axis=0, p=3),
        "`p` is 3, expected 1 or 2",
    ),
    "lrn: size": (
        lambda: lrn_1(_X, alpha=1.0, beta=1.0, bias=1.0, size=0),
        "`size` is 0, expected 1 or more",
    ),
    "mean and variance: an axis twice": (
        lambda: mean_variance_normalization_9(_X, axes=(0, -3)),
        "`axes` [0, -3] names axis 0 twice, at positions 0 and 1",
    ),
}


@each(("call", "message"), _REFUSED)
def test_refused(call: Any, message: str) -> None:
    with pytest.raises(KernelError) as caught:
        call()
    assert caught.value.message == message
