"""The operands of ScatterND and ScatterElements."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from onnx_kvtool.core.choices import Severity
from onnx_kvtool.core.storage import small_tensor
from onnx_kvtool.lint.context import Context, Site
from onnx_kvtool.lint.facts.operands import shape_words
from onnx_kvtool.lint.finding import Findings, Found
from onnx_kvtool.lint.rule import check
from onnx_kvtool.ops.operators import ScatterElements, ScatterND
from onnx_kvtool.ops.schema import NEWEST, op_facts, type_name
from onnx_kvtool.ops.traits import SIZE_TYPES, dtype_name
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.symbolic.contents import IndexMap, elements
from onnx_kvtool.symbolic.dimensions import Dims, contradict, dims_of
from onnx_kvtool.symbolic.expressions import Expr, integer
from onnx_kvtool.symbolic.simplification import at_least, below, interval, substitute

_Dims = Dims | None


def _misfit(
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
        yield Found(site.location(view.required("updates")), f"{problem} ({shown})", help=help)


@check("KV201")
def scatternd_rank(site: Site, context: Context) -> Findings:
    """Compare rank, then dimensions."""
    return _misfit(
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
def scatterelements_shape(site: Site, context: Context) -> Findings:
    """Compare ranks, then dimensions."""
    help = "expand the indices to the shape of the updates, of the rank of the data"
    return _misfit(site, _elements_problem, help)


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
def scatter_duplicate_indices(site: Site, context: Context) -> Findings:
    """Compare constant indices with each other, others by what they depend on."""
    view = _scatter(site)
    if view is None or view.reduction != "none":
        return
    severity: Severity | None = None
    indices = _constant(context, view.indices)
    if indices is not None:
        twice = _constant_twice(view, indices)
        remedy = "write each place once, or say with `reduction` how the values combine"
    else:
        twice, severity = _always_twice(context, site, view), "info"
        remedy = "write each place once; which of the values stays is not defined"
    if twice is not None:
        yield Found(
            site.location(view.indices),
            f"`{view.indices.name}` has {twice}, without a reduction",
            help=remedy,
            severity=severity,
        )


def _constant_twice(view: _Scatter, indices: NDArray[np.int64]) -> str | None:
    sizes, rank = dims_of(view.data), indices.ndim
    if rank == 0 or indices.size == 0:
        return None
    # Added to a negative index; 0 where the size is unknown.
    added = [size if isinstance(size, int) else 0 for size in sizes or ()]
    if isinstance(view, ScatterND):
        depth = indices.shape[-1]
        given = indices.reshape(-1, depth)
        places = given + (given < 0) * np.array([*added, *[0] * depth][:depth], np.int64)
    elif not -rank <= view.axis < rank or len(indices.shape if sizes is None else sizes) != rank:
        return None
    else:
        lines = np.moveaxis(indices, view.axis, -1).reshape(-1, indices.shape[view.axis])
        if added:
            lines = lines + (lines < 0) * added[view.axis]
        places = np.stack([np.indices(lines.shape)[0].ravel(), lines.ravel()], axis=1)
    order = np.lexsort([np.zeros(len(places)), *places.T[::-1]])
    ranked = places[order]
    same = (ranked[1:] == ranked[:-1]).all(axis=1)
    if not same.any():
        return None
    first, count = int(np.argmax(same)), int(same.sum())
    more = f", and {count - 1} more repetitions" if count > 1 else ""
    if isinstance(view, ScatterElements):
        return f"the index {ranked[first, 1]} twice along axis {view.axis % rank}{more}"
    one, other = sorted(order[first : first + 2].tolist())
    return f"the index {given[one].tolist()} twice, at tuples {one} and {other}{more}"


def _always_twice(context: Context, site: Site, view: _Scatter) -> str | None:
    """Look for a dimension of the indices of two or more along which nothing changes."""
    described = context.index_maps(site).of(view.indices)
    if not described.known or not described.shape:
        return None
    rank = len(described.shape)
    axes = range(rank - 1)
    if isinstance(view, ScatterElements):
        axes = range(view.axis % rank, view.axis % rank + (-rank <= view.axis < rank))
    elif described.shape[-1].number is None:
        return None
    least = [interval(size)[0] for size in described.shape]
    for axis in axes if min(least) >= 1 else ():
        fixed = described.axis != axis and not any(p.depends_on(axis) for p in described.parts)
        if fixed and least[axis] >= 2:
            return f"the same index at every coordinate along its dimension {axis}"
    return None


@check("KV204")
def scatter_index_out_of_bounds(site: Site, context: Context) -> Findings:
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
        yield Found(
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
    for axis, size, described in _components(context, site, view):
        for index in _corners(described):
            if at_least(index, size, described.facts) or below(index, -size, described.facts):
                return _words(str(index), axis, str(size), view)
    return None


def _words(index: str, axis: int, size: str, view: _Scatter) -> str:
    if size.isdigit():
        bounds = f"expected {-int(size)} to {int(size) - 1}"
    else:
        bounds = f"expected -({size}) to {size} - 1"
    return f"the index {index} along axis {axis} of `{view.data.name}` (size {size}), {bounds}"


@check("KV206")
def scatter_dtype_unsupported(site: Site, context: Context) -> Findings:
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
        yield Found(
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
    tensor = small_tensor(value, _MOST)
    if tensor is None or tensor.dtype not in SIZE_TYPES:
        return None
    if any(size < 0 for size in tensor.shape.numpy()):
        return None
    found = elements(tensor)
    return None if found is None else found.astype(np.int64)


def _components(
    context: Context, site: Site, view: _Scatter
) -> Iterator[tuple[int, Expr, IndexMap]]:
    """Yield the known components of the index tuples, or the one of ScatterElements.

    Each with the axis of the data along which it counts, and the size of that.
    """
    maps = context.index_maps(site)
    sizes, described = maps.shape(view.data), maps.of(view.indices)
    if sizes is None or not described.shape or not described.known:
        return
    if isinstance(view, ScatterElements):
        if -len(sizes) <= view.axis < len(sizes):
            axis = view.axis % len(sizes)
            yield axis, sizes[axis], described
        return
    depth = described.shape[-1].number
    if depth is None or depth > len(sizes):
        return
    for axis in range(depth):
        one = described.component(axis)
        if one is not None and one.known:
            yield axis, sizes[axis], one


def _corners(described: IndexMap) -> Iterator[Expr]:
    """Yield what the first and the last element hold, and what each part of the elements holds.

    A bound of an index that counts along an axis is reached at one of its ends. Nothing is yielded
    for indices that certainly have no element.
    """
    shape = described.shape or ()
    if any(size.number == 0 for size in shape):
        return
    for part in described.parts:
        yield part
        if part.axes:
            last = {axis: shape[axis] - 1 for axis in sorted(part.axes)}
            for ends in (dict.fromkeys(last, integer(0)), last):
                yield substitute(part, ends, described.facts)
