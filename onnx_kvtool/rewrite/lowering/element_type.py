"""The detour of a node through an element type that its operator takes at the target."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.legality import fit
from onnx_kvtool.ops.schema import op_facts
from onnx_kvtool.rewrite.dtypes import carrier_of, detoured_parameter
from onnx_kvtool.rewrite.emit import AttributeValue, Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.lowering.forms import cast

__all__ = ["detour_element_type"]


def detour_element_type(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement | None:
    """Cast the inputs to a type that the operator takes, and its outputs back.

    Which types may carry which, for which operators, is the table of `rewrite.dtypes`: the result
    is equal to the last bit where data is moved, compared or computed in integers, and computed
    in a wider float where it is arithmetic.

    Returns:
        None when the node has other problems than element types, or the table has no way.
    """
    source = context.opset_of(node)
    facts, target = op_facts(node.op_type, source), op_facts(node.op_type, em.opset)
    fitted = fit(node, source, em.opset)
    parameter = detoured_parameter(node.op_type)
    if facts is None or target is None or parameter is None or fitted.as_attribute:
        return None
    if any(problem.code != "element-type" for problem in fitted.problems):
        return None
    of_outputs = next(i for i, f in enumerate(facts.inputs) if f.type_parameter == parameter)
    inputs: list[ir.Value | None] = []
    for index, value in enumerate(node.inputs):
        formal = facts.input(index)
        if value is None or formal is None or formal.type_parameter != parameter:
            inputs.append(value)
            continue
        carrier = carrier_of(node.op_type, value.dtype, em.opset, index)
        if carrier is None:
            return None
        inputs.append(cast(em, value, carrier))
    dtypes: list[ir.DataType] = []
    for index, value in enumerate(node.outputs):
        formal = facts.output(index)
        dtype = value.dtype or ir.DataType.UNDEFINED
        if formal is not None and formal.type_parameter == parameter and value.name:
            carrier = carrier_of(node.op_type, value.dtype, em.opset, of_outputs)
            if carrier is None:
                return None
            dtype = carrier
        dtypes.append(dtype)
    attributes: dict[str, AttributeValue] = {
        name: given.value for name, given in node.attributes.items() if name not in fitted.drop
    }
    attributes.update({n: default for n, default in fitted.add.items() if default is not None})
    outputs = em.multi(node.op_type, *inputs, attributes=attributes, dtypes=dtypes)
    results: list[ir.Value | None] = []
    for old, new in zip(node.outputs, outputs, strict=True):
        if not old.name:
            new.name = ""
            results.append(None)
        else:
            results.append(cast(em, new, old.dtype or ir.DataType.UNDEFINED))
    return Replacement(tuple(results))
