"""Models made wrong in ways that random edits do not hit: of the wire format, and by size."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import onnx
from onnx import GraphProto, TensorProto, helper

from tests.mutations import changed_bytes, changed_model

__all__ = ["CORRUPTIONS", "corrupted"]

_LOCATIONS = (
    *("../w.bin", "/etc/passwd", "", ".", "a/../../w.bin", "C:\\w.bin", "w\0.bin", "w" * 5000),
    *("/dev/zero", "in.onnx", "no/such/file", "\\\\server\\w", "~/w.bin", "file:///etc/passwd"),
)
_NUMBERS = ("-1", "-9223372036854775808", "18446744073709551616", "1e3", "0x10", "", " 4", "\u0663")
_BAD_TEXT = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x00", b"\x1b[2J")
_LONG = 300_000
_VARINTS = (0, 1, 127, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, place


def _fields(data: bytes) -> list[tuple[int, bytes]]:
    """Return the fields of a message: the tag, and the rest. Raises for what is none."""
    found, place = [], 0
    while place < len(data):
        tag, start = _read_varint(data, place)
        kind = tag & 7
        if tag >> 3 == 0 or kind not in (0, 1, 2, 5):
            raise ValueError("no field")
        if kind == 0:
            _, end = _read_varint(data, start)
        elif kind == 2:
            length, begin = _read_varint(data, start)
            end = begin + length
        else:
            end = start + (8 if kind == 1 else 4)
        if end > len(data):
            raise ValueError("a field that is too long")
        found.append((tag, data[start:end]))
        place = end
    return found


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _inner(rest: bytes) -> bytes:
    return rest[_read_varint(rest, 0)[1] :]


def _join(fields: list[tuple[int, bytes]]) -> bytes:
    return b"".join(_varint(tag) + rest for tag, rest in fields)


def _spliced(data: bytes, rng: random.Random, depth: int = 0) -> bytes:
    """Change one field of a message, at any depth, with the lengths around it put right."""
    try:
        fields = _fields(data)
    except (IndexError, ValueError):
        return data
    if not fields:
        return data
    place = rng.randrange(len(fields))
    tag, rest = fields[place]
    if tag & 7 == 2 and depth < 8 and rng.random() < 0.85:
        inner = _spliced(_inner(rest), rng, depth + 1)
        fields[place] = tag, _varint(len(inner)) + inner
        return _join(fields)
    kind = rng.randrange(7)
    if kind == 0:
        del fields[place]
    elif kind == 1:
        fields[place:place] = [fields[place]] * rng.choice([1, 3, 40])
    elif kind == 2:
        fields[place] = (tag & ~7) | rng.choice([0, 1, 2, 3, 4, 5, 7]), rest
    elif kind == 3:
        fields[place] = rng.randint(1, 60) << 3 | tag & 7, rest
    elif kind == 4 and tag & 7 == 2:
        fields[place] = tag, _varint(rng.choice(_VARINTS)) + _inner(rest)
    elif kind == 5:
        fields[place] = (tag & ~7), _varint(rng.choice(_VARINTS))
    else:
        rng.shuffle(fields)
    return _join(fields)


def _splice(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 3)):
        data = _spliced(data, rng)
    return data


def _nest(data: bytes, rng: random.Random) -> bytes:
    """Put graphs into graphs, up to what a reader of protobuf still takes and beyond."""
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["out"])], "deepest", [], [])
    nested = graph.SerializeToString()
    outputs = GraphProto(name="level", output=[onnx.ValueInfoProto(name="out")]).SerializeToString()
    for _ in range(rng.choice([5, 20, 28, 30, 33, 60, 2000])):
        node = helper.make_node("If", ["x"], ["out"]).SerializeToString()
        for name in ("then_branch", "else_branch") if len(nested) < 2000 else ("then_branch",):
            attribute = onnx.AttributeProto(name=name, type=onnx.AttributeProto.GRAPH)
            node += _field(5, attribute.SerializeToString() + _field(6, nested))
        nested = _field(1, node) + outputs
    return data + _field(7, _field(1, node))  # a second graph is merged with the first


def _nest_types(model: onnx.ModelProto, rng: random.Random) -> None:
    """Let an input be a sequence of sequences of ..."""
    type_ = model.graph.input[0].type if model.graph.input else model.graph.value_info.add().type
    type_.Clear()
    for _ in range(rng.choice([2, 10, 40, 90])):
        kind = rng.choice(["sequence_type", "optional_type"])
        type_ = getattr(type_, kind).elem_type
    type_.tensor_type.elem_type = TensorProto.FLOAT


def _multiply(model: onnx.ModelProto, rng: random.Random) -> None:
    """Let each function call the one before it twice: 2**n nodes, written with n lines."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    depth = rng.choice([4, 12, 20, 50])
    for level in range(depth):
        calls = ("", "Neg") if level == 0 else ("local", f"f{level - 1}")
        nodes = [
            helper.make_node(calls[1], [name], [out], domain=calls[0])
            for name, out in (("a", "b"), ("b", "c"))
        ]
        model.functions.append(
            helper.make_function("local", f"f{level}", ["a"], ["c"], nodes, opsets)
        )
    source = model.graph.input[0].name if model.graph.input else ""
    node = helper.make_node(f"f{depth - 1}", [source], ["multiplied"], domain="local")
    model.graph.node.append(node)
    model.opset_import.append(opsets[1])


def _lengthen(model: onnx.ModelProto, rng: random.Random) -> None:
    """Make a text very long."""
    text = rng.choice(["x", "\u00e4", "(", "N * ", "/", "\x1b[31m"]) * _LONG
    text = text[:_LONG]
    kind = rng.randrange(6)
    if kind == 0:
        model.doc_string = text
    elif kind == 1:
        model.metadata_props.add(key=text, value="v")
    elif kind == 2 and model.graph.node:
        rng.choice(model.graph.node).name = text
    elif kind == 3 and model.graph.node:
        rng.choice(model.graph.node).op_type = text
    elif kind == 4 and model.graph.input:
        rng.choice(model.graph.input).type.tensor_type.shape.dim.add().dim_param = text
    else:
        model.graph.name = text


def _spoil_text(data: bytes, rng: random.Random) -> bytes:
    """Put bytes that are no UTF-8, or that act on a terminal, where a text is."""
    model = onnx.ModelProto.FromString(data)
    names = [node.op_type for node in model.graph.node] + [v.name for v in model.graph.input]
    name = rng.choice([n for n in names if len(n) > 1] or ["main"]).encode()
    bad = rng.choice(_BAD_TEXT)
    return data.replace(name, (bad * len(name))[: len(name)], rng.choice([1, -1]))


def _refer(model: onnx.ModelProto, rng: random.Random) -> None:
    """Let tensors refer to files that they must not refer to, or to places that are none."""
    for _ in range(rng.randint(1, 3)):
        tensor = rng.choice(list(model.graph.initializer) or [TensorProto()])
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        del tensor.external_data[:]
        entries = {"location": rng.choice(_LOCATIONS)}
        for key in ("offset", "length", "checksum", "location", "nonsense"):
            if rng.random() < 0.4:
                entries[key] = rng.choice([*_NUMBERS, *_LOCATIONS])
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)


def _inflate(model: onnx.ModelProto, rng: random.Random) -> None:
    """Ask for far more memory than there is."""
    size = rng.choice([10**5, 10**7, 10**9, 2**31, 2**40, 2**62])
    model.graph.initializer.append(helper.make_tensor("many", TensorProto.INT64, [1], [size]))
    model.graph.initializer.append(helper.make_tensor("zero", TensorProto.INT64, [], [0]))
    model.graph.initializer.append(helper.make_tensor("one", TensorProto.INT64, [], [1]))
    model.graph.initializer.append(helper.make_tensor("end", TensorProto.INT64, [], [size]))
    node = rng.choice(
        [
            helper.make_node("ConstantOfShape", ["many"], ["inflated"]),
            helper.make_node("Range", ["zero", "end", "one"], ["inflated"]),
            helper.make_node("Expand", ["one", "many"], ["inflated"]),
            helper.make_node("Tile", ["many", "many"], ["inflated"]),
            helper.make_node("RandomUniform", [], ["inflated"], shape=[size]),
            helper.make_node("OneHot", ["zero", "end", "many"], ["inflated"]),
        ]
    )
    model.graph.node.append(node)
    follow = rng.choice(["Identity", "Neg", "Shape", "Gather", "NonZero", "CumSum"])
    inputs = ["inflated", "zero"] if follow in ("Gather", "CumSum") else ["inflated"]
    model.graph.node.append(helper.make_node(follow, inputs, ["followed"]))
    model.graph.output.append(onnx.ValueInfoProto(name="followed"))


def _chain(model: onnx.ModelProto, rng: random.Random) -> None:
    """Append a chain of nodes that is longer than a stack is deep."""
    name = model.graph.input[0].name if model.graph.input else "nothing"
    op = rng.choice(["Identity", "Shape", "Cast", "Reshape", "Add", "Unsqueeze", "Concat"])
    for level in range(rng.choice([500, 3000])):
        inputs = [name, name] if op in ("Reshape", "Add", "Unsqueeze", "Concat") else [name]
        node = helper.make_node(op, inputs, [f"c{level}"])
        node.attribute.extend(
            helper.make_attribute(name, number)
            for name, number in {"Cast": {"to": 7}, "Concat": {"axis": 0}}.get(op, {}).items()
        )
        model.graph.node.append(node)
        name = f"c{level}"
    model.graph.output.append(onnx.ValueInfoProto(name=name))


def _edit(model: onnx.ModelProto, rng: random.Random) -> None:
    model.CopyFrom(changed_model(model, rng))


_MODELS: Mapping[str, Callable[[onnx.ModelProto, random.Random], None]] = {
    "edit": _edit,
    "nest types": _nest_types,
    "multiply": _multiply,
    "lengthen": _lengthen,
    "refer": _refer,
    "inflate": _inflate,
    "chain": _chain,
}
_BYTES: Mapping[str, Callable[[bytes, random.Random], bytes]] = {
    "damage": changed_bytes,
    "splice": _splice,
    "nest": _nest,
    "spoil text": _spoil_text,
}
CORRUPTIONS = (*_MODELS, *_BYTES)
"""Names of what can be done to a model."""


def corrupted(kind: str, model: onnx.ModelProto, rng: random.Random) -> bytes:
    """Return a copy of a model made wrong.

    Args:
        kind: One of `CORRUPTIONS`.
        model: What to start from.
        rng: Chooses what exactly is done.
    """
    if kind in _BYTES:
        return _BYTES[kind](model.SerializeToString(), rng)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _MODELS[kind](copy, rng)
    return bytes(copy.SerializeToString())
