"""Models made wrong at random: what a broken exporter, a bad edit or a bad disk could leave."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper

__all__ = ["changed_bytes", "changed_model"]

T = TypeVar("T")

NUMBERS = (-(2**63), -(2**31), -7, -2, -1, 0, 1, 2, 3, 5, 7, 64, 4097, 2**31, 2**40, 2**63 - 1)
OPERATORS = (
    *("Add", "Attention", "BitShift", "Cast", "Clip", "Concat", "Constant", "ConstantOfShape"),
    *("CumSum", "DequantizeLinear", "Div", "Einsum", "Expand", "Flatten", "Gather"),
    *("GatherElements", "GatherND", "Gemm", "Identity", "If", "LayerNormalization", "Loop"),
    *("MatMul", "Mod", "NonZero", "OneHot", "Pad", "QuantizeLinear", "RMSNormalization", "Range"),
    *("ReduceMax", "ReduceSum", "Reshape", "Resize", "RotaryEmbedding", "Scan", "ScatterElements"),
    *("ScatterND", "SequenceAt", "Shape", "Size", "Slice", "Softmax", "Split", "Squeeze"),
    *("StringNormalizer", "Swish", "TensorScatter", "Tile", "TopK", "Transpose", "Trilu"),
    *("Unsqueeze", "Where", "NoSuchOperator", ""),
)
DOMAINS = ("", "ai.onnx", "com.microsoft", "ai.onnx.ml", "kvtool.none")
TEXTS = ("", "x", "nearest", "circular", "\u00e4", "a/b", "\x1b[2J", "N" * 400, "batch - 1")
ATTRIBUTES = ("axis", "axes", "perm", "to", "mode", "value", "keepdims", "start", "end", "body")
OPSETS = (0, 1, 7, 9, 11, 13, 17, 18, 23, 24, 26, 99, 2**62)


def changed_model(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """Return a copy of `model` with one to five edits of its structure."""
    broken = onnx.ModelProto()
    broken.CopyFrom(model)
    for _ in range(rng.randint(1, 5)):
        rng.choice(_EDITS)(broken, rng)
    return broken


def changed_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return `data` cut off, or with some of its bits and bytes changed, added or taken out."""
    changed = bytearray(data)
    if rng.random() < 0.2:
        return data[: rng.randrange(len(data))]
    for _ in range(rng.randint(1, 8)):
        place = rng.randrange(len(changed))
        kind = rng.randrange(3)
        if kind == 0:
            changed[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[place:place] = rng.randbytes(rng.randint(1, 4))
        elif len(changed) > 8:
            del changed[place : place + rng.randint(1, 4)]
    return bytes(changed)


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.ByteSize():
                    yield from _graphs(inner)


def _any(things: Sequence[T], rng: random.Random) -> T | None:
    return things[rng.randrange(len(things))] if len(things) else None


def _node(model: onnx.ModelProto, rng: random.Random) -> NodeProto:
    groups = [g.node for g in _graphs(model.graph)] + [f.node for f in model.functions]
    return rng.choice([node for group in groups for node in group] or [NodeProto()])


def _graph(model: onnx.ModelProto, rng: random.Random) -> GraphProto:
    return rng.choice(list(_graphs(model.graph)))


def _name(model: onnx.ModelProto, rng: random.Random) -> str:
    """Return the name of a value, perhaps of one that a later node makes."""
    graph = model.graph
    names = [name for node in graph.node for name in node.output]
    names += [value.name for value in (*graph.input, *graph.initializer)]
    return rng.choice([*names, "", "nowhere"])


def _tensor(model: onnx.ModelProto, rng: random.Random) -> TensorProto:
    tensors = [t for g in _graphs(model.graph) for t in g.initializer]
    tensors += [
        a.t for g in _graphs(model.graph) for n in g.node for a in n.attribute if a.HasField("t")
    ]
    return rng.choice(tensors or [TensorProto()])


def _rewire(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if node.input:
        node.input[rng.randrange(len(node.input))] = _name(model, rng)


def _change_inputs(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    names = list(rng.choice([node.input, node.output]))
    kind = rng.randrange(5)
    if kind == 0:
        names = names[: rng.randrange(len(names) + 1)]
    elif kind == 1:
        names += [_name(model, rng) for _ in range(rng.randint(1, 4))]
    elif kind == 2:
        rng.shuffle(names)
    elif kind == 3:
        names = names * 2
    else:
        names.insert(0, "")
    del node.input[:]
    node.input.extend(names)


def _change_outputs(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if rng.random() < 0.3:
        node.output.append(rng.choice(["", f"more_{rng.random()}", _name(model, rng)]))
    elif node.output and rng.random() < 0.5:
        node.output[rng.randrange(len(node.output))] = _name(model, rng)
    elif node.output:
        del node.output[rng.randrange(len(node.output))]


def _change_operator(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if rng.random() < 0.2:
        node.domain = rng.choice(DOMAINS)
    else:
        node.op_type = rng.choice(OPERATORS)
    if rng.random() < 0.3:
        del node.attribute[:]


def _change_nodes(model: onnx.ModelProto, rng: random.Random) -> None:
    graph = _graph(model, rng)
    if not graph.node:
        return
    kind, place = rng.randrange(3), rng.randrange(len(graph.node))
    if kind == 0:
        del graph.node[place]
    elif kind == 1:
        graph.node.add().CopyFrom(graph.node[place])
    else:
        nodes = list(graph.node)
        nodes[place], nodes[-1] = nodes[-1], nodes[place]
        del graph.node[:]
        graph.node.extend(nodes)


def _attribute(rng: random.Random) -> AttributeProto:
    name = rng.choice(ATTRIBUTES)
    value = rng.choice(
        [
            rng.choice(NUMBERS),
            [rng.choice(NUMBERS) for _ in range(rng.randint(1, 4))],
            1.5,
            [0.5, float("nan")],
            rng.choice(TEXTS),
            ["x", "y"],
            helper.make_tensor("t", TensorProto.INT64, [2], [rng.choice(NUMBERS)] * 2),
            helper.make_graph([helper.make_node("Identity", ["x"], ["b"])], "body", [], []),
            helper.make_tensor_type_proto(TensorProto.FLOAT, [1]),
        ]
    )
    return helper.make_attribute(name, value)


def _change_attributes(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    found = _any(node.attribute, rng)
    kind = rng.randrange(7)
    if found is None or kind == 0:
        node.attribute.add().CopyFrom(_attribute(rng))
    elif kind == 1:
        node.attribute.remove(found)
    elif kind == 2:
        found.i = rng.choice(NUMBERS)
    elif kind == 3:
        numbers = [*found.ints, rng.choice(NUMBERS)]
        rng.shuffle(numbers)
        found.ints[:] = numbers[: rng.randrange(len(numbers) + 1)]
    elif kind == 4:
        found.type = rng.randrange(15)  # type: ignore[assignment]
    elif kind == 5:
        found.s = rng.choice(TEXTS).encode()
    else:
        found.ref_attr_name = rng.choice(["p", "axis"])


def _swap_attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    found = _any(_node(model, rng).attribute, rng)
    if found is not None:
        name = found.name
        found.CopyFrom(_attribute(rng))
        found.name = name


def _change_tensor(model: onnx.ModelProto, rng: random.Random) -> None:
    tensor = _tensor(model, rng)
    kind = rng.randrange(6)
    if kind == 0 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS)
    elif kind == 1:
        tensor.dims.insert(0, rng.choice([1, 1, *NUMBERS]))
    elif kind == 2:
        tensor.data_type = rng.randrange(30)
    elif kind == 3:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
    elif kind == 4:
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(
            key="location", value=rng.choice(["w.data", "", "/etc/passwd", ".."])
        )
    elif tensor.data_type == TensorProto.INT64 and 0 < len(tensor.raw_data) <= 512:
        numbers = np.frombuffer(tensor.raw_data[: len(tensor.raw_data) // 8 * 8], np.int64).copy()
        if len(numbers):
            numbers[rng.randrange(len(numbers))] = rng.choice(NUMBERS)
            tensor.raw_data = numbers.tobytes()


def _new_numbers(model: onnx.ModelProto, rng: random.Random) -> None:
    """Let a node read numbers that are too large, too many, or too few."""
    node = _node(model, rng)
    count = rng.choice([0, 1, 1, 2, 3, 4, 9])
    numbers = np.array([rng.choice(NUMBERS) for _ in range(count)], np.int64)
    if count and rng.random() < 0.5:
        shape = rng.choice([(count,), (1, count), (count, 1), (count, 1, 1)])
        numbers = numbers.reshape(shape)
    name = f"numbers_{len(model.graph.initializer)}"
    model.graph.initializer.append(onnx.numpy_helper.from_array(numbers, name))
    if node.input:
        node.input[rng.randrange(len(node.input))] = name


def _change_types(model: onnx.ModelProto, rng: random.Random) -> None:
    graph = _graph(model, rng)
    value = _any([*graph.input, *graph.output, *graph.value_info], rng)
    if value is None:
        return
    tensor, kind = value.type.tensor_type, rng.randrange(7)
    if kind == 0:
        tensor.elem_type = rng.randrange(30)
    elif kind == 1:
        tensor.ClearField("shape")
    elif kind == 2:
        tensor.shape.dim.add(dim_value=rng.choice(NUMBERS))
    elif kind == 3 and tensor.shape.dim:
        del tensor.shape.dim[rng.randrange(len(tensor.shape.dim))]
    elif kind == 4 and tensor.shape.dim:
        rng.choice(tensor.shape.dim).dim_value = rng.choice(NUMBERS)
    elif kind == 5 and tensor.shape.dim:
        rng.choice(tensor.shape.dim).dim_param = rng.choice(TEXTS)
    else:
        inner = rng.choice(["sequence_type", "optional_type"])
        getattr(value.type, inner).elem_type.tensor_type.elem_type = TensorProto.FLOAT


def _claim(model: onnx.ModelProto, rng: random.Random) -> None:
    """State a type and a shape for any value, true or not."""
    shape = rng.choice([None, [], [rng.choice(NUMBERS)], ["batch", 3], [2, 3, 5, 7]])
    dtype = rng.choice([TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL, TensorProto.STRING])
    name = _name(model, rng)
    model.graph.value_info.append(helper.make_tensor_value_info(name, dtype, shape))


def _change_interface(model: onnx.ModelProto, rng: random.Random) -> None:
    graph = _graph(model, rng)
    values = rng.choice([graph.input, graph.output, graph.initializer, graph.value_info])
    if not len(values):
        return
    place, kind = rng.randrange(len(values)), rng.randrange(3)
    if kind == 0:
        del values[place]
    elif kind == 1:
        values.add().CopyFrom(values[place])
    else:
        values[place].name = _name(model, rng)


def _change_header(model: onnx.ModelProto, rng: random.Random) -> None:
    kind = rng.randrange(5)
    if kind == 0:
        model.ir_version = rng.choice([0, 3, 8, 10, 99, 2**62])
    elif kind == 1 and model.opset_import:
        rng.choice(model.opset_import).version = rng.choice(OPSETS)
    elif kind == 2:
        del model.opset_import[:]
    elif kind == 3:
        model.opset_import.add(domain=rng.choice(DOMAINS), version=rng.choice(OPSETS))
    else:
        model.ClearField("graph")


def _nest(model: onnx.ModelProto, rng: random.Random) -> None:
    """Put a node into the branches of an If, or into a Loop or a Scan."""
    graph = model.graph
    if not graph.node:
        return
    place = rng.randrange(len(graph.node))
    node = NodeProto()
    node.CopyFrom(graph.node[place])
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    body = helper.make_graph([node], "body", [], outputs)
    holder = graph.node[place]
    del holder.attribute[:]
    holder.op_type = rng.choice(["If", "Loop", "Scan", "SequenceMap"])
    for name in ("then_branch", "else_branch") if holder.op_type == "If" else ("body",):
        holder.attribute.add().CopyFrom(helper.make_attribute(name, body))
        if rng.random() < 0.5:
            for output in node.output:
                holder.attribute[-1].g.node[0].output[0] = f"{output}_{name}"


def _call(model: onnx.ModelProto, rng: random.Random) -> None:
    """Make a node the body of a function that may call itself, or another that calls it."""
    node = _node(model, rng)
    names = [f"f{len(model.functions) + k}" for k in range(rng.randint(1, 2))]
    for k, name in enumerate(names):
        inner = NodeProto()
        inner.CopyFrom(node)
        if rng.random() < 0.5:
            inner.domain, inner.op_type = "local", names[(k + rng.randrange(2)) % len(names)]
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
        function = helper.make_function(
            "local",
            name,
            [n for n in dict.fromkeys(node.input) if n],
            list(node.output),
            [inner],
            opsets,
        )
        model.functions.append(function)
    node.domain, node.op_type = "local", names[0]
    if rng.random() < 0.8:
        model.opset_import.add(domain="local", version=1)


def _sparse(model: onnx.ModelProto, rng: random.Random) -> None:
    tensor = _any(model.graph.initializer, rng)
    if tensor is None:
        return
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(tensor)
    sparse.indices.CopyFrom(helper.make_tensor("", TensorProto.INT64, [1], [rng.choice(NUMBERS)]))
    sparse.dims.extend(rng.choice(NUMBERS) for _ in range(rng.randint(0, 3)))
    if rng.random() < 0.6:
        model.graph.initializer.remove(tensor)


_EDITS: tuple[Callable[[onnx.ModelProto, random.Random], None], ...] = (
    *(_rewire, _rewire, _change_inputs, _change_outputs, _change_operator, _change_operator),
    *(_change_nodes, _change_attributes, _change_attributes, _swap_attribute, _change_tensor),
    *(_change_tensor, _new_numbers, _new_numbers, _new_numbers, _change_types, _change_types),
    *(_claim, _change_interface, _change_header, _nest, _call, _sparse),
)
