"""`kvtool verify`: what it is asked, what can be wrong with that, and what it does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from onnx_kvtool.commands.arguments import (
    check_choice,
    check_data,
    check_dims,
    check_least,
    speaking_python,
)
from onnx_kvtool.core.choices import RuntimeChoice, words
from onnx_kvtool.core.errors import KvtoolError, UnreadableModel, UsageError
from onnx_kvtool.core.machine import Budget, Progress, silent
from onnx_kvtool.core.reporting import missing
from onnx_kvtool.model_io.model import read
from onnx_kvtool.model_io.model_source import ModelSource, open_model, path_of
from onnx_kvtool.model_io.origin import origin
from onnx_kvtool.model_io.sorting import sort_nodes
from onnx_kvtool.review.compare import matched_values
from onnx_kvtool.runtime.memory import available_memory
from onnx_kvtool.verification.report import Settings, VerifyReport
from onnx_kvtool.verification.sizes import Candidate, compare_candidates

__all__ = ["VerifyRequest", "run", "verify"]

# Defects with which no runtime can make sense of a model.
_UNRUNNABLE = frozenset({"bad-dims", "recursive-function", "tensor-data-length"})


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What `kvtool verify` was asked to do.

    Attributes:
        a: Path of the model that is right, or `-` for standard input.
        b: Path of the model that is judged, or `-` for standard input.
        cases: Number of sets of inputs; None for the usual ones.
        steps: Decode steps after the first run of each case; None for the usual number.
        seed: Seed of the inputs.
        dims: Values of symbolic dimensions.
        verify_budget: What the comparison may take, as `Budget.parse` reads it; None for the
            default.
        thorough: Whether to test the comparison at every place and in all cases.
        strict: Whether something that was not covered is a failure.
        runtime: What runs both models.
        rtol: Relative tolerance; None for that of the types.
        atol: Absolute tolerance; None for that of the types.
    """

    a: str
    b: str
    cases: int | None = None
    steps: int | None = None
    seed: int = 0
    dims: Mapping[str, int] = field(default_factory=dict)
    verify_budget: str | None = None
    thorough: bool = False
    strict: bool = False
    runtime: RuntimeChoice = "auto"
    rtol: float | None = None
    atol: float | None = None


@speaking_python
def verify(
    a: ModelSource,
    b: ModelSource,
    *,
    cases: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
    verify_budget: str | None = None,
    thorough: bool = False,
    strict: bool = False,
    runtime: RuntimeChoice = "auto",
    rtol: float | None = None,
    atol: float | None = None,
) -> VerifyReport:
    """Run two models on the same seeded inputs and return how they compare.

    Several shapes are run, each a first run (a prefill) and then decode steps in which each
    present is fed back to its past. Outputs that only move data, and the rows of caches that a run
    does not write, have to agree bit for bit, NaN equal to NaN; so has everything else if the
    models are the same but for names and the values of weights. What is computed has to agree
    within a tolerance for its type. Neither model is changed.

    Args:
        a: The model that is right, or its path.
        b: The model that is judged, or its path.
        cases: Number of sets of inputs, at least 1; None for 4, which differ in sizes and in
            where rows are written, across the end of circular caches among it.
        steps: Decode steps after the first run of each case, 0 or more, as far as the caches have
            room; None for 2.
        seed: Seed of the inputs, 0 or more.
        dims: Values of symbolic dimensions, by name.
        verify_budget: Memory, time or both that the comparison may take, about: `1GiB`, `30s`,
            `1GiB,30s`; None for 256 MiB and 5 s. Models that need more are compared by copies with
            smaller sizes and fewer layers; `cases` that are asked for are all run.
        thorough: Whether the comparison is tested at every place that corresponds and in all cases,
            not at a sample.
        strict: Whether the report says in `insufficient` what was not covered.
        runtime: What runs both; `auto` takes onnxruntime where it has kernels for both and is not
            known to compute them wrongly, else the reference.
        rtol: Relative tolerance for what is computed; None for that of the types.
        atol: Absolute tolerance for what is computed; None for that of the types. With either
            given, models that are the same but for weights are held to the tolerance as well.

    Raises:
        UnreadableModel: If a model, or external data of one, cannot be read.
        UsageError: If an argument is out of its range, or no input has a dimension in `dims`.

    Examples:
        >>> lowered, _ = kv.lower("decoder.onnx", only=["TensorScatter"], verify=False)
        >>> report = kv.verify("decoder.onnx", lowered, cases=2, steps=1)
        >>> report.status, all(output.bit_equal for output in report.outputs)
        ('equal', True)
    """
    request = VerifyRequest(
        a=path_of(a),
        b=path_of(b),
        cases=cases,
        steps=steps,
        seed=seed,
        dims=dims or {},
        verify_budget=verify_budget,
        thorough=thorough,
        strict=strict,
        runtime=runtime,
        rtol=rtol,
        atol=atol,
    )
    _check_request(request)
    return _verify(open_model(a), open_model(b), request)


def run(request: VerifyRequest, progress: Progress = silent) -> VerifyReport:
    """Carry out `kvtool verify`; see `verify`.

    Args:
        request: What to do.
        progress: Told of what is begun.

    Raises:
        UsageError: If the arguments contradict each other.
        UnreadableModel: If a model, or external data of one, cannot be read.
    """
    _check_request(request)
    if request.a == request.b == "-":
        raise UsageError(
            "standard input contains one model, and both are to be read from it",
            help="name a file for one of them",
        )
    progress("reading both models")
    return _verify(read(request.a), read(request.b), request, progress)


def _verify(
    a: ir.Model, b: ir.Model, request: VerifyRequest, progress: Progress = silent
) -> VerifyReport:
    for model, path in ((a, request.a), (b, request.b)):
        _check_runnable(model, path or origin(model).path)
        sort_nodes(model)  # onnxruntime runs such models as they are, and ours gives the same
    check_dims(a, request.dims)
    settings = Settings(
        cases=request.cases,
        steps=request.steps,
        seed=request.seed,
        dims=dict(request.dims),
        budget=Budget.parse(request.verify_budget),
        runtime=request.runtime,
        rtol=request.rtol,
        atol=request.atol,
        thorough=request.thorough,
        strict=request.strict,
        matching=lambda: matched_values(a, b),
        progress=progress,
    )
    try:
        limit = available_memory()
        one, other = (Candidate.of(m, name, settings, limit) for m, name in ((a, "A"), (b, "B")))
        report = compare_candidates(one, other, settings)
    except (UnreadableModel, UsageError):
        raise
    except KvtoolError as error:  # a model that has no written form
        report = VerifyReport("unrunnable", seed=settings.seed, detail=error.message)
    if request.strict and report.status == "equal":
        report = replace(report, insufficient=missing(report.covered))
    return replace(report, a=request.a or origin(a).name, b=request.b or origin(b).name)


def _check_runnable(model: ir.Model, path: str) -> None:
    """Refuse a model that cannot be run, because a part of it cannot be read.

    Raises:
        UnreadableModel: If external data is missing, data of a tensor does not fit its shape, or
            functions call each other in a circle.
    """
    for defect in origin(model).defects:
        if defect.code in _UNRUNNABLE:
            message = f"{defect.location}: {defect.message}"
            raise UnreadableModel(f"`{path}`: {message}" if path else message, help=defect.help)
    check_data(model, path)


def _check_request(request: VerifyRequest) -> None:
    check_choice("runtime", request.runtime, words(RuntimeChoice))
    Budget.parse(request.verify_budget)
    check_least("cases", request.cases, 1)
    check_least("steps", request.steps, 0)
    check_least("seed", request.seed, 0)
    for name, tolerance in (("rtol", request.rtol), ("atol", request.atol)):
        if tolerance is not None and not (math.isfinite(tolerance) and tolerance >= 0):
            raise UsageError(f"`{name}` is {tolerance}, expected a number that is not negative")
