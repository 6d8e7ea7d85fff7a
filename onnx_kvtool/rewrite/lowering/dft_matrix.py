"""The discrete Fourier transform as a real matrix over real and imaginary parts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["LARGEST", "dft_matrix"]

LARGEST = 1 << 20
"""Most elements of a matrix; beyond it a product is no stand-in for a fast transform."""


def dft_matrix(
    size: int, parts: int, length: int | None, *, inverse: bool, onesided: bool
) -> NDArray[np.float64]:
    """Return the weight of each input part in each output part (DFT-20).

    Args:
        size: Elements of the input along the axis; those from `length` on do not count, and those
            that are lacking count as zero.
        parts: 1 for real input, 2 for complex input.
        length: Length of the signal; None for `size`, or for 2 * (size - 1) where the input is
            one half of a spectrum.
        inverse: Whether to transform back, with the factor 1 / length.
        onesided: Whether only the first half of the spectrum is output; with `inverse`, whether
            the input is only the first half, and the output is real.

    Returns:
        (size, parts, results, components), components being 2, or 1 for `inverse` and `onesided`.
    """
    half = inverse and onesided
    count = length if length is not None else (2 * (size - 1) if half else size)
    used = min(size, count // 2 + 1 if half else count)
    results = count // 2 + 1 if onesided and not inverse else count
    # Products are reduced before the multiplication with 2 pi, so that large ones lose nothing.
    turn = np.outer(np.arange(size), np.arange(results)) % max(count, 1)
    angle = 2 * np.pi * turn / max(count, 1) * (1 if inverse else -1)
    weight = np.zeros(size)
    weight[:used] = 1 / count if inverse else 1
    if half:
        # Each element but the first, and the middle one of an even length, stands for two.
        twice = np.arange(size)
        weight[(twice > 0) & (2 * twice != count)] *= 2
    cosine, sine = np.cos(angle) * weight[:, None], np.sin(angle) * weight[:, None]
    matrix = np.empty((size, 2, results, 2))
    matrix[:, 0, :, 0], matrix[:, 0, :, 1] = cosine, sine
    matrix[:, 1, :, 0], matrix[:, 1, :, 1] = -sine, cosine
    return matrix[:, :parts, :, : 1 if half else 2]
