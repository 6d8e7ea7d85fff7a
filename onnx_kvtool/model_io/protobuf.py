"""The parts of the protobuf library that are used, in one place as they come without types."""

from __future__ import annotations

from google.protobuf.message import (  # type: ignore[import-untyped]
    DecodeError,
    EncodeError,
    Message,
)
from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

__all__ = ["DecodeError", "EncodeError", "Message", "UnknownFieldSet"]
