"""Attention at opsets 23, 24 and 25."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx_kvtool.ops.view import NodeView

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Attention"]


class Attention(NodeView):
    """Attention-23/24/25: scaled dot-product attention of grouped heads over a key/value cache.

    Letters: B batch, H query heads, G = H / KV query heads per key/value head, L query length,
    S total key length (past and new), D head size, E value head size.

    Attributes:
        query: (B, H, L, D), or (B, L, H * D).
        key: (B, KV, S - P, D), or (B, S - P, KV * D).
        value: (B, KV, S - P, E), or (B, S - P, KV * E).
        attn_mask: Broadcasts to (B, H, L, S), the last dimension possibly shorter; True or an added
            number where a key takes part.
        past_key: (B, KV, P, D); None without an internal cache.
        past_value: (B, KV, P, E); None without an internal cache.
        nonpad_kv_seqlen: (B,), int64, valid keys of each row, from opset 24 on; else None.
        pads_mask: Whether a mask that is shorter than S hides the keys behind it, from opset 24 on.
        is_causal: Whether query i sees key j only for j <= i + offset, where offset is P, or
            nonpad_kv_seqlen - L, or 0 (onnx 1.23.2; earlier texts aligned it otherwise).
        scale: Factor of the scores; None means 1 / sqrt(D).
        softcap: Limit of the scores, by tanh, before the mask; 0 means none.
        softmax_precision: Element type in which the softmax is computed; None: that of `query`.
        left_window, right_window: Keys left and right of a query that it sees, from opset 25 on; -1
            means all.
        outputs: Names of the schema of the outputs that the node has.
    """

    def __init__(self, node: ir.Node, opset: int) -> None:
        super().__init__(node, opset)
        self.query = self.required("Q")
        self.key = self.required("K")
        self.value = self.required("V")
        self.attn_mask = self.input("attn_mask")
        self.past_key = self.input("past_key")
        self.past_value = self.input("past_value")
        has_nonpad = any(formal.name == "nonpad_kv_seqlen" for formal in self.facts.inputs)
        self.nonpad_kv_seqlen = self.input("nonpad_kv_seqlen") if has_nonpad else None
        self.pads_mask = has_nonpad
        self.is_causal = bool(self.integer("is_causal"))
        self.scale = self._number("scale")
        self.softcap = self._number("softcap") or 0.0
        precision = self.attribute("softmax_precision")
        self.softmax_precision = precision if isinstance(precision, int) else None
        self.left_window = self._window("left_window_size")
        self.right_window = self._window("right_window_size")
        self.outputs = {
            formal.name: output
            for formal, output in zip(self.facts.outputs, node.outputs, strict=False)
            if output.name
        }

    @property
    def rank(self) -> int | None:
        """Rank of the query: 3 or 4; None when unknown."""
        return None if self.query.shape is None else len(self.query.shape)

    def heads(self) -> tuple[int, int] | None:
        """Return H and KV; None when they are not known as numbers."""
        if self.rank == 3:
            counts = self.attribute("q_num_heads"), self.attribute("kv_num_heads")
        elif self.rank == 4 and self.key.shape is not None and len(self.key.shape) == 4:
            assert self.query.shape is not None
            counts = self.query.shape[1], self.key.shape[1]  # type: ignore[assignment]
        else:
            return None
        heads, kv_heads = counts
        if not isinstance(heads, int) or not isinstance(kv_heads, int):
            return None
        return (heads, kv_heads) if kv_heads > 0 and heads % kv_heads == 0 else None

    def head_sizes(self) -> tuple[int, int] | None:
        """Return D and E; None when they are not known as numbers.

        Query and key have one size. A name that key and value share is that of one size, too.
        """
        heads = self.heads()
        if heads is None:
            return None
        query, key, value = (
            _last_size(operand, self.rank, count if self.rank == 3 else 1)
            for operand, count in (
                (self.query, heads[0]),
                (self.key, heads[1]),
                (self.value, heads[1]),
            )
        )
        size = key if isinstance(key, int) else query
        if not isinstance(value, int) and value is not None and value == key:
            value = size
        if not isinstance(size, int) or not isinstance(value, int):
            return None
        return (size, value) if min(size, value) > 0 else None

    def _number(self, name: str) -> float | None:
        value = self.attribute(name)
        return float(value) if isinstance(value, (int, float)) else None

    def _window(self, name: str) -> int:
        return self.integer(name) if name in self.facts.attributes else -1


def _last_size(operand: ir.Value, rank: int | None, heads: int) -> int | str | None:
    """Return what one head has of the last axis: a number, or its name."""
    shape = operand.shape
    if shape is None or len(shape) != rank:
        return None
    dim = shape[-1]
    if isinstance(dim, int):
        return dim // heads if dim % heads == 0 else None
    return dim.value
