"""Heads of attention apart and together, and Attention-24 over them."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.rule import Builder
from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.forms import scaled_queries
from onnx_kvtool.emit.result import Refusal
from onnx_kvtool.emit.sizes import size
from onnx_kvtool.symbolic.dimensions import Dim, dims_of

__all__ = [
    "Attended",
    "Tokens",
    "apart",
    "attend",
    "dim_of",
    "known_size",
    "number",
    "over_queries",
    "parts",
]


@dataclass(frozen=True, slots=True)
class Tokens:
    """The rows that a query brings.

    Attributes:
        em: Where to build.
        query: (B, L, ...).
    """

    em: Emitter
    query: ir.Value

    @property
    def length(self) -> ir.Value:
        """L: (), int64."""
        return size(self.em, dim_of(self.query, 1), self.query, 1)

    @property
    def batch(self) -> ir.Value:
        """B: (), int64."""
        return size(self.em, dim_of(self.query, 0), self.query, 0)


def dim_of(value: ir.Value, axis: int) -> Dim:
    """Return a size of a value; None when it, or the rank, is unknown."""
    dims = dims_of(value)
    return None if dims is None or not -len(dims) <= axis < len(dims) else dims[axis]


def known_size(value: ir.Value, axis: int, what: str) -> int:
    """Return a size that has to be a number.

    Raises:
        Refusal: If it is none; `what` says what it is.
    """
    dim = dim_of(value, axis)
    if not isinstance(dim, int):
        raise Refusal(
            "unknown-size", f"{what} is unknown", help="declare it, or give it with `--dim`"
        )
    return dim


def apart(em: Emitter, rows: ir.Value, heads: int, width: int | None = None) -> ir.Value:
    """Return (B, L, heads * D) as (B, heads, L, D); `width` is heads * D, where it is known."""
    op, total = Builder(em, rows.dtype or ir.DataType.UNDEFINED), width or dim_of(rows, -1)
    # A number, where it is known, for lowering and for compilers.
    one = total // heads if isinstance(total, int) else -1
    split = op("Reshape", rows, em.constant([0, 0, heads, one], "shape"))
    turned = op("Transpose", split, attributes={"perm": [0, 2, 1, 3]}, hint="heads")
    # `attend` asks for D, which says how the scores are scaled.
    turned.shape = ir.Shape((dim_of(rows, 0), heads, dim_of(rows, 1), one if one > 0 else None))
    return turned


def parts(em: Emitter, rows: ir.Value, widths: tuple[int, ...]) -> tuple[ir.Value, ...]:
    """Return what lies side by side on the last axis."""
    dtype = rows.dtype or ir.DataType.UNDEFINED
    sizes = em.constant(list(widths), "widths")
    return em.multi("Split", rows, sizes, attributes={"axis": -1}, dtypes=[dtype] * len(widths))


@dataclass(frozen=True, slots=True)
class Attended:
    """What Attention-24 is given beside query, key and value.

    Attributes:
        scale: Factor of the scores; None and 0 for 1 / sqrt(D).
        is_causal: Whether later keys are hidden.
        softcap: Limit of the scores; 0 for none.
        mask: (B or 1, H or 1, L, S), bool, or numbers that are added.
        nonpad: Valid keys of each row, (B,), int64.
        past_key: (B, H, P, D); None without a cache that grows.
        past_value: Likewise.
    """

    scale: float | None = None
    is_causal: bool = False
    softcap: float = 0.0
    mask: ir.Value | None = None
    nonpad: ir.Value | None = None
    past_key: ir.Value | None = None
    past_value: ir.Value | None = None


def attend(
    em: Emitter, query: ir.Value, key: ir.Value, value: ir.Value, how: Attended
) -> tuple[ir.Value, ir.Value | None, ir.Value | None]:
    """Return attention of separate heads as (B, L, H * E), and with a past the present ones.

    Args:
        em: Where to build.
        query: (B, H, L, D).
        key: (B, KV, S, D).
        value: (B, KV, S, E).
        how: The rest.
    """
    dtype = query.dtype or ir.DataType.UNDEFINED
    attributes: dict[str, AttributeValue] = {}
    if how.is_causal:
        attributes["is_causal"] = 1
    width = dim_of(query, 3)
    scale = how.scale or (width**-0.5 if isinstance(width, int) and width else None)
    if scale:
        query, attributes["scale"] = scaled_queries(em, query, dtype, scale)
    if how.softcap > 0:
        attributes["softcap"] = how.softcap
    inputs = [query, key, value, how.mask, how.past_key, how.past_value, how.nonpad]
    while inputs[-1] is None:
        inputs.pop()
    has_past = how.past_key is not None
    found = em.multi(
        "Attention", *inputs, attributes=attributes, dtypes=[dtype] * (3 if has_past else 1)
    )
    op = Builder(em, dtype)
    rows = op("Transpose", found[0], attributes={"perm": [0, 2, 1, 3]}, hint="rows")
    output = op("Reshape", rows, em.constant([0, 0, -1], "shape"), hint="joined")
    return (output, found[1], found[2]) if has_past else (output, None, None)


def over_queries(em: Emitter, mask: ir.Value, tokens: Tokens) -> ir.Value:
    """Return a mask (.., 1, S) with a row for each query, which runtimes want: (.., L, S)."""
    one = em.constant([1], "one")
    length = em.op("Reshape", tokens.length, one)
    shape = em.op("Concat", one, one, length, one, attributes={"axis": 0})
    return em.op("Expand", mask, shape, dtype=mask.dtype or ir.DataType.UNDEFINED)


def number(em: Emitter, value: float, dtype: ir.DataType, hint: str) -> ir.Value:
    """Return a number of an element type, the nearest that is finite: ()."""
    greatest = float(ml_dtypes.finfo(dtype.numpy()).max)  # type: ignore[no-untyped-call]
    return em.constant(np.array(min(max(value, -greatest), greatest), dtype.numpy()), hint)
