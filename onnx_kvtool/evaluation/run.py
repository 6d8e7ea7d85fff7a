"""One evaluation of a model: plan, draw, run, compare, and gather the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.machine import Progress, silent
from onnx_kvtool.core.words import counted, unknown_name
from onnx_kvtool.evaluation.literal import literal_array, natural_dtype
from onnx_kvtool.evaluation.loop import (
    Loop,
    RunSettings,
    Versus,
    bound_sizes,
    drawn_feeds,
    plan_with,
)
from onnx_kvtool.evaluation.report import EvalReport, Fed, Update, type_facts
from onnx_kvtool.evaluation.runner import main_values, open_runner, part_of
from onnx_kvtool.evaluation.spec import Given, about
from onnx_kvtool.ops.schema import op_facts
from onnx_kvtool.ops.traits import Trait, dtype_name, traits
from onnx_kvtool.runtime.engine.borrowed import declared_mismatch, element_type
from onnx_kvtool.runtime.engine.compiler import needed_inputs
from onnx_kvtool.runtime.kernels.kernel import Named, Value

if TYPE_CHECKING:
    from onnx_kvtool.verification.inputs.plan import InputPlan

# Nodes, by name.


def _node(model: ir.Model, name: str) -> ir.Node:
    """Return a node of the main graph.

    Args:
        model: The model.
        name: Name of the node, or `#3` for the fourth one.

    Raises:
        UsageError: If there is none, or several have the name.
    """
    nodes = list(model.graph)
    found = [index for index, node in enumerate(nodes) if node.name == name]
    if not found and name.startswith("#") and name[1:].isdecimal():
        found = [index for index in (int(name[1:]),) if index < len(nodes)]
    if not found:
        known = [node.name for node in nodes if node.name]
        raise unknown_name(f"the main graph has no node `{name}`", name, known)
    if len(found) > 1:
        places = ", ".join(f"`#{index}`" for index in found)
        raise UsageError(
            f"{len(found)} nodes are called `{name}`", help=f"name one by its place: {places}"
        )
    return nodes[found[0]]


def _written(model: ir.Model, name: str) -> tuple[str, str] | None:
    """Return the names of a value before and after a node writes into it; None for others."""
    node, opset = _node(model, name), model.opset_imports.get("")
    if Trait.UPDATES not in traits(node) or not node.inputs or not node.outputs:
        return None
    past, present = node.inputs[0], node.outputs[0].name
    is_known = opset is not None and op_facts(node.op_type, opset) is not None
    return (past.name, present or "") if is_known and past is not None and past.name else None


# The values that an evaluation is given, and those that it fetches, by name.


def value_named(known: Mapping[str, ir.Value], name: str) -> ir.Value:
    """Return one of the values of a main graph by its name.

    Raises:
        UsageError: If there is none of this name.
    """
    if name not in known:
        raise unknown_name(f"the main graph has no value `{name}`", name, known)
    return known[name]


def input_values(model: ir.Model, given: Mapping[str, Given]) -> dict[str, Value]:
    """Return the given values of the main graph as arrays of their element types.

    `null` becomes None, an absent input.

    Raises:
        UsageError: If the main graph has no such value, or a value does not fit its type.
    """
    known = main_values(model.graph)
    values: dict[str, Value] = {}
    for name, content in given.items():
        declared = value_named(known, name)
        with about(f"input `{name}`"):
            absent = content.is_absent
            values[name] = None if absent else content.value(declared_dtype(declared))
    return values


def feed_of(name: str, value: Any, declared: ir.Value | None) -> Value:
    """Return a Python value as the runtimes take it.

    Args:
        name: Its name, for messages.
        value: An array or a scalar of numpy; or nested lists and Python numbers, which become an
            array of the declared type. If the declared type is no tensor, it is returned unchanged.
        declared: The value of the graph that it is for; None if there is none.
    """
    if isinstance(value, np.generic):
        value = np.asarray(value)
    is_tensor = declared is None or declared.type is None
    is_tensor |= declared is not None and isinstance(declared.type, ir.TensorType)
    if value is None or not is_tensor:
        return value
    with about(f"input `{name}`"):
        if not isinstance(value, np.ndarray):
            dtype = None if declared is None else declared_dtype(declared)
            return literal_array(value, natural_dtype(value) if dtype is None else dtype)
        if value.dtype.kind in "US":
            return value.astype(np.str_).astype(object)
        if element_type(value.dtype) is None:
            raise UsageError(f"it is of dtype {value.dtype}, which ONNX has no element type for")
    return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))


def declared_dtype(value: ir.Value) -> ir.DataType | None:
    """Return the declared element type of a value, else that of its data; None if unknown."""
    if not isinstance(value.type, ir.TensorType) or value.dtype == ir.DataType.UNDEFINED:
        return None if value.const_value is None else value.const_value.dtype
    return value.dtype


def check_inputs(model: ir.Model, given: Named) -> None:
    """Refuse values that the main graph does not have, or that contradict their declaration."""
    known = main_values(model.graph)
    for name, value in given.items():
        if (problem := declared_mismatch(value_named(known, name), value)) is not None:
            raise UsageError(f"input {problem}")


def wanted_values(model: ir.Model, node: str | None, fetch: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the values to fetch, each once.

    Raises:
        UsageError: If there is no such node or value, or several nodes have the name.
    """
    if node is not None:
        return tuple(value.name for value in _node(model, node).outputs if value.name)
    if not fetch:
        return tuple(dict.fromkeys(value.name or "" for value in model.graph.outputs))
    known = main_values(model.graph)
    for name in fetch:
        value_named(known, name)
    return tuple(dict.fromkeys(fetch))


_MOST = 6  # inputs that a message names


def run_model(
    model: ir.Model,
    given: dict[str, Value],
    wanted: Sequence[str],
    node: str | None,
    settings: RunSettings,
    progress: Progress = silent,
) -> EvalReport:
    """Run a model as `settings` say.

    Args:
        model: The model.
        given: Values that are fed.
        wanted: Values to return.
        node: A node whose updated input is reported before and after; None for none.
        settings: How to run it.
        progress: Called with each run.
    """
    known = _step_plan(model, given) if settings.steps else None
    written = None if node is None else _written(model, node)
    presents = [pair.present for pair in known.pairs] if known else []
    fetched = tuple(dict.fromkeys((*wanted, *(written or ())[:1], *presents)))
    part = part_of(model, given, fetched)
    missing = _missing_inputs(part, given, settings)
    runner = open_runner(settings.runtime, part, given)
    versus = _versus(part, given, wanted, settings)
    loop = Loop(runner, settings, known, None if versus is None else versus.watch, progress)
    if missing:
        known = known or plan_with(model, given)
        sizes = bound_sizes(known, given, settings.dims)
        outcome = loop.run(drawn_feeds(known, given, missing, settings.seed, sizes))
    else:
        if settings.dims:  # which what is given must not contradict
            bound_sizes(plan_with(model, given), given, settings.dims)
        outcome = loop.run([given])
    updates: list[Update] = []
    if written is not None and not settings.steps:
        old, new = (outcome.values.get(name) for name in written)
        if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
            updates.append(Update.of(*written, old, new))
    return EvalReport(
        runtime=runner.runtime,
        seed=settings.seed if missing or settings.steps else None,
        steps=settings.steps,
        inputs=tuple(
            Fed(facts.name, facts.dtype, facts.shape, facts.length, facts.name in given)
            for facts in (type_facts(name, value) for name, value in outcome.inputs.items())
        ),
        trace=tuple(outcome.trace),
        comparison=None if versus is None else versus.report(),
        updates=tuple(updates),
        warnings=outcome.warnings,
        borrowed=runner.borrowed,
        values={name: outcome.values[name] for name in wanted},
    )


def _step_plan(model: ir.Model, given: Named) -> InputPlan:
    """Return the plan of the inputs for decode steps.

    Raises:
        UsageError: If no cache is fed back, or a value is given that a step would compute anew.
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


def _missing_inputs(part: ir.Model, given: Named, settings: RunSettings) -> list[str]:
    """Return the inputs of a part that have to be drawn.

    Raises:
        UsageError: If there are any and none may be drawn.
    """
    graph = part.graph
    missing = [v for v in graph.inputs if v.const_value is None and v.name not in given]
    if missing and not settings.steps:  # which moves all of them on
        fed = [value for value in graph.inputs if value.name in given]
        missing = [v for v in needed_inputs(graph, fed, graph.outputs) if v.name not in given]
    if missing and not settings.random:
        names = ", ".join(f"`{value.name}` ({_declared(value)})" for value in missing[:_MOST])
        if len(missing) > _MOST:
            names += f" and {counted(len(missing) - _MOST, 'other input')}"
        raise UsageError(
            f"there is no value for {names}",
            help="give each with `--input NAME=SPEC`, or use `--random` for the rest",
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
    part: ir.Model, given: Named, wanted: Sequence[str], settings: RunSettings
) -> Versus | None:
    if settings.compare is None:
        return None
    from onnx_kvtool.verification.comparison.tolerances import Measure
    from onnx_kvtool.verification.subject import capture

    subject = capture(part, "the model")
    measure = Measure(
        subject.arithmetic.moved, (subject.arithmetic,), drawn=(subject.random, subject.random)
    )
    return Versus(open_runner(settings.compare, part, given), wanted, measure)
