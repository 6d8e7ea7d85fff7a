"""MD403: an initializer is read by nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding, Fix

__all__ = ["UnusedInitializer"]


class UnusedInitializer(ModelRule):
    """An initializer is read by no node and returned by no graph.

    ## What it does

    Looks for initializers, of the main graph and of bodies, that no node reads there or in the
    graphs nested inside, that are no output, and that no quantization annotation refers to.

    ## Why is this bad?

    It takes space in the file and in memory while the model is loaded; onnxruntime logs a line for
    each and removes it. Often it is what remains of an edit that went wrong.

    ## Fix safety

    The fix is safe: it removes the initializer. Its bytes in a file of external data stay where
    they are. One that is an input of the model as well is left alone, as removing it would change
    the interface.

    ## References

    - onnxruntime 1.31.1: "Removing initializer ... It is not used by any node and should be removed
      from the model."
    """

    code = "MD403"
    name = "unused-initializer"
    severity = "warning"
    basis = "constant"
    fix = "safe"

    bad = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) <float[3] bias = {1, 2, 3}> {
            y = Neg (x)
        }
    """
    good = """
        <ir_version: 12, opset_import: ["": 24]>
        decoder (float[2, 3] x) => (float[2, 3] y) <float[3] bias = {1, 2, 3}> {
            y = Add (x, bias)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Ask each initializer for its readers."""
        from onnx_kvtool.core.location import Location
        from onnx_kvtool.core.storage import tensor_bytes
        from onnx_kvtool.lint.facts.liveness import unused_initializers

        for path, graph, value in unused_initializers(context):
            tensor = value.const_value
            size = "" if tensor is None else f" ({tensor_bytes(tensor):,} bytes)"
            yield self.found(
                Location(path, value=value.name),
                f"nothing reads the initializer `{value.name}`{size}",
                help="remove it",
                fix=_fix(graph, value),
            )


def _fix(graph: ir.Graph, value: ir.Value) -> Fix | None:
    from onnx_kvtool.lint.finding import Fix

    if value.is_graph_input():
        return None
    return Fix("safe", f"remove the initializer `{value.name}`", _removing(graph, value))


def _removing(graph: ir.Graph, value: ir.Value) -> Callable[[], None]:
    def apply() -> None:
        is_there = graph.initializers.get(value.name or "") is value
        if is_there and not value.uses() and not value.is_graph_output():
            del graph.initializers[value.name or ""]

    return apply
