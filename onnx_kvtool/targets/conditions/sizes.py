"""Conditions on sizes and elements: symbolic dimensions, constants, ranges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_kvtool.analysis.constants import const_tensor
from onnx_kvtool.core.walk import is_op, maker
from onnx_kvtool.ops.operators import Attention
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.ops.traits import SIZE_TYPES, Trait, traits
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import Dim, Dims, dims_of, names_in, normal

if TYPE_CHECKING:
    from onnx_kvtool.analysis.constants import ConstantFolder
    from onnx_kvtool.targets.release import Limit


@dataclass(frozen=True, slots=True)
class Asked:
    """A node and a limit that may apply to it.

    Attributes:
        view: The node by its schema.
        limit: The limit.
        folder: Knows the values of small integer constants.
    """

    view: NodeView
    limit: Limit
    folder: ConstantFolder

    @property
    def node(self) -> ir.Node:
        """The node."""
        return self.view.node

    @property
    def operand(self) -> ir.Value | None:
        """The input that the limit names; None also where this version has an attribute."""
        assert self.limit.operand is not None
        return self.view.find(self.limit.operand)

    @property
    def dims(self) -> Dims | None:
        """The shape of the first input."""
        return dims_of(self.node.inputs[0])

    @property
    def dtype(self) -> str | None:
        """The element type that the first input and the first output have; None if unknown."""
        for value in (self.node.inputs[0], self.node.outputs[0]):
            if value is not None and value.dtype is not None:
                return value.dtype.name.lower()
        return None

    @property
    def result(self) -> str | None:
        """The element type of the first output; None if unknown."""
        dtype = self.node.outputs[0].dtype
        return None if dtype is None else dtype.name.lower()

    @property
    def attention(self) -> Attention:
        """The node, an Attention."""
        return Attention(self.node, self.view.opset)

    @property
    def is_spared(self) -> bool:
        """Whether the limit spares its element type."""
        return self.dtype in self.limit.types

    def has(self, attribute: str) -> bool:
        """Return whether the operator has an attribute of that name in this version."""
        return attribute in self.view.facts.attributes

    def listed(self, name: str) -> list[int] | None:
        """Return integers as `listed` does."""
        return listed(self.view, name, self.folder)


def listed(view: NodeView, name: str, folder: ConstantFolder) -> list[int] | None:
    """Return integers that are an attribute in some versions and an input in others.

    Empty where neither is given; None where the input is no constant.
    """
    if name in view.facts.attributes:
        return view.integers(name)
    value = view.find(name)
    return [] if value is None else folder.listed(value)


# These conditions are for runtimes that compute shapes before a run, with symbolic dimensions.


LONG_WAY = 100
"""Nodes from a shape back to what it is computed from."""


def shape_of_values(asked: Asked) -> bool:
    """Whether the operand of the limit depends on more than shapes and constants, or may do so."""
    return _follows_from_elements(asked.operand)


def is_constant(value: ir.Value) -> bool:
    """Return whether the file fixes a value as an initializer."""
    return value.const_value is not None and not value.is_graph_input()


def _follows_from_elements(value: ir.Value | None, others: Collection[str] = ()) -> bool:
    """Return whether a value depends on more than shapes and constants, or on nodes of `others`.

    True if the search takes more than `LONG_WAY` nodes.
    """
    before, steps = [value], 0
    while before and steps < LONG_WAY:
        found = before.pop()
        if found is None or is_constant(found):
            continue
        producer = found.producer()
        if producer is None or producer.op_type in others:
            return True
        if Trait.GIVES_SIZES not in traits(producer):
            before += producer.inputs
        steps += 1
    return bool(before)


def size_and_elements(asked: Asked) -> bool:
    """Whether one operand is an unknown size, and the other one depends on elements."""
    if not any(v is not None and v.dtype in SIZE_TYPES for v in asked.node.inputs):
        return False
    kinds = {_kind(value, asked.folder) for value in asked.node.inputs[:2]}
    return kinds == {"size", "elements"}


def _kind(value: ir.Value | None, folder: ConstantFolder) -> str:
    """Return whether a value is a known number, an unknown size, or depends on elements."""
    if value is None or is_constant(value) or folder.integers(value) is not None:
        return "number"
    return "elements" if _follows_from_elements(value, _COUNTS) else "size"


_COUNTS = frozenset({"Range", "CumSum", "NonZero", "ConstantOfShape", "Expand", "Tile"})
"""Operators whose results count as elements, although they are made from sizes."""


def sizes_as_indices(asked: Asked) -> bool:
    """Whether the indices are computed from unknown sizes, but not by Range."""
    value = asked.operand
    if value is None or asked.folder.integers(value) is not None:
        return False
    before, steps = [value], 0
    while before and steps < LONG_WAY:
        node, steps = before.pop().producer(), steps + 1
        if node is None or (node.op_type == "Cast" and node.outputs[0].dtype != ir.DataType.INT64):
            continue
        if Trait.GIVES_SIZES in traits(node):
            return True
        first = 1 if node.op_type == "Where" else 0
        last = len(node.inputs) if _carries(node) else first + (node.op_type in _OF_FIRST)
        before += [one for one in node.inputs[first:last] if one is not None]
    return bool(before)


def int64_output(asked: Asked) -> bool:
    """Whether its int64 result reaches an output of the model, unchanged or after arithmetic.

    An input of a Scan counts as an output: the body declares its type.
    """
    before, seen = [asked.node.outputs[0]], {asked.node.outputs[0]}
    while before and len(seen) < LONG_WAY:
        value = before.pop()
        if value.dtype is not None and value.dtype.name != "INT64":
            continue
        if value.is_graph_output():
            return True
        for user, index in value.uses():
            if is_op(user, "Scan"):
                return True
            if is_standard(user) and (index == 0 or _carries(user)):
                new = set(user.outputs[:1]) - seen
                seen |= new
                before += new
    return False


def _carries(node: ir.Node) -> bool:
    """Return whether the result may contain elements of operands other than the first."""
    return node.op_type == "Concat" or Trait.ELEMENTWISE in traits(node)


def negative_indices(asked: Asked) -> bool:
    """Whether indices in the second input may be negative."""
    return not _is_from_the_front(asked.node.inputs[1], asked.folder, LONG_WAY)


def negative_indices_open(asked: Asked) -> bool:
    """Whether indices may be negative, and a dimension that they index is not fixed."""
    view = asked.view
    data, indices = dims_of(view.required("data")), dims_of(view.required("indices"))
    batch = view.number("batch_dims")
    length = indices[-1] if indices else None
    if data is not None and isinstance(length, int):
        sizes = data[batch : batch + length]
        if len(sizes) == length and all(isinstance(size, int) for size in sizes):
            return False
    return negative_indices(asked)


def _is_from_the_front(value: ir.Value | None, folder: ConstantFolder, steps: int) -> bool:
    """Return whether `steps` nodes upwards prove that no element is negative."""
    if value is None or steps == 0:
        return False
    numbers = folder.integers(value)
    if numbers is not None:
        return bool((numbers >= 0).all())
    if value.const_value is not None and is_constant(value):
        return bool((value.const_value.numpy() >= 0).all())
    node = value.producer()
    if node is None or not is_standard(node):
        return False
    if node.op_type in _NEVER_NEGATIVE:
        return True
    if node.op_type == "Where" and _turns(node):
        return True
    first = 1 if node.op_type == "Where" else 0
    last = len(node.inputs) if node.op_type in _OF_ALL else first + 1
    if node.op_type not in (*_OF_ALL, *_OF_FIRST):
        return False
    return all(_is_from_the_front(one, folder, steps - 1) for one in node.inputs[first:last])


_NEVER_NEGATIVE = frozenset({"Abs", "ArgMax", "ArgMin", "NonZero", "Shape", "Size"})


_OF_ALL = frozenset({"Add", "Concat", "Div", "Max", "Min", "Mod", "Mul", "Range", "Where"})
"""Operators with no negative result if no operand has a negative element."""


_OF_FIRST = frozenset(
    {
        *("Cast", "CumSum", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice"),
        *("Squeeze", "Tile", "Transpose", "Unsqueeze"),
    }
)
"""Operators with no negative result if the first operand has no negative element."""


def _turns(node: ir.Node) -> bool:
    """Return whether a Where adds a size to negative indices, as exporters write it."""
    condition, _, kept = node.inputs[:3]
    less = maker(condition, "Less")
    return less is not None and less.inputs[0] is kept


def nonzero_zero_point(asked: Asked) -> bool:
    """Whether the zero point that the limit names is not a constant 0."""
    value = asked.operand
    if value is None:
        return False
    tensor = None if value.is_graph_input() else const_tensor(value)
    return tensor is None or bool(tensor.numpy().any())


# These conditions are for runtimes that compare symbolic dimensions by their text. A value without
# a shape passes: the shapes of a finished model are inferred.


_TO_THE_END = (1 << 31) - 1
"""A bound of Slice that no size reaches, as exporters write it."""

Pair = tuple[Dim, Dim]


def size_of(dims: Dims, axis: int) -> Dim:
    """Return the size of an axis; None if it is unknown, or there is no such axis."""
    return dims[axis] if -len(dims) <= axis < len(dims) else None


def reshape_not_evident(asked: Asked) -> bool:
    """Whether the text of the sizes does not show that a Reshape keeps the number of elements.

    That is so if -1 stands for the rest of a sum, if sizes have no common divisor with the known
    ones, or if sizes have other names than those of the operand.
    """
    dims = asked.dims
    sizes = None if dims is None else _asked(asked)
    if dims is None or sizes is None or all(isinstance(dim, int) for dim in dims):
        return False
    copied, wanted, is_open = sizes
    rest = [dim for axis, dim in enumerate(dims) if axis not in copied]
    known, number = (math.prod(d for d in ones if isinstance(d, int)) for ones in (rest, wanted))
    if is_open and None in rest:
        return wanted != [1] * len(wanted)
    if None in rest or None in wanted:
        return True
    given, named = (
        Counter(normal(d) for d in ones if isinstance(d, str)) for ones in (rest, wanted)
    )
    if not is_open:
        return _product(rest) != _product(wanted)
    left = given - named
    if named - given or (left and known % number != 0):
        return True
    if any(len(names_in(dim)) > 1 for dim in named):
        return bool(left)
    return bool(named) and any(mark in str(dim) for dim in left for mark in "/(%*")


def _asked(asked: Asked) -> tuple[set[int], list[Dim], bool] | None:
    """Return which axes a Reshape copies, the other sizes, and whether one of them is -1.

    None if both the shape and the result are unknown.
    """
    if asked.has("shape"):
        return None
    shape, given = asked.folder.partial(asked.node.inputs[1]), dims_of(asked.node.outputs[0])
    if shape is None and given is None:
        return None
    rank = len(given or ()) if shape is None else shape.numbers.size
    if given is not None and len(given) != rank:
        return None
    numbers: list[int | None] = [None] * rank
    if shape is not None:
        pairs = zip(shape.numbers.ravel(), shape.known.ravel(), strict=True)
        numbers = [int(size) if is_known else None for size, is_known in pairs]
    literal = asked.view.number("allowzero") == 1
    copied = {axis for axis, size in enumerate(numbers) if size == 0 and not literal}
    wanted = [
        (None if given is None else given[axis]) if size is None else size
        for axis, size in enumerate(numbers)
        if axis not in copied and size != -1
    ]
    return copied, wanted, -1 in numbers


def _product(dims: Sequence[Dim]) -> int | str:
    return normal(" * ".join(f"({dim})" for dim in dims) or "1")


def unknown_flatten(asked: Asked) -> bool:
    """Whether both sizes of the result are unknown, and neither is a size of the operand."""
    dims = asked.dims
    if dims is None:
        return False
    axis = asked.view.integer("axis")
    axis += len(dims) if axis < 0 else 0
    sides = dims[:axis], dims[axis:]
    return axis != 1 and not any(all(isinstance(dim, int) for dim in side) for side in sides)


def different_sizes(asked: Asked) -> bool:
    """Whether sizes that must be equal are neither the same number nor the same name."""
    one, other = (dims_of(value) or () for value in (*asked.node.inputs, None, None)[:2])
    return any(
        a is not None and b is not None and differ(a, b)
        for a, b in _PAIRS[asked.node.op_type](asked.view, one, other)
    )


def differ(one: int | str, other: int | str) -> bool:
    """Return whether two sizes are neither the same number nor the same text."""
    a, b = (normal(dim) if isinstance(dim, str) else dim for dim in (one, other))
    return a != b


def _of_concat(view: NodeView, one: Dims, other: Dims) -> Iterator[Pair]:
    axis = view.integer("axis")
    shapes = [dims for value in view.node.inputs if (dims := dims_of(value)) is not None]
    for dims in shapes[1:]:
        if len(dims) == len(shapes[0]):
            pairs = enumerate(zip(shapes[0], dims, strict=True))
            yield from (pair for at, pair in pairs if at != axis % len(dims))


def _of_scatter_elements(view: NodeView, data: Dims, sizes: Dims) -> Iterator[Pair]:
    """Yield the sizes of indices and updates, and names that an Expand of the indices replaced.

    Each of the two may be 1, and only a run shows which.
    """
    updates = dims_of(view.node.inputs[2]) or ()
    yield from zip(sizes, updates, strict=False)
    if (expand := maker(view.node.inputs[1], "Expand")) is not None:
        given = dims_of(expand.inputs[0]) or ()
        pairs = zip(reversed(given), reversed(updates), strict=False)
        yield from (pair for pair in pairs if all(isinstance(dim, str) for dim in pair))


def _of_channels(view: NodeView, data: Dims, weight: Dims) -> Iterator[Pair]:
    """Yield the channels of an image and those of its weights or scale."""
    if len(data) < 2 or not weight:
        return
    channels = weight[0]
    if view.node.op_type == "Conv":
        inner = size_of(weight, 1)
        channels = inner * view.integer("group") if isinstance(inner, int) else None
    yield data[1], channels


def _of_gemm(view: NodeView, one: Dims, other: Dims) -> Iterator[Pair]:
    if len(one) == len(other) == 2:
        a, b = view.integer("transA") != 0, view.integer("transB") != 0
        yield one[0 if a else 1], other[1 if b else 0]


def _of_last(view: NodeView, one: Dims, other: Dims) -> Iterator[Pair]:
    """Yield the sizes that a scale or slope is broadcast over."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return (pair for pair in pairs if 1 not in pair)


_PAIRS: Mapping[str, Callable[[NodeView, Dims, Dims], Iterator[Pair]]] = {
    "BatchNormalization": _of_channels,
    "Concat": _of_concat,
    "Conv": _of_channels,
    "ConvTranspose": _of_channels,
    "Gemm": _of_gemm,
    "InstanceNormalization": _of_channels,
    "LayerNormalization": _of_last,
    "MatMul": lambda view, one, other: _of_last(view, one[:-2], other[:-2]),  # the batches
    "PRelu": _of_last,
    "ScatterElements": _of_scatter_elements,
}
"""By operator: yields the pairs of sizes that must be equal."""


def bound_may_exceed_size(asked: Asked) -> bool:
    """Whether a Slice has a fixed bound in a dimension that may be shorter."""
    dims, axes = asked.dims, asked.listed("axes")
    if dims is None or axes is None or asked.has("starts"):
        return False
    is_open = [not isinstance(size_of(dims, axis), int) for axis in axes or range(len(dims))]
    bounds = (asked.folder.partial(asked.view.input(name)) for name in ("starts", "ends"))
    return any(
        known and is_unknown and 1 < abs(int(number)) < _TO_THE_END
        for bound in bounds
        if bound is not None
        for number, known, is_unknown in zip(bound.numbers, bound.known, is_open, strict=False)
    )
