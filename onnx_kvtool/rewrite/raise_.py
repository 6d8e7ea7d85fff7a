"""Raising a whole model in memory: every step but reading, verifying and writing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.rewrite.engine.rule import constants_of, remove_unread_constants
from onnx_kvtool.rewrite.engine.stamp import normalise_domains
from onnx_kvtool.rewrite.raising.attention.stage import (
    keep_mask_shapes,
    raise_attention,
    raise_growing_attention,
)
from onnx_kvtool.rewrite.raising.contrib import raise_contrib
from onnx_kvtool.rewrite.raising.fixed import raise_fixed
from onnx_kvtool.rewrite.raising.growing.stage import raise_growing
from onnx_kvtool.rewrite.raising.stage import (
    RaiseOutcome,
    RaiseSettings,
    declared_shapes,
    fix_raised,
    head_sizes,
)
from onnx_kvtool.rewrite.upgrade import upgrade

Stage = Callable[[ir.Model, RaiseSettings, RaiseOutcome], bool]
"""Rewrites what it can prove, in place, and adds to the outcome what it did and what it left.

Returns whether it changed the model. A stage finds all nodes at one opset, whatever stages ran
before; a node that it adds has as its `version` that of the result, `max(opset, settings.opset)`.
Types and shapes that it infers it takes away again. With anything `blocked` the model is thrown
away."""

_STAGES: tuple[Stage, ...] = (
    raise_contrib,
    raise_growing_attention,
    raise_growing,
    raise_fixed,
    raise_attention,
)
"""In order: other domains -> growing caches, attention over them first -> fixed caches ->
attention. Sizes are fixed behind all of them, since proofs rest on names."""


def raise_model(model: ir.Model, settings: RaiseSettings) -> RaiseOutcome:
    """Bring a model to the native form as far as it is proven to be equal, in place.

    The model comes to the opset only if something was raised. What cannot be proven stays.

    If anything is `blocked`, the model may be half rewritten and must be thrown away.
    """
    normalise_domains(model)
    outcome = RaiseOutcome.of(model)
    if "" not in model.opset_imports:
        return outcome
    if settings.static and settings.attention == "auto" and settings.capacity is not None:
        settings = replace(settings, attention="full")  # the rows in use are no fixed size
    if settings.static:
        settings = replace(settings, dims={**head_sizes(model), **settings.dims})
    before = declared_shapes(model)
    outcome.places = {n: Location.of(path, n, index) for path, index, n in nodes(model)}
    for stage in _STAGES:
        constants = constants_of(model)
        is_changed = stage(model, settings, outcome)
        if is_changed and not outcome.blocked:
            _settle(model, settings.opset, constants, outcome)
        if outcome.blocked:
            break
    if outcome.attention and not outcome.blocked:
        keep_mask_shapes(model)
    if (settings.dims or settings.static) and not outcome.blocked:
        fix_raised(model, settings, outcome, before)
    raised = {done.location for done in outcome.raised}
    outcome.refused = [
        one
        for one in outcome.refused
        if one.code != "growing-cache"
        or one.location not in raised  # a fixed cache, as it turns out
    ]
    return outcome


def _settle(model: ir.Model, opset: int, constants: set[ir.Value], outcome: RaiseOutcome) -> None:
    """Bring everything to the opset of the result, after which all nodes are of it."""
    target = max(model.opset_imports[""], opset)
    upgraded = upgrade(model, target)
    remove_unread_constants(model, constants)
    outcome.notes += upgraded.notes
    outcome.blocked = upgraded.refused
    outcome.target_opset = target
    for _, _, node in nodes(model):
        node.version = None
