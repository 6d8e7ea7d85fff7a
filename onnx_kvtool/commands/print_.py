"""Print a model as text in onnx's own syntax, for `git diff` and for people."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnx_kvtool.commands.arguments import check_choice, spare_model, speaking_python
from onnx_kvtool.core.choices import PrintedWeights, words
from onnx_kvtool.core.errors import UnreadableModel
from onnx_kvtool.core.machine import Progress, silent
from onnx_kvtool.core.record import Record
from onnx_kvtool.core.words import counted, escape
from onnx_kvtool.model_io.model import read
from onnx_kvtool.model_io.model_source import ModelSource, open_model
from onnx_kvtool.model_io.origin import origin
from onnx_kvtool.model_io.remote import requests, shown
from onnx_kvtool.model_io.stored import file_digest
from onnx_kvtool.review.digests import Digests
from onnx_kvtool.review.printing import model_lines

__all__ = ["PrintRequest", "Printed", "print", "run"]


@dataclass(frozen=True, slots=True)
class PrintRequest:
    """What `kvtool print` was asked to do.

    Attributes:
        model: Path of the model, or `-` for standard input.
        weights: Which weights are read for a digest; see `print`.
        timeout: Seconds that each request to a web server may take; None for five minutes.
        output: Path to write the text to, `-` or None for standard output.
        textconv: Whether a file that is no model has a text as well, as git needs one.
    """

    model: str
    weights: PrintedWeights = "digest"
    timeout: float | None = None
    output: str | None = None
    textconv: bool = False


@dataclass(frozen=True, slots=True)
class Printed(Record):
    """A model as text.

    Attributes:
        model: Path of the model.
        weights: Which weights were read for a digest.
        lines: The text.
        notes: What is not in the text, and why.
    """

    model: str
    weights: PrintedWeights
    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()


@speaking_python
def print(
    model: ModelSource, *, weights: PrintedWeights = "digest", timeout: float | None = None
) -> str:
    """Return a model as text that is the same for equal models, in the syntax of `onnx.parser`.

    Opset imports, functions, metadata, initializers, declarations of inner values and attributes
    are sorted; inputs, outputs and nodes stand in the order of the file. It does not matter
    whether values stand in `raw_data`, in another field or in another file. What the syntax has no
    place for (metadata and remarks below the model, quantization) stands in comments.

    Tensors of up to 16 integers, booleans or texts, or 4 floats, are shown by value; of others the
    first 128 bits of the SHA-256 of their bytes. They are read some megabytes at a time.

    Args:
        model: A model, which is not changed, or the path of one.
        weights: `digest` reads every weight; those whose file is missing are told by their place.
            `embedded` reads what the model file itself holds, and tells all others by their place:
            this is what git knows of the file. `none` shows nothing of large tensors but type and
            shape.
        timeout: Seconds that each request to a web server may take, where the model is at a URL;
            None for five minutes.

    Returns:
        The text, without a line end behind the last line. `onnx.parser.parse_model` reads it, but
        for types, sparse constants and domains that its syntax does not have.

    Raises:
        UnreadableModel: If the model cannot be read, or a data file that is there cannot be
            trusted or ends early.
        UsageError: If `weights` is none of these words.

    Examples:
        >>> text = kv.print("decoder.onnx")
        >>> print(text.splitlines()[1])
           ir_version: 11,
    """
    check_choice("weights", weights, words(PrintedWeights))
    with requests(timeout):
        loaded = open_model(model)
        return "\n".join(_print(loaded, origin(loaded).path, weights).lines)


def run(request: PrintRequest, progress: Progress = silent) -> Printed:
    """Carry out `kvtool print`, but for the writing of the text.

    Args:
        request: What to do.
        progress: Told of what is begun.

    Raises:
        UnreadableModel: If the model or its data cannot be read, but for `textconv`.
        UsageError: If the text would overwrite the model.
    """
    try:
        with requests(request.timeout) as notes:
            printed = _run(request, progress)
        return replace(printed, notes=(*notes, *printed.notes))
    except UnreadableModel as error:
        if not request.textconv:
            raise
        lines = tuple(f"# {line}" for line in _of_no_model(request.model, error))
        return Printed(request.model, request.weights, lines)


def _of_no_model(path: str, error: UnreadableModel) -> Iterator[str]:
    """Yield lines about a file that is no model, the same for the same file at any path."""
    yield escape(error.message.replace(f"`{path}`", f"`{os.path.basename(path)}`"))
    if os.path.isfile(path):
        yield f"{os.path.getsize(path):,} bytes, sha256 {file_digest(path)}"


def _run(request: PrintRequest, progress: Progress) -> Printed:
    progress("reading the model")
    model = read(request.model)
    if request.output is not None and request.output != "-":
        spare_model(model, request.output)
    progress("reading the weights")
    return _print(model, shown(request.model), request.weights)


def _print(model: ir.Model, path: str, weights: PrintedWeights) -> Printed:
    digests = Digests(weights)
    try:
        lines = tuple(model_lines(model, digests))
    except UnreadableModel as error:
        raise UnreadableModel(f"`{path}`: {error.message}", help=error.help) from error
    missing = digests.missing
    if not missing:
        return Printed(path, weights, lines)
    others = f", and {counted(len(missing) - 1, 'other')} alike" if len(missing) > 1 else ""
    note = f"{missing[0]}{others}; the text says where the data lies, in place of a digest"
    return Printed(path, weights, lines, (note,))
