"""Equations of Einsum that onnx's inference never finishes reading."""

from __future__ import annotations

import re
from collections.abc import Callable

import onnx

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.guard.fault import Fault
from onnx_kvtool.guard.hiding import infer_hiding
from onnx_kvtool.guard.small_constants import Contents

FAULT = Fault(
    library="onnx",
    seen="1.23.2",
    what="never finishes reading an equation of Einsum with stray dots, such as `.i` or two"
    " ellipses in one term",
    instead="hides an Einsum from inference unless each term is letters and at most one ellipsis",
)

_TERM = re.compile(rb"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


def infer_past_endless_equations(
    contents: Contents, infer: Callable[[Contents], onnx.ModelProto]
) -> onnx.ModelProto:
    """Return `infer(contents)`, with nothing known of an Einsum whose equation is malformed."""
    hidden = [
        node
        for node in contents.of("Einsum")
        if node.domain in DEFAULT_DOMAINS and is_endless(node)
    ]
    return infer_hiding(contents, infer, hidden) if hidden else infer(contents)


def is_endless(node: onnx.NodeProto) -> bool:
    """Return whether inference may never finish reading the equation of an Einsum."""
    terms = (
        term
        for attribute in node.attribute
        if attribute.name == "equation"
        for term in re.split(rb"->|,", attribute.s.replace(b" ", b""))
    )
    return any(_TERM.fullmatch(term) is None for term in terms)
