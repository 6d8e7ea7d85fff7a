"""What TensorRT does not take."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import partial

import onnx_ir as ir

from onnx_kvtool.lint.context import Context
from onnx_kvtool.lint.facts.operands import (
    dtype_word,
    has_operator,
    limits_named,
    lowering_command,
    runtime_words,
    shape_words,
)
from onnx_kvtool.lint.finding import Findings, Fix, Found
from onnx_kvtool.lint.rule import check
from onnx_kvtool.ops.operators import Attention, TensorScatter
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.symbolic.dimensions import dims_of, product
from onnx_kvtool.targets.release import Limit
from onnx_kvtool.targets.target import Target

_FIRST_GOOD = (10, 9)
_DIMENSIONS = 4
_SEQUENCE = 2
_MOST = 2**31 - 1


@check("KV205")
def scatternd_reduction_attr_trt(context: Context, target: Target) -> Findings:
    """Look at the attribute of each ScatterND."""
    version = tuple(int(part) for part in target.asked.rpartition(" ")[2].split("."))
    if version >= _FIRST_GOOD:
        return
    for site in context.sites_of("ScatterND"):
        node = site.node
        if node.domain or "reduction" not in node.attributes:
            continue
        given = node.attributes["reduction"]
        is_default = not given.is_ref() and given.value == "none"
        drop = partial(node.attributes.pop, "reduction", None)
        fix = Fix("safe", "remove `reduction=none`, the default", drop)
        shown = "" if given.is_ref() else f'="{given.value}"'
        yield Found(
            site.location(),
            f"has the attribute `reduction`{shown}, which {target.asked} refuses",
            help="leave the default out"
            if is_default
            else "use TensorRT 10.9 or later, or a graph without a reduction",
            fix=fix if is_default else None,
        )


@check("KV303")
def trt_mode(context: Context, target: Target) -> Findings:
    """Look at the mode of each TensorScatter."""
    if not has_operator(target, "TensorScatter-24"):
        return
    for site, view in context.views(TensorScatter):
        if view.mode == "circular":
            linear = ir.AttrString("mode", "linear")
            write = partial(operator.setitem, site.node.attributes, "mode", linear)
            fix = Fix("safe", "write `linear`, which is the same where no row wraps", write)
            yield Found(
                site.location(),
                f"`mode` is `circular`, and {runtime_words(target)} takes `linear` alone",
                help=f"lower the model for this release: {lowering_command(target)}",
                fix=fix if _never_wraps(view, context) else None,
            )


def _never_wraps(view: TensorScatter, context: Context) -> bool:
    """Return whether no row passes the end of the cache in any run that TensorScatter allows."""
    if view.write_indices is None:
        return True  # from 0 on, more rows than the cache has are refused in both modes
    starts = context.folder.integers(view.write_indices)
    past, update = dims_of(view.past_cache), dims_of(view.update)
    try:
        axis = view.sequence_axis
    except MalformedNode:
        return False
    if starts is None or past is None or update is None or axis is None:
        return False
    capacity, length = past[axis], update[axis]
    if not isinstance(capacity, int) or not isinstance(length, int):
        return False
    return all(0 <= start <= capacity - length for start in starts.ravel())


@check("KV304")
def trt_layout(context: Context, target: Target) -> Findings:
    """Compare each TensorScatter with the layer."""
    for limit in limits_named(target, "kv-cache-update"):
        for site, view in context.views(TensorScatter):
            if reasons := list(_layout_reasons(view, dtype_word(site.node), limit)):
                past = view.past_cache
                yield Found(
                    site.location(past),
                    f"{runtime_words(target)} takes caches of 4 dimensions, axis 2 and a fixed "
                    f"capacity, and `{past.name}` has {', '.join(reasons)}",
                    help="export 4-dimensional caches, or lower the model for this release: "
                    + lowering_command(target),
                )


def _layout_reasons(view: TensorScatter, dtype: str | None, limit: Limit) -> Iterator[str]:
    dims = dims_of(view.past_cache)
    if dims is not None:
        if len(dims) != _DIMENSIONS:
            yield f"{len(dims)} dimensions"
        try:
            axis = view.sequence_axis
        except MalformedNode:
            return
        if axis is not None and len(dims) == _DIMENSIONS and axis != _SEQUENCE:
            yield f"axis {axis}"
        capacity = 0 if axis is None else dims[axis]
        # Nothing but the file can fix the size of an input.
        is_open = capacity is None and view.past_cache.is_graph_input()
        if isinstance(capacity, str) or is_open:
            yield f"the capacity `{capacity or '?'}`"
    if dtype is not None and dtype not in limit.types:
        yield f"type {dtype}"


@check("KV305")
def trt_volume(context: Context, target: Target) -> Findings:
    """Count the elements of each operand whose dimensions are numbers."""
    for site in context.sites:
        if Trait.UPDATES not in traits(site.node):
            continue
        for value in site.node.inputs:
            dims = dims_of(value)
            count = None if dims is None else product(dims)
            if value is not None and count is not None and count > _MOST:
                yield Found(
                    site.location(value),
                    f"`{value.name}` {shape_words(dims)} has {count:,} elements, and "
                    f"{runtime_words(target)} takes {_MOST:,} at most",
                    help="scatter into parts of the tensor, or write whole rows by ScatterND",
                )


@check("KV306")
def trt_attention_form(context: Context, target: Target) -> Findings:
    """Compare each Attention with the form that is taken."""
    if not limits_named(target, "attention-4d"):
        return
    for site, view in context.views(Attention):
        if reasons := list(_form_reasons(view)):
            yield Found(
                site.location(),
                f"{runtime_words(target)} takes no Attention with {', '.join(reasons)}",
                help="use 4-dimensional operands and put the valid rows into a 4-dimensional "
                f"mask, or lower the model for this release: {lowering_command(target)}",
            )


def _form_reasons(view: Attention) -> Iterator[str]:
    inputs = {
        "past_key": view.past_key,
        "past_value": view.past_value,
        "nonpad_kv_seqlen": view.nonpad_kv_seqlen,
    }
    for name, value in inputs.items():
        if value is not None:
            yield f"`{name}`"
    if view.softcap != 0:
        yield f"`softcap` {view.softcap:g}"
    for name in view.outputs:
        if name != "Y":
            yield f"the output `{name}`"
    operands = {"Q": view.query, "K": view.key, "V": view.value, "attn_mask": view.attn_mask}
    for name, value in operands.items():
        dims = dims_of(value)
        if dims is not None and len(dims) != _DIMENSIONS:
            yield f"{len(dims)}-dimensional `{name}`"
