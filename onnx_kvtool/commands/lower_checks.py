"""What can be wrong with a request to lower, before the model is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx_kvtool.commands.arguments import check_choice, check_least
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.suggestion import unknown_name
from onnx_kvtool.ops.schema import operators
from onnx_kvtool.rewrite.expand import has_body
from onnx_kvtool.rewrite.lowering.table import LOWERINGS
from onnx_kvtool.targets.target import find_target

if TYPE_CHECKING:
    from onnx_kvtool.commands.lower import LowerRequest

__all__ = ["check_request"]


def check_request(request: LowerRequest) -> None:
    """Refuse arguments that contradict each other, and operators that cannot be replaced."""
    check_choice("via", request.via, ("auto", "scatternd", "scatterelements"))
    check_choice("index_dtype", request.index_dtype, ("int64", "int32"))
    check_choice("bounds", request.bounds, ("checked", "unchecked"))
    check_least("verify_steps", request.verify_steps, 1)
    if request.index_dtype == "int32" and request.via == "scatternd":
        raise UsageError(
            "ScatterND takes int64 indices only, got `int32` with `scatternd`",
            help="use `--via scatterelements`",
        )
    if request.only and request.opset is not None:
        raise UsageError(
            "`--only` keeps the opset of the model, so that `--opset` cannot be given with it",
            help="leave one of them out",
        )
    for name in request.only:
        _check_operator(name)
    if request.target is not None:
        _check_target(request.target, request)
    if request.opset is not None and not 11 <= request.opset <= 23:
        raise UsageError(f"`--opset` is {request.opset}, expected 11 to 23")


def _check_target(name: str, request: LowerRequest) -> None:
    """Refuse a runtime that is not known, and what cannot be asked for together with one."""
    if request.only:
        raise UsageError(
            "`--only` names the operators to replace, so that `--target` cannot choose them",
            help="leave one of them out",
        )
    target = find_target(name)
    if request.opset is not None and request.opset > target.max_opset:
        raise UsageError(
            f"`--opset` is {request.opset}, and {target.asked} loads no opset above "
            f"{target.max_opset}",
            help=f"leave `--opset` out, or give at most {target.max_opset}",
        )


def _check_operator(name: str) -> None:
    """Refuse an operator that kvtool cannot replace by others."""
    if name not in operators():
        raise unknown_name(f"`{name}` is no operator of the default domain", name, operators())
    lowering = LOWERINGS.get(name)
    if not (lowering is not None and lowering.removes) and not has_body(name):
        removable = sorted(op for op, lowering in LOWERINGS.items() if lowering.removes)
        raise UsageError(
            f"kvtool cannot replace `{name}` by other operators",
            help=f"it can replace {', '.join(removable)} and the operators with a function body",
        )
