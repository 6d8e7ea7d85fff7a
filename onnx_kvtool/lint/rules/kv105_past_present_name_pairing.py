"""KV105: the names of a past and its present do not say that they belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.facts.name_templates import Template
    from onnx_kvtool.lint.finding import Finding, Fix

__all__ = ["PastPresentNamePairing"]

_MOST_SHOWN = 2


class PastPresentNamePairing(ModelRule):
    """A past and its present have names that pair under no known template, or that cross.

    ## What it does

    Follows each cache from its input to its output and compares the two names. It knows the
    templates of optimum (`past_key_values.0.key` and `present.0.key`), onnxruntime-genai (also
    `past_key_self_0`, `past_0`) and mobius (`key_cache.0` and `updated_key_cache.0`), and reads
    `genai_config.json` where it lies beside the model and names it; then its templates alone count.
    Other names are fine as long as they differ in words such as `past` and `present` only.

    It looks for a key that comes out under a name of a value, for one layer that comes out as
    another, and, in a model of two caches or more, for names that have nothing in common.

    ## Why is this bad?

    A runtime that feeds the caches back knows them by their names alone. One that cannot pair them
    refuses the model; crossed names make it feed the keys in as values, or one layer's cache into
    another, with wrong tokens and no error.

    ## Fix safety

    The fix is unsafe because it renames outputs of the model: it takes the graph for right and the
    names for wrong. It is offered where the name of the past has a template, so that the name of
    the present follows from it. Presents whose names cross are renamed together; there is no fix
    where the name belongs to a value that is no present of another past.

    ## References

    - [Configuration of onnxruntime-genai](https://onnxruntime.ai/docs/genai/reference/config.html):
      `past_key_names`, `past_value_names`, `present_key_names`, `present_value_names`.
    - [Export of decoders in optimum](https://huggingface.co/docs/optimum-onnx/index):
      `past_key_values.{i}.key` and `present.{i}.key`.
    """

    code = "KV105"
    name = "past-present-name-pairing"
    severity = "warning"
    basis = "heuristic"
    fix = "unsafe"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] "key_cache.0", float[2, 3, 7, 5] "value_cache.0",
            float[2, 3, 1, 5] key, float[2, 3, 1, 5] value, int64[2] start)
            => (float[2, 3, 7, 5] "updated_key_cache.0", float[2, 3, 7, 5] scatter_17) {
            [keys] "updated_key_cache.0" = TensorScatter ("key_cache.0", key, start)
            [values] scatter_17 = TensorScatter ("value_cache.0", value, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] "key_cache.0", float[2, 3, 7, 5] "value_cache.0",
            float[2, 3, 1, 5] key, float[2, 3, 1, 5] value, int64[2] start)
            => (float[2, 3, 7, 5] "updated_key_cache.0",
                float[2, 3, 7, 5] "updated_value_cache.0") {
            [keys] "updated_key_cache.0" = TensorScatter ("key_cache.0", key, start)
            [values] "updated_value_cache.0" = TensorScatter ("value_cache.0", value, start)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Compare the names at both ends of each cache that goes from an input to an output."""
        from onnx_kvtool.lint.facts.name_templates import (
            TEMPLATES,
            configured_templates,
            counterpart,
        )

        graph = context.model.graph
        inputs = {id(value) for value in graph.inputs}
        outputs = {value.name: value for value in graph.outputs}
        caches = [
            c
            for c in context.caches
            if id(c.past_value) in inputs and c.present in outputs and c.past != c.present
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
            yield self.found(
                cache.location,
                f"the present of `{cache.past}` leaves as `{cache.present}`, {problem}",
                help="name the present after its past, as `past_key_values.0.key` and "
                "`present.0.key`",
                fix=_fix(context, cache.present, outputs, wanted),
            )


def _problem(past: str, present: str, configured: tuple[Template, ...], count: int) -> str | None:
    """Return what is wrong with a pair of names; None where it is understood."""
    from onnx_kvtool.lint.facts.layers import place_of
    from onnx_kvtool.lint.facts.name_templates import TEMPLATES, counterpart, same_but_direction

    before, after = place_of(past), place_of(present)
    is_named = all(p.role is not None and p.is_cache for p in (before, after))
    if is_named and before.role != after.role:
        return f"which is the name of a {after.role}, not of a {before.role}"
    is_layer = is_named or any(t.present_layer(present) is not None for t in TEMPLATES)
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


def _fix(
    context: Context,
    present: str,
    outputs: Mapping[str | None, ir.Value],
    wanted: Mapping[str | None, str],
) -> Fix | None:
    """Return the fix that renames a present, where its right name is known and can be had.

    Args:
        context: The model.
        present: Its name.
        outputs: The outputs of the graph, by name.
        wanted: The right name of each present that has one, by the name that it has.
    """
    from onnx_kvtool.lint.finding import Fix

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
    renamed = {outputs[old]: new for old, new in names.items()}
    return Fix("unsafe", f"rename {title}", _renaming(renamed))


def _value_names(context: Context) -> frozenset[str | None]:
    from onnx_kvtool.core.walk import graphs

    return frozenset(
        value.name
        for _, graph in graphs(context.model)
        for values in (graph.inputs, graph.initializers.values(), *(n.outputs for n in graph))
        for value in values
    )


def _renaming(names: Mapping[ir.Value, str]) -> Callable[[], None]:
    def apply() -> None:
        if all(value.is_graph_output() for value in names):
            for value, name in names.items():
                value.name = name

    return apply
