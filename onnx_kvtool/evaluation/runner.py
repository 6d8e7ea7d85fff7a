"""A part of a model, loaded by one of the runtimes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.model_io.model import clone
from onnx_kvtool.runtime.engine.borrowed import element_type
from onnx_kvtool.runtime.engine.compiler import needed_inputs, needed_nodes
from onnx_kvtool.runtime.engine.evaluator import Evaluator, Run
from onnx_kvtool.runtime.engine.program import Trace
from onnx_kvtool.runtime.kernels.kernel import Named, Value
from onnx_kvtool.runtime.sessions import RuntimeName

# The part of a model that computes some of its values from others, as a model of its own.


def main_values(graph: ir.Graph) -> dict[str, ir.Value]:
    """Return the named values of a graph by name, without those of bodies."""
    found = {value.name: value for value in graph.inputs if value.name}
    found.update((name, value) for name, value in graph.initializers.items() if name)
    for node in graph:
        found.update((value.name, value) for value in node.outputs if value.name)
    return found


def part_of(model: ir.Model, given: Named, wanted: Sequence[str]) -> ir.Model:
    """Return a model with the inputs `given` and the outputs `wanted`; nodes keep their indices.

    Args:
        model: The model; not changed.
        given: Values of the main graph that are fed, by name. The result of a node, or an
            initializer, becomes an input that replaces it.
        wanted: Values of the main graph that become the outputs, in order.

    Returns:
        `model` itself if it already has these inputs and outputs, else a copy.

    Raises:
        KvtoolError: If the model cannot be copied.
    """
    plain = {value.name for value in model.graph.inputs if value.const_value is None}
    fed = [name for name in given if name not in plain]
    if not fed and list(wanted) == [value.name for value in model.graph.outputs]:
        return model
    part = clone(model)
    graph = part.graph
    values = main_values(graph)
    graph.outputs.clear()
    for name in fed:
        values[name] = _as_input(graph, values[name], given[name])
    graph.outputs.extend(values[name] for name in wanted)
    return part


def without_rest(part: ir.Model, given: Named) -> ir.Model:
    """Return a copy of a part with only the nodes and inputs that its outputs need.

    Args:
        part: A result of `part_of`, or a whole model; not changed.
        given: The values that are fed.
    """
    copy = clone(part)
    graph = copy.graph
    fed = [value for value in graph.inputs if value.name in given]
    kept = {id(node) for _, node in needed_nodes(graph, fed, graph.outputs)}
    inputs = {id(v) for v in (*fed, *needed_inputs(graph, fed, graph.outputs))}
    rest = [node for node in graph if id(node) not in kept]
    graph.remove(rest, safe=False)
    for value in [v for v in graph.inputs if id(v) not in inputs]:
        graph.inputs.remove(value)
    return copy


def leave_out(part: ir.Model, names: Sequence[str]) -> None:
    """Remove tensor inputs from a part; their readers get an absent input.

    Inputs of optional type stay: a runtime accepts an empty value for them.
    """
    for value in list(part.graph.inputs):
        is_tensor = value.type is None or isinstance(value.type, ir.TensorType)
        if value.name not in names or not is_tensor or value.is_graph_output():
            continue
        for node, index in tuple(value.uses()):
            node.replace_input_with(index, None)
        part.graph.inputs.remove(value)


def _as_input(graph: ir.Graph, value: ir.Value, content: Value) -> ir.Value:
    """Make a value of `graph` an input, and return it in its new form."""
    name = value.name or ""
    if value.producer() is None:
        graph.initializers.pop(name, None)
        value.const_value = None
        if not value.is_graph_input():
            graph.inputs.append(value)
        return value
    new = ir.Value(name=name, type=value.type, shape=value.shape)
    if new.type is None and isinstance(content, np.ndarray):
        element = element_type(content.dtype)
        new.type = None if element is None else ir.TensorType(element)
    if new.shape is None and isinstance(content, np.ndarray):
        new.shape = ir.Shape([None] * content.ndim)
    value.replace_all_uses_with(new)
    value.name = None
    graph.inputs.append(new)
    return new


def open_runner(runtime: RuntimeName, part: ir.Model, given: Named) -> Runner:
    """Load a result of `part_of` in `runtime`; it must not change while the runner is used.

    `given` are the values that are fed, without those that are drawn.

    Raises:
        RuntimeUnavailable: If the runtime cannot load it, or computes it wrongly.
        KvtoolError: If the part has no written form, which onnxruntime needs.
    """
    return _evaluator(part) if runtime == "reference" else _Onnxruntime(part, given)


_KEPT = "onnx_kvtool.evaluators"


def keep_runner(model: ir.Model) -> None:
    """Compile a model for the reference runtime only once; it must not change any more."""
    model.meta[_KEPT] = _Kept(model)


@dataclass(slots=True)
class _Kept:
    """A model and its evaluator; copies of the model refer to the same object."""

    model: ir.Model
    evaluator: Evaluator | None = None


def _evaluator(part: ir.Model) -> Evaluator:
    kept: _Kept | None = part.meta.get(_KEPT)
    kept = kept if kept is not None and kept.model is part else _Kept(part)
    kept.evaluator = kept.evaluator or Evaluator(part)
    return kept.evaluator


class _Onnxruntime:
    """Runs only the nodes that are needed, and never writes into its inputs.

    Attributes:
        borrowed: Nodes that onnx.reference ran.
    """

    borrowed: tuple[Location, ...] = ()

    def __init__(self, part: ir.Model, given: Named) -> None:
        from onnx_kvtool.verification.subject import capture

        rest = without_rest(part, given)
        leave_out(rest, [name for name, value in given.items() if value is None])
        self._inputs = [value.name or "" for value in rest.graph.inputs]
        self._outputs = [value.name or "" for value in rest.graph.outputs]
        self._session = capture(rest, "the model").session("onnxruntime")

    @property
    def runtime(self) -> str:
        return self._session.runtime

    def run(
        self,
        inputs: Named,
        *,
        give_up: Collection[str] = (),
        observe: Callable[[Trace], None] | None = None,
    ) -> Run:
        fed = {name: inputs[name] for name in self._inputs if name in inputs}
        found = self._session.run(fed)
        return Run({name: found[name] for name in self._outputs}, ())


Runner = Evaluator | _Onnxruntime
"""A part that can be run any number of times."""
