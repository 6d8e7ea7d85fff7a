"""KV205: a ScatterND has the attribute `reduction`, which old parsers of TensorRT refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import TargetRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding, Fix
    from onnx_kvtool.targets.target import Target

__all__ = ["ScatterndReductionAttrTrt"]

_FIRST_GOOD = (10, 9)


class ScatterndReductionAttrTrt(TargetRule):
    """A ScatterND has the attribute `reduction`, which old parsers of TensorRT refuse.

    ## What it does

    Looks for a ScatterND that has an attribute `reduction`, whatever its value, for TensorRT below
    10.9.

    ## Why is this bad?

    The parsers of these releases refuse the model as soon as the attribute is there, even where it
    says `none`, which is the default. Exporters and onnxruntime's optimiser write the default out.

    ## Fix safety

    The fix takes `reduction="none"` away. That is the default of every opset that has the
    attribute, so that the meaning stays. There is no fix for another reduction.

    ## References

    - onnx-tensorrt, docs/operators.md of 10.0 and 10.1: ScatterND, "`reduction` is not supported".
    - [ScatterND](https://onnx.ai/onnx/operators/onnx__ScatterND.html), `reduction`: "none
      (default)".
    """

    code = "KV205"
    name = "scatternd-reduction-attr-trt"
    severity = "warning"
    basis = "constant"
    fix = "safe"
    runtime = "tensorrt"
    example_target = "tensorrt@10.0"

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[7, 2, 5] past, int64[3, 1] index, float[3, 2, 5] update)
            => (float[7, 2, 5] present) {
            [cache] present = ScatterND <reduction: string = "none"> (past, index, update)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18]>
        decoder (float[7, 2, 5] past, int64[3, 1] index, float[3, 2, 5] update)
            => (float[7, 2, 5] present) {
            [cache] present = ScatterND (past, index, update)
        }
    """

    def check(self, context: Context, target: Target) -> Iterator[Finding]:
        """Look at the attribute of each ScatterND."""
        version = tuple(int(part) for part in target.asked.rpartition(" ")[2].split("."))
        if version >= _FIRST_GOOD:
            return
        for site in context.sites:
            node = site.node
            if node.op_type != "ScatterND" or node.domain or "reduction" not in node.attributes:
                continue
            given = node.attributes["reduction"]
            is_default = not given.is_ref() and given.value == "none"
            shown = "" if given.is_ref() else f'="{given.value}"'
            yield self.found(
                site.location(),
                f"has the attribute `reduction`{shown}, which {target.asked} refuses",
                help="leave the default out"
                if is_default
                else "use TensorRT 10.9 or later, or a graph without a reduction",
                fix=_drop(node) if is_default else None,
            )


def _drop(node: ir.Node) -> Fix:
    from onnx_kvtool.lint.finding import Fix

    def apply() -> None:
        node.attributes.pop("reduction", None)

    return Fix("safe", "remove `reduction=none`, the default", apply)
