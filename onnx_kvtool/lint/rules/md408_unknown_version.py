"""MD408: nobody knows the IR version or an opset of the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["UnknownVersion"]


class UnknownVersion(ModelRule):
    """The IR version or the version of ONNX's operators is none that the installed onnx knows.

    ## What it does

    Compares the IR version, and the version of the default domain that the model and its functions
    import, with the newest that the installed onnx knows, and looks for versions that are not
    positive.

    ## Why is this bad?

    What such a version means is not known here: onnx's checker refuses it, and what other rules say
    of the model goes by the newest version that is known. Mostly the number is a mistake; else the
    tools are too old for the model.

    ## References

    - onnx.checker 1.23.2: "Your model ir_version ... is higher than the checker's", "Opset import
      version ... is out of supported range".
    """

    code = "MD408"
    name = "unknown-version"
    severity = "error"
    basis = "constant"

    bad = """
        <ir_version: 10, opset_import: ["": 240]>
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
        """Compare numbers with those of the installed onnx."""
        import onnx

        from onnx_kvtool.core.location import Location
        from onnx_kvtool.core.walk import function_path
        from onnx_kvtool.ops.schema import NEWEST

        newest_ir = int(onnx.IR_VERSION)
        remedy = "correct the version, or install a newer onnx"
        if context.model.ir_version > newest_ir:
            yield self.found(
                Location(),
                f"the IR version is {context.model.ir_version}, and onnx {onnx.__version__} knows "
                f"{newest_ir} at most",
                help=remedy,
            )
        places = [(Location(), context.model.opset_imports)]
        for function in context.model.functions.values():
            path = function_path(function.domain, function.name, function.overload)
            places.append((Location(path), function.opset_imports))
        for place, imports in places:
            for domain, version in imports.items():
                name = domain or "ai.onnx"
                if domain == "" and version > NEWEST:
                    text = f"and onnx {onnx.__version__} knows {NEWEST} at most"
                elif version < 1:
                    text = "and the lowest version is 1"
                else:
                    continue
                yield self.found(
                    place, f"imports `{name}` at version {version}, {text}", help=remedy
                )
