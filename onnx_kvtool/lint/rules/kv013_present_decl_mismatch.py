"""KV013: the result of a TensorScatter is declared unlike the cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.facts.operands import Operands
    from onnx_kvtool.lint.finding import Finding, Fix

__all__ = ["PresentDeclMismatch"]


class PresentDeclMismatch(NodeRule):
    """The result of a TensorScatter is declared with another shape or type than the cache.

    ## What it does

    Compares what the model declares of `present_cache` with `past_cache`: the rank, every dimension
    that is a number in both, and the element type. A type that differs is KV006 as well.

    ## Why is this bad?

    The result has the shape and the type of the cache, whatever is declared. A caller that
    allocates buffers by the declaration gets them wrong, and past and present cannot share one.
    onnx's full check refuses the model; onnxruntime 1.31 only warns of a shape and refuses a type.

    ## Fix safety

    The fix declares what the operator yields. No result changes; what changes is a declaration that
    was not true. It is unsafe where that changes the element type of an output of the model:
    onnxruntime refuses the model as it is, so that the two cannot be compared, and callers may rely
    on either type.

    ## References

    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html): "Updated cache.
      Same shape as `past_cache`."
    """

    code = "KV013"
    name = "present-decl-mismatch"
    severity = "error"
    basis = "constant"
    fix = "safe"
    operators = ("TensorScatter",)

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 8, 5] present) {
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
        """Compare the two declarations."""
        from onnx_kvtool.lint.facts.operands import declared, operands

        found = operands(context, site)
        if found is not None and found.present.name and _differ(found):
            yield self.found(
                site.location(found.present),
                f"`{found.present.name}` is declared {declared(found.present)}, "
                f"`{found.past.name}` is {declared(found.past)}: expected the same",
                help="declare the result as the cache",
                fix=_declare(found),
            )


def _differ(found: Operands) -> bool:
    from onnx_kvtool.symbolic.dims import contradict, dims_of

    past, present = found.past, found.present
    if past.dtype is not None and present.dtype is not None and past.dtype != present.dtype:
        return True
    one, other = dims_of(past), dims_of(present)
    if one is None or other is None:
        return False
    return len(one) != len(other) or any(map(contradict, one, other))


def _declare(found: Operands) -> Fix:
    import onnx_ir as ir

    from onnx_kvtool.lint.finding import Applicability, Fix
    from onnx_kvtool.symbolic.dims import dims_of

    # Taken now: what inference has written on the values is gone when the fix is applied.
    present, type_, dims = found.present, found.past.type, dims_of(found.past)

    def apply() -> None:
        if present.producer() is None:
            return
        if type_ is not None:
            present.type = type_
        if dims is not None:
            present.shape = ir.Shape(list(dims))

    changes_interface = present.is_graph_output() and found.past.dtype != present.dtype
    applicability: Applicability = "unsafe" if changes_interface else "safe"
    return Fix(applicability, f"declare `{present.name}` as `{found.past.name}`", apply)
