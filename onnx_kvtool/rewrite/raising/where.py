"""Updates written as Where over a one-hot mask: P9 of the forms that exporters emit."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.raising.layout import is_state
from onnx_kvtool.rewrite.raising.one_hot import prove_one_hot, read_mask
from onnx_kvtool.rewrite.raising.proof import Proof, ProvenUpdate

__all__ = ["raise_where"]


def raise_where(proof: Proof, node: ir.Node) -> ProvenUpdate | None:
    """Prove that a Where-9/16 replaces one row of a cache by an update.

    Returns:
        The update; None where the condition is no mask of one position, such as that of an
        attention, or where what is kept is not handed in by the caller.

    Raises:
        Unproven: If a fact is missing.
    """
    view = NodeView(node, proof.opset)
    mask = read_mask(proof, view.input("condition"))
    if mask is None:
        return None
    new, kept = view.required("X"), view.required("Y")
    if mask.is_negated:
        new, kept = kept, new
    if not is_cache(proof, kept):
        return None
    return prove_one_hot(proof, mask, kept, new, node.outputs[0])


def is_cache(proof: Proof, value: ir.Value) -> bool:
    """Return whether a value may be a cache: handed in by the caller, of rank 2 or more."""
    shape = proof.maps.shape(value)
    return shape is not None and len(shape) >= 2 and is_state(proof, value)
