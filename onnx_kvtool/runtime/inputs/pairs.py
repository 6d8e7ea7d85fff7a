"""The caches of a model: each input with the output that replaces it in the next step."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Literal

import onnx_ir as ir

from onnx_kvtool.analysis.caches import Cache, CacheKind
from onnx_kvtool.analysis.caches import find_caches as cache_table
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.ops.tensor_scatter import Mode

__all__ = ["CachePair", "Caches", "find_caches"]


@dataclass(frozen=True, slots=True)
class CachePair:
    """A cache that goes in as `past` and comes out as `present`.

    Attributes:
        past: Name of the graph input.
        present: Name of the graph output.
        kind: `fixed` keeps its size, `growing` gains the new rows, `named` is known by its name
            only.
        axis: The sequence axis counted from the front; None when it is not known.
        mode: Mode of the TensorScatter that writes it; None for other caches.
        operator: What updates it; None when it is known by its name only.
    """

    past: str
    present: str
    kind: Literal["fixed", "growing", "named"]
    axis: int | None = None
    mode: Mode | None = None
    operator: CacheKind | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches of a model.

    Attributes:
        pairs: All of them, in the order of the model's inputs.
        scatters: Those that TensorScatter writes, by the identity of that node. Good only as
            long as the model is not edited.
    """

    pairs: tuple[CachePair, ...]
    scatters: dict[int, CachePair]


def find_caches(model: ir.Model, inputs: Sequence[ir.Value]) -> Caches:
    """Find the caches of `model` among `inputs`.

    A cache is an input of which the cache table (`analysis.caches`) says that its updated form is
    an output; or an input and an output whose names exporters use for the two ends of a cache, for
    models in which neither operators nor their arrangement tell.
    """
    found: dict[str, CachePair] = {}
    scatters: dict[int, CachePair] = {}
    inner = {value.name: value for value in inputs}
    outputs = {output.name: output for output in model.graph.outputs if output.name}
    free = set(outputs)
    for cache in _table(model):
        past, present = cache.past, cache.present
        if past is None or present not in free or past not in inner or past in found:
            continue
        free.remove(present)
        # An operator that may share one buffer need not, where the two ends are declared apart.
        grows = cache.is_growing or _changing_axis(inner[past], outputs[present]) is not None
        kind: Literal["fixed", "growing"] = "growing" if grows else "fixed"
        pair = found[past] = CachePair(past, present, kind, cache.axis, cache.mode, cache.kind)
        if cache.kind == "tensor_scatter":
            scatters[id(cache.node)] = pair
    for value in inputs:
        if value.name in found:
            continue
        present = _present_name(value.name or "", free)
        if present is not None and _are_alike(value, outputs[present]):
            axis = _changing_axis(value, outputs[present])
            free.remove(present)
            found[value.name or ""] = CachePair(value.name or "", present, "named", axis)
    return Caches(tuple(found[v.name] for v in inputs if v.name in found), scatters)


def _table(model: ir.Model) -> tuple[Cache, ...]:
    try:
        return cache_table(model, prove=False)
    except KvtoolError:
        return ()  # calls that unfold without end


_NAMED_ENDS: tuple[tuple[str, str], ...] = (
    (r"past_key_values\.(\d+)\.(key|value)", r"present.\1.\2"),
    (r"past(.*)", r"present\1"),
    (r"(.*)", r"updated_\1"),
    (r"(.*)", r"new_\1"),
    (r"(.*)_in", r"\1_out"),
    (r"(.*)", r"\1_out"),
)
"""Names that exporters give to the two ends of a cache."""


def _present_name(past: str, outputs: Set[str]) -> str | None:
    for pattern, replacement in _NAMED_ENDS:
        match = re.fullmatch(pattern, past, flags=re.DOTALL)
        if match is not None and (present := match.expand(replacement)) in outputs:
            return present
    return None


def _are_alike(past: ir.Value, present: ir.Value) -> bool:
    """Return whether nothing that is known forbids `present` to become `past`."""
    if past.dtype != present.dtype and None not in (past.dtype, present.dtype):
        return False
    return past.shape is None or present.shape is None or len(past.shape) == len(present.shape)


def _changing_axis(past: ir.Value, present: ir.Value) -> int | None:
    """Return the axis, not the batch, in which a growing cache changes; None if it is unclear."""
    if past.shape is None or present.shape is None:
        return None
    pairs = list(enumerate(zip(past.shape, present.shape, strict=True)))
    axes = [axis for axis, (a, b) in pairs if axis > 0 and a != b]
    return axes[0] if len(axes) == 1 else None
