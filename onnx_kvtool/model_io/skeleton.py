"""A model file without its large weights, assembled from the other bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from onnx_kvtool.core.errors import UnreadableModel
from onnx_kvtool.core.storage import MAX_MESSAGE_BYTES, new_mark
from onnx_kvtool.model_io.remote import RemoteFile
from onnx_kvtool.model_io.source import too_large
from onnx_kvtool.model_io.wire import BYTES, FIXED32, FIXED64, VARINT, encoded, varint

# Numbers of fields in onnx.proto.
_MODEL_GRAPH, _GRAPH_INITIALIZER = 7, 5
_TENSOR_RAW, _TENSOR_EXTERNAL, _TENSOR_LOCATION = 9, 13, 14
_LARGE = 1 << 20
"""Bytes of the smallest weight that is skipped by a new request instead of being read."""
_UNANNOUNCED = 1 << 29
"""Bytes that a file may have beside large weights where nobody says how long it is."""
_HEAD = 20
"""Bytes that tag and length of a field take at most."""


class Skeleton(NamedTuple):
    """The bytes of a model, with external data in place of large weights.

    Attributes:
        data: The bytes.
        mark: What the locations of that data begin with; a number follows, an index into `places`.
        places: Where the bytes of each weight lie in the file: start and end.
    """

    data: bytes
    mark: str
    places: tuple[tuple[int, int], ...]


def skeleton(file: RemoteFile) -> Skeleton:
    """Read a model file but for the `raw_data` of initializers of the main graph from 1 MiB on.

    Raises:
        UnreadableModel: If the file cannot be read, is no protobuf message, ends early, or is
            larger than a message can be.
    """
    if not file.read(0, 1):
        raise UnreadableModel(f"{file.name} is empty", help="copy or download it again")
    if file.size is not None and file.size > MAX_MESSAGE_BYTES:
        raise too_large(file.name)
    walk = _Walk(file)
    data = walk.joined((_MODEL_GRAPH, _GRAPH_INITIALIZER), 0, file.size)
    return Skeleton(bytes(data), walk.mark, tuple(walk.places))


class _Walk:
    def __init__(self, file: RemoteFile) -> None:
        self.file = file
        self.mark = new_mark()
        self.places: list[tuple[int, int]] = []

    def joined(self, way: tuple[int, ...], start: int, end: int | None) -> bytearray:
        """Join the pieces of `message` without a list: some pieces have two bytes."""
        data = bytearray()
        for piece in self.message(way, start, end):
            data += piece
            if self.file.size is None and len(data) > _UNANNOUNCED:
                raise UnreadableModel(
                    f"{self.file.name} is of a size that its server does not announce, and has "
                    f"more than {_UNANNOUNCED >> 20} MiB beside large weights",
                    help="fetch the model, and name the file",
                )
        return data

    def message(self, way: tuple[int, ...], start: int, end: int | None) -> Iterator[bytes]:
        """Yield the bytes of a message with the large weights at `way` replaced.

        Args:
            way: Numbers of the fields that lead to a tensor; empty for a tensor.
            start: Where the message begins.
            end: Where it ends; None for the end of the file.
        """
        position = start
        while end is None or position < end:
            head = self.file.read(position, _HEAD)
            if not head and end is None:
                return
            tag, tag_end = self._varint(head, 0)
            number, kind = tag >> 3, tag & 7
            if number == 0:
                raise self._flaw()
            if kind in (VARINT, FIXED32, FIXED64):
                width = {FIXED32: 4, FIXED64: 8}.get(kind)
                size = self._varint(head, tag_end)[1] if width is None else tag_end + width
                yield self._exactly(position, size)
                position += size
                continue
            if kind != BYTES:
                raise self._flaw()
            length, used = self._varint(head, tag_end)
            first, last = position + used, position + used + length
            if end is not None and last > end:
                raise self._flaw()
            if last > MAX_MESSAGE_BYTES:  # limit of a file without an announced size
                raise too_large(self.file.name)
            if way and number == way[0]:
                inner = self.joined(way[1:], first, last)
                yield head[:tag_end] + encoded(len(inner)) + inner
            elif not way and number == _TENSOR_RAW and length >= _LARGE:
                yield self._placeholder(first, last)
            else:
                yield self._exactly(position, used + length)
            position = last

    def _placeholder(self, first: int, last: int) -> bytes:
        entry = _field(1, b"location") + _field(2, f"{self.mark}{len(self.places)}".encode())
        self.places.append((first, last))
        return _field(_TENSOR_EXTERNAL, entry) + bytes((_TENSOR_LOCATION << 3 | VARINT, 1))

    def _varint(self, data: bytes, position: int) -> tuple[int, int]:
        try:
            return varint(data, position, len(data))
        except ValueError:
            raise self._flaw() from None

    def _exactly(self, position: int, count: int) -> bytes:
        if count > MAX_MESSAGE_BYTES:
            raise self._flaw()
        data = self.file.read(position, count)
        if len(data) < count:
            raise UnreadableModel(
                f"{self.file.name} is truncated: {count:,} bytes are needed at byte {position:,}, "
                f"and {len(data):,} are left",
                help="upload the file again",
            )
        return data

    def _flaw(self) -> UnreadableModel:
        return UnreadableModel(
            f"{self.file.name} is no ONNX model: its bytes are no protobuf message",
            help="fetch it, and name the file, to learn more",
        )


def _field(number: int, value: bytes) -> bytes:
    return bytes((number << 3 | BYTES,)) + encoded(len(value)) + value
