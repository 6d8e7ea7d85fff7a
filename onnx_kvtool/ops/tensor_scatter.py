"""TensorScatter-24 as its schema and text define it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from onnx_kvtool.ops.view import MalformedNode, NodeView

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Mode", "TensorScatter"]

Mode = Literal["linear", "circular"]


class TensorScatter(NodeView):
    """TensorScatter-24: `update` written into a copy of `past_cache`, one start per batch row.

    `present_cache[b, ..., write_indices[b] + s, ...] = update[b, ..., s, ...]`, where the row is
    taken modulo max_sequence_length in circular mode. Only the sequence coordinate is wrapped: the
    prose says so, and the pseudo-code of the first texts, which wraps every coordinate, was
    corrected in onnx 1.23.1.

    Attributes:
        past_cache: (B, D1, ..., S, ..., Dn); S is max_sequence_length.
        update: (B, D1, ..., L, ..., Dn), L <= S; L is sequence_length.
        write_indices: (B,), int64; None means zero for every batch row.
        present_cache: As `past_cache`.
        axis: The sequence axis as written, or the schema's default.
        mode: `linear` or `circular`.

    Raises:
        MalformedNode: As `NodeView`, and if `mode` is another string.
    """

    def __init__(self, node: ir.Node, opset: int) -> None:
        super().__init__(node, opset)
        self.past_cache = self.required("past_cache")
        self.update = self.required("update")
        self.write_indices = self.input("write_indices")
        self.present_cache = node.outputs[0]
        self.axis = self.integer("axis")
        mode = self.string("mode")
        if mode not in ("linear", "circular"):
            raise MalformedNode("bad-mode", f"`mode` is `{mode}`, expected `linear` or `circular`")
        self.mode = cast(Mode, mode)

    @property
    def rank(self) -> int | None:
        """Rank of the caches and the update; None when neither has a known shape.

        Raises:
            MalformedNode: If `past_cache` and `update` have different known ranks, or one of them
                is below 2.
        """
        ranks = {
            value.name: len(value.shape)
            for value in (self.past_cache, self.update, self.present_cache)
            if value.shape is not None
        }
        if len(set(ranks.values())) > 1:
            given = ", ".join(f"`{name}` has rank {rank}" for name, rank in ranks.items())
            raise MalformedNode(
                "rank-mismatch", f"past_cache, update and present_cache differ in rank: {given}"
            )
        if not ranks:
            return None
        rank = next(iter(ranks.values()))
        if rank < 2:
            raise MalformedNode("rank-mismatch", f"the cache has rank {rank}, expected at least 2")
        return rank

    @property
    def sequence_axis(self) -> int | None:
        """The axis counted from the front; None when it is negative and the rank is unknown.

        Raises:
            MalformedNode: If it is the batch axis or lies outside the rank.
        """
        axis, rank = self.axis, self.rank
        if rank is None:
            if axis == 0:
                raise MalformedNode("axis-is-batch", "`axis` is 0, the batch dimension")
            return axis if axis > 0 else None
        if not -rank <= axis < rank:
            raise MalformedNode(
                "axis-out-of-range", f"`axis` is {axis}, expected {-rank} to {rank - 1}"
            )
        if axis % rank == 0:
            raise MalformedNode(
                "axis-is-batch",
                f"`axis` is {axis}, which is the batch dimension of a cache of rank {rank}",
                help="set `axis` to the sequence dimension",
            )
        return axis % rank
