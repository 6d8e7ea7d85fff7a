"""Sizes of inputs that a model looks at through windows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx_ir as ir

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.walk import nodes, tensors, upwards
from onnx_kvtool.model_io.external_data import array
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import given_input, given_integer, given_integers
from onnx_kvtool.verification.inputs.cases import Sizes
from onnx_kvtool.verification.inputs.roles import is_default, small_numbers

# Sizes that may suit inputs that a model looks at through windows, as images and sound.


_COMMON = {
    1: (
        400, 800, 1000, 1600, 2000, 3000, 3200, 4000, 8000, 16_000, 32_000, 48_000, 80_000, 160_000,
    ),
    2: (
        32, 64, 96, 112, 128, 160, 192, 224, 256, 288, 320, 384, 448, 480, 512, 518, 640, 800, 1024,
    ),
}  # fmt: skip
"""Sizes of pictures, and numbers of samples and of frames, that models are made for, by the number
of axes."""

_MOST_STEPS = {1: 4096, 2: 112}
"""Steps of the first window along an axis, by the number of axes. Twice as many may take a hundred
times the memory, where each step attends to each."""

_MULTIPLES = range(1, 17)

_REMAINDERS = (0, 1, 2)
"""Tokens for the class and for distillation, which join those of the patches."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Facts of a model about the sizes of inputs of windowed operators.

    Attributes:
        channels: Sizes that the weights of a convolution fix, by the name of the dimension.
        extents: Names of the dimensions along which windows move, in order of appearance.
        strides: How many elements of an input one step is, at each depth; ascending, with 1.
        first: Size and stride of the first window that moves over an input.
        tables: Rows of what may be tables of positions, one for each token.
        numbers: Sizes that stand in the model, in its weights and in the shapes it makes.
    """

    channels: Sizes = field(default_factory=dict)
    extents: tuple[str, ...] = ()
    strides: tuple[int, ...] = (1,)
    first: tuple[int, int] = (1, 1)
    tables: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()

    def candidates(self) -> Iterator[Sizes]:
        """Yield sizes for the extents, no two alike, the most telling first.

        Axes of different sizes come first, two and three times the largest stride. Squares of as
        many patches as a table of positions has rows follow, then multiples of the stride, other
        rectangles of patches, common sizes, and the numbers in the model.
        """
        if not self.extents:
            return
        seen = []
        axes = min(len(self.extents), 2)
        largest = _MOST_STEPS[axes] * self.first[1] + self.first[0]
        for sizes in self._sizes(axes):
            if sizes not in seen and max(sizes.values()) <= largest:
                seen.append(sizes)
                yield sizes

    def _sizes(self, axes: int) -> Iterator[Sizes]:
        stride = self.strides[-1]
        if axes == 1:
            yield from (self._all(factor * stride) for factor in (5, 8, 16))
            yield from (self._all(self._reaching(rows)) for rows in self.tables)
        else:
            yield {name: (2 + i % 2) * stride for i, name in enumerate(self.extents)}
            yield self._all(2 * stride)
            yield from self._squares()
        yield from (self._all(factor * stride) for factor in _MULTIPLES)
        if axes == 2:
            yield from self._rectangles()
        steps = sorted({n * stride for n in self.numbers for stride in self.strides})
        yield from (self._all(size) for size in (*_COMMON[axes], *steps) if size >= stride)

    def _squares(self) -> Iterator[Sizes]:
        """Yield sizes whose patches, with some other tokens, are the rows of a table.

        A second table may hold the other tokens.
        """
        for other in (0, *self.tables):
            for rows in self.tables:
                for remainder in _REMAINDERS:
                    count = max(rows - other - remainder, 0)
                    if (root := math.isqrt(count)) ** 2 == count and root > 1:
                        yield self._all(self._reaching(root))

    def _rectangles(self) -> Iterator[Sizes]:
        for rows in self.tables:
            for remainder in _REMAINDERS:
                for one in range(math.isqrt(rows - remainder), 1, -1):
                    if (rows - remainder) % one == 0:
                        pair = self._reaching(one), self._reaching((rows - remainder) // one)
                        yield {name: pair[i % 2] for i, name in enumerate(self.extents)}
                        yield {name: pair[1 - i % 2] for i, name in enumerate(self.extents)}

    def _reaching(self, steps: int) -> int:
        """Return the size over which the first window makes so many steps."""
        window, stride = self.first
        return (steps - 1) * stride + window

    def _all(self, size: int) -> dict[str, int]:
        return dict.fromkeys(self.extents, size)


# What a model says of the sizes of inputs that it looks at through windows.


_MOST_VISITS = 100_000
_DEEPEST = 16
"""Nested calls; a function that calls itself has no end."""

_MOST_NUMBERS = 16
"""Elements of a tensor of integers that says sizes; a longer one holds something else."""

_LARGEST = 1 << 20
"""Of a number that may be a size."""

_MOST_TABLES = 16
"""Tables of positions that are looked at; a model has one or two."""


class _Seen(NamedTuple):
    """What a value has of an input: its axis at each of the value's own, and the stride so far.

    No axes where they are not known.
    """

    source: ir.Value
    axes: tuple[int | None, ...]
    stride: int


_Known = dict[ir.Value | None, _Seen]


class _Walk:
    """One pass over a model in topological order."""

    def __init__(self, model: ir.Model) -> None:
        self._functions = model.functions
        self._left = _MOST_VISITS
        self.channels: dict[str, int] = {}
        self.extents: dict[str, None] = {}
        self.strides = {1}
        self.first: tuple[int, int] | None = None

    def graph(self, graph: ir.Graph | ir.Function, seen: _Known, depth: int) -> None:
        for node in graph:
            self._left -= 1
            if self._left < 0:
                return
            found = [(i, seen[v]) for i, v in enumerate(node.inputs) if v in seen]
            if not found:
                continue
            function = self._functions.get(node.op_identifier())
            if function is not None and depth < _DEEPEST:
                self._call(node, function, seen, depth)
                continue
            # What was strided more is made to fit what was strided less: the keys of an attention,
            # the coarse picture that is enlarged.
            index, least = min(found, key=lambda pair: pair[1].stride)
            result = self._through(node, index, least)
            self.strides.add(result.stride)
            for value in node.outputs:
                seen[value] = result

    def _call(self, node: ir.Node, function: ir.Function, seen: _Known, depth: int) -> None:
        inside: _Known = {
            parameter: seen[argument]
            for parameter, argument in zip(function.inputs, node.inputs, strict=False)
            if argument in seen
        }
        self.graph(function, inside, depth + 1)
        for result, value in zip(function.outputs, node.outputs, strict=False):
            if result in inside:
                seen[value] = inside[result]

    def _through(self, node: ir.Node, index: int, seen: _Seen) -> _Seen:
        axes, op_type, kinds = seen.axes, node.op_type, traits(node)
        if Trait.CONVOLVES in kinds and index == 0:
            return self._convolved(node, seen)
        if is_default(node):
            if Trait.POOLS in kinds:
                self._windows(node, seen.source, axes)
                return seen._replace(stride=seen.stride * _stride(node))
            if op_type == "Transpose" and axes:
                order = _ints(node, "perm")
                is_order = sorted(order) == list(range(len(axes)))
                return seen._replace(axes=tuple(axes[i] for i in order) if is_order else ())
            if op_type == "Slice":
                numbers = () if (given := given_input(node, 4)) is None else small_numbers(given)
                steps = [number for number in numbers if isinstance(number, int)]
                return seen._replace(stride=seen.stride * max([1, *steps]))
            if kinds.any(Trait.KEEPS_AXES, Trait.BROADCASTS):
                return seen
        return seen._replace(axes=())

    def _convolved(self, node: ir.Node, seen: _Seen) -> _Seen:
        shape = _weights(node)
        axes = seen.axes if shape is not None and len(shape) == len(seen.axes) else ()
        if axes and shape is not None and axes[1] is not None:
            name, size = _name(seen.source, axes[1]), shape[1]
            if name is not None and isinstance(size, int):
                self.channels.setdefault(name, size * (given_integer(node, "group") or 1))
        self._windows(node, seen.source, axes)
        after = (axes[0], None, *axes[2:]) if axes else ()
        return _Seen(seen.source, after, seen.stride * _stride(node))

    def _windows(self, node: ir.Node, source: ir.Value, axes: tuple[int | None, ...]) -> None:
        """Note the axes of an input along which windows move; all but the first if none is known.

        Sound without an axis for channels gets one by Unsqueeze on the way.
        """
        moved = [axis for axis in axes[2:] if axis is not None]
        for axis in moved or range(1, len(source.shape or ())):
            name = _name(source, axis)
            if name is not None and name not in self.channels:
                self.extents.setdefault(name)
        self.first = self.first or (_window(node), _stride(node))


def windows_of(model: ir.Model, inputs: Sequence[ir.Value]) -> Windows:
    """Return what `model` says of the sizes of those `inputs` that convolutions and pools reach.

    Shapes of weights and small tensors of integers are looked at, weights are not read. A model
    without convolutions and pools has no extents, only numbers.
    """
    walk = _Walk(model)
    seen: _Known = {
        value: _Seen(value, tuple(range(len(value.shape))), 1)
        for value in inputs
        if value.shape is not None and value.dtype is not None and value.dtype.is_floating_point()
    }
    walk.graph(model.graph, seen, 0)
    extents = tuple(name for name in walk.extents if name not in walk.channels)
    tables, numbers = _tables(model), _numbers(model)
    strides = tuple(sorted(walk.strides))
    return Windows(walk.channels, extents, strides, walk.first or (1, 1), tables, numbers)


def _name(value: ir.Value, axis: int) -> str | None:
    """Return the name of a dimension of an input; None if it is a number."""
    dim = None if value.shape is None else value.shape[axis]
    return None if isinstance(dim, int | None) else dim.value or f"{value.name}[{axis}]"


def _stride(node: ir.Node) -> int:
    return max([1, *_ints(node, "strides")])


def _window(node: ir.Node) -> int:
    """Return the largest size of the window of a convolution or pool."""
    if sizes := _ints(node, "kernel_shape"):
        return max(sizes)
    return max([1, *(dim for dim in (_weights(node) or ())[2:] if isinstance(dim, int))])


def _weights(node: ir.Node) -> ir.Shape | None:
    """Return the shape of the filters of a convolution.

    They may be stored in another type, quantized or with fewer bits, and be converted first.
    """
    place = 3 if node.op_type == "QLinearConv" else 1
    weight = given_input(node, place)
    if weight is None:
        return None
    found = upwards(weight, lambda n: given_input(n, 0) if Trait.KEEPS_SHAPE in traits(n) else None)
    return next((value.shape for value, _ in found if value.shape is not None), None)


def _ints(node: ir.Node, name: str) -> Sequence[int]:
    """Return a list of integers; nothing for an attribute of another type, which is malformed."""
    return given_integers(node, name) or ()


def _tables(model: ir.Model) -> tuple[int, ...]:
    """Return the rows of weights of shape (1, rows, width) or (rows, width), the former first."""
    found: dict[int, None] = {}
    for rank in (3, 2):
        for value in model.graph.initializers.values():
            dims = () if value.const_value is None else value.const_value.shape.numpy()
            if len(dims) == rank and (rank == 2 or dims[0] == 1) and dims[-2] > 1:
                found[dims[-2]] = None
    return tuple(found)[:_MOST_TABLES]


def _numbers(model: ir.Model) -> tuple[int, ...]:
    """Return the sizes of weights, and what small tensors of integers hold."""
    found: set[int] = set()
    for _, tensor in tensors(model):
        dims = tensor.shape.numpy()
        if tensor.dtype.is_integer() and math.prod(dims) <= _MOST_NUMBERS:
            # Whoever runs a model whose data does not fit the shape meets the same.
            with suppress(KvtoolError):
                found.update(int(number) for number in array(tensor).reshape(-1))
        elif len(dims) > 1:
            found.update(dims)
    for _, _, node in nodes(model):
        if node.op_type == "Constant":
            found.update(_ints(node, "value_ints")[:_MOST_NUMBERS])
    return tuple(sorted(number for number in found if 1 < number <= _LARGEST))
