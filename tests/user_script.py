"""A program that a user writes, with what a type checker has to know of the library.

Lines with `type: ignore` are mistakes that a type checker has to find: without one, the comment is
an error itself.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

import onnx_kvtool as kv

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import assert_type


def deploy(path: str, target: str) -> ir.Model | None:
    """Return a model for a release, or None where it is refused."""
    try:
        lowered, report = kv.lower(path, target=target, verify_budget="256MiB,5s")
    except kv.Refused as error:
        sys.stderr.writelines(f"{one.location}: {one.message}\n" for one in error.report.refused)
        return None
    if TYPE_CHECKING:
        assert_type(lowered, ir.Model)
        assert_type(report, kv.LowerReport)
        assert_type(report.target_opset, int)
    return lowered


def cost(path: str) -> float:
    """Return what a token takes in all caches."""
    report = kv.inspect(path, dims={"batch": 2})
    return sum(cache.bytes_per_token or 0 for cache in report.caches)


def errors(paths: list[str]) -> list[kv.Finding]:
    """Return the findings that are errors."""
    return [one for one in kv.check(paths, select=["KV", "MD"]) if one.severity == "error"]


def tokens(model: str | ir.Model) -> NDArray[np.int64]:
    """Return a prompt and the tokens that follow."""
    decoder = kv.Decoder(model, threads=1)
    return decoder.generate([[5, 3, 7]], steps=4, temperature=0.7, seed=1)


def main(path: str) -> int:
    """Use each part of the library once."""
    model = kv.load(path)
    message = onnx.load(path)
    lowered = deploy(path, "onnxruntime@1.17")
    assert lowered is not None
    verified = kv.verify(model, lowered, cases=2)
    changed = kv.diff(message, lowered)
    _, shapes = kv.infer(model)
    first, second = kv.evaluate(message, random=True), kv.evaluate(model, random=True)
    session = kv.ReferenceEvaluator(message)
    same = all(np.array_equal(first[name], second[name]) for name in session.output_names)
    if TYPE_CHECKING:
        assert_type(shapes, kv.InferReport)
        assert_type(changed, kv.DiffReport)
        assert_type(verified, kv.VerifyReport)

        kv.lower(path, opsett=18)  # type: ignore[call-arg]
        kv.lower(path, opset="18")  # type: ignore[arg-type]
        kv.verify(path)  # type: ignore[call-arg]
        len(kv.inspect(path).cachess)  # type: ignore[attr-defined]
        kv.Decoder(path, threads="1")  # type: ignore[arg-type]
    assert (verified.status, changed.status, same) == ("equal", "different", True)
    return 0 if cost(path) == 512 and not errors([path]) and tokens(lowered).shape == (1, 4) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
