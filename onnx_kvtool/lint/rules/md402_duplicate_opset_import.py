"""MD402: one domain of operators is imported at two versions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from onnx_kvtool.lint.defect_rule import DefectRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["DuplicateOpsetImport"]


class DuplicateOpsetImport(DefectRule):
    """A model or function imports one domain of operators at two versions.

    ## What it does

    Looks for a domain that stands twice in `opset_import` with different versions. The empty domain
    and `ai.onnx` are two spellings of one.

    ## Why is this bad?

    Every node of the domain means the operator of one of the two versions. onnx and onnxruntime
    take the last entry in silence; other readers take the first or refuse the model.

    ## Fix safety

    The fix is safe: it keeps the last entry, which is the one that onnx and onnxruntime go by.

    ## References

    - [IR of ONNX](https://github.com/onnx/onnx/blob/main/docs/IR.md): a model imports each operator
      set once.
    - onnx 1.23.2 and onnxruntime 1.31.1: the last of several entries counts.
    """

    code = "MD402"
    name = "duplicate-opset-import"
    severity = "error"
    basis = "constant"
    fix = "safe"
    defect = "duplicate-opset-import"

    bad = """
        <ir_version: 10, opset_import: ["": 18, "": 21]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            y = Neg (x)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 21]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            y = Neg (x)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Hand on the defect, with the fix."""
        from onnx_kvtool.core.origin import settle
        from onnx_kvtool.lint.finding import Fix

        for finding in super().check(context):
            # Reading has kept the last entry alone, so that writing is all there is to do.
            keep = partial(settle, context.model, self.defect, [finding.location])
            yield replace(finding, fix=Fix("safe", "keep the last entry", keep))
