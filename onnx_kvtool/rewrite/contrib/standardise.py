"""Writing a model's operators of onnxruntime with operators of ONNX, by the table of rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.core.choices import NATIVE_OPSET, ContribChoice
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.domains import is_onnxruntimes, operator_label
from onnx_kvtool.core.walk import graph_path, nodes, read_values, step_path, subgraphs
from onnx_kvtool.emit.emitter import Emitter, Names, Refusal, Replacement, ScopedValues
from onnx_kvtool.ops.contrib import DOMAIN, contrib_facts, is_contrib, kept_window
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.rewrite.engine.guards import illegal_in
from onnx_kvtool.rewrite.engine.inline import inline_functions, remove_unused, replace_node
from onnx_kvtool.rewrite.engine.stamp import forget_unused
from onnx_kvtool.rewrite.report import Lowered, Outcome
from onnx_kvtool.shapes.annotations import annotate
from onnx_kvtool.targets.conditions.unsupported import unknown_operator
from onnx_kvtool.targets.release import Release


@dataclass(slots=True)
class Standardised:
    """What became of the operators of onnxruntime in a model.

    Attributes:
        done: Every node that was rewritten, in order.
        refused: Every node that was not, and why; they stay as they were.
        origins: By the name of a new node, the place of the node that it comes from.
    """

    done: list[Lowered] = field(default_factory=list)
    refused: list[Diagnostic] = field(default_factory=list)
    inlined: list[Location] = field(default_factory=list)
    origins: dict[str, Location] = field(default_factory=dict)


def standardise(
    model: ir.Model,
    names: Names,
    wanted: Callable[[ir.Node], bool] | None = None,
    *,
    opset: int = NATIVE_OPSET,
) -> Standardised:
    """Write operators of onnxruntime with operators of ONNX, in place.

    The new nodes are of `opset`, or of that of the model if it is later, and say so by their tag;
    lowering or upgrading brings them to another one. Functions that hold such operators are
    inlined, as types are known at calls only. Raise Refusal if one cannot be inlined.

    `wanted` says which operators to write so; None for all. `opset` is at least 24. The domains of
    the model are normalised.
    """
    found = Standardised()
    source = model.opset_imports.get("", 0)
    local = {key[:2] for key in model.functions}

    def meant(node: ir.Node) -> bool:
        return (
            (node.domain, node.op_type) not in local
            and is_contrib(node, source)
            and (wanted is None or wanted(node))
        )

    if not any(meant(node) for _, _, node in nodes(model)):
        forget_unused(model, is_onnxruntimes)
        return found
    found.inlined, _ = inline_functions(
        model, lambda function: any(map(meant, function.all_nodes())), names
    )
    annotations = annotate(model, meant, fully=True)
    run = _Run(meant, max(opset, source), found)
    run.graph(model.graph, graph_path(model.graph.name), ScopedValues(model.graph, None, names))
    annotations.remove()
    for value in run.freed:
        remove_unused(value)
    forget_unused(model, is_onnxruntimes)
    return found


@dataclass(slots=True)
class _Run:
    """One run over a model."""

    meant: Callable[[ir.Node], bool]
    opset: int
    found: Standardised
    freed: list[ir.Value] = field(default_factory=list)
    folder: ConstantFolder = field(default_factory=ConstantFolder)

    def graph(self, graph: ir.Graph, path: str, scope: ScopedValues) -> None:
        for index, node in enumerate(tuple(graph)):
            if node.attributes.data:
                for name, inner in subgraphs(node):
                    inner_path = step_path(path, node.name, index, name)
                    self.graph(inner, inner_path, ScopedValues(inner, scope, scope.names))
            if self.meant(node):
                self._node(node, Location.of(path, node, index), scope)

    def _node(self, node: ir.Node, place: Location, scope: ScopedValues) -> None:
        try:
            rule, em, replacement = self._replacement(node, scope)
        except (Refusal, MalformedNode) as error:
            self.found.refused.append(
                Diagnostic(error.code, "error", place, error.message, error.help)
            )
            return
        read = read_values(node)
        em.fold(self.folder.integers, replacement.outputs)
        if kept_window(node) is not None:  # which keeps its rows, by whatever name they come out
            for past, present in zip(node.inputs[3:5], node.outputs[1:3], strict=False):
                present.shape = None if past is None else past.shape
        emitted = replace_node(node, em, replacement)
        self.found.origins.update({new.name: place for new in emitted if new.name})
        self.freed += read
        self.found.done.append(Lowered(place, rule))

    def _replacement(self, node: ir.Node, scope: ScopedValues) -> tuple[str, Emitter, Replacement]:
        # Most models have none of these operators, and their forms take long to load.
        from onnx_kvtool.contrib.table import CONTRIB_RULES

        key = (node.domain, node.op_type)
        rule, facts = CONTRIB_RULES.get(key), contrib_facts(*key)
        if rule is None or facts is None:
            from onnx_kvtool.contrib.without import WITHOUT_A_RULE

            why = WITHOUT_A_RULE.get(key)
            raise Refusal(
                "no-standard-form",
                f"kvtool cannot write `{operator_label(node)}` with operators of ONNX"
                + (f": it {why}" if why else ""),
                help="export the model without it",
            )
        if len(node.inputs) > facts.max_inputs and any(node.inputs[facts.max_inputs :]):
            raise Refusal(
                "contrib-form",
                f"`{node.op_type}` has {len(node.inputs)} inputs, and kvtool knows only "
                f"{facts.max_inputs}",
            )
        prefix = node.name or node.op_type
        em, replacement = rule.written(node, facts, scope, self.opset, prefix)
        illegal = illegal_in(em)
        if illegal is not None:
            em.discard()
            raise Refusal(
                illegal.code, f"`{operator_label(node)}` has no standard form: {illegal.text}"
            )
        return rule.name, em, replacement


# Operators of onnxruntime in a model that a release has to load.


def standardise_for(
    model: ir.Model,
    contrib: ContribChoice | None,
    release: Release | None,
    names: Names,
    outcome: Outcome,
) -> Mapping[str, Location]:
    """Write the operators of onnxruntime that must not stay with operators of ONNX.

    `contrib` is `standard` for all of them, `keep` for none, None for those that `release` lacks.
    Return the place of the source node by the name of each new node.
    """
    source, reasons = model.opset_imports.get("", 0), dict[str, str]()

    def is_lacking(node: ir.Node) -> bool:
        why = (
            None if release is None else unknown_operator(node, node.version or source, release, ())
        )
        if why is not None:
            reasons[node.name or node.op_type] = why
        return why is not None

    # Absent inputs at the end, which older releases count.
    for _, _, node in nodes(model) if release is not None else ():
        if node.domain == DOMAIN and node.inputs and node.inputs[-1] is None:
            given = (i for i, value in enumerate(node.inputs, start=1) if value is not None)
            node.resize_inputs(max(given, default=0))
    if contrib == "keep" or (contrib is None and release is None):
        return {}
    found = standardise(model, names, None if contrib == "standard" else is_lacking)
    outcome.lowered += [Lowered(place, "inline") for place in found.inlined]
    outcome.lowered += found.done
    outcome.refused += [
        refused if contrib == "standard" else _imported_by_none(release, refused, reasons)
        for refused in found.refused
    ]
    return found.origins


def _imported_by_none(
    release: Release | None, refused: Diagnostic, reasons: Mapping[str, str]
) -> Diagnostic:
    """Return why a release cannot be given an operator of onnxruntime that has no standard form."""
    place = refused.location
    why = reasons.get(place.node or "", f"imports no `{place.op}`")
    text = f"{release} {why}, and {refused.message}"
    return replace(refused, code="target-limit", message=text)
