"""Elements of 2, 4 or 8 bits that lie in bytes, the first in the low bits."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["unpacked"]


def unpacked(packed: Array, bits: int) -> Array:
    """Return the elements of uint8 along the last axis, 8 / bits times as long."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    spread = packed.astype(np.uint8, copy=False)[..., None] >> shifts
    elements = spread & np.uint8(2**bits - 1)
    return elements.reshape(*packed.shape[:-1], packed.shape[-1] * shifts.size)
