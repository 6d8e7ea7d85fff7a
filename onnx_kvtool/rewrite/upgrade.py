"""Bringing a whole model to a later opset in memory; nothing but its operators changes."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.walk import function_path, graph_path, nodes
from onnx_kvtool.core.words import counted
from onnx_kvtool.emit.emitter import Names, Refusal
from onnx_kvtool.ops.schema import is_standard, op_facts, same_version
from onnx_kvtool.rewrite.engine.engine import Engine
from onnx_kvtool.rewrite.engine.guards import judge, objection, objections
from onnx_kvtool.rewrite.engine.inline import inline_functions, without_initializers
from onnx_kvtool.rewrite.engine.rule import LoweringContext, Options
from onnx_kvtool.rewrite.engine.stamp import ir_version_of, normalise_domains, set_versions
from onnx_kvtool.rewrite.report import Lowered, Outcome
from onnx_kvtool.rewrite.upgrading.upgrades import UPGRADES, tag_early
from onnx_kvtool.shapes.annotations import annotate

OLDEST = 7
"""The oldest opset whose operators are read: the first with today's broadcasting, and the first
that onnxruntime supports. An older model will do whose operators did not change until then."""


def upgrade(model: ir.Model, target: int) -> Outcome:
    """Bring a model to a later opset, in place.

    Every node of the default domain, in the main graph, in sub-graphs and in functions, comes to
    mean at the target what it meant before: as it is where the later version takes it so, else by
    a rule of `upgrading/`. Nodes of other domains, and of operators that ONNX does not define, stay
    as they are, and so does everything else: names, metadata, documentation, functions, sparse
    initializers, and initializers that the caller may override. The IR version rises to the one
    that was released with the opset, and never falls.

    A function stays a function, unless one of its operators needs to know types that are known at
    calls only; it is then inlined.

    Args:
        model: The model. After a refusal it may be half rewritten and must be thrown away: give a
            clone to keep it.
        target: Version of the default domain. A model that is at a later one stays as it is.

    Returns:
        What was done (`lowered`: the nodes that a rule rewrote, not those that were only
        relabelled; and each call that was inlined), and every refusal.
    """
    normalise_domains(model)
    source = model.opset_imports.get("")
    if source is None:
        return Outcome(0, 0, refused=objections(model, "upgrade"))
    outcome = Outcome(source, max(source, target))
    if outcome.target_opset == source:
        return outcome
    outcome.refused = objections(model, "upgrade", opset=target) or list(_too_old(model, source))
    if outcome.refused:
        return outcome
    names = Names(model)
    try:
        _functions(model, target, names, outcome)
    except Refusal as refusal:
        outcome.refused = [objection(refusal.code, refusal.message, refusal.help)]
        return outcome
    annotations = annotate(model, lambda n: _needs_types(n, source, target), fully=True)
    if annotations.failure:
        outcome.notes.append(annotations.failure)
    _run(model.graph, graph_path(model.graph.name), names, source, outcome)
    if not outcome.refused:
        outcome.notes += _overridable(model)
        set_versions(model, target, max(model.ir_version or 0, ir_version_of(target)))
        outcome.refused += judge(model, target)
    annotations.remove()
    return outcome


def _too_old(model: ir.Model, source: int) -> Iterator[Diagnostic]:
    """Yield every node of a version that was replaced before `OLDEST`."""
    functions = [(f, f.opset_imports.get("", source)) for f in model.functions.values()]
    if min((source, *(opset for _, opset in functions))) >= OLDEST:
        return
    opsets = {node: opset for f, opset in functions for node in f.all_nodes()}
    for path, index, node in nodes(model):
        opset = opsets.get(node, source)
        if opset < OLDEST and is_standard(node) and not same_version(node.op_type, opset, OLDEST):
            text = f"`{node.op_type}` is of opset {opset}, older than {OLDEST}"
            help = "bring the model to opset 7 with `onnx.version_converter`, or export it again"
            yield Diagnostic("old-opset", "error", Location.of(path, node, index), text, help)


def _overridable(model: ir.Model) -> list[str]:
    """Say that weights which an old IR version lists as inputs, as it must, can be overridden."""
    if model.ir_version >= 4:
        return []
    number = sum(value.is_graph_input() for value in model.graph.initializers.values())
    if not number:
        return []
    text = (
        f"{counted(number, 'initializer')} listed as input too, as IR version {model.ir_version} "
        "wants it: from IR version 4 on the caller may override such a value, and onnxruntime "
        "takes none for a constant"
    )
    return [text]


def _functions(model: ir.Model, target: int, names: Names, outcome: Outcome) -> None:
    """Upgrade the functions, and inline those that cannot be without types."""
    places, uncalled = inline_functions(model, lambda f: not _can_stay(f, target), names)
    outcome.lowered += [Lowered(place, "inline") for place in places]
    outcome.notes += [
        f"function `{function_path(*key)}`, which nothing calls, is removed: without a call its "
        f"types are unknown, and it cannot be brought to opset {target}"
        for key in uncalled
    ]
    for function in model.functions.values():
        opset = function.opset_imports.get("")
        if opset is None:
            continue
        path = function_path(*function.identifier())
        _run(function.graph, path, names, opset, outcome)
        without_initializers(function.graph, outcome.target_opset)


def _can_stay(function: ir.Function, target: int) -> bool:
    """Return whether a copy of a function can be upgraded without types."""
    opset = function.opset_imports.get("")
    if opset is None:
        return True
    trial = Outcome(opset, target)
    _run(function.clone().graph, "", Names(), opset, trial)
    return not trial.refused


def _run(graph: ir.Graph, path: str, names: Names, opset: int, outcome: Outcome) -> None:
    """Make a graph that is written for an opset legal at the target, in place."""
    tag_early(graph.all_nodes(), opset)
    context = LoweringContext(opset, outcome.target_opset, Options(), ConstantFolder())
    engine = Engine(context, UPGRADES, faithful=True)
    engine.run(graph, path, names)
    outcome.lowered += engine.lowered
    outcome.refused += engine.refused


def _needs_types(node: ir.Node, source: int, target: int) -> bool:
    """Return whether a rule reads a node with its types, or the target takes fewer types."""
    if not is_standard(node):
        return False
    opset = node.version or source
    rule = UPGRADES.get(node.op_type)
    if rule is not None and rule.applies(opset, target):
        return rule.typed
    old, new = op_facts(node.op_type, opset), op_facts(node.op_type, target)
    if old is None or new is None or old.since_version == new.since_version:
        return False
    pairs = (
        *zip(old.inputs, new.inputs, strict=False),
        *zip(old.outputs, new.outputs, strict=False),
    )
    return node.op_type in _BY_SHAPE or any(not a.types <= b.types for a, b in pairs)


_BY_SHAPE = frozenset({"AveragePool", "CastLike", "MaxPool"})
"""Operators without a rule whose change does not matter to values of certain types or shapes."""
