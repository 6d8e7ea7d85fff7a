"""What can be wrong with a request to lower, before and after the model is known."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_kvtool.core.errors import UnreadableModel, UsageError
from onnx_kvtool.core.external_data import check_external_data
from onnx_kvtool.core.model import origin
from onnx_kvtool.ops.schema import operators
from onnx_kvtool.rewrite.expand import has_body
from onnx_kvtool.rewrite.lowering.table import LOWERINGS
from onnx_kvtool.targets.target import find_target

if TYPE_CHECKING:
    from onnx_kvtool.commands.lower import LowerRequest

__all__ = ["check_data", "check_dims", "check_output", "check_request", "keep_other_file"]


def check_request(request: LowerRequest) -> None:
    """Refuse arguments that contradict each other, and operators that cannot be replaced."""
    if request.index_dtype == "int32" and request.via == "scatternd":
        raise UsageError(
            "ScatterND takes int64 indices only, got `int32` with `scatternd`",
            help="use `--via scatterelements`",
        )
    if request.only and request.opset is not None:
        raise UsageError(
            "`only` keeps the opset of the model, so that `opset` cannot be given with it",
            help="leave one of them out",
        )
    for name in request.only:
        _check_operator(name)
    if request.target is not None:
        _check_target(request.target, request)
    if request.opset is not None and not 11 <= request.opset <= 23:
        raise UsageError(f"`opset` is {request.opset}, expected 11 to 23")


def _check_target(name: str, request: LowerRequest) -> None:
    """Refuse a runtime that is not known, and what cannot be asked for together with one."""
    if request.only:
        raise UsageError(
            "`only` names the operators to replace, so that `target` cannot choose them",
            help="leave one of them out",
        )
    target = find_target(name)
    if request.opset is not None and request.opset > target.max_opset:
        raise UsageError(
            f"`opset` is {request.opset}, and {target.asked} loads no opset above "
            f"{target.max_opset}",
            help=f"leave `opset` out, or give at most {target.max_opset}",
        )


def _check_operator(name: str) -> None:
    """Refuse an operator that kvtool cannot replace by others."""
    if name not in operators():
        lower_case = {op.lower(): op for op in operators()}
        close = difflib.get_close_matches(name.lower(), lower_case, 1)
        raise UsageError(
            f"`{name}` is no operator of the default domain",
            help=f"did you mean `{lower_case[close[0]]}`?" if close else None,
        )
    lowering = LOWERINGS.get(name)
    if not (lowering is not None and lowering.removes) and not has_body(name):
        removable = sorted(op for op, lowering in LOWERINGS.items() if lowering.removes)
        raise UsageError(
            f"kvtool cannot replace `{name}` by other operators",
            help=f"it can replace {', '.join(removable)} and the operators with a function body",
        )


def check_data(model: ir.Model, request: LowerRequest) -> None:
    """Refuse external data that cannot be trusted, or is missing where the models are run."""
    try:
        check_external_data(model, need_bytes=request.verify is not False)
    except UnreadableModel as error:
        path = request.model or origin(model).path
        message = f"{path}: {error.message}" if path else error.message
        raise UnreadableModel(message, help=error.help) from error


def check_dims(model: ir.Model, dims: Mapping[str, int]) -> None:
    """Refuse a value for a dimension that no input has."""
    text = " ".join(
        d.value or ""
        for value in model.graph.inputs
        for d in value.shape or ()
        if isinstance(d, ir.SymbolicDim)
    )
    names = set(re.findall(r"[^\W\d]\w*", text))
    for name in dims:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            known = f"the inputs have {', '.join(sorted(names))}" if names else "they have none"
            raise UsageError(
                f"no input has a dimension called `{name}`",
                help=f"did you mean `{close[0]}`?" if close else known,
            )


def check_output(request: LowerRequest) -> None:
    """Refuse an output path that is the input."""
    output, source = request.output, request.model
    if output is None or "-" in (output, source) or request.in_place:
        return
    if os.path.exists(output) and os.path.samefile(output, source):
        raise UsageError(
            f"the output `{output}` is the input",
            help="use `--in-place` to replace the input",
        )


def keep_other_file(output: str, data: bytes) -> None:
    """Refuse to replace a file that nobody named, unless it holds the very same model."""
    path = Path(output)
    if not path.exists():
        return
    if path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data:
        return
    raise UsageError(
        f"`{output}` exists and holds something else",
        help=f"name the output with `-o {output}` to replace it",
    )
