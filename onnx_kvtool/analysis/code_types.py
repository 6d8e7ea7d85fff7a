"""The element types of products of quantised numbers, of which runtimes have some combinations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView

if TYPE_CHECKING:
    from onnx_kvtool.analysis.constants import Folder
    from onnx_kvtool.targets.release import Limit

__all__ = ["Codes", "codes_of", "other_code_types"]

_ZERO_POINT = "_zero_point"


@dataclass(frozen=True, slots=True)
class Codes:
    """Codes that a node reads or gives, and their zero point.

    Attributes:
        index: Which input they are; None for the first output.
        at: Which input their zero point is.
        dtype: Their element type, that of the zero point as well; None if unknown.
    """

    index: int | None
    at: int
    dtype: ir.DataType | None


def codes_of(node: ir.Node, opset: int) -> Iterator[Codes]:
    """Yield the codes of a node, by the zero points of its schema: `x` where `x_zero_point` is."""
    names = [formal.name for formal in NodeView(node, opset).facts.inputs]
    places = {name.lower(): index for index, name in enumerate(names)}
    for at, name in enumerate(names):
        if not name.endswith(_ZERO_POINT):
            continue
        index = places.get(name.removesuffix(_ZERO_POINT).lower())
        zero_point = node.inputs[at] if at < len(node.inputs) else None
        operand = node.outputs[0] if index is None else node.inputs[index]
        known = (value.dtype for value in (operand, zero_point) if value is not None)
        yield Codes(index, at, next((dtype for dtype in known if dtype is not None), None))


def other_code_types(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether its codes have another combination of element types than those of the limit."""
    dtypes = [codes.dtype for codes in codes_of(node, opset)]
    return " ".join("?" if dtype is None else dtype.name.lower() for dtype in dtypes) not in (
        limit.types
    )
