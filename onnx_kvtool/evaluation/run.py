"""One evaluation of a model: plan, draw, run, compare, and gather the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.core.choices import RuntimeName
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.machine import Progress, silent
from onnx_kvtool.core.words import counted
from onnx_kvtool.evaluation.feeds import bound_sizes, drawn_feeds, plan_with
from onnx_kvtool.evaluation.loop import Loop, Outcome
from onnx_kvtool.evaluation.named import declared_dtype
from onnx_kvtool.evaluation.part import part_of
from onnx_kvtool.evaluation.report import EvalReport, Fed
from onnx_kvtool.evaluation.runner import open_runner
from onnx_kvtool.evaluation.summary import type_facts
from onnx_kvtool.evaluation.updates import updated_input, updates_of
from onnx_kvtool.evaluation.versus import Versus
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.runtime.engine.needed import needed_inputs
from onnx_kvtool.runtime.kernels.kernel import Value
from onnx_kvtool.verification.comparison.rounding import Measure
from onnx_kvtool.verification.inputs.plan import InputPlan
from onnx_kvtool.verification.subject import capture

__all__ = ["RunSettings", "run_model"]


_MOST = 6  # inputs that a message names


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a model is run.

    Attributes:
        random: Whether inputs that are not given are drawn.
        seed: Seed of what is drawn.
        dims: Values of symbolic dimensions.
        trace: Whether every node that runs is reported.
        steps: Decode steps after the first run.
        runtime: What runs it.
        compare: What runs it as well, for comparison; None for nothing.
    """

    random: bool = False
    seed: int = 0
    dims: Mapping[str, int] = field(default_factory=dict)
    trace: bool = False
    steps: int = 0
    runtime: RuntimeName = "reference"
    compare: RuntimeName | None = None


def run_model(
    model: ir.Model,
    given: dict[str, Value],
    wanted: Sequence[str],
    nodes: Sequence[str],
    settings: RunSettings,
    progress: Progress = silent,
) -> EvalReport:
    """Run a model as `settings` say.

    Args:
        model: The model.
        given: Values that are fed.
        wanted: Values to return.
        nodes: Nodes that were asked for by name: what they write into is shown before and after.
        settings: How to run it.
        progress: Told of each run.
    """
    known = _step_plan(model, given) if settings.steps else None
    before = [past for name in nodes for past in updated_input(model, name)] if nodes else []
    presents = [pair.present for pair in known.pairs] if known else []
    fetched = tuple(dict.fromkeys((*wanted, *before, *presents)))
    part = part_of(model, given, fetched)
    missing = _missing_inputs(part, given, settings)
    runner = open_runner(settings.runtime, part, given)
    versus = _versus(part, given, wanted, settings)
    loop = Loop(
        runner,
        settings.steps,
        known,
        settings.seed,
        settings.dims,
        settings.trace,
        None if versus is None else versus.watch,
        progress,
    )
    if missing:
        known = known or plan_with(model, given)
        sizes = bound_sizes(known, given, settings.dims)
        outcome = loop.run(drawn_feeds(known, given, missing, settings.seed, sizes))
    else:
        if settings.dims:  # which what is given must not contradict
            bound_sizes(plan_with(model, given), given, settings.dims)
        outcome = loop.run([given])
    report = _report(outcome, wanted, given, settings, runner.runtime)
    report.seed = settings.seed if missing or settings.steps else None
    report.borrowed = runner.borrowed
    report.comparison = None if versus is None else versus.report()
    if settings.steps == 0:
        report.updates = tuple(
            update for name in nodes for update in updates_of(model, name, outcome)
        )
    return report


def _step_plan(model: ir.Model, given: Mapping[str, Value]) -> InputPlan:
    """Return what the inputs mean to a decode step.

    Raises:
        UsageError: If no cache goes round, or a value is given that a step would compute anew.
    """
    known = plan_with(model, given)
    if not known.pairs:
        raise UsageError(
            "the model has no cache that is fed back from step to step",
            help="leave `--steps` out",
        )
    inputs = {spec.name for spec in known.inputs}
    if others := [name for name in given if name not in inputs]:
        raise UsageError(
            f"`{others[0]}` is no input of the graph, and a decode step would compute it anew",
            help="leave `--steps` out, or feed the inputs of the graph only",
        )
    return known


def _missing_inputs(part: ir.Model, given: Mapping[str, Value], settings: RunSettings) -> list[str]:
    """Return the inputs of a part that have to be drawn.

    Raises:
        UsageError: If there are any and none may be drawn.
    """
    graph = part.graph
    if settings.steps:
        # All of them: a step moves all of them on.
        needed = [value for value in graph.inputs if value.const_value is None]
    else:
        fed = [value for value in graph.inputs if value.name in given]
        needed = needed_inputs(graph, fed, graph.outputs)
    missing = [value for value in needed if value.name not in given]
    if missing and not settings.random:
        names = ", ".join(f"`{value.name}` ({_declared(value)})" for value in missing[:_MOST])
        if len(missing) > _MOST:
            names += f" and {counted(len(missing) - _MOST, 'other input')}"
        raise UsageError(
            f"there is no value for {names}",
            help="give each with `--input NAME=SPEC`, or have the rest drawn with `--random`",
        )
    return [value.name or "" for value in missing]


def _declared(value: ir.Value) -> str:
    shape = "" if value.shape is None else f" ({', '.join(str(dim) for dim in value.shape)})"
    kind = "of unknown type" if value.type is None else str(value.type)
    dtype = declared_dtype(value)
    if dtype is not None:
        kind = dtype_name(dtype)
    return f"{kind}{shape}"


def _versus(
    part: ir.Model, given: Mapping[str, Value], wanted: Sequence[str], settings: RunSettings
) -> Versus | None:
    if settings.compare is None:
        return None
    subject = capture(part, "the model")
    measure = Measure(
        subject.arithmetic.moved, (subject.arithmetic,), drawn=(subject.random, subject.random)
    )
    return Versus(open_runner(settings.compare, part, given), wanted, measure)


def _report(
    outcome: Outcome,
    wanted: Sequence[str],
    given: Mapping[str, Value],
    settings: RunSettings,
    runtime: str,
) -> EvalReport:
    values = {name: outcome.values[name] for name in wanted}
    return EvalReport(
        model=None,
        operator=None,
        opset=None,
        runtime=runtime,
        seed=None,
        steps=settings.steps,
        inputs=tuple(
            Fed(facts.name, facts.dtype, facts.shape, facts.length, facts.name in given)
            for facts in (type_facts(name, value) for name, value in outcome.inputs.items())
        ),
        trace=tuple(outcome.trace),
        warnings=outcome.warnings,
        values=values,
    )
