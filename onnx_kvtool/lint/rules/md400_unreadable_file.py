"""MD400: a file that was to be checked cannot be read."""

from __future__ import annotations

from onnx_kvtool.lint.rule import RunRule

__all__ = ["UnreadableFile"]


class UnreadableFile(RunRule):
    """A file that was to be checked cannot be read.

    ## What it does

    Stands for a file that is missing, empty, truncated, larger than a protobuf message can be, or
    no ONNX model. Checked by itself, such a file ends `kvtool check` with exit code 3; among
    several it is this finding, and the others are checked all the same. A model that contradicts
    itself, such as one in which two nodes give one value, is this finding in any case.

    ## Why is this bad?

    Nothing is known of the model, and no runtime will load it. The usual causes in a repository are
    a Git LFS pointer whose content was never fetched, an interrupted download, and a file that is
    no model but ends in `.onnx`.

    ## References

    - [ONNX IR](https://onnx.ai/onnx/repo-docs/IR.html): a model file is one serialized `ModelProto`
      message.
    """

    code = "MD400"
    name = "unreadable-file"
    severity = "error"
    basis = "constant"

    bad = """
        version https://git-lfs.github.com/spec/v1
        oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393
        size 12345
    """
    good = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) {
            y = Relu (x)
        }
    """
