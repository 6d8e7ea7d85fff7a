"""MD443: functions of the model call each other too deeply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["DeepCallChain"]

_MOST_CALLS = 100
_MOST_FUNCTIONS = 10_000


def _chain(length: int) -> str:
    """Return a model whose functions f1, f2, ... call one the next."""
    imports = '["": 24, "local": 1]'
    text = f"""
        <ir_version: 12, opset_import: {imports}>
        decoder (float[2, 3] x) => (float[2, 3] y) {{
            y = local.f1 (x)
        }}
    """
    for number in range(1, length + 1):
        call = "Neg" if number == length else f"local.f{number + 1}"
        text += f"""
        <domain: "local", opset_import: {imports}>
        f{number} (a) => (b) {{ b = {call} (a) }}
    """
    return text


class DeepCallChain(ModelRule):
    """Functions of the model call each other more than 100 deep, or there are over 10,000.

    ## What it does

    Follows the calls of model-local functions and counts the functions of the longest chain.
    Functions that call themselves are [MD441](MD441.md).

    ## Why is this bad?

    onnx's checker refuses such a model as malformed or hostile, and runtimes that inline functions
    one into the other run out of stack or memory. No exporter writes one.

    ## References

    - onnx.checker 1.23.2: "Function call chain depth exceeds limit (100)".
    """

    code = "MD443"
    name = "deep-call-chain"
    severity = "error"
    basis = "constant"

    bad = _chain(101)
    good = _chain(2)

    def check(self, context: Context) -> Iterator[Finding]:
        """Find the longest chain, in the order in which callees come first."""
        import graphlib

        from onnx_kvtool.core.location import Location
        from onnx_kvtool.core.walk import function_path

        functions = context.model.functions
        if len(functions) > _MOST_FUNCTIONS:
            yield self.found(
                Location(),
                f"the model has {len(functions):,} functions, and {_MOST_FUNCTIONS:,} are allowed",
                help="inline the functions that are called once",
            )
        if len(functions) <= _MOST_CALLS:
            return
        keys = {id(function.graph): key for key, function in functions.items()}
        calls: dict[tuple[str, str, str], set[tuple[str, str, str]]] = {
            key: set() for key in functions
        }
        for site in context.sites:
            caller, callee = keys.get(id(site.root)), site.node.op_identifier()
            if caller is not None and callee in functions:
                calls[caller].add(callee)
        try:
            order = list(graphlib.TopologicalSorter(calls).static_order())
        except graphlib.CycleError:
            return
        depth: dict[tuple[str, str, str], int] = {}
        for key in order:
            depth[key] = 1 + max((depth[callee] for callee in calls[key]), default=0)
        deepest = max(order, key=lambda key: depth[key])
        if depth[deepest] > _MOST_CALLS:
            yield self.found(
                Location(function_path(*deepest)),
                f"calls of functions are {depth[deepest]} deep from here, and {_MOST_CALLS} are "
                "allowed",
                help="inline the functions that are called once",
            )
