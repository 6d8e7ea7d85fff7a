"""What models differ by where onnxruntime may round more than it does in a comparison."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.runtime.comparison.compare import compare, largest
from onnx_kvtool.runtime.errors import RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.sessions import Array, Arrays, RuntimeName
from onnx_kvtool.runtime.verification.subject import Subject

__all__ = ["rounding_note"]


def rounding_note(
    a: Subject, b: Subject, inputs: Mapping[str, Array], runtime: RuntimeName, found: float
) -> str | None:
    """Return what was changed for the comparison, and what the models differ by as they are.

    Products with weights of a few bits are compared in float32. `accuracy_level` of such a node,
    or a default of onnxruntime for those that it fuses, lets it round the other operand to 8 bits.

    Args:
        a: Model A.
        b: Model B.
        inputs: Those of one run.
        runtime: What ran both.
        found: Largest difference in the comparison.

    Returns:
        The remark; None where nothing was changed that matters.
    """
    if runtime != "onnxruntime":
        return None
    from onnx_kvtool.runtime import onnxruntime

    if not any(onnxruntime.may_round(subject.model) for subject in (a, b)):
        return None
    changed = [
        f"`accuracy_level` of {counted(len(levels), 'node')} of {subject.name} is 1 in place of "
        f"{max(levels)}"
        for subject in (a, b)
        if (levels := onnxruntime.lowered_accuracy(subject.model))
    ]
    said = "products with quantized weights were computed in float32"
    said += f": {', '.join(changed)}" if changed else ", which onnxruntime does not do by default"
    try:
        ours, theirs = (_as_it_is(subject, inputs) for subject in (a, b))
    except (RunFailed, RuntimeUnavailable) as error:
        return f"{said}; as they are, the models do not run: {error.message}"
    apart = {
        name: seen.max_abs_diff
        for name, value in ours.items()
        if (seen := compare(name, value, theirs[name])).max_abs_diff is not None
    }
    name = max(apart, key=lambda one: apart[one] or 0.0, default=None)
    most = 0.0 if name is None else apart[name] or 0.0
    if name is None or most <= found:
        return f"{said}; as they are, the models differ by no more" if changed else None
    return (
        f"{said}; as they are, the models differ by up to {most:.2g} in `{name}`, whose largest "
        f"value is {largest(ours[name]):.2g}"
    )


def _as_it_is(subject: Subject, inputs: Mapping[str, Array]) -> Arrays:
    from onnx_kvtool.runtime import onnxruntime

    session = onnxruntime.Session(subject.model, subject.directory, exact=False)
    return subject.hosted(session).run(inputs)
