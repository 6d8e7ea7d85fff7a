"""XD502: a data file lies outside of the directory of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from onnx_kvtool.lint.reference_rule import ReferenceRule

__all__ = ["ExternalEscape"]


class ExternalEscape(ReferenceRule):
    """The data of a tensor lies outside of the directory of the model.

    ## What it does

    Looks for locations that are absolute, lead up by `..`, name a drive, are empty, or hold a null
    character, `::` or `://`, by the rules of POSIX, of Windows and of URLs alike, and for links
    that lead out of the directory of the model. Links of a Hugging Face hub snapshot into
    the `blobs` of the same repository may; see [XD503](XD503.md).

    ## Why is this bad?

    A model from a stranger can make a program read any file of the machine as weights, and hand it
    on in its results. Runtimes and onnx refuse such models since that was used.

    ## References

    - [External data](https://github.com/onnx/onnx/blob/main/docs/ExternalData.md), `location`:
      "Up-directory path components such as .. are disallowed".
    - CVE-2022-25882, CVE-2024-27318, CVE-2026-27489.
    """

    code = "XD502"
    name = "external-escape"
    severity = "error"
    basis = "constant"
    problems = frozenset({"external-escape"})
    by_file = True
    example_files: ClassVar[Mapping[str, int]] = {"weights.bin": 24}

    bad = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y)
            <float[2, 3] w = ["location": "../weights.bin"]> {
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
