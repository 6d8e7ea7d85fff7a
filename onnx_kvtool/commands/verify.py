"""`kvtool verify`: checks of its request, and the work."""

from __future__ import annotations

import math
from dataclasses import replace

import onnx_ir as ir

from onnx_kvtool.commands.arguments import asked, check_data, check_dims
from onnx_kvtool.commands.options import path_in
from onnx_kvtool.commands.requests import VerifyRequest
from onnx_kvtool.core.errors import KvtoolError, UnreadableModel, UsageError
from onnx_kvtool.core.machine import Budget, Progress, silent
from onnx_kvtool.core.reporting import missing
from onnx_kvtool.model_io.model import origin, read
from onnx_kvtool.model_io.model_source import open_model
from onnx_kvtool.model_io.sorting import sort_nodes
from onnx_kvtool.review.compare import matched_values
from onnx_kvtool.runtime.memory import available_memory
from onnx_kvtool.runtime.sessions import check_provider, running_on
from onnx_kvtool.verification.affordable import Candidate, compare_candidates
from onnx_kvtool.verification.report import Settings, VerifyReport

# Defects that leave a model without a meaning in any runtime.
_UNRUNNABLE = frozenset({"bad-dims", "recursive-function", "tensor-data-length"})


@asked(VerifyRequest)
def verify(request: VerifyRequest) -> VerifyReport:
    """Run two models on the same seeded inputs and return how they compare.

    Several shapes are run, each a first run (a prefill) and then decode steps, where each
    present is fed back to its past. Outputs that only move data, and the rows of caches that a run
    does not write, have to agree bit for bit, NaN equal to NaN; so has everything else if the
    models are the same but for names and the values of weights. What is computed has to agree
    within a tolerance for its type. Neither model is changed.

    Raises:
        UnreadableModel: If a model, or external data of one, cannot be read.
        UsageError: If an argument is out of its range, or no input has a dimension in `dims`.

    Examples:
        >>> lowered, _ = kv.lower("decoder.onnx", only=["TensorScatter"], verify=False)
        >>> report = kv.verify("decoder.onnx", lowered, cases=2, steps=1)
        >>> report.status, all(output.bit_equal for output in report.outputs)
        ('equal', True)
    """
    _check_request(request)
    return _verify(open_model(request.a), open_model(request.b), request)


def run(request: VerifyRequest, progress: Progress = silent) -> VerifyReport:
    """Carry out `kvtool verify`; see `verify`.

    Args:
        request: What to do.
        progress: Receives the current activity.

    Raises:
        UsageError: If the arguments contradict each other.
        UnreadableModel: If a model, or external data of one, cannot be read.
    """
    _check_request(request)
    if request.a == request.b == "-":
        raise UsageError(
            "both models are standard input, which contains only one",
            help="name a file for one of them",
        )
    progress("reading both models")
    return _verify(read(path_in(request.a)), read(path_in(request.b)), request, progress)


def _verify(
    a: ir.Model, b: ir.Model, request: VerifyRequest, progress: Progress = silent
) -> VerifyReport:
    for model, given in ((a, request.a), (b, request.b)):
        path = path_in(given) or origin(model).path
        for defect in origin(model).defects:
            if defect.code in _UNRUNNABLE:
                message = f"{defect.location}: {defect.message}"
                raise UnreadableModel(f"`{path}`: {message}" if path else message, help=defect.help)
        check_data(model, path)
        sort_nodes(model)  # onnxruntime runs such models as they are, and ours gives the same
    check_dims(a, request.sizes)
    settings = Settings(
        cases=request.cases,
        steps=request.steps,
        seed=request.seed,
        dims=dict(request.sizes),
        budget=Budget.parse(request.verify_budget),
        runtime="onnxruntime" if request.provider else request.runtime,
        rtol=request.rtol,
        atol=request.atol,
        thorough=request.thorough,
        strict=request.strict,
        matching=lambda: matched_values(a, b),
        progress=progress,
    )
    try:
        limit = available_memory()
        with running_on(request.provider):
            pair = ((a, "A"), (b, "B"))
            one, other = (Candidate.of(m, name, settings, limit) for m, name in pair)
            report = compare_candidates(one, other, settings)
    except (UnreadableModel, UsageError):
        raise
    except KvtoolError as error:  # a model that has no written form
        report = VerifyReport("unrunnable", seed=settings.seed, detail=error.message)
    if request.strict and report.status == "equal":
        report = replace(report, insufficient=missing(report.covered))
    return replace(
        report, a=path_in(request.a) or origin(a).name, b=path_in(request.b) or origin(b).name
    )


def _check_request(request: VerifyRequest) -> None:
    check_provider(request.provider)
    if request.provider is not None and request.runtime == "reference":
        raise UsageError("`--provider` is for onnxruntime, and `--runtime` is `reference`")
    Budget.parse(request.verify_budget)
    for name, tolerance in (("rtol", request.rtol), ("atol", request.atol)):
        if tolerance is not None and not (math.isfinite(tolerance) and tolerance >= 0):
            raise UsageError(f"`{name}` is {tolerance}, expected a number that is not negative")
