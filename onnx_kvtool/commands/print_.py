"""Print a model as text in onnx's own syntax, for `git diff` and for people."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnx_kvtool.commands.arguments import asked, spare_model
from onnx_kvtool.commands.options import path_in
from onnx_kvtool.commands.requests import PrintRequest
from onnx_kvtool.core.choices import PrintedWeights
from onnx_kvtool.core.errors import UnreadableModel
from onnx_kvtool.core.machine import Progress, silent
from onnx_kvtool.core.record import Record
from onnx_kvtool.core.words import counted, escape
from onnx_kvtool.model_io.model import origin, read
from onnx_kvtool.model_io.model_source import open_model
from onnx_kvtool.model_io.remote import requests, shown
from onnx_kvtool.model_io.stored import file_digest
from onnx_kvtool.review.digests import Digests
from onnx_kvtool.review.printing import model_lines


@dataclass(frozen=True, slots=True)
class Printed(Record):
    """A model as text.

    Attributes:
        model: Path of the model.
        weights: The weights that were read for a digest.
        lines: The text.
        notes: What the text omits, and why.
    """

    model: str
    weights: PrintedWeights
    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()


@asked(PrintRequest)
def print(request: PrintRequest) -> str:
    """Return a model as text that is the same for equal models, in the syntax of `onnx.parser`.

    Opset imports, functions, metadata, initializers, declarations of inner values and attributes
    are sorted; inputs, outputs and nodes stand in the order of the file. It does not matter
    whether values stand in `raw_data`, in another field or in another file. What the syntax has no
    place for (metadata and remarks below the model, quantization) stands in comments.

    Tensors of up to 16 integers, booleans or texts, or 4 floats, are shown by value; of others the
    first 128 bits of the SHA-256 of their bytes. They are read some megabytes at a time.

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
    with requests(request.timeout):
        loaded = open_model(request.model)
        return "\n".join(_print(loaded, origin(loaded).path, request.weights).lines)


def run(request: PrintRequest, progress: Progress = silent) -> Printed:
    """Carry out `kvtool print`, but for the writing of the text.

    Args:
        request: What to do.
        progress: Receives the current activity.

    Raises:
        UnreadableModel: If the model or its data cannot be read, but for `textconv`.
        UsageError: If the text would overwrite the model.
    """
    path = path_in(request.model)
    try:
        with requests(request.timeout) as notes:
            progress("reading the model")
            model = read(path)
            spare_model(model, request.output)
            progress("reading the weights")
            printed = _print(model, shown(path), request.weights)
        return replace(printed, notes=(*notes, *printed.notes))
    except UnreadableModel as error:
        if not request.textconv:
            raise
        # The same for the same file at any path.
        text = escape(error.message.replace(f"`{path}`", f"`{os.path.basename(path)}`"))
        lines = [f"# {text}"]
        if os.path.isfile(path):
            lines.append(f"# {os.path.getsize(path):,} bytes, sha256 {file_digest(path)}")
        return Printed(path, request.weights, tuple(lines))


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
