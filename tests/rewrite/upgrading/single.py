"""One node as a model, upgraded and run at both opsets: what the tests of the rules share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.upgrade import upgrade
from onnx_kvtool.runtime import onnxruntime, reference

__all__ = ["check", "refusal", "run", "upgraded"]


def upgraded(model: onnx.ModelProto, target: int = 24) -> onnx.ModelProto:
    """Return the model at the target, which onnx's checker accepts if it accepts the source."""
    work = ir.from_proto(model)
    outcome = upgrade(work, target)
    assert not outcome.refused, [str(refusal) for refusal in outcome.refused]
    result = onnx.ModelProto.FromString(serialize(work))
    assert {entry.domain: entry.version for entry in result.opset_import}[""] == target
    if _accepted(model):
        onnx.checker.check_model(result, full_check=True)
    return result


def _accepted(model: onnx.ModelProto) -> bool:
    """Return whether onnx's checker accepts a source: it does not without a shape at the border."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except onnx.checker.ValidationError:
        return False
    return True


def run(
    model: onnx.ModelProto, inputs: Mapping[str, np.ndarray | None], *, by_reference: bool = False
) -> list[np.ndarray]:
    """Run a model in onnxruntime, or in onnx's reference."""
    wanted = {value.name for value in model.graph.input}
    feeds = {name: v for name, v in inputs.items() if name in wanted and v is not None}
    data = model.SerializeToString()
    session = reference.Session(data, "") if by_reference else onnxruntime.Session(data, "")
    found = session.run(feeds)
    return [found[value.name] for value in model.graph.output]


def check(
    model: onnx.ModelProto,
    inputs: Mapping[str, np.ndarray | None],
    expected: Sequence[np.ndarray] | None = None,
    *,
    target: int = 24,
    rtol: float = 0.0,
    by_reference: bool = False,
) -> onnx.ModelProto:
    """Hold the upgraded model against `expected`, or against the source run by the same runtime.

    Args:
        model: The source.
        inputs: Values of its inputs; those that are initializers are ignored.
        expected: The outputs; None to run the source.
        target: Opset to upgrade to.
        rtol: Relative and absolute tolerance; 0 compares bit for bit, but for NaN payloads.
        by_reference: Whether to run in onnx's reference, where onnxruntime has no kernel.

    Returns:
        The upgraded model.
    """
    if expected is None:
        expected = run(model, inputs, by_reference=by_reference)
    source = onnx.ModelProto()
    source.CopyFrom(model)
    for value, one in zip(source.graph.output, expected, strict=True):
        value.type.tensor_type.ClearField("shape")
        for axis in range(one.ndim):
            value.type.tensor_type.shape.dim.add().dim_param = f"{value.name}_{axis}"
        value.type.tensor_type.shape.SetInParent()  # the checker wants one
    result = upgraded(source, target)
    for got, one in zip(run(result, inputs, by_reference=by_reference), expected, strict=True):
        assert got.dtype == one.dtype
        assert got.shape == one.shape
        if rtol:
            np.testing.assert_allclose(got, one, rtol=rtol, atol=rtol)
        else:
            np.testing.assert_array_equal(got, one)
    return result


def refusal(model: onnx.ModelProto, target: int = 24) -> Diagnostic:
    """Return why the one node of a model cannot be upgraded."""
    outcome = upgrade(ir.from_proto(model), target)
    (found,) = outcome.refused
    return found
