"""If-1 to If-25."""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.control.flag import flag
from onnx_kvtool.runtime.kernels.kernel import Body, Value

__all__ = ["conditional"]


def conditional(cond: Value, *, then_branch: Body, else_branch: Body) -> tuple[Value, ...]:
    """Run one of two bodies; the other is not run.

    Args:
        cond: bool, one element.
        then_branch: Run if `cond` holds; takes no inputs.
        else_branch: Run otherwise; takes no inputs.

    Returns:
        The outputs of the body that ran.

    Raises:
        KernelError: If `cond` is no boolean of one element.
    """
    return tuple(then_branch() if flag("cond", cond) else else_branch())
