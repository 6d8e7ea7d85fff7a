"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_kvtool.symbolic.rules.elementwise import broadcast_shapes
from onnx_kvtool.symbolic.rules.site import ShapeRule, ShapeSite, Unknown
from onnx_kvtool.symbolic.sizes import Shape

__all__ = ["gemm", "mat_mul", "product_shape"]


def mat_mul(right: int = 1) -> ShapeRule:
    """Return the rule of a product of input 0 and the input at `right`, as numpy's matmul."""

    def rule(site: ShapeSite) -> Sequence[Shape | Unknown]:
        return (product_shape(site, site.shape(0), site.shape(right), right),)

    return rule


def product_shape(site: ShapeSite, a: Shape, b: Shape, right: int) -> Shape:
    """Return the shape of numpy's matmul of two shapes.

    Args:
        site: The node.
        a: Shape of the left operand.
        b: Shape of the right one.
        right: Position of the right one among the inputs, for the report.

    Raises:
        Unknown: If an operand is a scalar.
    """
    if not a or not b:
        raise Unknown("malformed", f"`{site.node.op_type}` takes no scalar")
    rows, left = (a[-2:-1], a[:-2])
    inner, columns, behind = (b[-1], (), ()) if len(b) == 1 else (b[-2], b[-1:], b[:-2])
    site.same(a[-1], inner, right, max(len(b) - 2, 0), "inner size")
    stacked = broadcast_shapes(site, [(0, left), (right, behind)])
    return (*stacked, *rows, *columns)


def gemm(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """Gemm: (M, K) and (K, N), each perhaps transposed."""
    a, b = site.shape(0), site.shape(1)
    if len(a) != 2 or len(b) != 2:
        raise Unknown("malformed", "`Gemm` takes matrices")
    a = (a[1], a[0]) if site.view.integer("transA") else a
    transposed = bool(site.view.integer("transB"))
    b = (b[1], b[0]) if transposed else b
    site.same(a[1], b[0], 1, 1 if transposed else 0, "inner size")
    return ((a[0], b[1]),)
