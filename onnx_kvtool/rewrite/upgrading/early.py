"""Operators that runtimes wrote into the default domain before ONNX had them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx_ir as ir

from onnx_kvtool.core.table import Table
from onnx_kvtool.ops.schema import op_facts

__all__ = ["EARLY", "tag_early"]

EARLY: Mapping[str, int] = Table(
    "early operator",
    [
        # onnxruntime's optimiser fuses it at every opset. Its own schema has the inputs,
        # attributes and defaults of version 17 (onnxruntime 1.31).
        ("LayerNormalization", 17),
    ],
)
"""For each operator the opset whose version they mean."""


def tag_early(nodes: Iterable[ir.Node], opset: int) -> None:
    """Tag the nodes that a model of an opset cannot have with the opset that they mean, in place.

    Args:
        nodes: Nodes that are written for `opset`, unless they are tagged.
        opset: Version of the default domain.
    """
    for node in nodes:
        early = EARLY.get(node.op_type)
        if early is None or node.domain != "":
            continue
        if op_facts(node.op_type, node.version or opset) is None:
            node.version = early
