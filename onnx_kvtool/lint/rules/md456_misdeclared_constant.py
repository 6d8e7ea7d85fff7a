"""MD456: a constant is declared otherwise than what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.core.diagnostic import Severity
    from onnx_kvtool.core.location import Location
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["MisdeclaredConstant"]


class MisdeclaredConstant(ModelRule):
    """An initializer or a Constant is declared otherwise than what it holds.

    ## What it does

    Holds the element type and the shape of each initializer against the graph input of its name, or
    against what `value_info` says of it, and those of each Constant against its `value_info`. A
    size that is a name, or that is not known, agrees with any number.

    ## Why is this bad?

    An initializer that is an input is the default of that input: onnxruntime does not load a model
    in which the two differ. Where only `value_info` is wrong, onnxruntime takes the data, and tools
    that believe the declaration plan with the wrong shape: a warning. Constants of a model are one
    remark together, because exporters write such (onnxruntime-genai 0.18). onnx's shape inference
    ends at a wrong initializer, and says nothing about the rest of the model.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), on `initializer` of
      GraphProto: "When an initializer has the same name as a graph input, it specifies a default
      value for that input."
    - Observed in onnxruntime 1.31.1: "Shape of initializer x does not match", "Data in initializer
      'x' has element type tensor(int64) but usage of initializer in graph expects tensor(float)".
    """

    code = "MD456"
    name = "misdeclared-constant"
    severity = "error"
    basis = "constant"

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2, 5] x, float[3] w) => (float[2, 5] y) <float[5] w = {1, 2, 3, 4, 5}> {
            [scale] y = Mul (x, w)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2, 5] x, float[5] w) => (float[2, 5] y) <float[5] w = {1, 2, 3, 4, 5}> {
            [scale] y = Mul (x, w)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Look at each constant as the file declares it."""
        from onnx_kvtool.core.location import Location
        from onnx_kvtool.core.quantity import counted

        declared = {value: (type_, shape) for value, type_, shape in context.completed}
        for path, graph in context.graphs:
            for value in graph.initializers.values():
                given = declared.get(value, (value.type, value.shape))
                yield from self._look(value, given, Location(path, value=value.name))
        constants = [
            finding
            for site in context.sites_of("Constant")
            for value in site.node.outputs
            if not value.is_graph_output()  # ON615
            for finding in self._look(
                value, declared.get(value, (value.type, value.shape)), site.location(value)
            )
        ]
        if constants:
            first, more = constants[0], len(constants) - 1
            said = f" ({counted(more, 'more Constant')})" if more else ""
            message = f"{first.diagnostic.message}{said}"
            yield replace(first, diagnostic=replace(first.diagnostic, message=message))

    def _look(
        self,
        value: ir.Value,
        declared: tuple[ir.TypeProtocol | None, ir.Shape | None],
        place: Location,
    ) -> Iterator[Finding]:
        import onnx_ir as ir

        from onnx_kvtool.core.misdeclared import held
        from onnx_kvtool.ops.element_type import contradiction

        type_, shape = declared
        text = contradiction(ir.Value(type=type_, shape=shape, const_value=held(value)))
        if text is None:
            return
        severity: Severity | None = None
        what, help = "initializer", "declare what it holds, or correct the data"
        if not value.is_graph_input() and not value.is_graph_output():
            severity, help = "warning", "correct the entry of `value_info`, or leave it out"
        if place.op is not None:
            what, severity = "Constant", "info"
        yield self.found(place, f"{what} `{value.name}` {text}", help=help, severity=severity)
