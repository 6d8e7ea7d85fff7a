"""What the judging of a model message yields."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import onnx

from onnx_kvtool.core.diagnostic import Diagnostic, Severity
from onnx_kvtool.core.errors import MalformedModel
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.messages.protobuf import Message, UnknownFieldSet

__all__ = ["Judgement", "require_text"]


def require_text(texts: Iterable[str | bytes], path: str) -> None:
    """Refuse a name that is not text.

    Protobuf hands out the bytes of a string field that is not UTF-8 instead of a `str`, and takes
    them no more when they are to be written.

    Args:
        texts: Names as protobuf hands them out.
        path: Path of the graph in which they stand.

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
    """What was found in a model message before onnx_ir saw it.

    Attributes:
        defects: What is wrong with the message. An `error` is something that onnx_ir repairs,
            merges or drops in silence, or that makes an edit unsafe.
        sparse: Graphs with sparse initializers, which onnx_ir drops.
        attributes: Attributes that onnx_ir refuses: sparse tensors, strings that are not UTF-8,
            types it has no form for.
        types: Values of a type that onnx_ir refuses or drops: maps, opaque types, and sequences or
            optionals of something that is not said.
        external: Tensors whose `external_data` has entries besides location, offset and length.
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
        """Record metadata keys that stand twice in `entries`; the last of them is kept."""
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
                f"holds a field that onnx {onnx.__version__} does not know (number {numbers}) "
                "and that would be lost",
                help="install a newer onnx, or write the model with a released one",
            )
