"""Reports as JSON, with the header that every command shares."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Protocol

from onnx_kvtool import __version__

SCHEMA_VERSION = 1
"""Version of the keys and their meaning; adding a key does not change it."""


class JsonReport(Protocol):
    """A report that knows the keys which the command-line contract gives it."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values, without the header."""


def to_json(command: str, report: JsonReport) -> str:
    """Return the JSON text of what `command` reports; see `headed`."""
    return headed(command, report.to_json())


def headed(command: str, keys: Mapping[str, Any]) -> str:
    """Return the keys of `command` with the header: one object in ASCII, without a line end.

    A number that JSON cannot hold (infinite or not a number) becomes null.
    """
    header = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "kvtool", "version": __version__},
        "command": command,
    }
    return json.dumps(_finite({**header, **keys}), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    """Return `value` with null for each number that is not finite, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value
