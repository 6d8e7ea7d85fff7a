"""The elements of tensors that a file holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.files.external_data import array

__all__ = ["elements"]


def elements(tensor: ir.TensorProtocol) -> NDArray[Any] | None:
    """Return the elements of a tensor; None where nobody can read them, which makes them unknown.

    That is a tensor whose data does not fit its shape, of an undefined type, in a file that is
    missing or must not be opened, or a sparse one.
    """
    try:
        return np.asarray(array(tensor))
    except KvtoolError:
        return None
