"""`kvtool eval`: its request, the checks of it, and the work."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnx_kvtool.commands.arguments import asked, check_data, check_dims, check_sizes
from onnx_kvtool.commands.options import path_in
from onnx_kvtool.commands.requests import EvalRequest
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.errors import UsageError, refuse
from onnx_kvtool.core.machine import Progress, silent
from onnx_kvtool.core.record import taken
from onnx_kvtool.core.walk import graph_path
from onnx_kvtool.core.words import binary_bytes, bytes_of
from onnx_kvtool.evaluation.literal import save_values
from onnx_kvtool.evaluation.loop import RunSettings, apart_from, owned
from onnx_kvtool.evaluation.operator import single_operator
from onnx_kvtool.evaluation.report import EvalReport
from onnx_kvtool.evaluation.run import (
    check_inputs,
    feed_of,
    input_values,
    run_model,
    wanted_values,
)
from onnx_kvtool.evaluation.runner import keep_runner, main_values
from onnx_kvtool.evaluation.spec import read_spec, spec_file
from onnx_kvtool.model_io.external_data import external_files
from onnx_kvtool.model_io.model import origin, read
from onnx_kvtool.model_io.model_source import ModelSource, open_model, path_of
from onnx_kvtool.model_io.places import is_same
from onnx_kvtool.model_io.sorting import sort_nodes
from onnx_kvtool.runtime.confined import Exceeded, Limits, confined, is_confining
from onnx_kvtool.runtime.kernels.kernel import Value
from onnx_kvtool.runtime.memory import available_memory
from onnx_kvtool.runtime.sessions import check_provider, running_on

_SECONDS = 600.0
_SHARE = 0.75
"""The default limits of the command: time, and share of the free memory."""

_OTHER = "name another file with `--save`"


@asked(EvalRequest)
def evaluate(request: EvalRequest) -> dict[str, np.ndarray[Any, Any]]:
    """Run a model, or the part that computes the fetched values, and return values by name.

    Returns:
        The fetched values, in order: arrays that the caller owns, lists of them for sequences, None
        for an empty optional.

    Raises:
        UsageError: If a name is unknown, an input is missing or contradicts its declaration, or
            an argument is out of its range.
        UnreadableModel: If the model, or external data of it, cannot be read.
        KvtoolError: If the runtime cannot load the model, the model fails on these inputs (the
            message names the node), or the runs reach a limit.

    Examples:
        >>> tokens = [[5, 3, 8]]
        >>> outputs = kv.evaluate("decoder.onnx", {"input_ids": tokens}, random=True)
        >>> outputs["logits"].shape, outputs["logits"].dtype
        ((1, 3, 256), dtype('float32'))
        >>> kv.evaluate("decoder.onnx", random=True, fetch=["updated_key_cache.0"], steps=2).keys()
        dict_keys(['updated_key_cache.0'])
    """
    path_of(request.model)
    _check_request(request)
    loaded = _held(request.model, request)
    values, inputs = main_values(loaded.graph), request.inputs or {}
    given = {name: feed_of(name, value, values.get(name)) for name, value in inputs.items()}
    is_limited = request.time_limit is not None or request.memory_limit is not None
    limits = _limits(request) if is_limited else None
    with running_on(request.provider):
        report = _limited(partial(_evaluate, loaded, given, request), limits, silent)
    return {name: owned(value) for name, value in apart_from(report.values, given).items()}


_MOST_KEPT = 16 << 20
"""Most bytes of a kept message: reading and compiling a small model take longer than a run."""

_LAST: list[tuple[bytes, ir.Model]] = []
"""The bytes of the last evaluated message, and its model."""


def _held(source: ModelSource, request: EvalRequest) -> ir.Model:
    """Return a model as `open_model` does; the same one if the message is that of the last call.

    Two models are not kept: random inputs change the types of its values, and files may change.
    """
    draws = request.random or request.steps or request.sizes
    if draws or not isinstance(source, onnx.ModelProto):
        return open_model(source)
    data = source.SerializeToString()
    if len(data) > _MOST_KEPT:
        return open_model(source)
    for before, model in _LAST:
        if before == data:
            return model
    model = open_model(source)
    if not external_files(model):
        keep_runner(model)
        _LAST[:] = [(data, model)]
    return model


def run(request: EvalRequest, progress: Progress = silent) -> EvalReport:
    """Carry out `kvtool eval`.

    Args:
        request: What to do.
        progress: Receives the current activity.

    Raises:
        UsageError: As `evaluate`, and if options contradict each other or a SPEC is none.
        UnreadableModel: If the model, external data of it, or the file of a SPEC cannot be read.
        UnwritableOutput: If the values cannot be saved; nothing is left behind.
        KvtoolError: As `evaluate`. Without limits the runs may take ten minutes, and three
            quarters of the memory that is free.
    """
    _check_request(request)
    limits = _limits(request) if is_confining() else None
    if request.op is not None:
        work = partial(_evaluate_operator, request, request.op)
    else:
        given = {name: read_spec(text) for name, text in request.specs}
        progress("reading the model")
        model = read(path_in(request.model))
        if (target := request.save) is not None and any(
            is_same(file.path, target) for file in external_files(model)
        ):
            raise UsageError(f"`{target}` contains weights, and would be overwritten", help=_OTHER)
        work = partial(_evaluate, model, input_values(model, given), request)
    with running_on(request.provider):
        report = _limited(work, limits, progress)
    if request.save is not None:
        save_values(request.save, report.values)
        report.saved = request.save
    return report


def _limited(
    work: Callable[[Progress], EvalReport], limits: Limits | None, progress: Progress
) -> EvalReport:
    """Run within limits; None means no limit."""
    if limits is None:
        return work(progress)
    try:
        return confined(work, limits, progress)
    except Exceeded as error:
        if error.what == "time":
            error.help = f"`--time-limit {2 * limits.seconds:g}` allows twice as much"
        elif error.what == "memory":
            more = binary_bytes(2 * limits.memory).replace(" ", "")
            error.help = f"`--memory-limit {more}` allows twice as much"
        raise


def _limits(request: EvalRequest) -> Limits:
    memory = request.memory_limit
    if memory is None:
        free = available_memory()
        memory = sys.maxsize if free is None else int(free * _SHARE)
    elif isinstance(memory, str):
        memory = bytes_of(memory) or 0
    return Limits(request.time_limit or _SECONDS, memory)


def _check_limits(request: EvalRequest) -> None:
    time, memory = request.time_limit, request.memory_limit
    if time is not None and not (math.isfinite(time) and time > 0):
        raise UsageError(f"`--time-limit` is {time:g}, expected a number of seconds above 0")
    if memory is not None and not (bytes_of(memory) if isinstance(memory, str) else memory > 0):
        raise UsageError(
            f"`--memory-limit` is `{memory}`, expected a number of bytes above 0 such as `2GiB`"
        )
    if not is_confining() and (time is not None or memory is not None):
        flag = "--memory-limit" if time is None else "--time-limit"
        raise UsageError(
            f"`{flag}` needs Linux, this is {sys.platform}",
            help="run the command in a container that has limits",
        )


def _check_request(request: EvalRequest) -> None:
    """Refuse options that contradict each other, before anything is read."""
    _check_limits(request)
    check_sizes(request.sizes)
    check_provider(request.provider)
    runtimes = request.runtime, request.compare
    refuse(
        (
            request.provider is not None and "onnxruntime" not in runtimes,
            "`--provider` is for onnxruntime, which does not run the model",
            "add `--runtime onnxruntime`",
        ),
        (
            request.compare == request.runtime,
            f"`--compare {request.compare}` compares a runtime with itself",
            "choose the other one with `--runtime`",
        ),
        (
            request.trace and request.runtime == "onnxruntime",
            "`--trace` needs the reference runtime, onnxruntime does not report its nodes",
            "use `--runtime reference`",
        ),
    )
    if request.save is not None:
        _check_save(request.save, request)
    (_check_model_request if request.op is None else _check_operator_request)(request)


def _check_save(target: str, request: EvalRequest) -> None:
    """Refuse to overwrite the model, or the file of an input."""
    if target == "-":
        raise UsageError(
            "`--save` cannot write to standard output, where the values go",
            help="name a file with `--save FILE.npz`, or use `--format json`",
        )
    sources = [path_in(request.model), *(spec_file(text) for _, text in request.specs)]
    for source in sources:
        if source in (None, "", "-") or not (os.path.exists(target) and os.path.exists(source)):
            continue
        if os.path.samefile(target, source):
            raise UsageError(f"`{target}` is an input file, and would be overwritten", help=_OTHER)


def _check_model_request(request: EvalRequest) -> None:
    names = [name for name, _ in request.specs]
    one_operator = "name the operator with `--op` and leave the model out"
    refuse(
        (
            request.model is None,
            "there is no model to evaluate",
            "name one, or an operator: `--op`",
        ),
        (request.attributes, "`--attr` is for a single operator, not for a model", one_operator),
        (request.opset, "`--opset` is for a single operator, not for a model", one_operator),
        *((names.count(name) > 1, f"the input `{name}` is given twice", None) for name in names),
        (
            request.node is not None and request.fetch,
            "`--node` fetches the outputs of a node, and `--fetch` values by name",
            "leave one of them out",
        ),
    )


def _check_operator_request(request: EvalRequest) -> None:
    of_models = {
        "--random": request.random,
        "--seed": request.seed,
        "--dim": request.sizes,
        "--node": request.node is not None,
        "--steps": request.steps,
    }
    every_input = "give every input of the operator with `--input NAME=SPEC`"
    refuse(
        (
            request.model is not None,
            f"`--op` evaluates an operator without a model, got `{request.model}` as well",
            "leave one of them out; `--node NAME` runs one node of a model",
        ),
        *(
            (is_given, f"`{flag}` needs a model, and `--op` has none", every_input)
            for flag, is_given in of_models.items()
        ),
    )


def _evaluate_operator(request: EvalRequest, op: str, progress: Progress) -> EvalReport:
    single = single_operator(
        op,
        request.opset,
        request.attributes,
        [(name, read_spec(text)) for name, text in request.specs],
        request.fetch,
    )
    settings = taken(RunSettings, request, dims={})
    inputs = dict(single.inputs)
    report = run_model(single.model, inputs, single.outputs, op, settings, progress)
    report.operator, report.opset = op, single.opset
    return report


def _evaluate(
    model: ir.Model,
    given: dict[str, Value],
    request: EvalRequest,
    progress: Progress = silent,
) -> EvalReport:
    path = path_in(request.model) or origin(model).path
    check_data(model, path)
    notes = sort_nodes(model, "were run in a valid order")
    check_dims(model, request.sizes)
    check_inputs(model, given)
    wanted = wanted_values(model, request.node, request.fetch)
    settings = taken(RunSettings, request, dims=request.sizes)
    report = run_model(model, given, wanted, request.node, settings, progress)
    report.model = path
    graph = Location(graph_path(model.graph.name))
    moved = (Diagnostic("unsorted-nodes", "warning", graph, note) for note in notes)
    report.warnings = (*moved, *report.warnings)
    return report
