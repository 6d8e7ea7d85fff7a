"""Keys and values of the layout (B, S, KV * width) as operands of a product over heads.

A product wants the heads in front of the rows, which takes a Transpose of the whole cache in each
step, where a fused kernel reads the rows with a stride. With a batch of one, onnxruntime (1.15 and
later) reads them so too: it absorbs a Transpose that moves the first dimension alone, and S is the
first dimension that counts.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.ops.attention import Attention
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["flat_operand", "rows_stay"]


def rows_stay(view: Attention) -> bool | None:
    """Return whether the rows can be read where they lie; None where the batch size decides.

    onnxruntime 1.31.1 divides by S there and dies of an empty cache: S has to be a number that is
    not zero.
    """
    for cache in (view.key, view.value):
        dims = dims_of(cache)
        if dims is None or not isinstance(dims[1], int) or dims[1] == 0:
            return False
    batches = [dims[0] for v in (view.query, view.key, view.value) if (dims := dims_of(v))]
    known = [batch for batch in batches if isinstance(batch, int)]
    return known[0] == 1 if known else None


def flat_operand(
    em: Emitter,
    cache: ir.Value,
    heads: tuple[int, ...],
    width: int,
    *,
    turned: bool,
    stays: bool,
) -> ir.Value:
    """Return (B, S, KV * width) as (B, *heads, S, width), or with the last two exchanged.

    It takes one Transpose: two in a row would be merged by onnxruntime into one of a slow kind
    (measured: nine times slower with an Unsqueeze in between).

    Args:
        em: Where to build.
        cache: Keys or values.
        heads: (KV,), or (KV, 1) where the product broadcasts over groups of query heads.
        width: Size of a head.
        turned: Whether the rows become columns, as the first product takes the keys.
        stays: Whether B is 1 and the Transpose shall move the rows alone; see `rows_stay`.
    """
    dims, last = dims_of(cache), len(heads) + 2
    lead, rows = [0, 0], 1
    if stays:
        assert dims is not None
        assert isinstance(dims[1], int)
        lead, rows = [dims[1], 1], 0
    dtype = cache.dtype or ir.DataType.UNDEFINED
    shape = em.constant([*lead, *heads, width], "shape")
    split = em.op("Reshape", cache, shape, dtype=dtype)
    others = [axis for axis in range(last) if axis != rows]
    perm = [*others, *((last, rows) if turned else (rows, last))]
    return em.op("Transpose", split, attributes={"perm": perm}, dtype=dtype)
