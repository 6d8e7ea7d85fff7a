"""MD433: an input or output of the model has no type or no shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["UntypedInterface"]


class UntypedInterface(ModelRule):
    """An input or output of the main graph declares no type or no shape.

    ## What it does

    Looks for inputs and outputs of the main graph without an element type, and for those
    without a shape, which is a warning. Dimensions may be unknown. Inputs and outputs of bodies
    need no types.

    ## Why is this bad?

    A caller does not know what to feed. onnx's checker refuses the model, and shape inference has
    nothing to start from, so that nothing can be said of the nodes behind it.

    ## References

    - onnx.checker 1.23.2: "Field 'type' of 'value_info' is required but missing."
    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), `ValueInfoProto.type`:
      "This field MUST be present in this version of the IR for inputs and outputs of the top-level
      graph."
    """

    code = "MD433"
    name = "untyped-interface"
    severity = "error"
    basis = "constant"

    bad = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (x) => (float[2, 3] y) {
            y = Neg (x)
        }
    """
    good = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, N] x) => (float[2, N] y) {
            y = Neg (x)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Look at what is declared of each end of the model."""
        from onnx_kvtool.core.location import Location
        from onnx_kvtool.core.walk import graph_path

        graph = context.model.graph
        path = graph_path(graph.name)
        declared = {id(value): (type_, shape) for value, type_, shape in context.completed}
        for what, values in (("input", graph.inputs), ("output", graph.outputs)):
            for value in values:
                given, shape = declared.get(id(value), (value.type, value.shape))
                if _is_missing(given):
                    problem, severity = "declares no type", None
                elif shape is None and _has_elements(given):
                    problem, severity = "declares no shape", "warning"
                else:
                    continue
                yield self.found(
                    Location(path, value=value.name),
                    f"the {what} `{value.name}` {problem}",
                    help="declare it, with unknown dimensions where they vary",
                    severity=severity,  # type: ignore[arg-type]
                )


def _is_missing(given: ir.TypeProtocol | None) -> bool:
    return given is None or (_has_elements(given) and given.dtype.name == "UNDEFINED")


def _has_elements(given: ir.TypeProtocol | None) -> bool:
    return type(given).__name__ in ("TensorType", "SparseTensorType")
