"""Values that are as long as the rows in use, made as long as a cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.walk import read_values, supersede
from onnx_kvtool.emit.emitter import Emitter, ScopedValues
from onnx_kvtool.ops.traits import WHOLE_TYPES, Trait, traits
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.rewrite.raising.columns.outputs import rule_of
from onnx_kvtool.rewrite.raising.columns.wide import Stuck, Widened, behind, is_grown
from onnx_kvtool.rewrite.raising.growing.edit import shape_limits
from onnx_kvtool.rewrite.raising.growing.lengths import Sizes
from onnx_kvtool.rewrite.raising.stage import GROWN, LONGER, Grown, Size
from onnx_kvtool.shapes.inference import infer_model
from onnx_kvtool.symbolic.dimensions import bind_dim
from onnx_kvtool.symbolic.expressions import Dimension, Expr, integer, text
from onnx_kvtool.symbolic.knowledge import Knowledge
from onnx_kvtool.symbolic.simplification import Facts, simplified

# Values that are as long as the rows in use, made as long as a cache: no size of them changes.
#
#     wide[b, i, j] = value[b, i, j]     for j < n, the rows in use after the step
#                   = anything           for the others
#
# The wide form of a value has C in the place of n, along every axis that is n long, and the same
# elements at the places that both have. Operands in wide form give a result in wide form if no
# element of the result depends on later ones: elementwise, moved, counted up, summed from the
# front. If a node reads a part that is not as long as the rows in use, such as the last rows, its
# result is that of the source. Masks of Attention hide the rows that are not in use.


_NO_HELP = "no `--dim` and no `--assume` fixes it: leave out `--static`"
_GRANT = (
    "if `{0}` is as long as the past and the new tokens, grant it with `--assume covers-past:{0}`"
)


@dataclass(slots=True)
class Widening:
    """The wide forms of a graph.

    Attributes:
        stuck: The nodes without a known wide form, with the refusal of each.
        old: Nodes that may be unused now.
    """

    wide: dict[ir.Value, ir.Value] = field(default_factory=dict)
    stuck: list[tuple[ir.Node, Diagnostic]] = field(default_factory=list)
    old: list[ir.Node] = field(default_factory=list)
    new: list[ir.Node] = field(default_factory=list)


def widen(
    graph: ir.Graph, grown: Grown, count: ir.Value, opset: int, scope: ScopedValues
) -> Widening:
    """Write the wide form of all values of a graph that are as long as the rows in use, in place.

    `count` replaces the number of rows in use that a Shape reads from one of them.

    Args:
        graph: The main graph of a model whose caches have a capacity.
        grown: Which values these are.
        count: n, the rows in use after the step: (1,), int64; it is computed in front of all nodes.
        opset: Version of the default domain of the result.
        scope: The scope of the graph.
    """
    found, shapes, folder = Widening(), grown.shapes, ConstantFolder()
    _declare(grown)
    count.shape = ir.Shape([1])
    found.wide.update({v: v for v in graph.inputs if is_grown(shapes.get(v, ()))})
    found.wide.update(grown.caches)
    masks = (
        v.name for v in graph.inputs if shapes.get(v, ())[1:] in ((LONGER,), (grown.capacity,))
    )
    mask = next(masks, None)
    for index, node in enumerate(list(graph)):
        operands = [v for v in read_values(node) if is_grown(shapes.get(v, ()))]
        results = [v for v in node.outputs if is_grown(shapes.get(v, ()))]
        if node.domain != "" or not (operands or results) or node.outputs[0] in found.wide:
            continue
        is_read = any(value.uses() or value.is_graph_output() for value in node.outputs)
        if node.op_type == "Attention" or not (is_read or results):
            continue
        em = Emitter(scope, opset, node.name or "kvtool/columns")
        try:
            if node.op_type == "Shape" and operands:
                _count(node, shapes[operands[0]], count, em)
                found.old.append(node)
                continue
            if any(value not in found.wide for value in operands):
                continue  # the refusal is that of the node which it reads
            sizes = [size for value in (*operands, *results) for size in shapes[value]]
            rule = rule_of(node, joined=any(size is not None and size < LONGER for size in sizes))
            view = Widened(node, em, grown, found.wide, count, folder)
            given = rule(view)
            made = given if isinstance(given, tuple) else (given,)
            targets = {output: ir.Shape(view.target(output)) for output in results}
        except (Stuck, MalformedNode) as why:
            em.discard()
            read = [n for v in read_values(node) for n in shapes.get(v, ())]
            is_lacking = any(size in (None, grown.capacity) or size < GROWN for size in read)
            help_ = _GRANT.format(mask) if mask and is_lacking else _NO_HELP
            place = Location.of(scope.graph.name or "", node, index)
            lost = Diagnostic("dynamic-size", "error", place, str(why), help_)
            found.stuck.append((node, lost))
            continue
        added = em.commit()
        found.new += added
        graph.insert_after(node, added)
        for output, wide in zip(node.outputs, made, strict=True):
            if output in targets:
                found.wide[output] = wide
                wide.shape = targets[output]
            else:
                _replace(output, wide)
                if output in shapes:
                    shapes[wide] = shapes[output]
        found.old.append(node)
    return found


def _declare(grown: Grown) -> None:
    """Write known types and fixed sizes on values, for rules that ask for their elements."""
    for value, sizes in grown.shapes.items():
        if value.type is None and value in grown.types:
            value.type = ir.TensorType(grown.types[value])
        is_inner = value.producer() is not None and not value.is_graph_output()
        if is_inner and all(size is not None and size >= 0 for size in sizes):
            value.shape = ir.Shape(sizes)  # where a size is given, it is folded


def _count(node: ir.Node, sizes: Sequence[Size], count: ir.Value, em: Emitter) -> None:
    """Replace the sizes that a Shape reads by the number of rows in use."""
    source, output = node.inputs[0], node.outputs[0]
    if LONGER in sizes:
        name = source and source.name
        raise Stuck(f"`Shape` reads how long `{name}` is, not how many rows are in use")
    pieces = []
    for axis in range(*shape_limits(node, len(sizes))):
        size = sizes[axis]
        if size is None:
            pieces.append(em.op("Shape", source, start=axis, end=axis + 1))
        elif size == GROWN:
            pieces.append(count)
        else:
            number = em.constant([behind(size) if size < 0 else size], "size")
            pieces.append(em.op("Add", count, number) if size < 0 else number)
    new = em.op("Concat", *pieces, axis=0) if len(pieces) > 1 else pieces[0]
    if output.is_graph_output() and new in pieces:
        new = em.op("Identity", new)  # which has a name of its own
    new.shape = ir.Shape([len(pieces)])
    graph = node.graph
    assert graph is not None
    graph.insert_after(node, em.commit())
    _replace(output, new)


def _replace(old: ir.Value, new: ir.Value) -> None:
    """Replace a value; the new one of an output gets the name of the output."""
    if old.is_graph_output():
        new.name, old.name = old.name, None
    new.shape = old.shape or new.shape
    supersede(old, new)


# The axes with one element per row in use after a step, before any edit.
#
# Once caches have a capacity, nothing in a model says that two of its sizes are that one number.


def grown_values(
    model: ir.Model, sizes: Sizes, step: Expr, dims: Mapping[str, int], capacity: int
) -> Grown:
    """Return which values of the main graph are as long as the rows in use.

    Types and shapes are written on the values. A step adds `step` rows. The result fails in a step
    past `capacity`, and has the sizes `dims` in place of names.
    """
    total = sizes.length + step
    bounds = Facts(nonnegative=(integer(capacity) - sizes.equal.resolved(total),))
    knowledge = sizes.knowledge
    if knowledge.may_say_more:
        knowledge = infer_model(model, granted=Knowledge(bounds=bounds)).run.knowledge
    longer = [sizes.equal.resolved(size) for size in _longer(sizes) if size != step]

    def number(size: Expr) -> Size:
        bounded = simplified(sizes.equal.resolved(size), bounds)
        if sizes.equal.same(size, total) or sizes.equal.same(bounded, total):
            return GROWN
        more = (bounded - sizes.equal.resolved(total)).number
        if more is not None and more > 0:
            return LONGER - more
        for one in (bounded, size):
            found = bind_dim(text(one), dims) if one.number is None else one.number
            if isinstance(found, int):
                return found
        return LONGER if sizes.equal.resolved(size) in longer else None

    graph = model.graph
    results = [value for node in graph for value in node.outputs]
    shapes = {
        value: tuple(map(number, shape))
        for value in (*graph.inputs, *graph.initializers.values(), *results)
        if (shape := knowledge.shapes.get(value)) is not None
    }
    for value in graph.inputs:  # they have nothing behind the rows in use
        shapes[value] = tuple(None if n and n < LONGER else n for n in shapes.get(value, ()))
    for node in graph:
        _carry(node, shapes)
    types = {value: value.dtype for value in shapes if value.dtype is not None}
    return Grown(shapes, types, dims, capacity)


def _carry(node: ir.Node, shapes: dict[ir.Value, tuple[Size, ...]]) -> None:
    """Copy the length of an input to the result of a node that keeps it, if inference lost it."""
    kept = node.op_type == "Reshape" or Trait.KEEPS_SHAPE in traits(node)
    source = node.inputs[0] if kept and node.domain == "" and node.inputs else None
    before, after = (shapes.get(v, ()) if v is not None else () for v in (source, node.outputs[0]))
    if before.count(LONGER) != 1 or len(after) != len(before) or after.count(None) != 1:
        return
    axis = after.index(None)
    if before == (*after[:axis], LONGER, *after[axis + 1 :]):
        shapes[node.outputs[0]] = before


def _longer(sizes: Sizes) -> Iterator[Expr]:
    """Yield the symbolic lengths of integer inputs (B, ..), which may mark each key."""
    for value, axis in sizes.inputs():
        known = sizes.knowledge.shapes.get(value)
        if known is None or len(known) != 2 or axis != 1 or value.dtype not in WHOLE_TYPES:
            continue
        if isinstance(known[1].atom, Dimension):
            yield known[1]
