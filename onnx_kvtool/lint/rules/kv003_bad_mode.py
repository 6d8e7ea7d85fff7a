"""KV003: the mode of a TensorScatter is neither linear nor circular."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import NodeRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Finding

__all__ = ["BadMode"]


class BadMode(NodeRule):
    """The mode of a TensorScatter is neither linear nor circular.

    ## What it does

    Looks for a TensorScatter whose `mode` is any other string than `linear` and `circular`.

    ## Why is this bad?

    The operator has no other modes. onnx's checker, its full check included, lets such a model
    pass; onnxruntime refuses to load it.

    ## References

    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html), `mode`: "It can
      be either `linear` or `circular`."
    """

    code = "KV003"
    name = "bad-mode"
    severity = "error"
    basis = "constant"
    operators = ("TensorScatter",)

    bad = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <mode: string = "ring"> (past, update, start)
        }
    """
    good = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter <mode: string = "circular"> (past, update, start)
        }
    """

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Read the node through its view, which refuses another mode."""
        from onnx_kvtool.ops.tensor_scatter import TensorScatter
        from onnx_kvtool.ops.view import MalformedNode

        if site.opset is None:
            return
        try:
            TensorScatter(site.node, site.opset)
        except MalformedNode as error:
            if error.code == self.name:
                yield self.found(
                    site.location(),
                    error.message,
                    help="write `linear`, or `circular` for a cache that starts again at its front",
                )
