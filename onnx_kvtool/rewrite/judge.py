"""kvtool's own judgement of a result: is every node legal at the opset that the model claims?"""

from __future__ import annotations

from collections.abc import Hashable

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.ops.legality import Problem, examine
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.ops.signature import signature

__all__ = ["judge"]


def judge(model: ir.Model, opset: int) -> list[Diagnostic]:
    """Return every node of the default domain that is not legal at `opset`.

    onnx's checker looks neither at attribute values nor at element types against the opset. Types
    that are unknown are not judged; nor are the bodies of functions, which have none.
    """
    local = {key[:2] for key in model.functions}
    legal: set[Hashable] = set()
    return [
        Diagnostic(problem.code, "error", Location.of(path, node, index), problem.text)
        for path, index, node in nodes(model)
        if is_standard(node) and ("", node.op_type) not in local
        for problem in _problems(node, opset, legal)
    ]


def _problems(node: ir.Node, opset: int, legal: set[Hashable]) -> list[Problem]:
    """Examine a node, unless one was found legal before that differs in names only."""
    key = signature(node)
    if key in legal:
        return []
    problems = list(examine(node, opset))
    if not problems:
        legal.add(key)
    return problems
