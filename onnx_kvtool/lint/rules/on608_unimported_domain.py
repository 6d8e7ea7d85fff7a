"""ON608: A node is of a domain of which no version is imported."""

from __future__ import annotations

from onnx_kvtool.lint.misuse_rule import MisuseRule

__all__ = ["UnimportedDomain"]


class UnimportedDomain(MisuseRule):
    """A node is of a domain of which no version is imported.

    ## What it does

    Looks for nodes whose domain the model, or the function in which they stand, does not import.
    There is one finding for each domain, at the first node.

    ## Why is this bad?

    Without a version nobody knows which operator is meant. onnx's checker and its shape inference
    refuse the model; onnxruntime 1.31 loads one with nodes of its own domain. It happens where a
    tool fuses nodes to operators of its own and forgets the import.

    ## References

    - [ONNX IR](https://onnx.ai/onnx/repo-docs/IR.html): "Each model MUST explicitly name the
      operator sets that it relies on for its functionality."
    """

    code = "ON608"
    name = "unimported-domain"
    severity = "error"
    basis = "constant"
    kind = "unimported-domain"

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2, 5] x) => (float[2, 5] y) {
            [act] y = com.microsoft.FastGelu (x)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]>
        main (float[2, 5] x) => (float[2, 5] y) {
            [act] y = com.microsoft.FastGelu (x)
        }
    """
