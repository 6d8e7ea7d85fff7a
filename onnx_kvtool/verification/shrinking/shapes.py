"""The sizes of every value of two models, tied together, and the choice of new ones."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

import onnx
from onnx import helper, numpy_helper, shape_inference

from onnx_kvtool.core.domains import DEFAULT_DOMAINS, canonical_domain
from onnx_kvtool.core.reporting import Shrunken
from onnx_kvtool.ops.schema import NEWEST
from onnx_kvtool.ops.traits import SIZE_TYPES, Trait, traits
from onnx_kvtool.verification.shrinking.drawn_weights import Skeleton, captured
from onnx_kvtool.verification.shrinking.equal_sizes import (
    Call,
    Item,
    Shapes,
    Size,
    Sizes,
    Unknown,
    carried,
    count_carriers,
    fixed,
    pin,
)
from onnx_kvtool.verification.shrinking.relations import SIZE_RULES, unknown

# The sizes of every value of one model, tied together by what its operators ask for.


_A = onnx.AttributeProto

LONGEST = 64
"""Elements of a constant that may hold sizes or axes."""


def sizes_of(skeleton: Skeleton, free: Set[str], tokens: Set[str]) -> Sizes:
    """Return the sizes of a model, tied by what its operators ask for.

    Sizes are pinned that have to stay: those of constants that are not `free`, symbolic ones, and
    those that some operator may depend on.

    `free` are weights that get other values, and constants where a part may do. `tokens` are inputs
    that hold token ids, so that the tables which they index may be shorter.
    """
    graph = skeleton.message.graph
    sizes = Sizes(tokens={*tokens})
    opsets = {entry.domain: entry.version for entry in skeleton.message.opset_import}
    inferred = _inferred(skeleton.message)
    symbols: dict[str, Size] = {}
    for value in graph.input:
        type_ = value.type.tensor_type
        sizes.shapes[value.name] = None
        if type_.HasField("shape"):  # those of one name are the same
            sizes.shapes[value.name] = [
                symbols.setdefault(dim.dim_param, fixed()) if dim.dim_param else Size(dim.dim_value)
                for dim in type_.shape.dim
            ]
    for tensor in graph.initializer:
        is_pinned = tensor.name not in free
        sizes.shapes[tensor.name] = [Size(size, is_pinned=is_pinned) for size in tensor.dims]
        _note(sizes, tensor.name, tensor)
    for sparse in graph.sparse_initializer:
        sizes.fresh(sparse.values.name, sparse.dims)
    for index, node in enumerate(graph.node):
        if node.op_type == "Constant" and node.domain in DEFAULT_DOMAINS:
            _constant(sizes, node, inferred)
        else:
            _node(Call(node, index, opsets.get(node.domain, NEWEST), sizes), inferred)
    # Tie sizes that are one number, and keep those that some node reads for anything else.
    readers = Counter(value.name for value in graph.output)
    for node in graph.node:
        readers.update(filter(None, node.input))
        readers.update(captured(node))
    count_carriers(graph.node, sizes, readers)
    first: dict[object, Size] = {}
    for link in sizes.numbers:
        # Nodes that share a constant share what it says.
        first.setdefault((link.place, link.element), link.size).join(link.size)
        if isinstance(link.place, str) and readers[link.place] != sizes.readers[link.place]:
            link.size.pin()
    return sizes


_Inferred = Mapping[str, Sequence[int]]


def _node(call: Call, inferred: _Inferred) -> None:
    node, sizes = call.node, call.sizes
    if (items := carried(call)) is not None:
        sizes.items[node.output[0]] = items
    try:
        outputs = SIZE_RULES.get((canonical_domain(node.domain), node.op_type), unknown)(call)
    except Unknown:
        pin(*call.shapes, *(sizes.shapes.get(name) for name in captured(node)))
        outputs = [None] * len(node.output)
    for name, shape in zip(node.output, outputs, strict=False):
        sizes.shapes[name] = shape
        if shape is None:  # a size that stays, where a rule knows no rank but inference does
            sizes.fresh(name, inferred.get(name))
    if traits(node).any(Trait.VIEW, Trait.CASTS) and call.is_token(0):
        sizes.tokens.update(node.output)


def _constant(sizes: Sizes, node: onnx.NodeProto, inferred: _Inferred) -> None:
    (name,) = node.output
    for attribute in node.attribute:
        if attribute.type == _A.TENSOR:
            sizes.fresh(name, attribute.t.dims)
            _note(sizes, name, attribute.t)
        elif attribute.type in (_A.INTS, _A.INT):
            is_list = attribute.type == _A.INTS
            numbers = [*attribute.ints] if is_list else [attribute.i]
            _hold(sizes, name, numbers)
            sizes.fresh(name, [len(numbers)] if is_list else [])
        else:
            sizes.fresh(name, inferred.get(name))


def _note(sizes: Sizes, name: str, tensor: onnx.TensorProto) -> None:
    """Remember a constant that may hold sizes or axes."""
    if tensor.data_type not in SIZE_TYPES or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return
    if math.prod(tensor.dims) <= LONGEST:
        _hold(sizes, name, numpy_helper.to_array(tensor).ravel().tolist())


def _hold(sizes: Sizes, name: str, numbers: list[int]) -> None:
    sizes.integers[name] = numbers
    sizes.items[name] = [Item(n, (name, element)) for element, n in enumerate(numbers)]


def _inferred(message: onnx.ModelProto) -> dict[str, list[int]]:
    """Return the shapes that onnx infers; none at all for a model that it cannot work on."""
    try:
        inferred = shape_inference.infer_shapes(message)
    except (shape_inference.InferenceError, RuntimeError, ValueError):
        return {}
    return {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in inferred.graph.value_info
        if value.type.tensor_type.HasField("shape")
    }


# New sizes for the dimensions of two models, and the numbers that follow from them.


_FIRST, _STEP = 24, 8
"""New sizes: small, each another one, and multiples of what kernels like."""

LEAST = 2
"""A size up to this one is never changed."""

_SMALL = 64
"""A size up to this one is changed only if it is one of heads, of blocks or of a cache."""


class Choice:
    """A new size for each size of a weight or an input of some models that may have another one."""

    def __init__(self, models: Iterable[Shapes]) -> None:
        self._new: dict[Size, int] = {}
        fresh, few = itertools.count(_FIRST, _STEP), itertools.cycle((3, 2))
        shapes = (shape or () for model in models for shape in model.values())
        for atom in (atom for shape in shapes for size in shape for atom in size.atoms()):
            number = atom.number
            if atom.is_pinned or number <= LEAST or atom in self._new:
                continue
            is_few = atom.is_part or atom.is_indexed or bool(atom.what)
            if number <= _SMALL and not is_few:
                continue
            new = next(few if is_few and atom.what != "tokens" else fresh)
            if new < number:
                self._new[atom] = new

    def parts(self, size: Size) -> list[tuple[int, int]]:
        """Return the old and the new size of each part."""
        atoms = size.atoms()
        return [(a.number, self._new.get(a, a.number)) for a in atoms]

    def of(self, size: Size) -> int:
        """Return the new size; 0 for a symbolic one."""
        return math.prod(new for _, new in self.parts(size))

    def shrunken(self) -> tuple[Shrunken, ...]:
        """Return what was made smaller."""
        return tuple(
            Shrunken(size.what or "widths", size.number, new) for size, new in self._new.items()
        )

    def write(self, message: onnx.ModelProto, sizes: Sizes) -> None:
        """Write new sizes where they stand as numbers: in inputs, attributes and constants."""
        for value in (*message.graph.input, *message.graph.output):
            shape = sizes.shapes.get(value.name)
            dims = value.type.tensor_type.shape.dim
            if shape is not None and len(shape) == len(dims):
                for dim, size in zip(dims, shape, strict=True):
                    if dim.HasField("dim_value") and (new := self.of(size)):
                        dim.dim_value = new
        holders: dict[object, onnx.TensorProto | onnx.AttributeProto] = {
            tensor.name: tensor for tensor in message.graph.initializer
        }
        for index, node in enumerate(message.graph.node):
            for given in node.attribute:
                holders[index, given.name] = given
                if node.op_type == "Constant":
                    holders[node.output[0]] = given.t if given.HasField("t") else given
        for link in sizes.numbers:
            new, holder = self.of(link.size), holders[link.place]
            if new == link.size.root().number:
                continue
            if isinstance(holder, onnx.TensorProto):
                values = numpy_helper.to_array(holder).copy()
                values.reshape(-1)[link.element] = new
                holder.CopyFrom(numpy_helper.from_array(values, holder.name))
            elif holder.type == _A.INTS:
                holder.ints[link.element] = new
            else:
                holder.i = new
        for index, size in sizes.scales.items():
            if self.of(size) != (number := size.root().number):
                # The scale follows from the size of the heads of the model, not of the copy.
                attribute = helper.make_attribute("scale", 1 / math.sqrt(number))
                message.graph.node[index].attribute.append(attribute)
