"""Models as ONNX text for people, and how one differs from another."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
import onnx.printer
import onnx.shape_inference
import onnx_ir as ir
from google.protobuf import text_format  # type: ignore[import-untyped]
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import Message  # type: ignore[import-untyped]

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.machine import collector_paused
from onnx_kvtool.core.storage import tensor_bytes
from onnx_kvtool.core.walk import function_path, graphs, nodes
from onnx_kvtool.core.words import escape
from onnx_kvtool.model_io.forms import SparseInitializer
from onnx_kvtool.model_io.message import MessageWriter
from onnx_kvtool.model_io.origin import origin

_SHOWN_BYTES = 256
"""Up to this size the values of a tensor are shown; of others type and shape alone."""
_OWN_METADATA = "kvtool."


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A model as it was at one moment, as far as people look at it.

    Attributes:
        message: The model, with type and shape alone for large tensors.
        comments: Metadata of kvtool on graphs and nodes (ONNX text has no form for it), and what
            reading the file has already repaired.
    """

    message: onnx.ModelProto
    comments: tuple[str, ...]


def snapshot(model: ir.Model) -> Snapshot:
    """Return a model as it is now.

    Raises:
        KvtoolError: If the model holds something that has no written form.
    """
    with collector_paused():
        message = _Shown().model(model)
        _escape_strings(message)
        comments = (*_repaired(model), *_metadata(model))
        return Snapshot(message, tuple(map(escape, comments)))


def _escape_strings(message: Message) -> None:
    """Escape each string, in place: onnx's printer writes them as they are."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if field.is_repeated else (value,):
                _escape_strings(inner)
        elif isinstance(value, str):
            setattr(message, field.name, escape(value))
        elif field.type == FieldDescriptor.TYPE_STRING:
            value[:] = map(escape, value)
        elif field.name == "s":
            message.s = _escaped(value)
        elif field.name in ("strings", "string_data"):
            value[:] = map(_escaped, value)


def _escaped(data: bytes) -> bytes:
    return escape(data.decode("utf-8", "backslashreplace")).encode()


def readable(shown: Snapshot) -> list[str]:
    """Return a model as lines of ONNX text.

    Raises:
        KvtoolError: If onnx's printer refuses the model, as that of onnx 1.23.2 does for a
            tensor whose data does not fit its shape.
    """
    try:
        lines = onnx.printer.to_text(shown.message).splitlines()
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise KvtoolError(f"the model cannot be shown as ONNX text: {reason}") from error
    return [*(part for line in lines for part in _parts(line)), *shown.comments]


def changes(before: Snapshot, after: Snapshot, path: str) -> tuple[str, str | None]:
    """Return how a model changed, as the unified diff of two texts of the file `path`.

    Returns:
        The diff, "" where nothing changed, and None; or a diff in protobuf's own text form, which
        every model has, and why ONNX text would not do.
    """
    try:
        return diff(readable(before), readable(after), path), None
    except KvtoolError as error:
        return diff(_fields(before), _fields(after), path), error.message


def _fields(shown: Snapshot) -> list[str]:
    text: str = text_format.MessageToString(shown.message, as_utf8=True)
    return [*text.splitlines(), *shown.comments]


def _parts(line: str) -> Iterator[str]:
    """Yield a line; of one that lists inputs, outputs or values, each of them by itself.

    onnx's printer puts them all on one line, where nobody sees a difference.
    """
    stripped = line.lstrip()
    if not (stripped.startswith("<") or "=> (" in line):
        yield line
        return
    indent = " " * (len(line) - len(stripped))
    begin = depth = 0
    quoted = False
    for place, char in enumerate(stripped):
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
        elif char == "," and depth <= 0:
            yield f"{indent}{stripped[begin : place + 1].strip()}"
            begin = place + 1
    yield f"{indent}{stripped[begin:].strip()}"


def diff(before: list[str], after: list[str], path: str) -> str:
    """Return the unified diff of two texts of the file `path`; "" when they are equal."""
    name = escape(path)
    lines = difflib.unified_diff(before, after, name, name, lineterm="")
    return "".join(f"{line}\n" for line in lines)


class _Shown(MessageWriter):
    def tensor(self, out: onnx.TensorProto, tensor: ir.TensorProtocol) -> None:
        if isinstance(tensor, ir.ExternalTensor) or tensor_bytes(tensor) <= _SHOWN_BYTES:
            super().tensor(out, tensor)
            return
        out.data_type = int(tensor.dtype)
        out.dims.extend(tensor.shape.numpy())
        if tensor.name:
            out.name = tensor.name

    def initializer(self, out: onnx.GraphProto, name: str, tensor: ir.TensorProtocol) -> None:
        if not isinstance(tensor, SparseInitializer):
            super().initializer(out, name, tensor)

    def metadata(self, out: Any, entries: Mapping[str, str]) -> None:
        """Write that of kvtool alone: exporters put whole stack traces there."""
        own = {key: text for key, text in entries.items() if key.startswith(_OWN_METADATA)}
        super().metadata(out, own)


def _repaired(model: ir.Model) -> Iterator[str]:
    """Yield what the file contained and the model lost."""
    for defect in origin(model).defects:
        if defect.code == "duplicate-opset-import":
            yield f"# {defect.location}: {defect.message}; the last one counts"


def _metadata(model: ir.Model) -> Iterator[str]:
    for path, graph in graphs(model):
        yield from _comments(path, graph.metadata_props)
    for function in model.functions.values():
        path = function_path(*function.identifier())
        yield from _comments(f"function {path}", function.metadata_props)
    for path, index, node in nodes(model):
        yield from _comments(f"{path}, node {node.name or f'#{index}'}", node.metadata_props)


def _comments(place: str, entries: Mapping[str, str]) -> Iterator[str]:
    for key in sorted(entries):
        if key.startswith(_OWN_METADATA):
            yield f"# {place}: {key} = {entries[key]}"
