"""Operators of onnxruntime in a model that a release has to load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from onnx_kvtool.core.choices import ContribChoice
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.emit.emitter import Names
from onnx_kvtool.ops.contrib import DOMAIN
from onnx_kvtool.rewrite.contrib.standardise import standardise
from onnx_kvtool.rewrite.report import Lowered, Outcome
from onnx_kvtool.targets.conditions.operators import unknown_operator
from onnx_kvtool.targets.release import Release


def standardise_for(
    model: ir.Model,
    contrib: ContribChoice | None,
    release: Release | None,
    names: Names,
    outcome: Outcome,
) -> Mapping[str, Location]:
    """Write the operators of onnxruntime that must not stay with operators of ONNX.

    Args:
        model: The model, which is changed in place.
        contrib: `standard` for all of them, `keep` for none, None for those that `release` lacks.
        release: The release that has to load the model; None for no certain one.
        names: Fresh names of the model.
        outcome: Told of what was done and refused.

    Returns:
        By the name of each new node, where the node stood that it comes from.
    """
    source, reasons = model.opset_imports.get("", 0), dict[str, str]()

    def is_lacking(node: ir.Node) -> bool:
        why = (
            None if release is None else unknown_operator(node, node.version or source, release, ())
        )
        if why is not None:
            reasons[node.name or node.op_type] = why
        return why is not None

    if release is not None:
        _forget_absent_inputs(model)
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


def _forget_absent_inputs(model: ir.Model) -> None:
    """Drop absent inputs at the end of onnxruntime's nodes, which older releases count."""
    for _, _, node in nodes(model):
        if node.domain == DOMAIN and node.inputs and node.inputs[-1] is None:
            given = (i for i, value in enumerate(node.inputs, start=1) if value is not None)
            node.resize_inputs(max(given, default=0))


def _imported_by_none(
    release: Release | None, refused: Diagnostic, reasons: Mapping[str, str]
) -> Diagnostic:
    """Return why a release cannot be given an operator of onnxruntime that has no standard form."""
    place = refused.location
    why = reasons.get(place.node or "", f"imports no `{place.op}`")
    text = f"{release} {why}, and {refused.message}"
    return replace(refused, code="target-limit", message=text)
