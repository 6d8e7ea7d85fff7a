"""The inputs and outputs of a model, and which of them are caches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_kvtool.analysis.caches import CacheKind
from onnx_kvtool.analysis.caches import find_caches as cache_table
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.words import enumerated
from onnx_kvtool.ops.contrib import kept_window
from onnx_kvtool.ops.operators import Mode

# What a model looks like from outside: its inputs and outputs.


@dataclass(frozen=True, slots=True)
class Port:
    """One graph input or output.

    Attributes:
        name: Name.
        type: Its type as text, without the shape; None when the model does not say.
        shape: Its dimensions: numbers, or names and expressions as in the file, None for one that
            has neither; None as a whole when the rank is unknown.
    """

    name: str
    type: str | None
    shape: tuple[int | str | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Interface:
    """The inputs that are not initializers, and the outputs, in order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def interface_of(model: ir.Model) -> Interface:
    """Return the interface of `model`."""
    initializers = model.graph.initializers
    fed = [value for value in model.graph.inputs if value.name not in initializers]
    return Interface(_ports(fed), _ports(model.graph.outputs))


def narrowed(interface: Interface, expected: Interface, wide: ir.DataType) -> Interface:
    """Return an interface with the types of another one where that has bfloat16 for `wide`.

    Ports are matched by their position.
    """

    def matched(ports: tuple[Port, ...], others: tuple[Port, ...]) -> tuple[Port, ...]:
        types = [other.type for other in others] + [None] * len(ports)
        return tuple(
            replace(port, type=type_)
            if type_ is not None and type_.replace("BFLOAT16", wide.name) == port.type
            else port
            for port, type_ in zip(ports, types, strict=False)
        )

    return Interface(
        matched(interface.inputs, expected.inputs), matched(interface.outputs, expected.outputs)
    )


def interface_difference(expected: Interface, actual: Interface) -> str | None:
    """Return how two interfaces differ in names, order, types or ranks; None if they do not.

    What one of them does not say does not differ.
    """
    for kind, a, b in (
        ("input", expected.inputs, actual.inputs),
        ("output", expected.outputs, actual.outputs),
    ):
        names_a, names_b = [port.name for port in a], [port.name for port in b]
        if names_a != names_b:
            return _names_differ(kind, names_a, names_b)
        for port, other in zip(a, b, strict=True):
            if None not in (port.type, other.type) and port.type != other.type:
                return f"{kind} `{port.name}` is of type {other.type}, expected {port.type}"
            known, given = port.shape, other.shape
            if known is not None and given is not None and len(known) != len(given):
                return f"{kind} `{port.name}` has rank {len(given)}, expected {len(known)}"
    return None


def _ports(values: Iterable[ir.Value]) -> tuple[Port, ...]:
    return tuple(
        Port(
            name=value.name or "",
            type=None if value.type is None else str(value.type),
            shape=None
            if value.shape is None
            else tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape),
        )
        for value in values
    )


def _names_differ(kind: str, expected: list[str], actual: list[str]) -> str:
    """Say which names differ; all of them where they are few, or stand in another order."""
    if max(len(expected), len(actual)) > _FEW:
        missing = [name for name in expected if name not in set(actual)]
        surplus = [name for name in actual if name not in set(expected)]
        parts = [f"does not have the {kind}s {enumerated(missing)}"] if missing else []
        parts += [f"has {enumerated(surplus)} beside those expected"] if surplus else []
        if parts:
            return f"the model {' and '.join(parts)}"
        for place, (name, wanted) in enumerate(zip(actual, expected, strict=False)):
            if name != wanted:
                return f"{kind} {place} is `{name}`, expected `{wanted}`"
    given, known = (enumerated(names, _FEW) or "none" for names in (actual, expected))
    return f"the {kind}s are {given}, expected {known}"


_FEW = 6


Integers = npt.NDArray[np.int64]


# The caches of a model: each input with the output that replaces it in the next step.


@dataclass(frozen=True, slots=True)
class CachePair:
    """A cache that goes in as `past` and comes out as `present`.

    Attributes:
        past: Name of the graph input.
        present: Name of the graph output.
        kind: `fixed` keeps its size, `growing` gains the new rows, `named` is known by its name
            only.
        axis: The sequence axis counted from the front; None when it is unknown.
        mode: Mode of the TensorScatter that writes it; None for other caches.
        operator: What updates it; None when it is known by its name only.
        window: Keys that a query sees, where its operator drops those before; else None.
    """

    past: str
    present: str
    kind: Literal["fixed", "growing", "named"]
    axis: int | None = None
    mode: Mode | None = None
    operator: CacheKind | None = field(default=None, compare=False)
    window: int | None = field(default=None, compare=False)

    def kept(self, tokens: Integers, rows: int) -> Integers:
        """Return how many of the rows of a cache with a window hold the last of so many tokens."""
        assert self.window is not None
        leaving = rows - self.window + 1
        return np.asarray(tokens - leaving * np.maximum(0, -(-(tokens - rows) // leaving)))


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches of a model.

    Attributes:
        pairs: All of them, in the order of the model's inputs.
        scatters: Those that TensorScatter writes, by that node. Good only as
            long as the model is not edited.
        sizes: Of names in their declared shapes, those that operators say: the size of heads.
    """

    pairs: tuple[CachePair, ...]
    scatters: dict[ir.Node, CachePair]
    sizes: dict[str, int]


def find_caches(model: ir.Model, inputs: Sequence[ir.Value]) -> Caches:
    """Find the caches of `model` among `inputs`.

    A cache is an input whose updated form is an output by the cache table (`analysis.caches`). If
    neither operators nor their arrangement tell, it is an input and an output with names that
    exporters use for the two ends of a cache.
    """
    found: dict[str, CachePair] = {}
    scatters: dict[ir.Node, CachePair] = {}
    sizes: dict[str, int] = {}
    inner = {value.name: value for value in inputs}
    outputs = {output.name: output for output in model.graph.outputs if output.name}
    free = set(outputs)
    try:
        table = cache_table(model, prove=False)
    except KvtoolError:
        table = ()  # calls that unfold without end
    for cache in table:
        past, present = cache.past, cache.present
        if past is None or present not in free or past not in inner or past in found:
            continue
        free.remove(present)
        # An operator that may share one buffer need not, where the two ends are declared apart.
        window = kept_window(cache.node)
        grows = cache.is_growing or _changing_axis(inner[past], outputs[present]) is not None
        kind: Literal["fixed", "growing"] = "growing" if grows and window is None else "fixed"
        how = (kind, cache.axis, cache.mode, cache.kind, window)
        pair = found[past] = CachePair(past, present, *how)
        for dim, size in zip(inner[past].shape or (), cache.shape or (), strict=False):
            if isinstance(size, int) and not isinstance(dim, int) and dim.value is not None:
                sizes[dim.value] = size
        if cache.kind == "tensor_scatter":
            scatters[cache.node] = pair
    for value in inputs:
        if value.name in found:
            continue
        present = _present_name(value.name or "", free)
        if present is None:
            continue
        other = outputs[present]
        # Nothing that is known forbids the one to become the other.
        is_typed = value.dtype == other.dtype or None in (value.dtype, other.dtype)
        shapes = [of.shape for of in (value, other) if of.shape is not None]
        if is_typed and len({*map(len, shapes)}) < 2:
            axis = _changing_axis(value, other)
            free.remove(present)
            found[value.name or ""] = CachePair(value.name or "", present, "named", axis)
    return Caches(tuple(found[v.name] for v in inputs if v.name in found), scatters, sizes)


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


def _changing_axis(past: ir.Value, present: ir.Value) -> int | None:
    """Return the axis, not the batch, that changes in a growing cache; None if it is unclear."""
    if past.shape is None or present.shape is None:
        return None
    pairs = list(enumerate(zip(past.shape, present.shape, strict=True)))
    axes = [axis for axis, (a, b) in pairs if axis > 0 and a != b]
    return axes[0] if len(axes) == 1 else None
