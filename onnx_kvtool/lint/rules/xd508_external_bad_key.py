"""XD508: a reference to external data has an entry that means nothing, or a wrong checksum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["ExternalBadKey"]

_KNOWN = frozenset({"checksum", "basepath"})
_ONNXRUNTIME = "prepacked_"


class ExternalBadKey(ModelRule):
    """A reference to external data has an unknown key, or a checksum that does not fit.

    ## What it does

    Looks for entries of `external_data` with other keys than `location`, `offset`, `length`,
    `checksum` and `basepath`, or those of onnxruntime for weights that it has packed, and compares
    each `checksum` with the SHA-1 digest of the file. An offset or length that is no decimal number
    cannot be read at all and is [MD400](MD400.md).

    ## Why is this bad?

    An unknown key is mostly a misspelt one, whose value counts for nothing: `lenght`. Older
    releases of onnx set an attribute of the tensor for every key, which let a file change the
    behaviour of the program. A wrong checksum says that the data is not what the model was written
    with.

    ## Fix safety

    Removing unknown keys is safe: no reader goes by them. A wrong checksum has no fix, as the data
    itself may be wrong.

    ## References

    - [External data](https://github.com/onnx/onnx/blob/main/docs/ExternalData.md): "Recognized
      keys", `checksum`: "SHA1 digest of file specified in under 'location' key".
    - CVE-2026-34445.
    """

    code = "XD508"
    name = "external-bad-key"
    severity = "warning"
    basis = "constant"
    fix = "safe"
    example_files: ClassVar[Mapping[str, int]] = {"weights.bin": 24}

    bad = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y)
            <float[2, 3] w = ["location": "weights.bin", "lenght": "24"]> {
            y = Add (x, w)
        }
    """
    good = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y)
            <float[2, 3] w = ["location": "weights.bin", "length": "24"]> {
            y = Add (x, w)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Look at what stands besides location, offset and length."""
        import os

        from onnx_kvtool.core.files.references import ReferenceJudge
        from onnx_kvtool.core.messages.carried import external_extras
        from onnx_kvtool.core.quantity import counted, enumerated
        from onnx_kvtool.lint.finding import Fix

        judge = ReferenceJudge(need_bytes=True)
        digests: dict[str, str] = {}
        for place, tensor in context.external_tensors:
            extras = external_extras(tensor)
            unknown = [k for k, _ in extras if k not in _KNOWN and not k.startswith(_ONNXRUNTIME)]
            if unknown:
                what = counted(len(unknown), "unknown key")
                yield self.found(
                    place,
                    f"its external data has {what}: {enumerated(unknown)}",
                    help="the keys are `location`, `offset`, `length` and `checksum`",
                    fix=Fix("safe", f"remove {enumerated(unknown)}", _removing(tensor, unknown)),
                )
            for given in (value for key, value in extras if key == "checksum"):
                if judge.judge(tensor) is not None:
                    continue  # a file that may not be read is not read
                path = os.path.realpath(tensor.path)
                if path not in digests:
                    digests[path] = _sha1(path)
                if given.lower() != digests[path]:
                    yield self.found(
                        place,
                        f"the checksum of `{tensor.location}` is {digests[path]}, and the model "
                        f"says {given[:40]}",
                        help="copy or download the data file again",
                    )


def _sha1(path: str) -> str:
    """Return the digest of a file, or a word that is none where it cannot be read."""
    from onnx_kvtool.core.files.digests import digest, file_pieces

    try:
        return digest(file_pieces(path), "sha1")
    except OSError as error:
        return f"unreadable ({error.strerror or error})"


def _removing(tensor: ir.ExternalTensor, keys: list[str]) -> Callable[[], None]:
    def apply() -> None:
        from onnx_kvtool.core.messages.carried import drop_external_extras

        drop_external_extras(tensor, keys)

    return apply
