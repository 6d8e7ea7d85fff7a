"""The operands of ScatterND and ScatterElements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from onnx_kvtool.core.storage import stored_tensor
from onnx_kvtool.lint.context import Context, Site
from onnx_kvtool.lint.facts.operands import shape_words
from onnx_kvtool.lint.finding import Findings
from onnx_kvtool.lint.rule import Rule, check
from onnx_kvtool.ops.operators import ScatterElements, ScatterND
from onnx_kvtool.ops.schema import NEWEST, op_facts, type_name
from onnx_kvtool.ops.traits import SIZE_TYPES, dtype_name
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.symbolic.contents import IndexMap, elements
from onnx_kvtool.symbolic.dimensions import Dim, contradict, dims_of
from onnx_kvtool.symbolic.expressions import Expr, integer
from onnx_kvtool.symbolic.simplification import Facts, at_least, below, interval, substitute

_Dims = tuple[Dim, ...] | None


def _misfit(
    rule: Rule,
    site: Site,
    problem_of: Callable[[NodeView, _Dims, _Dims, _Dims], str | None],
    help: str,
) -> Findings:
    """Report the first problem of the shapes of data, indices and updates."""
    view = site.view(NodeView)
    if view is None:
        return
    names = ("data", "indices", "updates")
    data, indices, updates = (dims_of(view.required(name)) for name in names)
    problem = problem_of(view, data, indices, updates)
    if problem is not None:
        pairs = zip(names, (data, indices, updates), strict=True)
        shown = ", ".join(f"{name} {shape_words(dims)}" for name, dims in pairs)
        yield rule.found(site.location(view.required("updates")), f"{problem} ({shown})", help=help)


@check("KV201")
def scatternd_rank(rule: Rule, site: Site, context: Context) -> Findings:
    """Compare rank, then dimensions."""
    return _misfit(
        rule,
        site,
        _nd_problem,
        "give the updates the shape indices.shape[:-1] + data.shape[k:], with k = "
        "indices.shape[-1]",
    )


def _nd_problem(view: NodeView, data: _Dims, indices: _Dims, updates: _Dims) -> str | None:
    if data is None or indices is None:
        return None
    r, q = len(data), len(indices)
    if r == 0 or q == 0:
        return f"`data` has rank {r} and `indices` rank {q}, expected at least 1"
    depth = indices[-1]
    if isinstance(depth, int) and depth > r:
        return f"index tuples have {depth} components, `data` has rank {r}"
    if updates is None:
        return None
    k = depth if isinstance(depth, int) else q + r - 1 - len(updates)
    if not isinstance(depth, int) and not 1 <= k <= r:
        return f"`updates` has rank {len(updates)}, expected {q - 1} to {q + r - 2}"
    if len(updates) != q + r - k - 1:
        return (
            f"`updates` has rank {len(updates)}, expected {q + r - k - 1}: rank {q} of `indices` + "
            f"rank {r} of `data` - {k} index components - 1"
        )
    expected = [*indices[:-1], *data[k:]]
    for axis, (got, want) in enumerate(zip(updates, expected, strict=True)):
        if contradict(got, want):
            source = "indices" if axis < q - 1 else "data"
            return f"dimension {axis} of `updates` is {got}, expected {want} as in `{source}`"
    return None


@check("KV202")
def scatterelements_shape(rule: Rule, site: Site, context: Context) -> Findings:
    """Compare ranks, then dimensions."""
    help = "expand the indices to the shape of the updates, of the rank of the data"
    return _misfit(rule, site, _elements_problem, help)


def _elements_problem(view: NodeView, data: _Dims, indices: _Dims, updates: _Dims) -> str | None:
    try:
        axis = view.integer("axis")
    except MalformedNode:
        return None
    if data is not None:
        if not -len(data) <= axis < len(data):
            return f"`axis` is {axis}, expected {-len(data)} to {len(data) - 1}"
        for name, dims in (("indices", indices), ("updates", updates)):
            if dims is not None and len(dims) != len(data):
                return f"`{name}` has rank {len(dims)}, expected {len(data)} as `data`"
    if indices is None:
        return None
    if updates is not None:
        if len(indices) != len(updates):
            return f"`updates` has rank {len(updates)}, expected {len(indices)} as `indices`"
        for k, (got, want) in enumerate(zip(updates, indices, strict=True)):
            if contradict(got, want):
                return f"dimension {k} of `updates` is {got}, expected {want} as in `indices`"
    for k, (got, room) in enumerate(zip(indices, data or (), strict=False)):
        if (
            isinstance(got, int)
            and isinstance(room, int)
            and got > room
            and k != axis % len(indices)
        ):
            return f"dimension {k} of `indices` is {got}, `data` has {room}"
    return None


@check("KV203")
def scatter_duplicate_indices(rule: Rule, site: Site, context: Context) -> Findings:
    """Compare constant indices with each other, others by what they depend on."""
    view = _scatter(site)
    if view is None or view.reduction != "none":
        return
    indices = _constant(context, view.indices)
    if indices is not None:
        twice = _constant_twice(view, indices)
        if twice is not None:
            yield rule.found(
                site.location(view.indices),
                f"`{view.indices.name}` has {twice}, without a reduction",
                help="write each place once, or say with `reduction` how the values combine",
            )
        return
    axis = _repeated_axis(context, site, view)
    if axis is not None:
        yield rule.found(
            site.location(view.indices),
            f"`{view.indices.name}` has the same index at every coordinate along its "
            f"dimension {axis}, without a reduction",
            help="write each place once; which of the values stays is not defined",
            severity="info",
        )


def _constant_twice(view: _Scatter, indices: NDArray[np.int64]) -> str | None:
    sizes = dims_of(view.data)
    if indices.ndim == 0 or indices.size == 0:
        return None
    if isinstance(view, ScatterND):
        return _tuple_twice(indices, sizes)
    rank = indices.ndim
    if (sizes is not None and len(sizes) != rank) or not -rank <= view.axis < rank:
        return None
    axis = view.axis % rank
    return _element_twice(indices, axis, None if sizes is None else sizes[axis])


def _tuple_twice(indices: NDArray[np.int64], sizes: tuple[object, ...] | None) -> str | None:
    depth = indices.shape[-1]
    tuples = indices.reshape(-1, depth).copy()
    for k, size in enumerate((sizes or ())[:depth]):
        if isinstance(size, int):
            tuples[:, k] += np.where(tuples[:, k] < 0, size, 0)
    order = np.lexsort(tuples.T[::-1]) if depth else np.arange(len(tuples))
    ranked = tuples[order]
    same = (ranked[1:] == ranked[:-1]).all(axis=1)
    if not same.any():
        return None
    first = int(np.argmax(same))
    one, other = sorted(int(n) for n in order[first : first + 2])
    count = int(same.sum())
    return (
        f"the index {indices.reshape(-1, depth)[one].tolist()} twice, at tuples {one} and {other}"
        + (f", and {count - 1} more repetitions" if count > 1 else "")
    )


def _element_twice(indices: NDArray[np.int64], axis: int, size: object) -> str | None:
    lines = np.moveaxis(indices, axis, -1)
    if isinstance(size, int):
        lines = lines + np.where(lines < 0, size, 0)
    ranked = np.sort(lines, axis=-1)
    same = ranked[..., 1:] == ranked[..., :-1]
    if not same.any():
        return None
    place = np.unravel_index(int(np.argmax(same)), same.shape)
    count = int(same.sum())
    return f"the index {int(ranked[place])} twice along axis {axis}" + (
        f", and {count - 1} more repetitions" if count > 1 else ""
    )


def _repeated_axis(context: Context, site: Site, view: _Scatter) -> int | None:
    """Return a dimension of the indices along which nothing changes and that has two or more."""
    maps = context.index_maps(site)
    described = maps.of(view.indices)
    if not described.known or not described.shape:
        return None
    if isinstance(view, ScatterElements):
        rank = len(described.shape)
        axes = [view.axis % rank] if -rank <= view.axis < rank else []
    else:
        axes = list(range(len(described.shape) - 1))
        if described.shape[-1].number is None:
            return None
    if any(interval(size, Facts())[0] < 1 for size in described.shape):
        return None
    for axis in axes:
        fixed = described.axis != axis and not any(p.depends_on(axis) for p in described.parts)
        if fixed and interval(described.shape[axis], Facts())[0] >= 2:
            return axis
    return None


@check("KV204")
def scatter_index_out_of_bounds(rule: Rule, site: Site, context: Context) -> Findings:
    """Compare the indices with the sizes of the data."""
    view = _scatter(site)
    if view is None:
        return
    indices = _constant(context, view.indices)
    if indices is not None:
        outside = _constant_outside(view, indices)
    else:
        outside = _provably_outside(context, site, view)
    if outside is not None:
        yield rule.found(
            site.location(view.indices),
            f"`{view.indices.name}` has {outside}",
            help="keep the indices within the data, or make the data larger",
        )


def _constant_outside(view: _Scatter, indices: NDArray[np.int64]) -> str | None:
    sizes = dims_of(view.data)
    if sizes is None or indices.ndim == 0:
        return None
    if isinstance(view, ScatterND):
        parts = [(k, indices[..., k]) for k in range(min(indices.shape[-1], len(sizes)))]
    elif -len(sizes) <= view.axis < len(sizes):
        parts = [(view.axis % len(sizes), indices)]
    else:
        return None
    for axis, numbers in parts:
        size = sizes[axis]
        if not isinstance(size, int):
            continue
        wrong = (numbers < -size) | (numbers >= size)
        if wrong.any():
            count = int(wrong.sum())
            worst = int(numbers.ravel()[int(np.argmax(wrong.ravel()))])
            return _words(str(worst), axis, str(size), view) + (
                f", and {count - 1} more outside" if count > 1 else ""
            )
    return None


def _provably_outside(context: Context, site: Site, view: _Scatter) -> str | None:
    for one in _components(context, site, view):
        for index, facts in _corners(one.described):
            if at_least(index, one.size, facts) or below(index, -one.size, facts):
                return _words(str(index), one.axis, str(one.size), view)
    return None


def _words(index: str, axis: int, size: str, view: _Scatter) -> str:
    if size.isdigit():
        bounds = f"expected {-int(size)} to {int(size) - 1}"
    else:
        bounds = f"expected -({size}) to {size} - 1"
    return f"the index {index} along axis {axis} of `{view.data.name}` (size {size}), {bounds}"


@check("KV206")
def scatter_dtype_unsupported(rule: Rule, site: Site, context: Context) -> Findings:
    """Look the type of the data up in the schema."""
    view = site.view(NodeView)
    if view is None:
        return
    for name in ("data", "updates"):
        value = view.required(name)
        formal = next(f for f in view.facts.inputs if f.name == name)
        given = type_name(value)
        if given is None or given in formal.types:
            continue
        shown = given if value.dtype is None else dtype_name(value.dtype)
        yield rule.found(
            site.location(value),
            f"`{value.name}` is {shown}, which `{site.node.op_type}` does not take at opset "
            f"{view.opset}{_later(site.node.op_type, name, given, view.opset)}",
            help="cast the data and the updates to a type that it takes, and the result back",
        )
        return


def _later(op_type: str, name: str, given: str, opset: int) -> str:
    for later in range(opset + 1, NEWEST + 1):
        facts = op_facts(op_type, later)
        if facts is not None and any(f.name == name and given in f.types for f in facts.inputs):
            return f", only from opset {later} on"
    return ""


_MOST = 2**18
"""Most indices of a constant that are read; so many take 2 MiB."""


_Scatter = ScatterElements | ScatterND


def _scatter(site: Site) -> _Scatter | None:
    """Return the view of a scatter; None for one that its schema does not allow."""
    if site.node.op_type == "ScatterND":
        return site.view(ScatterND)
    return site.view(ScatterElements)


def _constant(context: Context, value: ir.Value) -> NDArray[np.int64] | None:
    """Return constant indices; None where they are computed from inputs, external or too many."""
    known = context.folder.integers(value)
    if known is not None:
        return known
    tensor = None if value.is_graph_input() else stored_tensor(value)
    if tensor is None or tensor.dtype not in SIZE_TYPES or isinstance(tensor, ir.ExternalTensor):
        return None
    if any(size < 0 for size in tensor.shape.numpy()) or tensor.size > _MOST:
        return None
    found = elements(tensor)
    return None if found is None else found.astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Component:
    """What the indices hold that count along one axis of the data.

    Attributes:
        axis: The axis of the data.
        size: Its size.
        described: The indices, over the coordinates of their grid.
    """

    axis: int
    size: Expr
    described: IndexMap


def _components(context: Context, site: Site, view: _Scatter) -> Iterator[_Component]:
    """Yield the components of the index tuples, or the one of ScatterElements, that are known."""
    maps = context.index_maps(site)
    sizes, described = maps.shape(view.data), maps.of(view.indices)
    if sizes is None or not described.shape or not described.known:
        return
    if isinstance(view, ScatterElements):
        if -len(sizes) <= view.axis < len(sizes):
            axis = view.axis % len(sizes)
            yield _Component(axis, sizes[axis], described)
        return
    depth = described.shape[-1].number
    if depth is None or depth > len(sizes):
        return
    for axis in range(depth):
        one = described.component(axis)
        if one is not None and one.known:
            yield _Component(axis, sizes[axis], one)


def _corners(described: IndexMap) -> Iterator[tuple[Expr, Facts]]:
    """Yield what the first and the last element hold, and what each part of the elements holds.

    A bound of an index that counts along an axis is reached at one of its ends. Nothing is yielded
    for indices that certainly have no element.
    """
    shape = described.shape or ()
    if any(size.number == 0 for size in shape):
        return
    for part in described.parts:
        yield part, described.facts
        if part.axes:
            for ends in _ends(sorted(part.axes), shape):
                yield substitute(part, ends, described.facts), described.facts


def _ends(axes: Sequence[int], shape: Sequence[Expr]) -> Iterator[dict[int, Expr]]:
    yield dict.fromkeys(axes, integer(0))
    yield {axis: shape[axis] - 1 for axis in axes}
