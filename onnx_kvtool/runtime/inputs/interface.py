"""What a model looks like from outside: its inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnx_kvtool.core.quantity import enumerated

__all__ = ["Interface", "Port", "interface_difference", "interface_of", "narrowed"]


@dataclass(frozen=True, slots=True)
class Port:
    """One graph input or output.

    Attributes:
        name: Its name.
        type: Its type as text, without the shape; None when the model does not say.
        rank: Its rank; None when the model does not say.
        shape: Its dimensions: numbers, or names and expressions as in the file, None for one that
            has neither; None as a whole when the rank is not known.
    """

    name: str
    type: str | None
    rank: int | None
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
            if None not in (port.rank, other.rank) and port.rank != other.rank:
                return f"{kind} `{port.name}` has rank {other.rank}, expected {port.rank}"
    return None


def _ports(values: Iterable[ir.Value]) -> tuple[Port, ...]:
    return tuple(
        Port(
            name=value.name or "",
            type=None if value.type is None else str(value.type),
            rank=None if value.shape is None else len(value.shape),
            shape=None if value.shape is None else tuple(map(_dim, value.shape)),
        )
        for value in values
    )


def _dim(dim: int | ir.SymbolicDim) -> int | str | None:
    return dim if isinstance(dim, int) else dim.value


def _names_differ(kind: str, expected: list[str], actual: list[str]) -> str:
    """Say which names differ; all of them where they are few, or stand in another order."""
    if max(len(expected), len(actual)) > _FEW:
        missing = [name for name in expected if name not in set(actual)]
        surplus = [name for name in actual if name not in set(expected)]
        parts = [f"lacks the {kind}s {enumerated(missing)}"] if missing else []
        parts += [f"has {enumerated(surplus)} beside those expected"] if surplus else []
        if parts:
            return f"the model {' and '.join(parts)}"
        for place, (name, wanted) in enumerate(zip(actual, expected, strict=False)):
            if name != wanted:
                return f"{kind} {place} is `{name}`, expected `{wanted}`"
    given, known = (enumerated(names, _FEW) or "none" for names in (actual, expected))
    return f"the {kind}s are {given}, expected {known}"


_FEW = 6
