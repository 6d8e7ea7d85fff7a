"""ON615: shapes or types contradict what an operator demands or yields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["ShapeConflict"]


class ShapeConflict(ModelRule):
    """Shapes or types contradict what an operator demands or yields.

    ## What it does

    Asks onnx's strict shape inference about every node of an operator of ONNX and hands on each of
    its complaints: dimensions that do not fit together, an axis that does not exist, a result that
    is declared with another shape or type than the operator yields. A shape that is declared
    wrongly inside the model, where nothing relies on it, is an information: onnxruntime-genai 0.18
    writes such declarations. What the inference says of TensorScatter is said by the rules of that
    operator, and nothing is added to a node about which another rule of this group complains.

    ## Why is this bad?

    The node fails when it runs, or what the model declares of its results is not true. onnx's full
    check refuses the model.

    ## References

    - [ONNX shape inference](https://onnx.ai/onnx/repo-docs/ShapeInference.html), strict mode.
    """

    code = "ON615"
    name = "shape-conflict"
    severity = "error"
    basis = "symbolic"

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2, 5] x, float[3, 7] w) => (float[2, 7] y) {
            [project] y = MatMul (x, w)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2, 5] x, float[5, 7] w) => (float[2, 7] y) {
            [project] y = MatMul (x, w)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Hand on what the inference says of nodes that are legal otherwise."""
        from onnx_kvtool.lint.facts.inference import contradictions
        from onnx_kvtool.ops.schema import op_facts
        from onnx_kvtool.shapes.complaints import CONSEQUENCE, DECLARED

        known = {misuse.location for found in context.misuses.values() for misuse in found}
        reported = {(place.graph, place.index) for place in known}
        for site, text in contradictions(context):
            node = site.node
            if site.opset is None or (not node.domain and node.op_type == "TensorScatter"):
                continue
            facts = op_facts(node.op_type, site.opset, node.domain)
            if facts is None or (site.path, site.index) in reported:
                continue
            if CONSEQUENCE in text:
                continue
            shapes = _shown(node.inputs)
            is_inner = DECLARED in text and not any(v.is_graph_output() for v in node.outputs)
            yield self.found(
                site.location(),
                f"onnx's inference refuses `{node.op_type}`: {text}"
                + (f" (inputs {shapes})" if shapes else ""),
                help="correct the shape, or what is declared of it",
                severity="info" if is_inner else None,
            )


def _shown(values: Iterable[ir.Value | None]) -> str:
    from onnx_kvtool.lint.facts.operands import declared

    return ", ".join(f"`{value.name}` {declared(value)}" for value in values if value is not None)
