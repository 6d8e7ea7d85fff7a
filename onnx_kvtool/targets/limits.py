"""The nodes that a release of a runtime does not support, although its opset allows them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Literal

import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.core.walk import graph_path, nodes
from onnx_kvtool.core.words import counted
from onnx_kvtool.ops.contrib import BLOCKED
from onnx_kvtool.ops.legality import Problem
from onnx_kvtool.ops.schema import has_body, op_facts
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import dims_of
from onnx_kvtool.targets.conditions.by_name import (
    CONDITIONS,
    OF_CONSTANTS,
    OF_SHAPES,
    OF_SOURCE,
    OF_TYPES,
)
from onnx_kvtool.targets.conditions.sizes import Asked
from onnx_kvtool.targets.conditions.unsupported import foreign_types, unknown_operator
from onnx_kvtool.targets.release import Limit, Release
from onnx_kvtool.targets.remedies import REMEDIES

Stage = Literal["source", "emitted", "finished"]


def highest_opset(model: ir.Model, release: Release, opset: int) -> tuple[int, list[str]]:
    """Return the highest opset where a release has kernels for the operators of a model.

    Only limits with `lower_opset` count: the new version of their operator has no kernel.

    Args:
        model: The model.
        release: The release.
        opset: The highest opset that it loads, or the requested one.

    Returns:
        The opset, and the reasons if it is lower than `opset`.
    """
    present = {node.op_type for _, _, node in nodes(model) if node.domain in DEFAULT_DOMAINS}
    if any((node.domain, node.op_type) in BLOCKED for _, _, node in nodes(model)):
        present.add("DequantizeLinear")
    lacking = [limit for limit in release.limits if limit.lower_opset and limit.operator in present]
    lowest = min((limit.since - 1 for limit in lacking), default=opset)
    source = min(opset, model.opset_imports.get("", opset))
    reasons = [
        f"opset {lowest}: {release} {limit.reason}"
        for limit in lacking
        if limit.since == lowest + 1 and lowest < source
    ]
    return min(opset, lowest), reasons


class ReleaseLimits:
    """The limits of a release for models of one opset.

    Args:
        release: The release.
        opset: Version of the default domain.

    Attributes:
        operators: Operators that a limit may apply to.
        asks_for_shapes: Whether `judge` needs inferred shapes.
    """

    def __init__(self, release: Release, opset: int) -> None:
        self.release = release
        self._by_operator: dict[str, list[Limit]] = {}
        for limit in release.limits:
            if limit.concerns(opset):
                self._by_operator.setdefault(limit.operator, []).append(limit)
        self.operators = frozenset(self._by_operator)
        self.asks_for_shapes = any(limit.when in OF_SHAPES for limit in release.limits)

    def problem(
        self, node: ir.Node, opset: int, folder: ConstantFolder, stage: Stage = "source"
    ) -> Problem | None:
        """Return why the release does not support a node of the default domain; None if it does.

        Args:
            node: The node. Unknown types and shapes count against it.
            opset: The opset that it was written for.
            folder: Knows the values of small integer constants.
            stage: Whether it is a node of the source, an emitted node, whose shapes are not known
                yet, or a node of the finished model.

        Raises:
            MalformedNode: If the schema does not allow the node.
        """
        limit = self.applicable(node, opset, folder, stage)
        if limit is None:
            return None
        return Problem("target-limit", f"{self.release} {limit.reason}", help=limit.help)

    def applicable(
        self, node: ir.Node, opset: int, folder: ConstantFolder, stage: Stage = "source"
    ) -> Limit | None:
        """Return the limit that applies to a node; arguments as for `problem`."""
        for limit in self._by_operator.get(node.op_type, ()):
            if limit.when in OF_SOURCE and stage != "source":
                continue
            if limit.when in OF_SHAPES and stage != "finished":
                continue
            if CONDITIONS[limit.when](Asked(NodeView(node, opset), limit, folder)):
                return limit
        return None

    def concerns(self, node: ir.Node, opset: int) -> bool:
        """Return whether a limit may apply to a node of a function, whose types are unknown."""
        return any(
            limit.when not in OF_CONSTANTS
            or CONDITIONS[limit.when](Asked(NodeView(node, opset), limit, ConstantFolder()))
            for limit in self._by_operator.get(node.op_type, ())
        )

    def leave_out_defaults(self, model: ir.Model, opset: int) -> list[str]:
        """Remove attributes that the release refuses even at their default, in place.

        Args:
            model: The model.
            opset: Version of the default domain for nodes without their own version.

        Returns:
            Notes.
        """
        removed: Counter[str] = Counter()
        for _, _, node in nodes(model):
            if node.domain != "":
                continue
            for name in tuple(node.attributes):
                if (node.op_type, name) not in self.release.explicit:
                    continue
                facts = op_facts(node.op_type, node.version or opset)
                declared = facts.attributes.get(name) if facts else None
                given = node.attributes[name]
                if declared and not given.is_ref() and given.value == declared.default:
                    del node.attributes[name]
                    removed[f"`{name}` of `{node.op_type}`"] += 1
        return [
            f"{what}, at its default, removed from {counted(number, 'node')}: "
            f"{self.release} refuses it"
            for what, number in removed.items()
        ]

    def name_dimensions(self, model: ir.Model) -> list[str]:
        """Name the unnamed dimensions of inputs, in place, if the release needs names.

        Returns:
            Notes.
        """
        if not self.release.named:
            return []
        taken = {dim for value in model.graph.inputs for dim in dims_of(value) or ()}
        names = (name for n in itertools.count() if (name := f"dim_{n}") not in taken)
        named = 0
        for value in model.graph.inputs:
            dims = dims_of(value)
            if dims is not None and None in dims:
                value.shape = ir.Shape([next(names) if dim is None else dim for dim in dims])
                named += dims.count(None)
        text = f"{counted(named, 'dimension')} of inputs named: {self.release} refuses one without"
        return [text] if named else []

    def judge(self, model: ir.Model, opset: int) -> list[Diagnostic]:
        """Return an error for each part of a finished model that the release does not support."""
        foreign = (
            Diagnostic("target-limit", "error", place, f"{self.release} {why}")
            for place, why in foreign_types(model, self.release)
        )
        return [*self._unranked(model), *self._limited_nodes(model, opset), *foreign]

    def _unranked(self, model: ir.Model) -> Iterator[Diagnostic]:
        """Yield an error for each input of unknown rank, if the release needs names."""
        for value in model.graph.inputs if self.release.named else ():
            if isinstance(value.type, ir.TensorType) and value.shape is None:
                text = f"{self.release} takes no input of unknown rank"
                place = Location(graph_path(model.graph.name), value=value.name)
                yield Diagnostic("target-limit", "error", place, text)

    def _limited_nodes(self, model: ir.Model, opset: int) -> Iterator[Diagnostic]:
        """Yield an error for each node under a limit."""
        folder = ConstantFolder()
        for path, index, node in nodes(model):
            if node.domain == "" and node.op_type in self.operators:
                problem = self.problem(node, opset, folder, "finished")
                if problem is not None:
                    place = Location.of(path, node, index)
                    yield Diagnostic(problem.code, "error", place, problem.text, problem.help)

    def unknown_operators(self, model: ir.Model) -> Iterator[Diagnostic]:
        """Yield an error for each node that `unknown_operator` names."""
        local = {key[:2] for key in model.functions}
        source = model.opset_imports.get("", 0)
        help = "leave `--contrib keep` out, or export the model without it"
        for path, index, node in nodes(model):
            why = unknown_operator(node, node.version or source, self.release, local)
            if why is not None:
                place, text = Location.of(path, node, index), f"{self.release} {why}"
                yield Diagnostic("target-limit", "error", place, text, help)


REPLACED = frozenset(
    {
        *("Attention", "Col2Im", "DeformConv", "GridSample", "LayerNormalization"),
        *("MelWeightMatrix", "QuantizeLinear", "RMSNormalization", "ReduceMax", "ReduceMin"),
        *("RotaryEmbedding", "STFT", "Size", "Split", "TensorScatter"),
    }
)
"""Operators that a rule replaces by others, also if the opset has them."""

_ALWAYS_REFUSED = ("not-constant", "shape-of-values")


def has_other_form(limit: Limit) -> bool:
    """Return whether kvtool usually rewrites nodes under this limit, instead of refusing them."""
    if limit.when in OF_SHAPES or limit.when in _ALWAYS_REFUSED:
        return False
    if limit.when in REMEDIES or limit.when in OF_TYPES or limit.lower_opset:
        return True
    return limit.operator in REPLACED or has_body(limit.operator)
