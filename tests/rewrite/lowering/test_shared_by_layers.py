"""What does not depend on the layer is computed once for all layers of a lowered decoder."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import onnx_ir as ir
import pytest

from benchmarks.decoders import decoder
from onnx_kvtool.commands.lower import lower
from tests.grids import thinned

_STEP = {"position_ids", "write_indices", "nonpad_kv_seqlen"}
"""Inputs that are the same for all layers."""


@functools.cache
def _lowered(layers: int, rank: int, opset: int, target: str | None) -> ir.Model:
    source = ir.from_proto(decoder(layers, capacity=9, rank=rank))
    return lower(source, opset=opset, target=target, verify=False)[0]


def _of_no_layer(graph: ir.Graph) -> Counter[str]:
    """Count the nodes that read only sizes, constants and the inputs of the step, by operator."""
    known: set[ir.Value | None] = {value for value in graph.inputs if value.name in _STEP}
    known |= {*graph.initializers.values(), None}
    found: Counter[str] = Counter()
    for node in graph:
        if node.op_type == "Shape" or (node.op_type != "If" and set(node.inputs) <= known):
            known |= set(node.outputs)
            found[node.op_type] += 1
    return found


_FORMS: list[Any] = [
    pytest.param(rank, opset, target, id=f"rank {rank}, opset {opset}, for {target or 'any'}")
    for rank in (3, 4)
    for opset in (23, 21, 18, 13, 11)
    for target in (None, "onnxruntime")
]


@pytest.mark.long
@pytest.mark.parametrize(("rank", "opset", "target"), thinned(_FORMS, 3))
def test_more_layers_add_no_node_that_belongs_to_none(
    rank: int, opset: int, target: str | None
) -> None:
    """Index, mask and tables of cosines and sines: as many nodes for four layers as for one."""
    one, four = (_lowered(n, rank, opset, target).graph for n in (1, 4))
    assert _of_no_layer(four) == _of_no_layer(one)
    assert _of_no_layer(four)["Less"] > 0
    assert len(list(four)) > 3 * len(list(one)) / 2


@pytest.mark.long
@pytest.mark.parametrize(("rank", "opset", "target"), thinned(_FORMS, 3))
def test_all_caches_are_updated_by_one_index(rank: int, opset: int, target: str | None) -> None:
    graph = _lowered(4, rank, opset, target).graph
    indices = [node.inputs[1] for node in graph if node.op_type == "ScatterND"]
    assert len(indices) == 8
    assert len(set(indices)) == 1
