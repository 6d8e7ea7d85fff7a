"""Protobuf messages of types and values, and forms that onnx_ir does not have."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, MutableMapping, Set
from typing import Any, NoReturn

import onnx
import onnx_ir as ir

from onnx_kvtool.core.errors import KvtoolError

# The bodies of the nodes of a protobuf message, of any operator.
#
# Graphs stand in attributes of If, Loop, Scan and SequenceMap, and in those of operators of other
# domains: `decoder` and `init_decoder` of onnxruntime's BeamSearch. So it is not the operator but
# the attribute that is asked.


_A = onnx.AttributeProto
_MAY_HOLD = frozenset({_A.UNDEFINED, _A.GRAPH, _A.GRAPHS})
"""Types of the attributes that may hold graphs; files of early IR versions give none."""

Holder = onnx.GraphProto | onnx.FunctionProto
"""What has nodes."""


def bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs that a node itself holds, in the order of its attributes.

    An attribute that refers to one of the enclosing function holds none.
    """
    return [graph for _, graph in named_bodies(node)]


def named_bodies(node: onnx.NodeProto) -> list[tuple[str, onnx.GraphProto]]:
    """Return the graphs that a node itself holds with the attributes that hold them.

    One of a list of graphs has its position behind the name: `branches[1]`.
    """
    found = []
    for attribute in node.attribute:
        if attribute.type in _MAY_HOLD:
            if attribute.HasField("g"):
                found.append((attribute.name, attribute.g))
            found += [(f"{attribute.name}[{i}]", g) for i, g in enumerate(attribute.graphs)]
    return found


def every_holder(root: onnx.ModelProto | Holder, within: Set[str] | None = None) -> list[Holder]:
    """Return all that has nodes: the main graph, the functions, then bodies after what holds them.

    `within` has the operators whose bodies are wanted, of any domain; None for all. Looking at the
    attributes of each node takes most of the time.
    """
    found = _outermost(root)
    for holder in found:  # which grows
        for node in holder.node:
            if within is None or node.op_type in within:
                found += bodies(node)
    return found


def every_node(
    root: onnx.ModelProto | Holder, within: Set[str] | None = None
) -> Iterator[onnx.NodeProto]:
    """Yield all nodes, those of a graph together and before those of its bodies.

    Args:
        root: The model, or one graph or function.
        within: The operators whose bodies are wanted, of any domain; None for all.
    """
    pending = _outermost(root)
    for holder in pending:  # which grows
        for node in holder.node:
            yield node
            if within is None or node.op_type in within:
                pending += bodies(node)


def _outermost(root: onnx.ModelProto | Holder) -> list[Holder]:
    return [root.graph, *root.functions] if isinstance(root, onnx.ModelProto) else [root]


# Types: what sequences and optionals hold, and forms that onnx_ir does not have, kept verbatim.


def held(type_: onnx.TypeProto) -> onnx.TypeProto:
    """Return what sequences and optionals hold, however deep; another type is itself."""
    while (kind := type_.WhichOneof("value")) in ("sequence_type", "optional_type"):
        type_ = getattr(type_, str(kind)).elem_type
    return type_


class VerbatimType:
    """A type that onnx_ir does not support, such as a map.

    Attributes:
        message: The type as it stood in the file.
        denotation: What the whole type stands for, or None.
        elem_type: `UNDEFINED`: there is none that onnx_ir could name.
        dtype: `UNDEFINED`, too.
    """

    def __init__(self, message: onnx.TypeProto) -> None:
        self.message = message
        self.denotation: str | None = message.denotation or None
        self.elem_type: ir.TypeProtocol | ir.DataType = ir.DataType.UNDEFINED
        self.dtype = ir.DataType.UNDEFINED

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VerbatimType) and bool(self.message == other.message)

    def __hash__(self) -> int:
        return hash(self.message.SerializeToString(deterministic=True))

    def __repr__(self) -> str:
        return f"VerbatimType({self.message.WhichOneof('value') or 'nothing'})"


class SparseInitializer:
    """A sparse initializer: a constant of a known shape whose values are not read.

    onnxruntime turns it into a dense tensor when it loads the model; for whoever asks kvtool for
    the values they are unknown, and asking is an error.

    Attributes:
        raw: The `SparseTensorProto` as it stood in the file.
        name: Name of the initializer.
        dtype: Type of the elements.
        shape: Shape of the dense tensor that is meant.
        doc_string: Always None; the message keeps what its tensors say of themselves.
        metadata_props: Always empty, for the same reason.
        meta: Remarks that are not written to a file.
    """

    def __init__(self, raw: onnx.SparseTensorProto) -> None:
        self.raw: Any = raw
        self.name: str | None = raw.values.name
        self.dtype = ir.DataType(raw.values.data_type)
        self.shape: ir.ShapeProtocol = ir.Shape(raw.dims, frozen=True)
        self.doc_string: str | None = None
        self.metadata_props: MutableMapping[str, str] = {}
        self.meta: MutableMapping[str, Any] = {}

    @property
    def size(self) -> int:
        """Number of elements of the dense tensor."""
        return int(math.prod(self.raw.dims))

    @property
    def nbytes(self) -> int:
        """Bytes that the values other than zero take."""
        if self.dtype is ir.DataType.STRING:
            return sum(len(text) for text in self.raw.values.string_data)
        return int(math.prod(self.raw.values.dims)) * self.dtype.bitwidth // 8

    def numpy(self, *given: Any, **more: Any) -> NoReturn:
        """Refuse with a KvtoolError, as all that asks for the values does."""
        raise KvtoolError(
            f"the values of the sparse initializer `{self.name}` cannot be read",
            help="make it dense in the exporter",
        )

    tobytes = __array__ = __dlpack__ = __dlpack_device__ = numpy

    def __repr__(self) -> str:
        return f"SparseInitializer({self.name!r}, {self.dtype}, {list(self.raw.dims)})"


LONG_LIST = 1 << 18
"""Most floats, or twice as many integers, that an attribute holds as a tuple: 1 MiB."""


class LongList(ir.Attr):
    """An attribute of many numbers, kept as in its message: a tuple takes up to ten times as much.

    Args:
        message: The attribute as it stood in the file.
    """

    def __init__(self, message: onnx.AttributeProto) -> None:
        kind = ir.AttributeType(message.type)
        super().__init__(message.name, kind, None, doc_string=message.doc_string or None)
        self.numbers: Any = message.ints if kind is ir.AttributeType.INTS else message.floats

    @property
    def value(self) -> Any:
        """The numbers as a tuple, which is made anew each time."""
        return tuple(self.numbers)


# From types and shapes of onnx_ir to protobuf messages.


class TypeWriter:
    """Writes the types of many values.

    The tens of thousands of values of a large model have a few dozen different types. Each type is
    built once and copied from then on.

    Each type that is built goes through `finish`.
    """

    def __init__(self, finish: Callable[[onnx.TypeProto], None] | None = None) -> None:
        self._finish = finish
        self._built: dict[Hashable, onnx.TypeProto] = {}

    def write(
        self, out: onnx.TypeProto, type_: ir.TypeProtocol | None, shape: ir.Shape | None
    ) -> None:
        """Write the type and the shape of one value."""
        key = _key(type_, shape)
        built = None if key is None else self._built.get(key)
        if built is not None:
            out.CopyFrom(built)
            return
        write_type(out, type_, shape)
        if self._finish is not None:
            self._finish(out)
        if key is not None:
            self._built[key] = onnx.TypeProto()
            self._built[key].CopyFrom(out)


def _key(type_: ir.TypeProtocol | None, shape: ir.Shape | None) -> Hashable:
    """Return what tells the type of a tensor without denotations from others; None for others."""
    if type_.__class__ is not ir.TensorType or type_.denotation:
        return None
    if shape is None:
        return type_.dtype
    for axis in range(len(shape)):
        if shape.get_denotation(axis):
            return None
    return type_.dtype, tuple([dim if isinstance(dim, int) else dim.value for dim in shape])


def write_type(out: onnx.TypeProto, type_: ir.TypeProtocol | None, shape: ir.Shape | None) -> None:
    """Write a type, and a shape where there is one."""
    if isinstance(type_, VerbatimType):
        out.CopyFrom(type_.message)
        return
    if type_ is not None:
        ir.serde.serialize_type_into(out, type_)
    else:
        # A shape without an element type: only a tensor comes out of a file like this.
        out.tensor_type.SetInParent()
    if shape is not None:
        ir.serde.serialize_shape_into(out, shape)
