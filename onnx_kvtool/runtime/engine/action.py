"""What a step does: call a kernel, a function or a body."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.words import counted
from onnx_kvtool.runtime.engine.program import Action, Call, Program, State
from onnx_kvtool.runtime.engine.type_check import TypeCheck
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array, Context, Kernel, Value

__all__ = ["BodyProgram", "call_function", "call_kernel"]


@dataclass(frozen=True, slots=True)
class BodyProgram:
    """The body of a node.

    Attributes:
        program: The body.
        outputs: Its outputs as they are declared.
        taken: Positions, among the values that the step captures, of those that the body reads.
    """

    program: Program
    outputs: tuple[ir.Value, ...]
    taken: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _BoundBody:
    """A body together with the values of the outer graphs; see `kernels.kernel.Body`."""

    program: Program
    outputs: tuple[ir.Value, ...]
    captured: tuple[Value, ...]
    state: State

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

    def __call__(self, *inputs: Value, given_up: Collection[int] = ()) -> Sequence[Value]:
        if len(inputs) != len(self.program.inputs):
            raise KernelError(
                f"a body takes {counted(len(self.program.inputs), 'input')}, expected {len(inputs)}"
            )
        # What the caller may hand over again must not be written into.
        pinned = [*self.captured, *(v for i, v in enumerate(inputs) if i not in given_up)]
        for value in pinned:
            self.state.buffers.hold(value)
        outputs = self.program.run(inputs, self.captured, self.state)
        for value in pinned:
            self.state.buffers.release(value)
        return outputs


@functools.cache
def _wants_context(function: Callable[..., object]) -> bool:
    return "context" in inspect.signature(function).parameters


def call_kernel(
    kernel: Kernel,
    attributes: Mapping[str, Value],
    bodies: Mapping[str, BodyProgram],
    check: TypeCheck,
    *,
    opset: int,
    outputs: int,
    location: Location,
) -> Action:
    """Return an action that calls a kernel.

    Args:
        kernel: The kernel.
        attributes: Values of the attributes that are not graphs.
        bodies: Those that are, by name.
        check: Checks the types of the inputs.
        opset: As in `Context`.
        outputs: As in `Context`.
        location: The node, for warnings.
    """
    function = functools.partial(kernel.function, **attributes)
    wants_context = _wants_context(kernel.function)
    if not bodies and not wants_context:

        def run_plain(call: Call) -> Sequence[Value]:
            check(call.inputs)
            if call.in_place:
                return function(*call.inputs, in_place=True)
            return function(*call.inputs)

        return run_plain

    def run(call: Call) -> Sequence[Value]:
        check(call.inputs)
        keywords: dict[str, Value] = {}
        for name, body in bodies.items():
            captured = tuple(call.captured[position] for position in body.taken)
            keywords[name] = _BoundBody(body.program, body.outputs, captured, call.state)
        if wants_context:
            warn = functools.partial(_warn, call.state, location)
            keywords["context"] = Context(opset, outputs, warn)
        if call.in_place:
            keywords["in_place"] = True
        return function(*call.inputs, **keywords)

    return run


def call_function(program: Program) -> Action:
    """Return an action that calls a model-local function; inputs left out are absent."""

    def run(call: Call) -> Sequence[Value]:
        missing = len(program.inputs) - len(call.inputs)
        return program.run([*call.inputs, *[None] * missing], (), call.state)

    return run


def _warn(state: State, location: Location, message: str) -> None:
    state.warnings.append(Diagnostic("undefined-result", "warning", location, message))
