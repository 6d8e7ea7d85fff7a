"""RotaryEmbedding against rotations of complex numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.attention.attention import rotary_embedding_23
from tests.grids import each

_B, _H, _L, _D, _M = 2, 3, 5, 8, 11
_PLAIN: dict[str, Any] = {"interleaved": 0, "num_heads": None, "rotary_embedding_dim": 0}


def _normal(*dims: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(dims).astype(np.float32)


def _rotated(x: np.ndarray, angles: np.ndarray, width: int, interleaved: bool) -> np.ndarray:
    """Return (B, H, L, D) with the pairs of the first elements turned by (B, L, width / 2)."""
    y = x.astype(np.float64)
    for pair in range(width // 2):
        one, other = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + width // 2)
        turned = (y[..., one] + 1j * y[..., other]) * np.exp(1j * angles[:, None, :, pair])
        y[..., one], y[..., other] = turned.real, turned.imag
    return y


@each("rank", [3, 4])
@each("width", [0, 4])
@each("interleaved", [0, 1])
@each("positions", [True, False])
@each(("dtype", "tolerance"), [(np.float32, 1e-6), (np.float16, 4e-3), (ml_dtypes.bfloat16, 3e-2)])
def test_pairs_are_turned(
    rank: int, width: int, interleaved: int, positions: bool, dtype: Any, tolerance: float
) -> None:
    x = _normal(_B, _H, _L, _D).astype(dtype)
    half = (width or _D) // 2
    ids = np.random.default_rng(2).integers(0, _M, (_B, _L))
    table = _normal(_M, half) if positions else _normal(_B, _L, half)
    cos, sin = np.cos(table).astype(dtype), np.sin(table).astype(dtype)
    angles = table[ids] if positions else table
    expected = _rotated(x, angles, width or _D, bool(interleaved))
    given = x
    attributes = {**_PLAIN, "interleaved": interleaved, "rotary_embedding_dim": width}
    if rank == 3:
        given = x.transpose(0, 2, 1, 3).reshape(_B, _L, _H * _D)
        expected = expected.transpose(0, 2, 1, 3).reshape(_B, _L, _H * _D)
        attributes["num_heads"] = _H
    y = rotary_embedding_23(given, cos, sin, ids if positions else None, **attributes)
    assert y.dtype == dtype and y.shape == given.shape
    np.testing.assert_allclose(y.astype(np.float64), expected, atol=tolerance, rtol=tolerance)


_X, _TABLE = _normal(_B, _H, _L, _D), _normal(_M, _D // 2)
_IDS = np.zeros((_B, _L), np.int64)


def _ids(value: int) -> np.ndarray:
    ids = _IDS.copy()
    ids[1, 2] = value
    return ids


_REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "a position behind the last": (
        (_X, _TABLE, _TABLE, _ids(11)),
        {},
        "`position_ids`[1, 2] is 11, expected 0 to 10: axis 0 of `cos_cache` with shape (11, 4)",
    ),
    "a negative position": (
        (_X, _TABLE, _TABLE, _ids(-1)),
        {},
        "`position_ids`[1, 2] is -1, expected 0 to 10: axis 0 of `cos_cache` with shape (11, 4)",
    ),
    "positions of another shape": (
        (_X, _TABLE, _TABLE, _IDS[:1]),
        {},
        "`position_ids` has shape (1, 5), expected (2, 5): batch and sequence length of `X`",
    ),
    "a table without positions": (
        (_X, _TABLE, _TABLE),
        {},
        (
            "`cos_cache` has shape (11, 4), expected (2, 5, 4): one row for each token, without "
            "`position_ids`"
        ),
    ),
    "a table that is too wide": (
        (_X, _TABLE, _TABLE, _IDS),
        {"rotary_embedding_dim": 4},
        (
            "`cos_cache` has shape (11, 4), expected (11, 2): one row for each position, half of "
            "the rotated elements wide"
        ),
    ),
    "an odd width": (
        (_X, _TABLE, _TABLE, _IDS),
        {"rotary_embedding_dim": 3},
        "`rotary_embedding_dim` is 3, expected an even number from 0 to 8, the head_size of `X`",
    ),
    "an odd head": (
        (_X[..., :7], _TABLE, _TABLE, _IDS),
        {},
        "head_size of `X` is 7, expected an even number",
    ),
    "three dimensions without heads": (
        (_normal(_B, _L, _H * _D), _TABLE, _TABLE, _IDS),
        {},
        "`num_heads` is missing, which three dimensions need",
    ),
    "heads that do not divide": (
        (_normal(_B, _L, _H * _D), _TABLE, _TABLE, _IDS),
        {"num_heads": 5},
        "`num_heads` is 5, expected a divisor of 24, the last dimension of `X`",
    ),
    "heads that contradict four dimensions": (
        (_X, _TABLE, _TABLE, _IDS),
        {"num_heads": 5},
        "`num_heads` is 5, but `X` with shape (2, 3, 5, 8) has 3 heads",
    ),
    "two dimensions": (
        (_X[0, 0], _TABLE, _TABLE, _IDS),
        {},
        "`X` has rank 2 (shape (5, 8)), expected 3 or 4",
    ),
}


@each(("inputs", "attributes", "message"), _REFUSED)
def test_refused(inputs: tuple[Any, ...], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError) as caught:
        rotary_embedding_23(*inputs, **{**_PLAIN, **attributes})
    assert caught.value.message == message
