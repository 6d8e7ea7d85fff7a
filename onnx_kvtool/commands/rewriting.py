"""What the commands that rewrite a model share: their output, and checks before and after."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

import onnx
import onnx.checker
import onnx_ir as ir

from onnx_kvtool.commands.arguments import check_sizes
from onnx_kvtool.core.collector import collector_paused
from onnx_kvtool.core.errors import UnreadableModel, UsageError
from onnx_kvtool.core.files.external_data import check_external_data, place_external_data
from onnx_kvtool.core.messages.weightless import weightless
from onnx_kvtool.core.model import origin, read, serialize, write
from onnx_kvtool.core.suggestion import unknown_name
from onnx_kvtool.symbolic.dims import dim_names, dims_of
from onnx_kvtool.symbolic.sizes import evaluate, names_in

__all__ = [
    "Report",
    "Request",
    "check_data",
    "check_dims",
    "check_output",
    "check_result",
    "output_path",
    "write_result",
]

ExternalData = Literal["reference", "link", "copy"]


class Request(Protocol):
    """What every request to rewrite a model says; see `LowerRequest` for the meaning."""

    @property
    def model(self) -> str:
        """Path of the model, or `-`."""

    @property
    def output(self) -> str | None:
        """Path to write, or `-`; None for one beside the input."""

    @property
    def in_place(self) -> bool:
        """Whether the result replaces the input."""

    @property
    def external_data(self) -> ExternalData | None:
        """How data files reach an output in another directory."""

    @property
    def verify(self) -> bool | None:
        """Whether both models are run and compared."""


class Report(Protocol):
    """What is said of a written result."""

    output: str | None
    notes: list[str]


def check_data(model: ir.Model, request: Request) -> None:
    """Refuse external data that cannot be trusted, or is missing where the models are run."""
    try:
        check_external_data(model, need_bytes=request.verify is not False)
    except UnreadableModel as error:
        path = request.model or origin(model).path
        message = f"{path}: {error.message}" if path else error.message
        raise UnreadableModel(message, help=error.help) from error


def check_dims(model: ir.Model, dims: Mapping[str, int]) -> None:
    """Refuse a value for a dimension that no input has, or with which one would be negative."""
    check_sizes(dims)
    names = dim_names(model)
    for name in dims:
        if name not in names:
            raise unknown_name(f"no input has a dimension called `{name}`", name, sorted(names))
    for value in model.graph.inputs if dims else ():
        for axis, dim in enumerate(dims_of(value) or ()):
            if isinstance(dim, str) and dims.keys() >= set(names_in(dim)):
                place = f"dimension {axis} of input `{value.name}`"
                try:
                    size = evaluate(dim, dims)
                except ZeroDivisionError as error:
                    raise UsageError(f"{place} would be divided by 0: `{dim}`") from error
                if size < 0:
                    raise UsageError(f"{place} would be {size}: `{dim}`, expected at least 0")


def check_output(request: Request, remedy: str = "use `--in-place` to replace the input") -> None:
    """Refuse an output path that is the input.

    Args:
        request: What was asked for.
        remedy: What to do instead.
    """
    output, source = request.output, request.model
    if output is None or "-" in (output, source) or request.in_place:
        return
    if os.path.exists(output) and os.path.samefile(output, source):
        raise UsageError(f"the output `{output}` is the input", help=remedy)


def output_path(request: Request, suffix: str) -> str:
    """Return where to write the result.

    Args:
        request: What was asked for.
        suffix: What is put behind the stem of the input where no output is named (`opset18`).
    """
    if request.in_place:
        return request.model
    if request.output is not None:
        return request.output
    if request.model == "-":
        return "-"
    source = Path(request.model)
    return str(source.with_name(f"{source.stem}.{suffix}.onnx"))


def write_result(model: ir.Model, request: Request, output: str, report: Report) -> None:
    """Write a result, its external data beside it, and say so in the report.

    Raises:
        UsageError: If a file that nobody named would be replaced.
        KvtoolError: If the output cannot be written; nothing is left behind.
    """
    with collector_paused():
        data = serialize(model)
    if output == "-":
        write(model, output, data=data)
        report.output = output
        return
    if request.output is None and not request.in_place:
        _keep_other_file(output, data)
    directory, how = os.path.dirname(output), request.external_data
    report.notes += place_external_data(
        model,
        directory,
        how,
        then=lambda: write(model, output, data=data),
        is_done=lambda: _holds(output, data),
    )
    report.output = output


def _keep_other_file(output: str, data: bytes) -> None:
    """Refuse to replace a file that nobody named, unless it holds the very same model."""
    if not os.path.exists(output) or _holds(output, data):
        return
    raise UsageError(
        f"`{output}` exists and holds something else",
        help=f"name the output with `-o {output}` to replace it",
    )


def _holds(output: str, data: bytes) -> bool:
    """Return whether a file is there that has this content."""
    path = Path(output)
    return path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data


def check_result(model: ir.Model, source: ir.Model | str, notes: list[str]) -> None:
    """Hold a result against onnx's checker, where the source passes it.

    Args:
        model: The result.
        source: The model as it was, or the path to read it from again.
        notes: Gets a remark if the checker accepts neither.

    Raises:
        AssertionError: If the checker rejects the result of a source that it accepts.
    """
    after = _complaint(model)
    if after is None:
        return
    if _complaint(read(source) if isinstance(source, str) else source) is None:
        raise AssertionError(f"onnx's checker rejects the result: {after}")
    notes.append(f"onnx's checker rejects the source and the result: {after}")


def _complaint(model: ir.Model) -> str | None:
    """Return what onnx's checker says against a model; None when it accepts it."""
    try:
        onnx.checker.check_model(weightless(model))
    except onnx.checker.ValidationError as error:
        return str(error).strip().splitlines()[0]
    return None
