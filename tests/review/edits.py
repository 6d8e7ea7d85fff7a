"""Edits of a model, each with what `kvtool diff` has to say of it, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_kvtool.model_io.verbatim import bodies, every_holder, every_node

__all__ = ["EDITS", "Told", "told"]

Told = dict[str, list[dict[str, Any]]]
"""What is said in each section of the report, but for sections that are empty."""

Edit = Callable[[onnx.ModelProto], Told | None]

_QUIET = {
    "schema_version",
    "tool",
    "command",
    "old",
    "new",
    "status",
    "differs",
    "ops",
    "notes",
    "caches_same",
    "file",
}


def told(report: dict[str, Any], wanted: Told) -> Told:
    """Return what a report says, of each change only the keys that are wanted."""
    found: Told = {}
    flat = {k: v for k, v in report.items() if k not in _QUIET | {"nodes", "weights"}}
    flat |= report["nodes"]
    flat["weights"] = report["weights"]["changed"]
    for section, changes in flat.items():
        if changes:
            keys = [set(one) for one in wanted.get(section, [])] or [set(changes[0])]
            found[section] = [
                {k: v for k, v in one.items() if k in keys[min(i, len(keys) - 1)]}
                for i, one in enumerate(changes)
            ]
    return found


def _initializer(m: onnx.ModelProto, wanted: Callable[[TensorProto], bool]) -> TensorProto | None:
    read = {name for node in m.graph.node for name in node.input}
    inputs = {v.name for v in m.graph.input}
    fit = [t for t in m.graph.initializer if t.name in read - inputs and wanted(t)]
    return fit[len(fit) // 2] if fit else None


def _is_large(t: TensorProto) -> bool:
    return t.data_type == TensorProto.FLOAT and np.prod(t.dims) > 16


def _inner(m: onnx.ModelProto) -> Iterator[tuple[int, onnx.NodeProto]]:
    """Yield nodes of the main graph with one output that is read by nodes of it alone."""
    outputs = {v.name for v in m.graph.output}
    deep = {n for holder in every_holder(m.graph)[1:] for node in holder.node for n in node.input}
    deep |= {v.name for holder in every_holder(m.graph)[1:] for v in holder.output}
    read = {name for node in m.graph.node for name in node.input}
    for index, node in enumerate(m.graph.node):
        if len(node.output) == 1 and node.output[0] in read - outputs - deep:
            yield index, node


def _middle(items: Any) -> Any:
    listed = list(items)
    return listed[len(listed) // 2] if listed else None


def _label(m: onnx.ModelProto, node: onnx.NodeProto) -> str:
    return node.name or f"#{[id(n) for n in m.graph.node].index(id(node))}"


def _by_name(m: onnx.ModelProto, name: str) -> onnx.NodeProto:
    return next(n for n in m.graph.node if n.output and n.output[0] == name)


def nothing(m: onnx.ModelProto) -> Told:
    return {}


def one_weight(m: onnx.ModelProto) -> Told | None:
    tensor = _initializer(m, _is_large)
    if tensor is None:
        return None
    values = numpy_helper.to_array(tensor).copy()
    old = float(values.flat[7])
    values.flat[7] += 0.5
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return {
        "weights": [
            {
                "name": tensor.name,
                "what": "values",
                "max_abs_diff": abs(float(values.flat[7]) - old),
                "changed_elements": 1,
                "elements": values.size,
            }
        ]
    }


def a_scalar(m: onnx.ModelProto) -> Told | None:
    tensor = _initializer(m, lambda t: t.data_type == TensorProto.FLOAT and not t.dims)
    if tensor is None:
        return None
    old = float(numpy_helper.to_array(tensor))
    tensor.CopyFrom(numpy_helper.from_array(np.array(12.5, np.float32), tensor.name))
    shown = {"old": "{" + str(np.float32(old)) + "}", "new": "{12.5}"}
    return {"weights": [{"name": tensor.name, "what": "values", **shown}]}


def type_of_a_weight(m: onnx.ModelProto) -> Told | None:
    tensor = _initializer(m, _is_large)
    if tensor is None or any(v.name == tensor.name for v in m.graph.value_info):
        return None
    values = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), tensor.name))
    return {"weights": [{"name": tensor.name, "what": "dtype", "old": "float", "new": "float16"}]}


def shape_of_a_weight(m: onnx.ModelProto) -> Told | None:
    tensor = _initializer(m, _is_large)
    if tensor is None or any(v.name == tensor.name for v in m.graph.value_info):
        return None
    old = "(" + ", ".join(map(str, tensor.dims)) + ")"
    tensor.dims.insert(0, 1)
    return {
        "weights": [{"name": tensor.name, "what": "shape", "old": old, "new": f"(1, {old[1:]}"}]
    }


def a_weight_that_nobody_reads(m: onnx.ModelProto) -> Told:
    m.graph.initializer.append(numpy_helper.from_array(np.arange(3, dtype=np.int8), "idle"))
    change = {"name": "idle", "what": "added", "old": None, "new": "int8[3] {0,1,2}"}
    return {"weights": [change]}


def renamed_weight(m: onnx.ModelProto) -> Told | None:
    tensor = _initializer(m, _is_large)
    if tensor is None:
        return None
    old = tensor.name
    tensor.name = "weight renamed"
    _rename_reads(m, old, "weight renamed")
    return {"renamed": [{"kind": "initializer", "old": old, "new": "weight renamed"}]}


def _rename_reads(m: onnx.ModelProto, old: str, new: str) -> None:
    for node in every_node(m.graph):
        for place, name in enumerate(node.input):
            if name == old:
                node.input[place] = new
    for holder in every_holder(m.graph):
        for value in (*holder.value_info, *holder.output):
            if value.name == old:
                value.name = new


def weight_as_constant(m: onnx.ModelProto) -> Told | None:
    tensor = _initializer(m, _is_large)
    if tensor is None or any(v.name == tensor.name for v in m.graph.value_info):
        return None
    held = TensorProto()
    held.CopyFrom(tensor)
    node = helper.make_node("Constant", [], [tensor.name], name="now a node", value=held)
    m.graph.initializer.remove(tensor)
    m.graph.node.insert(0, node)
    change = {"name": held.name, "what": "form", "old": "initializer", "new": "Constant"}
    return {"weights": [change]}


def constant_as_weight(m: onnx.ModelProto) -> Told | None:
    fit = [
        n
        for n in m.graph.node
        if n.op_type == "Constant" and not n.domain and n.attribute[0].name == "value"
    ]
    if not fit:
        return None
    node = fit[len(fit) // 2]
    same = [
        n
        for n in fit
        if n.attribute[0].t.SerializeToString() == node.attribute[0].t.SerializeToString()
    ]
    if len(same) > 1:
        return None
    tensor = m.graph.initializer.add()
    tensor.CopyFrom(node.attribute[0].t)
    tensor.name = node.output[0]
    m.graph.node.remove(node)
    change = {"name": tensor.name, "what": "form", "old": "Constant", "new": "initializer"}
    return {"weights": [change]}


def an_attribute(m: onnx.ModelProto) -> Told | None:
    found = _middle(
        (n, a) for n in m.graph.node for a in n.attribute if a.type == onnx.AttributeProto.FLOAT
    )
    if found is None:
        return None
    node, attribute = found
    old = str(np.float32(attribute.f))
    attribute.f = 0.375
    return {
        "changed": [
            {
                "node": _label(m, node),
                "op": _op(node),
                "what": attribute.name,
                "old": old,
                "new": "0.375",
            }
        ]
    }


def _op(node: onnx.NodeProto) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


def an_attribute_that_came(m: onnx.ModelProto) -> Told | None:
    node = _middle(m.graph.node)
    node.attribute.append(helper.make_attribute("novelty", [1, 2]))
    return {"changed": [{"node": _label(m, node), "what": "novelty", "old": None, "new": "[1, 2]"}]}


def an_attribute_that_went(m: onnx.ModelProto) -> Told | None:
    found = _middle(
        (n, a) for n in m.graph.node for a in n.attribute if a.type == onnx.AttributeProto.FLOAT
    )
    if found is None:
        return None
    node, attribute = found
    change = {"node": _label(m, node), "what": attribute.name, "new": None}
    node.attribute.remove(attribute)
    return {"changed": [change]}


def renamed_value(m: onnx.ModelProto) -> Told | None:
    found = _middle(_inner(m))
    if found is None:
        return None
    old = found[1].output[0]
    found[1].output[0] = "value renamed"
    _rename_reads(m, old, "value renamed")
    return {"renamed": [{"kind": "value", "old": old, "new": "value renamed"}]}


def renamed_node(m: onnx.ModelProto) -> Told:
    node = _middle(m.graph.node)
    old = _label(m, node)
    node.name = "node renamed"
    return {"renamed": [{"kind": "node", "old": old, "new": "node renamed"}]}


def every_name(m: onnx.ModelProto) -> Told | None:
    """Rename all values and nodes of the main graph: nothing but renames is told."""
    renames = []
    for index, node in enumerate(m.graph.node):
        renames.append({"kind": "node", "old": _label(m, node), "new": f"n{index}"})
        node.name = f"n{index}"
    inner = {node.output[0] for _, node in _inner(m)}
    new = {name: f"v{number}" for number, name in enumerate(sorted(inner))}
    for node in m.graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = new.get(name, name)
        if node.output and node.output[0] in new.values():
            old = next(a for a, b in new.items() if b == node.output[0])
            renames.append({"kind": "value", "old": old, "new": node.output[0]})
    for value in m.graph.value_info:
        value.name = new.get(value.name, value.name)
    return {"renamed": renames}


def sorted_otherwise(m: onnx.ModelProto) -> Told:
    rng = random.Random(3)
    made = {name: i for i, node in enumerate(m.graph.node) for name in node.output if name}
    wants: dict[int, set[int]] = {}
    for i, node in enumerate(m.graph.node):
        reads = [*node.input, *(x for b in bodies(node) for n in every_node(b) for x in n.input)]
        wants[i] = {made[name] for name in reads if name in made} - {i}
    nodes, done, order = list(m.graph.node), set(), []
    pending = sorted(wants)
    while pending:
        ready = [i for i in pending if wants[i] <= done]
        rng.shuffle(ready)
        order += ready
        done |= set(ready)
        pending = [i for i in pending if i not in done]
    copies = [onnx.NodeProto.FromString(nodes[i].SerializeToString()) for i in order]
    del m.graph.node[:]
    m.graph.node.extend(copies)
    return {}


def lists_sorted_otherwise(m: onnx.ModelProto) -> Told:
    for entries in (m.graph.initializer, m.graph.value_info, m.opset_import, m.metadata_props):
        entries.reverse()
    for node in m.graph.node:
        node.attribute.reverse()
    m.functions.reverse()
    return {}


def values_in_other_fields(m: onnx.ModelProto) -> Told:
    for tensor in m.graph.initializer:
        if tensor.data_type in (TensorProto.FLOAT, TensorProto.INT64) and tensor.raw_data:
            values = numpy_helper.to_array(tensor).reshape(-1).tolist()
            typed = helper.make_tensor(tensor.name, tensor.data_type, tensor.dims, values)
            tensor.CopyFrom(typed)
    return {}


def opset(m: onnx.ModelProto) -> Told:
    entry = next(e for e in m.opset_import if e.domain in ("", "ai.onnx"))
    entry.version += 1
    change = {"domain": "", "what": "version", "old": entry.version - 1, "new": entry.version}
    return {"opsets": [change]}


def another_domain(m: onnx.ModelProto) -> Told:
    m.opset_import.add(domain="a.b", version=3)
    return {"opsets": [{"domain": "a.b", "what": "added", "old": None, "new": 3}]}


def ir_version(m: onnx.ModelProto) -> Told:
    m.ir_version += 1
    return {"metadata": [{"key": "ir_version", "old": m.ir_version - 1, "new": m.ir_version}]}


def producer(m: onnx.ModelProto) -> Told:
    old = m.producer_name or None
    m.producer_name = "somebody"
    return {"metadata": [{"key": "producer_name", "old": old, "new": "somebody"}]}


def metadata(m: onnx.ModelProto) -> Told:
    m.metadata_props.add(key="licence", value="MIT")
    return {"metadata": [{"key": "metadata licence", "old": None, "new": "MIT"}]}


def remark(m: onnx.ModelProto) -> Told:
    m.doc_string = "new words"
    return {"metadata": [{"graph": "", "key": "doc_string", "new": "new words"}]}


def remark_of_a_graph(m: onnx.ModelProto) -> Told:
    m.graph.doc_string = "new words"
    return {"metadata": [{"graph": m.graph.name, "key": "doc_string", "new": "new words"}]}


def remark_of_a_node(m: onnx.ModelProto) -> Told:
    node = _middle(m.graph.node)
    node.doc_string = "new words"
    return {"changed": [{"node": _label(m, node), "what": "doc_string", "new": "new words"}]}


def metadata_of_a_node(m: onnx.ModelProto) -> Told:
    node = _middle(m.graph.node)
    node.metadata_props.add(key="why", value="not")
    return {"changed": [{"node": _label(m, node), "what": "metadata why", "new": "not"}]}


def name_of_the_graph(m: onnx.ModelProto) -> Told:
    old = m.graph.name
    m.graph.name = "another_graph"
    return {"renamed": [{"kind": "graph", "old": old, "new": "another_graph"}]}


def renamed_dimension(m: onnx.ModelProto) -> Told | None:
    names = [
        d.dim_param
        for v in m.graph.input
        for d in v.type.tensor_type.shape.dim
        if d.dim_param.isidentifier()
    ]
    if not names:
        return None
    old = names[0]
    for holder in (*every_holder(m.graph), *m.functions):
        values = list(holder.value_info)
        if isinstance(holder, onnx.GraphProto):
            values += [*holder.input, *holder.output]
        for value in values:
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param:
                    words = dim.dim_param.split(" ")
                    dim.dim_param = " ".join("size_of_it" if w == old else w for w in words)
    if old in str(m.graph.input) or any(old in v for v in _dims(m)):
        return None  # an expression that this edit cannot take apart
    return {"renamed": [{"kind": "dimension", "old": old, "new": "size_of_it"}]}


def _dims(m: onnx.ModelProto) -> list[str]:
    return [
        d.dim_param
        for holder in (*every_holder(m.graph), *m.functions)
        for v in (
            *holder.value_info,
            *(holder.output if isinstance(holder, onnx.GraphProto) else ()),
        )
        for d in v.type.tensor_type.shape.dim
    ]


def fixed_dimension(m: onnx.ModelProto) -> Told | None:
    for value in m.graph.input:
        dims = value.type.tensor_type.shape.dim
        if dims and dims[0].dim_param and not _is_past(m, value.name):
            old = [d.dim_param or (d.dim_value if d.HasField("dim_value") else None) for d in dims]
            dims[0].dim_value = 5
            change = {"side": "input", "name": value.name, "what": "shape"}
            return {"interface": [{**change, "old": old, "new": [5, *old[1:]]}]}
    return None


def _is_past(m: onnx.ModelProto, name: str) -> bool:
    words = ("past", "cache", "key", "value", "k_", "v_", "kv")
    return any(word in name for word in words) or len(name) < 3


def type_of_an_input(m: onnx.ModelProto) -> Told | None:
    for value in m.graph.input:
        type_ = value.type.tensor_type
        if type_.elem_type == TensorProto.INT64:
            type_.elem_type = TensorProto.INT32
            change = {"side": "input", "name": value.name, "what": "dtype"}
            return {"interface": [{**change, "old": "int64", "new": "int32"}]}
    return None


def an_input_that_came(m: onnx.ModelProto) -> Told:
    value = helper.make_tensor_value_info("novel", TensorProto.FLOAT, [2, "N"])
    m.graph.input.append(value)
    change = {"side": "input", "name": "novel", "what": "added", "old": None, "new": "float[2,N]"}
    return {"interface": [change]}


def inputs_in_another_order(m: onnx.ModelProto) -> Told | None:
    if len(m.graph.input) < 2:
        return None
    old = [v.name for v in m.graph.input]
    m.graph.input.reverse()
    return {"interface": [{"side": "input", "what": "order", "old": old, "new": old[::-1]}]}


def renamed_input(m: onnx.ModelProto) -> Told | None:
    value = m.graph.input[0]
    old = value.name
    value.name = "input renamed"
    _rename_reads(m, old, "input renamed")
    return {"renamed": [{"kind": "input", "old": old, "new": "input renamed"}]}


def renamed_output(m: onnx.ModelProto) -> Told | None:
    value = m.graph.output[0]
    old = value.name
    if any(old in node.output for holder in every_holder(m.graph)[1:] for node in holder.node):
        return None
    value.name = "output renamed"
    for node in m.graph.node:
        for place, name in enumerate(node.output):
            if name == old:
                node.output[place] = "output renamed"
    _rename_reads(m, old, "output renamed")
    return {"renamed": [{"kind": "output", "old": old, "new": "output renamed"}]}


def an_output_that_went(m: onnx.ModelProto) -> Told | None:
    fit = [v for v in m.graph.output if not _is_past(m, v.name) and "present" not in v.name]
    if not fit or len(m.graph.output) < 2:
        return None
    name = fit[0].name
    m.graph.output.remove(fit[0])
    change = {"side": "output", "name": name, "what": "removed", "new": None}
    return {"interface": [change]}


def an_output_that_came(m: onnx.ModelProto) -> Told | None:
    found = _middle(_inner(m))
    if found is None:
        return None
    name = found[1].output[0]
    m.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    change = {"side": "output", "name": name, "what": "added", "old": None, "new": "float[]"}
    return {"interface": [change]}


def an_inserted_node(m: onnx.ModelProto) -> Told | None:
    found = _middle(_inner(m))
    if found is None:
        return None
    index, node = found
    name = node.output[0]
    for other in m.graph.node:
        for place, read in enumerate(other.input):
            if read == name:
                other.input[place] = "passed on"
    new = helper.make_node("Identity", [name], ["passed on"], name="inserted")
    m.graph.node.insert(index + 1, new)
    facts = {"node": "inserted", "op": "Identity", "inputs": [name], "outputs": ["passed on"]}
    return {"added": [facts]}


def a_node_that_nobody_reads(m: onnx.ModelProto) -> Told | None:
    found = _middle(_inner(m))
    if found is None:
        return None
    m.graph.node.append(helper.make_node("Neg", [found[1].output[0]], ["idle"], name="idle"))
    return {"added": [{"node": "idle", "op": "Neg"}]}


def a_removed_node(m: onnx.ModelProto) -> Told | None:
    fit = [
        (i, n)
        for i, n in _inner(m)
        if n.op_type in ("Cast", "Transpose", "Sqrt", "Sigmoid", "Identity", "Unsqueeze")
        and len(n.input) <= 2
        and not (len(n.input) > 1 and _reads_only_here(m, n.input[1]))
    ]
    found = _middle(fit)
    if found is None:
        return None
    index, node = found
    old = _label(m, node)
    for other in m.graph.node:
        for place, read in enumerate(other.input):
            if read == node.output[0]:
                other.input[place] = node.input[0]
    gone = {"node": old, "op": node.op_type}
    for value in [v for v in m.graph.value_info if v.name == node.output[0]]:
        m.graph.value_info.remove(value)
    del m.graph.node[index]
    return {"removed": [gone]}


def _reads_only_here(m: onnx.ModelProto, name: str) -> bool:
    return sum(name in node.input for node in m.graph.node) == 1


def swapped_inputs(m: onnx.ModelProto) -> Told | None:
    weights = {t.name for t in m.graph.initializer}
    constants = {n.output[0] for n in m.graph.node if n.op_type == "Constant"}
    fit = [
        n
        for _, n in _inner(m)
        if len(n.input) == 2 and len({*n.input} - weights - constants) == 2 and all(n.input)
    ]
    node = _middle(fit)
    if node is None:
        return None
    a, b = node.input
    node.input[0], node.input[1] = b, a
    place = {"node": _label(m, node), "op": _op(node)}
    return {
        "changed": [
            {**place, "what": "input 0", "old": a, "new": b},
            {**place, "what": "input 1", "old": b, "new": a},
        ]
    }


def another_operator(m: onnx.ModelProto) -> Told | None:
    node = _middle(n for _, n in _inner(m) if n.op_type in ("Add", "Mul", "MatMul") and n.name)
    if node is None:
        return None
    old, node.op_type = node.op_type, "Max"
    return {"changed": [{"node": node.name, "what": "op", "old": old, "new": "Max"}]}


def operator_of_another_domain(m: onnx.ModelProto) -> Told | None:
    node = _middle(n for _, n in _inner(m) if n.op_type in ("Add", "Mul", "MatMul") and n.name)
    if node is None:
        return None
    node.domain = "a.b"
    new = f"a.b::{node.op_type}"
    return {"changed": [{"node": node.name, "what": "op", "old": node.op_type, "new": new}]}


def an_optional_input(m: onnx.ModelProto) -> Told | None:
    node = _middle(n for _, n in _inner(m) if n.op_type in ("Add", "Mul", "MatMul") and n.name)
    if node is None:
        return None
    node.input.append(m.graph.input[0].name)
    change = {"node": node.name, "what": "input 2", "old": None, "new": m.graph.input[0].name}
    return {"changed": [change]}


def another_declaration(m: onnx.ModelProto) -> Told | None:
    inner = {node.output[0] for _, node in _inner(m)}
    value = _middle(v for v in m.graph.value_info if v.name in inner)
    if value is None or not value.type.tensor_type.elem_type:
        return None
    value.type.tensor_type.elem_type = TensorProto.UINT8
    return {"values": [{"value": value.name, "what": "dtype", "new": "uint8"}]}


def body_of_a_function(m: onnx.ModelProto) -> Told | None:
    if not m.functions:
        return None
    function = m.functions[0]
    function.node[0].attribute.append(helper.make_attribute("novelty", 3))
    path = f"{function.domain}::{function.name}"
    change = {"graph": path, "what": "novelty", "old": None, "new": "3"}
    return {"changed": [change]}


def a_function_that_came(m: onnx.ModelProto) -> Told:
    node = helper.make_node("Neg", ["x"], ["y"])
    imports = [helper.make_opsetid("", 18)]
    m.functions.append(helper.make_function("a.b", "Novel", ["x"], ["y"], [node], imports))
    change = {"function": "a.b::Novel", "what": "added", "old": None, "new": "1 node"}
    return {"functions": [change]}


def within_a_body(m: onnx.ModelProto) -> Told | None:
    for node in m.graph.node:
        for graph in bodies(node):
            inner = _middle(graph.node)
            if inner is not None:
                inner.attribute.append(helper.make_attribute("novelty", 3))
                return {"changed": [{"op": _op(inner), "what": "novelty", "new": "3"}]}
    return None


EDITS: dict[str, Edit] = {
    function.__name__.replace("_", " "): function
    for function in (
        nothing, one_weight, a_scalar, type_of_a_weight, shape_of_a_weight,
        a_weight_that_nobody_reads, renamed_weight, weight_as_constant, constant_as_weight,
        an_attribute, an_attribute_that_came, an_attribute_that_went, renamed_value, renamed_node,
        every_name, sorted_otherwise, lists_sorted_otherwise, values_in_other_fields, opset,
        another_domain, ir_version, producer, metadata, remark, remark_of_a_graph,
        remark_of_a_node, metadata_of_a_node, name_of_the_graph, renamed_dimension,
        fixed_dimension, type_of_an_input, an_input_that_came, inputs_in_another_order,
        renamed_input, renamed_output, an_output_that_went, an_output_that_came, an_inserted_node,
        a_node_that_nobody_reads, a_removed_node, swapped_inputs, another_operator,
        operator_of_another_domain, an_optional_input, another_declaration, body_of_a_function,
        a_function_that_came, within_a_body,
    )
}  # fmt: skip
