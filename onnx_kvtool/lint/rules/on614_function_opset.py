"""ON614: a function and the model mean different versions of an operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["FunctionOpset"]


class FunctionOpset(ModelRule):
    """A model-local function and the model mean different versions of an operator.

    ## What it does

    Looks at the nodes of functions that import another version of the default domain than the
    model. A node is meant whose operator has another version there, or none; there is one finding
    for each operator of a function.

    ## Why is this bad?

    A function may be inlined into the model, and its nodes would mean something else there. onnx's
    checker refuses the model.

    ## References

    - [ONNX IR, functions](https://onnx.ai/onnx/repo-docs/IR.html#functions): "The operator sets
      imported by FunctionProto should be compatible with the ones imported by ModelProto".
    """

    code = "ON614"
    name = "function-opset"
    severity = "error"
    basis = "constant"

    bad = """
        <ir_version: 10, opset_import: ["": 18, "local": 1]>
        main (float[2, 5] x) => (float[2, 5] y) {
            [probabilities] y = local.normal (x)
        }
        <opset_import: ["": 12], domain: "local"> normal (a) => (b) {
            [inner] b = Softmax (a)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18, "local": 1]>
        main (float[2, 5] x) => (float[2, 5] y) {
            [probabilities] y = local.normal (x)
        }
        <opset_import: ["": 13], domain: "local"> normal (a) => (b) {
            [inner] b = Softmax (a)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Compare the two versions of each operator."""
        from onnx_kvtool.ops.schema import op_facts

        model = context.model.opset_imports.get("")
        if model is None or not context.model.functions:
            return
        seen: set[tuple[int, str]] = set()
        for site in context.sites:
            node, here = site.node, site.opset
            if site.root is context.model.graph or node.domain or here in (None, model):
                continue
            if (id(site.root), node.op_type) in seen:
                continue
            assert here is not None
            one, other = op_facts(node.op_type, here), op_facts(node.op_type, model)
            if (one and one.since_version) == (other and other.since_version):
                continue
            seen.add((id(site.root), node.op_type))
            versions = [f"version {f.since_version}" if f else "no version" for f in (one, other)]
            yield self.found(
                site.location(),
                f"`{node.op_type}` has {versions[0]} at opset {here} of the function and "
                f"{versions[1]} at opset {model} of the model",
                help="write the function for the opset of the model, or inline it and convert it",
            )
