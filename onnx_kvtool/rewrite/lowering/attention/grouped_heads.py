"""Attention computed with the query heads grouped over the key/value heads.

Letters as in `ops.attention`. Emits, for G = H / KV query heads per key/value head,

    q      = Reshape(Q * scale)                     # (B, KV, G, L, D)
    k, v   = Unsqueeze(K), Unsqueeze(V)             # (B, KV, 1, S, D), (B, KV, 1, S, E)
    scores = MatMul(q, Transpose(k))                # (B, KV, G, L, S)
    scores = tanh(scores / softcap) * softcap       # where a softcap is set
    bias   = Where(seen, 0, -inf) + attn_mask       # (B or 1, 1, 1, L or 1, S), for all layers
    y      = MatMul(Softmax(scores + bias), v)      # (B, KV, G, L, E)
    Y      = Where(no key is seen, 0, y)            # back in the layout of Q

where `bias` of a mask that differs between heads is (B or 1, KV, G, L or 1, S), and the scores are
an output as (B, H, L, S) in the state that `qk_matmul_output_mode` asks for.

K and V are never repeated: the products take (B, KV, G * L, D), or broadcast over G where a size is
not known well enough for that, or two rows are all there is. Without groups the dimension G is left
out.
Equal to the schema's body up to rounding: the body multiplies Q and K by sqrt(scale) each.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter, Replacement
from onnx_kvtool.emit.forms import cast, size, squeeze, unsqueeze, where
from onnx_kvtool.ops.operators import Attention
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.rewrite.lowering.attention.fused import ScoreShapes, shapes_together
from onnx_kvtool.rewrite.lowering.attention.mask import (
    Window,
    bias_of,
    flat_operand,
    mask_fits,
    rows_stay,
)
from onnx_kvtool.symbolic.dimensions import dim_of


def grouped_attention(view: Attention, em: Emitter, *, may_branch: bool) -> Replacement | None:
    """Emit the computation above.

    Args:
        view: The Attention.
        em: Where to build.
        may_branch: Whether an If may ask for the batch size, where that decides how keys and values
            of the layout (B, S, KV * D) are read best; see `rows_stay`.

    Returns:
        None, for the schema's body, where head counts or sizes are no numbers, the element types
        differ or are unknown, or it is unknown whether the user's mask differs between grouped
        heads.
    """
    heads, sizes, dtype = view.heads(), view.head_sizes(), view.query.dtype
    if heads is None or sizes is None or dtype not in FLOAT_TYPES:
        return None
    if view.integer("qk_matmul_output_mode") not in range(4):
        return None
    inputs = (view.key, view.value, view.past_key, view.past_value)
    if any(v is not None and v.dtype != dtype for v in inputs):
        return None
    if (view.past_key is None) != (view.past_value is None):
        return None
    if view.past_key is not None and view.nonpad_kv_seqlen is not None:
        return None  # the text asks for one cache, not two
    mask = view.attn_mask
    differing = None if heads[0] == heads[1] else heads[0]
    if mask is not None and not mask_fits(mask, dtype, differing):
        return None
    return _Grouped(view, em, dtype, heads, sizes, may_branch).emit()


class _Grouped:
    """One run of `grouped_attention`."""

    def __init__(
        self,
        view: Attention,
        em: Emitter,
        dtype: ir.DataType,
        heads: tuple[int, int],
        sizes: tuple[int, int],
        may_branch: bool,
    ) -> None:
        self.view, self.em, self.dtype = view, em, dtype
        self._op = em.op
        self.heads, self.kv_heads = heads
        self.group = self.heads // self.kv_heads
        self.rank = 4 if self.group == 1 else 5
        self.head_size, self.value_size = sizes
        self.gives_scores = "qk_matmul_output" in view.outputs
        self.scores: dict[int, ir.Value] = {}
        self.shapes: ScoreShapes | None = None
        # Only products of these types absorb a Transpose; what a branch computes ends in it.
        absorbed = dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)
        self.may_branch = may_branch and absorbed and not self.gives_scores

    def emit(self) -> Replacement:
        view = self.view
        wanted = {"present_key", "present_value"} & set(view.outputs)
        direct = view.rank == 3 and view.past_key is None
        known: dict[str, ir.Value] = {}
        if wanted or not direct:
            known["present_key"] = self._cached(view.key, view.past_key, self.head_size)
            known["present_value"] = self._cached(view.value, view.past_value, self.value_size)
        window = Window(view, view.key, 1) if direct else Window(view, known["present_key"], 2)
        self.shapes = None if direct else self._shapes(window)
        query = self._query()
        bias, empty = bias_of(self.em, window, self.dtype, (self.heads, self.kv_heads))
        if direct:
            weighted = self._over_flat_caches(query, bias)
        else:
            shapes = self.shapes
            keys, values = known["present_key"], known["present_value"]
            if shapes is None:
                keys, values = self._with_group(keys), self._with_group(values)
            rank = 4 if shapes is not None else self.rank
            keys = self._transpose(keys, [*range(rank - 2), rank - 1, rank - 2])
            if shapes is None:
                weighted = self._weighted(query, keys, values, bias)
            else:
                weighted = self._weighted_together(query, keys, values, bias, shapes)
        known["Y"] = self._output(weighted, empty)
        if self.gives_scores:
            known["qk_matmul_output"] = self._scores_output(empty)
        names = {o: name for name, o in view.outputs.items()}
        return Replacement(
            tuple(known[names[o]] if o in names else None for o in view.node.outputs),
            via="grouped",
        )

    def _over_flat_caches(self, query: ir.Value, bias: ir.Value | None) -> ir.Value:
        """Return the weighted values of keys and values that are (B, S, KV * width)."""
        em, view = self.em, self.view

        def weighted(*, stays: bool) -> ir.Value:
            together = stays and self.group > 1
            heads = (self.kv_heads, 1) if self.group > 1 and not together else (self.kv_heads,)
            keys = flat_operand(em, view.key, heads, self.head_size, turned=True, stays=stays)
            values = flat_operand(em, view.value, heads, self.value_size, turned=False, stays=stays)
            if together:
                shapes = shapes_together(em, Window(view, view.key, 1), self.kv_heads, self.group)
                assert shapes is not None  # where rows stay, S is a number
                return self._weighted_together(query, keys, values, bias, shapes)
            return self._weighted(query, keys, values, bias)

        stays = rows_stay(view)
        if stays is not None or not self.may_branch:
            return weighted(stays=bool(stays))
        one = em.sharing.op("Equal", size(em, view.key, 0), 1, hint="is_one")
        bodies = {
            "then_branch": em.nested(lambda: [weighted(stays=True)], hint="one_sequence"),
            "else_branch": em.nested(lambda: [weighted(stays=False)], hint="sequences"),
        }
        return self._op("If", one, attributes=bodies, hint="weighted")

    def _weighted(
        self, query: ir.Value, keys: ir.Value, values: ir.Value, bias: ir.Value | None
    ) -> ir.Value:
        """Return (B, KV, G, L, E) of the query, (B, KV, 1, D, S) and (B, KV, 1, S, E)."""
        scores = self._op("MatMul", query, keys, hint="scores")
        return self._op("MatMul", self._softmax(scores, bias), values, hint="weighted")

    def _weighted_together(
        self,
        query: ir.Value,
        keys: ir.Value,
        values: ir.Value,
        bias: ir.Value | None,
        shapes: ScoreShapes,
    ) -> ir.Value:
        """Return the same of keys (B, KV, D, S) and values (B, KV, S, E).

        The rows of a group are one operand, (B, KV, G * L, D), so that a cache is read once and not
        once for each query head: in onnxruntime 1.32.0 one token over 4096 rows of a contiguous
        cache takes 0.7 to 1.0 of the time then, four tokens 0.5 to 0.8, from 3 heads a group on;
        one over strided rows 0.5 to 0.9.
        """
        zeros = {"allowzero": 1} if shapes.has_zeros else None
        query = self._op("Reshape", query, shapes.of(False, self.head_size), attributes=zeros)
        scores = self._op("MatMul", query, keys, hint="scores")
        scores = self._op("Reshape", scores, shapes.of(True, None), attributes=zeros)
        weights = self._softmax(scores, bias)
        weights = self._op("Reshape", weights, shapes.of(False, None), attributes=zeros)
        weighted = self._op("MatMul", weights, values, hint="weighted")
        return self._op("Reshape", weighted, shapes.of(True, self.value_size), attributes=zeros)

    def _shapes(self, window: Window) -> ScoreShapes | None:
        """Return how a contiguous cache is read once for a group; None if for each head."""
        if self.group == 1 or dim_of(self.view.query, 0) == 0:
            return None
        # Of a buffer of known size onnxruntime 1.32.0 multiplies two single rows, as a decode step
        # has them, in 0.8 to 0.9 of the time that it takes to pack the keys for a product of both.
        may_step = not isinstance(window.length, int) or window.length == 1
        if self.group == 2 and may_step and isinstance(window.total, int):
            return None
        return shapes_together(self.em, window, self.kv_heads, self.group)

    def _query(self) -> ir.Value:
        """Return the scaled query as (B, KV, G, L, D), or (B, H, L, D) without groups."""
        view, query = self.view, self.view.query
        scale = view.scale if view.scale is not None else 1.0 / self.head_size**0.5
        if scale != 1.0:
            query = self._op("Mul", query, scale, hint="scaled")
        heads = [self.kv_heads] if self.group == 1 else [self.kv_heads, self.group]
        if view.rank == 4:
            return query if self.group == 1 else self._over_heads(query, heads, self.head_size)
        if self._is_one_token():
            return self._reshape(query, [0, *heads, 1, self.head_size])
        split = self._reshape(query, [0, 0, *heads, self.head_size])  # (B, L, KV, G, D)
        return self._transpose(split, [0, *range(2, self.rank - 1), 1, self.rank - 1])

    def _with_group(self, cached: ir.Value) -> ir.Value:
        """Return (B, KV, S, width) as (B, KV, 1, S, width); as it is without groups."""
        return cached if self.group == 1 else unsqueeze(self.em, cached, [2])

    def _cached(self, new: ir.Value, past: ir.Value | None, width: int) -> ir.Value:
        """Return keys or values as (B, KV, S, width), the past ones first."""
        if self.view.rank == 3:
            split = self._reshape(new, [0, 0, self.kv_heads, width])
            new = self._transpose(split, [0, 2, 1, 3])
        if past is None:
            return new
        return self._op("Concat", past, new, axis=2, hint="present")

    def _capped(self, scores: ir.Value) -> ir.Value:
        self.scores[0] = scores
        if not self.view.softcap:
            return scores
        cap = self.view.softcap
        scores = self._op("Tanh", self._op("Div", scores, cap, hint="capped"), hint="capped")
        return self._op("Mul", scores, cap, hint="capped")

    def _softmax(self, scores: ir.Value, bias: ir.Value | None) -> ir.Value:
        self.scores[1] = scores = self._capped(scores)
        if bias is not None:
            scores = self._op("Add", scores, bias, hint="biased")
        self.scores[2] = scores
        precision = self.view.softmax_precision
        wanted = self.dtype if precision is None else ir.DataType(precision)
        weights = cast(self.em, scores, wanted)
        weights = self.em.op("Softmax", weights, axis=-1)
        self.scores[3] = cast(self.em, weights, self.dtype)
        return self.scores[3]

    def _scores_output(self, empty: ir.Value | None) -> ir.Value:
        """Return what `qk_matmul_output_mode` asks for: (B, H, L, S)."""
        mode = self.view.integer("qk_matmul_output_mode")
        scores = self.scores[mode]
        if mode == 3 and empty is not None:
            scores = where(self.em, empty, 0.0, scores, hint="probabilities")
        if self.group == 1:
            return scores
        return squeeze(self.em, self._reshape(scores, [0, self.heads, 1, 0, 0]), [2])

    def _output(self, weighted: ir.Value, empty: ir.Value | None) -> ir.Value:
        """Return the result in the layout of the query, zero for rows that saw no key."""
        if empty is not None:
            weighted = where(self.em, empty, 0.0, weighted, hint="output")
        if self.view.rank == 4:
            if self.group == 1:
                return weighted
            return self._over_heads(weighted, [self.heads], self.value_size)
        hidden = self.heads * self.value_size
        if self._is_one_token():
            return self._reshape(weighted, [0, 1, hidden])
        rows = self.rank - 2
        rows_first = self._transpose(weighted, [0, rows, *range(1, rows), self.rank - 1])
        return self._reshape(rows_first, [0, 0, hidden])

    def _over_heads(self, value: ir.Value, heads: list[int], width: int) -> ir.Value:
        """Return (B, ..., L, width) with the given numbers of heads between B and L.

        A Reshape finds one size by itself, unless another one is 0. So it copies B and L where
        neither is known to be above 0.
        """
        batch, length = (dim_of(self.view.query, axis) for axis in (0, 2))
        has_rows = self.shapes is not None and not self.shapes.has_zeros
        if has_rows or (isinstance(batch, int) and batch > 0):
            return self._reshape(value, [0, *heads, -1, width])
        if isinstance(length, int) and length > 0:
            return self._reshape(value, [-1, *heads, length, width])
        if len(heads) == 1:  # one dimension less
            return squeeze(self.em, self._reshape(value, [0, *heads, 1, 0, 0]), [2])
        return self._reshape(unsqueeze(self.em, value, [2]), [0, *heads, 0, 0])

    def _is_one_token(self) -> bool:
        return dim_of(self.view.query, 1 if self.view.rank == 3 else 2) == 1

    def _reshape(self, value: ir.Value, shape: list[int]) -> ir.Value:
        return self._op("Reshape", value, shape)

    def _transpose(self, value: ir.Value, perm: list[int]) -> ir.Value:
        return self._op("Transpose", value, perm=perm)
