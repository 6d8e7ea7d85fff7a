"""What can be wrong with a request to evaluate, and the values that it names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnx_kvtool.commands.arguments import check_sizes
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.files.external_data import external_files
from onnx_kvtool.core.suggestion import unknown_name
from onnx_kvtool.ops.element_type import dtype_name
from onnx_kvtool.runtime.engine.declared import declared_mismatch
from onnx_kvtool.runtime.engine.needed import needed_inputs
from onnx_kvtool.runtime.engine.type_check import element_type
from onnx_kvtool.runtime.evaluation.literal import literal_array, natural_dtype
from onnx_kvtool.runtime.evaluation.part import main_values
from onnx_kvtool.runtime.evaluation.spec import Given, spec_file
from onnx_kvtool.runtime.evaluation.updates import find_node
from onnx_kvtool.runtime.kernels.kernel import Value
from onnx_kvtool.runtime.sessions import RUNTIMES

if TYPE_CHECKING:
    from onnx_kvtool.commands.evaluate import EvalRequest

__all__ = [
    "check_inputs",
    "check_request",
    "feed_of",
    "input_values",
    "keep_data",
    "missing_inputs",
    "wanted_values",
]


def check_request(request: EvalRequest) -> None:
    """Refuse options that contradict each other, before anything is read."""
    check_sizes(request.dims)
    for name, number in (("seed", request.seed), ("steps", request.steps)):
        if number < 0:
            raise UsageError(f"`{name}` is {number}, expected at least 0")
    for name, runtime in (("runtime", request.runtime), ("compare", request.compare)):
        if runtime is not None and runtime not in RUNTIMES:
            raise UsageError(f"`{name}` is `{runtime}`, expected {' or '.join(RUNTIMES)}")
    if request.compare == request.runtime:
        raise UsageError(
            f"`--compare {request.compare}` compares a runtime with itself",
            help="choose the other one with `--runtime`",
        )
    if request.trace and request.runtime == "onnxruntime":
        raise UsageError(
            "`--trace` needs the reference runtime, onnxruntime does not tell what its nodes do",
            help="use `--runtime reference`",
        )
    if request.save is not None:
        _check_save(request.save, request)
    if request.op is None:
        _check_model_request(request)
    else:
        _check_operator_request(request)


def _check_save(target: str, request: EvalRequest) -> None:
    """Refuse to save into what is read: the model, or the file of an input."""
    if target == "-":
        raise UsageError(
            "an archive cannot go to standard output, which has the values",
            help="name a file with `--save FILE.npz`, or use `--format json`",
        )
    sources = [request.model, *(spec_file(text) for _, text in request.inputs)]
    for source in sources:
        if source in (None, "-") or not (os.path.exists(target) and os.path.exists(source)):
            continue
        if os.path.samefile(target, source):
            raise UsageError(f"`{target}` is read, and would be overwritten", help=_OTHER)


def keep_data(target: str, model: ir.Model) -> None:
    """Refuse to save into a file that holds weights of the model."""
    for file in external_files(model):
        if os.path.realpath(file.path) == os.path.realpath(target):
            raise UsageError(f"`{target}` holds weights, and would be overwritten", help=_OTHER)


_OTHER = "name another file with `--save`"


def _check_model_request(request: EvalRequest) -> None:
    if request.model is None:
        raise UsageError("there is no model to evaluate", help="name one, or an operator: `--op`")
    for flag, is_given in (("--attr", bool(request.attributes)), ("--opset", request.opset)):
        if is_given:
            raise UsageError(
                f"`{flag}` describes a single operator, and a model has its own",
                help="name the operator with `--op` and leave the model out",
            )
    names = [name for name, _ in request.inputs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"the input `{name}` is given twice")
    if request.node is not None and request.fetch:
        raise UsageError(
            "`--node` fetches the outputs of a node, and `--fetch` values by name",
            help="leave one of them out",
        )


def _check_operator_request(request: EvalRequest) -> None:
    if request.model is not None:
        raise UsageError(
            f"`--op` evaluates an operator without a model, got `{request.model}` as well",
            help="leave one of them out; `--node NAME` runs one node of a model",
        )
    for flag, is_given in (
        ("--random", request.random),
        ("--seed", request.seed),
        ("--dim", request.dims),
        ("--node", request.node is not None),
        ("--steps", request.steps),
    ):
        if is_given:
            raise UsageError(
                f"`{flag}` needs a model, and `--op` has none",
                help="give every input of the operator with `--input NAME=SPEC`",
            )


def input_values(model: ir.Model, given: Mapping[str, Given]) -> dict[str, Value]:
    """Return what is given for values of the main graph as arrays of their element types.

    `null` becomes None, an input that is not there.

    Raises:
        UsageError: If the main graph has no such value, or what is given is none for its type.
    """
    known = main_values(model.graph)
    values: dict[str, Value] = {}
    for name, content in given.items():
        if name not in known:
            raise unknown_name(f"the main graph has no value `{name}`", name, known)
        try:
            absent = content.is_absent
            values[name] = None if absent else content.value(_element(known[name]))
        except UsageError as error:
            raise UsageError(f"input `{name}`: {error.message}", help=error.help) from error
    return values


def feed_of(name: str, value: Any, declared: ir.Value | None) -> Value:
    """Return a value given from Python as the runtimes take it.

    Args:
        name: Its name, for messages.
        value: An array or a scalar of numpy as it is; nested lists and Python numbers become an
            array of the declared type; for what is declared as no tensor, anything as it is.
        declared: What it is given for; None when there is no such value.
    """
    if isinstance(value, np.generic):
        value = np.asarray(value)
    is_tensor = declared is None or declared.type is None
    is_tensor |= declared is not None and isinstance(declared.type, ir.TensorType)
    if value is None or not is_tensor:
        return value
    try:
        if not isinstance(value, np.ndarray):
            dtype = None if declared is None else _element(declared)
            return literal_array(value, natural_dtype(value) if dtype is None else dtype)
        if value.dtype.kind in "US":
            return value.astype(np.str_).astype(object)
        if element_type(value.dtype) is None:
            raise UsageError(f"it is of dtype {value.dtype}, which ONNX has no element type for")
    except UsageError as error:
        raise UsageError(f"input `{name}`: {error.message}", help=error.help) from error
    return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))


def _element(value: ir.Value) -> ir.DataType | None:
    if not isinstance(value.type, ir.TensorType) or value.dtype == ir.DataType.UNDEFINED:
        return None if value.const_value is None else value.const_value.dtype
    return value.dtype


def check_inputs(model: ir.Model, given: Mapping[str, Value]) -> None:
    """Refuse values that the main graph does not have, or that contradict their declaration."""
    known = main_values(model.graph)
    for name, value in given.items():
        if name not in known:
            raise unknown_name(f"the main graph has no value `{name}`", name, known)
        if (problem := declared_mismatch(known[name], value)) is not None:
            raise UsageError(f"input {problem}")


def wanted_values(model: ir.Model, node: str | None, fetch: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the values to fetch, each once.

    Raises:
        UsageError: If there is no such node or value, or several nodes have the name.
    """
    if node is not None:
        _, found = find_node(model, node)
        return tuple(value.name for value in found.outputs if value.name)
    if not fetch:
        return tuple(dict.fromkeys(value.name or "" for value in model.graph.outputs))
    known = main_values(model.graph)
    for name in fetch:
        if name not in known:
            raise unknown_name(f"the main graph has no value `{name}`", name, known)
    return tuple(dict.fromkeys(fetch))


def missing_inputs(part: ir.Model, given: Mapping[str, Value], request: EvalRequest) -> list[str]:
    """Return the inputs of a part that have to be drawn.

    Raises:
        UsageError: If there are any and none may be drawn.
    """
    graph = part.graph
    if request.steps:
        # All of them: a step moves all of them on.
        needed = [value for value in graph.inputs if value.const_value is None]
    else:
        fed = [value for value in graph.inputs if value.name in given]
        needed = needed_inputs(graph, fed, graph.outputs)
    missing = [value for value in needed if value.name not in given]
    if missing and not request.random:
        names = ", ".join(f"`{value.name}` ({_declared(value)})" for value in missing)
        raise UsageError(
            f"there is no value for {names}",
            help="give each with `--input NAME=SPEC`, or have the rest drawn with `--random`",
        )
    return [value.name or "" for value in missing]


def _declared(value: ir.Value) -> str:
    shape = "" if value.shape is None else f" ({', '.join(str(dim) for dim in value.shape)})"
    kind = "of unknown type" if value.type is None else str(value.type)
    dtype = _element(value)
    if dtype is not None:
        kind = dtype_name(dtype)
    return f"{kind}{shape}"
