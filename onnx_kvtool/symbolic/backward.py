"""Computing a fact of a value from the facts of what it is computed from, without recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import onnx_ir as ir

__all__ = ["fill"]

F = TypeVar("F")


def fill(
    value: ir.Value,
    memo: dict[ir.Value, F],
    operands: Callable[[ir.Value], Iterable[ir.Value]],
    compute: Callable[[ir.Value], F],
) -> F:
    """Return the fact of `value`, and put it and all that it needs into `memo`.

    Each value is computed once, after its operands; the work is linear in the edges between them,
    and chains may be as long as the graph.

    Args:
        value: The value that is asked about.
        memo: Facts known so far.
        operands: The values whose facts `compute` looks up in `memo`.
        compute: The fact of one value. In a graph with a cycle, which is not valid, the fact of one
            value on it is missing from `memo`.
    """
    stack = [value]
    begun: set[ir.Value] = set()
    while stack:
        top = stack[-1]
        if top not in memo and top not in begun:
            begun.add(top)
            missing = [v for v in operands(top) if v not in memo and v not in begun]
            if missing:
                stack.extend(missing)
                continue
        stack.pop()
        if top not in memo:
            memo[top] = compute(top)
    return memo[value]
