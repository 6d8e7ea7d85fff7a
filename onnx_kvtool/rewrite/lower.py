"""Lowering a whole model in memory: every step but reading, verifying and writing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.core.choices import ContribChoice
from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.core.domains import operator_label
from onnx_kvtool.core.walk import function_path, graph_path, nodes
from onnx_kvtool.core.words import counted
from onnx_kvtool.emit.emitter import Names, Refusal
from onnx_kvtool.ops.schema import is_standard, same_version
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.rewrite.contrib.standardise import standardise_for
from onnx_kvtool.rewrite.engine.engine import Engine
from onnx_kvtool.rewrite.engine.guards import judge, objection, objections
from onnx_kvtool.rewrite.engine.inline import cannot_stay, inline_functions
from onnx_kvtool.rewrite.engine.rule import LoweringContext, Options, RewriteRule, by_cause
from onnx_kvtool.rewrite.engine.stamp import (
    forget_unused,
    ir_version_for,
    lacking_types,
    normalise_domains,
    stamp,
)
from onnx_kvtool.rewrite.lowering.carry import carry_types
from onnx_kvtool.rewrite.lowering.dialect import asks_for_sizes, keep_to_dialect
from onnx_kvtool.rewrite.lowering.early.loops import AT_ONCE, Trace, in_steps
from onnx_kvtool.rewrite.lowering.grid_sample import missing_at_border
from onnx_kvtool.rewrite.lowering.optional import settle_optionals
from onnx_kvtool.rewrite.lowering.table import LOWERINGS
from onnx_kvtool.rewrite.lowering.tensor_scatter.facts import declared_updates
from onnx_kvtool.rewrite.report import Lowered, Outcome
from onnx_kvtool.shapes.annotations import annotate
from onnx_kvtool.shapes.inference import inferred
from onnx_kvtool.targets.limits import ReleaseLimits
from onnx_kvtool.targets.release import Release


def legalise(
    model: ir.Model,
    opset: int | None,
    options: Options,
    only: Sequence[str] = (),
    release: Release | None = None,
    *,
    contrib: ContribChoice | None = None,
) -> Outcome:
    """Make a model legal at an older opset, in place.

    Args:
        model: The model. After a refusal it may be half rewritten and must be thrown away.
        opset: The target; None keeps the model's own.
        options: The form of the result.
        only: Operators to rewrite, whether the target needs it or not; all others stay as they
            are, and the opset is kept. Empty: everything that the target needs.
        release: The release of a runtime that must load the result, whose limits hold beside the
            opset; None when there is none. Not together with `only`.
        contrib: Whether operators of onnxruntime are written with those of ONNX, all or none; None
            for those that `release` does not import. `standard` does not go together with `only`.
    """
    normalise_domains(model)
    if opset is None or only or opset >= AT_ONCE:
        return _legalise(model, opset, options, only, release, contrib)
    # There is no ScatterND, which would take each element by itself.
    via = "scatterelements" if options.via == "auto" else options.via
    options = replace(options, via=via, branches=False)

    def step(
        target: int, rules: Mapping[str, RewriteRule], contrib: ContribChoice | None, trace: Trace
    ) -> Outcome:
        return _legalise(model, target, options, (), release, contrib, rules, trace)

    return in_steps(model, opset, contrib, step)


def _legalise(
    model: ir.Model,
    opset: int | None,
    options: Options,
    only: Sequence[str],
    release: Release | None,
    contrib: ContribChoice | None,
    rules: Mapping[str, RewriteRule] = LOWERINGS,
    trace: Trace | None = None,
) -> Outcome:
    """Make a model legal at an older opset by one table of rules, in place."""
    source = model.opset_imports.get("", 0)
    target = source if opset is None or only else min(opset, source)
    outcome = Outcome(source, target, refused=_unfit(model, release, whole=not only))
    if not outcome.refused and not only:
        outcome.refused += missing_at_border(model, source, target)
    if outcome.refused:
        return outcome
    if opset is not None and source < opset and release is None:
        outcome.notes.append(f"the model is at opset {source} already, nothing to lower")
    limits = None if release is None else ReleaseLimits(release, target)
    ir_version = ir_version_for(model, target, release.max_ir_version if release else None)
    plan = _Plan(source, target, ir_version, frozenset(only), limits)
    names = Names(model)
    # Of a later step below 11 the nodes are no longer those of the source.
    own = {node for _, _, node in nodes(model)} if rules is LOWERINGS else set()
    try:
        origins = standardise_for(model, contrib, release, names, outcome)
        _inline(model, plan, names, outcome)
    except Refusal as refusal:
        outcome.refused.append(objection(refusal.code, refusal.message, refusal.help))
        return outcome
    if limits is not None:
        outcome.notes += limits.leave_out_defaults(model, source)
    if outcome.refused:
        return outcome
    if not only:
        outcome.lowered += settle_optionals(model, target, names)
    annotations = annotate(model, _reader_of_types(plan), fully=True)
    if annotations.failure:
        outcome.notes.append(annotations.failure)
    begun = len(outcome.lowered)
    if not only:
        carried = carry_types(model, source, target, names)
        outcome.lowered += carried.lowered
        outcome.notes += carried.notes
        annotations.added = [
            (value, value.type if type_ is not None and value in carried.retyped else type_, shape)
            for value, type_, shape in annotations.added
        ]
    declare = declared_updates(model, source)
    context = LoweringContext(source, target, options, ConstantFolder(), not only, limits)
    engine = Engine(
        context,
        rules,
        frozenset(only),
        lost={} if annotations.run is None else annotations.run.knowledge.lost,
        trace=trace,
    )
    engine.run(model.graph, graph_path(model.graph.name), names)
    outcome.lowered += engine.lowered
    # The report is of nodes of the source: what became of one that was written anew is its own.
    outcome.lowered[begun:] = [
        done for done in outcome.lowered[begun:] if done.location.node not in origins
    ]
    refused = [
        replace(found, location=origins.get(found.location.node or "", found.location))
        for found in engine.refused
    ]
    outcome.refused += by_cause(refused, engine.causes)
    outcome.notes += [
        f"{counted(number, f'`{op}` node')} rewritten: {reason}"
        for (op, reason), number in engine.avoided.items()
    ]
    if limits is not None:
        outcome.refused += limits.unknown_operators(model)
    if not outcome.refused:
        outcome.notes += _foreign(model)
        outcome.notes += keep_to_dialect(model, target, names, own, spares=bool(only))
        forget_unused(model)
        _finish(model, plan, outcome)
    annotations.remove()
    if limits is not None:
        outcome.notes += limits.name_dimensions(model)
    if release is not None and release.bare:
        _leave_out_inner_shapes(model)
    elif any(done.location.op == "TensorScatter" for done in outcome.lowered):
        declare()
    return outcome


def _unfit(model: ir.Model, release: Release | None, *, whole: bool) -> list[Diagnostic]:
    """Return why a model as a whole cannot be lowered; empty where it may be tried."""
    source = model.opset_imports.get("")
    found = objections(model, "lower", opset=source, whole=whole)
    if found or source is None:
        return found
    if source < 1:
        text = f"the model imports version {source} of the default domain, and the first is 1"
        return [objection("unknown-opset", text, "export the model again")]
    if release is not None and release.min_opset is not None and source < release.min_opset:
        text = f"{release} loads opset {release.min_opset} and later, the model is at {source}"
        return [objection("old-opset", text, "export the model at a newer opset")]
    return []


@dataclass(frozen=True, slots=True)
class _Plan:
    """The source and target opsets of a model, and the operators to replace at any opset."""

    source: int
    target: int
    ir_version: int
    only: frozenset[str]
    limits: ReleaseLimits | None

    @property
    def watched(self) -> frozenset[str]:
        """Operators that may be rewritten although the target opset has them."""
        return self.only if self.limits is None else self.limits.operators

    def watches(self, node: ir.Node) -> bool:
        """Return whether a node of a function may be rewritten although the opset has it."""
        if self.limits is None:
            return node.op_type in self.only
        return self.limits.concerns(node, self.source)


def _finish(model: ir.Model, plan: _Plan, outcome: Outcome) -> None:
    """Stamp a rewritten model with its versions, and refuse what is still not legal in it."""
    source_ir_version = model.ir_version
    whole = not plan.only  # else functions were built on an opset of their own, and stay
    outcome.notes += stamp(model, plan.target, plan.ir_version, functions=whole)
    if plan.ir_version < source_ir_version:  # what the source had no right to is not our finding
        outcome.refused += lacking_types(model)
    if not plan.only:
        outcome.refused += judge(model, plan.target)
    if plan.limits is not None:
        # What new nodes give has no shape yet, which some limits ask for.
        with inferred(model) if plan.limits.asks_for_shapes else nullcontext():
            outcome.refused += plan.limits.judge(model, plan.target)


def _leave_out_inner_shapes(model: ir.Model) -> None:
    """Remove the declared types of values that are neither inputs nor outputs of a graph."""
    for graph in model.graphs():
        kept = {*graph.inputs, *graph.outputs}
        for node in graph:
            for value in node.outputs:
                if value not in kept:
                    value.shape = value.type = None


def _inline(model: ir.Model, plan: _Plan, names: Names, outcome: Outcome) -> None:
    """Inline what the target cannot keep: in a function types are known at its calls only."""

    def wanted(function: ir.Function) -> bool:
        if plan.limits is not None and not plan.limits.release.functions:
            return True
        if any(n.domain == "" and plan.watches(n) for n in function.all_nodes()):
            return True
        return not plan.only and cannot_stay(function, plan.target, plan.ir_version)

    places, uncalled = inline_functions(model, wanted, names)
    outcome.lowered += [Lowered(place, "inline") for place in places]
    outcome.notes += [
        f"function `{function_path(*key)}`, which nothing calls, is removed: it cannot stand in a "
        f"model of opset {plan.target} and IR version {plan.ir_version}"
        for key in uncalled
    ]


def _reader_of_types(plan: _Plan) -> Callable[[ir.Node], bool]:
    """Return which nodes are read together with their types: those that may be rewritten.

    Shape and Size are read by the folding of constants.
    """
    answers: dict[tuple[str, int | None], bool] = {}

    def reads(node: ir.Node) -> bool:
        if not is_standard(node):
            return False
        if asks_for_sizes(node) and not plan.only:
            return True
        key = (node.op_type, node.version)
        if key not in answers:
            opset = node.version or plan.source
            changes = not same_version(node.op_type, opset, plan.target)
            needed = node.op_type in plan.watched or (changes and not plan.only)
            answers[key] = needed or Trait.GIVES_SIZES in traits(node)
        return answers[key]

    return reads


def _foreign(model: ir.Model) -> list[str]:
    """Name the operators that ONNX does not define, whose nodes were left alone."""
    local = {key[:2] for key in model.functions}
    counts = Counter(
        operator_label(node)
        for _, _, node in nodes(model)
        if not is_standard(node) and (node.domain, node.op_type) not in local
    )
    return [
        f"{counted(number, f'`{op}` node')} left alone: ONNX does not define the operator"
        for op, number in sorted(counts.items())
    ]
