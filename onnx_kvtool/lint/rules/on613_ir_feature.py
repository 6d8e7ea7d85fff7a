"""ON613: a model holds what its IR version does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.core.location import Location
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding, Fix

__all__ = ["IrFeature"]


class IrFeature(ModelRule):
    """A model holds what its IR version does not have.

    ## What it does

    Looks for element types (8-bit floats came with IR 9, 4-bit integers with 10), model-local
    functions (8) and overloads of them (10) in a model of a lower IR version; there is one finding
    for each, at the first place. In IR 3 and below an initializer has to be an input as well; there
    is one finding for each graph with others.

    ## Why is this bad?

    A reader of that IR version skips what it does not know: it sees a tensor of an unknown type, or
    a call of a function that is not there. onnx's checker reports initializers only, and refuses
    the model for them; onnxruntime 1.32 loads it.

    ## Fix safety

    Safe: a higher IR version allows more and changes the meaning of nothing that was allowed.

    ## References

    - [ONNX versioning](https://onnx.ai/onnx/repo-docs/Versioning.html): the changes of the IR.
    """

    code = "ON613"
    name = "ir-feature"
    severity = "warning"
    basis = "constant"
    fix = "safe"

    bad = """
        <ir_version: 7, opset_import: ["": 18, "local": 1]>
        main (float[2, 5] x) => (float[2, 5] y) {
            [act] y = local.twice (x)
        }
        <opset_import: ["": 18], domain: "local"> twice (a) => (b) {
            b = Add (a, a)
        }
    """
    good = """
        <ir_version: 8, opset_import: ["": 18, "local": 1]>
        main (float[2, 5] x) => (float[2, 5] y) {
            [act] y = local.twice (x)
        }
        <opset_import: ["": 18], domain: "local"> twice (a) => (b) {
            b = Add (a, a)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Compare each feature with the IR version."""
        import onnx_ir as ir

        from onnx_kvtool.core.location import Location
        from onnx_kvtool.core.walk import function_path
        from onnx_kvtool.ops.element_type import dtype_name
        from onnx_kvtool.ops.ir_versions import FIRST_IR, FUNCTIONS, OVERLOADS

        model, version = context.model, context.model.ir_version
        if version is None:
            return
        if version < 4:
            yield from self._initializers(context)
        for function in model.functions.values():
            path = function_path(function.domain, function.name, function.overload)
            for what, since in (("a function", FUNCTIONS), ("an overload", OVERLOADS)):
                if version < since and (since == FUNCTIONS or function.overload):
                    yield self._found(model, Location(path), f"is {what}, which", since)
                    break
        if version >= max(FIRST_IR.values()):
            return
        seen = {dtype for dtype in ir.DataType if FIRST_IR.get(dtype, version) <= version}
        for place, dtype in _first_places(context, seen):
            since = FIRST_IR[dtype]
            yield self._found(model, place, f"is of type {dtype_name(dtype)}, which", since)

    def _found(self, model: ir.Model, place: Location, what: str, since: int) -> Finding:
        name = f"`{place.value}` " if place.value else ""
        return self.found(
            place,
            f"{name}{what} came with IR version {since}; the model states IR version "
            f"{model.ir_version}",
            help=f"raise `ir_version` to {since}",
            fix=_raised(model, since),
        )

    def _initializers(self, context: Context) -> Iterator[Finding]:
        from onnx_kvtool.core.location import Location
        from onnx_kvtool.core.quantity import counted

        model = context.model
        for path, graph in context.graphs:
            others = [n for n, v in graph.initializers.items() if not v.is_graph_input()]
            if not others:
                continue
            more = f" and {counted(len(others) - 1, 'other')}" if len(others) > 1 else ""
            yield self.found(
                Location(path, value=others[0]),
                f"initializer `{others[0]}`{more} of the graph: no input, as IR version "
                f"{model.ir_version} demands",
                help="raise `ir_version` to 4, or declare initializers as inputs",
                fix=_raised(model, 4),
            )


def _raised(model: ir.Model, least: int) -> Fix:
    from onnx_kvtool.lint.finding import Fix

    def apply() -> None:
        model.ir_version = max(least, model.ir_version or 0)

    return Fix("safe", f"raise `ir_version` to {least}", apply)


def _first_places(
    context: Context, seen: set[ir.DataType]
) -> Iterator[tuple[Location, ir.DataType]]:
    """Yield each element type of inputs, constants and results that is not in `seen`, once.

    With the first place at which it is met, and in the order of these places.
    """
    from onnx_kvtool.core.location import Location

    for path, graph in context.graphs:
        for value in graph.inputs:
            if (dtype := value.dtype) is not None and dtype not in seen:
                seen.add(dtype)
                yield Location(path, value=value.name), dtype
    for place, tensor in context.tensors:
        if (dtype := tensor.dtype) not in seen:
            seen.add(dtype)
            yield place, dtype
    for site in context.sites:
        for value in site.node.outputs:
            if (dtype := value.dtype) is not None and dtype not in seen:
                seen.add(dtype)
                yield site.location(value), dtype
