"""A graph as a list of steps over numbered slots, and its execution."""

from __future__ import annotations

import functools
import inspect
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import onnx_ir as ir
from numpy import ndarray  # a name of its own is found faster, once per node

from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.words import counted
from onnx_kvtool.runtime.engine.borrowed import TypeCheck
from onnx_kvtool.runtime.errors import KernelError, OutOfMemory, RunFailed
from onnx_kvtool.runtime.kernels.kernel import (
    Array,
    Context,
    Ints,
    KernelFunction,
    Named,
    Value,
    Values,
)

# Reference counts of buffers: a kernel may write into a buffer that nobody else reads.


class Buffers:
    """Counts the values of running graphs in each buffer.

    A view shares the buffer of its base array. Holders of a value keep it alive, so that no other
    array gets its identity.
    """

    def __init__(self) -> None:
        self._counts: defaultdict[int, int] = defaultdict(int)

    def hold(self, value: Value, count: int = 1) -> None:
        """Count one more value in the buffer of `value`."""
        if isinstance(value, np.ndarray):
            self._counts[id(value if value.base is None else root(value))] += count
        elif isinstance(value, list):
            for item in value:
                self.hold(item, count)

    def release(self, value: Value) -> None:
        """Count one value less in the buffer of `value`."""
        self.hold(value, -1)

    def is_free(self, value: Value) -> bool:
        """Return whether `value` is a whole writable array, and its buffer has no counted value."""
        if not isinstance(value, np.ndarray) or not value.flags.writeable:
            return False
        base = root(value)
        return base.base is None and base.size == value.size and not self._counts[id(base)]


class Uncounted(Buffers):
    """Counts nothing: for models whose kernels never write into their inputs."""

    def hold(self, value: Value, count: int = 1) -> None:
        """Do nothing."""

    def is_free(self, value: Value) -> bool:
        """Return False."""
        return False


def root(array: Array) -> Array:
    """Return the array that owns the buffer of `array`; itself if it is no view."""
    while isinstance(base := array.base, np.ndarray):
        array = base
    return array


ABSENT = 0
"""The slot of absent inputs and outputs; it is always None."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One node that ran.

    Attributes:
        location: The node.
        outputs: Names and values of its outputs; the arrays may be overwritten later.
        seconds: Wall time, bodies included.
        runtime: `kvtool`, or `onnx.reference` if kvtool has no kernel for the operator.
        inputs: Names of its inputs.
    """

    location: Location
    outputs: tuple[tuple[str, Value], ...]
    seconds: float
    runtime: str
    inputs: tuple[str, ...]


@dataclass(slots=True)
class State:
    """The state of one run of a model.

    Attributes:
        buffers: The counts of values in buffers.
        warnings: Results that the specification leaves undefined.
        observe: Called after each node of every graph; None for nobody.
    """

    buffers: Buffers
    warnings: list[Diagnostic] = field(default_factory=list)
    observe: Callable[[Trace], None] | None = None


class Action(Protocol):
    """Computes the outputs of a node."""

    def __call__(self, inputs: Values, captured: Values, state: State, in_place: bool, /) -> Values:
        """Compute the outputs of a node.

        `captured` has the values of outer graphs that its bodies read, in the order of
        `Step.captured`. With `in_place`, the buffer of that input may be written into.
        """
        ...


def _unprepared(*_: object) -> Values:
    raise AssertionError("a step without an action")


@dataclass(slots=True)
class Step:
    """One node, ready to run.

    Attributes:
        location: The node.
        inputs: Slots of its inputs.
        names: Names of its inputs and outputs, for messages.
        action: Computes it.
        outputs: Slots of its outputs; `ABSENT` also for one that nothing reads.
        captured: Slots of values that its bodies read from this graph.
        runtime: As in `Trace`.
        in_place: Position of the input whose buffer may be written into; None for most.
        drops: Slots that nothing reads after this step.
        is_done: Whether the template already has its output, that of a Constant or a view of one;
            the step then runs only to be observed.
    """

    location: Location
    inputs: Ints
    names: tuple[tuple[str, ...], tuple[str, ...]]
    action: Action = _unprepared
    outputs: Ints = ()
    captured: Ints = ()
    runtime: str = "kvtool"
    in_place: int | None = None
    drops: Ints = ()
    is_done: bool = False


@dataclass(slots=True)
class Program:
    """A graph, ready to run.

    Attributes:
        template: One entry per slot: the constants, None elsewhere.
        steps: Its nodes in order.
        inputs: Slots of the inputs, in order.
        captured: Slots of values of outer graphs.
        outputs: Slots of the outputs, in order.
        left: Slots that a run fills and no step drops.
    """

    template: list[Value]
    steps: list[Step]
    inputs: Ints
    captured: Ints
    outputs: Ints
    left: Ints

    def run(self, inputs: Values, captured: Values, state: State) -> list[Value]:
        """Run the graph once on a value per input and per slot of `captured`.

        Raises:
            RunFailed: If a node fails; the text names it, its inputs and their shapes.
        """
        frame = self.template.copy()
        buffers, observe = state.buffers, state.observe
        hold, release = buffers.hold, buffers.release
        for slots, values in ((self.inputs, inputs), (self.captured, captured)):
            for slot, value in zip(slots, values, strict=True):
                frame[slot] = value
                hold(value)
        for step in self.steps:
            if step.is_done and observe is None:
                continue
            given = [frame[slot] for slot in step.inputs]
            outer = [frame[slot] for slot in step.captured] if step.captured else ()
            # Dropped before the node runs, so that it may write into buffers that it alone reads.
            for slot in step.drops:
                release(frame[slot])
                frame[slot] = None
            in_place = step.in_place is not None and _is_free(given, step.in_place, buffers)
            begin = 0.0 if observe is None else time.perf_counter()
            try:
                outputs = step.action(given, outer, state, in_place)
            except KernelError as error:
                raise RunFailed(_described(step, given, error), help=error.help) from error
            except MemoryError as error:
                raise OutOfMemory(
                    f"{step.location}: there is not enough memory: {error}"
                ) from error
            if observe is not None:
                seconds = time.perf_counter() - begin
                named = tuple(zip(step.names[1], outputs, strict=False))
                observe(Trace(step.location, named, seconds, step.runtime, step.names[0]))
            if len(outputs) < len(step.outputs):
                raise RunFailed(
                    f"{step.location}: the node has {counted(len(step.outputs), 'output')}, "
                    f"expected at most {len(outputs)}"
                )
            for slot, value in zip(step.outputs, outputs, strict=False):
                if slot != ABSENT:
                    frame[slot] = value
                    hold(value)
        results = [frame[slot] for slot in self.outputs]
        for slot in self.left:
            release(frame[slot])
        return results


def _is_free(inputs: Values, position: int, buffers: Buffers) -> bool:
    """Return whether no other value, and no other input, shares the buffer of an input."""
    value = inputs[position]
    if not buffers.is_free(value):
        return False
    others = (v for i, v in enumerate(inputs) if i != position and isinstance(v, np.ndarray))
    return not any(np.may_share_memory(value, other) for other in others)


def _described(step: Step, inputs: Values, error: KernelError) -> str:
    """Return the error with its place and the inputs."""
    given = ", ".join(
        f"`{name}` {_shape(value)}"
        for name, value in zip(step.names[0], inputs, strict=True)
        if value is not None
    )
    return f"{step.location}: {error.message}" + (f" (inputs: {given})" if given else "")


def _shape(value: Value) -> str:
    if isinstance(value, np.ndarray):
        dtype = "string" if value.dtype == object else str(value.dtype)
        return f"{dtype} {tuple(value.shape)}"
    return f"sequence of {len(value)}" if isinstance(value, list) else type(value).__name__


# Numbered slots for the values of one graph.


class Slots:
    """The slots of one graph while it is compiled.

    Args:
        graph: The graph.
        read: Gives the values of an initializer.
        outer: The slots of the graph around this one; None at the top and for functions.

    Attributes:
        template: As in `Program`: the constants, None elsewhere.
        captured: Values of outer graphs that are read here, with their slots here, in order.
    """

    def __init__(
        self, graph: ir.Graph, read: Callable[[ir.TensorProtocol], Value], outer: Slots | None
    ) -> None:
        self.template: list[Value] = [None]  # the one of `ABSENT`
        self.captured: list[tuple[ir.Value, int]] = []
        self._graph = graph
        self._read = read
        self._outer = outer
        self._slots: dict[int, int] = {}

    def define(self, value: ir.Value, content: Value = None) -> int:
        """Return a new slot for a value that this graph computes; `content` if it is a constant."""
        self.template.append(content)
        slot = len(self.template) - 1
        self._slots[id(value)] = slot
        return slot

    def find(self, value: ir.Value | None) -> int | None:
        """Return the slot of a value; None if nothing so far computes it.

        Initializers and values of outer graphs get a slot on first use, so that unused weights stay
        unread.
        """
        if value is None:
            return ABSENT
        slot = self._slots.get(id(value))
        if slot is not None:
            return slot
        initializer = self._graph.initializers.get(value.name or "")
        if initializer is value and value.const_value is not None:
            return self.define(value, self._read(value.const_value))
        if self._outer is not None and self._outer.find(value) is not None:
            slot = self.define(value)
            self.captured.append((value, slot))
        return slot

    @property
    def constants(self) -> set[int]:
        """The slots of constants."""
        return {slot for slot, content in enumerate(self.template) if content is not None}


# The actions of steps: calls of a kernel, a function or a body.


@dataclass(frozen=True, slots=True)
class BodyProgram:
    """The body of a node.

    Attributes:
        program: The body.
        outputs: Its outputs as they are declared.
        taken: Positions of the values that the body reads among those that the step captures.
    """

    program: Program
    outputs: tuple[ir.Value, ...]
    taken: Ints


@dataclass(frozen=True, slots=True)
class _BoundBody:
    """A body together with the values of the outer graphs; see `kernels.kernel.Body`."""

    body: BodyProgram
    captured: tuple[Value, ...]
    state: State

    @property
    def outputs(self) -> tuple[ir.Value, ...]:
        return self.body.outputs

    def empty(self, position: int) -> Array:
        """Return an array of the declared type; see `kernels.kernel.Body`."""
        declared = self.outputs[position]
        if declared.dtype is None or declared.shape is None:
            raise KernelError(
                f"there was no iteration, and the body declares no type and shape for its output "
                f"`{declared.name}`"
            )
        shape = [dim if isinstance(dim, int) else 0 for dim in declared.shape]
        return np.zeros(shape, declared.dtype.numpy())

    def __call__(self, *inputs: Value, given_up: Collection[int] = ()) -> Values:
        program = self.body.program
        if len(inputs) != len(program.inputs):
            raise KernelError(
                f"a body takes {counted(len(program.inputs), 'input')}, expected {len(inputs)}"
            )
        # Values that the caller may use again must not be written into.
        pinned = [*self.captured, *(v for i, v in enumerate(inputs) if i not in given_up)]
        for value in pinned:
            self.state.buffers.hold(value)
        outputs = program.run(inputs, self.captured, self.state)
        for value in pinned:
            self.state.buffers.release(value)
        return outputs


@functools.cache
def _wants_context(function: Callable[..., object]) -> bool:
    return "context" in inspect.signature(function).parameters


def call_kernel(
    kernel: KernelFunction,
    attributes: Named,
    bodies: Mapping[str, BodyProgram],
    check: TypeCheck,
    *,
    opset: int,
    outputs: int,
    location: Location,
) -> Action:
    """Return an action that calls a kernel; `location` is for warnings."""
    function = functools.partial(kernel, **attributes) if attributes else kernel
    wants_context = _wants_context(kernel)
    if not bodies and not wants_context:

        def run_plain(inputs: Values, captured: Values, state: State, in_place: bool) -> Values:
            check(inputs)
            result = function(*inputs, in_place=True) if in_place else function(*inputs)
            return (result,) if isinstance(result, ndarray) else _outputs(result)

        return run_plain

    def run(inputs: Values, captured: Values, state: State, in_place: bool) -> Values:
        check(inputs)
        keywords: dict[str, Value] = {"in_place": True} if in_place else {}
        for name, body in bodies.items():
            read = tuple(captured[position] for position in body.taken)
            keywords[name] = _BoundBody(body, read, state)
        if wants_context:
            keywords["context"] = Context(
                opset,
                outputs,
                lambda text: state.warnings.append(
                    Diagnostic("undefined-result", "warning", location, text)
                ),
            )
        return _outputs(function(*inputs, **keywords))

    return run


def _outputs(result: Value) -> Values:
    """Return all outputs that a kernel returned, arrays in place of numbers of numpy."""
    if isinstance(result, tuple):
        return result
    return (np.asarray(result) if isinstance(result, np.generic) else result,)


def call_function(program: Program) -> Action:
    """Return an action that calls a model-local function; missing inputs are absent."""

    def run(inputs: Values, _: Values, state: State, __: bool) -> Values:
        missing = len(program.inputs) - len(inputs)
        return program.run([*inputs, *[None] * missing], (), state)

    return run
