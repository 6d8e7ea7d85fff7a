"""Sums of products over one index: MatMul, and Einsum of two operands."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.analysis.attention.sight import Seen, Sight
from onnx_kvtool.ops.equation import parse
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.symbolic.expression import Expr, coordinate, integer

__all__ = ["SUMMED", "Product", "is_product", "product"]

SUMMED = 4
"""The coordinate of a frame over which the product is summed, behind those of its axes."""


@dataclass(frozen=True, slots=True)
class Product:
    """A value that is the sum over `SUMMED` of products of elements of two others.

    Attributes:
        operands: The two, as the result is seen.
        sizes: How many products are added up, as each operand has it. One expression or not, they
            are equal in every run that does not fail.
    """

    operands: tuple[Seen, Seen]
    sizes: tuple[Expr, Expr]


def is_product(node: ir.Node | None) -> bool:
    """Return whether a node may be a product of two values, neither of them stored in the file."""
    if node is None or node.domain != "" or node.op_type not in ("MatMul", "Einsum"):
        return False
    # What is multiplied with weights is a layer: a router's scores, say, and no attention.
    return len(node.inputs) == 2 and not any(v is None or _is_stored(v) for v in node.inputs)


def _is_stored(value: ir.Value) -> bool:
    node = value.producer()
    if node is None:
        return value.is_initializer()
    return node.op_type == "Constant" and node.domain == ""


def product(seen: Seen, sight: Sight, summed: Expr | None = None) -> Product | None:
    """Return what a value is the product of; None where it is none or its sizes are not known.

    Args:
        seen: The value.
        sight: What is known of the model.
        summed: What stands for the index of the sum; the coordinate `SUMMED` by default.
    """
    node = seen.value.producer()
    if node is None or not is_product(node) or sight.view(node) is None:
        return None
    at = coordinate(SUMMED) if summed is None else summed
    found = _mat_mul(node, seen, sight, at) if node.op_type == "MatMul" else None
    return _einsum(node, seen, sight, at) if node.op_type == "Einsum" else found


def _mat_mul(node: ir.Node, seen: Seen, sight: Sight, at: Expr) -> Product | None:
    left, right = node.inputs
    assert left is not None and right is not None
    shapes = sight.shape(left), sight.shape(right), sight.shape(seen.value)
    a, b, result = shapes
    if a is None or b is None or result is None or min(len(a), len(b)) < 2:
        return None
    if len(result) != max(len(a), len(b)) or sight.knowledge.equalities.differ(a[-1], b[-2]):
        return None
    *lead, row, column = seen.index
    operands = []
    for value, shape, last in ((left, a, (row, at)), (right, b, (at, column))):
        index = _leading(shape[:-2], result[:-2], lead)
        if index is None:
            return None
        operands.append(Seen(value, (*index, *_of_one(shape[-2:], last))))
    return Product((operands[0], operands[1]), (a[-1], b[-2]))


def _of_one(shape: tuple[Expr, ...], index: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return the index with 0 along axes of size 1."""
    pairs = zip(shape, index, strict=True)
    return tuple(integer(0) if size.number == 1 else at for size, at in pairs)


def _leading(
    shape: tuple[Expr, ...], result: tuple[Expr, ...], index: list[Expr]
) -> tuple[Expr, ...] | None:
    """Return the index of an operand along the axes that are broadcast."""
    found = []
    for size, whole, at in zip(shape[::-1], result[::-1], index[::-1], strict=False):
        if size != whole and size.number != 1:
            return None
        found.append(integer(0) if size.number == 1 else at)
    return tuple(reversed(found))


def _einsum(node: ir.Node, seen: Seen, sight: Sight, at: Expr) -> Product | None:
    shapes = [None if v is None else sight.shape(v) for v in node.inputs]
    view = sight.view(node)
    known = [shape for shape in shapes if shape is not None]
    if view is None or len(known) != 2:
        return None
    try:
        terms, output = parse(view.string("equation"), [len(shape) for shape in known])
    except MalformedNode:
        return None
    summed = set(terms[0]) & set(terms[1]) - set(output)
    only_once = all(len(set(term)) == len(term) for term in terms)
    if len(summed) != 1 or not only_once or len(output) != len(seen.index):
        return None
    if (set(terms[0]) ^ set(terms[1])) - set(output):
        return None  # summed over in one operand alone
    (label,) = summed
    places = {**dict(zip(output, seen.index, strict=True)), label: at}
    sizes: dict[str, Expr] = {}
    for term, shape in zip(terms, known, strict=True):
        for name, size in zip(term, shape, strict=True):
            if sizes.setdefault(name, size) != size:
                return None  # one of them may be broadcast
    operands = []
    for value, term, shape in zip(node.inputs, terms, known, strict=True):
        assert value is not None
        operands.append(Seen(value, _of_one(shape, tuple(places[name] for name in term))))
    return Product((operands[0], operands[1]), (sizes[label], sizes[label]))
