"""What kvtool does with a random graph, held against onnxruntime and two references."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx_ir as ir
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator as OnnxEvaluator

import onnx_kvtool as kv
from tests.fuzz.assembly import Drawn

__all__ = ["KNOWN", "Known", "judge", "unknown"]


@dataclass(frozen=True, slots=True)
class Known:
    """What is not to be told again.

    Attributes:
        pattern: The whole of what is said.
        operators: The graph has one of them that makes a value without elements; None where what
            is said names the operator.
        why: What is wrong, and where.
    """

    pattern: str
    operators: frozenset[str] | None
    why: str


KNOWN = (
    Known(
        r"lower to (11|13|17): onnxruntime gives other values than for the source",
        frozenset({"BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"}),
        # Measured in onnxruntime 1.31: (0, 32) over the last axis without keepdims is (0, 32).
        "onnxruntime gives a ReduceSum of nothing the shape of its input",
    ),
)
"""What is known to be wrong and not mended yet, or is so elsewhere."""


def unknown(problem: str, drawn: Drawn) -> bool:
    """Return whether a problem is none of `KNOWN`."""
    return not any(
        re.fullmatch(known.pattern, problem)
        and (known.operators is None or known.operators & drawn.empty)
        for known in KNOWN
    )


TARGETS = (9, 11, 13, 17, 18, 21)

Values = list[Any]


def judge(drawn: Drawn, counts: Counter[str]) -> Iterator[str]:
    """Yield what is wrong; count what was done.

    A graph that onnx's full check refuses is passed over, as is one that kernels cannot run. The
    values are those of the kernels; they are wrong if onnxruntime and onnx.reference both run the
    graph, agree, and say something else. What is lowered or raised is run by the kernels, and by
    onnxruntime where it runs the source alike.
    """
    try:
        onnx.checker.check_model(drawn.model, full_check=True)
    except Exception:  # noqa: BLE001 - onnx raises of every kind
        counts["not valid"] += 1
        return
    try:
        ours = kv.ReferenceEvaluator(drawn.model).run(None, drawn.feeds)
    except kv.KvtoolError:
        counts["not run"] += 1
        return
    counts["graphs"] += 1
    counts["nodes"] += len(drawn.ops)
    theirs = [_run(_onnxruntime, drawn.model, drawn), _run(_reference, drawn.model, drawn)]
    for name, values in zip(("onnxruntime", "onnx.reference"), theirs, strict=True):
        counts[f"run by {name}"] += values is not None
    if all(theirs) and same(*theirs) and not same(ours, theirs[0]):
        yield "the kernels differ from onnxruntime and onnx.reference"
    agrees = theirs[0] is not None and same(ours, theirs[0])
    yield from _checked(drawn, counts)
    yield from _inferred(drawn, counts)
    yield from _lowered(drawn, ours, counts, agrees=agrees)
    yield from _raised(drawn, ours, counts)


def _checked(drawn: Drawn, counts: Counter[str]) -> Iterator[str]:
    for finding in kv.check(drawn.model):
        counts["findings"] += 1
        if finding.severity == "error":
            yield f"check: {finding.code} {finding.location}: {finding.message}"


def _inferred(drawn: Drawn, counts: Counter[str]) -> Iterator[str]:
    inferred, report = kv.infer(drawn.model)
    for conflict in report.conflicts:
        yield f"infer: {conflict.location}: {conflict.message}"
    made = kv.ReferenceEvaluator(drawn.model).run(None, drawn.feeds, intermediate=True)
    sizes: dict[str, int] = {}
    for value in inferred.graph.inputs:
        shape = made[value.name].shape if value.name in made else ()
        pairs = zip(value.shape, shape, strict=False)
        sizes |= {dim.value: size for dim, size in pairs if isinstance(dim, ir.SymbolicDim)}
    values = [*inferred.graph.outputs, *(v for node in inferred.graph for v in node.outputs)]
    for value in {v.name: v for v in values if v.name in made}.values():
        counts["values inferred"] += 1
        array = made[value.name]
        if value.dtype is not None and value.dtype.numpy() != array.dtype:
            yield f"infer: `{value.name}` is {array.dtype}, inferred {value.dtype}"
        if value.shape is None:
            continue
        if len(value.shape) != array.ndim:
            yield f"infer: `{value.name}` has shape {array.shape}, inferred {value.shape}"
            continue
        for dim, size in zip(value.shape, array.shape, strict=True):
            known = dim if isinstance(dim, int) else sizes.get(dim.value or "")
            if known is not None and known != size:
                yield f"infer: `{value.name}` has shape {array.shape}, inferred {value.shape}"


def _lowered(drawn: Drawn, ours: Values, counts: Counter[str], *, agrees: bool) -> Iterator[str]:
    source = drawn.model.opset_import[0].version
    for target in (t for t in TARGETS if t < source):
        try:
            lowered, _ = kv.lower(drawn.model, opset=target, verify=False)
        except kv.Refused:
            counts["lowerings refused"] += 1
            continue
        counts["lowerings"] += 1
        yield from _same_as_source(f"lower to {target}", lowered, drawn, ours, agrees=agrees)


def _raised(drawn: Drawn, ours: Values, counts: Counter[str]) -> Iterator[str]:
    try:
        raised, report = kv.raise_(drawn.model, verify=False)
    except kv.Refused:
        counts["raisings refused"] += 1
        return
    counts["raised"] += len(report.raised)
    yield from _same_as_source("raise", raised, drawn, ours, agrees=False)


def _same_as_source(
    what: str, result: Any, drawn: Drawn, ours: Values, *, agrees: bool
) -> Iterator[str]:
    message = ir.to_proto(result)
    try:
        onnx.checker.check_model(message, full_check=True)
    except Exception as error:  # noqa: BLE001 - onnx raises of every kind
        yield f"{what}: full_check: {str(error).strip().splitlines()[0]}"
        return
    try:
        values = kv.ReferenceEvaluator(message).run(None, drawn.feeds)
    except kv.KvtoolError as error:
        yield f"{what}: does not run: {error.message}"
        return
    if not same(ours, values):
        yield f"{what}: gives other values"
    elif agrees:
        values = _run(_onnxruntime, message, drawn)
        if values is not None and not same(ours, values):
            yield f"{what}: onnxruntime gives other values than for the source"


def _run(
    run: Callable[[onnx.ModelProto, Mapping[str, Any]], Values],
    model: onnx.ModelProto,
    drawn: Drawn,
) -> Values | None:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return run(model, drawn.feeds)
    except Exception:  # noqa: BLE001 - what a peer cannot run says nothing here
        return None


def _onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Values:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    used = {value.name for value in session.get_inputs()}
    return session.run(None, {name: value for name, value in feeds.items() if name in used})


def _reference(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Values:
    return OnnxEvaluator(model).run(None, dict(feeds))


def same(one: Values, other: Values) -> bool:
    """Return whether values agree, floating-point ones within what their type justifies."""
    return all(_alike(np.asarray(a), np.asarray(b)) for a, b in zip(one, other, strict=True))


_TOLERANCE = {"float16": 2e-2, "bfloat16": 8e-2, "float32": 2e-3, "float64": 1e-5}


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    tolerance = _TOLERANCE.get(str(one.dtype))
    if tolerance is None:
        return bool(np.array_equal(one, other))
    a, b = one.astype(np.float64), other.astype(np.float64)
    scale = max(1.0, float(np.abs(a[np.isfinite(a)]).max(initial=0)))
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True))
