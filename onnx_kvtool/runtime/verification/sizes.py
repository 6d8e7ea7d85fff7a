"""Whether two models are run as they are or as copies with smaller weights."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.storage import tensor_bytes
from onnx_kvtool.core.walk import tensors
from onnx_kvtool.runtime.errors import CannotDraw
from onnx_kvtool.runtime.inputs.plan import plan
from onnx_kvtool.runtime.memory import available_memory
from onnx_kvtool.runtime.verification.engine import compare_models
from onnx_kvtool.runtime.verification.likeness import alike
from onnx_kvtool.runtime.verification.report import VerifyReport
from onnx_kvtool.runtime.verification.settings import Settings
from onnx_kvtool.runtime.verification.shrinking.shrink import shrink
from onnx_kvtool.runtime.verification.shrinking.skeleton import Skeleton, skeleton
from onnx_kvtool.runtime.verification.subject import capture
from onnx_kvtool.runtime.verification.weights import weight_difference

__all__ = ["Large", "compare_shrunk", "fits_memory", "weight_bytes"]

_COPIES = 3
"""How often a model stands in memory while it is run: its message, what the runtime makes of it,
and the rearranged copies that kernels keep of matrices."""


def weight_bytes(model: ir.Model) -> int:
    """Return the bytes that the weights of `model` take; none is read."""
    return sum(tensor_bytes(tensor) for _, tensor in tensors(model))


def fits_memory(bytes_: int) -> bool:
    """Return whether models whose weights take so many bytes in all can be run in memory."""
    available = available_memory()
    return available is None or bytes_ * _COPIES <= available


class Large:
    """A model that is too large to be run in passing, captured so that it may then be edited.

    Args:
        model: The model; no weight is read.
        name: What messages call it.

    Raises:
        KvtoolError: If the model has no written form, or weights outside its main graph.
    """

    def __init__(self, model: ir.Model, name: str) -> None:
        self.name = name
        self.skeleton: Skeleton = skeleton(model, name)
        try:
            known = plan(model)
            self.tokens = frozenset(spec.name for spec in known.with_role("token_ids"))
        except CannotDraw:
            self.tokens = frozenset()


def compare_shrunk(a: Large, b: Large, settings: Settings) -> VerifyReport:
    """Compare two models by copies with smaller weights.

    Returns:
        What `compare_models` says of the copies, `shrunk` and with a note of it; `different`
        without a run for models that are the same but for a weight; `unrunnable` when there are no
        such copies or they do not run.
    """
    try:
        found = alike(a.skeleton.message, b.skeleton.message)
        weight = None if found is None else weight_difference(a.skeleton, b.skeleton, found)
        if weight is not None and settings.rtol is None and settings.atol is None:
            return VerifyReport("different", seed=settings.seed, detail=weight)
        pair = shrink(a.skeleton, b.skeleton, a.tokens & b.tokens, settings.seed)
        one, other = capture(pair.a, a.name), capture(pair.b, b.name)
    except KvtoolError as error:
        return VerifyReport("unrunnable", seed=settings.seed, detail=error.message)
    report = compare_models(one, other, settings)
    how = f"with sizes {', '.join(pair.sizes)}" if pair.sizes else "with drawn weights"
    note = f"verified on copies {how}, as the weights are too large to be run in passing"
    return replace(report, shrunk=True, notes=(note, *report.notes))
