"""Sources, destinations and updates of caches."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from onnx_kvtool.analysis.caches import Cache
from onnx_kvtool.analysis.caches.cache import growing, growth_in_words
from onnx_kvtool.analysis.caches.find import reads_before, source_in_words
from onnx_kvtool.analysis.caches.writes import rolling, rolling_command, rolling_in_words
from onnx_kvtool.core.walk import is_output_of
from onnx_kvtool.lint.context import Context
from onnx_kvtool.lint.facts.layers import Branches, copies, levels, readers
from onnx_kvtool.lint.facts.operands import has_operator, node_words, shape_words
from onnx_kvtool.lint.finding import Findings, Fix, Found
from onnx_kvtool.lint.rule import check
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.symbolic.dimensions import contradict, dims_of

_POSITIONS = 2
"""The input of a TensorScatter that says where it writes."""


@check("KV101")
def past_has_other_consumer(context: Context) -> Findings:
    """Find other readers of the past, in the main graph and in each function on the way."""
    branches = Branches(context)
    for cache in context.scatters:
        for past, who in _others(cache, context, branches):
            yield Found(
                cache.location,
                f"`past_cache` `{past}` {who}, so that the update cannot be done in place",
                help="read the present instead, or read the past before a copy of it is made",
            )


def _others(cache: Cache, context: Context, branches: Branches) -> Iterator[tuple[str, str]]:
    """Yield the name of the past and its other readers, level by level."""
    for past, node, index in levels(cache, context):
        for copy in copies(past):
            maker = copy.producer()
            if is_output_of(copy, context.model.graph):
                way = "itself" if copy is past else f"as `{copy.name}`"
                yield past.name or "", f"is {way} an output of the model"
            elif copy.is_graph_output() and not (maker and branches.exclude(maker, node)):
                yield past.name or "", "is also what a function or a body returns"
        for reader, at in readers(past):
            if reader is node and at == index:
                continue
            if reader.op_type == "TensorScatter" and not reader.domain and at == 0:
                continue  # KV102
            if reads_before(reader, node.inputs[_POSITIONS:]):
                continue
            if not branches.exclude(reader, node):
                yield past.name or "", f"is also read by {node_words(reader)}"


@check("KV102")
def past_scattered_twice(context: Context) -> Findings:
    """Group the updates by the input that they start from."""
    by_past: dict[ir.Value, list[Cache]] = {}
    for cache in context.scatters:
        *_, (root, _, _) = levels(cache, context)
        if root.is_graph_input():
            by_past.setdefault(root, []).append(cache)
    branches = Branches(context)
    for past, caches in by_past.items():
        first, *others = caches
        for other in others:
            if branches.exclude(first.node, other.node):
                continue
            count = f"{len(caches)} TensorScatter"
            yield Found(
                other.location,
                f"`{past.name}` is the `past_cache` of {count}, of {node_words(first.node)} "
                "as well, and one of them at most can be done in place",
                help="give each update its own past, or scatter into the first present",
            )


@check("KV103")
def past_not_graph_input(context: Context) -> Findings:
    """Look where the past of each TensorScatter comes from."""
    for cache in context.scatters:
        past = cache.past_value
        if past is None:
            continue
        *_, (nearest, _, _) = levels(cache, context)
        strict = _demand(context)
        if not context.is_fed(past):
            place = past
        elif strict and not context.is_fed(nearest):
            place = nearest
        else:
            continue
        yield Found(
            cache.location,
            f"`past_cache` `{place.name}` is {source_in_words(place, node_words)}, not an input of "
            f"the model{strict}",
            help="make the cache an input of the model and feed the present of the last step",
            severity="error" if strict else None,
        )


def _demand(context: Context) -> str:
    # TensorRT alone takes a cache from an input to an output and nowhere else.
    strict = (target for target in context.targets if target.release.runtime == "tensorrt")
    return next((f", as {target.asked} demands" for target in strict), "")


@check("KV104")
def present_not_graph_output(context: Context) -> Findings:
    """Look where the present of each TensorScatter goes."""
    for cache in context.scatters:
        present = cache.node.outputs[0]
        strict = _demand(context)
        if cache.present not in context.outputs:
            what = "is not an output of the model"
        elif strict and not cache.calls and not present.is_graph_output():
            what = f"is no output itself, only behind other nodes as `{cache.present}`"
        else:
            continue
        yield Found(
            cache.location,
            f"`present_cache` `{present.name}` {what}{strict}",
            help="return it as an output, and feed it back as the past of the next step",
            severity="error" if strict else None,
            fix=_returned(cache, context),
        )


def _returned(cache: Cache, context: Context) -> Fix | None:
    """Return the fix for an update in the main graph, whose present can be returned as it is."""
    graph, present = context.model.graph, cache.node.outputs[0]
    if cache.node.graph is not graph or present.type is None or present.is_graph_output():
        return None
    # Inference has written type and shape on the value, and takes them away after the rules ran.
    type_, shape = present.type, present.shape

    def apply() -> None:
        node = present.producer()
        if node is None or node.graph is not graph or present.is_graph_output():
            return
        if present.type is None:
            present.type = type_
        if present.shape is None:
            present.shape = shape
        graph.outputs.append(present)

    return Fix("unsafe", f"return `{present.name}` as an output", apply)


@check("KV106")
def past_present_io_mismatch(context: Context) -> Findings:
    """Compare the declarations at both ends of each cache."""
    for cache in context.caches:
        past, present = cache.past_value, context.outputs.get(cache.present)
        if past is None or present is None or not context.is_fed(past):
            continue
        for what in _end_differences(cache, past, present):
            yield Found(
                cache.location,
                f"the past `{past.name}` and its present `{present.name}` differ {what}",
                help="declare both alike, and convert the new rows instead of the cache",
            )


def _end_differences(cache: Cache, past: ir.Value, present: ir.Value) -> Iterator[str]:
    if past.dtype is not None and present.dtype is not None and past.dtype != present.dtype:
        yield f"in type: {dtype_name(past.dtype)} and {dtype_name(present.dtype)}"
    before, after = dims_of(past), dims_of(present)
    if before is None or after is None:
        return
    shapes = f"{shape_words(before)} and {shape_words(after)}"
    if len(before) != len(after):
        yield f"in rank: {len(before)} and {len(after)}, in shapes {shapes}"
        return
    for axis, (one, other) in enumerate(zip(before, after, strict=True)):
        if cache.is_growing and axis == cache.axis:
            continue
        if contradict(one, other):
            yield f"in dimension {axis}: {one} and {other}, in shapes {shapes}"


@check("KV207")
def raisable_pattern(context: Context) -> Findings:
    """Read the cache table, which knows where scatters write."""
    can_take = all(has_operator(target, "TensorScatter-24") for target in context.targets)
    if not can_take or not context.sites_of("ScatterND", "ScatterElements"):
        return
    for cache in context.caches:
        if cache.kind not in ("scatter_nd", "scatter_elements") or cache.mode is None:
            continue
        if cache.axis is None or not cache.past:
            continue
        start = f"`{cache.write_indices}`" if cache.write_indices else "a fixed start"
        yield Found(
            cache.location,
            f"writes rows that count up from {start} along axis {cache.axis} of `{cache.past}` "
            f"({cache.mode} mode), as TensorScatter does",
            help="run `kvtool raise`: it proves that both are equal and replaces the scatter, "
            "or names the missing assumption",
        )


@check("KV209")
def growing_cache(context: Context) -> Findings:
    """Read the cache table, which knows what grows."""
    caches = growing(context.caches)
    if caches:
        from onnx_kvtool.analysis.attention.fusing import sinks_noted

        raising = "run `kvtool raise --capacity N`: it gives them N rows, written in place"
        yield Found(
            caches[0].location,
            growth_in_words(caches),
            help="; ".join([raising, *sinks_noted(context.model)]),
        )
    windows = rolling(context.caches)
    if windows:
        command = rolling_command(windows)
        yield Found(
            windows[0].location,
            rolling_in_words(windows),
            help=f"run `{command}`: circular caches are written in place",
        )
