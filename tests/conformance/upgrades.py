"""What becomes of one case on the way up, from its own opset or from one that it was lowered to."""

from __future__ import annotations

import onnx
import onnx.checker
import onnx_ir as ir

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.rewrite.upgrade import upgrade
from tests.conformance.corpus import Case
from tests.conformance.verdict import Verdict, run_case

__all__ = ["raised"]

_NOT_INFERRED = frozenset({"mvn"})
"""Cases on whose operator onnx's inference (1.23) fails at opset 13 and later, in its own body."""

_NO_RUNTIME = "image_decoder"
"""Cases that onnxruntime has no kernel for, and onnx's reference none without Pillow."""


def raised(case: Case, target: int, via: int | None) -> Verdict | None:
    """Upgrade a case and run it.

    Args:
        case: The case.
        target: The opset to come to.
        via: The opset to which the case is lowered first, if it is at a later one; None to start
            from the case as it is.

    Returns:
        None when there is nothing to judge: the case is at the target already, cannot be lowered
        to `via`, or no runtime runs it.
    """
    if case.name.startswith(_NO_RUNTIME):
        return None
    if via is None or case.opset <= via:
        if case.opset >= target:
            return None
        model = ir.from_proto(case.model)
    else:
        try:
            model, _ = lower(ir.from_proto(case.model), opset=via, verify=False)
        except Refused:
            return None
    outcome = upgrade(model, target)
    if outcome.refused:
        return Verdict("refused", refusals=tuple(outcome.refused))
    proto = onnx.ModelProto.FromString(serialize(model))
    if [entry.version for entry in proto.opset_import if entry.domain == ""] != [target]:
        return Verdict("wrong", "the result is not at the target")
    try:
        onnx.checker.check_model(proto, full_check=case.name not in _NOT_INFERRED)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return Verdict("wrong", f"{type(error).__name__}: {error}")
    return run_case(case, proto)
