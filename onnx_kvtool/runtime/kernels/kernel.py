"""What a kernel is: one or more versions of one operator as a function over numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Dtype = np.dtype[Any]

Ints = tuple[int, ...]
"""A shape, axes, or the integers of an attribute."""

Value: TypeAlias = Any
"""The value of an edge: an `Array`; a list of values for a sequence; None for an absent input or
output, and for an empty optional. Strings are arrays of objects. Types that numpy lacks are those
of ml_dtypes; each element takes at least one byte."""

Values = Sequence[Value]
"""The inputs or outputs of a node in order."""

Named = Mapping[str, Value]
"""Values by the names of edges or attributes."""

KernelFunction = Callable[..., Value]
"""Inputs positional, under the schema's names; attributes by keyword, under theirs, with the
schema's defaults bound (None where it has none), tensors as arrays and graphs as `Body`. An
attribute that became an input is one parameter, which takes both. The result is the only output, or
a tuple of all, shorter where trailing ones do not exist; a number of numpy is as good as an array
without axes. The caller has checked the inputs' types by the schema. Never
changes an input. The kernel of an operator that updates its input
(`Trait.UPDATES`) takes the keyword `in_place`: the buffer of its first input may become the first
output then, as nothing else reads it. numpy's warnings are off. A function that declares the
keyword `context` gets a `Context`."""

Lines = Mapping[str, Mapping[int, KernelFunction]]
"""Kernels by operator, and by the first version that each serves; it serves the later ones up to
the next."""


class Body(Protocol):
    """The body of If, Loop or Scan, ready to run; values of the outer scope are bound."""

    @property
    def outputs(self) -> Sequence[object]:
        """Its outputs; only their number matters."""
        ...

    def empty(self, position: int) -> Array:
        """Return an array of the declared type and shape of an output; unknown sizes are 0.

        Raises:
            KernelError: If the output has no declared element type or rank.
        """
        ...

    def __call__(self, *inputs: Value, given_up: Collection[int] = ()) -> Values:
        """Run the body once on its inputs in order and return its outputs in order.

        The caller will not read the inputs at the positions `given_up` again: an output may lie in
        the buffer of one.
        """
        ...


class Context(NamedTuple):
    """Facts about a node that few kernels need beside inputs and attributes.

    Attributes:
        opset: Version of the operator's domain in the scope of the node.
        outputs: Number of outputs of the node, including absent ones before the last.
        warn: Called with one sentence if the specification leaves a result undefined and the kernel
            chooses one.
    """

    opset: int
    outputs: int
    warn: Callable[[str], None]
