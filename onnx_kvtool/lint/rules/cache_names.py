"""Names and shapes of caches from one layer to the next."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import onnx_ir as ir

from onnx_kvtool.analysis.caches import Cache
from onnx_kvtool.analysis.caches.writes import rolling
from onnx_kvtool.core.walk import graphs, values
from onnx_kvtool.core.words import enumerated
from onnx_kvtool.lint.context import Context
from onnx_kvtool.lint.facts.layers import (
    TEMPLATES,
    Template,
    configured_templates,
    counterpart,
    key_value_pairs,
    layer_in,
    layered,
    place_of,
    same_but_direction,
)
from onnx_kvtool.lint.facts.operands import shape_words
from onnx_kvtool.lint.finding import Findings, Fix, Found
from onnx_kvtool.lint.rule import check
from onnx_kvtool.symbolic.dimensions import dims_of, names_in

_MOST_SHOWN = 2
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MADE_UP = re.compile(r"(.*_)?([sud]|unk_*|dim_?|axis_?)\d+")
"""What exporters call a dimension that nobody named: `s77`, `pos_d0`, `MatMullogits_dim_1`."""
_Names = tuple["Cache", str, Sequence[str]]


@check("KV105")
def past_present_name_pairing(context: Context) -> Findings:
    """Compare the names at both ends of each cache that goes from an input to an output."""
    outputs = context.outputs
    caches = [
        c
        for c in context.caches
        if context.is_fed(c.past_value) and c.present in outputs and c.past != c.present
    ]
    configured = configured_templates(context.origin.path)
    templates = configured or TEMPLATES
    wanted = {
        c.present: name for c in caches if c.past and (name := counterpart(c.past, templates))
    }
    for cache in caches:
        assert cache.past is not None and cache.present is not None
        problem = _problem(cache.past, cache.present, configured, len(caches))
        if problem is None:
            continue
        yield Found(
            cache.location,
            f"the present of `{cache.past}` leaves as `{cache.present}`, {problem}",
            help="name the present after its past, as `past_key_values.0.key` and `present.0.key`",
            fix=_name_fix(context, cache.present, wanted),
        )


def _problem(past: str, present: str, configured: tuple[Template, ...], count: int) -> str | None:
    """Return what is wrong with a pair of names; None if a template matches."""
    before, after = place_of(past), place_of(present)
    is_named = all(p.role is not None and p.is_cache for p in (before, after))
    if is_named and before.role != after.role:
        return f"which is the name of a {after.role}, not of a {before.role}"
    is_layer = is_named or any(layer_in(t.present, present) is not None for t in TEMPLATES)
    if is_layer and None not in (before.layer, after.layer) and before.layer != after.layer:
        return f"which is the name of layer {after.layer}, not of layer {before.layer}"
    if configured:
        wanted = counterpart(past, configured)
        if wanted is None:
            return "and `genai_config.json` beside the model has no template for its past"
        return None if present == wanted else f"where `genai_config.json` says `{wanted}`"
    if counterpart(past, TEMPLATES) == present or same_but_direction(past, present):
        return None
    return "a name that no known template pairs with it" if count > 1 else None


def _name_fix(context: Context, present: str, wanted: Mapping[str | None, str]) -> Fix | None:
    """Return the fix that renames a present, if its correct name is known and free.

    `wanted` maps names of presents to the correct ones.
    """
    names: dict[str, str] = {}
    old: str | None = present
    while old is not None and old not in names:
        new = wanted.get(old)
        if new is None or new == old:
            return None
        names[old] = new
        # A name that is taken is free as soon as its owner gets the one that it should have.
        old = new if new in context.once("value names", lambda: _value_names(context)) else None
    if len(set(names.values())) < len(names):
        return None
    title = " and ".join(f"`{old}` to `{new}`" for old, new in names.items())
    if len(names) > _MOST_SHOWN:
        title = f"`{present}` to `{names[present]}` and {len(names) - 1} others after their pasts"
    renamed = {context.outputs[old]: new for old, new in names.items()}
    return Fix("unsafe", f"rename {title}", partial(_rename_values, renamed))


def _value_names(context: Context) -> frozenset[str | None]:
    return frozenset(
        value.name
        for _, graph in graphs(context.model)
        for values in (graph.inputs, graph.initializers.values(), *(n.outputs for n in graph))
        for value in values
    )


def _rename_values(names: Mapping[ir.Value, str]) -> None:
    if all(value.is_graph_output() for value in names):
        for value, name in names.items():
            value.name = name


@check("KV107")
def layers_disagree_shape(context: Context) -> Findings:
    """Compare the shapes of the layers, for each kind of update and role by itself."""
    groups: dict[tuple[object, ...], list[Cache]] = {}
    for place, cache in layered(context.caches):
        if cache.shape is not None:
            key = (cache.kind, place.stream, place.role, len(cache.shape))
            groups.setdefault(key, []).append(cache)
    for caches in groups.values():
        # Symbolic names may differ for one size.
        shapes = [tuple(d if isinstance(d, int) else None for d in c.shape or ()) for c in caches]
        odd = _odd_one(shapes)
        if odd is None:
            continue
        usual, count = Counter(shapes).most_common(1)[0]
        other = next(c for c, shape in zip(caches, shapes, strict=True) if shape == usual)
        yield Found(
            caches[odd].location,
            f"the cache `{caches[odd].past or caches[odd].present}` has shape "
            f"{shape_words(caches[odd].shape)}, and {count} other layers have "
            f"{shape_words(other.shape)}",
            help="give it the shape of the others, or ignore this finding for a layer that "
            "differs on purpose",
        )


def _odd_one(shapes: Sequence[tuple[int | None, ...]]) -> int | None:
    """Return the position of the one shape that stands alone; None where there is a pattern."""
    counts = Counter(shapes).most_common()
    if len(shapes) < 4 or len(counts) != 2 or counts[1][1] > 1:
        return None
    at = shapes.index(counts[1][0])
    return at if 0 < at < len(shapes) - 1 else None


@check("KV108")
def dim_param_inconsistent(context: Context) -> Findings:
    """Compare names of the batch, of key and value, and of past and present."""
    reported: set[frozenset[str]] = set()
    batches = list(_batches(context))
    batch = batches[0][2] if batches else None
    for cache, what, names in (*batches, *_pairs(context), *_ends(context)):
        if len(set(names)) < 2 or frozenset(names) in reported:
            continue
        reported.add(frozenset(names))
        ranked = [name for name, _ in Counter(names).most_common()]
        kept = _best(ranked, context.model, is_batch=names is batch)
        others = [name for name in ranked if name != kept]
        shown = ", ".join(f"`{name}`" for name in others)
        rename = partial(_rename_dimensions, context.model, kept, others)
        yield Found(
            cache.location,
            f"{what} has {len(ranked)} names: {enumerated(ranked)}",
            help=f"call it `{kept}` everywhere",
            fix=Fix("safe", f"rename dimension {shown} to `{kept}`", rename),
        )


def _declared(value: ir.Value | None, axis: int | None) -> str | None:
    """Return the plain name that a dimension of a graph input or output is declared with."""
    dims = dims_of(value)
    if dims is None or axis is None or not 0 <= axis < len(dims):
        return None
    dim = dims[axis]
    return dim if isinstance(dim, str) and _NAME.fullmatch(dim) else None


def _batches(context: Context) -> Iterator[_Names]:
    fed = [c for c in context.caches if _is_input(c)]
    names = [(c, _declared(c.past_value, c.batch_axis)) for c in fed]
    known = [(c, name) for c, name in names if name is not None]
    if known:
        usual = Counter(name for _, name in known).most_common(1)[0][0]
        odd = next((c for c, name in known if name != usual), known[0][0])
        what = f"the batch dimension of the caches, here of `{odd.past}`,"
        yield odd, what, [name for _, name in known]


def _pairs(context: Context) -> Iterator[_Names]:
    for key, value in key_value_pairs(context):
        if key.kind != value.kind or not (_is_input(key) and _is_input(value)):
            continue
        one, other = _declared(key.past_value, key.axis), _declared(value.past_value, value.axis)
        if one is not None and other is not None:
            what = f"the sequence dimension of `{key.past}` and `{value.past}`"
            yield value, what, [one, other]


def _ends(context: Context) -> Iterator[_Names]:
    # One that keeps its last rows has more of them after a step, until it is full.
    windows = {id(cache) for cache in rolling(context.caches) if cache.kind == "concat"}
    for cache in context.caches:
        present = context.outputs.get(cache.present)
        if present is None or not _is_input(cache):
            continue
        is_counted_apart = (
            cache.is_growing
            or id(cache) in windows
            or cache.kind in ("group_query_attention", "attention")
        )
        for axis in range(len(cache.shape or ())):
            if is_counted_apart and (axis == cache.axis or cache.axis is None):
                continue
            one, other = _declared(cache.past_value, axis), _declared(present, axis)
            if one is not None and other is not None:
                what = f"dimension {axis} of `{cache.past}` and its present `{present.name}`"
                yield cache, what, [one, other]


def _is_input(cache: Cache) -> bool:
    return cache.past_value is not None and cache.past_value.is_graph_input()


def _best(ranked: Sequence[str], model: ir.Model, *, is_batch: bool) -> str:
    """Return the best name for a dimension with these names, most frequent first."""
    given = [name for name in ranked if not _MADE_UP.fullmatch(name)]
    if given:
        return given[0]
    return "batch" if is_batch and "batch" not in _words(model) else ranked[0]


def _words(model: ir.Model) -> set[str]:
    """Return the names that stand in dimensions of the model."""
    texts = {
        dim.value
        for value in _values(model)
        if value.shape is not None and not value.shape.is_static()
        for dim in value.shape
        if not isinstance(dim, int) and dim.value is not None
    }
    return {word for text in texts for word in names_in(text)}


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Yield the values that can have a shape; an output may be made by no node."""
    yield from values(model)
    yield from model.graph.outputs


def _rename_dimensions(model: ir.Model, kept: str, others: Sequence[str]) -> None:
    pattern = re.compile(r"\b(?:" + "|".join(map(re.escape, others)) + r")\b")
    for value in _values(model):
        if value.shape is not None and not value.shape.is_static():
            dims = [d if isinstance(d, int) else d.value for d in value.shape]
            new = [
                # Not a part of another name, such as `batch-size`.
                pattern.sub(kept, dim)
                if isinstance(dim, str) and not set(others).isdisjoint(names_in(dim))
                else dim
                for dim in dims
            ]
            if new != dims:
                value.shape = ir.Shape(new)
