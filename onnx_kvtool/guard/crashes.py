"""Models that end the process in onnx's inference, or that it never finishes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx
import onnx.checker
import onnx.shape_inference
from numpy.typing import NDArray

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.guard.fault import (
    INFERENCE_ERRORS,
    Contents,
    Fault,
    Infer,
    infer_hiding,
    is_told,
    sizing,
)
from onnx_kvtool.model_io.verbatim import bodies

NEGATIVE_SIZES = Fault(
    what="ends the process where its inference slices an axis of negative size, as sessions of"
    " onnxruntime 1.31.1 do",
    instead="hides such a Slice from inference, leaves negative sizes out, and does not have"
    " onnxruntime load such a model",
    issue="onnx/onnx#8481",
)

_WINDOW = ("dilations", "kernel_shape", "output_padding", "output_shape", "pads", "strides")
_BY_WINDOW = (
    *("AffineGrid", "AveragePool", "Conv", "ConvInteger", "ConvTranspose", "DeformConv"),
    *("LpPool", "MaxPool", "MaxUnpool", "QLinearConv"),
)
"""Operators whose result has a negative size when a window is larger than the input, or when a size
is computed to be negative."""

_BY_NUMBER = (
    *("CenterCropPad", "Col2Im", "DFT", "OneHot", "Pad", "Resize", "RoiAlign", "Split"),
    *("Tile", "TopK", "Upsample"),
)
"""Operators whose result has a negative size when a constant that they read is negative; others are
refused or passed over by inference then, as observed with onnx 1.23.2."""

_ROUNDS = 4


def infer_past_negative_sizes(contents: Contents, infer: Infer) -> onnx.ModelProto:
    """Return `infer(contents)`, with nothing known of a Slice whose input may have a negative size.

    Inference of onnx 1.23.2 ends the process when it slices an axis of negative size
    (onnx/onnx#8481). It computes such a size itself: from a pad of -5, or a window that is larger
    than its input. A Slice behind such a node stays hidden until inference shows that no size
    before it is negative; in a body or a function it stays hidden for good.
    """
    slices = contents.standard("Slice")
    told, windows = _suspects(contents) if slices else ([], [])
    if not (told or windows):
        return infer(contents)
    message = contents.message
    hidden, nested = _behind(message, slices, [*told, *windows])
    for _ in range(_ROUNDS):
        result = infer_hiding(contents, infer, [*hidden, *nested])
        negative = _negative(result.graph)
        further = {id(node) for node in _behind(message, hidden, hidden)[0]}
        kept = [n for n in hidden if id(n) in further or negative.intersection(n.input)]
        if len(kept) == len(hidden):
            return result
        hidden = kept
    return infer_hiding(contents, infer, [*hidden, *nested])


def slices_negative_size(message: onnx.ModelProto) -> str | None:
    """Return an operator whose result a Slice may read with a negative size; None without one.

    Sessions of onnxruntime 1.31.1 end the process like onnx's inference does, also for a Slice in a
    body of BeamSearch or GreedySearch. A window that is larger than its input is found if onnx
    infers its size.
    """
    contents = Contents(message, within=None)
    slices = contents.standard("Slice")
    told, windows = _suspects(contents) if slices else ([], [])
    for node in told:
        if any(_behind(message, slices, [node])):
            return node.op_type
    hidden, nested = _behind(message, slices, windows)
    if not windows or not (hidden or nested):
        return None
    try:
        result = infer_hiding(
            contents,
            lambda held: onnx.shape_inference.infer_shapes(held.message),
            [*hidden, *nested],
        )
    except INFERENCE_ERRORS:
        return None
    return windows[0].op_type if _negative(result.graph) else None


def _suspects(contents: Contents) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto]]:
    """Return the nodes with a negative constant as a size, and the other nodes with a window."""
    told, windows = [], []
    found = contents.standard(*_BY_NUMBER, *_BY_WINDOW)
    negative = contents.constants(_below_zero) if found else set[str]()
    for node in found:
        places, names = sizing(node.op_type)
        if is_told(node, (places, (*names, *_WINDOW)), negative, _below_zero):
            told.append(node)
        elif node.op_type in _BY_WINDOW:
            windows.append(node)
    return told, windows


def _below_zero(numbers: NDArray[np.float64]) -> bool:
    return bool((numbers < 0).any())


def _behind(
    message: onnx.ModelProto, slices: list[onnx.NodeProto], sources: list[onnx.NodeProto]
) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto]]:
    """Return the Slice nodes that may read a result of the sources.

    Returns:
        Those of the main graph, and those of bodies and functions, which count as behind anything.
    """
    # One list, as protobuf makes new objects each time.
    main = list(message.graph.node)
    own = {id(node) for node in main}
    wanted = {id(node) for node in slices}
    marked = {id(node) for node in sources}
    is_nested = not marked <= own
    calls = {(function.domain, function.name) for function in message.functions}
    tainted: set[str] = set()
    found = []
    for node in main:
        is_holder = (node.domain, node.op_type) in calls or bool(bodies(node))
        is_behind = not tainted.isdisjoint(node.input) or (is_holder and bool(tainted))
        if is_behind and id(node) in wanted:
            found.append(node)
        if is_behind or id(node) in marked or (is_holder and is_nested):
            tainted.update(node.output)
    return found, [node for node in slices if id(node) not in own]


def _negative(graph: onnx.GraphProto) -> set[str]:
    """Return the names of the values of a graph that have a negative size."""
    return {
        value.name
        for value in (*graph.input, *graph.value_info, *graph.output)
        if any(dim.dim_value < 0 for dim in value.type.tensor_type.shape.dim)
    }


UNTYPED_INPUTS = Fault(
    what="ends the process where its inference meets a RegexFullMatch, or an EyeLike with a"
    " `dtype`, whose input has no type",
    instead="hides such a node from inference until its inputs have types",
)

CRASHING = frozenset({"EyeLike", "RegexFullMatch"})
"""Observed with onnx 1.23.2, of all operators, each with random attributes and inputs untyped."""


def infer_past_untyped_inputs(contents: Contents, infer: Infer) -> onnx.ModelProto:
    """Return `infer(contents)`, with nothing known of a node that would end the process.

    A first inference without the node may find the types of its inputs. In a body or a function the
    node stays hidden.
    """
    hidden = [n for n in contents.standard(*CRASHING) if n.op_type != "EyeLike" or n.attribute]
    while hidden:
        result = infer_hiding(contents, infer, hidden)
        typed = set(_typed(result.graph))
        own = {id(node) for node in contents.message.graph.node}
        left = [n for n in hidden if id(n) not in own or not typed.issuperset(n.input)]
        if len(left) == len(hidden):
            return result
        hidden = left
    return infer(contents)


def _typed(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of the values of a graph whose type is known."""
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.WhichOneof("value"):
            yield value.name
    for tensor in graph.initializer:
        yield tensor.name


ENDLESS_EQUATIONS = Fault(
    what="never finishes reading an equation of Einsum with stray dots, such as `.i` or two"
    " ellipses in one term",
    instead="hides an Einsum from inference unless each term is letters and at most one ellipsis",
)

UNCHECKED_NUMBERS = Fault(
    what="ends the process where its inference meets a Split with more outputs than `num_outputs`,"
    " a GatherND with negative `batch_dims`, or a LayerNormalization with an axis beyond int32, and"
    " takes memory for as many sizes as `num_outputs` says",
    instead="hides such a node from inference",
)

_TERM = re.compile(rb"[A-Za-z]*(\.\.\.)?[A-Za-z]*")

_READ: Mapping[str, tuple[str, Callable[[onnx.NodeProto, onnx.AttributeProto], bool]]] = {
    "Einsum": ("equation", lambda _, equation: _has_stray_dot(equation.s)),
    "GatherND": ("batch_dims", lambda _, count: count.i < 0),
    "LayerNormalization": ("axis", lambda _, axis: abs(axis.i) >= 2**31),
    "Split": ("num_outputs", lambda node, count: count.i != len(node.output)),
}
"""The attribute that inference reads unchecked, and what finds a value that it does not survive."""

UNCHECKED = frozenset(_READ)


def infer_past_unchecked(contents: Contents, infer: Infer) -> onnx.ModelProto:
    """Return `infer(contents)`, with nothing known of a node that it does not survive."""
    hidden = list(filter(is_fatal, contents.standard(*UNCHECKED)))
    return infer_hiding(contents, infer, hidden) if hidden else infer(contents)


def is_fatal(node: onnx.NodeProto) -> bool:
    """Return whether inference may end the process, or never finish, at an attribute of a node.

    A reference counts: what it stands for is read at each call of the function.
    """
    if node.op_type not in _READ or node.domain not in DEFAULT_DOMAINS:
        return False
    name, test = _READ[node.op_type]
    return any(a.name == name and (a.ref_attr_name or test(node, a)) for a in node.attribute)


def _has_stray_dot(equation: bytes) -> bool:
    terms = re.split(rb"->|,", equation.replace(b" ", b""))
    return any(_TERM.fullmatch(term) is None for term in terms)
