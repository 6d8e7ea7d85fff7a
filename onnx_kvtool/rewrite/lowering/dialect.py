"""The last pass over a lowered model: forms that every importer reads, where they cost nothing.

Rules emit these forms themselves. This pass is for what comes from elsewhere: bodies of schemas and
functions, and the nodes of the source. What each form is good for stands in
`docs/developing/dialect.md`.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder, const_tensor
from onnx_kvtool.core.walk import contents, graphs, nodes, subgraphs
from onnx_kvtool.core.words import counted
from onnx_kvtool.emit.emitter import Emitter, Names, ScopedValues
from onnx_kvtool.ops.contrib import contrib_facts
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.rewrite.engine.inline import remove_unused
from onnx_kvtool.rewrite.engine.rule import remove_dead
from onnx_kvtool.rewrite.lowering.slicing import pads_of_all_axes
from onnx_kvtool.symbolic.dimensions import dims_of, fixed_sizes


def keep_to_dialect(
    model: ir.Model, opset: int, names: Names, own: Collection[ir.Node], *, spares: bool
) -> list[str]:
    """Write what a lowered model holds in the portable dialect, in place; no result changes.

    - Constant holds `value`, whatever it held (a sparse tensor stays).
    - A tensor without elements, or of floats of 16 bits, is held as raw bytes.
    - A node whose results nobody reads is removed, unless another domain may mean more by it than
      its results.
    - The value of Pad is a scalar where it is a constant of one element; Pad names no axes where
      the rank is known.
    - Squeeze names its axes where all sizes are known.

    Args:
        model: The model, legal at `opset`, with the types and ranks that are known.
        opset: Version of the default domain.
        names: Its fresh names.
        own: The nodes of the source.
        spares: Whether these stay as they are.

    Returns:
        What became of nodes of the source, for people.
    """
    spared = own if spares else ()
    _Pass(opset, ConstantFolder(), spared).graph(
        model.graph, ScopedValues(model.graph, None, names)
    )
    for _, _, listed in contents(model):
        for node in listed:
            if node.attributes.data and node not in spared:
                _write_value(node)
                for name, attribute in node.attributes.items():
                    if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
                        tensor = attribute.as_tensor()
                        if (held := _as_bytes(tensor)) is not tensor:
                            node.attributes[name] = ir.AttrTensor(name, held, attribute.doc_string)
    for _, graph in graphs(model):
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.const_value = _as_bytes(value.const_value)
    pure = not any(
        _means_more(node) and node.op_identifier() not in model.functions
        for function in model.functions.values()
        for node in function.all_nodes()
    )

    def stays(node: ir.Node) -> bool:
        if node in spared:
            return True
        if node.op_identifier() in model.functions:
            return not pure
        return _means_more(node) or any(
            stays(inner) for _, body in subgraphs(node) for inner in body
        )

    standing = [node for node in own if node.graph is not None]
    remove_dead([node for _, _, node in nodes(model)], stays)
    number = sum(node.graph is None for node in standing)
    return (
        [f"{counted(number, 'node')} removed: no node or output uses the results"] if number else []
    )


def asks_for_sizes(node: ir.Node) -> bool:
    """Return whether `keep_to_dialect` could do more for a node if it knew what the node reads."""
    if node.op_type == "Squeeze":
        return "axes" not in node.attributes and not any(node.inputs[1:])
    return node.op_type == "Pad" and any(node.inputs[3:])


def _means_more(node: ir.Node) -> bool:
    """Return whether a node may do more than to compute its outputs."""
    return not is_standard(node) and contrib_facts(node.domain, node.op_type) is None


def _write_value(node: ir.Node) -> None:
    """Give a Constant the tensor that its attribute stands for."""
    if node.op_type != "Constant" or node.domain != "" or len(node.attributes) != 1:
        return
    ((name, attribute),) = node.attributes.items()
    if name in ("value", "sparse_value") or attribute.is_ref():
        return
    tensor = const_tensor(node.outputs[0])
    if tensor is not None:
        del node.attributes[name]
        node.attributes["value"] = ir.AttrTensor("value", tensor)


def _as_bytes(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return a tensor that a file holds as raw bytes, where it may hold something else."""
    if not isinstance(tensor, ir.TensorProtoTensor) or tensor.dtype == ir.DataType.STRING:
        return tensor
    if tensor.raw.HasField("raw_data") or (tensor.size and tensor.dtype not in _HALVES):
        return tensor
    return ir.Tensor(
        tensor.numpy(),
        dtype=tensor.dtype,
        name=tensor.name,
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props),
    )


_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
"""Types whose patterns stand in fields for integers, where they are not raw bytes."""


class _Pass:
    """The forms of Pad and Squeeze in the main graph and the bodies in it."""

    def __init__(self, opset: int, folder: ConstantFolder, spared: Collection[ir.Node]) -> None:
        self.opset = opset
        self.folder = folder
        self.spared = spared

    def graph(self, graph: ir.Graph, scope: ScopedValues) -> None:
        for node in tuple(graph):
            if not is_standard(node):
                continue
            for _, body in subgraphs(node) if node.attributes.data else ():
                self.graph(body, ScopedValues(body, scope, scope.names))
            if node.op_type in ("Pad", "Squeeze") and node not in self.spared:
                em = Emitter(scope, self.opset, node.name or node.op_type)
                edit = self._pad if node.op_type == "Pad" else self._squeeze
                freed = edit(node, em)
                em.fold(self.folder.integers, ())
                em.insert_before(node)
                for value in freed:
                    remove_unused(value)

    def _pad(self, node: ir.Node, em: Emitter) -> list[ir.Value]:
        """Make the value of a Pad a scalar and its pads those of all axes; return what was read."""
        data, pads, value, axes = (*node.inputs, None, None, None)[:4]
        freed = []
        tensor = None if value is None or value.is_graph_input() else const_tensor(value)
        if value is not None and tensor is not None and tensor.size == 1 and tensor.shape:
            scalar = ir.Tensor(tensor.numpy().reshape(()), dtype=tensor.dtype)
            node.replace_input_with(2, em.tensor(scalar, "number"))
            freed.append(value)
        dims = dims_of(data)
        if axes is not None and pads is not None and dims is not None:
            node.replace_input_with(1, pads_of_all_axes(em, self.folder, pads, axes, len(dims)))
            node.resize_inputs(3 if node.inputs[2] is not None else 2)
            freed += [pads, axes]
        return freed

    def _squeeze(self, node: ir.Node, em: Emitter) -> list[ir.Value]:
        """Name the axes of a Squeeze of known sizes that has one to drop."""
        sizes = fixed_sizes(dims_of(node.inputs[0] if node.inputs else None))
        axes = [axis for axis, dim in enumerate(sizes or ()) if dim == 1]
        if not asks_for_sizes(node) or not axes:
            return []
        if self.opset < 13:
            node.attributes["axes"] = ir.AttrInt64s("axes", axes)
        else:
            node.resize_inputs(2)
            node.replace_input_with(1, em.constant(axes, "axes"))
        return []
