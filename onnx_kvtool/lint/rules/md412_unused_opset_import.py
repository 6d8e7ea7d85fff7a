"""MD412: a domain is imported of which nothing is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["UnusedOpsetImport"]


class UnusedOpsetImport(ModelRule):
    """A model or function imports a domain of which no node is.

    ## What it does

    Looks for opset imports of domains that no node has: of the model none outside of functions, of
    a function none inside of it. The default domain is imported by every model, and does not count.

    ## Why is this bad?

    A runtime that does not know the domain may refuse the model, or ask for a library that it does
    not need. Most such imports are what an optimiser left behind: onnxruntime imports all its own
    domains into what it writes, and removes none of those of nodes that it has replaced.

    ## Fix safety

    The fix is safe: it removes the import, which no node refers to.

    ## References

    - [IR of ONNX](https://github.com/onnx/onnx/blob/main/docs/IR.md): each operator set that a
      model relies on is imported.
    """

    code = "MD412"
    name = "unused-opset-import"
    severity = "info"
    basis = "constant"
    fix = "safe"

    bad = """
        <ir_version: 10, opset_import: ["": 18, "ai.onnx.ml": 3]>
        main (float[2, 3] x) => (float[2, 3] y) {
            y = Neg (x)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2, 3] x) => (float[2, 3] y) {
            y = Neg (x)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Compare the imports of the model and of each function with the domains of the nodes."""
        from onnx_kvtool.core.location import Location
        from onnx_kvtool.core.quantity import enumerated
        from onnx_kvtool.core.walk import function_path
        from onnx_kvtool.lint.finding import Fix

        model = context.model
        used: dict[int, set[str]] = {}
        for site in context.sites:
            used.setdefault(id(site.root), {""}).add(site.node.domain)
        holders = [(Location(), model.graph, model.opset_imports)]
        for function in model.functions.values():
            path = function_path(function.domain, function.name, function.overload)
            holders.append((Location(path), function.graph, function.opset_imports))
        # A domain of functions of the model is one that its author writes for.
        own = {function.domain for function in model.functions.values()}
        for place, graph, imports in holders:
            spare = sorted(set(imports) - used.get(id(graph), {""}) - own)
            if spare:
                owner = "model" if graph is model.graph else "function"
                title = f"remove the import of {enumerated(spare)}"
                yield self.found(
                    place,
                    f"the {owner} imports {enumerated(spare)}, and no node of it is of that domain",
                    help="remove the import",
                    fix=Fix("safe", title, _removing(imports, spare)),
                )


def _removing(imports: dict[str, int], domains: list[str]) -> Callable[[], None]:
    def apply() -> None:
        for domain in domains:
            imports.pop(domain, None)

    return apply
