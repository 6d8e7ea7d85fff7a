"""The guards of every rewrite: of a model, of a node, of a result."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import chain
from typing import Literal

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.walk import nodes, subgraphs
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.model_io.model import origin
from onnx_kvtool.ops.legality import Problem, examine
from onnx_kvtool.ops.schema import NEWEST, STRINGS, is_standard, op_facts, signature, unlisted
from onnx_kvtool.ops.view import MalformedNode, NodeView


def objections(
    model: ir.Model,
    verb: Literal["lower", "upgrade", "raise"],
    *,
    opset: int | None = None,
    whole: bool = True,
) -> list[Diagnostic]:
    """Return why a model cannot be rewritten for reasons other than its nodes; empty if it can.

    `whole`: everything is rewritten that has to be, not some operators only. Training graphs have
    to be. The domains of the model are normalised.
    """
    if "" not in model.opset_imports:
        return [objection("no-opset-import", "the model imports no version of the default domain")]
    defects = [defect for defect in origin(model).defects if defect.severity == "error"]
    if defects:
        return defects
    if origin(model).training and whole:
        text = f"the model has training information, whose graphs kvtool does not {verb}"
        return [objection("training-info", text, "export the model for inference")]
    if opset is not None and opset > NEWEST:
        text = f"opset {opset} is newer than the newest that the installed onnx knows, {NEWEST}"
        return [objection("unknown-opset", text, "install a newer onnx")]
    return []


def objection(code: str, text: str, help: str | None = None) -> Diagnostic:
    """Return an error of the whole model."""
    return Diagnostic(code, "error", Location(), text, help)


def require_meaning(node: ir.Node, opset: int) -> None:
    """Refuse a node that its own opset does not allow: no other form means what it means.

    Raises:
        MalformedNode: With the first thing that is not allowed; an operator that nobody knows, or
            that is deprecated at `opset`, is not judged.
    """
    facts = op_facts(node.op_type, opset)
    if facts is None or facts.deprecated:
        return
    NodeView(node, opset)
    problem = next(chain(examine(node, opset), _unlisted(node)), None)
    if problem is not None:
        raise malformed(problem.code, problem.text)


def malformed(code: str, text: str) -> MalformedNode:
    """Return the refusal of a node that means nothing."""
    help = "check the node in the exporter; `kvtool check` finds every one"
    return MalformedNode(code, f"the node is malformed: {text}", help=help)


def _unlisted(node: ir.Node) -> Iterator[Problem]:
    """Yield the strings of attributes that are legal at no opset; function bodies accept any."""
    for name, word in unlisted(node):
        expected = ", ".join(f"`{listed}`" for listed in sorted(STRINGS[node.op_type, name]))
        text = f"attribute `{name}` is `{word}`, expected one of {expected}"
        yield Problem("attribute-value", text, "attribute-value", name)


def illegal_in(em: Emitter) -> Problem | None:
    """Return why emitted nodes are not legal at the target.

    A rule need not ask of each operator that it emits whether it takes the element type.
    """
    waiting = list(em.nodes)
    for node in waiting:
        problem = next(examine(node, em.opset), None)
        if problem is not None:
            return problem
        for _, body in subgraphs(node):
            waiting.extend(body)
    return None


def judge(model: ir.Model, opset: int) -> list[Diagnostic]:
    """Return every node of the default domain that is not legal at `opset`.

    onnx's checker looks neither at attribute values nor at element types against the opset. Types
    that are unknown are not judged; nor are the bodies of functions, which have none.
    """
    local = {key[:2] for key in model.functions}
    legal: set[Hashable] = set()

    def problems(node: ir.Node) -> list[Problem]:
        """Examine a node, unless one was found legal before that differs in names only."""
        key = signature(node)
        found = [] if key in legal else list(examine(node, opset))
        if not found:
            legal.add(key)
        return found

    return [
        Diagnostic(problem.code, "error", Location.of(path, node, index), problem.text)
        for path, index, node in nodes(model)
        if is_standard(node) and ("", node.op_type) not in local
        for problem in problems(node)
    ]
