"""Evaluate a model on values: plan, draw, run, compare, and gather the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_kvtool.commands.evaluate_inputs import missing_inputs
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.progress import Progress, silent
from onnx_kvtool.runtime.comparison.measure import Measure
from onnx_kvtool.runtime.evaluation.feeds import bound_sizes, drawn_feeds, plan_with
from onnx_kvtool.runtime.evaluation.loop import Loop, Outcome
from onnx_kvtool.runtime.evaluation.part import part_of
from onnx_kvtool.runtime.evaluation.report import EvalReport
from onnx_kvtool.runtime.evaluation.runner import open_runner
from onnx_kvtool.runtime.evaluation.summary import type_facts
from onnx_kvtool.runtime.evaluation.updates import updated_input, updates_of
from onnx_kvtool.runtime.evaluation.versus import Versus
from onnx_kvtool.runtime.inputs.plan import InputPlan
from onnx_kvtool.runtime.kernels.kernel import Value
from onnx_kvtool.runtime.verification.subject import capture

if TYPE_CHECKING:
    from onnx_kvtool.commands.evaluate import EvalRequest

__all__ = ["run_model"]


def run_model(
    model: ir.Model,
    given: dict[str, Value],
    wanted: Sequence[str],
    nodes: Sequence[str],
    request: EvalRequest,
    progress: Progress = silent,
) -> EvalReport:
    """Run a model as `request` says.

    Args:
        model: The model.
        given: Values that are fed.
        wanted: Values to return.
        nodes: Nodes that were asked for by name: what they write into is shown before and after.
        request: How to run it.
        progress: Told of each run.
    """
    known = _step_plan(model, given, request) if request.steps else None
    before = [past for name in nodes for past in updated_input(model, name)] if nodes else []
    presents = [pair.present for pair in known.pairs] if known else []
    fetched = tuple(dict.fromkeys((*wanted, *before, *presents)))
    part = part_of(model, given, fetched)
    missing = missing_inputs(part, given, request)
    runner = open_runner(request.runtime, part, given)
    versus = _versus(part, given, wanted, request)
    loop = Loop(
        runner,
        request.steps,
        known,
        request.seed,
        request.dims,
        request.trace,
        None if versus is None else versus.watch,
        progress,
    )
    if missing:
        known = known or plan_with(model, given)
        sizes = bound_sizes(known, given, request.dims)
        outcome = loop.run(drawn_feeds(known, given, missing, request.seed, sizes))
    else:
        if request.dims:  # which what is given must not contradict
            bound_sizes(plan_with(model, given), given, request.dims)
        outcome = loop.run([given])
    report = _report(outcome, wanted, given, request, runner.runtime)
    report.seed = request.seed if missing or request.steps else None
    report.borrowed = runner.borrowed
    report.comparison = None if versus is None else versus.report()
    if request.steps == 0:
        report.updates = tuple(
            update for name in nodes for update in updates_of(model, name, outcome)
        )
    return report


def _step_plan(model: ir.Model, given: Mapping[str, Value], request: EvalRequest) -> InputPlan:
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


def _versus(
    part: ir.Model, given: Mapping[str, Value], wanted: Sequence[str], request: EvalRequest
) -> Versus | None:
    if request.compare is None:
        return None
    subject = capture(part, "the model")
    measure = Measure(subject.moved, subject.precision)
    return Versus(open_runner(request.compare, part, given), wanted, measure)


def _report(
    outcome: Outcome,
    wanted: Sequence[str],
    given: Mapping[str, Value],
    request: EvalRequest,
    runtime: str,
) -> EvalReport:
    values = {name: outcome.values[name] for name in wanted}
    return EvalReport(
        model=request.model,
        operator=None,
        opset=None,
        runtime=runtime,
        seed=None,
        steps=request.steps,
        inputs=tuple(type_facts(name, value) for name, value in outcome.inputs.items()),
        given=frozenset(given),
        trace=tuple(outcome.trace),
        warnings=outcome.warnings,
        values=values,
    )
