"""The weights of copies: drawn, shared under other names, or read by nobody."""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.checker
import onnx.inliner
import onnx_ir as ir

from onnx_kvtool.core.domains import canonical_domain
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.storage import tensor_bytes
from onnx_kvtool.core.walk import graphs
from onnx_kvtool.model_io.external_data import array
from onnx_kvtool.model_io.message import MessageWriter
from onnx_kvtool.model_io.verbatim import SparseInitializer, bodies, every_holder, every_node
from onnx_kvtool.verification.weights import is_recast, place_of

# Values of weights in copies.


READ = 1 << 16
"""Bytes; a weight that keeps its shape and takes at most so many keeps its values."""

_PLACES = {
    ("", "DequantizeLinear"): ((0, 1),),
    ("", "QuantizeLinear"): ((0, 1),),
    ("com.microsoft", "GatherBlockQuantized"): ((0, 2),),
    ("com.microsoft", "MatMulNBits"): ((1, 2),),
    ("com.microsoft", "QMoE"): ((2, 3), (5, 6), (8, 9)),
}
"""By operator, the inputs that are quantised values and their scales."""

_BITS = {
    "GatherBlockQuantized": "bits",
    "MatMulNBits": "bits",
    "QMoE": "expert_weight_bits",
}
"""By operator of onnxruntime, the attribute that says how many bits a value has."""

_OF_A_RUN = 1 / 32
"""The scale of what a run computes: int8 has room for four standard deviations, and rounds them to
a thirtieth of one; float8 keeps three bits at any magnitude."""


class Quantised(NamedTuple):
    """What weights are for quantised products.

    Attributes:
        values: Names of weights that are quantised values.
        scales: Weights that are scales, with the magnitude of theirs that leaves a product as large
            as what is multiplied.
    """

    values: frozenset[str]
    scales: Mapping[str, float]


def quantised_of(message: onnx.ModelProto, dims: Mapping[str, list[int]]) -> Quantised:
    """Return which weights of the main graph are quantised values, and which are scales.

    `dims` has the shapes of the weights in the copy.
    """
    types = {tensor.name: ir.DataType(tensor.data_type) for tensor in message.graph.initializer}
    values: set[str] = set()
    scales: dict[str, float] = {}
    for node in message.graph.node:
        op = canonical_domain(node.domain), node.op_type
        for places in _PLACES.get(op, ()):
            value, scale = (node.input[i] if i < len(node.input) else "" for i in places)
            if not value or not scale:
                continue
            if value in types:
                values.add(value)
            if scale not in types:
                continue
            if value not in types:
                scales[scale] = _OF_A_RUN
                continue
            dtype, shape = types[value], dims[value]
            bits = dtype.bitwidth if dtype.is_integer() else None
            if node.domain:
                # Of MatMulNBits (N, blocks, bytes), of experts (E, N, bytes): each is a product.
                bits = code_bits(node) or 8
                packed = 8 // bits if dtype == ir.DataType.UINT8 else 1
                shape = [*(shape[1:] if node.op_type == "QMoE" else shape), packed]
            scales[scale] = 1.0  # floats are drawn as any others
            if bits is not None:
                scales[scale] = 1 / (2.0**bits / math.sqrt(12) * math.sqrt(_terms(shape)))
    return Quantised(frozenset(values), scales)


def code_bits(node: onnx.NodeProto) -> int | None:
    """Return the bits of the quantized weights of an operator of onnxruntime; None for others."""
    name = _BITS.get(node.op_type) if node.domain else None
    return next((a.i for a in node.attribute if a.name == name), 4) if name else None


def _terms(shape: list[int]) -> float:
    """Return about how many terms the sums of a product with a weight have.

    The shape does not tell which of its sizes are summed; the mean of both leaves what goes up to
    another width and down again as large as it was.
    """
    return math.sqrt(max(math.prod(shape), 1))


def hides(kept: ir.TensorProtocol, name: str, quantised: Quantised) -> bool:
    """Return whether the values of a weight say nothing of what stands before it.

    What is multiplied by nothing but zeros is zero, and so is the difference of two models in it:
    adapters before their training, models that were never trained.
    """
    is_quantised = name in quantised.scales or name in quantised.values
    # Other integers are zero points, and one number may well be an addend.
    if not is_quantised and (kept.dtype.is_integer() or kept.size < 2):
        return False
    return not np.any(kept.numpy())


def drawn(
    tensor: ir.TensorProtocol,
    shape: list[int],
    name: str,
    seed: int,
    quantised: Quantised,
) -> np.ndarray:
    """Draw values for a weight by its name: of such a size that products keep that of an operand.

    What one layer adds to the others is then as large as they are, and a fault in it shows.
    """
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if tensor.dtype.is_integer():
        low, high = int(tensor.dtype.min), int(tensor.dtype.max)
        return rng.integers(low, high, shape, endpoint=True).astype(tensor.dtype.numpy())
    if name in quantised.scales:
        values = rng.uniform(0.5, 1.5, shape) * quantised.scales[name]
    elif len(shape) < 2:
        values = 1 + 0.1 * rng.standard_normal(shape)  # it scales or shifts
    else:
        values = rng.standard_normal(shape) / math.sqrt(_terms(shape))
    return values.astype(tensor.dtype.numpy())


# A model without the values of its weights, as a message that can be given other weights.


SMALL = 64
"""A size up to this one is never changed; a tensor of no more elements keeps its values."""

WEIGHT_TYPES = frozenset(
    {
        ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16,
        ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E5M2, ir.DataType.INT8, ir.DataType.UINT8,
        ir.DataType.INT4, ir.DataType.UINT4,
    }
)  # fmt: skip
"""Types that may hold weights; other integers are sizes and indices, whose values matter."""


@dataclass(frozen=True, slots=True)
class Skeleton:
    """One model.

    Attributes:
        name: What messages call it.
        message: The model with calls of its functions inlined. Weights of the main graph have type
            and dims, and no values.
        weights: All initializers of the main graph by name; their values are not read.
        bare: Names of those that have no values in the message.
    """

    name: str
    message: onnx.ModelProto
    weights: dict[str, ir.TensorProtocol]
    bare: frozenset[str]

    @property
    def constants(self) -> dict[str, onnx.TensorProto]:
        """The initializers whose values the message holds, by name."""
        return {t.name: t for t in self.message.graph.initializer if t.name not in self.bare}

    @property
    def drawable(self) -> dict[str, ir.TensorProtocol]:
        """The weights that have no values in the message, and may get others."""
        return {
            name: tensor
            for name, tensor in self.weights.items()
            if name in self.bare and tensor.dtype in WEIGHT_TYPES
        }

    def copied(self) -> onnx.ModelProto:
        """Return a copy of the message."""
        message = onnx.ModelProto()
        message.CopyFrom(self.message)
        return message

    def of(self, message: onnx.ModelProto) -> Skeleton:
        """Return the model with another message, and those of its weights that are left there."""
        names = {tensor.name for tensor in message.graph.initializer}
        weights = {name: tensor for name, tensor in self.weights.items() if name in names}
        return Skeleton(self.name, message, weights, self.bare & names)


def skeleton(model: ir.Model, name: str) -> Skeleton:
    """Return the skeleton of `model`, which may be edited afterwards; no weight is read.

    Raises:
        KvtoolError: If the model has no written form, or weights outside the main graph; if its
            functions call each other in a circle.
    """
    writer = _SkeletonWriter(model.graph)
    try:
        message = writer.model(model)
    except (ir.serde.SerdeError, TypeError, ValueError) as error:
        raise KvtoolError(f"the model cannot be written: {error}") from error
    for path, graph in graphs(model):
        if graph is model.graph:
            continue
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                raise KvtoolError(f"`{path}` has its own weight, `{value.name}`")
    if message.functions:
        try:
            message = onnx.inliner.inline_local_functions(message)
        except (onnx.checker.ValidationError, RuntimeError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise KvtoolError(f"the functions cannot be inlined: {reason}") from error
    del message.graph.value_info[:]
    weights = {
        initializer: value.const_value
        for initializer, value in model.graph.initializers.items()
        if value.const_value is not None
    }
    return Skeleton(name, message, weights, frozenset(writer.bare))


class _SkeletonWriter(MessageWriter):
    """Writes weights of the main graph without their values."""

    def __init__(self, main: ir.Graph) -> None:
        super().__init__()
        self.bare: set[str] = set()
        self._main = main
        self._in_main = False

    def initializers(self, out: onnx.GraphProto, graph: ir.Graph) -> None:
        self._in_main = graph is self._main
        super().initializers(out, graph)

    def initializer(self, out: onnx.GraphProto, name: str, tensor: ir.TensorProtocol) -> None:
        is_weight = not isinstance(tensor, SparseInitializer) and (
            isinstance(tensor, ir.ExternalTensor)
            or (tensor.dtype in WEIGHT_TYPES and tensor.size > SMALL)
        )
        if not self._in_main or not is_weight:
            super().initializer(out, name, tensor)
            return
        self.bare.add(name)
        written = out.initializer.add(name=name, data_type=int(tensor.dtype))
        written.dims.extend(tensor.shape.numpy())
        written.data_location = onnx.TensorProto.EXTERNAL
        written.external_data.add(key="location", value="nowhere")

    def metadata(self, out: object, entries: object) -> None:
        """Leave it out: no runtime reads it."""


# Weights that two models have in common, but under other names.


def with_counterparts(a: Skeleton, b: Skeleton) -> tuple[Skeleton, Skeleton]:
    """Return two models whose common weights have one name, that of A.

    A rewrite may read the bytes of a weight as another type or shape, under another name: those of
    MatMulNBits as uint4. If quantized values of one model alone are all equal, such as the zero
    points that an operator assumes, they are a constant: any part of it stands for the whole.

    External weights are told by their place, and not read; those in the file by what they hold.
    Where several weights of a model hold the same, nobody knows which is which. Weights of one type
    and shape that hold the same at different places are none: zeros may come from anything.
    """
    own_a, own_b = (
        {name: tensor for name, tensor in one.drawable.items() if name not in other.weights}
        for one, other in ((a, b), (b, a))
    )
    renamed: dict[str, str] = {}
    if own_a and own_b:
        known_a, known_b, taken = _told(own_a), _told(own_b), _names(b.message.graph)
        for key in known_a.keys() & known_b.keys():
            one, other = known_a[key], known_b[key]
            x, y = own_a[one], own_b[other]
            is_alike = (x.dtype, tuple(x.shape)) == (y.dtype, tuple(y.shape))
            is_same = is_recast(x, y) or (is_alike and place_of(x) is not None)
            if one not in taken and is_same:
                renamed[other] = one
    a = _with_fills(a, own_a.keys() - renamed.values())
    b = _with_fills(b, own_b.keys() - renamed.keys())
    return a, _renamed(b, renamed) if renamed else b


def _told(weights: Mapping[str, ir.TensorProtocol]) -> dict[object, str]:
    """Return the weights that hold what no other one of them does, by what or where it is."""
    found: dict[object, str | None] = {}
    for name, tensor in weights.items():
        key = place_of(tensor) or (
            tensor_bytes(tensor),
            hashlib.sha256(tensor.tobytes()).digest(),
        )
        found[key] = None if key in found else name
    return {key: name for key, name in found.items() if name is not None}


def _names(graph: onnx.GraphProto) -> set[str]:
    """Return the names that a graph and its bodies give to values."""
    found: set[str] = set()
    for holder in every_holder(graph):
        found.update(value.name for value in (*holder.input, *holder.initializer))
        found.update(name for node in holder.node for name in node.output)
    return found


def _with_fills(model: Skeleton, names: Iterable[str]) -> Skeleton:
    """Return a model whose weights that are one number throughout stand in its message."""
    fills = {
        name: tensor
        for name in names
        if not isinstance(tensor := model.weights[name], ir.ExternalTensor) and _is_fill(tensor)
    }
    if not fills:
        return model
    message = model.copied()
    for written in message.graph.initializer:
        if written.name in fills:
            held = ir.tensor(array(fills[written.name]), dtype=fills[written.name].dtype)
            held.name = written.name
            written.CopyFrom(ir.serde.serialize_tensor(held))
    return replace(model, message=message, bare=model.bare - fills.keys())


def _is_fill(tensor: ir.TensorProtocol) -> bool:
    """Return whether a tensor is of one code throughout, which is not 0."""
    if tensor.dtype not in QUANTIZED_TYPES:
        return False
    data = np.frombuffer(tensor.tobytes(), np.uint8)
    is_even = tensor.dtype.bitwidth == 8 or int(data[0]) >> 4 == int(data[0]) & 15
    return is_even and bool(data[0]) and bool((data == data[0]).all())


QUANTIZED_TYPES = frozenset(
    {ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4}
)


def _renamed(model: Skeleton, names: Mapping[str, str]) -> Skeleton:
    message = model.copied()
    for tensor in message.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in every_node(message.graph):
        for place, name in enumerate(node.input):
            if name in names:
                node.input[place] = names[name]
    weights = {names.get(name, name): tensor for name, tensor in model.weights.items()}
    bare = frozenset(names.get(name, name) for name in model.bare)
    return replace(model, message=message, weights=weights, bare=bare)


# Weights that one model alone has, and that none of its outputs depends on.


def without_unread(a: Skeleton, b: Skeleton) -> tuple[Skeleton, Skeleton]:
    """Return two models without the weights that one alone has and only dead nodes read.

    Rewriting removes dead nodes, and their weights. A node that is dead in one model
    alone, and whose weights both have, stays: where it is missed is to be seen in copies.

    A model that nothing was taken from is returned itself.
    """
    return _without(a, b), _without(b, a)


def _without(model: Skeleton, other: Skeleton) -> Skeleton:
    foreign = model.bare - other.weights.keys()
    if not foreign:
        return model
    graph = model.message.graph
    gone = foreign - live(graph)
    if not gone:
        return model
    unread, kept = set(gone), []
    for node in graph.node:  # what reads a dead value is dead as well
        if _read(node) & unread:
            unread |= set(node.output)
        else:
            kept.append(node)
    message = model.copied()
    keep(message.graph.node, kept)
    keep(message.graph.initializer, (t for t in graph.initializer if t.name not in gone))
    return model.of(message)


def keep(field: Any, messages: Iterable[Any]) -> None:
    """Let a repeated field of a message hold some of the elements that another one has."""
    del field[:]
    field.extend(messages)


def live(graph: onnx.GraphProto) -> set[str]:
    """Return the names that outputs of a graph depend on."""
    producers = {name: node for node in graph.node for name in node.output if name}
    found = {value.name for value in (*graph.output, *graph.input)}
    waiting = list(found)
    while waiting:
        node = producers.get(waiting.pop())
        if node is not None:
            new = _read(node) - found
            found |= new
            waiting += new
    return found


def _read(node: onnx.NodeProto) -> set[str]:
    """Return the names that a node reads, and all that are read in its bodies."""
    return {*filter(None, node.input), *captured(node)}


def captured(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that the bodies of `node` read, those of outer values among them."""
    for graph in bodies(node):
        for inner in graph.node:
            yield from filter(None, inner.input)
            yield from captured(inner)
        yield from (value.name for value in graph.output)
