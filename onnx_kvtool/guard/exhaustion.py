"""Models that onnx's inference, or onnxruntime, would take all memory or days for."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

import numpy as np
import onnx
import onnx.shape_inference
import onnx_ir as ir
from numpy.typing import NDArray

from onnx_kvtool.core.domains import DEFAULT_DOMAINS, canonical_domain
from onnx_kvtool.core.walk import graph_nodes
from onnx_kvtool.guard.fault import (
    FLOATS,
    HOLDERS,
    INTEGERS,
    Contents,
    Fault,
    Sizes,
    is_told,
    sizing,
)
from onnx_kvtool.model_io.verbatim import bodies
from onnx_kvtool.ops.traits import Trait, having, traits, traits_of

LONG_VECTORS = Fault(
    what="writes down each element of a vector that Add, Gather or Slice reads while it infers, 150"
    " bytes for each, also of one that is declared to have 10^9",
    instead="infers without data propagation if a vector may be that long",
)

LONGEST = 1 << 20
"""Most elements of a vector whose size inference gets to know."""

_LARGE, _END = 1 << 15, 1 << 62
"""A number between them may be a size; a larger one means the end of an axis."""

_ALL, _FIRST = slice(None), slice(1)
HANDED_ON = {
    **dict.fromkeys(("Add", "Cast", "Concat", "Mul", "Sub"), _ALL),
    **dict.fromkeys(("Gather", "Slice", "Squeeze", "Unsqueeze"), _FIRST),
    **dict.fromkeys(("Shape", "Size"), slice(0)),
}
"""The operators whose elements onnx 1.23.2 computes, with the inputs that these come from. The
other inputs only choose among elements."""


def may_run_out(contents: Contents) -> bool:
    """Return whether inference with data propagation may write down a very long vector.

    It writes down each element of a vector that an operator of `HANDED_ON` reads. A vector is long
    if the model declares it so, if a node gets its size from a large constant or from a number that
    is computed from one, or if Concats build it, such as sixty that each double a vector. Other
    ways to reach a large size from small numbers are not found.
    """
    if contents.operators.isdisjoint(HANDED_ON):
        return False
    graph = contents.message.graph
    infos = (*graph.input, *graph.value_info, *graph.output)
    if any(_length(info) > LONGEST for info in infos) or _piles_up(contents):
        return True
    large = contents.constants(_may_be_a_large_size, INTEGERS)
    scales = contents.constants(_may_be_a_large_size, FLOATS)
    return bool(large or scales) and _tells_a_node(contents, large, scales)


def _piles_up(contents: Contents) -> bool:
    """Return whether Concats of vectors may build a very long one."""
    graph = contents.message.graph
    lengths = {info.name: _length(info) for info in graph.input}
    lengths.update((t.name, t.dims[0]) for t in graph.initializer if len(t.dims) == 1)
    most = max(lengths.values(), default=1)  # if each Concat joined the longest so far
    for node in contents.of("Concat"):
        if most <= LONGEST and _is_first(node):
            most *= max(1, len(node.input))
    if most <= LONGEST:
        return False
    passes: dict[tuple[str, str], bool] = {}  # by operator, as most nodes are of a few
    for node in contents.nodes:
        op = node.op_type, node.domain
        if op not in passes:
            keeps = traits(node).any(Trait.KEEPS_SHAPE, Trait.BROADCASTS)
            passes[op] = op[0] in HANDED_ON or keeps
        if not passes[op]:
            continue
        if op[0] == "Concat":
            given = [lengths.get(name, 1) for name in node.input if name]
            length = sum(given) if _is_first(node) else 1
        else:
            length = max([lengths[name] for name in node.input if name in lengths], default=1)
        if length > LONGEST:
            return True
        if length > 1:  # a value without an entry counts as 1
            lengths.update((name, length) for name in node.output[:1] if name)
    return False


def _is_first(node: onnx.NodeProto) -> bool:
    """Return whether the axis of a Concat allows vectors."""
    return all(attribute.i <= 0 for attribute in node.attribute)


def _length(info: onnx.ValueInfoProto) -> int:
    dims = info.type.tensor_type.shape.dim
    return max(dims[0].dim_value, 1) if len(dims) == 1 else 1


def _may_be_a_large_size(numbers: NDArray[np.float64]) -> bool:
    sizes = np.abs(numbers)
    return bool(((sizes > _LARGE) & (sizes < _END)).any())


def _tells_a_node(contents: Contents, large: set[str], scales: set[str]) -> bool:
    """Return whether one of these constants may give a node its size.

    Most large numbers do not: the end of a Slice, a value for Where or Clip, the filling of a mask.

    Args:
        contents: The contents of the model.
        large: Names of integer constants; the names of what is computed from them are added.
        scales: Names of float constants; inference computes nothing from them.
    """
    functions = contents.message.functions
    calls = {(function.domain, function.name) for function in functions}
    returned = {name for function in functions for name in function.output}
    told: dict[tuple[str, str], bool] = {}  # by operator, as most nodes are of a few
    for node in contents.nodes:
        key = node.domain, node.op_type
        for graph in bodies(node) if key[1] in HOLDERS else ():
            returned.update(value.name for value in graph.output)
        op = key[1] if key[0] in DEFAULT_DOMAINS else "::".join(key)
        if key not in told:
            keeps = traits(node).any(Trait.KEEPS_SHAPE, Trait.BROADCASTS)  # no operand tells it
            has_rule = onnx.defs.has(node.op_type, canonical_domain(node.domain))
            told[key] = key in calls or op in HANDED_ON or (not keeps and has_rule)
        if not told[key]:
            continue
        names = list(node.input)
        if large.isdisjoint(names) and scales.isdisjoint(names):
            continue
        if key in calls or op not in HANDED_ON:
            return True
        if not large.isdisjoint(names[HANDED_ON[op]]):
            large.update(node.output)
    return not large.isdisjoint(returned)


@functools.cache
def _makers() -> Sizes:
    """Return the sizing of the operators whose output may be longer than their inputs."""
    return {
        op_type: sizing(op_type)
        for op_type in sorted(having())
        if (kinds := traits_of(op_type)).sizes and not kinds.any(Trait.VIEW, Trait.PART)
    }


def makes_long_vector(contents: Contents) -> bool:
    """Return whether a constant makes a node give more than 2**20 elements along an axis.

    Computed sizes are not looked at.
    """
    makers = _makers()
    found = contents.standard(*makers)
    long = contents.constants(_is_above) if found else set()
    return any(is_told(node, makers[node.op_type], long, _is_above) for node in found)


def _is_above(numbers: NDArray[np.float64]) -> bool:
    return bool((np.abs(numbers) > LONGEST).any())


FAILED_ALLOCATION = Fault(
    what="may leave a half-built message if an allocation fails in its inference, and ends the"
    " process when it frees that message (seen in one of 600 models that ran against the bound)",
    instead="bounds the memory of inference, and infers in a separate process if it may need much",
)

_CONTRADICTION = 10
_CHILD = f"""
import json, sys
sys.path[:] = json.loads(sys.argv[1])
import onnx
from onnx_kvtool.core.machine import bounded_memory
message = onnx.ModelProto.FromString(sys.stdin.buffer.read())
try:
    with bounded_memory(int(sys.argv[2])):
        inferred = onnx.shape_inference.infer_shapes(
            message, "types" in sys.argv[3], "strict" in sys.argv[3], True
        )
except onnx.shape_inference.InferenceError as error:
    sys.stderr.write(str(error))
    sys.exit({_CONTRADICTION})
sys.stdout.buffer.write(inferred.SerializeToString())
"""


def infer_in_subprocess(
    message: onnx.ModelProto, strict: bool, spare: int, check_types: bool = False
) -> onnx.ModelProto | None:
    """Return a message with types inferred in another process; None if that process fails.

    Args:
        message: The model, without weights.
        strict: Whether the first contradiction is an error.
        spare: Bytes that the inference may take.
        check_types: Whether types are compared with the schemas.

    Raises:
        onnx.shape_inference.InferenceError: If the model contradicts itself, and `strict`.
    """
    path = json.dumps(sys.path)
    mode = ("strict" if strict else "lenient") + ("+types" if check_types else "")
    command = [sys.executable, "-c", _CHILD, path, str(spare), mode]
    try:
        child = subprocess.run(
            command, input=message.SerializeToString(), capture_output=True, check=False
        )
    except OSError:  # a process that cannot be started, as where Python is embedded
        return None
    if child.returncode == _CONTRADICTION:
        raise onnx.shape_inference.InferenceError(child.stderr.decode(errors="replace"))
    if child.returncode:
        return None
    inferred = onnx.ModelProto()
    inferred.ParseFromString(child.stdout)
    return inferred


NESTED_CALLS = Fault(
    library="onnxruntime",
    seen="1.31.1",
    what="inlines each call of a function, which takes days for forty functions of two calls each;"
    " the inference of onnx does so, too",
    instead="counts the nodes first, and neither loads nor infers a model with too many",
)

MOST_NODES = 1_000_000
"""Most nodes for onnx's inference, which visits the body of a function at each of its calls."""

MOST_RUN = 200_000
"""Most nodes that Python visits one by one, or that a runtime loads: tens of microseconds each."""

_Key = tuple[str, str, str]


def expanded_nodes(model: ir.Model) -> int:
    """Return the number of nodes, with those of a function counted at each of its calls.

    Linear in the nodes of the model. A function's call of itself counts as one node.
    """
    nodes = {key: _all_nodes(function.graph) for key, function in model.functions.items()}
    sizes: dict[_Key, int] = {}

    def size(found: list[_Key]) -> int:
        return len(found) + sum(sizes.get(key, 0) for key in found)

    waiting, seen = [*reversed(nodes)], set[_Key]()
    while waiting:
        key = waiting[-1]
        if key not in seen:
            seen.add(key)
            waiting += [called for called in nodes[key] if called in nodes and called not in seen]
            continue
        waiting.pop()
        if key not in sizes:
            sizes[key] = size(nodes[key])
    return size(_all_nodes(model.graph))


def _all_nodes(graph: ir.Graph) -> list[_Key]:
    """Return the operator of each node of a graph and of its bodies."""
    return [node.op_identifier() for _, _, node in graph_nodes("", graph)]
