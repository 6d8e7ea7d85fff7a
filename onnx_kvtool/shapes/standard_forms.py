"""Inference of onnxruntime's operators through their standard forms."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import compress
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder, const_tensor
from onnx_kvtool.contrib.table import CONTRIB_RULES
from onnx_kvtool.core.choices import NATIVE_OPSET
from onnx_kvtool.emit.emitter import Names, Refusal, ScopedValues, release
from onnx_kvtool.ops.schema import OpFacts
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.symbolic.dimensions import shape_words
from onnx_kvtool.symbolic.rules.site import Unknown

if TYPE_CHECKING:
    from onnx_kvtool.shapes.forward import Forward


_SMALL = 64
"""Most elements of a constant that a form may depend on."""


def form_of(run: Forward, node: ir.Node, facts: OpFacts) -> ir.Function:
    """Return the standard form of a node, for what is known of its inputs, as a function.

    Nodes that agree in that share it.

    Raises:
        Unknown: If there is none.
    """
    graph = ir.Graph([], [], nodes=[], opset_imports={"": NATIVE_OPSET}, name=node.op_type)
    given: list[ir.Value | None] = []
    is_read = tuple(bool(v.uses()) or v.is_graph_output() for v in node.outputs)
    key: list[Hashable] = [node.op_identifier(), is_read]
    key += [(name, a.type, repr(a.value)) for name, a in sorted(node.attributes.items())]
    for index, value in enumerate(node.inputs):
        formal = ir.Value(name=f"{index}")
        graph.inputs.append(formal)
        if value is None:
            given.append(None)
            key.append(None)
            continue
        formal.type = run.knowledge.types.get(value)
        words = shape_words(run.knowledge.shapes.get(value))
        formal.shape = None if words is None else ir.Shape(words)
        tensor = const_tensor(value)
        if tensor is not None and tensor.size <= _SMALL:
            formal = ir.Value(
                name=f"constant_{index}", type=formal.type, shape=formal.shape, const_value=tensor
            )
            graph.register_initializer(formal)
            key.append(id(tensor))
        given.append(formal)
        key.append((str(formal.type), words))
    found = run.forms.get(tuple(key))
    if found is None:
        name = str(len(run.forms))
        found = run.forms[tuple(key)] = _written(graph, node, facts, given, is_read, name)
    if isinstance(found, Unknown):
        raise found
    return found


def _written(
    graph: ir.Graph,
    node: ir.Node,
    facts: OpFacts,
    given: Sequence[ir.Value | None],
    is_read: Sequence[bool],
    name: str,
) -> ir.Function | Unknown:
    names = Names()
    for value in (*graph.initializers.values(), *graph.inputs):
        names.fresh(value.name or "")
    key, attributes = (node.domain, node.op_type), node.attributes.values()
    # A rule leaves out what has no name.
    results = [ir.Value(name=f"output_{index}") for index, _ in enumerate(is_read)]
    stand_in = ir.Node(*key, given, attributes, outputs=results)
    reader = ir.Node("", "Identity", list(compress(stand_in.outputs, is_read)))
    scope = ScopedValues(graph, None, names)
    try:
        em, written = CONTRIB_RULES[key].written(stand_in, facts, scope, NATIVE_OPSET, node.op_type)
    except (Refusal, MalformedNode) as error:
        return Unknown("no-form", error.message)
    finally:
        release(reader)
        release(stand_in)
    # What nobody reads may be absent, and an output of a function is computed in it.
    results = [v or ir.Value(name="unread") for v in written.outputs]
    results = [em.op("Identity", v) if v in given or v.const_value else v for v in results]
    em.fold(ConstantFolder().integers, results)
    graph.extend(em.commit())
    graph.outputs.extend(results)
    return ir.Function(*key, name, graph=graph, attributes={})
