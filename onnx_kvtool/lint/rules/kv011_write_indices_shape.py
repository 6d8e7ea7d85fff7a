"""KV011: the starts of a TensorScatter are not one number for each batch row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.facts.operands import Operands
    from onnx_kvtool.lint.finding import Finding, Fix
    from onnx_kvtool.symbolic.expression import Expr

__all__ = ["WriteIndicesShape"]


class WriteIndicesShape(NodeRule):
    """The `write_indices` of a TensorScatter are not one number for each batch row.

    ## What it does

    Looks for `write_indices` of another rank than 1, or whose length is certainly not the batch
    size of the cache.

    ## Why is this bad?

    Nothing is broadcast: each batch row has a start of its own, also where all are the same.
    onnx's shape inference refuses another rank and a number that differs.

    ## Fix safety

    Where the starts are as many as the batch has rows, in another shape such as (batch, 1), the fix
    flattens them. Nothing else changes, and one Reshape serves all nodes that read the same starts.

    ## References

    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html): "Write indices
      for the incoming update tensor in the cache. Shape is `(batch_size,)`."
    """

    code = "KV011"
    name = "write-indices-shape"
    severity = "error"
    basis = "symbolic"
    fix = "safe"
    operators = ("TensorScatter",)

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[batch, 3, 7, 5] past, float[batch, 3, 1, 5] update, int64[batch, 1] start)
            => (float[batch, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[batch, 3, 7, 5] past, float[batch, 3, 1, 5] update, int64[batch] start)
            => (float[batch, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Look at the rank, then at the length."""
        from onnx_kvtool.lint.facts.operands import operands
        from onnx_kvtool.lint.facts.words import shape_words
        from onnx_kvtool.symbolic.bounds import Facts, interval
        from onnx_kvtool.symbolic.dims import dims_of

        found = operands(context, site)
        if found is None or found.write_indices is None:
            return
        indices, maps = found.write_indices, context.index_maps(site)
        shape, batch = maps.shape(indices), _batch(found, context, site)
        if shape is None:
            return
        shown = shape_words(dims_of(indices))
        if len(shape) != 1:
            yield self.found(
                site.location(indices),
                f"`{indices.name}` {shown} has rank {len(shape)}, expected rank 1"
                + ("" if batch is None else f" and batch_size={batch} elements"),
                help="reshape the starts to (batch_size,)",
                fix=_flatten(site, shape, batch),
            )
        elif batch is not None:
            low, high = interval(shape[0] - batch, Facts())
            if low > 0 or high < 0:
                yield self.found(
                    site.location(indices),
                    f"`{indices.name}` has {shape[0]} elements, `{found.past.name}` has "
                    f"batch_size={batch}: expected one start for each row",
                    help="pass one start for each batch row, also where all are the same",
                )


def _batch(found: Operands, context: Context, site: Site) -> Expr | None:
    maps = context.index_maps(site)
    for value in (found.past, found.update):
        shape = maps.shape(value)
        if shape:
            return shape[0]
    return None


def _flatten(site: Site, shape: tuple[Expr, ...], batch: Expr | None) -> Fix | None:
    """Return the fix where the starts are certainly as many as the rows of the batch."""
    import onnx_ir as ir

    from onnx_kvtool.lint.edits import convert_input
    from onnx_kvtool.lint.finding import Fix
    from onnx_kvtool.symbolic.dims import dims_of
    from onnx_kvtool.symbolic.expression import product

    if batch is None or product(shape) != batch:
        return None

    def flatten(value: ir.Value) -> list[ir.Node]:
        tensor = ir.tensor([-1], ir.DataType.INT64)
        constant = ir.node("Constant", [], {"value": tensor})
        constant.outputs[0].type = ir.TensorType(ir.DataType.INT64)
        constant.outputs[0].shape = ir.Shape([1])
        return [constant, ir.node("Reshape", [value, constant.outputs[0]])]

    node, first = site.node, dims_of(site.node.inputs[0]) or (None,)

    def apply() -> None:
        value = node.inputs[2] if len(node.inputs) > 2 else None
        if value is not None:
            convert_input(site.root, node, 2, "flat", value.dtype, first[:1], flatten)

    return Fix("safe", "flatten `write_indices` to (batch_size,)", apply)
