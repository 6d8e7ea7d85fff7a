"""Writing models and their data files, without overwriting other files."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import onnx_ir as ir

from onnx_kvtool.commands.arguments import speaking_python
from onnx_kvtool.core.choices import ExternalData
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.machine import collector_paused
from onnx_kvtool.model_io.atomic import check_writable
from onnx_kvtool.model_io.external_data import place_external_data
from onnx_kvtool.model_io.model import serialize, write
from onnx_kvtool.model_io.model_source import ModelSource, open_model
from onnx_kvtool.model_io.stored import stored, stored_once
from onnx_kvtool.targets.releases import releases


class Written(Protocol):
    """Messages about a written result."""

    output: str | None
    notes: list[str]


@speaking_python
def save(
    model: ModelSource, path: str | os.PathLike[str], *, external_data: ExternalData | None = None
) -> None:
    """Write a model as the commands do: whole or not at all, its data files beside it.

    The file has everything that `load` read, also parts that `onnx_ir.save` refuses or drops:
    sparse constants and initializers, maps, training information, empty outputs at the end of a
    node.

    Args:
        model: A model, which is not changed, or the path of one.
        path: Path of the file; an existing file is replaced.
        external_data: How another directory gets the data files: `copy`, `link` for hard links,
            `reference` to refuse it; None for a copy, which every reader accepts.

    Raises:
        UnreadableModel: If `model` is a path and cannot be read, or a data file is missing.
        KvtoolError: If the model has no written form or is larger than 2 GiB, or the system
            refuses; then nothing is left behind.

    Examples:
        >>> lowered, _ = kv.lower("decoder.onnx", opset=18, verify=False)
        >>> kv.save(lowered, "saved.onnx")
        >>> kv.load("saved.onnx").opset_imports[""]
        18
    """
    work = model if isinstance(model, ir.Model) else open_model(model)
    target = os.fspath(path)
    with stored(work, target) as store:
        data = serialize(work)
        store()
        place_external_data(
            work,
            os.path.dirname(target),
            external_data,
            then=lambda: write(work, target, data=data),
        )


def default_output(source: str, suffix: str) -> str:
    """Return the default path of a result: beside its source, with a suffix.

    It replaces an earlier suffix of a command: `x.opset18.onnx` lowered to 13 is `x.opset13.onnx`.

    Args:
        source: Path of the source.
        suffix: The suffix: `opset13`, `raised`, `inferred`, `onnxruntime-1.17`.
    """
    path = Path(source)
    runtimes = "|".join(sorted({re.escape(release.runtime) for release in releases()}))
    given = re.compile(rf"(?<=.)\.(opset\d+|raised|inferred|({runtimes})-\d+(\.\d+)*)$")
    stem = path.stem
    while (shorter := given.sub("", stem)) != stem:
        stem = shorter
    return str(path.with_name(f"{stem}.{suffix}.onnx"))


def write_result(
    model: ir.Model,
    output: str,
    report: Written,
    *,
    external_data: ExternalData | None = None,
    is_named: bool = True,
) -> None:
    """Write a result with its external data, and note this in the report.

    Args:
        model: The result.
        output: Path to write, or `-`.
        report: Gets the path, and notes on data files.
        external_data: How another directory gets the data files; None as for `save`.
        is_named: Whether the user named the path, so that an existing file is replaced.

    Raises:
        UsageError: If it would replace a file that the user did not name.
        KvtoolError: If the output cannot be written; nothing is left behind.
    """
    with stored(model, output) as store:
        with collector_paused():
            data = serialize(model)
        if output != "-" and not is_named and os.path.exists(output) and not _holds(output, data):
            raise UsageError(
                f"`{output}` exists and contains something else",
                help=f"name the output with `-o {output}` to replace it",
            )
        if output == "-" or (os.path.exists(output) and not os.path.isfile(output)):
            write(model, output, data=data)  # a device or a pipe
        else:
            report.notes += store()
            report.notes += place_external_data(
                model,
                os.path.dirname(output),
                external_data,
                then=lambda: write(model, output, data=data),
                is_done=lambda: _holds(output, data),
            )
        report.output = output


def write_together(
    models: Mapping[str, ir.Model], data_path: str, report: Written, directory: str
) -> None:
    """Write models and one file with the weights of all, and note this in the report.

    Args:
        models: The models by their paths in the directory.
        data_path: Path of the file with the weights.
        report: Gets the directory, and a note on the data file.
        directory: The directory; created if it does not exist.

    Raises:
        UsageError: If another file would be replaced.
        KvtoolError: If one cannot be written; nothing new is left behind.
    """
    new = [path for path in models if not os.path.exists(path)]
    with contextlib.ExitStack() as undo:
        if not os.path.isdir(directory):
            check_writable(directory)
            os.mkdir(directory)
            undo.callback(os.rmdir, directory)
        for path in new:
            undo.callback(Path(path).unlink, missing_ok=True)
        with stored_once(models.values(), data_path) as store:
            content = {path: serialize(model) for path, model in models.items()}
            others = [p for p in models if p not in new and not _holds(p, content[p])]
            others += [data_path] if new and os.path.exists(data_path) else []
            if others:
                text = f"`{others[0]}` exists and contains something else"
                raise UsageError(text, help="name another directory with `-o DIR`")
            report.notes += store()
            for path, data in content.items():
                write(models[path], path, data=data)
        undo.pop_all()
    report.output = directory


def _holds(output: str, data: bytes) -> bool:
    """Return whether the file exists and has this content."""
    path = Path(output)
    return path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data
