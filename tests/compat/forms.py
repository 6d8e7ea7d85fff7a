"""What a release is given of a decoder: one file, or one of fixed sizes for each run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.report import Refused
from tests.compat.decoders import STEPS, Fed, made, source, steps
from tests.growing_models import Arrays

__all__ = ["BATCHES", "Form", "forms"]

BATCHES = (1, 2)
"""Numbers of sequences that each is asked of."""


@dataclass(frozen=True)
class Form:
    """A decoder as a release is given it.

    Attributes:
        path: Of the file.
        fixed: Whether it has the sizes of one run, because the release takes no other.
        runs: The step, the number of sequences, and what is fed: all there are, or this one.
    """

    path: Path
    fixed: bool
    runs: list[tuple[str, int, Fed]]


def forms(decoder: str, target: str, directory: Path) -> Iterator[Form]:
    """Lower a decoder for a release: once, or once for each run where it takes fixed sizes only.

    Args:
        decoder: Name of the decoder.
        target: `RUNTIME@VERSION`.
        directory: Where the files are written.

    Raises:
        Refused: If the release cannot be given the model, and `--dim` is not the remedy, or none.
    """
    runs = [
        (step, batch, fed)
        for batch in BATCHES
        for step, fed in zip(STEPS, steps(decoder, batch), strict=True)
    ]
    path = directory / "model.onnx"
    try:
        _lower(decoder, target, None, path)
    except Refused as refused:
        if "--dim" not in (refused.report.refused[0].help or ""):
            raise
    else:
        yield Form(path, False, runs)
        return
    for step, batch, fed in runs:
        path = directory / f"{step}{batch}.onnx"
        _lower(decoder, target, fed[0], path)
        yield Form(path, True, [(step, batch, fed)])


def _lower(decoder: str, target: str, feeds: Arrays | None, path: Path) -> None:
    """Write a decoder for a release.

    Args:
        decoder: Its name.
        target: The release.
        feeds: Inputs whose sizes the model shall have, and nothing in it any other; None where any
            sizes shall do.
        path: Of the file.

    Raises:
        Refused: If the release cannot be given the model.
    """
    model, dims = onnx.load_from_string(source(decoder)), dict[str, int]()
    if feeds is not None:
        model = onnx.load_from_string(made(decoder, _sizes(model, feeds)))
        dims = _sizes(model, feeds)
    result, _ = kv.lower(model, target=target, dims=dims, verify=False)
    path.write_bytes(serialize(result))


def _sizes(model: onnx.ModelProto, feeds: Arrays) -> dict[str, int]:
    """Return the sizes of the names that dimensions of inputs have; a sum ends in new tokens."""
    found = {
        dim.dim_param: size
        for value in model.graph.input
        for dim, size in zip(value.type.tensor_type.shape.dim, feeds[value.name].shape, strict=True)
        if dim.dim_param
    }
    sizes = {name: size for name, size in found.items() if " + " not in name}
    for name in found.keys() - sizes.keys():
        before, new = name.split(" + ")
        sizes.setdefault(new, feeds["input_ids"].shape[1])
        sizes.setdefault(before, found[name] - sizes[new])
    return sizes
