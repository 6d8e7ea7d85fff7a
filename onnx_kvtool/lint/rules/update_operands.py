"""The operands of a TensorScatter: axis, mode, shapes, types, the declared result."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.lint.context import Context, Site
from onnx_kvtool.lint.facts.operands import FIRST_OPSET, Operands, declared, operands, shape_words
from onnx_kvtool.lint.finding import Applicability, Findings, Fix, Found
from onnx_kvtool.lint.rule import RULES, check
from onnx_kvtool.ops.operators import TensorScatter
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.symbolic.dimensions import contradict, dims_of
from onnx_kvtool.symbolic.simplification import below, interval

_REMEDIES = {
    "KV001": "set `axis` to the dimension that counts tokens",
    "KV003": "write `linear`, or `circular` for a cache that wraps around",
}


@check(*_REMEDIES)
def refused(code: str, site: Site, context: Context) -> Findings:
    """Read the node through its view, which refuses `axis` 0 and other modes."""
    if site.opset is None:
        return
    try:
        _ = TensorScatter(site.node, site.opset).sequence_axis
    except MalformedNode as error:
        if error.code == RULES[code].name:
            yield Found(site.location(), error.message, help=_REMEDIES[code])


@check("KV002")
def axis_out_of_range(site: Site, context: Context) -> Findings:
    """Compare `axis` with the rank of the cache, or of the update."""
    found = operands(context, site)
    if found is None or found.written_axis is None:
        return
    for value in (found.past, found.update):
        if value.shape is not None:
            rank = len(value.shape)
            if rank and not -rank <= found.written_axis < rank:
                yield Found(
                    site.location(),
                    f"`axis` is {found.written_axis}, but `{value.name}` has rank {rank}: "
                    f"expected {-rank} to {rank - 1}",
                    help="set `axis` to the dimension that counts tokens",
                )
            return


@check("KV004")
def rank_mismatch(site: Site, context: Context) -> Findings:
    """Compare the ranks."""
    found = operands(context, site)
    if found is None:
        return
    past, update = dims_of(found.past), dims_of(found.update)
    if past is not None and update is not None and len(past) != len(update):
        yield Found(
            site.location(found.update),
            f"`{found.update.name}` has rank {len(update)} {shape_words(update)}, "
            f"`{found.past.name}` has rank {len(past)} {shape_words(past)}: expected one rank",
            help="reshape the update to the layout of the cache",
        )
        return
    for value, dims in ((found.past, past), (found.update, update)):
        if dims is not None and len(dims) < 2:
            yield Found(
                site.location(value),
                f"`{value.name}` has rank {len(dims)}, expected at least 2: a batch and a "
                "sequence dimension",
                help="add the dimension that is missing",
            )
            return


@check("KV005")
def non_axis_dim_mismatch(site: Site, context: Context) -> Findings:
    """Compare the dimensions one by one."""
    found = operands(context, site)
    if found is None or found.axis is None:
        return
    maps = context.index_maps(site)
    past, update = maps.shape(found.past), maps.shape(found.update)
    if past is None or update is None or len(past) != len(update):
        return
    differing: list[str] = []
    for axis, (one, other) in enumerate(zip(update, past, strict=True)):
        if axis == found.axis or one == other:
            continue
        low, high = interval(one - other)
        if low > 0 or high < 0:
            differing.append(f"{one} along dimension {axis}, not {other}")
    if differing:
        yield Found(
            site.location(found.update),
            f"`{found.update.name}` {shape_words(dims_of(found.update))} has size "
            f"{' and '.join(differing)} as `{found.past.name}` {shape_words(dims_of(found.past))}; "
            f"only dimension {found.axis}, the `axis`, may differ",
            help="transpose or reshape the update to the layout of the cache, or name the "
            "sequence dimension with `axis`",
        )


@check("KV006")
def dtype_mismatch(site: Site, context: Context) -> Findings:
    """Compare the types."""
    found = operands(context, site)
    if found is None:
        return
    given = [
        (value, dtype_name(value.dtype))
        for value in (found.past, found.update, found.present)
        if value.dtype is not None
    ]
    if len({name for _, name in given}) > 1:
        other = next(value for value, name in given if name != given[0][1])
        named = ", ".join(f"`{value.name}` is {name}" for value, name in given)
        yield Found(
            site.location(other),
            f"cache, update and result differ in element type: {named}",
            help=f"cast the update to {given[0][1]}, or keep the cache in the type of the update",
        )


@check("KV007")
def update_longer_than_cache(site: Site, context: Context) -> Findings:
    """Compare the rows."""
    found = operands(context, site)
    sizes = None if found is None else found.sizes(context.index_maps(site))
    if found is None or sizes is None:
        return
    capacity, length = sizes
    if below(capacity, length):
        yield Found(
            site.location(found.update),
            f"`{found.update.name}` has {length} rows along axis {found.axis}, "
            f"`{found.past.name}` has room for {capacity}",
            help="make the cache larger, or feed the rows in several steps",
        )


@check("KV012")
def opset_too_old(site: Site, context: Context) -> Findings:
    """Compare the opset with the one that brought the operator."""
    if site.opset is not None and site.opset < FIRST_OPSET:
        yield Found(
            site.location(),
            f"`TensorScatter` came with opset {FIRST_OPSET}, the {context.owner(site.root)} "
            f"imports opset {site.opset}",
            help=f"raise the opset import to {FIRST_OPSET}; for a runtime that does not load "
            "it, `kvtool lower --opset` replaces the operator afterwards",
        )


@check("KV013")
def present_decl_mismatch(site: Site, context: Context) -> Findings:
    """Compare the two declarations."""
    found = operands(context, site)
    if found is None or not found.present.name:
        return
    types = {found.past.dtype, found.present.dtype} - {None}
    one, other = dims_of(found.past), dims_of(found.present)
    differs = len(types) > 1
    if one is not None and other is not None:
        differs |= len(one) != len(other) or any(map(contradict, one, other))
    if differs:
        yield Found(
            site.location(found.present),
            f"`{found.present.name}` is declared {declared(found.present)}, "
            f"`{found.past.name}` is {declared(found.past)}: expected the same",
            help="declare the result like the cache",
            fix=_declare(found),
        )


def _declare(found: Operands) -> Fix:
    # Taken now: what inference has written on the values is gone when the fix is applied.
    present, type_, dims = found.present, found.past.type, dims_of(found.past)

    def apply() -> None:
        if present.producer() is None:
            return
        if type_ is not None:
            present.type = type_
        if dims is not None:
            present.shape = ir.Shape(list(dims))

    changes_interface = present.is_graph_output() and found.past.dtype != present.dtype
    applicability: Applicability = "unsafe" if changes_interface else "safe"
    return Fix(applicability, f"declare `{present.name}` as `{found.past.name}`", apply)
