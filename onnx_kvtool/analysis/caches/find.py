"""The caches of a model: every tensor that it takes, updates and returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import Cache, InPlace
from onnx_kvtool.analysis.caches.routes import Frame, Program, Route, Routes
from onnx_kvtool.analysis.caches.updates import OPERATORS, AxisMap, Link, Update, map_axis, updates
from onnx_kvtool.analysis.caches.writes import (
    Positions,
    element_positions,
    mask_positions,
    tuple_positions,
)
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import is_output_of, maker, read_values
from onnx_kvtool.core.words import shape_text
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.symbolic.dimensions import Dims, contradict, dims_of

if TYPE_CHECKING:
    from onnx_kvtool.symbolic.index_maps import IndexMaps

_MOST_ABOVE = 64
"""Most nodes above the positions of an update that are looked through."""


def _obstacles(
    program: Program,
    frame: Frame,
    update: Update,
    source: Route | None,
    target: Route | None,
) -> Iterator[str]:
    """Yield the reasons why past and present of an update cannot share one buffer.

    They can if nothing but the update needs the old content: the past is an input of the model that
    reaches the update unchanged and that no other node reads, the present is an output without
    further changes, and both have the same shape. These may read the past: nodes that need only its
    shape, and nodes that run before the update because it writes where their result says.
    """
    if source is None:
        yield "there is no past"
        return
    past = source.end.name or ""
    if not source.end.is_graph_input() or source.frame is not program.main:
        yield f"the past `{past}` is {source_in_words(source.end, _named)}, not a graph input"
    if (owner := program.owner(update.node)) is not None:
        yield f"the update is in a body of {_named(owner)}, which may run more or less than once"
    if source.link is not None:
        yield f"the past {_link(source.link)} before the update"
    elif update.kind == "tensor_scatter" and (
        update.mode is None or (update.axis is None and source.end.shape is not None)
    ):
        yield "the `TensorScatter` is not valid"
    if update.present is None:
        yield "the operator does not output the present"
    elif target is None:
        yield f"the present `{update.present.name}` is not a graph output"
    elif target.link is not None:
        yield f"the present {_link(target.link)} before it is the output `{target.end.name}`"
    if update.is_growing:
        yield "the present is longer than the past by the new rows"
    if update.copies is not None:
        yield update.copies
    if target is not None and not update.shares:
        yield from _different_shapes(source.end, target.end, exact=update.kind == "where")
    yield from _readers(program, frame, update, source)


def source_in_words(value: ir.Value, named: Callable[[ir.Node], str]) -> str:
    """Return the source of a value that is no graph input, as text; `named` formats a node."""
    node = value.producer()
    if node is not None:
        return "a constant" if node.op_type == "Constant" else f"computed by {named(node)}"
    return "an initializer" if value.is_initializer() else "an input of a body"


def _link(link: Link) -> str:
    name = _named(link.node)
    return {
        "same": f"goes through {name}",
        "view": f"goes through {name}",
        "cast": f"is cast by {name}",
        "moved": f"has its rows moved or cut by {name}",
        "updated": f"is also updated by {name}",
    }[link.how]


def _named(node: ir.Node) -> str:
    if node.name:
        return f"`{node.op_type}` node `{node.name}`"
    return f"{'an' if node.op_type[:1] in 'AEIOU' else 'a'} `{node.op_type}` node"


def _different_shapes(past: ir.Value, present: ir.Value, *, exact: bool) -> Iterator[str]:
    """Compare what the file declares; what it leaves open an operator other than Where ensures.

    An exporter may call one size by two names, and a name may be given for what is a number.
    """
    before, after = dims_of(past), dims_of(present)
    if before is None or after is None:
        if exact:
            yield "it is unknown whether past and present have one shape"
        return
    different = len(before) != len(after) or any(
        a != b if exact else contradict(a, b) for a, b in zip(before, after, strict=False)
    )
    if different:
        yield f"the declared shapes differ: {shape_text(before)} and {shape_text(after)}"


def _readers(program: Program, frame: Frame, update: Update, source: Route) -> Iterator[str]:
    """Return the other readers of the old content, through copies and function calls."""
    past, inputs = source.end, enumerate(update.node.inputs)
    # Neither the past nor new rows: these say where the update writes.
    positions = [v for i, v in inputs if i not in update.reads and v is not update.update]
    stack, seen = [(past, source.frame)], {(past, source.frame)}
    while stack:
        value, here = stack.pop()
        if here is program.main and is_output_of(value, program.model.graph):
            yield f"the past `{past.name}` is an output itself"
        following = list(program.returned(value, here))
        for reader, index in value.uses():
            inner = program.enter(here, reader)
            if inner is not None and inner.function is not None:
                if index < len(inner.function.inputs):
                    following.append((inner.function.inputs[index], inner))
            elif Trait.SAME in traits(reader):
                following.append((reader.outputs[0], here))
            elif Trait.READS_SHAPE in traits(reader):
                continue
            elif not (reader is update.node and here is frame and index in update.reads):
                if here is frame and reads_before(reader, positions):
                    continue
                yield f"the past `{past.name}` is also read by {_named(reader)}"
        for place in following:
            if place not in seen:
                seen.add(place)
                stack.append(place)


def reads_before(reader: ir.Node, positions: Iterable[ir.Value | None]) -> bool:
    """Return whether a node has to be done before it is known where an update writes.

    `positions` say where the update writes. They are followed upwards a few nodes far.
    """
    pending = [value for value in positions if value is not None]
    seen: set[ir.Node] = set()
    while pending and len(seen) < _MOST_ABOVE:
        node = pending.pop().producer()
        if node is reader:
            return True
        if node is not None and node not in seen:
            seen.add(node)
            pending += read_values(node)
    return False


_NO_CACHE_TYPES = frozenset({ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL})
_STATE_NAME = re.compile(r"past|cache|kv", re.IGNORECASE)


def find_caches(model: ir.Model, *, prove: bool = True) -> tuple[Cache, ...]:
    """Return the caches of a decoder, in the order of the nodes that update them.

    An operator made for caches (TensorScatter, and Attention with a past) is one wherever its past
    is a graph input or an initializer, or its present a graph output. Scatter, Concat, Where and
    the sum of two masked products serve many ends: they are one where the past is a graph input and
    the present leaves as a graph output, and the next step can start from it. A scatter into an
    initializer of at least three dimensions at computed positions is the state of a model that
    keeps it inside. Past and present are followed through Identity, Transpose, Reshape, Squeeze,
    Unsqueeze, Cast and slices, calls of model-local functions, and the bodies of If, Loop and Scan.

    Shapes are those of the values: sizes that the file does not declare are unknown unless
    inference has written them. The model is not changed, no weights are read, and the time is
    linear in the number of nodes.

    Args:
        model: The model.
        prove: Whether to compute where scatters and masks write; without it, `write_indices` and
            `mode` of these kinds stay unknown.

    Raises:
        KvtoolError: If calls of functions unfold to more nodes than any exporter writes.
    """
    return tuple(_Finder(model, prove).rows())


class _Finder:
    def __init__(self, model: ir.Model, prove: bool) -> None:
        self._prove = prove
        self._maps: dict[ir.Function | None, IndexMaps] = {}
        self.program = Program(model, OPERATORS)
        self.routes = Routes(self.program)
        self._inputs = {*model.graph.inputs}

    def rows(self) -> Iterator[Cache]:
        for frame, path, index, node in self.program.nodes():
            for read in updates(node, frame.opset):
                routes, past, present = self.routes, read.past, read.present
                source = None if past is None else routes.source(past, frame)
                end = None if source is None else source.end
                target = None if present is None else routes.target(present, frame, end)
                update = read._replace(axis=_from_the_front(read, source, target))
                if not self._is_cache(frame, update, source, target):
                    continue
                yield self._cache(frame, Location.of(path, node, index), update, source, target)
                if not update.is_native:
                    break  # the other ways to read the node exclude this one

    def _is_cache(
        self, frame: Frame, update: Update, source: Route | None, target: Route | None
    ) -> bool:
        if source is None:
            return update.is_native and target is not None
        is_input = source.end in self._inputs and source.frame is self.program.main
        # A constant of the model can be a cache.
        is_inner = _is_constant(source.end) and len(_shape(source.end) or ()) >= 3
        if update.is_native:
            return is_input or target is not None or is_inner
        if self._is_fixed(update.update, frame, source):
            return False
        if update.kind.startswith("scatter") and not is_input and is_inner:
            return not self._is_fixed(update.node.inputs[1], frame, source)
        if not is_input or target is None:
            return False
        shape = _shape(source.end)
        # Token ids and masks of two dimensions hold no rows.
        least = 3 if _dtype(source.end) in _NO_CACHE_TYPES else 2
        if shape is not None and len(shape) < least:
            return False
        return _can_be_fed_back(update, source, target)

    def _is_fixed(self, value: ir.Value | None, frame: Frame, past: Route) -> bool:
        """Return whether `value` is a constant or the past itself, without new rows."""
        if value is None:
            return True
        source = self.routes.source(value, frame)
        return source.end is past.end or _is_constant(source.end)

    def _cache(
        self,
        frame: Frame,
        location: Location,
        update: Update,
        source: Route | None,
        target: Route | None,
    ) -> Cache:
        moves = any(route is not None and route.moves for route in (source, target))
        obstacle = next(_obstacles(self.program, frame, update, source, target), None)
        if self._prove and not moves and source is not None:
            update = self._with_positions(update, frame, source)
        end = source or target
        value = None if end is None else end.end
        shape, axes = _shape(value), None if end is None else end.axes
        axis = map_axis(axes, update.axis)
        if shape is not None and axis is not None and not 0 <= axis < len(shape):
            axis = None
        return Cache(
            kind=update.kind,
            location=location,
            past=None if source is None else source.end.name,
            present=_name(update.present if target is None else target.end),
            update=_name(update.update),
            write_indices=_name(update.write_indices),
            dtype=_dtype(value),
            shape=_with_head_size(shape, update, value),
            axis=axis,
            mode=update.mode,
            is_growing=update.is_growing and not moves,
            batch_axis=_batch_axis(update, axes, shape, axis),
            in_place=InPlace(obstacle is None, obstacle),
            past_value=None if source is None else source.end,
            node=update.node,
            calls=frame.calls,
            is_rolling=update.is_growing and moves,
        )

    def _with_positions(self, update: Update, frame: Frame, source: Route) -> Update:
        """Add the facts that positions or mask prove to an update.

        A start that changes with another axis than that of the batch, such as one for each head, is
        no start of a cache.
        """
        if update.indices is None or update.past is None:
            return update
        from onnx_kvtool.symbolic.index_maps import IndexMaps

        maps = self._maps.setdefault(frame.function, IndexMaps(frame.opset))
        found: Positions | None = None
        if update.kind == "where":
            found = mask_positions(maps, update.indices)
        elif update.kind == "scatter_nd":
            found = tuple_positions(maps, update.past, update.indices)
        elif update.axis is not None:
            found = element_positions(maps, update.past, update.indices, update.axis)
        if found is None or (update.axis is not None and update.axis != found.axis):
            return update
        if found.batch_axis is not None:
            first = 1 if map_axis(source.axes, found.axis) == 0 else 0
            if map_axis(source.axes, found.batch_axis) != first:
                return update._replace(axis=found.axis)
        return update._replace(
            axis=found.axis,
            mode=found.mode,
            write_indices=found.start,
            batch_axis=found.batch_axis,
        )


def _from_the_front(update: Update, source: Route | None, target: Route | None) -> int | None:
    """Return the axis of an update as a non-negative number; None if unknown.

    In a function body, where no value has a shape, the rank is that of the ends.
    """
    known = [update.past, update.present]
    known += [r.end for r in (source, target) if r is not None and r.axes == "same"]
    rank = next((len(v.shape) for v in known if v is not None and v.shape is not None), None)
    axis = update.axis
    if axis is None or (rank is not None and not -rank <= axis < rank):
        return None
    if axis < 0:
        axis = None if rank is None else axis + rank
    return None if axis == 0 and update.kind == "tensor_scatter" else axis


def _name(value: ir.Value | None) -> str | None:
    return None if value is None else value.name


def _is_constant(value: ir.Value) -> bool:
    is_stored = value.is_initializer() and not value.is_graph_input()
    return is_stored or maker(value, "Constant") is not None


def _shape(value: ir.Value | None) -> Dims | None:
    shape = dims_of(value)
    if shape is None and value is not None and value.const_value is not None:
        return tuple(int(d) for d in value.const_value.shape.numpy())
    return shape


def _dtype(value: ir.Value | None) -> ir.DataType | None:
    if value is None:
        return None
    if value.dtype is None and value.const_value is not None:
        return value.const_value.dtype
    return None if value.dtype == ir.DataType.UNDEFINED else value.dtype


def _can_be_fed_back(update: Update, source: Route, target: Route) -> bool:
    """Return whether no known fact prevents feeding the present back as the past."""
    before, after = _shape(source.end), _shape(target.end)
    types = {_dtype(source.end), _dtype(target.end)}
    if len(types) > 1 and None not in types:
        return False
    if before is None or after is None:
        return True
    if len(before) != len(after):
        return False
    axis = map_axis(source.axes, update.axis)
    for place, (a, b) in enumerate(zip(before, after, strict=True)):
        if update.is_growing and place == axis:
            # A step of fixed length, whose caller cuts the oldest row off; by its name alone can it
            # be told from a model of images that joins features.
            if isinstance(a, int) and not _STATE_NAME.search(source.end.name or ""):
                return False
        elif isinstance(a, int) and isinstance(b, int) and a != b:
            return False
    return not (update.is_growing and len(before) < 3)


def _with_head_size(shape: Dims | None, update: Update, value: ir.Value | None) -> Dims | None:
    """Replace a symbolic head size by the number that the widths of the operator's inputs give.

    Only where the cache has the type of the query: a quantized one may hold two elements in a byte.
    """
    query = update.node.inputs[0] if update.node.inputs else None
    if shape is None or len(shape) != 4 or update.head_size is None or isinstance(shape[3], int):
        return shape
    if query is None or value is None or query.dtype is None or value.dtype != query.dtype:
        return shape
    return (*shape[:3], update.head_size)


def _batch_axis(update: Update, axes: AxisMap, shape: Dims | None, axis: int | None) -> int | None:
    """Return the batch axis if it is known.

    An operator made for caches says so, and so do positions with a start for each sequence. With
    one start for all, it is the first axis of (batch, heads, rows, features) or of three such; a
    tensor of more dimensions may have others in front.
    """
    if update.batch_axis is not None:
        return map_axis(axes, update.batch_axis)
    if axis is None or axis == 0 or shape is None or not 3 <= len(shape) <= 4:
        return None
    return 0
