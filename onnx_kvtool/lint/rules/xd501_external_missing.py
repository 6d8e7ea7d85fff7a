"""XD501: a data file is not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from onnx_kvtool.lint.reference_rule import ReferenceRule

__all__ = ["ExternalMissing"]


class ExternalMissing(ReferenceRule):
    """The file with the data of a tensor is not there, or is no regular file.

    ## What it does

    Looks up each file that a tensor with external data names, relative to the directory of the
    model, and says once per file that it is missing, that it cannot be looked up, or that it is a
    directory, a device or a pipe.

    ## Why is this bad?

    The model does not load. Mostly the model was copied without its data, or the data is kept by
    Git LFS and was not fetched.

    ## References

    - [External data](https://github.com/onnx/onnx/blob/main/docs/ExternalData.md), `location`:
      "file path relative to the filesystem directory where the ONNX protobuf model was stored".
    - onnx.checker 1.23.2: "but it doesn't exist or is not accessible".
    """

    code = "XD501"
    name = "external-missing"
    severity = "error"
    basis = "constant"
    problems = frozenset({"external-missing", "external-file"})
    by_file = True
    example_files: ClassVar[Mapping[str, int]] = {"weights.bin": 24}

    bad = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y)
            <float[2, 3] w = ["location": "missing.bin"]> {
            y = Add (x, w)
        }
    """
    good = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y)
            <float[2, 3] w = ["location": "weights.bin"]> {
            y = Add (x, w)
        }
    """
