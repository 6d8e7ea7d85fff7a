"""Compiling the graphs of a model to programs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.walk import function_path, graph_path, read_values, step_path, subgraphs
from onnx_kvtool.core.words import counted
from onnx_kvtool.ops.contrib import contrib_facts
from onnx_kvtool.ops.schema import OpFacts, op_facts
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.runtime.engine.arrays import bound_attributes, constant, resolve
from onnx_kvtool.runtime.engine.borrowed import LEGALITY, Attributes, BorrowedNode, type_check
from onnx_kvtool.runtime.engine.program import (
    ABSENT,
    Action,
    BodyProgram,
    Buffers,
    Program,
    Slots,
    State,
    Step,
    call_function,
    call_kernel,
    root,
)
from onnx_kvtool.runtime.errors import KernelError, RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.kernels.contrib import CONTRIB_KERNELS
from onnx_kvtool.runtime.kernels.kernel import KernelFunction, Named, Value, Values
from onnx_kvtool.runtime.kernels.table import find_kernel

# The part of a graph that computes some values from others.


def needed_nodes(
    graph: ir.Graph, given: Collection[ir.Value], wanted: Iterable[ir.Value]
) -> list[tuple[int, ir.Node]]:
    """Return the nodes, with their indices, that compute `wanted` from `given`."""
    made = {id(value) for value in given}
    needed = {id(value) for value in wanted} - made
    kept = []
    for index, node in reversed(list(enumerate(graph))):
        if any(id(value) in needed for value in node.outputs):
            kept.append((index, node))
            needed.update(id(value) for value in read_by(node) if id(value) not in made)
    return kept[::-1]


def needed_inputs(
    graph: ir.Graph, given: Collection[ir.Value], wanted: Sequence[ir.Value]
) -> list[ir.Value]:
    """Return the inputs of `graph` that are needed, beside `given`, to compute `wanted`.

    Inputs with an initializer need not be fed and are not among them.
    """
    read = {id(value) for value in wanted}
    for _, node in needed_nodes(graph, given, wanted):
        read.update(id(value) for value in read_by(node))
    made = {id(value) for value in given}
    return [
        value
        for value in graph.inputs
        if id(value) in read and id(value) not in made and value.const_value is None
    ]


def read_by(node: ir.Node) -> Iterator[ir.Value]:
    """Yield every value that a node and its bodies read, including those computed inside."""
    yield from read_values(node)
    for _, body in subgraphs(node):
        yield from body.outputs
        for inner in body:
            yield from read_by(inner)


class _Frame(NamedTuple):
    """The place of a node: a graph, in one call of a function.

    Attributes:
        path: Path of the graph.
        opsets: Opset imports of the graph.
        parameters: Attributes of the call of the function, by name.
        calls: Functions that are being called, the outermost first.
    """

    path: str
    opsets: Mapping[str, int]
    parameters: Attributes
    calls: tuple[ir.OperatorIdentifier, ...] = ()


class Compiler:
    """Compiles the graphs of one model.

    Args:
        model: The model; it must not change while its programs are used.
        parameters: Values for attributes of the main graph that are references, if that is the body
            of a function.
        new_ops: Classes that compute operators in place of kernels and functions.

    Attributes:
        borrowed: Nodes that onnx.reference runs, by location.
        updates: Whether a compiled node may write into its first input.
    """

    def __init__(
        self,
        model: ir.Model,
        parameters: Attributes | None = None,
        new_ops: Sequence[Any] = (),
    ) -> None:
        self._parameters = parameters or {}
        self._new_ops = {(c.op_domain, c.__name__): c for c in reversed(new_ops)}
        self.borrowed: dict[Location, None] = {}
        self.updates = False
        self._model = model
        self._functions: dict[tuple[object, ...], Program] = {}
        self._constants: dict[int, tuple[ir.TensorProtocol, Value]] = {}

    def main(self, given: Sequence[ir.Value], wanted: Sequence[ir.Value]) -> Program:
        """Return a program for the part of the main graph that `wanted` needs.

        The values `given` are fed. Nodes that only compute these do not run.

        Raises:
            RuntimeUnavailable: If a node reads a value that nothing before it computes, or cannot
                be prepared: an unknown operator, an attribute that its schema does not allow, a
                function that calls itself or is nested too deep, constants that cannot be read.
            RunFailed: If a needed graph input is not among `given`.
        """
        graph = self._model.graph
        frame = _Frame(graph_path(graph.name), self._model.opset_imports, self._parameters)
        slots = Slots(graph, self._constant, None)
        return self._program(given, needed_nodes(graph, given, wanted), wanted, frame, slots)

    def _program(
        self,
        inputs: Iterable[ir.Value],
        nodes: Iterable[tuple[int, ir.Node]],
        outputs: Iterable[ir.Value],
        frame: _Frame,
        slots: Slots,
    ) -> Program:
        fed = tuple(slots.define(value) for value in inputs)
        steps = [self._step(node, index, frame, slots) for index, node in nodes]
        results = []
        for value in outputs:
            slot = slots.find(value)
            if slot is None:
                raise _missing(f"{frame.path}: ", value)
            results.append(slot)
        taken = tuple(slot for _, slot in slots.captured)
        left = {*fed, *taken}
        _note_last_uses(steps, {ABSENT, *slots.constants, *results}, left)
        return Program(slots.template, steps, fed, taken, tuple(results), tuple(left))

    def _constant(self, tensor: ir.TensorProtocol) -> Value:
        # The tensor is kept, so that no other one gets its identity.
        if id(tensor) not in self._constants:
            self._constants[id(tensor)] = (tensor, constant(tensor))
        return self._constants[id(tensor)][1]

    def _step(self, node: ir.Node, index: int, frame: _Frame, slots: Slots) -> Step:
        location = Location.of(frame.path, node, index)
        inputs = []
        for value in node.inputs:
            slot = slots.find(value)
            if slot is None:
                raise _missing(f"{location}: ", value)
            inputs.append(slot)
        step = Step(location, tuple(inputs), _names(node))
        try:
            self._prepare(step, node, frame, slots)
        except RuntimeUnavailable as error:
            if error.is_placed:
                raise
            raise _placed(f"{location}: {error.message}", help=error.help) from error
        value = self._constant_value(node, step, slots.template)
        step.is_done = value is not None
        step.outputs = tuple(slots.define(v, value) if v.name else ABSENT for v in node.outputs)
        return step

    def _constant_value(self, node: ir.Node, step: Step, template: Values) -> Value:
        """Return the value of a Constant or of a view of a constant; None for others, and errors.

        Values that need memory, such as a copy in another order, are computed in each run.
        """
        if step.runtime != "kvtool" or node.op_identifier() in self._model.functions:
            return None
        is_view = Trait.REARRANGES in traits(node)
        if not is_view and (node.op_type != "Constant" or node.domain):
            return None
        inputs = [template[slot] for slot in step.inputs]
        if any(value is None for value in inputs):
            return None
        try:
            (value,) = step.action(inputs, [], State(Buffers()), False)
        except KernelError:
            return None
        return None if is_view and root(value) is not root(inputs[0]) else value

    def _prepare(self, step: Step, node: ir.Node, frame: _Frame, slots: Slots) -> None:
        """Set the action of a step."""
        attributes = resolve(node.attributes, frame.parameters)
        function = self._model.functions.get(node.op_identifier())
        new_op = self._new_ops.get((node.domain, node.op_type))
        if function is not None and new_op is None:
            step.action = self._call(function, node, attributes, frame)
            return
        opset = frame.opsets.get(node.domain)
        if opset is None:
            raise RuntimeUnavailable(f"the domain `{node.domain}` of the operator is not imported")
        facts, contrib = None if new_op else _facts(node, opset), False
        if new_op is not None:
            kernel = None
        elif facts is not None:
            kernel = find_kernel(node.op_type, facts.since_version)
        else:
            facts = contrib_facts(node.domain, node.op_type)
            contrib = facts is not None
            kernel = CONTRIB_KERNELS.get((node.domain, node.op_type))
        if facts is not None and kernel is not None:
            self._prepare_kernel(step, kernel, facts, attributes, frame, slots, opset)
            if Trait.UPDATES in traits(node):
                step.in_place, self.updates = 0, True
            return
        if facts is not None and contrib:
            step.action = self._derived(step, node, facts, attributes, slots)
            return
        self.borrowed[step.location] = None
        step.runtime = "onnx.reference"
        bound = {} if facts is None else bound_attributes(facts, attributes, _refuse_body)
        step.action = _borrowed(
            BorrowedNode(node, attributes, frame.opsets, [new_op] if new_op else ()),
            node.op_type,
            facts,
            bound,
        )

    def _derived(
        self,
        step: Step,
        node: ir.Node,
        facts: OpFacts,
        attributes: Attributes,
        slots: Slots,
    ) -> Action:
        """Return an action that runs the standard form of an operator of onnxruntime."""
        from onnx_kvtool.runtime.engine.derived import Derived

        bound_attributes(facts, attributes, _refuse_body)
        constants = {
            position: value.const_value
            for position, value in enumerate(node.inputs)
            if value is not None
            and value.const_value is not None
            and value.const_value.size <= _SMALL
            and slots.template[step.inputs[position]] is not None
        }
        return Derived(node, step, facts, attributes, constants, self)

    def _prepare_kernel(
        self,
        step: Step,
        kernel: KernelFunction,
        facts: OpFacts,
        attributes: Attributes,
        frame: _Frame,
        slots: Slots,
        opset: int,
    ) -> None:
        place = step.location
        captured: dict[int, ir.Value] = {}
        bodies: dict[str, BodyProgram] = {}

        def compile_body(name: str, graph: ir.Graph) -> None:
            path = step_path(frame.path, place.node, place.index or 0, name)
            inner = Slots(graph, self._constant, slots)
            program = self._program(
                graph.inputs, enumerate(graph), graph.outputs, frame._replace(path=path), inner
            )
            for value, _ in inner.captured:
                captured.setdefault(id(value), value)
            order = list(captured)
            taken = tuple(order.index(id(value)) for value, _ in inner.captured)
            bodies[name] = BodyProgram(program, tuple(graph.outputs), taken)

        bound = bound_attributes(facts, attributes, compile_body)
        step.captured = tuple(slots.find(value) or ABSENT for value in captured.values())
        step.action = call_kernel(
            kernel,
            {name: value for name, value in bound.items() if name not in bodies},
            bodies,
            type_check(facts),
            opset=opset,
            outputs=len(step.names[1]),
            location=place,
        )

    def _call(
        self,
        function: ir.Function,
        node: ir.Node,
        attributes: Attributes,
        frame: _Frame,
    ) -> Action:
        identifier = function.identifier()
        if identifier in frame.calls:
            raise RuntimeUnavailable(f"the function `{function.name}` calls itself")
        if len(frame.calls) == _DEEPEST:
            raise RuntimeUnavailable(
                f"the function `{function.name}` is called more than {_DEEPEST} functions deep",
                help="inline the functions, as with `onnx.inliner`",
            )
        if len(node.inputs) > len(function.inputs):
            raise RuntimeUnavailable(
                f"the function `{function.name}` takes {counted(len(function.inputs), 'input')}, "
                f"got {len(node.inputs)}"
            )
        parameters = {
            **{name: a for name, a in function.attributes.items() if a.value is not None},
            **attributes,
        }
        key = (identifier, *((name, *_content(a)) for name, a in sorted(parameters.items())))
        program = self._functions.get(key)
        if program is None:
            path = function_path(*function.identifier())
            inner = _Frame(path, function.opset_imports, parameters, (*frame.calls, identifier))
            program = self._functions[key] = self._program(
                function.inputs,
                enumerate(function),
                function.outputs,
                inner,
                Slots(function.graph, self._constant, None),
            )
        return call_function(program)


_SMALL = 64
"""Most elements of a constant that a standard form may depend on. It would keep copies of larger
ones, such as packed weights."""

_DEEPEST = 128
"""Deepest nesting of functions; each takes several of the thousand levels of Python's stack."""


def _facts(node: ir.Node, opset: int) -> OpFacts | None:
    """Return the schema of a node of the default domain; None for another or an unknown operator.

    Raises:
        RuntimeUnavailable: If a required input is absent, or there are too many.
    """
    if node.domain or op_facts(node.op_type, opset) is None:
        return None
    try:
        return NodeView(node, opset).facts
    except MalformedNode as error:
        raise RuntimeUnavailable(error.message, help=error.help) from error


def _borrowed(node: BorrowedNode, op: str, facts: OpFacts | None, attributes: Named) -> Action:
    """Return an action that runs a node with onnx.reference."""
    check = None if facts is None else type_check(facts)

    def run(inputs: Values, *_: object) -> Values:
        if check is not None:
            check(inputs)
            if op in LEGALITY:
                LEGALITY[op](inputs, attributes)
        return node(inputs)

    return run


def _refuse_body(name: str, graph: ir.Graph) -> Value:
    raise RuntimeUnavailable(f"there is no kernel that runs the body `{name}`")


def _placed(message: str, help: str | None) -> RuntimeUnavailable:
    """Return the error for a node that cannot be prepared; the message names the node."""
    error = RuntimeUnavailable(message, help=help)
    error.is_placed = True
    return error


def _missing(where: str, value: ir.Value | None) -> KvtoolError:
    """Return the error for a missing value."""
    name = "" if value is None else value.name
    if value is not None and value.is_graph_input():
        return RunFailed(f"{where}the graph input `{name}` is missing")
    help = "export the model again, or sort its nodes"
    return _placed(f"{where}nothing before produces the value `{name}`", help=help)


def _names(node: ir.Node) -> tuple[tuple[str, ...], tuple[str, ...]]:
    inputs = tuple("" if value is None else value.name or "" for value in node.inputs)
    return inputs, tuple(value.name or "" for value in node.outputs)


def _content(attribute: ir.Attr) -> tuple[object, ...]:
    """Return a key for the value of a parameter; tensors and graphs are compared by identity."""
    value = attribute.value
    items = value if isinstance(value, (list, tuple)) else (value,)
    is_plain = all(isinstance(item, (int, float, str)) for item in items)
    # An attribute that is kept alive by the model keeps its identity.
    return (attribute.type, repr(value) if is_plain else id(value))


def _note_last_uses(steps: Sequence[Step], keep: set[int], filled: set[int]) -> None:
    """Note for each step the slots that no later step reads, and mark unread outputs as absent.

    Slots in `keep` are never dropped. `filled` has the slots filled before the first step; it is
    changed to those filled after the last one.
    """
    later = set(keep)
    for step in reversed(steps):
        kept = () if step.is_done else step.outputs
        step.outputs = tuple(slot if slot in later else ABSENT for slot in kept)
        read = {*step.inputs, *step.captured}
        step.drops = tuple(sorted(read - later))
        later |= read
    for step in steps:
        filled.difference_update(step.drops)
        filled.update(slot for slot in step.outputs if slot != ABSENT)
