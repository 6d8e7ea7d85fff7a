"""Which values of a model depend on random numbers, so that no two runs need agree on them."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from onnx_kvtool.core.misdeclared import held
from onnx_kvtool.core.walk import subgraphs
from onnx_kvtool.ops.traits import Trait, traits

__all__ = ["random_values"]

_TRAINING = {("", "Dropout"): 2, ("com.microsoft", "BiasDropout"): 4}
"""Operators that draw numbers where an input says so, and the position of that input."""


def random_values(model: ir.Model) -> frozenset[str]:
    """Return the values of the main graph that random numbers go into, by name.

    Sizes of a value do not depend on its elements. A function or a body that draws anything makes
    all that the node gives random.
    """
    functions = _drawing(model.functions)
    random: set[ir.Value] = set()
    for node in model.graph:
        if _is_random(node, random, functions):
            random.update(node.outputs)
    return frozenset(value.name for value in random if value.name)


def _drawing(
    functions: Mapping[ir.OperatorIdentifier, ir.Function],
) -> frozenset[ir.OperatorIdentifier]:
    """Return the functions that draw numbers, by themselves or by others that they call."""
    drawing = {key for key, body in functions.items() if any(map(_draws, body.all_nodes()))}
    callers: dict[ir.OperatorIdentifier, set[ir.OperatorIdentifier]] = {}
    for key, body in functions.items():
        for node in body.all_nodes():
            callers.setdefault(node.op_identifier(), set()).add(key)
    waiting = list(drawing)
    while waiting:
        more = callers.get(waiting.pop(), set()) - drawing
        drawing |= more
        waiting += more
    return frozenset(drawing)


def _is_random(
    node: ir.Node, random: set[ir.Value], functions: frozenset[ir.OperatorIdentifier]
) -> bool:
    if _draws(node) or node.op_identifier() in functions:
        return True
    if any(value in random for value in node.inputs) and Trait.READS_SHAPE not in traits(node):
        return True
    if not node.attributes.data:
        return False
    # What a body reads of the graph around it counts as well.
    return any(
        _is_random(inner, random, functions) for _, body in subgraphs(node) for inner in body
    )


def _draws(node: ir.Node) -> bool:
    """Return whether a node draws numbers, or may do so as an input decides it at run time."""
    if Trait.RANDOM in traits(node):
        return True
    place = _TRAINING.get((node.domain, node.op_type))
    if place is None or len(node.inputs) <= place or (flag := node.inputs[place]) is None:
        return False
    known = None if flag.is_graph_input() else held(flag)
    return known is None or bool(known.numpy().any())
