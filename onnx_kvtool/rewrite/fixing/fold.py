"""Replace nodes whose results are constant by constants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import LARGEST, ConstantFolder, Constants
from onnx_kvtool.core.walk import nodes, subgraphs
from onnx_kvtool.emit.emitter import Emitter, Names, Replacement, ScopedValues
from onnx_kvtool.emit.forms import dtype_of
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.ops.traits import SIZE_TYPES
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.engine.inline import put_in_place, replace_node
from onnx_kvtool.rewrite.engine.rule import is_needed, remove_dead, remove_unread_constants
from onnx_kvtool.symbolic.dimensions import dims_of, fixed_sizes

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Sizes that are known of a result although its node is told them when the model runs.
#
#     Expand(x, target), Reshape(x, target), ConstantOfShape(target)  ->  with a constant target
#     Range(start, limit, delta)                                      ->  start + [0, delta, ...]
#     Slice(x, start, end)                                            ->  Gather(x, start + [0, ..])
#
# Inference knows them for every run that does not fail.


_TARGET = {"ConstantOfShape": 0, "Expand": 1, "Reshape": 1}
"""Input that says the shape of the result."""


def told_by_constants(
    node: ir.Node, opset: int, scope: ScopedValues, folder: ConstantFolder
) -> bool:
    """Replace size inputs of a node by constants, in place, if they are known; say if it changed.

    A Range or Slice is taken out of its graph.
    """
    if node.domain != "" or len(node.outputs) != 1:
        return False
    sizes = fixed_sizes(dims_of(node.outputs[0]))
    if sizes is None:
        return False
    em = Emitter(scope, opset, node.name or node.op_type)
    try:
        if node.op_type in _TARGET:
            return _retarget(node, sizes, em, folder)
        if node.op_type == "Range":
            return _counted(node, sizes, em, folder)
        if node.op_type == "Slice":
            return _gathered(node, NodeView(node, opset), sizes, em, folder)
    except MalformedNode:
        return False
    return False


def _retarget(node: ir.Node, sizes: list[int], em: Emitter, folder: ConstantFolder) -> bool:
    index = _TARGET[node.op_type]
    given = node.inputs[index] if index < len(node.inputs) else None
    if given is None or folder.integers(given) is not None:
        return False
    if node.op_type == "Reshape" and 0 in sizes:
        return False  # where a 0 copies a size
    node.replace_input_with(index, em.constant(sizes, "sizes"))
    em.commit()
    return True


def _counted(node: ir.Node, sizes: list[int], em: Emitter, folder: ConstantFolder) -> bool:
    """Write a Range whose length is known as a sum; integers that wrap would do so in both."""
    output, (start, limit, delta) = node.outputs[0], node.inputs
    step = folder.integers(delta)
    if start is None or step is None or output.dtype not in SIZE_TYPES or sizes[0] > LARGEST:
        return False
    if folder.integers(start) is not None and folder.integers(limit) is not None:
        return False
    steps = np.arange(sizes[0]) * int(step.ravel()[0])
    counted = em.constant(steps.astype(output.dtype.numpy()), "steps")
    result = em.op("Add", start, counted)
    result.shape = output.shape
    replace_node(node, em, Replacement((result,)))
    return True


def _gathered(
    node: ir.Node, view: NodeView, sizes: list[int], em: Emitter, folder: ConstantFolder
) -> bool:
    """Write a Slice of a known length along one axis as a Gather from where it starts."""
    if len(node.inputs) < 3:
        return False  # below opset 10, where the ends are attributes
    start = view.required("starts")
    data, axes, steps = view.required("data"), view.input("axes"), view.input("steps")
    known = None if axes is None else folder.integers(axes)
    stride = None if steps is None else folder.integers(steps)
    if folder.integers(start) is not None and folder.integers(view.required("ends")) is not None:
        return False
    if known is None or known.size != 1 or (steps is not None and (stride is None or stride != 1)):
        return False
    before, axis = dims_of(data), int(known.ravel()[0]) % max(len(sizes), 1)
    whole = None if before is None else before[axis]
    count = sizes[axis]
    if not isinstance(whole, int) or not 0 < count <= min(whole, LARGEST):
        return False
    # Slice clamps its ends. A start behind the last one that leaves room would give fewer rows than
    # are known to come out.
    dtype = start.dtype or ir.DataType.INT64
    steps_ = em.constant(np.arange(count).astype(dtype.numpy()), "steps")
    rows = em.op("Add", start, steps_, dtype=dtype)
    rows.shape = ir.Shape([count])
    element = dtype_of(node.outputs[0])
    result = em.op("Gather", data, rows, axis=axis, dtype=element)
    result.shape = node.outputs[0].shape
    replace_node(node, em, Replacement((result,)))
    return True


# Replace nodes whose results are constant by constants, and drop nodes whose results nobody reads.


def fold(model: ir.Model, names: Names) -> int:
    """Replace nodes whose outputs are small constants, and drop those that change nothing.

    In place, in the main graph and the bodies of ONNX's control flow; functions stay. Constants
    become initializers of the main graph, equal ones a single one, or a Constant where one is an
    output of its graph. No result changes in any bit. Types and shapes are those on the values.

    Returns:
        How many nodes were replaced or dropped.
    """
    folding = _Folding(model, names)
    folding.graph(model.graph)
    folding.tell(model.graph, ScopedValues(model.graph, None, names))
    return folding.count


def remove_unread(model: ir.Model) -> int:
    """Remove nodes and initializers that nobody reads, in place, and return how many nodes.

    An initializer stays that the caller may supply.
    """
    count = remove_dead(
        node for _, _, node in nodes(model) if not any(map(is_needed, node.outputs))
    )
    remove_unread_constants(model)
    return count


@dataclass(slots=True)
class _Folding:
    model: ir.Model
    names: Names
    folder: ConstantFolder = field(default_factory=ConstantFolder)
    count: int = 0
    _constants: Constants = field(init=False)
    _made: dict[tuple[Any, ...], ir.Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._constants = Constants(self.folder)

    def graph(self, graph: ir.Graph) -> None:
        """Fold the nodes of a graph, and of the bodies that may read outer values."""
        known: list[tuple[ir.Node, NDArray[Any]]] = []
        for node in tuple(graph):
            if node.attributes.data and is_standard(node):
                for _, body in subgraphs(node):
                    self.graph(body)
            if node.domain != "" or node.op_type == "Constant" or len(node.outputs) != 1:
                continue
            array = self._constants.of(node.outputs[0])
            if array is not None:
                known.append((node, array))
            elif (source := self._unchanged(node)) is not None:
                node.outputs[0].replace_all_uses_with(source)
                self.count += 1
        folded = {node for node, _ in known}
        for node, array in known:
            self._replace(graph, node, array, folded)
        # The last one first: each is then read by nobody.
        for node in reversed([node for node in folded if node.graph is graph]):
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
        graph.remove([node for node in folded if node.graph is graph])
        self.count += len(folded)

    def tell(self, graph: ir.Graph, scope: ScopedValues) -> None:
        """Replace size inputs of nodes by constants, if they are known."""
        opset = self.model.opset_imports.get("", 1)
        for node in tuple(graph):
            if node.attributes.data and is_standard(node):
                for _, body in subgraphs(node):
                    self.tell(body, ScopedValues(body, scope, scope.names))
            version = opset if node.version is None else node.version
            self.count += told_by_constants(node, version, scope, self.folder)

    def _replace(
        self, graph: ir.Graph, node: ir.Node, array: NDArray[Any], folded: set[ir.Node]
    ) -> None:
        """Let the readers of a node that stay read a constant in its place."""
        (output,) = node.outputs
        if output.is_graph_output():
            self._hand_out(node, array)
        elif any(use.node not in folded for use in output.uses()):
            output.replace_all_uses_with(self._constant(graph, output, array))

    def _constant(self, graph: ir.Graph, output: ir.Value, array: NDArray[Any]) -> ir.Value:
        """Return the initializer of the main graph that holds what `output` does."""
        assert output.dtype is not None
        key = (output.dtype, array.shape, array.tobytes())
        if key not in self._made:
            name = output.name or "constant"
            if graph is self.model.graph:
                output.name = self.names.fresh(f"{name}_folded")
            else:  # where another body may have a value of this name
                name = self.names.fresh(name)
            made = ir.Value(
                name=name,
                type=ir.TensorType(output.dtype),
                shape=ir.Shape(array.shape),
                const_value=ir.tensor(array, dtype=output.dtype, name=name),
            )
            self.model.graph.register_initializer(made)
            self._made[key] = made
        return self._made[key]

    def _hand_out(self, node: ir.Node, array: NDArray[Any]) -> None:
        """Put a Constant in the place of a node whose output the graph hands out."""
        (output,) = node.outputs
        held = [ir.AttrTensor("value", ir.tensor(array, dtype=output.dtype))]
        constant = ir.Node("", "Constant", [], held, version=node.version, name=node.name)
        (made,) = constant.outputs
        made.doc_string = output.doc_string
        made.metadata_props.update(output.metadata_props)
        put_in_place(node, [constant], [output], [made])

    def _unchanged(self, node: ir.Node) -> ir.Value | None:
        """Return the input that the output of a node copies; None if it is no copy."""
        output = node.outputs[0]
        if output.is_graph_output() or not node.inputs:
            return None
        index = _copied(node, self.folder)
        source = None if index is None else node.inputs[index]
        if source is None or source.dtype is None or source.dtype != output.dtype:
            return None
        sizes = fixed_sizes(dims_of(output))
        return source if sizes is not None and sizes == fixed_sizes(dims_of(source)) else None


def _copied(node: ir.Node, folder: ConstantFolder) -> int | None:
    """Return the input that a node copies, given that type and shape are those of its output.

    Only what depends on sizes is asked: an Identity says nothing anew when they are fixed.
    """
    if node.op_type in ("Expand", "Flatten", "Reshape", "Tile"):
        return 0
    if node.op_type == "Pad":
        pads = folder.integers(node.inputs[1]) if len(node.inputs) > 1 else None
        return 0 if pads is not None and not pads.any() else None
    if node.op_type == "Slice":
        given = node.inputs[4] if len(node.inputs) > 4 else None
        steps = folder.integers(given)
        return 0 if given is None or (steps is not None and (steps > 0).all()) else None
    if node.op_type == "Where":
        chosen = folder.integers(node.inputs[0])
        if chosen is not None and chosen.size:
            return 1 if chosen.all() else None if chosen.any() else 2
    return None
