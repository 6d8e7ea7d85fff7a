"""Models that a release of onnxruntime loads and computes wrongly."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

__all__ = ["known_wrong"]

_NONPAD_KV_SEQLEN = 6
"""Position of `nonpad_kv_seqlen` among the inputs of Attention-24."""


def known_wrong(version: str, model: bytes) -> str | None:
    """Return why onnxruntime `version` must not be trusted with `model`; None when it may.

    Observed against onnx.reference 1.23.2 and a plain numpy attention: 1.24 ignores the input
    `nonpad_kv_seqlen` of Attention-24, 1.25 to 1.27 align the causal limit to the left instead of
    to the valid length when there is more than one query. Right from 1.28 on.

    Args:
        version: Version of onnxruntime.
        model: The serialised model; not looked at for releases that are right. One that is no
            model at all is left to the runtime to complain about.
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) >= (1, 28):
        return None
    try:
        proto = onnx.ModelProto.FromString(model)
    except DecodeError:
        return None
    if any(_has_nonpad_kv_seqlen(node) for node in _nodes(proto)):
        return "releases below 1.28 do not mask Attention by `nonpad_kv_seqlen` rightly"
    return None


def _has_nonpad_kv_seqlen(node: onnx.NodeProto) -> bool:
    if node.op_type != "Attention" or node.domain not in ("", "ai.onnx"):
        return False
    return len(node.input) > _NONPAD_KV_SEQLEN and bool(node.input[_NONPAD_KV_SEQLEN])


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    yield from _with_subgraphs(proto.graph.node)
    for function in proto.functions:
        yield from _with_subgraphs(function.node)


def _with_subgraphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _with_subgraphs(attribute.g.node)
            for graph in attribute.graphs:
                yield from _with_subgraphs(graph.node)
