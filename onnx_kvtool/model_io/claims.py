"""Checks of the claims of a message about tensors, types, attributes and names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx

from onnx_kvtool.core.diagnostic import Diagnostic, Location, Severity
from onnx_kvtool.core.errors import MalformedModel
from onnx_kvtool.core.storage import ELEMENT_TYPES, element_count, stored_bytes
from onnx_kvtool.core.words import counted
from onnx_kvtool.model_io.protobuf import Message, UnknownFieldSet
from onnx_kvtool.model_io.verbatim import held

# The result of judging a model message.


def require_text(texts: Iterable[str | bytes], path: str) -> None:
    """Refuse a name that is not text.

    Protobuf hands out the bytes of a string field that is not UTF-8 instead of a `str`, and takes
    them no more when they are to be written.

    Raises:
        MalformedModel: For the first that is not UTF-8.
    """
    for text in texts:
        if type(text) is not str:
            raise MalformedModel(
                f"{Location(path)}: the name {text!r} is not UTF-8",
                help="export the model again: all names in a model are UTF-8",
            )


@dataclass(slots=True)
class Judgement:
    """The findings in a model message before onnx_ir sees it.

    Attributes:
        defects: What is wrong with the message. An `error` is something that onnx_ir repairs,
            merges or drops in silence, or that makes an edit unsafe.
        sparse: Graphs with sparse initializers, which onnx_ir drops.
        attributes: Attributes that onnx_ir refuses, or takes much memory for: sparse tensors,
            strings that are not UTF-8, types it has no form for, long lists of numbers.
        types: Values of a type that onnx_ir refuses or drops: maps, opaque types, and sequences or
            optionals of something that is not said.
        external: Tensors whose `external_data` has other entries than location, offset and length.
        described: Names of initializers that `value_info` repeats.
        hidden_external: Whether a tensor in an attribute or in a function is external.
    """

    defects: list[Diagnostic] = field(default_factory=list)
    sparse: list[onnx.GraphProto] = field(default_factory=list)
    attributes: list[onnx.AttributeProto] = field(default_factory=list)
    types: list[onnx.ValueInfoProto] = field(default_factory=list)
    external: list[onnx.TensorProto] = field(default_factory=list)
    described: set[str] = field(default_factory=set)
    hidden_external: bool = False

    def add(
        self,
        code: str,
        location: Location,
        message: str,
        *,
        help: str | None = None,
        severity: Severity = "error",
    ) -> None:
        """Record a defect."""
        self.defects.append(Diagnostic(code, severity, location, message, help))

    def keys(self, entries: Any, location: Location) -> None:
        """Record duplicate metadata keys in `entries`; the last one wins."""
        seen: set[str] = set()
        for entry in entries:
            if entry.key in seen:
                self.add(
                    "duplicate-metadata",
                    location,
                    f"metadata key `{entry.key}` stands twice, and the last value is taken",
                    severity="warning",
                )
            seen.add(entry.key)

    def texts(self, message: Message, path: str) -> None:
        """Refuse text of `message` itself that is not UTF-8; see `require_text`."""
        fields = message.ListFields()
        require_text([value for _, value in fields if isinstance(value, str | bytes)], path)

    def fields(self, message: Message, location: Location) -> None:
        """Record fields of `message` that this version of onnx does not know."""
        unknown = UnknownFieldSet(message)
        if len(unknown):
            numbers = ", ".join(sorted({str(entry.field_number) for entry in unknown}))
            self.add(
                "unknown-field",
                location,
                f"contains a field that onnx {onnx.__version__} does not know (number {numbers}) "
                "and that would be lost",
                help="install a newer onnx, or write the model with a released one",
            )


# The values that a node can read.


@dataclass(slots=True)
class Scope:
    """The values that the nodes of one graph or function can read.

    Attributes:
        path: Path of the graph.
        nodes: Nodes of the graph.
        names: Values defined so far: inputs, initializers, outputs of the nodes already seen.
        outer: Scope of the node that holds the graph; None at the top and for functions.
    """

    path: str
    nodes: Sequence[onnx.NodeProto]
    names: set[str]
    outer: Scope | None = None
    _produced: set[str] = field(default_factory=set)

    def sees(self, name: str) -> bool:
        """Return whether `name` is defined here or outside."""
        return name in self.names or (self.outer is not None and self.outer.sees(name))

    def will_see(self, name: str) -> bool:
        """Return whether any node, here or outside, produces `name`."""
        if not self._produced:
            self._produced = {output for node in self.nodes for output in node.output if output}
        return name in self._produced or (self.outer is not None and self.outer.will_see(name))

    def place(self, index: int, value: str | None = None) -> Location:
        """Return the place of the node at `index`."""
        return Location.of(self.path, self.nodes[index], index, value)


# Whether an attribute message has its value in the field of its type.


_A = onnx.AttributeProto

# The fields of an attribute that hold a value, and the type that each is for. Most have its name.
_VALUE_FIELDS: dict[str, int] = {name.lower(): kind for name, kind in _A.AttributeType.items()}
_VALUE_FIELDS |= {"f": _A.FLOAT, "i": _A.INT, "s": _A.STRING}
_VALUE_FIELDS |= {"t": _A.TENSOR, "g": _A.GRAPH, "tp": _A.TYPE_PROTO}


def misplaced_value(attribute: onnx.AttributeProto) -> str | None:
    """Return what is wrong with the fields of a value; None if nothing is.

    onnx_ir takes the field that the type says; a number that is absent there becomes 0.
    """
    filled = [f.name for f, _ in attribute.ListFields() if f.name in _VALUE_FIELDS]
    if attribute.ref_attr_name:
        if not filled:
            return None
        return (
            f"attribute `{attribute.name}` refers to a parameter and has a value in `{filled[0]}`"
        )
    if len(filled) > 1:
        return f"attribute `{attribute.name}` has values in `{filled[0]}` and in `{filled[1]}`"
    if filled and _VALUE_FIELDS[filled[0]] != attribute.type:
        kind = _A.AttributeType.Name(attribute.type)
        return f"attribute `{attribute.name}` of type {kind} has its value in `{filled[0]}`"
    return None


def is_utf8(text: bytes) -> bool:
    """Return whether bytes are text."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


# Whether the claims of a tensor message can be true.


_NUMBER = re.compile(r"[0-9]{1,19}")
CARRIED_KEYS = frozenset({"location", "offset", "length"})

_T = onnx.TensorProto
_COMPLEX = frozenset({_T.COMPLEX64, _T.COMPLEX128})
_FIELDS = ("float_data", "int32_data", "int64_data", "string_data", "double_data", "uint64_data")
# The field for the elements of a type; the types that are not listed stand in `int32_data`.
_FIELD_OF: dict[int, str] = {
    **dict.fromkeys((_T.FLOAT, _T.COMPLEX64), "float_data"),
    **dict.fromkeys((_T.DOUBLE, _T.COMPLEX128), "double_data"),
    **dict.fromkeys((_T.UINT32, _T.UINT64), "uint64_data"),
    _T.INT64: "int64_data",
    _T.STRING: "string_data",
}
_PER_ENTRY: dict[int, int] = {
    **dict.fromkeys((_T.UINT4, _T.INT4, _T.FLOAT4E2M1), 2),
    **dict.fromkeys((_T.UINT2, _T.INT2), 4),
}
"""Elements that one entry stands for, of packed types; two entries make a complex number."""


def unknown_type(dtype: int, location: Location) -> MalformedModel:
    """Return the error for an element type that neither onnx nor onnx_ir knows."""
    return MalformedModel(
        f"{location}: element type {dtype} is unknown to onnx {onnx.__version__}",
        help="install newer versions of onnx and onnx-ir, or export with a released type",
    )


def judge_tensor(tensor: onnx.TensorProto, found: Judgement, location: Location) -> bool:
    """Judge one tensor message without looking at its values; return whether it is external.

    Raises:
        MalformedModel: If its element type is unknown, or the numbers that say where its
            external data lies are none.
    """
    if tensor.data_type not in ELEMENT_TYPES:
        raise unknown_type(tensor.data_type, location)
    if tensor.metadata_props:
        found.keys(tensor.metadata_props, location)
    found.fields(tensor, location)
    external = tensor.data_location == _T.EXTERNAL
    try:
        if external:
            stored_bytes(tensor.dims, tensor.data_type)
        else:
            for problem in _length_problems(tensor):
                found.add("tensor-data-length", location, problem)
        if misplaced := _misplaced_data(tensor, external):
            found.add("tensor-data-field", location, misplaced)
    except ValueError as flaw:
        found.add("bad-dims", location, f"has shape {list(tensor.dims)[:8]}, but {flaw}")
    if external:
        _external_entries(tensor, found, location)
    return external


def _length_problems(tensor: onnx.TensorProto) -> Iterator[str]:
    """Yield at most one sentence: data that does not fit the shape and the element type."""
    dims, dtype = tensor.dims, tensor.data_type
    shape = f"shape {list(dims)[:8]}"
    if tensor.HasField("raw_data"):
        wanted = stored_bytes(dims, dtype)
        if wanted is None:
            yield f"has raw data, which element type {dtype} cannot have"
        elif (got := len(tensor.raw_data)) != wanted:
            yield f"has {counted(got, 'byte')} of data, but {shape} takes {wanted:,}"
        return
    wanted = _entries(element_count(dims), dtype)
    got = sum(len(values) for values in _typed(tensor))
    if got != wanted:
        yield f"has {got} entries of data, but {shape} takes {wanted:,}"


def _misplaced_data(tensor: onnx.TensorProto, external: bool) -> str | None:
    """Return what is wrong with the fields of the data; None for one correct field.

    A reader looks into one field, and not each into the same; data in the other fields is lost.
    """
    raw = tensor.HasField("raw_data")
    filled = [name for name, values in zip(_FIELDS, _typed(tensor), strict=True) if values]
    if external:
        if raw and tensor.raw_data:
            filled.insert(0, "raw_data")
        return f"is external and has data in `{filled[0]}` as well" if filled else None
    if raw:
        return f"has data in `raw_data` and in `{filled[0]}`" if filled else None
    wanted = _FIELD_OF.get(tensor.data_type, "int32_data")
    if len(filled) > 1:
        return f"has data in `{filled[0]}` and in `{filled[1]}`"
    if filled and filled[0] != wanted:
        name = _T.DataType.Name(tensor.data_type)
        return f"has data in `{filled[0]}`, and elements of type {name} stand in `{wanted}`"
    return None


def _typed(tensor: onnx.TensorProto) -> list[Any]:
    return [getattr(tensor, name) for name in _FIELDS]


def _entries(count: int, dtype: int) -> int:
    return 2 * count if dtype in _COMPLEX else -(-count // _PER_ENTRY.get(dtype, 1))


def _external_entries(tensor: onnx.TensorProto, found: Judgement, location: Location) -> None:
    """Refuse entries that readers read differently, or that onnx_ir cannot represent.

    Python's `int` accepts signs, blanks, underscores and other alphabets; C++ readers do not. Of
    two entries with one key, some readers take the first and some the last.
    """
    seen: set[str] = set()
    for entry in tensor.external_data:
        key = entry.key
        require_text((key, entry.value), location.graph)
        if key in seen and key in CARRIED_KEYS:
            raise MalformedModel(f"{location}: external data has two entries `{key}`")
        seen.add(key)
        if key in ("offset", "length") and not _NUMBER.fullmatch(entry.value):
            raise MalformedModel(
                f"{location}: the {key} of its external data is {entry.value[:40]!r}, "
                "not a decimal number of bytes",
                help="write it again with `onnx.save_model(..., save_as_external_data=True)`",
            )
    if not seen <= CARRIED_KEYS:
        found.external.append(tensor)


# Whether onnx_ir has a form for the type of a value, and whether anyone knows it.


_KNOWN = ELEMENT_TYPES - {_T.UNDEFINED}


def is_plain_tensor(type_: onnx.TypeProto) -> bool:
    """Return whether `type_` is a tensor of a known element type: nearly every type there is."""
    return type_.HasField("tensor_type") and type_.tensor_type.elem_type in _KNOWN


def is_nameless_opaque(type_: onnx.TypeProto) -> bool:
    """Return whether a type, or what it holds, is an opaque one without a name."""
    inner = held(type_)
    if inner.HasField("map_type"):
        return is_nameless_opaque(inner.map_type.value_type)
    return inner.HasField("opaque_type") and not inner.opaque_type.name


def has_form(type_: onnx.TypeProto, location: Location) -> bool:
    """Return whether onnx_ir keeps `type_` unchanged.

    It keeps tensors, sparse tensors, and sequences and optionals of those. It refuses maps, and
    sequences and optionals without an element type. It drops opaque types, and a denotation without
    a type. A tensor without an element type loses nothing, because its shape is stored separately.

    Raises:
        MalformedModel: If the element type is unknown.
    """
    inner = held(type_)
    kind = inner.WhichOneof("value")
    if kind not in ("tensor_type", "sparse_tensor_type"):
        # onnx_ir represents a missing type: None.
        return inner is type_ and kind is None and not type_.denotation
    tensor = getattr(inner, kind)
    if tensor.elem_type not in ELEMENT_TYPES:
        raise unknown_type(tensor.elem_type, location)
    # onnx_ir keeps only the element type of a sparse tensor.
    is_bare = inner is type_ and kind == "tensor_type" and not type_.denotation
    return is_bare or bool(tensor.HasField("elem_type"))
