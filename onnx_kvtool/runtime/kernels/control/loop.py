"""Loop-1 to Loop-25."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.control.flag import flag
from onnx_kvtool.runtime.kernels.control.stacking import Stack
from onnx_kvtool.runtime.kernels.kernel import Body, Value

__all__ = ["loop"]


def loop(M: Value = None, cond: Value = None, *v_initial: Value, body: Body) -> tuple[Value, ...]:
    """Run a body again and again.

    A state that the body updates in place, such as a cache, is updated without a copy from the
    second iteration on.

    Args:
        M: int64, one element: the most iterations; None for no limit. Below 1 there are none.
        cond: bool, one element: whether to run the first iteration; None for yes.
        v_initial: States before the first iteration, tensors, sequences or optionals.
        body: (iteration number, condition, states...) to (condition, states..., scan outputs...).

    Returns:
        The states after the last iteration, then each scan output stacked along a new first axis;
        without any iteration a scan output has 0 elements.

    Raises:
        KernelError: If `M` is no int64 of one element, a condition no boolean of one element, the
            body has other numbers of inputs or outputs, or a scan output changes shape or type.
    """
    limit = None if M is None else _trips(M)
    goes_on = True if cond is None else flag("cond", cond)
    states = list(v_initial)
    if len(body.outputs) < 1 + len(states):
        raise KernelError(
            f"the body has {counted(len(body.outputs), 'output')}, expected at least "
            f"{1 + len(states)}: a condition and {counted(len(states), 'state')}"
        )
    stacks = [Stack(body, k) for k in range(1 + len(states), len(body.outputs))]
    iteration = 0
    while goes_on and (limit is None or iteration < limit):
        results = body(
            np.asarray(iteration, np.int64),
            np.asarray(goes_on),
            *states,
            given_up=range(2, 2 + len(states)),
        )
        goes_on = flag("the condition that the body returns", results[0])
        states = list(results[1 : 1 + len(states)])
        for stack, element in zip(stacks, results[1 + len(states) :], strict=True):
            stack.add(element)
        iteration += 1
    return (*states, *(stack.result() for stack in stacks))


def _trips(value: Value) -> int:
    if not isinstance(value, np.ndarray) or value.dtype != np.int64 or value.size != 1:
        raise KernelError("`M` is expected to be one element of type int64")
    return int(value.reshape(-1)[0])
