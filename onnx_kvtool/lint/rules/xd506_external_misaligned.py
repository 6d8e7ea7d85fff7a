"""XD506: external data does not begin at a page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.core.location import Location
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["ExternalMisaligned"]

_PAGE = 4096


class ExternalMisaligned(ModelRule):
    """The data of an external tensor does not begin at a multiple of the page size.

    ## What it does

    Looks for offsets that are no multiple of 4096, and says so once per file with the first of
    them. On Windows the granularity is 65536.

    There is no fix: the data would have to be written anew in full, to a file that other models may
    read at the offsets which they know. `--fix` changes no file but the model.

    ## Why is this bad?

    A runtime can map a tensor into memory at its place only where it begins with a page; others are
    copied, which takes the same memory once more while the model loads. For small tensors that does
    not matter.

    ## References

    - [External data](https://github.com/onnx/onnx/blob/main/docs/ExternalData.md), `offset`:
      "Offset values SHOULD be multiples of the page size (usually 4kb) to enable mmap support."
    """

    code = "XD506"
    name = "external-misaligned"
    severity = "info"
    basis = "constant"
    example_files: ClassVar[Mapping[str, int]] = {"weights.bin": 8192}

    bad = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y)
            <float[2, 3] w = ["location": "weights.bin", "offset": "100"]> {
            y = Add (x, w)
        }
    """
    good = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y)
            <float[2, 3] w = ["location": "weights.bin", "offset": "4096"]> {
            y = Add (x, w)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Look at the offsets; no file is looked at."""
        from onnx_kvtool.lint.reference_rule import more_tensors

        files: dict[str, list[tuple[Location, int]]] = {}
        for place, tensor in context.external_tensors:
            if (tensor.offset or 0) % _PAGE:
                files.setdefault(os.fspath(tensor.location), []).append((place, tensor.offset or 0))
        for location, found in files.items():
            place, offset = found[0]
            yield self.found(
                place,
                f"its data begins at byte {offset} of `{location}`, which is no multiple of {_PAGE}"
                + more_tensors(len(found)),
                help="write the data again: `onnx_ir.save(model, path, external_data=file)` aligns "
                "large tensors",
            )
