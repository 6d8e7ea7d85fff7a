"""Conditions of control flow."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Value

__all__ = ["flag"]


def flag(name: str, value: Value) -> bool:
    """Return a condition as a boolean.

    Args:
        name: What the schema calls it.
        value: bool, one element; its rank does not matter, as the text asks for one element only.

    Raises:
        KernelError: If it is no boolean array of one element.
    """
    if not isinstance(value, np.ndarray) or value.dtype != np.bool_ or value.size != 1:
        got = (
            f"{value.dtype} {value.shape}"
            if isinstance(value, np.ndarray)
            else type(value).__name__
        )
        raise KernelError(f"`{name}` is {got}, expected one element of type bool")
    return bool(value.reshape(-1)[0])
