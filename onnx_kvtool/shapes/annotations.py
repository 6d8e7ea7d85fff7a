"""Types and shapes in protobuf messages, and those that onnx infers without weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx
import onnx.shape_inference
import onnx_ir as ir

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.core.storage import is_misdeclared, stored_tensor
from onnx_kvtool.core.walk import graphs, nodes, subgraphs
from onnx_kvtool.guard.exhaustion import MOST_NODES, expanded_nodes
from onnx_kvtool.guard.fault import HOLDERS, INFERENCE_ERRORS
from onnx_kvtool.guard.weightless import infer_with_data, weightless
from onnx_kvtool.model_io.verbatim import every_node, held, named_bodies
from onnx_kvtool.symbolic.dimensions import is_invented

if TYPE_CHECKING:
    from onnx_kvtool.shapes.forward import Forward


def innermost(message: onnx.TypeProto) -> onnx.TypeProto.Tensor | None:
    """Return the tensor type in a type, below sequences and optionals; None if there is none."""
    inner = held(message)
    return inner.tensor_type if inner.HasField("tensor_type") else None


def read_type(message: onnx.TypeProto) -> ir.TypeProtocol | None:
    """Return the type that a message contains; None if the message is incomplete."""
    try:
        return ir.serde.deserialize_type_proto_for_type(message)
    except ir.serde.SerdeError:
        return None


Addition = tuple[ir.Value, ir.TypeProtocol | None, ir.Shape | None]
"""A value that inference changed, with its declared type and shape."""


_Reading = tuple["ir.TypeProtocol | None", "ir.Shape | None", bool]
"""The content of a type message: the type, the shape, and whether a size of 0 was left out.

None for a type that is incomplete; the shape has no invented names, and values can share it.
"""


class Completion:
    """Writes inferred types on values.

    Each different type is read once: thousands of values of a large model have few types.

    Args:
        frozen: Whether values may share types and shapes, which must not be edited then.

    Attributes:
        added: Each value that was written on.
        doubtful: Whether a size of 0 was left out. Some of onnx's rules take an unknown size for 0
            (the scores of Attention with a symbolic number of keys).
    """

    def __init__(self, *, frozen: bool) -> None:
        self.added: list[Addition] = []
        self.doubtful = False
        self._frozen = frozen
        self._readings: dict[bytes, _Reading | None] = {}

    def write(self, value: ir.Value, inferred: onnx.TypeProto) -> None:
        """Complete the type and the shape of one value; its declaration stays."""
        key = inferred.SerializeToString()
        if key not in self._readings:
            self._readings[key] = _read(inferred)
        reading = self._readings[key]
        if reading is None:
            return
        type_, shape, doubtful = reading
        self.doubtful |= doubtful
        self.added.append((value, value.type, value.shape))
        if value.type is None:
            value.type = type_ if self._frozen else read_type(inferred)
        value.shape = self._joined(value.shape, shape)

    def complete(self, value: ir.Value, annotate: Callable[[ir.Value], None]) -> None:
        """Complete one value by another function; its declaration stays."""
        type_, shape = value.type, value.shape
        annotate(value)
        self.added.append((value, type_, shape))
        value.type, value.shape = type_ or value.type, self._joined(shape, value.shape)

    def _joined(self, declared: ir.Shape | None, found: ir.Shape | None) -> ir.Shape | None:
        """Return a declared shape with the sizes that were found in its gaps."""
        if found is None or (declared is not None and len(declared) != len(found)):
            return declared
        if declared is None:
            return found if self._frozen else ir.Shape(list(found))
        pairs = zip(declared, found, strict=True)
        return ir.Shape([d if isinstance(d, int) or d.value is not None else f for d, f in pairs])


def _read(inferred: onnx.TypeProto) -> _Reading | None:
    """Return the description of a type; None if it has no content."""
    if not inferred.WhichOneof("value"):
        return None
    try:
        shape = ir.serde.deserialize_type_proto_for_shape(inferred)
    except ir.serde.SerdeError:  # onnx_ir has no form for maps
        shape = None
    if shape is None:
        return read_type(inferred), None, False
    dims = (
        None if _is_invented(d) else d if isinstance(d, int) else d.value or None for d in shape
    )
    return read_type(inferred), ir.Shape(tuple(dims), frozen=True), 0 in list(shape)


@dataclass(slots=True)
class Annotations:
    """The types and shapes that inference added to the values of a model.

    Attributes:
        added: Each changed value, with its declared type and shape.
        failure: Why inference stopped; None if it succeeded.
        agrees: Whether onnx's strict inference found no contradiction; None if it was not needed.
        run: The result of kvtool's own inference; None if it did not run.
    """

    added: list[Addition]
    failure: str | None = None
    agrees: bool | None = None
    run: Forward | None = None

    def remove(self) -> None:
        """Restore the declared types and shapes."""
        for value, type_, shape in reversed(self.added):  # some were changed twice
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

    Declared types and known dimensions stay unchanged, unless a constant contradicts them. A
    dimension with a name that inference invents (`unk__<n>`) stays unknown.

    Args:
        model: The model; the bodies of its functions are not inferred, because their types are
            known at calls only.
        wanted: Selects the nodes whose inputs and outputs get types and shapes; None for all.
        frozen: Whether values may share types and shapes, because nobody edits them before
            `Annotations.remove`.
        fully: Whether kvtool's own inference continues if onnx's leaves a type or a rank unknown.
            It knows contrib operators, and takes twice as long. It always continues if onnx's gives
            a size of 0, which may be an unknown size.
    """
    corrected = correct_constants(model)
    lacking = {
        value
        for _, _, node in nodes(model)
        if wanted is None or wanted(node)
        # What its bodies give as well.
        for given in (*(body.outputs for _, body in subgraphs(node)), node.inputs, node.outputs)
        for value in given
        if value is not None
        and (value.shape is None or value.type is None or value.shape.has_unknown_dim())
    }
    if not lacking:
        return Annotations(corrected)
    if is_too_large(model):
        return Annotations(corrected, f"{TOO_LARGE}, and shapes were not inferred")
    completion = Completion(frozen=frozen)
    completion.added += corrected
    inferred, agrees, failure = by_onnx(weightless(model))
    for value, type_ in () if inferred is None else _matches(model.graph, inferred, lacking):
        completion.write(value, type_)
    annotations = Annotations(completion.added, failure, agrees and not corrected)
    if completion.doubtful or (fully and any(map(_is_unknown, lacking))):
        from onnx_kvtool.shapes.writing import fill

        told = () if inferred is None else (*inferred.value_info, *inferred.output)
        annotations.run = fill(model, lacking, {v.name: v.type for v in told}, completion)
    return annotations


def correct_constants(model: ir.Model, *, initializers: bool = True) -> list[Addition]:
    """Give wrongly declared constants their own type and shape, in place.

    Runtimes use the constant, not its `value_info`. Declarations of inputs stay, because callers
    may feed other values, and so do those of outputs of the main graph, because callers rely on
    them.

    Args:
        model: The model.
        initializers: Whether initializers count as well as nodes. Runtimes refuse an initializer
            with a wrong declaration, and accept such a node.
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
    """Remove `value_info` entries that contradict onnx's inference, in place.

    onnx's full check and runtimes refuse such a model. Constants get their own type and shape.
    Declarations of inputs and outputs of graphs stay unchanged.

    Returns:
        The result of `weightless` for the model, if it is still valid; otherwise None.
    """
    correct_constants(model)
    outputs = (output for _, _, node in nodes(model) for output in node.outputs)
    between = [output for output in outputs if not output.is_graph_output()]
    for value in between:
        if value.type is None:
            value.shape = None  # there is no such entry without a type
    if all(value.type is None for value in between):
        return None
    message = weightless(model)
    imports = len(message.opset_import)
    _, agrees, _ = by_onnx(message)
    if agrees:
        return message if len(message.opset_import) == imports else None
    before = [(value, value.type, value.shape) for value in between]
    for value in between:
        value.type = value.shape = None
    inferred, _, _ = by_onnx(weightless(model))
    found = dict(() if inferred is None else _matches(model.graph, inferred, set(between)))
    for value, type_, shape in before:
        if value not in found or not _contradicts(found[value], type_, shape):
            value.type, value.shape = type_, shape
    return None


def _contradicts(
    found: onnx.TypeProto, type_: ir.TypeProtocol | None, shape: ir.Shape | None
) -> bool:
    """Return whether an inferred type is certainly another one than declared."""
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


TOO_LARGE = f"its functions expand to more than {MOST_NODES} nodes"


def is_too_large(model: ir.Model) -> bool:
    """Return whether inference would take too long: onnx enters a function at each call."""
    return bool(model.functions) and expanded_nodes(model) > MOST_NODES


def by_onnx(
    message: onnx.ModelProto, *, check_types: bool = False
) -> tuple[onnx.GraphProto | None, bool, str | None]:
    """Return the inferred main graph, whether strict inference succeeds, and what failed."""
    importing_all(message)
    agrees = True
    try:
        try:
            inferred = infer_with_data(message, strict=True, check_types=check_types)
        except onnx.shape_inference.InferenceError:
            # The other mode ignores contradictions, and errors that unknown operators cause.
            agrees = False
            inferred = infer_with_data(message)
    except (*INFERENCE_ERRORS, MemoryError) as error:
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        return None, False, f"onnx's shape inference failed: {line.rstrip('.')}"
    return inferred.graph, agrees, None


def importing_all(message: onnx.ModelProto) -> onnx.ModelProto:
    """Add missing imports of domains, which would stop onnx's inference; return the message."""
    for holder, root in ((message, message.graph), *((f, f) for f in message.functions)):
        imported = {entry.domain for entry in holder.opset_import}
        domains = {node.domain for node in every_node(root, HOLDERS)}
        for domain in sorted(domains - imported - DEFAULT_DOMAINS):
            holder.opset_import.add(domain=domain, version=1)
    return message


def forget_invented_names(graph: ir.Graph) -> None:
    """Make dimensions unknown that inference gave as `unk__<n>` or 0, in place.

    Each call of the inference counts from 0, so that two graphs use one name for different sizes.
    onnxruntime, which shares buffers by name, would fail. A 0 may stand for an unknown size.
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
                yield output, found.type
        inner = dict(subgraphs(node)) if node.attributes.data else None
        if not inner:
            continue
        if protos is None:
            protos = {name: n for n in proto.node for name in n.output if name}
        names = [output.name for output in node.outputs if output.name]
        for name, nested in named_bodies(protos[names[0]]) if names else ():
            if name in inner:
                yield from _matches(inner[name], nested, lacking)


def _is_unknown(value: ir.Value) -> bool:
    """Return whether the type of a value, or the rank of a tensor, is unknown."""
    if value.type is None:
        return bool(value.name)  # an output that is left out has none
    return value.shape is None and isinstance(value.type, ir.TensorType)
