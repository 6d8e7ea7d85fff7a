"""Biases of attention that depend on how far apart query and key are, of `com.microsoft`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.heads import apart, known_size
from onnx_kvtool.contrib.rule import Builder, only, refuse_input
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import reduce, unsqueeze
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView

__all__ = ["gated_relative_position_bias", "relative_position_bias"]


def relative_position_bias(view: NodeView, em: Emitter) -> Replacement:
    """Write RelativePositionBias as a Gather of the bias for each distance.

    Which bucket a distance falls into is known beforehand: beyond `max_distance` all fall into the
    last. The table of the operator lies in the file head by head, whatever its shape says.
    """
    given, is_both = view.required("bias_table"), view.integer("is_bidirectional") != 0
    what = "`bias_table` of `RelativePositionBias`"
    buckets = known_size(given, 0, f"the number of buckets of {what}")
    heads = known_size(given, 1, f"the number of heads of {what}")
    farthest = view.integer("max_distance")
    op, index = Builder(em, given.dtype or ir.DataType.UNDEFINED), Builder(em, ir.DataType.INT64)
    places = em.constant(_buckets(buckets, farthest, is_both), "buckets")
    table = op("Reshape", given, em.constant([heads, buckets], "shape"), hint="by_head")
    by_distance = op("Gather", table, places, attributes={"axis": 1}, hint="by_distance")
    rows, columns = (
        index(
            "Range",
            em.constant(0),
            index("Reshape", view.required(name), em.constant([], "scalar")),
            em.constant(1),
        )
        for name in ("query_length", "key_length")
    )
    away = index("Sub", columns, index("Reshape", rows, em.constant([-1, 1], "column")))
    away = index("Min", index("Max", away, em.constant(-farthest)), em.constant(farthest))
    away = index("Add", away, em.constant(farthest), hint="distance")
    bias = op("Gather", by_distance, away, attributes={"axis": 1})
    return only(unsqueeze(em, bias, [0]))


def _buckets(count: int, farthest: int, is_both: bool) -> np.ndarray:
    """Return the bucket of each distance from -`farthest` to `farthest`, of key from query."""
    distances = np.arange(-farthest, farthest + 1)
    share = count // 2 if is_both else count
    exact = share // 2
    if exact < 1 or farthest <= exact:
        raise Refusal(
            "contrib-form",
            f"`max_distance` of `RelativePositionBias` is {farthest} for {count} buckets, expected "
            "more than have a bucket of their own",
        )
    away = np.abs(distances) if is_both else np.maximum(-distances, 0)
    ratio = np.maximum(away, 1).astype(np.float32) / np.float32(exact)
    grown = np.log(ratio) / np.log(np.float32(farthest / exact)) * np.float32(share - exact)
    found = np.where(away < exact, away, np.minimum(exact + grown.astype(np.int64), share - 1))
    return np.asarray(found + np.where(is_both & (distances > 0), share, 0), np.int64)


def gated_relative_position_bias(view: NodeView, em: Emitter) -> Replacement:
    """Write GatedRelativePositionBias as MatMul, ReduceSum, Sigmoid, Mul and Add.

    Refuses tokens without padding.
    """
    refuse_input(view, "token_offset")
    query = view.required("query_layer")
    op, heads = Builder(em, query.dtype or ir.DataType.UNDEFINED), view.integer("num_heads")
    rows = apart(em, op("Add", query, view.required("query_bias")), heads)
    gates = op("Add", op("MatMul", rows, view.required("weight")), view.required("bias"))
    halves = em.multi(
        "Split", gates, attributes={"axis": -1, "num_outputs": 2}, dtypes=(op.dtype, op.dtype)
    )
    u, r = (op("Sigmoid", reduce(em, "ReduceSum", half, [-1])) for half in halves)
    one, two = (em.constant(np.array(n, op.dtype.numpy()), "number") for n in (1, 2))
    factor = op("Sub", op("Mul", r, view.required("eco_a")), one)
    factor = op("Add", op("Mul", u, factor), two, hint="gate")
    return only(op("Mul", factor, view.required("rel_pos")))
