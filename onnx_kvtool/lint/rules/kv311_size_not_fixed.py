"""KV311: the runtime is given models of fixed sizes only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import TargetRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding
    from onnx_kvtool.targets.target import Target

__all__ = ["SizeNotFixed"]


class SizeNotFixed(TargetRule):
    """The release is given models of fixed sizes only, and a size of this one is not fixed.

    ## What it does

    With `--target`, looks for dimensions of inputs that are names or unknown, each name once; where
    there are none, for nodes that give as many elements as others say, such as NonZero. Only
    releases with which models of symbolic sizes were measured to be wrong ask for it.
    `kvtool lower --target` refuses the same models.

    ## Why is this bad?

    The model compiles, and its results are wrong, or the process dies: IREE takes a dimension that
    it does not know for one that is not broadcast.

    ## References

    - `kvtool targets iree` tells what was measured.
    - [Shapes](https://onnx.ai/onnx/repo-docs/IR.html#static-tensor-shapes)
    """

    code = "KV311"
    name = "size-not-fixed"
    severity = "error"
    basis = "symbolic"
    runtime = "any"
    example_target = "iree@3.13.0"

    bad = """
        <ir_version: 10, opset_import: ["": 22]>
        decoder (float["batch", 3] x, float[3] bias) => (float["batch", 3] y) {
            y = Add (x, bias)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 22]>
        decoder (float[2, 3] x, float[3] bias) => (float[2, 3] y) {
            y = Add (x, bias)
        }
    """

    def check(self, context: Context, target: Target) -> Iterator[Finding]:
        """Look at the inputs, then at what depends on elements."""
        from onnx_kvtool.analysis.unfixed import unfixed_inputs
        from onnx_kvtool.lint.facts.release import runtime_words
        from onnx_kvtool.ops.schema import is_standard
        from onnx_kvtool.ops.traits import Trait, traits
        from onnx_kvtool.symbolic.dims import dims_of

        if target.release.static is None:
            return
        who = f"{runtime_words(target)} {target.release.static}"
        found = list(unfixed_inputs(context.model))
        for one in found:
            help = one.help
            if one.code == "symbolic-dimension":
                help = f"{one.help} when the model is lowered for this release"
            yield self.found(one.location, f"{who}: {one.message}", help=help)
        for site in () if found else context.sites:
            if not is_standard(site.node) or Trait.COUNTS not in traits(site.node):
                continue
            dims = [dims_of(output) for output in site.node.outputs if output.name]
            if all(d is not None and all(isinstance(n, int) for n in d) for d in dims):
                continue
            yield self.found(
                site.location(),
                f"{who}: the size of what `{site.node.op_type}` gives depends on elements",
                help="export the model without the node: no size fixes it",
            )
