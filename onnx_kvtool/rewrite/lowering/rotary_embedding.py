"""RotaryEmbedding-23, for opsets below 23."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import dtype_of, split, unsqueeze
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.symbolic.dimensions import dim_of, dims_of


def lower_rotary_embedding_23(view: Rewritten, em: Emitter) -> ir.Value | None:
    """Rotate the halves, or the pairs, of the first R elements of each head; the others stay.

        cos, sin = Gather(cache, position_ids)               # (B, L, R / 2)
        Y        = X * [cos, cos] + swapped(X) * [-sin, sin]   # where whole heads are rotated

    `swapped` exchanges the halves of each head, or where they are interleaved the elements of each
    pair; the tables then are [c0, c0, c1, c1, ...]. X is (B, H, L, D) and the tables (B, 1, L, D),
    or X is (B, L, H * D) and so are they: repeated for every head, since a product that broadcasts
    in the middle takes twice as long in onnxruntime 1.31.1. The tables are for all layers. Each
    element is computed as in the schema's body, bit for bit, which builds the tables anew for each
    node.

    Returns:
        None, for the schema's body, where the head size, R or the width of the tables is no number.
    """
    x, dims = view.required("X"), dims_of(view.required("X"))
    if x.dtype not in FLOAT_TYPES or dims is None or len(dims) not in (3, 4):
        return None
    if not isinstance(dims[-1], int):
        return None
    heads = view.integer("num_heads") if len(dims) == 3 else 1
    if heads <= 0 or dims[-1] % heads:
        return None
    size = dims[-1] // heads
    rotated = view.integer("rotary_embedding_dim") or size
    if rotated % 2 or not 0 < rotated <= size:
        return None
    if any(dim_of(view.required(name), -1) != rotated // 2 for name in ("cos_cache", "sin_cache")):
        return None
    form = _Rotation(em, view, len(dims), heads, size, rotated)
    return form.of_whole_heads() if rotated == size else form.of_parts()


class _Rotation:
    """One RotaryEmbedding whose facts are known; `size` is D and `rotated` is R."""

    def __init__(
        self, em: Emitter, view: NodeView, rank: int, heads: int, size: int, rotated: int
    ) -> None:
        self.em, self.view, self._op = em, view, em.op
        self.tables = em.sharing  # all layers have the same ones
        self.x = view.required("X")
        self.dtype = dtype_of(self.x)
        self.rank, self.heads, self.size, self.rotated = rank, heads, size, rotated
        self.interleaved = bool(view.integer("interleaved"))

    def of_whole_heads(self) -> ir.Value:
        """Emit the form of the docstring above."""
        cos, sin = self._whole_heads("cos_cache"), self._whole_heads("sin_cache")
        whole = [0, 0, self.heads * self.size] if self.rank == 3 else [0, 0, 0, self.size]
        if self.interleaved:
            return self._turned(self.x, self._other_of_pairs(self.x, whole), cos, sin)
        # The halves of all heads in a row: half 2 h + 1 takes the place of half 2 h.
        halves, axis = ([0, 0, 2 * self.heads], 2) if self.rank == 3 else ([0, 0, 0, 2], 3)
        order = self.em.constant(np.arange(halves[-1], dtype=np.int64) ^ 1, "other_half")
        swapped = self._reshape(self.x, [*halves, self.size // 2])
        swapped = self._op("Gather", swapped, order, axis=axis, hint="swapped")
        return self._turned(self.x, self._reshape(swapped, whole), cos, sin)

    def of_parts(self) -> ir.Value:
        """Rotate the first elements of each head; the rest passes through."""
        x, rotated = self.x, self.rotated
        if self.rank == 3:
            x = self._reshape(x, [0, 0, self.heads, self.size])
        if self.interleaved:
            cos, sin = self._one_head("cos_cache"), self._one_head("sin_cache")
            first, rest = split(self.em, x, [rotated, self.size - rotated])
            turned = [
                self._turned(first, self._other_of_pairs(first, [0, 0, 0, rotated]), cos, sin)
            ]
        else:
            *halves, rest = split(self.em, x, [rotated // 2, rotated // 2, self.size - rotated])
            turned = self._turned_halves(*halves)
        joined = self._op("Concat", *turned, rest, axis=-1, hint="joined")
        if self.rank == 3:
            joined = self._reshape(joined, [0, 0, self.heads * self.size])
        return joined

    def _turned(self, x: ir.Value, swapped: ir.Value, cos: ir.Value, sin: ir.Value) -> ir.Value:
        kept = self._op("Mul", x, cos, hint="x_cos")
        return self._op("Add", kept, self._op("Mul", swapped, sin, hint="swapped_sin"), hint="y")

    def _other_of_pairs(self, x: ir.Value, shape: list[int]) -> ir.Value:
        """Return `x`, of a shape as Reshape takes it, with the elements of each pair exchanged.

        A Gather of single elements takes four times as long in onnxruntime 1.31.1.
        """
        pairs = self._reshape(x, [*shape[:-1], shape[-1] // 2, 2])
        first, second = split(self.em, pairs, [1, 1])
        swapped = self._op("Concat", second, first, axis=len(shape), hint="swapped")
        return self._reshape(swapped, shape)

    def _turned_halves(self, first: ir.Value, second: ir.Value) -> list[ir.Value]:
        cos, sin = self._one_half("cos_cache"), self._one_half("sin_cache")
        real = self._op(
            "Sub",
            self._op("Mul", cos, first, hint="cos_x1"),
            self._op("Mul", sin, second, hint="sin_x2"),
            hint="real",
        )
        imaginary = self._op(
            "Add",
            self._op("Mul", sin, first, hint="sin_x1"),
            self._op("Mul", cos, second, hint="cos_x2"),
            hint="imaginary",
        )
        return [real, imaginary]

    def _one_half(self, name: str) -> ir.Value:
        """Return a table with a dimension for the heads: (B, L, 1, R / 2), or (B, 1, L, R / 2)."""
        return unsqueeze(self.tables, self._rows(name), [5 - self.rank], hint=name)

    def _one_head(self, name: str) -> ir.Value:
        """Return a table with a dimension for the heads: (B, L, 1, R), or (B, 1, L, R)."""
        return unsqueeze(self.tables, self._both_halves(name), [5 - self.rank], hint=name)

    def _whole_heads(self, name: str) -> ir.Value:
        """Return a table for whole heads: (B, L, H * D), or (B, 1, L, D)."""
        if self.rank == 4:
            return self._one_head(name)
        return self.tables.op("Tile", self._both_halves(name), [1, 1, self.heads], hint=name)

    def _both_halves(self, name: str) -> ir.Value:
        """Return a table for both halves, or for both elements of each pair: (B, L, R)."""
        em, second = self.tables, self._rows(name)
        first = em.op("Neg", second, hint="minus_sin") if name == "sin_cache" else second
        if not self.interleaved:
            return em.op("Concat", first, second, axis=-1, hint=name)
        pairs = [unsqueeze(em, half, [3], hint=name) for half in (first, second)]
        joined = em.op("Concat", *pairs, axis=3, hint=name)
        return em.op("Reshape", joined, [0, 0, self.rotated])

    def _rows(self, name: str) -> ir.Value:
        """Return the rows of a table for the positions: (B, L, R / 2)."""
        table, positions = self.view.required(name), self.view.input("position_ids")
        return table if positions is None else self.tables.op("Gather", table, positions)

    def _reshape(self, value: ir.Value, shape: list[int]) -> ir.Value:
        return self._op("Reshape", value, shape)
