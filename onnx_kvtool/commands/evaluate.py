"""Evaluate: run a model, a part of it, or one operator, and show what comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_kvtool.commands.arguments import listed
from onnx_kvtool.commands.evaluate_inputs import (
    check_inputs,
    check_request,
    feed_of,
    input_values,
    keep_data,
    wanted_values,
)
from onnx_kvtool.commands.evaluate_run import run_model
from onnx_kvtool.commands.rewriting import check_dims
from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.core.errors import UnreadableModel
from onnx_kvtool.core.files.external_data import check_external_data
from onnx_kvtool.core.held import ModelSource, held, path_of
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.model import origin, read
from onnx_kvtool.core.progress import Progress, silent
from onnx_kvtool.core.sorting import sort_nodes
from onnx_kvtool.core.walk import graph_path
from onnx_kvtool.runtime.evaluation.archive import save_values
from onnx_kvtool.runtime.evaluation.operator import single_operator
from onnx_kvtool.runtime.evaluation.owned import apart_from, owned
from onnx_kvtool.runtime.evaluation.part import main_values
from onnx_kvtool.runtime.evaluation.report import EvalReport
from onnx_kvtool.runtime.evaluation.spec import read_spec
from onnx_kvtool.runtime.kernels.kernel import Value
from onnx_kvtool.runtime.sessions import RuntimeName

__all__ = ["EvalRequest", "evaluate", "run"]


@dataclass(frozen=True, slots=True)
class EvalRequest:
    """What `kvtool eval` was asked to do.

    Attributes:
        model: Path of the model, or `-` for standard input; None with `op`.
        op: A single operator of the default domain; None for a model.
        opset: Opset of a single operator; None for the one that brought its newest version.
        attributes: Attributes of a single operator as text, with their names.
        inputs: Names of values of the main graph, or of inputs of the operator, each with its SPEC.
        random: Whether inputs that are not given are drawn.
        seed: Seed of what is drawn.
        dims: Values of symbolic dimensions.
        node: Node whose outputs are fetched; None for none.
        fetch: Values to fetch; empty, and without `node`, for the graph outputs.
        trace: Whether every node that runs is reported.
        steps: Decode steps after the first run.
        runtime: What runs it.
        compare: What runs it as well, for comparison; None for nothing.
        save: Path of the `.npz` file to write; None for none.
    """

    model: str | None = None
    op: str | None = None
    opset: int | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()
    random: bool = False
    seed: int = 0
    dims: Mapping[str, int] = field(default_factory=dict)
    node: str | None = None
    fetch: tuple[str, ...] = ()
    trace: bool = False
    steps: int = 0
    runtime: RuntimeName = "reference"
    compare: RuntimeName | None = None
    save: str | None = None


def evaluate(
    model: ModelSource,
    inputs: Mapping[str, Any] | None = None,
    *,
    random: bool = False,
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
    node: str | None = None,
    fetch: Sequence[str] = (),
    steps: int = 0,
    runtime: RuntimeName = "reference",
) -> dict[str, np.ndarray[Any, Any]]:
    """Run a model, or the part of it that makes what is fetched, and return values by name.

    Args:
        model: A model (an `onnx_ir.Model` or an `onnx.ModelProto`), which is not changed, or the
            path of one.
        inputs: Values by name, of graph inputs and of any other value of the main graph, which
            then is not computed. Arrays, of exactly the declared element type (strings as objects,
            types that numpy lacks as those of ml_dtypes); or nested lists and numbers, which become
            an array of the declared type. They are not changed.
        random: Whether graph inputs that are needed and not given are drawn, so that they respect
            the cache protocol: write positions within the cache, valid lengths to match.
        seed: The same seed gives the same values, 0 or more.
        dims: Sizes of symbolic dimensions, for what is drawn.
        node: Name of a node of the main graph (`#3` for the fourth node) whose outputs are fetched.
        fetch: Names of values of the main graph; empty, and without `node`, for the graph outputs.
        steps: Decode steps after the first run, 0 or more: each present is fed back to its past,
            starts, positions and lengths move on, tokens are drawn. The values returned are those
            of the last step.
        runtime: `reference`, or `onnxruntime`, which lacks some element types.

    Returns:
        What was fetched, in order: arrays of their own, for sequences lists of them, None for an
        optional that holds nothing.

    Raises:
        UsageError: If a name is unknown, an input is missing or contradicts its declaration, or
            an argument is out of its range.
        UnreadableModel: If the model, or external data of it, cannot be read.
        KvtoolError: If the runtime cannot load the model, or the model fails on these inputs; the
            message names the node.

    Examples:
        >>> tokens = [[5, 3, 8]]
        >>> outputs = kv.evaluate("decoder.onnx", {"input_ids": tokens}, random=True)
        >>> outputs["logits"].shape, outputs["logits"].dtype
        ((1, 3, 256), dtype('float32'))
        >>> kv.evaluate("decoder.onnx", random=True, fetch=["updated_key_cache.0"], steps=2).keys()
        dict_keys(['updated_key_cache.0'])
    """
    request = EvalRequest(
        model=path_of(model),
        random=random,
        seed=seed,
        dims=dims or {},
        node=node,
        fetch=listed("fetch", fetch),
        steps=steps,
        runtime=runtime,
    )
    check_request(request)
    loaded = held(model)
    values = main_values(loaded.graph)
    given = {name: feed_of(name, value, values.get(name)) for name, value in (inputs or {}).items()}
    report = _evaluate(loaded, given, request)
    return {name: owned(value) for name, value in apart_from(report.values, given).items()}


def run(request: EvalRequest, progress: Progress = silent) -> EvalReport:
    """Carry out `kvtool eval`.

    Args:
        request: What to do.
        progress: Told of what is begun.

    Raises:
        UsageError: As `evaluate`, and if options contradict each other or a SPEC is none.
        UnreadableModel: If the model, external data of it, or the file of a SPEC cannot be read.
        UnwritableOutput: If the values cannot be saved; nothing is left behind.
        KvtoolError: As `evaluate`.
    """
    check_request(request)
    if request.op is not None:
        report = _evaluate_operator(request, request.op, progress)
    else:
        assert request.model is not None
        given = {name: read_spec(text) for name, text in request.inputs}
        progress("reading the model")
        model = read(request.model)
        if request.save is not None:
            keep_data(request.save, model)
        report = _evaluate(model, input_values(model, given), request, progress)
    if request.save is not None:
        save_values(request.save, report.values)
        report.saved = request.save
    return report


def _evaluate_operator(request: EvalRequest, op: str, progress: Progress) -> EvalReport:
    single = single_operator(
        op,
        request.opset,
        request.attributes,
        [(name, read_spec(text)) for name, text in request.inputs],
        request.fetch,
    )
    report = run_model(single.model, dict(single.inputs), single.outputs, (op,), request, progress)
    report.operator, report.opset = op, single.opset
    return report


def _evaluate(
    model: ir.Model,
    given: dict[str, Value],
    request: EvalRequest,
    progress: Progress = silent,
) -> EvalReport:
    path = request.model or origin(model).path
    try:
        check_external_data(model, need_bytes=True)
    except UnreadableModel as error:
        message = f"`{path}`: {error.message}" if path else error.message
        raise UnreadableModel(message, help=error.help) from error
    notes = sort_nodes(model, "ran in an order in which they can")
    check_dims(model, request.dims)
    check_inputs(model, given)
    wanted = wanted_values(model, request.node, request.fetch)
    nodes = (request.node,) if request.node is not None else ()
    report = run_model(model, given, wanted, nodes, request, progress)
    report.model = path
    graph = Location(graph_path(model.graph.name))
    moved = (Diagnostic("unsorted-nodes", "warning", graph, note) for note in notes)
    report.warnings = (*moved, *report.warnings)
    return report
