"""Rotations and biases by position."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.heads import apart, known_size
from onnx_kvtool.contrib.rule import Site, known_type, no_form, refuse_input, refuse_value
from onnx_kvtool.emit.emitter import Refusal, Replacement
from onnx_kvtool.emit.forms import cast, halves, known_dims, positions, reduce, size, unsqueeze
from onnx_kvtool.symbolic.dimensions import dims_of

# RotaryEmbedding of `com.microsoft`, the model for that of ONNX, and its variants.


_D = ir.DataType
_JOINED = "heads are joined in rank 3, not in rank 4, and "


def rotary_embedding(site: Site) -> ir.Value:
    """Write RotaryEmbedding as RotaryEmbedding-23.

    A single position is that of the first row. Without `num_heads`, a head is twice as wide as
    `cos_cache`. Refuses packed batches, and a scale, which onnxruntime does not apply on a CPU.
    """
    refuse_value(site, "is_packed_batching", None, 0)
    refuse_value(site, "scale", None, 1.0)
    x, cos = site.operands("input", "cos_cache")
    dims, table = known_dims(x, _JOINED), dims_of(cos)
    heads = site.number("num_heads")
    if len(dims) == 3 and not heads:
        width, half = dims[2], None if table is None else table[-1]
        if not isinstance(width, int) or not isinstance(half, int) or not half:
            raise Refusal(
                "unknown-size",
                "the number of heads of `RotaryEmbedding` follows from the last dimensions of "
                "`input` and `cos_cache`, which are unknown",
                help="declare their shapes",
            )
        heads = width // (2 * half)
    angles = (cos, site.required("sin_cache"), _positions(site, x, len(dims)))
    return _rotated(site, x, angles, heads if len(dims) == 3 else None)


def _rotated(site: Site, x: ir.Value, angles: Iterable[ir.Value], heads: int | None) -> ir.Value:
    """Return RotaryEmbedding-23 with the attributes of a node; `heads` is None for rank 4."""
    attributes = {
        "interleaved": int(site.number("interleaved") == 1),
        "rotary_embedding_dim": site.number("rotary_embedding_dim"),
    } | ({} if heads is None else {"num_heads": heads})
    return site.op("RotaryEmbedding", x, *angles, attributes=attributes)


def m_rotary_embedding(site: Site) -> ir.Value:
    """Write MRotaryEmbedding as RotaryEmbedding-23 with angles that are gathered first.

    Each of the three positions of a token has its own columns of the caches. Nodes with the same
    positions, caches and sections share the angles.
    """
    x, cos = site.operands("input", "cos_cache")
    dims, section = known_dims(x, _JOINED), site.attribute("mrope_section")
    heads, layout, factor = (
        site.number("num_heads"),
        site.number("mrope_layout"),
        site.real_or_none("scale"),
    )
    half = known_size(cos, -1, "the last dimension of `cos_cache` of `MRotaryEmbedding`")
    assert isinstance(section, tuple)
    sections = [size for size in section if isinstance(size, int)]
    if len(sections) != 3 or min(sections) < 0 or sum(sections) != half or layout not in (0, 1):
        raise no_form(
            f"`mrope_section` of `MRotaryEmbedding` is {sections} with a `mrope_layout` of "
            f"{layout}, expected three sizes that add up to {half}, and a layout of 0 or 1"
        )
    if len(dims) == 3 and not heads:
        raise no_form("`MRotaryEmbedding` of joined heads has no `num_heads`")
    # Which of three positions each column of the caches belongs to.
    owners = np.repeat(range(3), sections)
    if layout == 1:  # in turns
        owners[:] = 0
        for at in (1, 2):
            owners[at : 3 * sections[at] : 3] = at
    em, angles = site.sharing, []
    rows = em.op("Gather", site.required("position_ids"), owners, axis=0)
    starts = em.op("Mul", em.op("Transpose", rows, perm=[1, 2, 0]), half)
    elements = em.op("Add", starts, list(range(half)), hint="elements")
    for cache in site.operands("cos_cache", "sin_cache"):
        dtype, flat = known_type(cache), em.op("Reshape", cache, [-1], hint="flat")
        found = em.op("Gather", flat, elements, hint="angles")
        if factor not in (None, 1.0):
            wide = em.op("Mul", cast(em, found, _D.FLOAT), factor, hint="scaled")
            found = cast(em, wide, dtype)
        angles.append(found)
    return _rotated(site, x, angles, heads if len(dims) == 3 else None)


def gemma_rotary_embedding(site: Site) -> Replacement:
    """Write GemmaRotaryEmbedding as Sin and Cos of float32, rounded, Mul and Add."""
    dtype, emb = known_type(site.required("q")), site.required("emb")
    op = site.op
    sin, cos = (unsqueeze(site, cast(site, op(name, emb), dtype), [1]) for name in ("Sin", "Cos"))
    query, key = (
        op("Add", op("Mul", site.required(name), cos), op("Mul", site.required(turned), sin))
        for name, turned in (("q", "q_rot"), ("k", "k_rot"))
    )
    return Replacement((query, key))


def _positions(site: Site, x: ir.Value, rank: int) -> ir.Value:
    """Return a position for each row of each batch: (B, L), int64."""
    op = site.op
    given = site.required("position_ids")
    if len(known_dims(given, "there is one position, or one for each row: ")) == 2:
        return given
    axis = 1 if rank == 3 else 2
    rows = op("Add", positions(site, x, axis, place=1, rank=2), given)
    sizes = (size(site, x, at) for at in (0, axis))
    flat = (op("Reshape", one, [1]) for one in sizes)
    shape = op("Concat", *flat, axis=0)
    return op("Expand", rows, shape, hint="positions")


# Biases of attention that depend on how far apart query and key are, of `com.microsoft`.


def relative_position_bias(site: Site) -> ir.Value:
    """Write RelativePositionBias as a Gather of the bias for each distance.

    The bucket of each distance is a constant: all beyond `max_distance` fall into the last one. The
    table is stored head by head, whatever its shape says.
    """
    given, is_both = site.required("bias_table"), site.integer("is_bidirectional") != 0
    what = "`bias_table` of `RelativePositionBias`"
    buckets = known_size(given, 0, f"the number of buckets of {what}")
    heads = known_size(given, 1, f"the number of heads of {what}")
    farthest = site.integer("max_distance")
    op = site.op
    table = op("Reshape", given, [heads, buckets], hint="by_head")
    by_distance = op(
        "Gather", table, _buckets(buckets, farthest, is_both), axis=1, hint="by_distance"
    )
    rows, columns = (
        op("Range", 0, op("Reshape", site.required(name), []), 1)
        for name in ("query_length", "key_length")
    )
    away = op("Sub", columns, op("Reshape", rows, [-1, 1]))
    away = op("Min", op("Max", away, -farthest), farthest)
    away = op("Add", away, farthest, hint="distance")
    bias = op("Gather", by_distance, away, axis=1)
    return unsqueeze(site, bias, [0])


def _buckets(count: int, farthest: int, is_both: bool) -> np.ndarray:
    """Return the bucket of each distance from -`farthest` to `farthest`, of key from query."""
    distances = np.arange(-farthest, farthest + 1)
    share = count // 2 if is_both else count
    exact = share // 2
    if exact < 1 or farthest <= exact:
        raise no_form(
            f"`max_distance` of `RelativePositionBias` is {farthest} for {count} buckets, expected "
            "more than have a bucket of their own"
        )
    away = np.abs(distances) if is_both else np.maximum(-distances, 0)
    ratio = np.maximum(away, 1).astype(np.float32) / np.float32(exact)
    grown = np.log(ratio) / np.log(np.float32(farthest / exact)) * np.float32(share - exact)
    found = np.where(away < exact, away, np.minimum(exact + grown.astype(np.int64), share - 1))
    return np.asarray(found + np.where(is_both & (distances > 0), share, 0), np.int64)


def gated_relative_position_bias(site: Site) -> ir.Value:
    """Write GatedRelativePositionBias as MatMul, ReduceSum, Sigmoid, Mul and Add.

    Refuses tokens without padding.
    """
    refuse_input(site, "token_offset")
    query = site.required("query_layer")
    op, heads = site.op, site.integer("num_heads")
    rows = apart(site, op("Add", query, site.required("query_bias")), heads)
    gates = op("Add", op("MatMul", rows, site.required("weight")), site.required("bias"))
    u, r = (op("Sigmoid", reduce(site, "ReduceSum", half, [-1])) for half in halves(site, gates))
    factor = op("Sub", op("Mul", r, site.required("eco_a")), 1)
    factor = op("Add", op("Mul", u, factor), 2, hint="gate")
    return op("Mul", factor, site.required("rel_pos"))
