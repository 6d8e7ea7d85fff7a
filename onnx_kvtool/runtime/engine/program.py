"""A graph as a list of steps over numbered slots, and running it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.words import counted
from onnx_kvtool.runtime.engine.buffers import Buffers
from onnx_kvtool.runtime.errors import KernelError, OutOfMemory, RunFailed
from onnx_kvtool.runtime.kernels.kernel import Value

__all__ = ["ABSENT", "Action", "Call", "Program", "State", "Step", "Trace"]

ABSENT = 0
"""The slot of an input or output that is absent; it holds None and nothing is written to it."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One node that ran.

    Attributes:
        location: The node.
        outputs: Names and values of its outputs; the arrays may be overwritten later.
        seconds: Wall time that it took, its bodies included.
        runtime: `kvtool`, or `onnx.reference` for an operator without a kernel of our own.
    """

    location: Location
    outputs: tuple[tuple[str, Value], ...]
    seconds: float
    runtime: str


@dataclass(slots=True)
class State:
    """What one run of a model gathers on its way.

    Attributes:
        buffers: Who holds which buffer.
        warnings: Results that the specification leaves undefined.
        observe: Called after each node of every graph; None when nobody asks.
    """

    buffers: Buffers
    warnings: list[Diagnostic] = field(default_factory=list)
    observe: Callable[[Trace], None] | None = None


@dataclass(slots=True)
class Call:
    """What a step hands to its action.

    Attributes:
        inputs: Values of the node's inputs, None where absent.
        captured: Values of the outer graphs that the node's bodies read, in the order of
            `Step.captured`.
        state: The run.
        in_place: Whether the buffer that the kernel can write into is free.
    """

    inputs: list[Value]
    captured: list[Value]
    state: State
    in_place: bool


Action = Callable[[Call], Sequence[Value]]
"""Computes the outputs of a node."""


def _unprepared(call: Call) -> Sequence[Value]:
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
        is_done: Whether the slot of its output holds the value from the start: a Constant, which
            runs again only to be observed.
    """

    location: Location
    inputs: tuple[int, ...]
    names: tuple[tuple[str, ...], tuple[str, ...]]
    action: Action = _unprepared
    outputs: tuple[int, ...] = ()
    captured: tuple[int, ...] = ()
    runtime: str = "kvtool"
    in_place: int | None = None
    drops: tuple[int, ...] = ()
    is_done: bool = False


@dataclass(slots=True)
class Program:
    """A graph, ready to run.

    Attributes:
        template: One entry per slot, holding the constants; None elsewhere.
        steps: Its nodes in order.
        inputs: Slots of the inputs, in order.
        captured: Slots of values of outer graphs.
        outputs: Slots of the outputs, in order.
    """

    template: list[Value]
    steps: list[Step]
    inputs: tuple[int, ...]
    captured: tuple[int, ...]
    outputs: tuple[int, ...]

    def run(self, inputs: Sequence[Value], captured: Sequence[Value], state: State) -> list[Value]:
        """Run the graph once.

        Args:
            inputs: One value per input, in order.
            captured: One value per slot of `captured`.
            state: The run it belongs to.

        Returns:
            One value per output.

        Raises:
            RunFailed: If a node fails; the text names it, its inputs and their shapes.
        """
        frame = self.template.copy()
        buffers = state.buffers
        for slots, values in ((self.inputs, inputs), (self.captured, captured)):
            for slot, value in zip(slots, values, strict=True):
                frame[slot] = value
                buffers.hold(value)
        for step in self.steps:
            if not step.is_done or state.observe is not None:
                self._step(step, frame, state)
        results = [frame[slot] for slot in self.outputs]
        for slot, value in enumerate(frame):
            if value is not self.template[slot]:
                buffers.release(value)
        return results

    def _step(self, step: Step, frame: list[Value], state: State) -> None:
        buffers = state.buffers
        inputs = [frame[slot] for slot in step.inputs]
        captured = [frame[slot] for slot in step.captured] if step.captured else []
        # Given up before the node runs: what it alone holds then, it may write into.
        for slot in step.drops:
            buffers.release(frame[slot])
            frame[slot] = None
        in_place = step.in_place is not None and _is_free(inputs, step.in_place, buffers)
        begin = 0.0 if state.observe is None else time.perf_counter()
        try:
            outputs = step.action(Call(inputs, captured, state, in_place))
        except KernelError as error:
            raise RunFailed(_described(step, inputs, error), help=error.help) from error
        except MemoryError as error:
            raise OutOfMemory(f"{step.location}: there is not enough memory: {error}") from error
        if state.observe is not None:
            seconds = time.perf_counter() - begin
            named = tuple(zip(step.names[1], outputs, strict=False))
            state.observe(Trace(step.location, named, seconds, step.runtime))
        if len(outputs) < len(step.outputs):
            raise RunFailed(
                f"{step.location}: the node has {counted(len(step.outputs), 'output')}, expected "
                f"at most {len(outputs)}"
            )
        for slot, value in zip(step.outputs, outputs, strict=False):
            if slot != ABSENT:
                frame[slot] = value
                buffers.hold(value)


def _is_free(inputs: Sequence[Value], position: int, buffers: Buffers) -> bool:
    """Return whether the input at `position` lies alone in its buffer, other inputs included."""
    value = inputs[position]
    if not buffers.is_free(value):
        return False
    others = (v for i, v in enumerate(inputs) if i != position and isinstance(v, np.ndarray))
    return not any(np.may_share_memory(value, other) for other in others)


def _described(step: Step, inputs: Sequence[Value], error: KernelError) -> str:
    """Return what is wrong, where, and with which values."""
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
