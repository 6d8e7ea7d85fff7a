"""KV301: onnxruntime copies each cache at each step unless the caller binds one buffer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import TargetRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding
    from onnx_kvtool.targets.target import Target

__all__ = ["OrtNotInPlace"]


class OrtNotInPlace(TargetRule):
    """A plain `run()` of onnxruntime copies the caches that it could update in place.

    ## What it does

    With `--target onnxruntime`, says once per model how many caches a TensorScatter updates from an
    input to an output. Nothing is wrong with such a model: the caller has to do something.

    ## Why is this bad?

    onnxruntime allocates a new output at each `run()` and copies the past into it, although a token
    changes a single row. It says so once per node and run on standard error. Only where the caller
    binds past and present to one buffer is nothing copied.

    ## References

    - [IO binding of onnxruntime](https://onnxruntime.ai/docs/api/python/api_summary.html#iobinding):
      `bind_input` and `bind_output` with one `OrtValue`.
    - onnxruntime 1.25 to 1.31, CPU provider: the kernel of TensorScatter warns about the copy where
      past and present have two buffers.
    """

    code = "KV301"
    name = "ort-not-in-place"
    severity = "info"
    basis = "symbolic"
    runtime = "onnxruntime"
    example_target = "onnxruntime@1.31.1"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {
            [cache] present = TensorScatter (past, update, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, L, 5] past, float[2, 3, 1, 5] update)
            => (float[2, 3, M, 5] present) {
            [cache] present = Concat <axis: int = 2> (past, update)
        }
    """

    def check(self, context: Context, target: Target) -> Iterator[Finding]:
        """Count the caches that could be updated in place."""
        from onnx_kvtool.core.quantity import counted
        from onnx_kvtool.lint.facts.release import has_operator, runtime_words

        if not has_operator(target, "TensorScatter-24"):
            return
        caches = [c for c in context.caches if c.kind == "tensor_scatter" and c.in_place.possible]
        if caches:
            first = caches[0]
            yield self.found(
                first.location,
                f"a plain `run()` of {runtime_words(target)} copies "
                f"{counted(len(caches), 'cache')} "
                f"at each step, `{first.past}` first",
                help="bind past and present of each cache to one buffer with IO binding",
            )
