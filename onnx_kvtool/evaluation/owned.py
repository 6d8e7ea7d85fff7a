"""Values that belong to whoever gets them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnx_kvtool.runtime.engine.buffers import root
from onnx_kvtool.runtime.kernels.kernel import Value

__all__ = ["apart_from", "owned"]


def apart_from(values: Mapping[str, Value], others: Mapping[str, Value]) -> dict[str, Value]:
    """Return values that share no memory with `others`, copied where they may."""
    taken = {id(root(other)) for other in others.values() if isinstance(other, np.ndarray)}
    return {
        name: value.copy() if isinstance(value, np.ndarray) and id(root(value)) in taken else value
        for name, value in values.items()
    }


def owned(value: Value) -> Any:
    """Return a value whose arrays the caller may write into, of the byte order of the machine."""
    if isinstance(value, list):
        return [owned(item) for item in value]
    if isinstance(value, np.ndarray):
        if value.dtype.byteorder in "<>":  # weights come with the order of the file, spelt out
            return value.astype(value.dtype.newbyteorder("="))
        if not (value.flags.owndata and value.flags.writeable):
            return value.copy()
    return value
