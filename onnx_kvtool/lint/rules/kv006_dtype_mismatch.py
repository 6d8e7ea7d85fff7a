"""KV006: cache, update and result of a TensorScatter differ in element type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding

__all__ = ["DtypeMismatch"]


class DtypeMismatch(NodeRule):
    """The cache, the update and the result of a TensorScatter differ in element type.

    ## What it does

    Compares the element types of `past_cache`, `update` and `present_cache`, where they are known.

    ## Why is this bad?

    The operator moves rows and converts nothing: all three share the type parameter T. It happens
    where a cache is kept in another precision than the model computes in, and the Cast of the new
    rows is missing. onnxruntime refuses to load the model.

    ## References

    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html): `past_cache`,
      `update` and `present_cache` are all of type T.
    """

    code = "KV006"
    name = "dtype-mismatch"
    severity = "error"
    basis = "constant"
    operators = ("TensorScatter",)

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float16[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float16[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <axis: int = 2> (past, update, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float16[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float16[2, 3, 7, 5] present) {
            rows = Cast <to: int = 10> (update)
            [cache] present = TensorScatter <axis: int = 2> (past, rows, start)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Compare the types."""
        from onnx_kvtool.lint.facts.operands import operands
        from onnx_kvtool.ops.element_type import dtype_name

        found = operands(context, site)
        if found is None:
            return
        given = [
            (value, dtype_name(value.dtype))
            for value in (found.past, found.update, found.present)
            if value.dtype is not None
        ]
        if len({name for _, name in given}) > 1:
            other = next(value for value, name in given if name != given[0][1])
            named = ", ".join(f"`{value.name}` is {name}" for value, name in given)
            yield self.found(
                site.location(other),
                f"cache, update and result differ in element type: {named}",
                help=f"cast the update to {given[0][1]}, or keep the cache in the type of the "
                "update",
            )
