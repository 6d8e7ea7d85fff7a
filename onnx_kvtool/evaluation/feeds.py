"""The inputs of the first run: given, or drawn so that they fit what is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.model_io.model import clone
from onnx_kvtool.runtime.engine.type_check import element_type
from onnx_kvtool.runtime.errors import CannotDraw
from onnx_kvtool.runtime.kernels.kernel import Value
from onnx_kvtool.symbolic.dimensions import names_in
from onnx_kvtool.verification.inputs.cases import CASES
from onnx_kvtool.verification.inputs.drawing import draw
from onnx_kvtool.verification.inputs.plan import InputPlan, plan
from onnx_kvtool.verification.inputs.symbols import attempts

__all__ = ["bound_sizes", "drawn_feeds", "plan_with"]


_CASE = CASES[0]
"""A prompt for two empty caches, which leaves room for decode steps."""


def plan_with(model: ir.Model, given: Mapping[str, Value]) -> InputPlan:
    """Return what the inputs of `model` mean; types and ranks left open are those of what is given.

    Raises:
        UsageError: If an input is not a tensor, or neither declared nor given with type and rank.
    """
    open_ = [
        value.name
        for value in model.graph.inputs
        if value.name in given and (value.dtype is None or value.shape is None)
    ]
    if open_:
        model = clone(model)
        for value in model.graph.inputs:
            array = given.get(value.name or "")
            if value.name in open_ and isinstance(array, np.ndarray):
                found = element_type(array.dtype)
                if value.dtype is None and found is not None:
                    value.type = ir.TensorType(found)
                if value.shape is None:
                    value.shape = ir.Shape([None] * array.ndim)
    try:
        return plan(model)
    except CannotDraw as error:
        raise UsageError(error.message, help=error.help) from error


def bound_sizes(
    known: InputPlan, given: Mapping[str, Value], dims: Mapping[str, int]
) -> dict[str, int]:
    """Return the sizes of symbolic dimensions that the user has settled.

    Args:
        known: The inputs.
        given: Their values, as far as they are given.
        dims: Sizes given by name.

    Raises:
        UsageError: If two of these give a dimension different sizes.
    """
    sizes = dict(dims)
    source = dict.fromkeys(dims, "`--dim` says")
    for spec in known.inputs:
        value = given.get(spec.name)
        if not isinstance(value, np.ndarray):
            continue
        for axis, (dim, size) in enumerate(zip(spec.shape, value.shape, strict=False)):
            if not isinstance(dim, str) or names_in(dim) != (dim,):
                continue
            if sizes.setdefault(dim, size) != size:
                raise UsageError(
                    f"input `{spec.name}` has size {size} in dimension {axis}, `{dim}`, "
                    f"expected {sizes[dim]} as {source[dim]}"
                )
            source.setdefault(dim, f"`{spec.name}` has")
    return sizes


def drawn_feeds(
    known: InputPlan,
    given: Mapping[str, Value],
    missing: Sequence[str],
    seed: int,
    sizes: Mapping[str, int],
) -> Iterator[dict[str, Value]]:
    """Yield inputs for a first run, the likeliest reading of the model's dimensions first.

    Args:
        known: The inputs.
        given: Values that stay as they are.
        missing: Names of the inputs to draw.
        seed: The same seed gives the same values.
        sizes: Sizes that every reading has.

    Raises:
        UsageError: If no reading gives inputs.
    """
    failure: CannotDraw | None = None
    drew = False
    for case, reading in attempts(known, _CASE, sizes):
        try:
            values = draw(known, case, seed, reading)
        except CannotDraw as error:
            failure = failure or error
            continue
        drew = True
        feeds = {**{name: values[name] for name in missing}, **given}
        # In the order of the model, what is fed to other values after its inputs.
        yield {name: feeds[name] for name in (*values, *given) if name in feeds}
    if not drew and failure is not None:
        raise UsageError(failure.message, help=failure.help) from failure
