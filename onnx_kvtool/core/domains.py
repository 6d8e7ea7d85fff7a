"""The domain of ONNX's own operators, which a file may spell in two ways."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DEFAULT_DOMAINS", "canonical_domain", "default_version"]

DEFAULT_DOMAINS = frozenset({"", "ai.onnx"})
"""Both spellings of the default domain."""


def canonical_domain(domain: str) -> str:
    """Return "" for either spelling of the default domain, and any other domain as it is."""
    return "" if domain == "ai.onnx" else domain


def default_version(imports: Mapping[str, int]) -> int:
    """Return the version of the default domain among opset imports; 0 when none is imported."""
    return imports.get("", imports.get("ai.onnx", 0))
