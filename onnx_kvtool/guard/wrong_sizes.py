"""Sizes and elements of sizes that onnx's inference gets wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Set

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import numpy_helper

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.guard.exhaustion import HANDED_ON
from onnx_kvtool.guard.fault import (
    HOLDERS,
    INTEGERS,
    SMALL_BYTES,
    Contents,
    Fault,
    Infer,
    infer_hiding,
    is_told,
)
from onnx_kvtool.model_io.verbatim import Holder, every_holder, every_node

MATRIX_VALUES = Fault(
    what="takes the elements of a matrix for those of a vector while it infers: (2, 1) and (3,) are"
    " refused as (2,) and (3,)",
    instead="hides the elements of a matrix that an Unsqueeze makes",
)

_AXES = ((1,), ("axes",))

_READERS = HANDED_ON.keys() - {"Shape", "Size"}
"""Operators that compute with elements which inference knows, at some opset."""

_VECTORS = frozenset({"NonZero", "Range", "Shape", "Unsqueeze"})
_ELEMENTWISE = frozenset({"Abs", "Add", "Cast", "Div", "Identity", "Mul", "Neg", "Sub"})
"""Operators whose result always has a dimension, and those whose result has one if an operand has.
Only operators whose elements onnx 1.23.2 computes matter, so this is no table of traits."""


def infer_past_matrix_values(contents: Contents, infer: Infer) -> onnx.ModelProto:
    """Return `infer(contents)`, where the elements of a matrix are unknown.

    Data propagation of onnx 1.23.2 knows vectors only, and its Unsqueeze passes the elements on
    even if the result is a matrix. onnx then refuses (2, 1) and (3,) as if they were (2,) and (3,),
    and adds (2, 1) and (1, 2) to two elements. Only Unsqueeze makes a matrix of known elements, so
    kvtool puts an Identity, which does not propagate any, behind each that may do so.
    """
    made = set(_matrices(contents))

    def identity(node: onnx.NodeProto) -> tuple[int, list[onnx.NodeProto]] | None:
        if node.op_type != "Unsqueeze" or made.isdisjoint(node.output):
            return None
        name = node.output[0]
        # Under the name of the node, so that messages about either name it.
        behind = onnx.helper.make_node("Identity", [f"{name}{_INNER}"], [name], name=node.name)
        return 0, [behind]

    return _infer_behind(contents, infer, identity) if made else infer(contents)


_Behind = Callable[[onnx.NodeProto], "tuple[int, list[onnx.NodeProto]] | None"]
"""Returns an output of a node that is hidden, and the nodes that make its name anew."""

_INNER = "\x00kvtool.inner"
"""End of the names of hidden values; no file has it."""


def _infer_behind(contents: Contents, infer: Infer, behind: _Behind) -> onnx.ModelProto:
    """Return `infer(contents)`, with more nodes behind some nodes while it runs."""
    # In place, as a copy of all nodes takes longer than inference.
    places = [_insert(holder, behind) for holder in contents.holders]
    try:
        result = infer(Contents(contents.message))
    finally:
        _remove(contents.holders, places)
    holders = every_holder(result, HOLDERS)
    _remove(holders, places)
    for holder in holders:
        inner = [i for i, info in enumerate(holder.value_info) if info.name.endswith(_INNER)]
        for place in reversed(inner):
            del holder.value_info[place]
    return result


_Place = tuple[int, int, int]
"""Position of a node, its hidden output, and the number of nodes behind it."""


def _insert(holder: Holder, behind: _Behind) -> list[_Place]:
    places: list[_Place] = []
    more = 0
    for index, node in enumerate(list(holder.node)):
        if (found := behind(node)) is not None:
            output, nodes = found
            node.output[output] += _INNER
            places.append((index + more, output, len(nodes)))
            for place, one in enumerate(nodes, index + more + 1):
                holder.node.insert(place, one)
            more += len(nodes)
    return places


def _remove(holders: list[Holder], places: list[list[_Place]]) -> None:
    for holder, positions in zip(holders, places, strict=True):
        for place, output, count in reversed(positions):
            names = holder.node[place].output
            names[output] = names[output].removesuffix(_INNER)
            del holder.node[place + 1 : place + 1 + count]


def _matrices(contents: Contents) -> Iterator[str]:
    """Yield the outputs of Unsqueeze that may be a matrix and are read for their elements."""
    unsqueezes = [n for n in contents.standard("Unsqueeze") if n.input and n.output]
    made = {node.output[0] for node in unsqueezes}
    read = {n for node in contents.standard(*_READERS) for n in made.intersection(node.input)}
    if not read:
        return
    to_matrix = contents.constants(_makes_matrix, INTEGERS)
    vectors = _no_scalars(contents)
    for node in unsqueezes:
        if node.output[0] in read:
            is_matrix = is_told(node, _AXES, to_matrix, _makes_matrix)
            if is_matrix or node.input[0] in vectors:
                yield node.output[0]


def _makes_matrix(axes: NDArray[np.float64]) -> bool:
    """Return whether no Unsqueeze makes a vector with these axes."""
    return not np.isin(axes, (0, -1)).all()


def _no_scalars(contents: Contents) -> Set[str]:
    """Return the names of values that certainly have a dimension; not all of them are found."""
    found: set[str] = set()
    for holder in contents.holders:
        if isinstance(holder, onnx.GraphProto):
            infos = (*holder.input, *holder.value_info)
            found.update(info.name for info in infos if info.type.tensor_type.shape.dim)
            found.update(tensor.name for tensor in holder.initializer if tensor.dims)
    for node in contents.standard(*_ELEMENTWISE, *_VECTORS):
        if node.op_type in _VECTORS or not found.isdisjoint(node.input):
            found.update(node.output)
    return found


NAMES_FOR_ZERO = Fault(
    what="refuses a StringNormalizer whose input has an unknown size, which it takes for 0",
    instead="does not repeat that refusal",
)


def takes_names_for_zero(node: ir.Node) -> bool:
    """Return whether onnx refuses a node because it takes an unknown size for 0."""
    if node.op_type != "StringNormalizer" or node.domain:
        return False
    shape = None if not node.inputs or node.inputs[0] is None else node.inputs[0].shape
    return shape is not None and not all(isinstance(dim, int) for dim in shape)


PAST_SCORES = Fault(
    what="gives the scores of an Attention over past keys the width of the new keys alone",
    instead="marks the width of such scores as unknown before inference",
)

_PAST_KEY, _SCORES = 4, 3


def infer_past_scores(contents: Contents, infer: Infer) -> onnx.ModelProto:
    """Return `infer(contents)`, where the width of scores over past keys is unknown.

    If the number of past keys is a name, onnx 1.23.2 takes the number of new keys for the width,
    and infers wrongly whatever reads the scores. kvtool concatenates the scores along the keys with
    a value of known rank and unknown sizes, so that they keep their other dimensions.
    """
    is_needed = any(map(_widened, contents.of("Attention")))
    return _infer_behind(contents, infer, _widened) if is_needed else infer(contents)


def _widened(node: onnx.NodeProto) -> tuple[int, list[onnx.NodeProto]] | None:
    """Return the output with scores over past keys, and the nodes that make them wider."""
    if node.op_type != "Attention" or node.domain:
        return None
    given, made = node.input[_PAST_KEY : _PAST_KEY + 1], node.output[_SCORES : _SCORES + 1]
    if not (any(given) and any(made)):
        return None
    (scores,) = made
    narrow, more = f"{scores}{_INNER}", f"{scores}.more{_INNER}"
    # No node makes the second input of Pad, so the sizes of its output are unknown.
    pad = _node("Pad", [narrow, f"{scores}.pads{_INNER}"], more)
    joined = _node("Concat", [narrow, more], scores)
    joined.attribute.add(name="axis", type=onnx.AttributeProto.INT, i=3)
    return _SCORES, [pad, joined]


def _node(op_type: str, inputs: list[str], output: str) -> onnx.NodeProto:
    return onnx.NodeProto(op_type=op_type, input=inputs, output=[output], name=f"{output}{_INNER}")


LAST_WINDOWS = Fault(
    what="counts, before opset 22, the windows of a pool with `ceil_mode` that begin behind the"
    " axis, which onnxruntime and onnx's own reference leave out",
    instead="shows inference such a pool without `ceil_mode`, and with padding for as many windows",
)

POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
_FIRST_RIGHT = 22
_CHANGED = frozenset({"auto_pad", "ceil_mode", "pads"})


def infer_past_last_windows(contents: Contents, infer: Infer) -> onnx.ModelProto:
    """Return `infer(contents)`, where no window of a pool begins behind the axis.

    A pool whose attributes are parameters of a function stays as it is.
    """
    message = contents.message
    if not any(map(_rounds_up, _pools(message))):
        return infer(contents)
    copy = onnx.ModelProto()
    copy.CopyFrom(message)
    for node in filter(_rounds_up, _pools(copy)):
        _round_down(node)
    result = infer(Contents(copy))
    for given, inferred in zip(_pools(message), _pools(result), strict=True):
        if _rounds_up(given):
            del inferred.attribute[:]
            inferred.attribute.extend(given.attribute)
    return result


def _pools(message: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the pools before opset 22."""
    for holder, root in ((message, message.graph), *((f, f) for f in message.functions)):
        imports = [i.version for i in holder.opset_import if i.domain in DEFAULT_DOMAINS]
        if imports and imports[0] < _FIRST_RIGHT:
            nodes = every_node(root, HOLDERS)
            yield from (n for n in nodes if n.op_type in POOLS and n.domain in DEFAULT_DOMAINS)


def _rounds_up(node: onnx.NodeProto) -> bool:
    given = {attribute.name: attribute for attribute in node.attribute}
    if "ceil_mode" not in given or any(a.ref_attr_name for a in node.attribute):
        return False
    return given["ceil_mode"].i != 0 and "kernel_shape" in given


def _round_down(node: onnx.NodeProto) -> None:
    """Set the padding behind so that a pool has as many windows when their number is rounded down.

    A window that reaches out of the axis counts; one that begins behind it does not.
    """
    given = {attribute.name: attribute for attribute in node.attribute}
    if "auto_pad" in given and given["auto_pad"].s.startswith(b"SAME"):
        given["ceil_mode"].i = 0  # one for each stride that begins, however it is rounded
        return
    kernel = given["kernel_shape"].ints
    rank = len(kernel)

    def numbers(name: str, otherwise: int, count: int) -> list[int]:
        return list(given[name].ints) if name in given else [otherwise] * count

    strides, dilations = numbers("strides", 1, rank), numbers("dilations", 1, rank)
    pads = numbers("pads", 0, 2 * rank)
    if "auto_pad" in given and given["auto_pad"].s == b"VALID":
        pads = [0] * (2 * rank)
    if not len(strides) == len(dilations) == len(pads) / 2 == rank:
        return  # which inference refuses
    behind = [
        min(after + stride, (size - 1) * dilation + 1) - 1
        for size, stride, dilation, after in zip(
            kernel, strides, dilations, pads[rank:], strict=True
        )
    ]
    kept = [attribute for attribute in node.attribute if attribute.name not in _CHANGED]
    kept.append(onnx.helper.make_attribute("pads", [*pads[:rank], *behind]))
    del node.attribute[:]
    node.attribute.extend(kept)


ROUNDED_SIZES = Fault(
    what="multiplies a size exactly by the scale of a Resize or Upsample, where onnxruntime rounds"
    " the product to float32 first: 10 times 1.3 is 12 for one and 13 for the other",
    instead="hides a node where the two differ from inference",
)

SCALED = frozenset({"Resize", "Upsample"})


def scaled(size: int, scale: float) -> int | None:
    """Return a size times a scale, rounded down; None where runtimes do not agree on it.

    The product is exact in the text of Resize, in onnx's inference and in its reference;
    onnxruntime 1.32 rounds it to float32 first.
    """
    with np.errstate(over="ignore"):
        product = float(np.float32(size) * np.float32(scale))
    if not math.isfinite(product) or math.floor(product) != math.floor(size * scale):
        return None
    return math.floor(product)


def infer_past_rounded_sizes(contents: Contents, infer: Infer) -> onnx.ModelProto:
    """Return `infer(contents)`, with nothing known of nodes whose sizes depend on the runtime.

    Nodes in bodies and functions are not looked at.
    """
    graph = contents.message.graph
    scales = _scales(graph)
    nodes = [n for n in graph.node if n.op_type in SCALED and n.domain in DEFAULT_DOMAINS]
    # What the file declares comes first, since a strict inference would fail on it.
    hidden = _doubtful(nodes, scales, graph)
    result = infer_hiding(contents, infer, hidden) if hidden else infer(contents)
    found = _doubtful(nodes, scales, result.graph)
    if all(any(node is other for other in hidden) for node in found):
        return result
    return infer_hiding(contents, infer, found)


def _scales(graph: onnx.GraphProto) -> dict[str, list[float]]:
    """Return the small constants of type float32 by name."""
    tensors = [(t.name, t) for t in graph.initializer]
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in DEFAULT_DOMAINS:
            tensors += [(node.output[0], a.t) for a in node.attribute if a.name == "value"]
    return {
        name: numpy_helper.to_array(tensor).ravel().tolist()
        for name, tensor in tensors
        if tensor.data_type == onnx.TensorProto.FLOAT
        and tensor.ByteSize() <= SMALL_BYTES
        and tensor.data_location != onnx.TensorProto.EXTERNAL
    }


def _doubtful(
    nodes: list[onnx.NodeProto], scales: dict[str, list[float]], graph: onnx.GraphProto
) -> list[onnx.NodeProto]:
    """Return the nodes with a doubtful size, by the types that a graph declares."""
    declared = (*graph.input, *graph.value_info, *graph.output)
    shapes = {value.name: value.type.tensor_type.shape.dim for value in declared}
    found = []
    for node in nodes:
        given = next((list(a.floats) for a in node.attribute if a.name == "scales"), None)
        axes = next((list(a.ints) for a in node.attribute if a.name == "axes"), None)
        for name in node.input[1:3]:
            given = given or scales.get(name)
        dims = shapes.get(node.input[0], ()) if node.input else ()
        if not given or not dims:
            continue
        pairs = zip(axes or range(len(dims)), given, strict=False)
        if any(
            -len(dims) <= axis < len(dims)
            and dims[axis].HasField("dim_value")
            and scaled(dims[axis].dim_value, scale) is None
            for axis, scale in pairs
        ):
            found.append(node)
    return found
