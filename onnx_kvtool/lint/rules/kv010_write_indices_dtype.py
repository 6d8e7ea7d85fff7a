"""KV010: the starts of a TensorScatter are not int64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding, Fix

__all__ = ["WriteIndicesDtype"]


class WriteIndicesDtype(NodeRule):
    """The `write_indices` of a TensorScatter are not int64.

    ## What it does

    Looks for `write_indices` of another element type than int64.

    ## Why is this bad?

    The operator takes int64 only. onnx's full check and onnxruntime refuse the model;
    onnx.reference 1.23 runs it.

    ## Fix safety

    The fix casts starts of an integer type to int64, which keeps every number, and leaves the
    inputs of the model as they are. One Cast serves all nodes that read the same starts. There is
    no fix for another type, because a cast of it might change a number.

    ## References

    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html): `write_indices`
      is a tensor(int64).
    """

    code = "KV010"
    name = "write-indices-dtype"
    severity = "error"
    basis = "constant"
    fix = "safe"
    operators = ("TensorScatter",)

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int32[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Look at the type."""
        import onnx_ir as ir

        from onnx_kvtool.lint.facts.operands import operands
        from onnx_kvtool.ops.element_type import dtype_name

        found = operands(context, site)
        indices = None if found is None else found.write_indices
        if indices is None or indices.dtype in (None, ir.DataType.INT64):
            return
        assert indices.dtype is not None
        is_integer = indices.dtype.is_integer() and indices.dtype != ir.DataType.BOOL
        yield self.found(
            site.location(indices),
            f"`{indices.name}` is {dtype_name(indices.dtype)}, expected int64",
            help="cast the starts to int64",
            fix=_cast(site) if is_integer else None,
        )


def _cast(site: Site) -> Fix:
    import onnx_ir as ir

    from onnx_kvtool.lint.edits import convert_input
    from onnx_kvtool.lint.finding import Fix
    from onnx_kvtool.symbolic.dims import dims_of

    def cast(value: ir.Value) -> list[ir.Node]:
        return [ir.node("Cast", [value], {"to": int(ir.DataType.INT64)})]

    node, dims = site.node, dims_of(site.node.inputs[2]) or (None,)

    def apply() -> None:
        shape = dims_of(node.inputs[2]) if len(node.inputs) > 2 else None
        convert_input(site.root, node, 2, "int64", ir.DataType.INT64, shape or dims, cast)

    return Fix("safe", "cast `write_indices` to int64", apply)
