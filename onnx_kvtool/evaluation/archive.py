"""Values in a `.npz` file."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from onnx_kvtool.core.errors import UnwritableOutput
from onnx_kvtool.model_io.atomic import replacing
from onnx_kvtool.runtime.kernels.kernel import Array, Value

__all__ = ["save_values"]


_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every member, so that equal values give equal files."""


def save_values(target: str | os.PathLike[str], values: Mapping[str, Value]) -> None:
    """Write values as a `.npz` file that `numpy.load` reads without pickle, atomically.

    Types that numpy lacks are written as raw bytes (`V2` for bfloat16, `V1` for the narrower ones,
    one element to a byte): `load(...)[name].view(ml_dtypes.bfloat16)` reads them. Strings become
    numpy's fixed-width text. The elements of a sequence are named `name[0]`, `name[1]`, ...; an
    optional that holds nothing is left out.

    Args:
        target: Path of the file; one that is there is replaced.
        values: By name, as an evaluator returns them.

    Raises:
        UnwritableOutput: If the system refuses, or a string ends in a null character, which
            numpy's text drops; nothing is left behind.
    """
    with replacing(target) as file, zipfile.ZipFile(file, "w") as archive:
        for name, value in values.items():
            for member, array in _members(name, value):
                # With a date of its own, which `writestr` takes from the clock.
                info = zipfile.ZipInfo(f"{member}.npy", date_time=_EPOCH)
                with archive.open(info, "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, _plain(member, array), allow_pickle=False)


def _members(name: str, value: Value) -> list[tuple[str, Array]]:
    if isinstance(value, list):
        return [m for i, item in enumerate(value) for m in _members(f"{name}[{i}]", item)]
    return [] if value is None else [(name, np.asarray(value))]


def _plain(name: str, array: Array) -> Array:
    """Return an array in a dtype that numpy can write and read again."""
    if array.dtype == object:
        texts = [str(text) for text in array.ravel().tolist()]
        if any(text.endswith("\0") for text in texts):
            raise UnwritableOutput(
                f"a string of `{name}` ends in a null character, which no .npz file can hold"
            )
        return np.array(texts, np.str_).reshape(array.shape)
    if array.dtype.isbuiltin != 2:
        return array
    raw: np.dtype[Any] = np.dtype(f"V{array.dtype.itemsize}")
    return np.ascontiguousarray(array).reshape(array.shape).view(raw)
