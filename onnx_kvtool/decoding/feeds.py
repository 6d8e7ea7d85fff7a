"""What a host feeds to a decoder at a step, beside its caches."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.runtime.sessions import Array, Arrays
from onnx_kvtool.verification.inputs.cases import Case
from onnx_kvtool.verification.inputs.padding import Counters
from onnx_kvtool.verification.inputs.plan import InputPlan, InputSpec
from onnx_kvtool.verification.inputs.symbols import Layout, kinds_of, sizes_for
from onnx_kvtool.verification.inputs.values import moderate

__all__ = ["Feeder", "Tokens"]


Tokens = npt.NDArray[np.int64]


class Feeder:
    """Makes the inputs of steps in which all sequences have as many tokens, without padding.

    Args:
        plan: What the inputs of the model mean.
        batch: Sequences.
        capacity: Rows of fixed caches whose size is a name; None where there is none.
        dims: Sizes of other names in the shapes of inputs.
        seed: For inputs whose meaning is not known, and for hidden states.
    """

    def __init__(
        self,
        plan: InputPlan,
        batch: int,
        capacity: int | None,
        dims: Mapping[str, int],
        seed: int = 0,
    ) -> None:
        self._plan = plan
        self._batch = batch
        kinds = kinds_of(plan)
        rooms = [name for name, kind in kinds.items() if kind == "capacity"]
        self._dims = {**({} if capacity is None else dict.fromkeys(rooms, capacity)), **dims}
        self._seed = seed

    def layout(self, before: int, length: int) -> Layout:
        """Return the shapes of all inputs of a step of `length` tokens after `before` others.

        Raises:
            CannotDraw: If a dimension has no size or a negative one.
        """
        case = Case("a step", self._batch, length, before, "zero", padding="none")
        return Layout(self._plan, sizes_for(self._plan, case, self._dims), length)

    def feeds(self, tokens: Tokens, before: int) -> Arrays:
        """Return the inputs of a step but for its caches.

        Args:
            tokens: (B, S), the new tokens of each sequence.
            before: Tokens that went before.

        Raises:
            UsageError: If the model wants what a host of text cannot give.
        """
        batch, length = tokens.shape
        layout = self.layout(before, length)
        sizes = (size for shape in layout.shapes.values() for size in shape[:2])
        starts = np.full(max(sizes, default=batch), before)
        counters = Counters(self._plan, layout, starts, starts, lambda: starts + length, before)
        return {
            spec.name: self._value(spec, counters, tokens)
            for spec in self._plan.inputs
            if spec.role != "past_cache"
        }

    def _value(self, spec: InputSpec, counters: Counters, tokens: Tokens) -> Array:
        shape = counters.layout.shapes[spec.name]
        values: npt.NDArray[np.generic] | None = counters.value(spec)
        if spec.role == "token_ids":
            if tokens.size != math.prod(shape):
                raise UsageError(
                    f"there are tokens of shape {tokens.shape}, and input `{spec.name}` takes"
                    f" {shape}"
                )
            values = tokens.reshape(shape)
        elif spec.role == "attention_mask":
            values = _mask(shape, int(counters.starts[0]), tokens.shape[1])
        elif values is None:
            if spec.name.lower().endswith("mask"):
                raise UsageError(
                    f"input `{spec.name}` is a mask of {spec.dtype.name}, and nothing says"
                    " which of its numbers hide a row",
                    help="bench a model whose mask has integers or booleans, or none",
                )
            number = self._plan.inputs.index(spec)
            return moderate(np.random.default_rng([self._seed, number]), spec.dtype, shape)
        return np.ascontiguousarray(values, spec.dtype.numpy())


def _mask(shape: tuple[int, ...], before: int, length: int) -> npt.NDArray[np.int64]:
    """Return ones for the rows in use, and for each query, where these have an axis, up to its own.

    The last axis counts rows: those in use, or those of a fixed cache.
    """
    rows = np.arange(shape[-1]) if shape else np.zeros((), np.int64)
    seen = rows < before + length
    if len(shape) > 2 and shape[-2] == length:
        seen = rows <= before + np.arange(length)[:, None]
    return np.broadcast_to(seen, shape).astype(np.int64)
