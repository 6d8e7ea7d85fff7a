"""The guards that hold for every rewrite: of a model, of a node, of a result."""

from __future__ import annotations

from collections.abc import Hashable

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.model import origin
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.ops.legality import Problem, examine
from onnx_kvtool.ops.schema import NEWEST, is_standard
from onnx_kvtool.ops.signature import signature
from onnx_kvtool.targets.target import Release

__all__ = [
    "judge",
    "objections",
]


def objections(model: ir.Model, release: Release | None, *, whole: bool) -> list[Diagnostic]:
    """Return why a model cannot be lowered, whatever its nodes are; empty where it may be tried.

    Args:
        model: The model, its domains normalised.
        release: The release that must load the result; None when there is none.
        whole: Whether everything that the target needs is rewritten, not some operators only.
    """
    source = model.opset_imports.get("")
    if source is None:
        return [_objection("no-opset-import", "the model imports no version of the default domain")]
    defects = [defect for defect in origin(model).defects if defect.severity == "error"]
    if defects:
        return defects
    if origin(model).training and whole:
        text = "the model has training information, whose graphs kvtool does not lower"
        return [_objection("training-info", text, "export the model for inference")]
    if source > NEWEST:
        text = f"opset {source} is newer than the newest that the installed onnx knows, {NEWEST}"
        return [_objection("unknown-opset", text, "install a newer onnx")]
    if source < 1:
        text = f"the model imports version {source} of the default domain, and the first is 1"
        return [_objection("unknown-opset", text, "export the model again")]
    if release is not None and release.min_opset is not None and source < release.min_opset:
        text = f"{release} loads opset {release.min_opset} and later, the model is at {source}"
        return [_objection("old-opset", text, "export the model at a newer opset")]
    return []


def _objection(code: str, text: str, help: str | None = None) -> Diagnostic:
    return Diagnostic(code, "error", Location(), text, help)


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
