"""Attention over windows, made to read circular caches as they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.walk import is_op, nodes, producer, supersede
from onnx_kvtool.emit.emitter import Emitter, ScopedValues
from onnx_kvtool.emit.forms import again, axis_size
from onnx_kvtool.ops.operators import Attention
from onnx_kvtool.ops.view import MalformedNode, given_input
from onnx_kvtool.rewrite.engine.rule import remove_dead
from onnx_kvtool.rewrite.raising.attention.fixed_masks import all_rows, window_mask
from onnx_kvtool.rewrite.raising.attention.replacing import for_each_sequence
from onnx_kvtool.rewrite.raising.attention.whole import (
    KEY,
    MASK,
    ROWS,
    VALUE,
    is_cache,
    padded,
)
from onnx_kvtool.rewrite.raising.growing.edit import shape_limits
from onnx_kvtool.rewrite.raising.layout import TO_THE_END
from onnx_kvtool.rewrite.raising.stage import (
    InOrder,
    RaiseOutcome,
    RaiseSettings,
    WindowRead,
    scopes_of,
)
from onnx_kvtool.symbolic.dimensions import bind_dim, dims_of

# Attention over windows of a fixed size, made to read circular caches as they lie.
#
#     Attention(Q, Gather(K, order), Gather(V, order), mask)   # order = (arange(W) + n) mod W
#       ->  Attention(Q, K, V, Gather(mask, (arange(W) - n) mod W))
#
# Attention is a sum over keys, whatever their order. So the columns of the mask are put into the
# order of the rows, and the rows stay where they are.


def read_rotated(
    node: ir.Node, opset: int, scope: ScopedValues, ordered: Mapping[ir.Value, InOrder]
) -> Sequence[ir.Node]:
    """Let an Attention over windows of a fixed size read them as they lie.

    `ordered` has what it reads of them: all rows in order. Return the nodes that may be read by
    nobody now.
    """
    try:
        view = Attention(node, opset)
        keys, values = (ordered.get(value) for value in (view.key, view.value))
        if keys is None or values is None or not is_any_order(view):
            return ()
        if not all(is_cache(one.cache, opset, "circular") for one in (keys, values)):
            return ()
    except MalformedNode:
        return ()
    if keys.order is not values.order:
        return ()
    mask = view.attn_mask
    if mask is not None and (dims_of(mask) or (None,))[-1] != keys.capacity:
        return ()
    em = Emitter(scope, opset, node.name or "kvtool/attention")
    if mask is not None:
        key = ("turned mask", mask, keys.order)
        turned = em.once(key, lambda: columns(mask, keys.capacity, keys.oldest, em))
        node.replace_input_with(MASK, turned)
    before = [made for v in (view.key, view.value) if (made := producer(v)) is not None]
    node.replace_input_with(KEY, keys.cache)
    node.replace_input_with(VALUE, values.cache)
    em.insert_before(node)
    return before


def is_any_order(view: Attention) -> bool:
    """Return whether only a mask says which key is which."""
    if view.is_causal or view.nonpad_kv_seqlen is not None or view.past_key is not None:
        return False
    return max(view.left_window, view.right_window) < 0 and "qk_matmul_output" not in view.outputs


def columns(mask: ir.Value, capacity: int, oldest: ir.Value, em: Emitter) -> ir.Value:
    """Return a mask whose column of each row is number `(row - oldest) mod capacity`.

    The mask is (..., capacity). `oldest` is (1,): modulo the capacity, it is the row of the first
    column.
    """
    behind = em.op("Sub", np.arange(capacity, dtype=np.int64), oldest, hint="behind")
    places = em.op("Mod", behind, [capacity], hint="columns")
    found = em.op("Gather", mask, places, axis=-1, hint="mask")
    dims = dims_of(mask)
    if dims is not None:
        found.shape = ir.Shape([*dims[:-1], capacity])
    return found


# The same for windows that grow up to a number of rows, in steps of one token or of several.
#
#     Attention(Q, Concat(Gather(K, order), new), ...)  # one token, behind a full window
#       ->  Attention(Q, K', V', Gather(mask, (j - n) mod W))
#
# where K' and V' are the circular caches after the step, W rows, and n the tokens so far.
# In a step of one token the source reads W keys. Row j of a full cache holds key number
# `(j - n) mod W` of them: the columns of the mask are put into that order, and no row is moved.
#
# A step of several tokens overwrites rows that its first tokens still read. So it reads the rows
# from before the step in their order. An If asks which of the two a step is.


class _Reader(NamedTuple):
    """An Attention that reads two windows in order."""

    node: ir.Node
    keys: WindowRead
    values: WindowRead


def read_circular(model: ir.Model, settings: RaiseSettings, outcome: RaiseOutcome) -> bool:
    """Let written Attention read circular caches as they lie, in place; say if anything changed."""
    if not any(one.mode == "circular" for one in outcome.caches):
        return False
    opset = settings.target(model)
    scopes = scopes_of(model)
    order = {node: number for number, (_, _, node) in enumerate(nodes(model))}
    written = [node for node in order if node in outcome.places and node.op_type == "Attention"]
    old: list[ir.Node] = []
    for node in written:
        if node.graph in scopes and (
            unread := read_rotated(node, opset, scopes[node.graph], outcome.ordered)
        ):
            outcome.tell(node, "the circular caches are read as they lie", form="full")
            old += unread
    reading = _Reading(settings, opset, scopes, outcome)
    readers = [one for node in written if (one := _reader(node, opset, outcome.windows))]
    if settings.static:
        for one in readers:
            old += reading.fix(one)
        old += _computed(outcome.windows.values())
    elif readers:
        windows = {read.gather: read for one in readers for read in (one.keys, one.values)}
        for gather in sorted(windows, key=lambda node: order[node]):
            reading.skip(windows[gather])
        for one in readers:
            old += reading.replace(one)
    outcome.removed += remove_dead(old)
    return bool(old)


def _reader(node: ir.Node, opset: int, windows: dict[ir.Value, WindowRead]) -> _Reader | None:
    """Return an Attention over two windows whose rows in order nobody else reads."""
    try:
        view = Attention(node, opset)
    except MalformedNode:
        return None
    keys, values = windows.get(view.key), windows.get(view.value)
    if keys is None or values is None or not is_any_order(view):
        return None
    if keys.order is not values.order or {keys.axis, values.axis} != {ROWS}:
        return None
    for value, read in ((view.key, keys), (view.value, values)):
        if value.is_graph_output() or len(dims_of(value) or ()) != 4:
            return None
        joined = value.producer()
        if not all(_is_of(use.node, (node,)) for use in value.uses()):
            return None
        if not all(_is_of(use.node, (joined,)) for use in read.gather.outputs[0].uses()):
            return None
    return _Reader(node, keys, values)


def _computed(windows: Iterable[WindowRead]) -> Iterator[ir.Node]:
    """Replace the number of rows that a window keeps, as Shape counts it, by a computed number."""
    for read in windows:
        for node in {use.node for use in read.order.uses()}:
            if is_op(node, "Shape"):
                supersede(node.outputs[0], read.kept)
                yield node


def _is_of(node: ir.Node, allowed: Sequence[ir.Node | None]) -> bool:
    """Return whether a reader of rows is one of some nodes, or asks for no number of rows."""
    if node in allowed:
        return True
    if not is_op(node, "Shape"):
        return False
    first, last = shape_limits(node, ROWS + 2)
    return not first <= ROWS < last


class _Reading(NamedTuple):
    """The edits of all windows that keep as many rows as there were tokens, up to a number."""

    settings: RaiseSettings
    opset: int
    scopes: dict[ir.Graph, ScopedValues]
    outcome: RaiseOutcome

    def fix(self, reader: _Reader) -> list[ir.Node]:
        """Let an Attention read as many rows in every step, in place, where a mask can be written.

        Return the nodes that may be read by nobody now.
        """
        node, read, outcome = reader.node, reader.keys, self.outcome
        length, mask = bind_dim(read.count, self.settings.dims), given_input(node, MASK)
        found, _ = outcome.masks.get(node) or (None, None)
        if not isinstance(length, int) or length < 1:
            return []  # which is refused, as every size that is no number
        if mask is not None and (found is None or mask.dtype is None):
            return []
        keys = read.capacity + length - 1
        for value in () if found is None else found.inputs:
            outcome.columns[value] = max(outcome.columns.get(value, 0), keys)
        # No step goes past the capacity of a cache that keeps all rows.
        linear = [one.capacity for one in outcome.caches if one.mode == "linear"]
        most = min((rows for rows in linear if isinstance(rows, int)), default=keys)
        em = Emitter.at(node, self.scopes, self.opset, "kvtool/attention")
        dtype = ir.DataType.BOOL if mask is None or mask.dtype is None else mask.dtype
        shown = window_mask(read, length, found, dtype, min(most, keys), em)
        rows = [all_rows(one, length, em) for one in (reader.keys, reader.values)]
        em.insert_before(node)
        node.resize_inputs(max(len(node.inputs), MASK + 1))
        before = [made for v in node.inputs[KEY:] if (made := producer(v)) is not None]
        for index, value in ((KEY, rows[0]), (VALUE, rows[1]), (MASK, shown)):
            node.replace_input_with(index, value)
        how = "the circular caches are read as they lie, with a mask computed from row and position"
        outcome.tell(node, how, form="full")
        return before

    @property
    def is_full(self) -> bool:
        """Whether a cache is read as it lies also where it is not full yet."""
        return self.settings.attention == "full"

    def _tells(self, read: WindowRead, em: Emitter) -> ir.Value:
        """Return whether a step reads the cache as it lies: (1,), bool."""

        def tell() -> ir.Value:
            count = axis_size(em, read.new, read.axis, "new_rows")
            one = em.op("Equal", count, [1], hint="is_one_token")
            if self.is_full:
                return one
            # With one more the rows are as many as the cache has.
            total = em.op("Add", read.length, [1], hint="tokens")
            full = em.op("GreaterOrEqual", total, [read.capacity], hint="is_full")
            return em.op("And", one, full, hint="reads_as_it_lies")

        return em.once(("as it lies", read.capacity, read.count or read.new), tell)

    def skip(self, read: WindowRead) -> None:
        """Gather no row for a step that reads the cache as it lies."""
        em = Emitter.at(read.gather, self.scopes, self.opset, "kvtool/attention")
        tells = self._tells(read, em)

        def rest() -> ir.Value:
            every = em.op("Shape", read.order, hint="rows_kept")
            first = em.op("Where", tells, every, [0], hint="first")
            return em.op("Slice", read.order, first, [TO_THE_END], [0], hint="order")

        read.gather.replace_input_with(1, em.once(("order", read.order, tells), rest))
        em.insert_before(read.gather)

    def replace(self, reader: _Reader) -> list[ir.Node]:
        """Replace an Attention by an If, or by the Attention of one branch."""
        node, read = reader.node, reader.keys
        em = Emitter.at(node, self.scopes, self.opset, "kvtool/attention")
        if self.is_full and bind_dim(read.count, self.settings.dims) == 1:
            result = self._as_it_lies(reader, em)
        else:
            tells = em.op("Squeeze", self._tells(read, em))
            result = em.op(
                "If",
                tells,
                then_branch=em.nested(lambda: [self._as_it_lies(reader, em)], hint="as_it_lies"),
                else_branch=em.nested(lambda: [_again(node, node.inputs, em)], hint="in_order"),
                hint="window",
            )
        output = node.outputs[0]
        em.insert_before(node)
        result.type, result.shape = output.type or result.type, output.shape
        if output.is_graph_output():
            result.name, output.name = output.name, em.scope.names.fresh(f"{output.name}_in_order")
        supersede(output, result)
        what = "one token" if self.is_full else "one token behind a full window"
        how = f"a step of {what} reads the circular caches as they lie, any other in order"
        self.outcome.tell(node, how, form="full" if self.is_full else None)
        return [node]

    def _as_it_lies(self, reader: _Reader, em: Emitter) -> ir.Value:
        """Return the Attention of one token over the whole of two circular caches."""
        node, read = reader.node, reader.keys
        size = [read.capacity]
        tokens = em.op("Add", read.length, [1], hint="tokens")
        inputs = list(node.inputs)
        inputs[KEY], inputs[VALUE] = reader.keys.present, reader.values.present
        mask = inputs[MASK] if len(inputs) > MASK else None
        if mask is not None:
            if self.is_full:
                mask = padded(mask, size, read.capacity, em, "columns")
                tokens = em.op("Max", tokens, size, hint="tokens")
            inputs[MASK] = columns(mask, read.capacity, tokens, em)
        elif self.is_full:
            batch = (dims_of(read.present) or (None,))[0]
            counts = em.op("Min", tokens, size, hint="rows_in_use")
            inputs += [None] * (6 - len(inputs))
            inputs.append(for_each_sequence(em, counts, batch, read.present))
        return _again(node, inputs, em)


def _again(node: ir.Node, inputs: Sequence[ir.Value | None], em: Emitter) -> ir.Value:
    """Return the result of an Attention like another one, with other inputs."""
    again(em, node, inputs, outputs=1)
    made = em.nodes[-1]
    made.outputs[0].shape = node.outputs[0].shape
    made.metadata_props.update(node.metadata_props)
    return made.outputs[0]
