"""MD405: two nodes of one graph have the same name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["DuplicateNodeName"]


class DuplicateNodeName(ModelRule):
    """Two nodes of one graph or function have the same name.

    ## What it does

    Looks for names that several nodes of one graph have. Nodes without a name, and equal names in
    different graphs, are fine.

    ## Why is this bad?

    onnxruntime refuses to load the model, although onnx's checker lets it pass. Tools that address
    nodes by name, for quantization or placement, hit the wrong one.

    ## Fix safety

    The fix is safe: it gives the later node a free name. Nothing in a model refers to a node by its
    name.

    ## References

    - onnxruntime 1.31.1: "This is an invalid model. Error: two nodes with same node name".
    - [IR of ONNX](https://github.com/onnx/onnx/blob/main/docs/IR.md#names-within-a-graph): "Names
      must be unique within a namespace", of which nodes have one.
    """

    code = "MD405"
    name = "duplicate-node-name"
    severity = "warning"
    basis = "constant"
    fix = "safe"

    bad = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [step] z = Neg (x)
            [step] y = Exp (z)
        }
    """
    good = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            [first] z = Neg (x)
            [second] y = Exp (z)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Collect the names of each graph."""
        from onnx_kvtool.lint.finding import Fix

        first: dict[tuple[str, str], int] = {}
        names: set[str | None] | None = None
        for site in context.sites:
            name = site.node.name
            if not name:
                continue
            earlier = first.setdefault((site.path, name), site.index)
            if earlier != site.index:
                if names is None:
                    names = {other.node.name for other in context.sites}
                yield self.found(
                    site.location(),
                    f"nodes {earlier} and {site.index} of the graph are both called `{name}`",
                    help="give each node a name of its own, or none",
                    fix=Fix("safe", "rename the later node", _renaming(site.node, names)),
                )


def _renaming(node: ir.Node, taken: set[str | None]) -> Callable[[], None]:
    def apply() -> None:
        graph, name = node.graph, node.name
        if graph is None or not name:
            return
        count = 1
        while f"{name}_{count}" in taken:
            count += 1
        node.name = f"{name}_{count}"
        taken.add(node.name)

    return apply
