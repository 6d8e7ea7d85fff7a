"""Types and shapes of all values, from onnx's own inference on a message without weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx
import onnx.checker
import onnx.shape_inference
import onnx_ir as ir

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.core.storage import is_misdeclared, stored_tensor
from onnx_kvtool.core.walk import graphs, nodes, subgraphs
from onnx_kvtool.guard.contents import HOLDERS
from onnx_kvtool.guard.exhaustion import MOST_NODES, expanded_nodes
from onnx_kvtool.guard.inference import infer_with_data, weightless
from onnx_kvtool.model_io.forms import every_node, named_bodies
from onnx_kvtool.shapes.types import Addition, Completion
from onnx_kvtool.symbolic.dimensions import is_invented

if TYPE_CHECKING:
    from onnx_kvtool.shapes.forward import Forward


@dataclass(slots=True)
class Annotations:
    """What inference added to the values of a model.

    Attributes:
        added: Each value that was annotated, with the type and shape that the file declares.
        failure: Why inference stopped; None when it did not.
        agrees: Whether onnx's strict inference found nothing that contradicts itself or the types
            and shapes of the file; None when inference was not needed.
        run: What kvtool's own inference found; None when it did not run.
    """

    added: list[Addition]
    failure: str | None = None
    agrees: bool | None = None
    run: Forward | None = None

    def remove(self) -> None:
        """Restore the declared types and shapes, so that writing adds none."""
        for value, type_, shape in reversed(self.added):  # some were written on twice
            if value.producer() is not None or value.is_graph_input() or value.is_initializer():
                value.type, value.shape = type_, shape


def annotate(
    model: ir.Model,
    wanted: Callable[[ir.Node], bool] | None = None,
    *,
    frozen: bool = False,
    fully: bool = False,
) -> Annotations:
    """Infer types and shapes and write them on the values that lack them, in place.

    Declared types and known dimensions stay as they are, but for those of a constant that holds
    something else. Names that inference invents for unknown
    dimensions (`unk__<n>`) are not taken over: such a dimension stays unknown.

    Args:
        model: The model; the bodies of its functions are not inferred, because their types are
            known at calls only.
        wanted: The nodes whose inputs and outputs are annotated; others stay as they are, because
            most nodes of a large graph are looked at by nobody. None for all nodes.
        frozen: Whether values may share what is written on them, because nobody edits the shapes
            and types of values until they are removed.
        fully: Whether kvtool's own inference, which knows contrib operators and takes twice as
            long, goes on where onnx's leaves a type or a rank unknown. It always does where onnx's
            gives a size of 0, which may be one without a number.
    """
    corrected = correct_constants(model)
    lacking = {
        value
        for _, _, node in nodes(model)
        if wanted is None or wanted(node)
        for value in (*node.inputs, *node.outputs, *_given(node))
        if value is not None and _is_incomplete(value)
    }
    if not lacking:
        return Annotations(corrected)
    if model.functions and expanded_nodes(model) > MOST_NODES:
        reason = (
            f"its functions expand to more than {MOST_NODES} nodes, and shapes were not inferred"
        )
        return Annotations(corrected, reason)
    completion = Completion(frozen=frozen)
    completion.added += corrected
    inferred, agrees, failure = _by_onnx(weightless(model))
    if inferred is not None:
        for value, type_ in _matches(model.graph, inferred, lacking):
            completion.write(value, type_)
    annotations = Annotations(completion.added, failure, agrees and not corrected)
    if completion.doubtful or (fully and any(_is_unknown(value) for value in lacking)):
        from onnx_kvtool.shapes.writing import fill

        told = () if inferred is None else (*inferred.value_info, *inferred.output)
        annotations.run = fill(model, lacking, {v.name: v.type for v in told}, completion)
    return annotations


def _given(node: ir.Node) -> Iterator[ir.Value]:
    """Yield what the bodies of a node give."""
    if node.attributes.data:
        for _, body in subgraphs(node):
            yield from body.outputs


def correct_constants(model: ir.Model, *, initializers: bool = True) -> list[Addition]:
    """Give constants that `value_info` declares wrongly their own type and shape, in place.

    Readers take what they hold. What is declared of an input stays, because callers may feed it
    another value, and of an output of the main graph, because callers rely on it.

    Args:
        model: The model.
        initializers: Whether initializers count as well as nodes: runtimes refuse one that is
            declared wrongly, and take a node as it is.
    """
    found: list[Addition] = []
    for _, graph in graphs(model):
        made = (out for node in graph if node.op_type == "Constant" for out in node.outputs)
        stored = graph.initializers.values() if initializers else ()
        for value in (*stored, *made):
            if value.is_graph_input() or not is_misdeclared(value):
                continue
            if value.is_graph_output() and graph is model.graph:
                continue
            tensor = stored_tensor(value)
            assert tensor is not None
            found.append((value, value.type, value.shape))
            value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
    return found


def forget_contradictions(model: ir.Model) -> onnx.ModelProto | None:
    """Drop what `value_info` says of a value where onnx infers something else, in place.

    onnx's full check and runtimes refuse such a model. Constants get the type and shape that they
    have. Inputs and outputs of graphs stay as they are declared.

    Returns:
        What `weightless` returns for the model, if it was asked; else None.
    """
    correct_constants(model)
    between = [
        output
        for _, _, node in nodes(model)
        for output in node.outputs
        if not output.is_graph_output()
    ]
    for value in between:
        if value.type is None:
            value.shape = None  # there is no such entry without a type
    if not any(value.type is not None or value.shape is not None for value in between):
        return None
    message = weightless(model)
    imports = len(message.opset_import)
    _, agrees, _ = _by_onnx(message)
    if agrees:
        return message if len(message.opset_import) == imports else None
    before = [(value, value.type, value.shape) for value in between]
    for value in between:
        value.type = value.shape = None
    inferred, _, _ = _by_onnx(weightless(model))
    found: dict[ir.Value, onnx.TypeProto] = {}
    if inferred is not None:
        found = dict(_matches(model.graph, inferred, set(between)))
    for value, type_, shape in before:
        if value not in found or not _contradicts(found[value], type_, shape):
            value.type, value.shape = type_, shape
    return None


def _contradicts(
    found: onnx.TypeProto, type_: ir.TypeProtocol | None, shape: ir.Shape | None
) -> bool:
    """Return whether an inferred type is no other way to write a declared one."""
    if not found.HasField("tensor_type"):
        return False
    inferred = found.tensor_type
    if type_ is not None and inferred.elem_type not in (0, int(type_.dtype)):
        return True
    if shape is None or not inferred.HasField("shape"):
        return False
    dims = inferred.shape.dim
    return len(dims) != len(shape) or any(
        isinstance(declared, int) and dim.HasField("dim_value") and dim.dim_value != declared
        for dim, declared in zip(dims, shape, strict=True)
    )


def _by_onnx(message: onnx.ModelProto) -> tuple[onnx.GraphProto | None, bool, str | None]:
    """Return the main graph with inferred types, whether it agrees with itself, and what failed."""
    importing_all(message)
    agrees = True
    try:
        try:
            inferred = infer_with_data(message, strict=True)
        except onnx.shape_inference.InferenceError:
            # The other mode passes over what contradicts, and what only unknown operators cause.
            agrees = False
            inferred = infer_with_data(message)
    except (
        onnx.shape_inference.InferenceError,
        onnx.checker.ValidationError,  # functions that call each other in a circle
        RuntimeError,
        ValueError,
        MemoryError,
    ) as error:
        return None, False, f"onnx's shape inference failed: {_first_line(error)}"
    return inferred.graph, agrees, None


def _first_line(error: BaseException) -> str:
    """Return what an error says first; the name of its kind where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def importing_all(message: onnx.ModelProto) -> onnx.ModelProto:
    """Add an import of every domain that nodes have, and return the message.

    One that is missing would stop onnx's inference of the whole model.
    """
    for holder, root in ((message, message.graph), *((f, f) for f in message.functions)):
        imported = {entry.domain for entry in holder.opset_import}
        domains = {node.domain for node in every_node(root, HOLDERS)}
        for domain in sorted(domains - imported - DEFAULT_DOMAINS):
            holder.opset_import.add(domain=domain, version=1)
    return message


def forget_invented_names(graph: ir.Graph) -> None:
    """Make the dimensions unknown that inference called `unk__<n>` or 0, in place.

    The numbers start anew in each call of the inference, so that two graphs use one name for
    different sizes; a runtime that shares buffers by name (onnxruntime) would fail on it. And 0 may
    stand for a size without a number.
    """
    for node in graph:
        for value in node.outputs:
            if value.shape is not None and any(_is_invented(d) for d in value.shape):
                value.shape = ir.Shape([None if _is_invented(d) else d for d in value.shape])
        for _, inner in subgraphs(node):
            forget_invented_names(inner)


def _is_invented(dim: int | ir.SymbolicDim) -> bool:
    return dim == 0 if isinstance(dim, int) else is_invented(dim.value)


def _matches(
    graph: ir.Graph, proto: onnx.GraphProto, lacking: set[ir.Value]
) -> Iterator[tuple[ir.Value, onnx.TypeProto]]:
    """Pair the lacking values of a graph and its nested graphs with their inferred types."""
    declared = {v.name: v for v in (*proto.value_info, *proto.output)}
    # Positions differ, because the message leaves large Constant nodes out; outputs do not.
    protos: dict[str, onnx.NodeProto] | None = None
    for node in graph:
        for output in node.outputs:
            if output in lacking and (found := declared.get(output.name or "")) is not None:
                yield output, _without_doubt(node, output, found.type)
        inner = dict(subgraphs(node)) if node.attributes.data else None
        if not inner:
            continue
        if protos is None:
            protos = {name: n for n in proto.node for name in n.output if name}
        names = [output.name for output in node.outputs if output.name]
        for name, nested in named_bodies(protos[names[0]]) if names else ():
            if name in inner:
                yield from _matches(inner[name], nested, lacking)


def _without_doubt(node: ir.Node, output: ir.Value, found: onnx.TypeProto) -> onnx.TypeProto:
    """Return an inferred type without what onnx may have got wrong.

    The scores of an Attention are as wide as there are past and new keys; onnx 1.23.2 counts past
    ones whose number is a name as none.
    """
    past = node.inputs[4] if len(node.inputs) > 4 else None
    if node.op_type != "Attention" or node.domain or past is None:
        return found
    dims = found.tensor_type.shape.dim
    if len(node.outputs) < 4 or output is not node.outputs[3] or len(dims) != 4:
        return found
    doubted = onnx.TypeProto()
    doubted.CopyFrom(found)
    doubted.tensor_type.shape.dim[3].Clear()
    return doubted


def _is_unknown(value: ir.Value) -> bool:
    """Return whether the type of a value, or the rank of a tensor, is unknown."""
    if value.type is None:
        return bool(value.name)  # an output that is left out has none
    return value.shape is None and isinstance(value.type, ir.TensorType)


def _is_incomplete(value: ir.Value) -> bool:
    shape = value.shape
    return shape is None or value.type is None or shape.has_unknown_dim()
