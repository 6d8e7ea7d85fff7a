"""KV206: a scatter moves elements of a type that its version does not take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding

__all__ = ["ScatterDtypeUnsupported"]


class ScatterDtypeUnsupported(NodeRule):
    """A scatter moves elements of a type that its version does not take.

    ## What it does

    Looks for `data` or `updates` of ScatterND and ScatterElements whose type is not in T at the
    opset of the model: 8-bit and smaller floats and 4-bit integers at no opset, bfloat16 below 13.

    ## Why is this bad?

    onnx's full check and onnxruntime refuse the model. Optimisers that replace a TensorScatter
    write such nodes.

    ## References

    - [ScatterElements](https://onnx.ai/onnx/operators/onnx__ScatterElements.html) and
      [ScatterND](https://onnx.ai/onnx/operators/onnx__ScatterND.html), type constraint T of each
      version.
    """

    code = "KV206"
    name = "scatter-dtype-unsupported"
    severity = "error"
    basis = "constant"
    operators = ("ScatterND", "ScatterElements", "Scatter")

    bad = """
        <ir_version: 10, opset_import: ["": 11]>
        decoder (bfloat16[7, 2, 5] past, int64[3, 1] index, bfloat16[3, 2, 5] update)
            => (bfloat16[7, 2, 5] present) {
            [cache] present = ScatterND (past, index, update)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 13]>
        decoder (bfloat16[7, 2, 5] past, int64[3, 1] index, bfloat16[3, 2, 5] update)
            => (bfloat16[7, 2, 5] present) {
            [cache] present = ScatterND (past, index, update)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Look the type of the data up in the schema."""
        from onnx_kvtool.ops.element_type import dtype_name
        from onnx_kvtool.ops.schema import type_name
        from onnx_kvtool.ops.view import NodeView

        view = site.view(NodeView)
        if view is None:
            return
        for name in ("data", "updates"):
            value = view.required(name)
            formal = next(f for f in view.facts.inputs if f.name == name)
            given = type_name(value)
            if given is None or given in formal.types:
                continue
            shown = given if value.dtype is None else dtype_name(value.dtype)
            yield self.found(
                site.location(value),
                f"`{value.name}` is {shown}, which `{site.node.op_type}` does not take at opset "
                f"{view.opset}{_later(site.node.op_type, name, given, view.opset)}",
                help="cast the data and the updates to a type that it takes, and the result back",
            )
            return


def _later(op_type: str, name: str, given: str, opset: int) -> str:
    from onnx_kvtool.ops.schema import NEWEST, op_facts

    for later in range(opset + 1, NEWEST + 1):
        facts = op_facts(op_type, later)
        if facts is not None and any(f.name == name and given in f.types for f in facts.inputs):
            return f", only from opset {later} on"
    return ""
