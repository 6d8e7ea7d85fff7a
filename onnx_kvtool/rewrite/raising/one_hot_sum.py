"""Updates written as `cache * (1 - mask) + mask * update`: P9 of the forms that exporters emit."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from onnx_kvtool.ops.element_type import FLOAT_TYPES
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.raising.one_hot import Mask, prove_one_hot, read_mask
from onnx_kvtool.rewrite.raising.proof import Proof, ProvenUpdate
from onnx_kvtool.rewrite.raising.where import is_cache

__all__ = ["raise_one_hot_sum"]


def raise_one_hot_sum(proof: Proof, node: ir.Node) -> ProvenUpdate | None:
    """Prove that an Add-7/13/14 of two masked products replaces one row of a cache.

    A float times zero is zero, and zero plus it is the float, but for NaN, infinities and negative
    zeros: that neither tensor holds any must be assumed.

    Returns:
        The update; None for any other sum.

    Raises:
        Unproven: If a fact is missing.
    """
    view = NodeView(node, proof.opset)
    for one, other in (("A", "B"), ("B", "A")):
        for keeping, cache in _products(proof, view.required(one)):
            if not keeping.is_negated or not is_cache(proof, cache):
                continue
            for choosing, update in _products(proof, view.required(other)):
                same = (choosing.axis, choosing.position) == (keeping.axis, keeping.position)
                if (
                    choosing.is_negated
                    or not same
                    or _grid(proof, choosing) != _grid(proof, keeping)
                ):
                    continue
                return _prove(proof, choosing, cache, update, node.outputs[0])
    return None


def _prove(
    proof: Proof, mask: Mask, cache: ir.Value, update: ir.Value, output: ir.Value
) -> ProvenUpdate:
    found = prove_one_hot(proof, mask, cache, update, output)
    if cache.dtype is None or cache.dtype in FLOAT_TYPES:
        for value in (cache, update):
            proof.assume(
                "finite",
                value,
                "not-finite",
                f"a NaN or an infinity of `{value.name}` spreads through the product with zero, "
                "and a negative zero loses its sign",
            )
    return found


def _products(proof: Proof, value: ir.Value) -> Iterator[tuple[Mask, ir.Value]]:
    """Yield the ways to read a value as a mask times something."""
    node = value.producer()
    if node is None or node.domain != "" or node.op_type != "Mul" or len(node.inputs) != 2:
        return
    for factor, other in (tuple(node.inputs), tuple(reversed(node.inputs))):
        mask = read_mask(proof, factor)
        if mask is not None and other is not None:
            yield mask, other


def _grid(proof: Proof, mask: Mask) -> object:
    return proof.maps.shape(mask.value)
