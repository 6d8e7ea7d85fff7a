"""One cache of a model: what it is, how it is updated, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import AT_NODE, Location
from onnx_kvtool.core.record import Key, Misfit, Record, filled
from onnx_kvtool.core.words import binary_bytes, counted
from onnx_kvtool.ops.operators import Mode
from onnx_kvtool.ops.traits import DTYPE_FORM
from onnx_kvtool.symbolic.dimensions import Dim, Dims, bind_dim, product

CacheKind = Literal[
    "tensor_scatter",
    "scatter_nd",
    "scatter_elements",
    "concat",
    "attention",
    "group_query_attention",
    "where",
]
"""What updates the cache. `attention` is ONNX's Attention or one of onnxruntime's that is not
GroupQueryAttention; `where` is any elementwise choice between the new row and the old cache."""


class RotatedCache(NamedTuple):
    """A window that one model keeps in order, and another one in a circular cache.

    The row of position p is row p modulo the capacity of the circular cache.

    Attributes:
        past: Name of the input of both models.
        arrangement: Where the ordered cache has its rows: it has only rows in use (`grows`), or it
            has a fixed size and fills from its first row on (`first`), or it always ends at its
            last row (`last`). A full cache drops its first rows for new ones.
        rows: Most rows in the ordered cache.
    """

    past: str
    arrangement: Literal["grows", "first", "last"]
    rows: int


@dataclass(frozen=True, slots=True)
class InPlace(Record):
    """Whether a runtime may write the update into the buffer of the past.

    Attributes:
        possible: Whether nothing in the model prevents it.
        reason: What prevents it; None if it is possible.
    """

    possible: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Cache(Record):
    """A tensor that a model takes, updates and returns.

    Attributes:
        kind: The update that writes it.
        location: The node that updates it; in a function body, the place there.
        past: Name of the graph input or initializer with the cache, otherwise of the first value of
            the update; None if there is none.
        present: Name of the graph output with the updated cache, otherwise of the updated value;
            None if the operator does not output it.
        update: Name of the value with the new rows; None if the graph has no such value.
        write_indices: Name of the value with the position of the first new row, per sequence or
            common; None if there is none or it is not proven.
        dtype: Element type; None when unknown.
        shape: Dimensions of the past, or of the present if there is no past; None if unknown.
        axis: The sequence axis in `shape`, never negative; None if not proven.
        mode: Whether positions past the end wrap around; None for an update without positions, or
            if not proven.
        is_growing: Whether the present is the rows of the past and the new ones.
        batch_axis: The batch axis in `shape`; None if unknown.
        in_place: Whether a runtime may update it in place.
        past_value: The graph input, initializer or other value that `past` names.
        node: The node that updates it. Good only as long as the model is not edited.
        calls: The calls of model-local functions around `node`, outermost first.
        is_rolling: Whether the present is only some of the rows of the past and the new ones, such
            as the newest.
    """

    kind: CacheKind
    location: Location
    past: str | None
    present: str | None
    update: str | None
    write_indices: str | None
    dtype: ir.DataType | None
    shape: Dims | None
    axis: int | None
    mode: Mode | None
    is_growing: bool
    batch_axis: int | None
    in_place: InPlace
    past_value: ir.Value | None = field(repr=False, compare=False)
    node: ir.Node = field(repr=False, compare=False)
    calls: tuple[ir.Node, ...] = field(default=(), repr=False, compare=False)
    is_rolling: bool = False

    JSON = (
        "kind",
        AT_NODE,
        "past",
        "present",
        "update",
        "write_indices",
        Key("dtype", form=DTYPE_FORM),
        "shape",
        "axis",
        "mode",
        Key("is_growing", "growing"),
        Key("is_rolling", "rolling"),
        "batch_axis",
        "capacity",
        "bytes_per_token",
        "total_bytes",
        "in_place",
    )

    @property
    def capacity(self) -> Dim:
        """Rows along `axis`: the capacity, or the current rows if it grows; None if unknown."""
        return None if self.shape is None or self.axis is None else self.shape[self.axis]

    @property
    def bytes_per_token(self) -> int | float | None:
        """Bytes of one row of one sequence; None unless all other dimensions are numbers.

        A row of 4-bit elements may end in the middle of a byte.
        """
        if self.shape is None or self.axis is None or self.batch_axis is None:
            return None
        rest = [d for i, d in enumerate(self.shape) if i not in (self.axis, self.batch_axis)]
        bits = _bits(product(rest), self.dtype)
        if bits is None:
            return None
        return bits / 8 if bits % 8 else bits // 8

    @property
    def total_bytes(self) -> int | None:
        """Bytes of the whole tensor; None unless all dimensions are numbers."""
        bits = _bits(None if self.shape is None else product(self.shape), self.dtype)
        return None if bits is None else (bits + 7) // 8

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Cache:
        """Return the cache from its JSON object, without its graph."""
        cache: Cache = filled(cls, data, past_value=None, node=ir.Node("", "", []))
        rank = None if cache.shape is None else len(cache.shape)
        for name, axis in (("axis", cache.axis), ("batch_axis", cache.batch_axis)):
            if rank is not None and axis is not None and not 0 <= axis < rank:
                raise Misfit(f"has `{name}` {axis} of a shape of {counted(rank, 'dimension')}")
        return cache

    def bind(self, dims: Mapping[str, int]) -> Cache:
        """Return the cache with sizes for its symbolic dimensions."""
        return replace(self, shape=bound(self.shape, dims))


def bound(shape: Dims | None, dims: Mapping[str, int]) -> Dims | None:
    """Return `shape` with the sizes from `dims` for its symbolic dimensions."""
    return None if shape is None else tuple(bind_dim(dim, dims) for dim in shape)


def _bits(count: int | None, dtype: ir.DataType | None) -> int | None:
    if count is None or dtype in (None, ir.DataType.UNDEFINED, ir.DataType.STRING):
        return None
    assert dtype is not None
    return count * int(dtype.bitwidth)


# The total cost of the caches of a model.


@dataclass(frozen=True, slots=True)
class Footprint:
    """The total cost of the caches of a model; a cache that two nodes update counts once.

    Attributes:
        count: Number of caches.
        unknown: Names of those whose bytes per token are unknown.
        bytes_per_token: Bytes per token and sequence; None if one is unknown.
        total_bytes: Bytes of all; None when one is unknown.
    """

    count: int
    unknown: tuple[str, ...]
    bytes_per_token: int | float | None
    total_bytes: int | None


def kept(caches: Sequence[Cache]) -> list[Cache]:
    """Return each cache once, though several nodes may update it in turn or in branches."""
    found: dict[object, Cache] = {}
    for cache in caches:
        value = cache.past_value
        name = cache.past or cache.present  # the only fields in a report from JSON
        found.setdefault(id(value) if value is not None else name, cache)
    return list(found.values())


def footprint(caches: Sequence[Cache]) -> Footprint:
    """Return the total cost of `caches`."""
    distinct = kept(caches)
    each = [cache.bytes_per_token for cache in distinct]
    known = [size for size in each if size is not None]
    totals = [total for cache in distinct if (total := cache.total_bytes) is not None]
    return Footprint(
        count=len(distinct),
        unknown=tuple(c.past or c.present or "" for c in distinct if c.bytes_per_token is None),
        bytes_per_token=sum(known) if len(known) == len(each) else None,
        total_bytes=sum(totals) if len(totals) == len(distinct) else None,
    )


def growing(caches: Sequence[Cache]) -> list[Cache]:
    """Return the caches whose present is the past and the new rows."""
    return [cache for cache in caches if cache.is_growing and cache.past is not None]


def growth_in_words(caches: Sequence[Cache]) -> str:
    """Return the cost of a step due to growing caches, as a clause."""
    text = f"a step copies all rows of {counted(len(caches), 'cache')}"
    per_token = footprint(caches).bytes_per_token
    if per_token is None:
        return text
    return f"{text}, {binary_bytes(per_token)} for each token so far of one sequence"
