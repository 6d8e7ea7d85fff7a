"""What is said of a value: its type, its shape, its extremes, and its elements if they are few."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onnx_kvtool.core.record import Key, Record
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.runtime.engine.type_check import element_type
from onnx_kvtool.runtime.kernels.kernel import Array, Value
from onnx_kvtool.runtime.sessions import Array as AnyArray

__all__ = ["SMALL", "Summary", "TypeFacts", "plain", "summarize", "type_facts"]


SMALL = 64
"""Elements up to which the values themselves are reported."""

Scalar = bool | int | float | str


@dataclass(frozen=True, slots=True)
class TypeFacts(Record):
    """A value without its elements.

    Attributes:
        name: Its name.
        dtype: Element type (`float32`); None for a sequence and for an absent value.
        shape: Dimensions; None likewise.
        length: Number of elements of a sequence; None for everything else.
    """

    name: str
    dtype: str | None
    shape: tuple[int, ...] | None
    length: int | None = None

    JSON: ClassVar[tuple[str | Key, ...]] = (
        "name", "dtype", "shape", Key("length", is_optional=True),
    )  # fmt: skip

    def __str__(self) -> str:
        if self.length is not None:
            return f"sequence of {self.length}"
        return "nothing" if self.dtype is None else f"{self.dtype} {self.shape}"


@dataclass(frozen=True, slots=True)
class Summary(Record):
    """A value in few words.

    Infinities and NaN are the text `inf`, `-inf` and `nan`, complex numbers such as `1+2j`.

    Attributes:
        type: What it is.
        min: The least element that is not NaN; None when there is none, and for strings and complex
            numbers.
        max: The greatest one, likewise.
        nan: Number of elements that are NaN.
        values: The elements as nested lists if there are at most `SMALL`; None if there are more.
        items: The elements of a sequence; None for everything else.
    """

    type: TypeFacts
    min: Scalar | None = None
    max: Scalar | None = None
    nan: int = 0
    values: Any = None
    items: tuple[Summary, ...] | None = None

    JSON = (
        Key("type", parts=("name", "dtype", "shape", "length")),
        "min",
        "max",
        "nan",
        "values",
        Key("items", is_optional=True),
    )


def type_facts(name: str, value: Value) -> TypeFacts:
    """Return type and shape of a value."""
    if isinstance(value, list):
        return TypeFacts(name, None, None, len(value))
    if value is None:
        return TypeFacts(name, None, None)
    array: Array = np.asarray(value)
    found = element_type(array.dtype)
    dtype = str(array.dtype) if found is None else dtype_name(found)
    return TypeFacts(name, dtype, tuple(array.shape))


def summarize(name: str, value: Value) -> Summary:
    """Return what is said of a value."""
    facts = type_facts(name, value)
    if isinstance(value, list):
        items = tuple(summarize(f"{name}[{i}]", item) for i, item in enumerate(value))
        return Summary(facts, items=items)
    if value is None:
        return Summary(facts)
    array: Array = np.asarray(value)
    values = _nested(array) if array.size <= SMALL else None
    if array.dtype == object or array.dtype.kind == "c":
        return Summary(facts, values=values)
    wide = _comparable(array)
    is_nan = np.isnan(wide) if wide.dtype.kind == "f" else np.zeros(wide.shape, np.bool_)
    kept = wide[~is_nan]
    low, high = (plain(kept.min()), plain(kept.max())) if kept.size else (None, None)
    return Summary(facts, low, high, int(np.count_nonzero(is_nan)), values)


def plain(element: Any) -> Scalar:
    """Return an element as JSON can hold it; a number that it cannot hold as text."""
    if isinstance(element, str):
        return element
    if isinstance(element, (bool, np.bool_)):
        return bool(element)
    array: np.ndarray[Any, Any] = np.asarray(element)
    if array.dtype.kind == "c":
        return str(complex(array)).strip("()")
    number = _comparable(array)
    if number.dtype.kind in "iu":
        return int(number)
    # With the digits that tell apart the values of its own type: 0.1, not 0.10000000149011612.
    short = float(str(array[()])) if array.dtype.isbuiltin != 2 else float(number)
    return short if math.isfinite(short) else str(short)


def _comparable(array: AnyArray) -> np.ndarray[Any, Any]:
    """Return an array in a type of numpy that has an order and holds every element."""
    if array.dtype.isbuiltin != 2:
        return array
    is_whole = "int" in array.dtype.name
    return array.astype(np.int64 if is_whole else np.float64)


def _nested(array: Array) -> Any:
    if array.ndim == 0:
        return plain(array[()])
    return [_nested(item) if array.ndim > 1 else plain(item) for item in array]
