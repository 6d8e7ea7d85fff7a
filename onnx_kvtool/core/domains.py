"""The domain of ONNX's own operators, which a file may spell in two ways, and onnxruntime's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

DEFAULT_DOMAINS = frozenset({"", "ai.onnx"})
"""Both spellings of the default domain."""


def canonical_domain(domain: str) -> str:
    """Return "" for either spelling of the default domain, and any other domain unchanged."""
    return "" if domain == "ai.onnx" else domain


def operator_label(node: ir.Node | onnx.NodeProto) -> str:
    """Return the operator of a node, with its domain unless that is ONNX's own."""
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


def is_onnxruntimes(domain: str) -> bool:
    """Return whether onnxruntime alone has the operators of a domain.

    Beside `com.microsoft` these are the domains of layouts that its optimiser makes for itself.
    """
    return domain == "com.microsoft" or domain.startswith(("com.microsoft.", "com.ms."))


def default_version(imports: Mapping[str, int]) -> int:
    """Return the version of the default domain among opset imports; 0 when none is imported."""
    return imports.get("", imports.get("ai.onnx", 0))
