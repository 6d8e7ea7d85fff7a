"""Inputs of `onnx.reference.ReferenceEvaluator` other than models, as models; its output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.model_io.model import deserialize
from onnx_kvtool.model_io.model_source import ModelSource, open_model
from onnx_kvtool.ops.schema import NEWEST
from onnx_kvtool.runtime.engine.program import Trace

ProtoSource = ModelSource | bytes | onnx.GraphProto | onnx.FunctionProto | onnx.NodeProto
"""A model, the bytes of its file, or a part of one."""


def model_of(
    proto: ProtoSource, opsets: Mapping[str, int] | None, functions: Iterable[Any] | None
) -> ir.Model:
    """Return the model that runs `proto`.

    The body of a function becomes the main graph, where attributes still refer to its parameters.

    Args:
        proto: What is to run.
        opsets: The version of each domain, for a graph or a node alone.
        functions: Functions that the nodes may call: messages, or evaluators of such.

    Raises:
        UsageError: If `opsets` or `functions` are missing, or given where the model has its own.
        UnreadableModel: As `open_model`.
    """
    if isinstance(proto, onnx.GraphProto):
        if opsets is None:
            raise UsageError("`opsets` is None, and a graph does not say its own", help=_OPSETS)
        graph = proto
    elif isinstance(proto, onnx.NodeProto):
        own = NEWEST if proto.domain in DEFAULT_DOMAINS else 1
        opsets = {proto.domain: own} if opsets is None else opsets
        read = dict.fromkeys(name for name in proto.input if name)
        graph = _graph("node", [proto], read, filter(None, proto.output))
    else:
        if opsets is not None:
            raise UsageError("`opsets` is given, and the model imports its own", help="omit it")
        if not isinstance(proto, onnx.FunctionProto):
            if functions is not None:
                raise UsageError("`functions` is given, and the model has its own", help="omit it")
            return deserialize(proto) if isinstance(proto, bytes) else open_model(proto)
        opsets = {entry.domain: entry.version for entry in proto.opset_import}
        graph = _graph(proto.name, proto.node, proto.input, proto.output)
        graph.value_info.extend(proto.value_info)
    model = onnx.ModelProto(ir_version=onnx.IR_VERSION, graph=graph)
    for domain, version in opsets.items():
        model.opset_import.add(domain=domain, version=version)
    known: dict[tuple[str, str, str], onnx.FunctionProto] = {}
    for function in _functions(functions or ()):
        known.setdefault((function.domain, function.name, function.overload), function)
    model.functions.extend(known.values())
    imported = {entry.domain for entry in model.opset_import}
    for domain in {function.domain for function in known.values()} - imported:
        model.opset_import.add(domain=domain, version=1)
    return open_model(model)


_OPSETS = 'write `opsets={"": 18}`'


def _graph(
    name: str,
    nodes: Iterable[onnx.NodeProto],
    inputs: Iterable[str],
    outputs: Iterable[str],
) -> onnx.GraphProto:
    graph = onnx.GraphProto(name=name, node=nodes)
    graph.input.extend(onnx.ValueInfoProto(name=each) for each in inputs)
    graph.output.extend(onnx.ValueInfoProto(name=each) for each in outputs)
    return graph


def _functions(given: Iterable[Any]) -> Iterator[onnx.FunctionProto]:
    """Yield functions; those that an evaluator calls come before its own."""
    for one in given:
        proto = getattr(one, "proto_", one)
        if not isinstance(proto, onnx.FunctionProto):
            raise UsageError(
                f"`functions` has an object of `{type(one).__name__}`, expected an "
                "`onnx.FunctionProto` or an evaluator of one"
            )
        yield from _functions(getattr(one, "functions_", {}).values())
        yield proto


def parameters_of(
    function: onnx.FunctionProto, attributes: Mapping[str, Any]
) -> dict[str, ir.Attr]:
    """Return the parameters of one call of a function, with the defaults of those left out.

    Raises:
        UsageError: If the function has no such attribute, or the value is none of an attribute.
    """
    protos = {attribute.name: attribute for attribute in function.attribute_proto}
    known = {*protos, *function.attribute}
    for name, value in attributes.items():
        if name not in known:
            raise UsageError(f"the function `{function.name}` has no attribute `{name}`")
        tensor = onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        try:
            protos[name] = onnx.helper.make_attribute(name, tensor)
        except (TypeError, ValueError) as error:
            raise UsageError(f"attribute `{name}`: {error}") from error
    return {name: ir.from_proto(proto) for name, proto in protos.items()}


# The output of a run, as onnx.reference prints it.


def value_lines(values: Mapping[str, Any], label: str, verbose: int) -> Iterator[str]:
    """Yield a line for each value before a run: `+C` for a constant, `+I` for an input."""
    for name, value in values.items():
        yield f" {label} {name}: {_shown(value, verbose)}"


def trace_lines(trace: Trace, verbose: int) -> Iterator[str]:
    """Yield the lines of one node: from `verbose` 2 on the node, from 3 on its outputs."""
    op = (trace.location.op or "").rpartition("::")[2]
    names = ", ".join(name for name, _ in trace.outputs)
    if verbose > 1:
        yield f"{op}({', '.join(trace.inputs)}) -> {names}"
    if verbose > 2:
        yield from value_lines(dict(trace.outputs), "+", verbose)


def _shown(value: Any, verbose: int) -> str:
    if isinstance(value, list):
        return ", ".join(_shown(item, verbose) for item in value)
    if not isinstance(value, np.ndarray):
        return str(value)
    kind = f"{value.dtype}:{value.shape}"
    if verbose > 3:
        elements = value.ravel()[:6].tolist()
        return (
            f"{kind}:{','.join(map(str, elements[:5]))}..."
            if elements[5:]
            else f"{kind}:{elements}"
        )
    return f"{kind} in [{value.min()}, {value.max()}]" if value.size else f"{kind} (empty)"
