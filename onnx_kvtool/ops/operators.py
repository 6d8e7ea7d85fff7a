"""Single operators as their schema and text define them, read through their view."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from onnx_kvtool.core.words import counted
from onnx_kvtool.ops.view import MalformedNode, NodeView, counted_axis

if TYPE_CHECKING:
    import onnx_ir as ir


# Attention at opsets 23, 24 and 25.


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
        softmax_precision: Element type of the softmax; None: that of `query`.
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
        self.nonpad_kv_seqlen = self.find("nonpad_kv_seqlen")
        self.pads_mask = has_nonpad
        self.is_causal = bool(self.integer("is_causal"))
        self.scale = self.real_or_none("scale")
        self.softcap = self.real_or_none("softcap") or 0.0
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
        """Return H and KV; None unless they are numbers."""
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
        """Return D and E; None unless they are numbers.

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


# ScatterElements and ScatterND at opsets 11, 13, 16 and 18.


class _Scatter(NodeView):
    """What both scatters have in common.

    Attributes:
        data: Rank r >= 1.
        indices: Integer positions; negative ones count from the end.
        updates: Values to write.
        output: As `data`.
        reduction: `none`, `add`, `mul` (from 16), `max` or `min` (from 18); `none` below 16, where
            the attribute does not exist. `none` leaves duplicate indices undefined.
    """

    def __init__(self, node: ir.Node, opset: int) -> None:
        super().__init__(node, opset)
        self.data = self.required("data")
        self.indices = self.required("indices")
        self.updates = self.required("updates")
        self.output = node.outputs[0]
        declared = "reduction" in self.facts.attributes
        if not declared and "reduction" in node.attributes:
            raise MalformedNode(
                "unknown-attribute", f"`{node.op_type}` has no `reduction` at opset {opset}"
            )
        self.reduction = self.string("reduction") if declared else "none"
        later = {"add": 16, "mul": 16, "max": 18, "min": 18}.items()
        allowed = {"none", *(name for name, since in later if since <= self.facts.since_version)}
        if self.reduction not in allowed:
            raise MalformedNode(
                "bad-reduction",
                f"`reduction` is `{self.reduction}`, "
                f"expected one of {', '.join(sorted(allowed))} at opset {opset}",
            )


class ScatterElements(_Scatter):
    """ScatterElements-11/13/16/18: one index per element of `updates`, along `axis`.

    `indices` and `updates` have the same shape and the rank of `data`; indices are int32 or int64
    in [-s, s-1] for the size s of `axis`.

    Attributes:
        axis: As written, or the schema's default 0.
    """

    def __init__(self, node: ir.Node, opset: int) -> None:
        super().__init__(node, opset)
        self.axis = self.integer("axis")


class ScatterND(_Scatter):
    """ScatterND-11/13/16/18: one index tuple per slice of `updates`.

    `rank(updates) = rank(indices) + rank(data) - indices.shape[-1] - 1`; indices are int64 only, by
    the schema of every version.
    """


# TensorScatter-24 as its schema and text define it.


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
            MalformedNode: If `past_cache` and `update` have different known ranks, or one below 2.
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
        front = counted_axis(axis, rank)
        if front == 0:
            raise MalformedNode(
                "axis-is-batch",
                f"`axis` is {axis}, which is the batch dimension of a cache of rank {rank}",
                help="set `axis` to the sequence dimension",
            )
        return front


# The equation of Einsum, read into one index name per dimension.


Labels = tuple[str, ...]
"""The index of each dimension of an operand; those under an ellipsis are `.1`, `.0` from the
right, so that operands of different rank share the last ones."""


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Return the indices of each operand and of the output.

    Without `->` the output has the ellipsis and then, in alphabetical order, each index that
    stands once (Einsum-12).

    Raises:
        MalformedNode: If the equation does not fit the operands or names an unknown index.
    """
    texts, right = terms(equation, len(ranks))
    operands = [_term(text, rank, equation) for text, rank in zip(texts, ranks, strict=True)]
    dots = max((tuple(n for n in term if n[0] == ".") for term in operands), key=len)
    if right is not None:
        head, found, tail = right.partition("...")
        output = (*head, *(dots if found else ()), *tail)
    else:
        count = Counter(name for term in operands for name in term)
        output = (*dots, *sorted(n for n, c in count.items() if c == 1 and n[0] != "."))
    if not set(dots) <= set(output):
        raise MalformedNode(
            "bad-equation", f"the output of the equation `{_short(equation)}` has no ellipsis"
        )
    return operands, output


def terms(equation: str, operands: int) -> tuple[list[str], str | None]:
    """Return the terms of the operands, and that of the output; None where it has none.

    Raises:
        MalformedNode: If no operands of any rank fit the equation.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    name = f"the equation `{_short(equation)}`"
    if len(texts) != operands:
        raise MalformedNode(
            "bad-equation", f"{name} has {counted(len(texts), 'term')}, expected {operands}"
        )
    for text in (*texts, right):
        if _TERM.fullmatch(text) is None:
            raise MalformedNode(
                "bad-equation",
                f"{name} has the term `{_short(text)}`, expected letters and at most one `...`",
            )
    letters = right.replace("...", "")
    for letter in sorted(set(letters)):
        if letters.count(letter) > 1 or letter not in left:
            what = "twice" if letters.count(letter) > 1 else "that no operand has"
            raise MalformedNode("bad-equation", f"the output of {name} has `{letter}` {what}")
    return texts, right if arrow else None


_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


def _short(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."


_MOST = 80
"""Characters of an equation that a message has."""


def _term(text: str, rank: int, equation: str) -> Labels:
    head, found, tail = text.partition("...")
    hidden = rank - len(head) - len(tail)
    if hidden < 0 or (hidden and not found):
        raise MalformedNode(
            "bad-equation",
            f"`{_short(text)}` of `{_short(equation)}` does not fit an operand of rank {rank}",
        )
    return (*head, *(f".{i}" for i in reversed(range(hidden))), *tail)


# The scales of QuantizeLinear and DequantizeLinear: which shapes the specification allows them.


_Dim = int | str | None


@dataclass(frozen=True, slots=True)
class Misfit:
    """What is wrong.

    Attributes:
        subject: `scale`, `zero_point` or `block_size`.
        text: One sentence without a full stop.
        help: What to do; None where the text says it.
    """

    subject: str
    text: str
    help: str | None = None


def scale_misfit(
    x: Sequence[_Dim] | None,
    scale: Sequence[_Dim] | None,
    zero_point: Sequence[_Dim] | None,
    axis: int,
    block_size: int,
    names: tuple[str, str] = ("scale", "zero_point"),
) -> Misfit | None:
    """Return what certainly breaks the specification; None when nothing is known to.

    Without blocks, the scale is a scalar, one element in 1-D as exporters write it, or 1-D of the
    size of `axis`. With blocks, it has the shape of the input with ceil(size / `block_size`) along
    `axis`; one number for the whole input has no blocks. The zero point has the shape of the scale;
    one element may be a scalar here and 1-D there.

    Args:
        x: Dimensions of the input; None for an unknown rank, and each that is unknown.
        scale: Those of the scale.
        zero_point: Those of the zero point; None also where there is none.
        axis: From the back if negative. One out of range is not judged.
        block_size: 0 without blocks.
        names: What to call scale and zero point.
    """
    if block_size < 0:
        text = f"`block_size` is {block_size}, expected a positive number"
        return Misfit("block_size", text, "leave it out where the scale has no blocks")
    if scale is None:
        return None
    is_single = tuple(scale) in ((), (1,))
    alike = is_single and zero_point is not None and tuple(zero_point) in ((), (1,))
    if zero_point is not None and not alike and _differ(zero_point, scale):
        text = f"`{names[1]}` has shape {_text(zero_point)}, expected {_text(scale)}"
        return Misfit("zero_point", f"{text} as `{names[0]}`")
    got = f"`{names[0]}` has shape {_text(scale)}, expected"
    if x is None or not -len(x) <= axis < len(x):
        if block_size and not scale:
            return Misfit("scale", f"{got} the rank of the input, which has blocks of {block_size}")
        return None
    axis, size = axis % len(x), x[axis]
    if block_size:
        blocks = -(-size // block_size) if isinstance(size, int) else None
        expected = (*x[:axis], blocks, *x[axis + 1 :])
        if not _differ(scale, expected):
            return None
        place = f"blocks of {block_size} along axis {axis} of `x` with shape {_text(x)}"
        text = f"{got} {_text(expected)}: {place}"
        return Misfit("scale", text, "leave `block_size` out" if is_single else None)
    if is_single or not _differ(scale, (size,)):
        return None
    help = "give `block_size` if the scale has the rank of `x`"
    place = f"axis {axis} of `x` with shape {_text(x)}"
    return Misfit(
        "scale",
        f"{got} () or {_text((size,))}: {place}",
        help if len(scale) == len(x) > 1 else None,
    )


def _differ(a: Sequence[_Dim], b: Sequence[_Dim]) -> bool:
    """Return whether two shapes are certainly different."""
    pairs = zip(a, b, strict=False)
    numbers = any(isinstance(m, int) and isinstance(n, int) and m != n for m, n in pairs)
    return len(a) != len(b) or numbers


def _text(shape: Sequence[_Dim]) -> str:
    inner = ", ".join("?" if dim is None else str(dim) for dim in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"
