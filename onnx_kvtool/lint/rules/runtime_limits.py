"""Models that a release of a runtime does not load or computes wrongly."""

from __future__ import annotations

from contextlib import nullcontext

from onnx_kvtool.analysis.unfixed import unfixed_inputs
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.words import counted
from onnx_kvtool.lint.context import Context
from onnx_kvtool.lint.facts.operands import (
    dtype_word,
    has_operator,
    limited,
    limits_named,
    lowering_command,
    runtime_words,
)
from onnx_kvtool.lint.finding import Findings, Found
from onnx_kvtool.lint.rule import check
from onnx_kvtool.ops.operators import Attention
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.shapes.inference import inferred
from onnx_kvtool.symbolic.dimensions import dims_of
from onnx_kvtool.targets.conditions.by_name import OF_SHAPES
from onnx_kvtool.targets.conditions.unsupported import foreign_types, unknown_operator
from onnx_kvtool.targets.limits import has_other_form
from onnx_kvtool.targets.target import Target

_HAVE_RULES = frozenset(
    {
        "kv-cache-update",
        "attention-4d",
        "attention-nonpad-ignored",
        "attention-causal-nonpad",
    }
)


@check("KV301")
def ort_not_in_place(context: Context, target: Target) -> Findings:
    """Count the caches that could be updated in place."""
    if not has_operator(target, "TensorScatter-24"):
        return
    caches = [cache for cache in context.scatters if cache.in_place.possible]
    if caches:
        first = caches[0]
        yield Found(
            first.location,
            f"a plain `run()` of {runtime_words(target)} copies "
            f"{counted(len(caches), 'cache')} "
            f"at each step, `{first.past}` first",
            help="bind past and present of each cache to one buffer with IO binding",
        )


@check("KV302")
def ort_dtype(context: Context, target: Target) -> Findings:
    """Compare the type of each TensorScatter with those of the kernels."""
    for limit in limits_named(target, "tensor-scatter-types"):
        for site in context.sites_of("TensorScatter"):
            dtype = dtype_word(site.node)
            if site.node.domain or dtype is None or dtype in limit.types:
                continue
            past = site.node.inputs[0] if site.node.inputs else None
            name = "" if past is None else f" `{past.name}`"
            yield Found(
                site.location(past),
                f"{runtime_words(target)} has no TensorScatter for {dtype}, the type "
                f"of `past_cache`{name}",
                help="keep the cache in a type of the same width that has a kernel, such as "
                "uint8 or float16, or lower the model for this release: "
                + lowering_command(target),
            )


@check("KV307")
def ort_attention_nonpad(context: Context, target: Target) -> Findings:
    """Look at each Attention that has the input."""
    for limit in limits_named(target, "attention-nonpad-ignored", "attention-causal-nonpad"):
        for site, view in context.views(Attention):
            if view.nonpad_kv_seqlen is None:
                continue
            text, is_proved = "", True
            if limit.name == "attention-causal-nonpad":
                dims = dims_of(view.query)
                queries = dims[-2] if dims is not None and len(dims) > 1 else None
                if not view.is_causal or queries == 1:
                    continue
                text = f", here for {queries or 'an unknown number of'} queries"
                is_proved = isinstance(queries, int)
            yield Found(
                site.location(view.nonpad_kv_seqlen),
                f"{runtime_words(target)} {limit.reason}{text}",
                help="run it with onnxruntime 1.28 or later, or lower the model for this "
                f"release: {lowering_command(target)}",
                severity=None if is_proved else "warning",
            )


@check("KV308")
def no_kernel(context: Context, target: Target) -> Findings:
    """Look up the kernels and types of the release."""
    for site, limit in limited(context, target):
        dtype = dtype_word(site.node)
        if limit.when == "other-element-type":
            if dtype is None or limit.name == "tensor-scatter-types":
                continue
        elif limit.when != "always":
            continue
        suffix = f" ({dtype})" if limit.when == "other-element-type" else ""
        yield Found(
            site.location(),
            f"{runtime_words(target)} {limit.reason}{suffix}",
            help=f"lower the model for this release: {lowering_command(target)}",
        )
    for place, why in foreign_types(context.model, target.release):
        yield Found(
            place,
            f"{runtime_words(target)} {why}",
            help="export the model with another type",
        )
    local = {key[:2] for key in context.model.functions}
    for site in context.sites:
        why_not = unknown_operator(site.node, site.opset or 0, target.release, local)
        if why_not is not None:
            yield Found(
                site.location(),
                f"{runtime_words(target)} {why_not}",
                help=f"{lowering_command(target)} writes it with operators of ONNX if it can",
            )


@check("KV309")
def version_too_new(context: Context, target: Target) -> Findings:
    """Compare opset and IR version with those of the release."""
    release, who = target.release, runtime_words(target)
    opset = context.model.opset_imports.get("")
    problems = []
    if opset is not None and opset > target.max_opset:
        problems.append(f"the opset is {opset}, and {who} loads {target.max_opset} at most")
    if opset is not None and release.min_opset is not None and opset < release.min_opset:
        problems.append(f"the opset is {opset}, and {who} loads {release.min_opset} at least")
    ir_version, highest = context.model.ir_version, release.max_ir_version
    if highest is not None and ir_version > highest:
        problems.append(f"the IR version is {ir_version}, and {who} loads {highest} at most")
    for problem in problems:
        yield Found(
            Location(),
            problem,
            help=f"lower the model for this release: {lowering_command(target)}",
        )


@check("KV310")
def known_limit(context: Context, target: Target) -> Findings:
    """Report the limits of the release that have no rule of their own."""
    asks_for_shapes = any(limit.when in OF_SHAPES for limit in target.release.limits)
    with inferred(context.model) if asks_for_shapes else nullcontext():
        found = list(limited(context, target))
    for site, limit in found:
        has_kernel = limit.when not in ("always", "other-element-type")
        if has_kernel and limit.name not in _HAVE_RULES:
            is_refused = not has_other_form(limit)
            yield Found(
                site.location(),
                f"{runtime_words(target)} {limit.reason}",
                help=(limit.help if is_refused else None)
                or f"lower the model for this release: {lowering_command(target)}",
                severity="error" if is_refused else None,
            )


@check("KV311")
def size_not_fixed(context: Context, target: Target) -> Findings:
    """Check the inputs, then sizes that depend on elements."""
    if target.release.static is None:
        return
    who = f"{runtime_words(target)} {target.release.static}"
    found = list(unfixed_inputs(context.model))
    for one in found:
        help = one.help
        if one.code == "symbolic-dimension":
            help = f"{one.help} when the model is lowered for this release"
        yield Found(one.location, f"{who}: {one.message}", help=help)
    for site in () if found else context.sites:
        if not is_standard(site.node) or Trait.COUNTS not in traits(site.node):
            continue
        dims = [dims_of(output) for output in site.node.outputs if output.name]
        if all(d is not None and all(isinstance(n, int) for n in d) for d in dims):
            continue
        yield Found(
            site.location(),
            f"{who}: the size of what `{site.node.op_type}` gives depends on elements",
            help="export the model without the node: no size fixes it",
        )
