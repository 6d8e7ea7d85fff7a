"""kvtool's own judgement of a result: is every node legal at the opset that the model claims?"""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.walk import graphs
from onnx_kvtool.ops.legality import examine

__all__ = ["judge"]


def judge(model: ir.Model, opset: int) -> list[Diagnostic]:
    """Return every node of the default domain that is not legal at `opset`.

    onnx's checker looks neither at attribute values nor at element types against the opset. Types
    that are unknown are not judged; nor are the bodies of functions, which have none.
    """
    local = {key[:2] for key in model.functions}
    return [
        Diagnostic(problem.code, "error", Location.of(path, node, index), problem.text)
        for path, graph in graphs(model)
        for index, node in enumerate(graph)
        if node.domain == "" and ("", node.op_type) not in local
        for problem in examine(node, opset)
    ]
