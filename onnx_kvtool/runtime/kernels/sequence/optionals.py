"""Optional-15 and the operators that look into one, at 15 and 18."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array, Value

__all__ = ["optional", "optional_get_element", "optional_has_element"]


def optional(input: Value = None, *, type: object = None) -> tuple[Value]:
    """Return an optional that holds `input`, or nothing if that is absent.

    Args:
        input: A tensor or sequence; None for none.
        type: The type of what is not there; matters to type inference only.
    """
    return (input,)


def optional_get_element(input: Value) -> tuple[Value]:
    """Return what an optional holds; from opset 18 on, a tensor or sequence is its own element.

    Raises:
        KernelError: If it holds nothing.
    """
    if input is None:
        raise KernelError(
            "`input` holds nothing, expected an element", help="ask OptionalHasElement first"
        )
    return (input,)


def optional_has_element(input: Value = None) -> tuple[Array]:
    """Return whether an optional holds something, bool, of shape (); False when it is absent."""
    return (np.asarray(input is not None),)
