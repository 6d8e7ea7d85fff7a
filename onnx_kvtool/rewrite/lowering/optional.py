"""Optional values and operators that only hand them on."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.emit.emitter import Emitter, Names, Refusal, ScopedValues
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.reshape import passed
from onnx_kvtool.rewrite.report import Lowered

# OptionalHasElement and OptionalGetElement of opset 18 on a value that is not optional.


def lower_optional_18(view: Rewritten, em: Emitter) -> ir.Value:
    """Pass a tensor or a sequence through, or answer at once: it is there, an absent input is not.

    Refuses an optional value, which is only known at run time.
    """
    op, given = view.node.op_type, next(iter(view.node.inputs), None)
    if given is not None and (given.type is None or isinstance(given.type, ir.OptionalType)):
        what = "of unknown type" if given.type is None else "optional"
        raise Refusal(
            "element-type",
            f"`{given.name}` is {what}, which `{op}` does not take at opset {em.opset}",
        )
    if op == "OptionalGetElement":
        assert given is not None
        return passed(em, given)
    answer = em.constant(np.array(given is not None), "has_element")
    return em.op("Identity", answer)


# Optionals with known contents, for opsets below 15, which have none.


_SINCE = 15


def settle_optionals(model: ir.Model, target: int, names: Names) -> list[Lowered]:
    """Replace readers of optionals that the model makes by their elements, in place.

    OptionalGetElement becomes the element, OptionalHasElement a constant. An optional input, and
    one that passes into a body or out of it, stays. Return the replaced nodes; none where the
    target has optionals.
    """
    if target >= _SINCE or not any(node.op_type == "Optional" for node in model.graph.all_nodes()):
        return []
    em = Emitter(ScopedValues(model.graph, None, names), target, "kvtool")
    listed = [entry for entry in nodes(model) if is_standard(entry[2])]
    held: dict[ir.Value, ir.Value | None] = {}
    settled = []
    # Follow each optional from where it is made to where it is read.
    for path, index, node in listed:
        given = node.inputs[0] if node.inputs else None
        if node.op_type == "Optional":
            held[node.outputs[0]] = given
        elif given is None or given not in held:
            continue
        elif node.op_type == "Identity":
            held[node.outputs[0]] = held[given]
        elif node.op_type in ("OptionalHasElement", "OptionalGetElement"):
            element = held[given]
            if node.op_type == "OptionalHasElement":
                element = em.constant(np.array(element is not None), "has_element")
            if element is not None:
                settled.append(Lowered(Location.of(path, node, index), "optional"))
                _pass(node, element)
    # A constant takes the place of those that nobody reads any more.
    for _, _, node in reversed(listed):
        made = node.outputs[0] if node.outputs else None
        if made in held and not made.uses() and not made.is_graph_output():
            made.type, made.shape = ir.TensorType(ir.DataType.BOOL), None
            _pass(node, em.constant(np.array(False), "has_element"))
    em.commit()
    return settled


def _pass(node: ir.Node, value: ir.Value) -> None:
    """Make a node an Identity of a value, in place."""
    node.op_type = "Identity"
    node.attributes.clear()
    node.resize_inputs(1)
    node.replace_input_with(0, value)
