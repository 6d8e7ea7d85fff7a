"""What ScatterElements and ScatterND mean, one update after the other, from their texts alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.runtime.kernels.arrays import DTYPES, array, numbers

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda _, new: new,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def scatter_elements(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int, reduction: str
) -> tuple[np.ndarray, bool]:
    """Return the output, and whether an element was written twice."""
    output, written = data.copy(), Counter[Any]()
    with np.errstate(all="ignore"):
        for place in np.ndindex(indices.shape):
            target = list(place)
            target[axis] = int(indices[place]) % data.shape[axis]
            _update(output, tuple(target), updates[place], reduction, written)
    return output, max(written.values(), default=0) > 1


def scatter_nd(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, reduction: str
) -> tuple[np.ndarray, bool]:
    """Return the output, and whether an element was written twice."""
    output, written = data.copy(), Counter[Any]()
    depth = indices.shape[-1]
    with np.errstate(all="ignore"):
        for place in np.ndindex(indices.shape[:-1]):
            head = tuple(int(i) % n for i, n in zip(indices[place], data.shape, strict=False))
            for tail in np.ndindex(data.shape[depth:]):
                new = updates[(*place, *tail)]
                _update(output, (*head, *tail), new, reduction, written)
    return output, max(written.values(), default=0) > 1


def _update(
    output: np.ndarray, target: Any, new: Any, reduction: str, written: Counter[Any]
) -> None:
    output[target] = FUNCTIONS[reduction](output[target], new)
    written[target] += 1


@st.composite
def reductions(draw: st.DrawFn) -> tuple[str, Any]:
    """Draw a reduction and a dtype that has it."""
    reduction = draw(st.sampled_from(list(FUNCTIONS)))
    dtypes = [dtype for dtype in DTYPES if reduction == "none" or _has(reduction, dtype)]
    return reduction, draw(st.sampled_from(dtypes))


def _has(reduction: str, dtype: Any) -> bool:
    """Return whether a dtype of ScatterElements and ScatterND, strings aside, has a reduction."""
    if np.dtype(dtype).kind == "c":
        return reduction not in ("max", "min")
    return np.dtype(dtype).name == "bfloat16" or np.dtype(dtype).kind in "fiub"


def values(
    rng: np.random.Generator, reduction: str, dtype: Any, shape: tuple[int, ...]
) -> np.ndarray:
    """Return any bits to move, and numbers to reduce."""
    return array(rng, dtype, shape) if reduction == "none" else numbers(rng, dtype, shape)


def layout(array: np.ndarray, transposed: bool) -> np.ndarray:
    """Return a copy, if wanted one whose memory is not in row-major order."""
    return array.T.copy().T if transposed else array.copy()
