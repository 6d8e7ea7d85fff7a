"""The edit of a window that grows: a circular cache in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.rewrite.raising.cuts import TO_THE_END
from onnx_kvtool.rewrite.raising.growing.edit import Edit, with_rows
from onnx_kvtool.rewrite.raising.growing.window import Rolling
from onnx_kvtool.rewrite.raising.stage import WindowRead
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["Circulating"]


@dataclass(slots=True)
class Circulating:
    """The edits of all windows of one model.

    Attributes:
        edit: The edits of the caches that keep all rows, which says where a step begins.
        kept: By R, the rows of a past that are in use before a step, as (1,).
        order: By R, where these rows stand in the circular cache, oldest first, (min(P, R),).
    """

    edit: Edit
    kept: dict[int, ir.Value] = field(default_factory=dict)
    order: dict[int, ir.Value] = field(default_factory=dict)

    def begin(self, em: Emitter, windows: Sequence[Rolling]) -> None:
        """Build what windows of the same number of rows share, in front of everything."""
        edit = self.edit
        for window in windows:
            rows = window.rows
            if rows not in self.kept:
                count = em.op("Min", edit.length, em.constant([rows]), hint="rows_in_window")
                first = em.op("Squeeze", em.op("Sub", edit.length, count), hint="oldest")
                positions = em.op("Range", first, edit.number, em.constant(1), hint="positions")
                capacity = em.constant([window.capacity])
                order = self.order[rows] = em.op("Mod", positions, capacity, hint="order")
                order.shape = ir.Shape([em.scope.names.fresh("rows_in_window")])
                self.kept[rows] = em.op("Shape", order, hint="rows_kept")
            number = em.op("Squeeze", self.kept[rows], hint="length")
            edit.lengths[window.past] = self.kept[rows], number

    def run(self, window: Rolling) -> WindowRead:
        """Give one window its circular cache, and return what is read of it."""
        edit, node, past = self.edit, window.node, window.past
        graph = node.graph
        assert graph is not None
        for shape in window.shapes:
            edit.resize(window, shape)
        em = Emitter(edit.scopes[graph], edit.opset, node.name or "kvtool/raise")
        dtype = past.dtype or ir.DataType.UNDEFINED
        axis = {"axis": window.axis}
        rows = em.op("Gather", past, self.order[window.rows], attributes=axis, dtype=dtype)
        for head in window.heads:
            ir.convenience.replace_all_uses_with(head.outputs[0], rows)
        if not window.heads:
            node.replace_input_with(0, rows)
        self._count(em, window, rows)
        output = window.present
        starts, new = self._written(em, window, rows)
        present = em.op(
            "TensorScatter",
            past,
            new,
            starts,
            attributes={**axis, "mode": "circular"},
            dtype=dtype,
            hint="TensorScatter",
        )
        present.doc_string = output.doc_string
        graph.outputs[graph.outputs.index(output)] = present
        present.name, output.name = output.name, em.scope.names.fresh(f"{output.name}_in_order")
        present.shape = with_rows(output.shape, window, window.capacity)
        past.shape = with_rows(past.shape, window, window.capacity)
        graph.insert_before(node, em.commit())
        edit.old += [window.cut, *window.heads]
        gather = rows.producer()
        assert gather is not None
        rank = window.axis + 1
        return WindowRead(
            present=present,
            new=window.new,
            count=(dims_of(window.new) or (None,) * rank)[window.axis],
            gather=gather,
            order=self.order[window.rows],
            length=edit.length,
            axis=window.axis,
            capacity=window.capacity,
        )

    def _count(self, em: Emitter, window: Rolling, rows: ir.Value) -> None:
        """Let those who read how many rows there are, old ones or all, read the number alone."""
        joined, kept = window.node.outputs[0], self.kept[window.rows]
        for value in (rows, joined):
            shapes = [n for n, _ in value.uses() if n.op_type == "Shape" and n.domain == ""]
            if not shapes:
                continue
            count = kept
            if value is joined:
                limits = {"start": window.axis, "end": window.axis + 1}
                new = em.op("Shape", window.new, attributes=limits, hint="new_rows")
                count = em.op("Add", kept, new, hint="rows")
            number = em.op("Squeeze", count, hint="rows")
            for shape in shapes:
                self.edit.resize(window, shape, (count, number))

    def _written(self, em: Emitter, window: Rolling, rows: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return where the first new row goes, for each sequence, and the rows that are written.

        Of more new rows than the cache has, the last ones stay.
        """
        new, axis, edit = window.new, window.axis, self.edit
        limits = {"start": axis, "end": axis + 1}
        count = em.op("Shape", new, attributes=limits, hint="new_rows")
        capacity = em.constant([window.capacity])
        end = em.op("Add", edit.length, count, hint="end")
        start = em.op("Sub", end, em.op("Min", count, capacity), hint="start")
        # The size of what was read of the cache before: where past and present are one buffer,
        # nothing may be written any sooner.
        batch = em.op("Shape", rows, attributes={"start": 0, "end": 1}, hint="batch_size")
        starts = em.op("Expand", start, batch, hint="write_indices")
        cut = [em.constant([-window.capacity]), em.constant([TO_THE_END]), em.constant([axis])]
        dtype = new.dtype or ir.DataType.UNDEFINED
        return starts, em.op("Slice", new, *cut, dtype=dtype, hint="last_rows")
