"""Where a TensorScatter writes: its `write_indices`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import onnx_ir as ir

from onnx_kvtool.analysis.caches import Cache
from onnx_kvtool.analysis.constants import constant_integers, tensor_integers
from onnx_kvtool.emit.emitter import Names
from onnx_kvtool.lint.context import Context, Site
from onnx_kvtool.lint.facts.layers import key_value_pairs, through
from onnx_kvtool.lint.facts.operands import operands, rows, shape_words
from onnx_kvtool.lint.finding import Findings, Fix, Found
from onnx_kvtool.lint.rule import check
from onnx_kvtool.ops.operators import TensorScatter
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.ops.view import MalformedNode, given_input
from onnx_kvtool.symbolic.dimensions import Dim, dims_of
from onnx_kvtool.symbolic.expressions import Expr, Exprs, product
from onnx_kvtool.symbolic.simplification import below, interval

_DEPTH = 6


@check("KV008")
def linear_overflow(site: Site, context: Context) -> Findings:
    """Compare the end of what is written with the size of the cache, row by row."""
    found = operands(context, site)
    if found is None or found.mode != "linear" or found.write_indices is None:
        return
    sizes = found.sizes(context.index_maps(site))
    if sizes is None or below(*sizes):
        return
    capacity, length = sizes
    for start in rows(context, site, found):
        if interval(start.first + length - capacity, start.facts)[0] <= 0:
            continue
        last = start.first + length - 1
        which = f"rows {start.first} to {last}" if length.number != 1 else f"row {last}"
        yield Found(
            site.location(found.write_indices),
            f"writes {which} along axis {found.axis} of `{found.past.name}` (size {capacity}): "
            f"{start.text} + sequence_length={length} > {capacity}",
            help="pass a smaller write index, or use `mode=circular`",
        )
        return


@check("KV009")
def negative_write_index(site: Site, context: Context) -> Findings:
    """Look at the starts row by row."""
    found = operands(context, site)
    if found is None or found.write_indices is None or found.mode is None:
        return
    for start in rows(context, site, found):
        if interval(start.first, start.facts)[1] < 0:
            circular = found.mode == "circular"
            yield Found(
                site.location(found.write_indices),
                f"starts at a negative row of `{found.past.name}`: {start.text}, expected 0 or "
                "more",
                help="count from the front: add the size of the cache to the write index",
                severity="warning" if circular else "error",
            )
            return


@check("KV010")
def write_indices_dtype(site: Site, context: Context) -> Findings:
    """Look at the type."""
    found = operands(context, site)
    indices = None if found is None else found.write_indices
    if indices is None or indices.dtype in (None, ir.DataType.INT64):
        return
    assert indices.dtype is not None
    is_integer = indices.dtype.is_integer() and indices.dtype != ir.DataType.BOOL
    yield Found(
        site.location(indices),
        f"`{indices.name}` is {dtype_name(indices.dtype)}, expected int64",
        help="cast the write indices to int64",
        fix=_cast(site, context) if is_integer else None,
    )


def _cast(site: Site, context: Context) -> Fix:
    dims = dims_of(site.node.inputs[2]) or (None,)

    def cast(value: ir.Value) -> list[ir.Node]:
        made = ir.node("Cast", [value], {"to": int(ir.DataType.INT64)})
        return [_typed(made, ir.DataType.INT64, dims_of(value) or dims)]

    apply = partial(_convert_positions, context.model, site.node, "int64", cast)
    return Fix("safe", "cast `write_indices` to int64", apply)


def _typed(node: ir.Node, dtype: ir.DataType | None, dims: Sequence[Dim]) -> ir.Node:
    """Return a node whose result has a type and a shape."""
    node.outputs[0].type = None if dtype is None else ir.TensorType(dtype)
    node.outputs[0].shape = ir.Shape(list(dims))
    return node


@check("KV011")
def write_indices_shape(site: Site, context: Context) -> Findings:
    """Look at the rank, then at the length."""
    found = operands(context, site)
    if found is None or found.write_indices is None:
        return
    indices, maps = found.write_indices, context.index_maps(site)
    shape = maps.shape(indices)
    known = filter(None, (maps.shape(found.past), maps.shape(found.update)))
    batch = next((dims[0] for dims in known), None)
    if shape is None:
        return
    shown = shape_words(dims_of(indices))
    if len(shape) != 1:
        yield Found(
            site.location(indices),
            f"`{indices.name}` {shown} has rank {len(shape)}, expected rank 1"
            + ("" if batch is None else f" and batch_size={batch} elements"),
            help="reshape the write indices to (batch_size,)",
            fix=_flatten(site, context, shape, batch),
        )
    elif batch is not None:
        low, high = interval(shape[0] - batch)
        if low > 0 or high < 0:
            yield Found(
                site.location(indices),
                f"`{indices.name}` has {shape[0]} elements, `{found.past.name}` has "
                f"batch_size={batch}: expected one for each sequence",
                help="pass one write index for each sequence, even if all are the same",
            )


def _flatten(site: Site, context: Context, shape: Exprs, batch: Expr | None) -> Fix | None:
    """Return the fix where the starts are certainly as many as the rows of the batch."""
    if batch is None or product(shape) != batch:
        return None
    rows = (dims_of(site.node.inputs[0]) or (None,))[:1]

    def flatten(value: ir.Value) -> list[ir.Node]:
        tensor = ir.tensor([-1], ir.DataType.INT64)
        constant = _typed(ir.node("Constant", [], {"value": tensor}), ir.DataType.INT64, [1])
        made = ir.node("Reshape", [value, constant.outputs[0]])
        return [constant, _typed(made, value.dtype, rows)]

    apply = partial(_convert_positions, context.model, site.node, "flat", flatten)
    return Fix("safe", "flatten `write_indices` to (batch_size,)", apply)


@check("KV110")
def key_value_index_mismatch(context: Context) -> Findings:
    """Compare the updates of each pair."""
    for key, value in key_value_pairs(context):
        for what in _position_differences(key, value):
            yield Found(
                value.location,
                f"the key `{key.past}` and the value `{value.past}` of one layer {what}",
                help="update both at the same position",
            )


def _position_differences(key: Cache, value: Cache) -> Iterator[str]:
    if key.kind != value.kind or key.node is value.node:
        return
    if key.kind == "tensor_scatter" and key.calls == value.calls:
        here, there = given_input(key.node, 2), given_input(value.node, 2)
        if not _same(here, there, _DEPTH):
            yield f"are written at {_spoken(here)} and at {_spoken(there)}"
    elif not key.calls + value.calls:
        # A position that is not proved has no name here.
        names = key.write_indices, value.write_indices
        if None not in names and names[0] != names[1]:
            yield f"are written at `{names[0]}` and at `{names[1]}`"
    if key.mode is not None and value.mode is not None and key.mode != value.mode:
        yield f"have the modes `{key.mode}` and `{value.mode}`"
    if key.axis is not None and value.axis is not None and key.axis != value.axis:
        rows, others = key.capacity, value.capacity
        if isinstance(rows, int) and isinstance(others, int) and rows != others:
            yield f"are written along axis {key.axis} of {rows} and axis {value.axis} of {others}"


def _spoken(value: ir.Value | None) -> str:
    return "position 0, without `write_indices`," if value is None else f"`{value.name}`"


def _same(one: ir.Value | None, other: ir.Value | None, depth: int) -> bool:
    """Return whether two values are the same, or computed alike within a few nodes.

    Beyond that depth they count as the same: nothing is proved, so the rule reports nothing.
    """
    if one is None or other is None:
        return one is other
    one, other = through(one), through(other)
    if one is other or depth == 0:
        return True
    first, second = one.producer(), other.producer()
    if first is None or second is None:
        numbers = constant_integers(one)
        return numbers is not None and numbers == constant_integers(other)
    if first.op_identifier() != second.op_identifier() or one.index() != other.index():
        return False
    here, there = ({k: _text(a) for k, a in n.attributes.items()} for n in (first, second))
    if here != there:
        return False
    if first.op_type == "Shape":  # the sizes of keys and values of one layer are alike
        return True
    return len(first.inputs) == len(second.inputs) and all(
        _same(a, b, depth - 1) for a, b in zip(first.inputs, second.inputs, strict=True)
    )


def _text(attribute: ir.Attr) -> object:
    """Return what tells two attributes apart; a tensor by its small integers."""
    value = attribute.value
    if attribute.type.name != "TENSOR" or attribute.is_ref():
        return value
    held = tensor_integers(value)
    return id(value) if held is None else (held.numbers.shape, held.numbers.tobytes())


@check("KV112")
def decode_without_write_indices(context: Context) -> Findings:
    """Look at the updates of caches that go round."""
    if "prefill" in (context.model.graph.name or "").lower():
        return
    for cache in context.scatters:
        goes_round = context.is_fed(cache.past_value) and cache.present in context.outputs
        node = cache.node
        if not goes_round or given_input(node, 2) is not None:
            continue
        update = dims_of(node.inputs[1])
        axis = _axis(cache)
        if update is None or axis is None or not 0 <= axis < len(update):
            continue
        if update[axis] != 1 or cache.capacity == 1 or _starts_at_zero(cache, context):
            continue
        yield Found(
            cache.location,
            f"one row of `{cache.update or 'update'}` goes to position 0 of `{cache.past}` "
            f"(size {cache.capacity}) at each step, as there are no `write_indices`",
            help="pass the number of valid tokens as `write_indices`",
        )


def _axis(cache: Cache) -> int | None:
    """Return the sequence axis as the node counts it, from the front."""
    try:
        return TensorScatter(cache.node, 24).sequence_axis
    except MalformedNode:
        return None


def _starts_at_zero(cache: Cache, context: Context) -> bool:
    """Return whether an Attention reads the present and has one valid row by a constant."""
    for reader, _ in cache.node.outputs[0].uses():
        if reader.op_type == "Attention" and not reader.domain and len(reader.inputs) > 6:
            numbers = context.folder.integers(reader.inputs[6])
            if numbers is not None and bool((numbers == 1).all()):
                return True
    return False


_MADE = "onnx_kvtool.lint.made"


def _convert_positions(
    model: ir.Model, node: ir.Node, hint: str, build: Callable[[ir.Value], Sequence[ir.Node]]
) -> None:
    """Replace the `write_indices` of a TensorScatter by a value computed from them.

    The new nodes stand right behind the node that produces the input; if no node of the graph does,
    they stand first. They serve every node of the graph that asks for the same.

    Nothing happens if `node` is in no graph or lacks the input. `build` makes the new nodes from
    the old value. The first output of the last one is the new value; `hint` goes into its name.
    """
    graph, old = node.graph, given_input(node, 2)
    if graph is None or old is None:
        return
    for user, _ in old.uses():
        made_before = user.meta.get(_MADE)
        if user.graph is graph and made_before is not None and made_before[0] == hint:
            node.replace_input_with(2, made_before[1])
            return
    made = list(build(old))
    new, names = made[-1].outputs[0], Names(model)
    new.name = names.fresh(f"{old.name}_{hint}")
    for one in made:
        one.name = names.fresh(f"{new.name}/{one.op_type}")
        for output in one.outputs:
            output.name = output.name or names.fresh(f"{one.name}_output")
    made[-1].meta[_MADE] = (hint, new)
    producer = old.producer()
    if producer is not None and producer.graph is graph:
        graph.insert_after(producer, made)
    else:
        graph.insert_before(graph[0], made)
    node.replace_input_with(2, new)
