"""Inference that knows nothing of some nodes, which it would not survive."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from onnx_kvtool.guard.small_constants import HOLDERS, Contents
from onnx_kvtool.model_io.forms import every_node

_HIDDEN = "kvtool.hidden"
"""Domain of a node that inference knows nothing about."""


def infer_hiding(
    contents: Contents,
    infer: Callable[[Contents], onnx.ModelProto],
    hidden: list[onnx.NodeProto],
) -> onnx.ModelProto:
    """Return the result of inference with some nodes hidden from it."""
    holders = (contents.message, *contents.message.functions)
    domains = [node.domain for node in hidden]
    for node in hidden:
        node.domain = _HIDDEN
    for holder in holders:
        holder.opset_import.add(domain=_HIDDEN, version=1)
    try:
        result = infer(contents)
    finally:
        for node, domain in zip(hidden, domains, strict=True):
            _set_domain(node, domain)
        for holder in holders:
            del holder.opset_import[-1]
    for node in every_node(result, HOLDERS):
        if node.domain == _HIDDEN:
            _set_domain(node, "")
    for holder in (result, *result.functions):
        left = [entry for entry in holder.opset_import if entry.domain != _HIDDEN]
        del holder.opset_import[:]
        holder.opset_import.extend(left)
    return result


def _set_domain(node: onnx.NodeProto, domain: str) -> None:
    """Set a domain; an empty one is left out, which makes other bytes."""
    if domain:
        node.domain = domain
    else:
        node.ClearField("domain")
