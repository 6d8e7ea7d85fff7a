"""XD504: a data file does not hold what a tensor needs of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from onnx_kvtool.lint.reference_rule import ReferenceRule

__all__ = ["ExternalRange"]


class ExternalRange(ReferenceRule):
    """A reference goes beyond its data file, or its length does not fit the tensor.

    ## What it does

    Looks for references whose offset and size go beyond the end of the file, whose length differs
    from what shape and element type take (small elements packed), or that are about strings, which
    cannot be external.

    ## Why is this bad?

    The file was truncated, or belongs to another model. onnx's checker lets the model pass, and
    onnxruntime fails to load it; others read what follows in the file, or zeros.

    ## References

    - [External data](https://github.com/onnx/onnx/blob/main/docs/ExternalData.md): `offset` and
      `length`.
    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), `TensorProto.raw_data`:
      the form of the data.
    """

    code = "XD504"
    name = "external-range"
    severity = "error"
    basis = "constant"
    problems = frozenset({"external-range", "external-length", "external-type"})
    by_file = False
    example_files: ClassVar[Mapping[str, int]] = {"weights.bin": 24}

    bad = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y)
            <float[2, 3] w = ["location": "weights.bin", "offset": "8", "length": "24"]> {
            y = Add (x, w)
        }
    """
    good = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y)
            <float[2, 3] w = ["location": "weights.bin", "offset": "0", "length": "24"]> {
            y = Add (x, w)
        }
    """
