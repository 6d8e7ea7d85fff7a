"""XD503: a data file is a link."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.core.location import Location
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["ExternalSymlink"]


class ExternalSymlink(ModelRule):
    """A data file is a symbolic link, or has another hard link.

    ## What it does

    Looks for data files in the directory of the model that are reached through a symbolic link or
    have more than one name in the file system. In a snapshot of the Hugging Face hub's cache, where
    every file is a link into `blobs`, the finding is an information. Links that lead elsewhere are
    [XD502](XD502.md).

    ## Why is this bad?

    onnx refuses linked data files from 1.21 on, as it cannot tell a harmless link from an attack:
    `onnx.load` fails on a model that onnxruntime loads.

    ## References

    - onnx 1.21 and later: `onnx.load` refuses symbolic links and files with several hard links
      ([onnx#7717](https://github.com/onnx/onnx/issues/7717)); onnxruntime 1.31.1 loads both.
    - [Cache of the Hugging Face hub](https://huggingface.co/docs/huggingface_hub/guides/manage-cache).
    """

    code = "XD503"
    name = "external-symlink"
    severity = "warning"
    basis = "constant"
    example_files: ClassVar[Mapping[str, int]] = {"weights.bin": 24}
    example_links: ClassVar[Mapping[str, str]] = {"link.bin": "weights.bin"}

    bad = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y)
            <float[2, 3] w = ["location": "link.bin"]> {
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

    def check(self, context: Context) -> Iterator[Finding]:
        """Look at each data file that may be read at all."""
        from onnx_kvtool.core.files.references import ReferenceJudge
        from onnx_kvtool.lint.reference_rule import more_tensors

        judge = ReferenceJudge(need_bytes=True)
        files: dict[tuple[str, str], list[Location]] = {}
        for place, tensor in context.external_tensors:
            problem = judge.judge(tensor)
            if problem is None or problem.code in ("external-range", "external-length"):
                key = (os.fspath(tensor.base_dir) or ".", os.fspath(tensor.location))
                files.setdefault(key, []).append(place)
        for (base, location), places in files.items():
            what, is_outside = _link(base, location)
            if what is not None:
                yield self.found(
                    places[0],
                    f"its data file `{location}` {what}{more_tensors(len(places))}",
                    help="copy the file, so that onnx can load the model",
                    severity="info" if is_outside else None,
                )


def _link(base: str, location: str) -> tuple[str | None, bool]:
    """Return what kind of link a file is, if any, and whether it leads out of the directory.

    Of those that may, the cache of the hub is the only kind.
    """
    path = os.path.join(base, location)
    directory, real = os.path.realpath(base), os.path.realpath(path)
    if real != os.path.normpath(os.path.join(directory, location)):
        is_outside = not real.startswith(os.path.join(directory, ""))
        where = "the cache of the hub" if is_outside else f"`{os.path.relpath(real, directory)}`"
        return f"is a symbolic link to {where}", is_outside
    try:
        count = os.stat(path).st_nlink
    except OSError:
        return None, False  # what cannot be looked up is XD501
    return (f"has {count} hard links", False) if count > 1 else (None, False)
