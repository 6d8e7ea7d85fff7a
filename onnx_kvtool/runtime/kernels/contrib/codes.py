"""What codes stand for, and the codes of numbers: scales and zero points of one element."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import Reals

__all__ = ["codes_of", "numbers_of"]


def numbers_of(x: Array, scale: Array, zero: Array | None, name: str) -> Reals:
    """Return (x - zero) * scale in float32.

    Raises:
        KernelError: If scale or zero point have more than one element; `name` is that of `x`.
    """
    _check(name, scale, zero)
    away = x.astype(np.float32) - (0 if zero is None else zero.reshape(()).astype(np.float32))
    return np.asarray(away * scale.reshape(()).astype(np.float32), np.float32)


def codes_of(
    numbers: Reals, scale: Array, zero: Array | None, dtype: np.dtype[np.generic], name: str
) -> Array:
    """Return numbers divided by the scale, rounded to even, shifted and clipped to `dtype`.

    Raises:
        KernelError: If scale or zero point have more than one element; `name` is that of the
            result.
    """
    _check(name, scale, zero)
    limits = np.iinfo(dtype.name)
    with np.errstate(all="ignore"):
        quotient = np.rint(numbers.astype(np.float32) / scale.reshape(()).astype(np.float32))
        moved = quotient + (0 if zero is None else zero.reshape(()).astype(np.float32))
        whole = np.where(np.isnan(moved), limits.min, np.clip(moved, limits.min, limits.max))
    return np.asarray(whole).astype(dtype)


def _check(name: str, scale: Array, zero: Array | None) -> None:
    for what, value in (("scale", scale), ("zero point", zero)):
        if value is not None and value.size != 1:
            raise KernelError(
                f"the {what} of `{name}` has shape {value.shape}, expected one element"
            )
