"""What of a model is not fixed: sizes in names, unknown sizes, and nodes that read sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.analysis.unfixed import static_error, unfixed_inputs
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.walk import graphs, nodes, subgraphs
from onnx_kvtool.core.words import counted
from onnx_kvtool.ops.schema import NEWEST, is_standard, op_facts
from onnx_kvtool.ops.traits import SIZE_TYPES, Trait, traits, traits_of
from onnx_kvtool.shapes.inference import Inference, UnknownValue
from onnx_kvtool.symbolic.dimensions import Dim, contradict, dims_of

_UNKNOWN = "no `--dim` fixes it: declare its shape in the model, or export it without the node"
_COUNTED = (
    "no `--dim` fixes what a count of tokens says: `kvtool raise --static` of the growing decoder"
    " writes masks as long as the capacity"
)
_RAISED = (
    "no `--dim` fixes what a count of tokens says: a mask becomes as long as the capacity where no"
    " `--dim` gives it a length"
)

_MERGED = (
    "extract the branch that you need as a model of its own: of an encoder-decoder, the export"
    " `with_past`, such as `decoder_with_past_model.onnx` of optimum"
)

_ENDS = ("starts", "ends")
"""What says how much a Slice cuts out."""


def dynamic_parts(
    model: ir.Model,
    inference: Inference,
    *,
    growing: Collection[str] | None = None,
    stuck: Sequence[Diagnostic] = (),
) -> list[Diagnostic]:
    """Return what keeps a model from having fixed sizes throughout; empty where all are numbers.

    Causes are told, and not what follows from them: the names of inputs that lack a number alone,
    else other dimensions of inputs, what depends on elements, and nodes that read sizes.

    All that can be folded is folded before. `growing` names sizes that differ from step to step,
    which no number can stand for; `stuck` says what the capacity of caches does not fix.
    """
    if merged := list(_of_branches(model)):
        return merged  # whatever sizes are given
    found = list(unfixed_inputs(model, growing or ()))
    if named := [one for one in found if one.code == "symbolic-dimension"]:
        return named  # nearly all others follow from them
    lost = list(_of_values(model, inference, _COUNTED if growing is None else _RAISED))
    if stuck and (found or lost):
        lost = [one for one in lost if Trait.COUNTS in traits_of(one.location.op or "")]
        found = [*(one for one in found if one.code != "growing-dimension"), *stuck]
    found += lost
    found += _of_other_types(inference)
    if not found:
        found += _nodes_left(model)
        found += _names_left(model)
    return found


def _of_values(model: ir.Model, inference: Inference, counted_by: str) -> Iterator[Diagnostic]:
    """Yield the reasons for sizes that no `--dim` fixes, each once.

    `counted_by` is the remedy where an input that counts tokens is the reason.
    """
    counters = [  # one integer, which counts the tokens before a step
        f"`{value.name}`"
        for value in model.graph.inputs
        if value.dtype in SIZE_TYPES and dims_of(value) in ((), (1,))
    ]
    reasons: dict[tuple[Location, str], list[UnknownValue]] = {}
    for unknown in inference.report.unknown:
        lost = unknown.lost
        if lost.code != "undeclared":  # which is said of the input
            reasons.setdefault((lost.location, lost.why), []).append(unknown)
    for (place, why), (first, *others) in reasons.items():
        text = f"{why}, so that the shape of `{first.location.value or ''}` is not fixed"
        if others:
            text += f", nor that of {counted(len(others), 'other value')}"
        follows = any(name in why for name in counters)
        yield static_error("dynamic-size", place, text, counted_by if follows else _UNKNOWN)


def _of_branches(model: ir.Model) -> Iterator[Diagnostic]:
    """Yield the results of an If whose branches differ in size."""
    for path, index, node in nodes(model):
        if node.op_type != "If" or not is_standard(node):
            continue
        branches = [list(graph.outputs) for _, graph in subgraphs(node)]
        for output, *given in zip(node.outputs, *branches, strict=False):
            shapes = [dims for value in given if (dims := dims_of(value)) is not None]
            if len(shapes) == len(given) and _differ(*shapes):
                first, second = (f"({', '.join(map(str, shape))})" for shape in shapes)
                text = f"the branches give {first} and {second} for `{output.name}`"
                place = Location.of(path, node, index, output.name)
                yield static_error("dynamic-size", place, text, _MERGED)
                return  # the others of this If are one matter


def _differ(one: Sequence[Dim], other: Sequence[Dim]) -> bool:
    """Return whether two shapes differ, whatever number a name, which is none of 0, stands for."""
    if len(one) != len(other):
        return True
    pairs = zip(one, other, strict=True)
    return any(a != b and (contradict(a, b) or 0 in (a, b)) for a, b in pairs)


def _of_other_types(inference: Inference) -> Iterator[Diagnostic]:
    """Yield the values that are no tensors: how many elements a sequence has, no type says."""
    knowledge = inference.run.knowledge
    for value, place in inference.run.values.items():
        type_ = knowledge.types.get(value, value.type)
        if isinstance(type_, ir.SequenceType | ir.OptionalType):
            kind = "a sequence" if isinstance(type_, ir.SequenceType) else "optional"
            text = f"`{value.name}` is {kind}, whose size no type fixes"
            yield static_error("no-tensor", place, text)


def _nodes_left(model: ir.Model) -> Iterator[Diagnostic]:
    """Yield the nodes that read sizes, and those whose result is as large as elements say."""
    folder = ConstantFolder()
    for path, index, node in nodes(model):
        if not is_standard(node):
            continue
        kinds = traits(node)
        place = Location.of(path, node, index)
        if Trait.GIVES_SIZES in kinds:
            text = f"`{node.op_type}` reads a size when the model runs"
            yield static_error("size-read", place, text)
        elif Trait.COUNTS in kinds:
            text = f"the size of what `{node.op_type}` gives depends on elements"
            yield static_error("dynamic-size", place, text)
        elif (given := _told_at_run_time(node, folder)) is not None:
            text = f"`{given.name}` says how large the result of `{node.op_type}` is, no constant"
            yield static_error("dynamic-size", place, text)


def _told_at_run_time(node: ir.Node, folder: ConstantFolder) -> ir.Value | None:
    """Return an input that says how large the output is and is not constant; None without."""
    facts = op_facts(node.op_type, NEWEST)
    if facts is None:
        return None
    sizes = _ENDS if node.op_type == "Slice" else traits(node).sizes
    for index, value in enumerate(node.inputs):
        formal = facts.input(index)
        if value is None or formal is None or formal.name not in sizes:
            continue
        if value.dtype in SIZE_TYPES and folder.integers(value) is None:
            return value
    return None


def _names_left(model: ir.Model) -> Iterator[Diagnostic]:
    """Yield values that have a shape in other words than numbers, for a reason not told so far."""
    functions = {function.graph for function in model.functions.values()}
    for path, graph in graphs(model):
        if graph in functions:
            continue
        for index, node in enumerate(graph):
            for value in node.outputs:
                if isinstance(value.type, ir.TensorType) and (
                    value.shape is None or not value.shape.is_static()
                ):
                    place = Location.of(path, node, index, value.name)
                    yield static_error(
                        "dynamic-size", place, f"the shape of `{value.name}` is not fixed"
                    )
