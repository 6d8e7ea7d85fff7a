"""KV309: the opset or the IR version of the model is outside of what the runtime loads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import TargetRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding
    from onnx_kvtool.targets.target import Target

__all__ = ["VersionTooNew"]


class VersionTooNew(TargetRule):
    """The opset or the IR version of the model is higher than the release loads, or too low.

    ## What it does

    With `--target`, compares the opset of the default domain and the IR version with those that the
    release loads. A limit that is not known is no finding.

    ## Why is this bad?

    onnxruntime refuses a higher opset ("Current official support for domain ai.onnx is till opset
    N") and a higher IR version ("Unsupported model IR version"), each by itself, whatever operators
    the model uses. onnx writes the newest of both unless told otherwise, which no release may load.

    ## References

    - `kvtool targets` lists the versions that each release loads, and where that was measured or
      read.
    - [Compatibility of onnxruntime](https://onnxruntime.ai/docs/reference/compatibility.html).
    """

    code = "KV309"
    name = "version-too-new"
    severity = "error"
    basis = "constant"
    runtime = "any"
    example_target = "onnxruntime@1.22.1"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            y = Neg (x)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 22]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            y = Neg (x)
        }
    """

    def check(self, context: Context, target: Target) -> Iterator[Finding]:
        """Compare two numbers with two others."""
        from onnx_kvtool.core.location import Location
        from onnx_kvtool.lint.facts.release import lowering_command, runtime_words

        release, who = target.release, runtime_words(target)
        opset = context.model.opset_imports.get("")
        problems = []
        if opset is not None and opset > target.max_opset:
            problems.append(f"the opset is {opset}, and {who} loads {target.max_opset} at most")
        if opset is not None and release.min_opset is not None and opset < release.min_opset:
            problems.append(f"the opset is {opset}, and {who} loads {release.min_opset} at least")
        ir_version, highest = context.model.ir_version, release.max_ir_version
        if highest is not None and ir_version > highest:
            problems.append(f"the IR version is {ir_version}, and {who} loads {highest} at most")
        for problem in problems:
            yield self.found(
                Location(),
                problem,
                help=f"lower the model for this release: {lowering_command(target)}",
            )
