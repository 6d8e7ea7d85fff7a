"""Types and shapes of all values, as messages hold them and as onnx infers them without weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from onnx_kvtool.symbolic.dimensions import is_invented

if TYPE_CHECKING:
    from onnx_kvtool.shapes.forward import Forward
    from onnx_kvtool.symbolic.rules.contrib import Contrib


# Types as messages hold them.


def innermost(message: onnx.TypeProto) -> onnx.TypeProto.Tensor | None:
    """Return the type of the tensors that a type holds; None where it holds none.

    That is a tensor itself, the elements of a sequence, or what an optional may hold.
    """
    while (kind := message.WhichOneof("value")) in ("sequence_type", "optional_type"):
        message = getattr(message, str(kind)).elem_type
    return message.tensor_type if kind == "tensor_type" else None


def read_type(message: onnx.TypeProto) -> ir.TypeProtocol | None:
    """Return the type that a message holds; None for one that does not say of what it is."""
    try:
        return ir.serde.deserialize_type_proto_for_type(message)
    except ir.serde.SerdeError:
        return None


# Types of the outputs of an operator of onnxruntime.


_Types = Callable[[ir.Value], "ir.TypeProtocol | None"]


def contrib_types(
    node: ir.Node, contrib: Contrib, type_of: _Types
) -> Sequence[ir.TypeProtocol | None]:
    """Return the type of each output of an operator of the table of contrib operators."""
    found: list[ir.TypeProtocol | None] = []
    for index in range(len(node.outputs)):
        how = contrib.types.get(index, (0,))
        if isinstance(how, ir.DataType):
            found.append(ir.TensorType(how))
            continue
        given = (node.inputs[i] for i in how if i < len(node.inputs))
        known = (type_of(value) for value in given if value is not None)
        found.append(next((type_ for type_ in known if type_ is not None), None))
    return found


# Writing what onnx's inference found on the values that lack it.


Addition = tuple[ir.Value, ir.TypeProtocol | None, ir.Shape | None]
"""A value that inference changed, with its declared type and shape."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """What one type says.

    Attributes:
        type: The type; None for one that does not say of what it is.
        is_plain: Whether `type` is that of a tensor, and says no more than the element type.
        dims: The dimensions, invented names left out; None where there is no shape.
        shape: The same as a shape that can be shared.
        doubtful: Whether a size of 0 was left out.
    """

    type: ir.TypeProtocol | None
    is_plain: bool
    dims: list[int | str | None] | None
    shape: ir.Shape | None
    doubtful: bool


class Completion:
    """Writes inferred types on values.

    The thousands of values of a large model have few different types, each of which is read once.

    Args:
        frozen: Whether values may share types and shapes, which must not be edited then.

    Attributes:
        added: Each value that was written on.
        doubtful: Whether a size of 0 was left out. onnx's rules take a size without number for 0
            here and there (the scores of Attention, where the number of keys is a name).
    """

    def __init__(self, *, frozen: bool) -> None:
        self.added: list[Addition] = []
        self.doubtful = False
        self._frozen = frozen
        self._readings: dict[bytes, _Reading | None] = {}

    def write(self, value: ir.Value, inferred: onnx.TypeProto) -> None:
        """Complete the type and the shape of one value; what is declared of it stays."""
        key = inferred.SerializeToString()
        if key not in self._readings:
            self._readings[key] = _read(inferred)
        reading = self._readings[key]
        if reading is None:
            return
        self.doubtful = self.doubtful or reading.doubtful
        declared = value.shape
        self.added.append((value, value.type, declared))
        if value.type is None:
            value.type = self._type(reading, inferred)
        if reading.dims is None:
            return
        if declared is None:
            value.shape = reading.shape if self._frozen else ir.Shape(reading.dims)
        elif len(declared) == len(reading.dims):
            dims = [_known(d, i) for d, i in zip(declared, reading.dims, strict=True)]
            value.shape = ir.Shape(dims)

    def complete(self, value: ir.Value, annotate: Callable[[ir.Value], None]) -> None:
        """Let something else annotate a value; what is declared of it stays."""
        type_, shape = value.type, value.shape
        annotate(value)
        self.added.append((value, type_, shape))
        value.type = type_ or value.type
        found = value.shape
        if shape is None and found is not None and not self._frozen:
            value.shape = ir.Shape(list(found))
        elif shape is not None and found is not None and len(shape) == len(found):
            inferred = [dim if isinstance(dim, int) else dim.value for dim in found]
            dims = [_known(d, i) for d, i in zip(shape, inferred, strict=True)]
            value.shape = ir.Shape(dims)
        else:
            value.shape = shape or found

    def _type(self, reading: _Reading, inferred: onnx.TypeProto) -> ir.TypeProtocol | None:
        if self._frozen or reading.type is None:
            return reading.type
        return ir.TensorType(reading.type.dtype) if reading.is_plain else read_type(inferred)


def _read(inferred: onnx.TypeProto) -> _Reading | None:
    """Return the description of a type; None if it has no content."""
    if not inferred.WhichOneof("value"):
        return None
    type_ = read_type(inferred)
    is_plain = isinstance(type_, ir.TensorType) and not type_.denotation
    try:
        shape = ir.serde.deserialize_type_proto_for_shape(inferred)
    except ir.serde.SerdeError:  # onnx_ir has no form for maps
        shape = None
    dims = None if shape is None else [_named(dim) for dim in shape]
    frozen = None if dims is None else ir.Shape(dims, frozen=True)
    return _Reading(type_, is_plain, dims, frozen, shape is not None and 0 in list(shape))


def _named(dim: int | ir.SymbolicDim) -> int | str | None:
    if isinstance(dim, int):
        return dim or None
    return None if not dim.value or is_invented(dim.value) else dim.value


def _known(declared: int | ir.SymbolicDim, inferred: int | str | None) -> int | str | None:
    if isinstance(declared, int):
        return declared
    return declared.value if declared.value is not None else inferred


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
