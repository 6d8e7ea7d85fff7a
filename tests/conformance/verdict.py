"""What becomes of one case at one target: already there, equal, refused or wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import onnx
import onnx.checker
import onnx_ir as ir
import onnxruntime
from onnx.reference import ReferenceEvaluator

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.runtime.onnxruntime import Session
from onnx_kvtool.runtime.sessions import EXTENDED
from tests.conformance.corpus import Case
from tests.conformance.difference import difference_of
from tests.dialect import departures as departures_of

__all__ = ["Verdict", "judged", "run_case"]

_NARROW = frozenset(extended.numpy() for extended in EXTENDED.values())


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a case.

    Attributes:
        status: `already`: the case is at the target or below; `equal`: lowered, accepted by the
            checker, with the expected outputs; `refused`; `wrong`: anything else.
        detail: The runtime that gave the outputs, or what is wrong.
        refusals: Why its nodes cannot be lowered; most cases have one node.
        departures: Where the lowered case leaves the portable dialect.
    """

    status: Literal["already", "equal", "refused", "wrong"]
    detail: str = ""
    refusals: tuple[Diagnostic, ...] = ()
    departures: tuple[str, ...] = ()


def judged(case: Case, target: int) -> Verdict:
    """Lower a case and run it."""
    if case.opset <= target:
        return Verdict("already")
    try:
        lowered, _ = lower(ir.from_proto(case.model), opset=target, verify=False)
    except Refused as refused:
        return Verdict("refused", refusals=tuple(refused.report.refused))
    proto = ir.to_proto(lowered)
    if [entry.version for entry in proto.opset_import if entry.domain == ""] != [target]:
        return Verdict("wrong", "the result is not at the target")
    try:
        onnx.checker.check_model(proto, full_check=True)
    except onnx.checker.ValidationError as error:
        return Verdict("wrong", f"checker: {error}")
    except onnx.shape_inference.InferenceError as error:
        return Verdict("wrong", f"shape inference: {error}")
    departures = departures_of(lowered, ir.from_proto(case.model))
    return replace(run_case(case, proto), departures=tuple(departures))


def run_case(case: Case, proto: onnx.ModelProto) -> Verdict:
    """Run in onnxruntime, or in onnx's reference where it has no kernel or another opinion.

    Another opinion of onnxruntime counts against the lowered model, unless it has the same opinion
    of the source: some of its kernels differ from the cases at every opset.
    """
    said = []
    for name, run in (("onnxruntime", _in_onnxruntime), ("reference", _in_reference)):
        try:
            outputs = run(proto, case.feeds)
        except Exception as error:  # noqa: BLE001  # a lack of kernels has many names
            said.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:200]}")
            continue
        difference = difference_of(case, outputs)
        if difference is None:
            return Verdict("equal", name)
        said.append(f"{name}: {difference}")
        if name == "onnxruntime" and not _same_of_the_source(case, outputs):
            break
    return Verdict("wrong", "; ".join(said))


def _same_of_the_source(case: Case, outputs: Sequence[Any]) -> bool:
    """Return whether onnxruntime gives these outputs for the source too, or cannot run it."""
    try:
        native = _in_onnxruntime(case.model, case.feeds)
    except Exception:  # noqa: BLE001  # no kernel, by any name
        return True
    return difference_of(replace(case, expected=list(native)), outputs) is None


def _in_onnxruntime(proto: onnx.ModelProto, feeds: dict[str, Any]) -> Sequence[Any]:
    if any(isinstance(a, np.ndarray) and a.dtype in _NARROW for a in feeds.values()):
        # The plain binding takes no bfloat16 and no type of 8 bits or less.
        results = Session(proto.SerializeToString(), "").run(feeds)
        return [results[output.name] for output in proto.graph.output]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return list(session.run(None, feeds))


def _in_reference(proto: onnx.ModelProto, feeds: dict[str, Any]) -> Sequence[Any]:
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(proto).run(None, feeds))
