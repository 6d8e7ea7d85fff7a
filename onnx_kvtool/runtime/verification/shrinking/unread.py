"""Weights that one model alone has, and of which none of its outputs depends."""

from __future__ import annotations

from dataclasses import replace

import onnx

from onnx_kvtool.core.messages.bodies import bodies
from onnx_kvtool.runtime.verification.shrinking.skeleton import Skeleton

__all__ = ["live", "without_unread"]


def without_unread(a: Skeleton, b: Skeleton) -> tuple[Skeleton, Skeleton]:
    """Return two models without the weights that one alone has and only dead nodes read.

    Rewriting strikes what nobody reads, and the weights with it. A node that is dead in one model
    alone, and whose weights both have, stays: where it is missed is to be seen in copies.

    Returns:
        The models; one of which nothing was taken is the same object.
    """
    return _without(a, b), _without(b, a)


def _without(model: Skeleton, other: Skeleton) -> Skeleton:
    foreign = model.bare - other.weights.keys()
    if not foreign:
        return model
    graph = model.message.graph
    gone = foreign - live(graph)
    if not gone:
        return model
    unread, kept = set(gone), []
    for node in graph.node:  # what reads a dead value is dead as well
        if _read(node) & unread:
            unread |= set(node.output)
        else:
            kept.append(node)
    message = onnx.ModelProto()
    message.CopyFrom(model.message)
    del message.graph.node[:]
    message.graph.node.extend(kept)
    weights = [tensor for tensor in message.graph.initializer if tensor.name not in gone]
    del message.graph.initializer[:]
    message.graph.initializer.extend(weights)
    left = {name: tensor for name, tensor in model.weights.items() if name not in gone}
    return replace(model, message=message, weights=left, bare=model.bare - gone)


def live(graph: onnx.GraphProto) -> set[str]:
    """Return the names that outputs of a graph depend on."""
    producers = {name: node for node in graph.node for name in node.output if name}
    found = {value.name for value in (*graph.output, *graph.input)}
    waiting = list(found)
    while waiting:
        node = producers.get(waiting.pop())
        if node is not None:
            new = _read(node) - found
            found |= new
            waiting += new
    return found


def _read(node: onnx.NodeProto) -> set[str]:
    """Return the names that a node reads, and all that are read in its bodies."""
    found = {name for name in node.input if name}
    for body in bodies(node):
        found |= {value.name for value in body.output}
        for inner in body.node:
            found |= _read(inner)
    return found
