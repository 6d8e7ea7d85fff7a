"""MD401: the IR version is older than the one that was released with the opset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["IrTooOldForOpset"]


class IrTooOldForOpset(ModelRule):
    """The IR version is older than the one that was released together with the opset.

    ## What it does

    Compares the IR version of the model with that of the release of onnx that brought its opset: 11
    for opset 23, 12 for 24, 13 for 25 to 27, 14 for 28. An opset that is newer than the installed
    onnx is left alone.

    ## Why is this bad?

    Mostly it is not, which is why it is an information: the two versions are separate labels,
    onnx's checker and onnxruntime accept any pair, and an older IR version loads in more releases.
    But a reader that chooses its rules by the IR version, as one does for element types, functions
    and metadata, applies rules that are older than the operators. What a model uses and its IR
    version has not is an error, [ON613](ON613.md).

    ## Fix safety

    The fix is safe: it raises the label alone. What newer IR versions allow is optional, and what
    the model holds already means the same in them. A runtime that loads the opset may have a limit
    for IR versions; ask with `--target`.

    ## References

    - [Versioning](https://github.com/onnx/onnx/blob/main/docs/Versioning.md#released-versions): the
      table of released versions.
    """

    code = "MD401"
    name = "ir-too-old-for-opset"
    severity = "info"
    basis = "constant"
    fix = "safe"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            y = Neg (x)
        }
    """
    good = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            y = Neg (x)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Look the opset up in onnx's own table of releases."""
        import onnx.helper

        from onnx_kvtool.core.location import Location
        from onnx_kvtool.lint.finding import Fix

        model = context.model
        opset = model.opset_imports.get("")
        wanted = onnx.helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", opset or 0))
        if wanted is not None and 0 < model.ir_version < wanted:
            yield self.found(
                Location(),
                f"the IR version is {model.ir_version}, and opset {opset} came with IR version "
                f"{wanted}",
                help=f"raise the IR version to {wanted}",
                fix=Fix("safe", f"raise the IR version to {wanted}", _raising(model, wanted)),
            )


def _raising(model: ir.Model, version: int) -> Callable[[], None]:
    def apply() -> None:
        model.ir_version = max(model.ir_version, version)

    return apply
