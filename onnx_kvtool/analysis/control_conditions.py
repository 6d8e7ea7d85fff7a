"""Conditions of `targets/runtimes.toml` on Loop and If."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx_kvtool.analysis.size_conditions import differ
from onnx_kvtool.core.walk import subgraphs
from onnx_kvtool.symbolic.dims import dims_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.analysis.constants import Folder
    from onnx_kvtool.targets.release import Limit

__all__ = ["open_scan", "unlike_branches", "unlike_ranks"]


def unlike_branches(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether the branches of an If give shapes that are not called the same."""
    branches = [graph.outputs for _, graph in subgraphs(node)]
    if len(branches) != 2:
        return False
    for one, other in zip(*branches, strict=False):
        a, b = dims_of(one), dims_of(other)
        if a is None or b is None:
            continue
        if len(a) != len(b) or any(
            x is None or y is None or differ(x, y) for x, y in zip(a, b, strict=True)
        ):
            return True
    return False


def unlike_ranks(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether the branches of an If give values of different ranks."""
    branches = [graph.outputs for _, graph in subgraphs(node)]
    shapes = ([dims_of(value) for value in outputs] for outputs in branches)
    pairs = zip(*shapes, strict=False)
    return any(None not in pair and len({len(dims or ()) for dims in pair}) > 1 for pair in pairs)


def open_scan(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether a Loop that may end early, or whose turns are no constant, gives what it scans."""
    carried = len(node.inputs) - 2
    if not any(output.uses() or output.is_graph_output() for output in node.outputs[carried:]):
        return False
    if folder.integers(node.inputs[0]) is None:
        return True
    (body,) = [graph for _, graph in subgraphs(node)]
    goes_on: ir.Value | None = body.outputs[0]
    while goes_on is not None and (made := goes_on.producer()) is not None:
        if made.op_type != "Identity":
            break
        goes_on = made.inputs[0]
    return goes_on is not body.inputs[1] and folder.integers(goes_on) is None
