"""The sizes of every value of one model, tied together by what its operators ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper, shape_inference

from onnx_kvtool.core.domains import DEFAULT_DOMAINS, canonical_domain
from onnx_kvtool.ops.schema import NEWEST
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.runtime.verification.shrinking.call import Call, Item, Links
from onnx_kvtool.runtime.verification.shrinking.rules import SIZE_RULES
from onnx_kvtool.runtime.verification.shrinking.sizes import Shape, Size, bind, pin
from onnx_kvtool.runtime.verification.shrinking.skeleton import Skeleton
from onnx_kvtool.runtime.verification.shrinking.spine import captured
from onnx_kvtool.runtime.verification.shrinking.vectors import carried, count_carriers

__all__ = ["LONGEST", "Shapes", "Sizes", "sizes_of"]

_A = onnx.AttributeProto

LONGEST = 64
"""Elements of a constant that may hold sizes or axes."""

Shapes = dict[str, Shape | None]


@dataclass(slots=True)
class Sizes:
    """The sizes of one model.

    Attributes:
        shapes: The sizes of every value of the main graph by name; None for an unknown rank.
        links: Numbers that are sizes, and tables that index them.
    """

    shapes: Shapes
    links: Links


def sizes_of(skeleton: Skeleton, free: Set[str], tokens: Set[str]) -> Sizes:
    """Return the sizes of a model, tied by what its operators ask for.

    Sizes are pinned that have to stay: those of constants that are not `free`, symbolic ones, and
    those that some operator may depend on.

    Args:
        skeleton: The model.
        free: Weights that get other values, and constants of which a part may do.
        tokens: Inputs that hold token ids, so that the tables which they index may be shorter.
    """
    walk = _Walk(skeleton, free, tokens)
    return Sizes(walk.shapes, walk.links)


class _Walk:
    def __init__(self, skeleton: Skeleton, free: Set[str], tokens: Set[str]) -> None:
        graph = skeleton.message.graph
        self.links = Links()
        self.shapes: Shapes = {}
        self._tokens = set(tokens)
        self._opsets = {o.domain: o.version for o in skeleton.message.opset_import}
        self._integers: dict[str, list[int]] = {}
        self._items: dict[str, list[Item]] = {}
        self._symbols: dict[str, Size] = {}
        self._inferred = _inferred(skeleton.message)
        for value in graph.input:
            self.shapes[value.name] = self._declared(value)
        for tensor in graph.initializer:
            is_pinned = tensor.name not in free
            self.shapes[tensor.name] = [bind(size, is_pinned=is_pinned) for size in tensor.dims]
            self._note(tensor.name, tensor)
        for sparse in graph.sparse_initializer:
            self.shapes[sparse.values.name] = [bind(size) for size in sparse.dims]
        for index, node in enumerate(graph.node):
            self._node(node, index)
        self._check_readers(graph.node, [value.name for value in graph.output])

    def _check_readers(self, nodes: Sequence[onnx.NodeProto], outputs: list[str]) -> None:
        """Tie sizes that are one number, and keep those that some node reads for anything else."""
        readers: Counter[str] = Counter(outputs)
        for node in nodes:
            readers.update(name for name in node.input if name)
            readers.update(captured(node))
        count_carriers(nodes, self._items, self.links, readers)
        first: dict[object, Size] = {}
        for link in self.links.numbers:
            # Nodes that share a constant share what it says.
            first.setdefault((link.place, link.element), link.size).join(link.size)
            known = self.links.readers
            if isinstance(link.place, str) and readers[link.place] != known.get(link.place, 0):
                link.size.pin()

    def _node(self, node: onnx.NodeProto, index: int) -> None:
        if node.op_type == "Constant" and node.domain in DEFAULT_DOMAINS:
            self._constant(node)
            return
        call = Call(
            node,
            [self.shapes.get(name) if name else None for name in node.input],
            [self._integers.get(name) for name in node.input],
            [self._items.get(name) for name in node.input],
            [name in self._tokens for name in node.input],
            self._opsets.get(node.domain, NEWEST),
            index,
            self.links,
        )
        if (items := carried(call)) is not None:
            self._items[node.output[0]] = items
        rule = SIZE_RULES.get((canonical_domain(node.domain), node.op_type))
        outputs = None if rule is None else rule(call)
        if outputs is None:
            pin(*call.shapes)
            pin(*(self.shapes.get(name) for name in captured(node)))
            outputs = [self._fresh(name) for name in node.output]
        for name, shape in zip(node.output, outputs, strict=False):
            # A size that stays, where a rule knows no rank but inference does.
            self.shapes[name] = self._fresh(name) if shape is None else shape
        is_copy = traits(node).any(Trait.VIEW, Trait.CASTS)
        if is_copy and node.input and node.input[0] in self._tokens:
            self._tokens.update(node.output)

    def _fresh(self, name: str) -> Shape | None:
        """Return pinned sizes in the rank that inference finds."""
        sizes = self._inferred.get(name)
        return None if sizes is None else [bind(size) for size in sizes]

    def _constant(self, node: onnx.NodeProto) -> None:
        (name,) = node.output
        for attribute in node.attribute:
            if attribute.type == _A.TENSOR:
                self.shapes[name] = [bind(size) for size in attribute.t.dims]
                self._note(name, attribute.t)
            elif attribute.type in (_A.INTS, _A.INT):
                numbers = list(attribute.ints) if attribute.type == _A.INTS else [attribute.i]
                self._hold(name, numbers)
                self.shapes[name] = [bind(len(numbers))] if attribute.type == _A.INTS else []
            else:
                self.shapes[name] = self._fresh(name)

    def _note(self, name: str, tensor: onnx.TensorProto) -> None:
        """Remember a constant that may hold sizes or axes."""
        is_integer = tensor.data_type in (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
        if not is_integer or tensor.data_location == onnx.TensorProto.EXTERNAL:
            return
        if int(np.prod(tensor.dims)) <= LONGEST:
            self._hold(name, [int(n) for n in numpy_helper.to_array(tensor).reshape(-1)])

    def _hold(self, name: str, numbers: list[int]) -> None:
        self._integers[name] = numbers
        self._items[name] = [Item(n, (name, element)) for element, n in enumerate(numbers)]

    def _declared(self, value: onnx.ValueInfoProto) -> Shape | None:
        """Return the sizes of an input; those of one name are the same."""
        type_ = value.type.tensor_type
        if not type_.HasField("shape"):
            return None
        return [
            bind(dim.dim_value, is_pinned=False)
            if dim.HasField("dim_value")
            else self._symbols.setdefault(dim.dim_param, bind(None))
            if dim.dim_param
            else bind(None)
            for dim in type_.shape.dim
        ]


def _inferred(message: onnx.ModelProto) -> dict[str, list[int | None]]:
    """Return the shapes that onnx infers; none at all for a model that it cannot work on."""
    try:
        inferred = shape_inference.infer_shapes(message)
    except (shape_inference.InferenceError, RuntimeError, ValueError):
        return {}
    return {
        value.name: [
            dim.dim_value if dim.HasField("dim_value") else None
            for dim in value.type.tensor_type.shape.dim
        ]
        for value in inferred.graph.value_info
        if value.type.tensor_type.HasField("shape")
    }
