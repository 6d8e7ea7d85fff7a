"""Why bytes do not parse as a protobuf message, found by walking the wire format."""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap

from onnx_kvtool.core.files.foreign import Flaw
from onnx_kvtool.core.words import counted

__all__ = ["BYTES", "FIXED32", "FIXED64", "VARINT", "explain", "fields", "varint"]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

# The fields through which graphs nest, by message: field number -> the message it holds.
_NESTING: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {6: "graph", 11: "graph"},
}

# The fields of a model that are length-delimited. Where another field runs past the end, the bytes
# were never a model, and what looks like a length is noise.
_MODEL_FIELDS = frozenset({2, 3, 4, 6, 7, 8, 14, 20, 25, 26})

# Protobuf's own limit in every language, counted in messages.
_MAX_DEPTH = 100


_NO_MESSAGE = Flaw("is no ONNX model: its bytes are no protobuf message", None)


class _Corrupt(ValueError):
    """The bytes do not follow the wire format."""


class _Truncated(ValueError):
    """The bytes follow the wire format and end inside the field of this number."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


def explain(data: bytes) -> Flaw:
    """Return why `data`, which protobuf refused, is no model.

    Tells apart data that ends too early, messages nested deeper than protobuf allows (about 33
    graphs, each inside the other), and bytes that are no protobuf message at all.
    """
    try:
        for _ in fields(data, 0, len(data)):
            pass
    except _Truncated as flaw:
        if flaw.number in _MODEL_FIELDS:
            return Flaw(f"is truncated: {flaw}", "copy or download it again")
        return _NO_MESSAGE
    except _Corrupt:
        return _NO_MESSAGE
    if _too_deep(data):
        return Flaw(
            f"has graphs nested deeper than protobuf allows ({_MAX_DEPTH} messages)",
            "flatten its If, Loop and Scan bodies in the exporter",
        )
    return Flaw(
        "is no ONNX model, or a damaged one: it is a protobuf message, but its parts do not parse",
        "check that this is a model and not, for example, a saved tensor",
    )


def fields(data: bytes | mmap, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of every length-delimited field in `data[start:end]`.

    Raises:
        ValueError: If the bytes do not follow the wire format, or end inside a field.
    """
    position = start
    while position < end:
        at = position
        tag, position = varint(data, position, end)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise _Corrupt
        if kind == VARINT:
            _, position = varint(data, position, end)
            continue
        if kind == BYTES:
            length, position = varint(data, position, end)
        elif kind in (FIXED32, FIXED64):
            length = 4 if kind == FIXED32 else 8
        else:
            raise _Corrupt
        if position + length > end:
            raise _Truncated(
                number,
                f"the field at byte {at} takes {counted(length, 'byte')}, and {end - position:,} "
                "are left",
            )
        if kind == BYTES:
            yield number, position, position + length
        position += length


def varint(data: bytes | mmap, position: int, end: int) -> tuple[int, int]:
    """Return the number that starts at `position`, and where it ends.

    Raises:
        ValueError: If it has more than ten bytes, or does not end before `end`.
    """
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift >= 70:
            raise _Corrupt
    raise _Truncated(0, "it ends inside a number")


def _too_deep(data: bytes) -> bool:
    # Depth first with a stack of its own, as the depth is what is in question.
    pending = [("model", 0, len(data), 1)]
    while pending:
        kind, start, end, depth = pending.pop()
        if depth > _MAX_DEPTH:
            return True
        inner = _NESTING[kind]
        try:
            pending += [
                (inner[number], first, last, depth + 1)
                for number, first, last in fields(data, start, end)
                if number in inner
            ]
        except (_Corrupt, _Truncated):
            continue
    return False
