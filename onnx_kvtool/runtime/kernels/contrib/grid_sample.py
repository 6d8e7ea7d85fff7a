"""GridSample of onnxruntime, which ONNX took over with version 16."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_value
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import Reals


def grid_sample(
    X: Array, Grid: Array, *, align_corners: int, mode: str, padding_mode: str
) -> tuple[Array]:
    """Sample pictures at points between pixels.

    Args:
        X: (N, C, H, W).
        Grid: (N, h, w, 2): x and y, -1 and 1 at the ends.
        align_corners: Whether the ends are the centres of the first and last pixel, or their edges.
        mode: `bilinear`, `nearest` (half to even) or `bicubic` (Keys with -0.75).
        padding_mode: What lies outside: `zeros`, the `border`, or a `reflection`.

    Returns:
        (N, C, h, w), of the type of `X`.

    Raises:
        KernelError: For another mode or shape.
    """
    refuse_value("mode", mode, "bilinear", "nearest", "bicubic")
    refuse_value("padding_mode", padding_mode, "zeros", "border", "reflection")
    if X.ndim != 4 or Grid.ndim != 4 or Grid.shape[::3] != (len(X), 2):
        raise KernelError(f"`X` and `Grid` have shapes {X.shape} and {Grid.shape}")
    x, grid = widened(X), widened(Grid)
    places = []
    for axis, size in ((1, X.shape[2]), (0, X.shape[3])):
        point = grid[..., axis]
        place = (
            (point + 1) / 2 * (size - 1) if align_corners else ((point + 1) * size - 1) / 2
        ).astype(grid.dtype)
        if mode == "bilinear":
            place = _clamped(place, size, padding_mode, align_corners)
        places.append(place)
    taps = [_taps(place, mode) for place in places]
    total = np.zeros((*Grid.shape[:3], X.shape[1]), np.float64)
    pictures = np.arange(len(X))[:, None, None]
    for row, tall in taps[0]:
        for column, wide in taps[1]:
            pixels = np.moveaxis(x, 1, -1)
            inside = np.ones(row.shape, bool)
            clamped = []
            for place, size in ((row, X.shape[2]), (column, X.shape[3])):
                moved = _clamped(place, size, padding_mode, align_corners)
                inside &= (moved >= 0) & (moved <= size - 1)
                clamped.append(np.clip(np.nan_to_num(moved), 0, size - 1).astype(np.int64))
            found = pixels[pictures, clamped[0], clamped[1]].astype(np.float64)
            found = np.where(inside[..., None], found, 0)
            total += found * (tall * wide)[..., None]
    return (narrowed(np.moveaxis(total, -1, 1), X.dtype),)


def _clamped(place: Reals, size: int, padding_mode: str, align_corners: int) -> Reals:
    """Return positions that lie inside, where the mode brings them there."""
    if padding_mode == "border":
        return np.asarray(np.clip(place, 0, size - 1))
    if padding_mode == "zeros":
        return place
    low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
    way = high - low
    if way == 0:
        return np.zeros_like(place)
    turn = np.mod(place.astype(np.float64) - low, 2 * way)
    return np.asarray(np.where(turn > way, 2 * way - turn, turn) + low).astype(place.dtype)


def _taps(place: Reals, mode: str) -> list[tuple[Reals, Reals]]:
    """Return the pixels along one axis that a point is made of, and their shares."""
    if mode == "nearest":
        return [(np.rint(place), np.ones(place.shape))]
    low = np.floor(place)
    far = (place - low).astype(np.float64)
    if mode == "bilinear":
        return [(low, 1 - far), (low + 1, far)]
    a, taps = -0.75, []
    for step in (-1, 0, 1, 2):
        d = np.abs(far - step)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        away = a * (((d - 5) * d + 8) * d - 4)
        taps.append((low + step, np.where(d <= 1, near, away)))
    return taps
