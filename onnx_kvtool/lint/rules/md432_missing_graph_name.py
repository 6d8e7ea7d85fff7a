"""MD432: a graph has no name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["MissingGraphName"]


class MissingGraphName(ModelRule):
    """A graph has no name.

    ## What it does

    Looks for main graphs, and bodies of If, Loop, Scan and the like, without a name.

    ## Why is this bad?

    onnx's checker refuses the model, and stops there. Runtimes load it.

    ## Fix safety

    The fix is safe: nothing refers to a graph by its name.

    ## References

    - onnx.checker 1.23.2: "Field 'name' of 'graph' is required to be non-empty."
    """

    code = "MD432"
    name = "missing-graph-name"
    severity = "error"
    basis = "constant"
    fix = "safe"

    bad = """
        ir_version: 12
        opset_import { version: 24 }
        graph {
          node { name: "negate" op_type: "Neg" input: "x" output: "y" }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
    """
    good = """
        ir_version: 12
        opset_import { version: 24 }
        graph {
          name: "decoder"
          node { name: "negate" op_type: "Neg" input: "x" output: "y" }
          input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
          output { name: "y" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } } } } }
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Look at the name of the main graph and of each body."""
        from onnx_kvtool.core.location import Location
        from onnx_kvtool.lint.finding import Fix

        functions = {id(function.graph) for function in context.model.functions.values()}
        for path, graph in context.graphs:
            if graph.name or id(graph) in functions:
                continue
            name = "main_graph" if graph is context.model.graph else "body"
            fix = Fix("safe", f"call the graph `{name}`", _naming(graph, name))
            yield self.found(Location(path), "the graph has no name", help="name it", fix=fix)


def _naming(graph: ir.Graph, name: str) -> Callable[[], None]:
    def apply() -> None:
        graph.name = graph.name or name

    return apply
