"""ON617: an attribute refers to a parameter that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["UnboundParameter"]


class UnboundParameter(ModelRule):
    """An attribute refers to a parameter outside of a function, or to one the function lacks.

    ## What it does

    Looks for attributes with `ref_attr_name` on nodes of the main graph and its bodies, and for
    those in a function that name no attribute of it.

    ## Why is this bad?

    A reference gets its value where the function is called. Outside of one there is no call:
    readers take the attribute for absent, for zero, or refuse the model.

    ## References

    - [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), `ref_attr_name`: "refers
      to the name of the attribute in the enclosing function [...] This should ONLY be used in
      function definitions, not main GraphProto."
    """

    code = "ON617"
    name = "unbound-parameter"
    severity = "error"
    basis = "constant"

    bad = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2, 3] x) => (float[2, 3] y) {
            [leaky] y = LeakyRelu <alpha: float = @slope> (x)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 18]>
        main (float[2, 3] x) => (float[2, 3] y) {
            [leaky] y = LeakyRelu <alpha: float = 0.1> (x)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Look at the attributes of each node."""
        parameters = {id(f.graph): set(f.attributes) for f in context.model.functions.values()}
        for site in context.sites:
            for name, attribute in site.node.attributes.data.items():
                if not attribute.is_ref():
                    continue
                known = parameters.get(id(site.root))
                referred = attribute.ref_attr_name
                if known is None:
                    text = "and stands in no function"
                elif referred not in known:
                    text = "which the function does not have"
                else:
                    continue
                yield self.found(
                    site.location(),
                    f"attribute `{name}` refers to the parameter `{referred}`, {text}",
                    help="write the value"
                    if known is None
                    else "declare the parameter, or write the value",
                )
