"""What the data on a release of a runtime says of a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.core.table import Table

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.core.diagnostic import Location
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.targets.release import Limit
    from onnx_kvtool.targets.target import Target

__all__ = [
    "IN_DEFAULT_DOMAIN",
    "dtype_word",
    "has_operator",
    "limited",
    "limits_named",
    "lowering_command",
    "runtime_words",
    "unknown_operators",
]

_FUSED = "onnxruntime's optimiser and model builder put it there, and onnxruntime alone runs it"
_RETIRED = "it was an experiment of early releases, and onnxruntime alone still runs it"

IN_DEFAULT_DOMAIN: Mapping[str, str] = Table(
    "operator that onnxruntime has in the default domain",
    [
        # Opset 17 made this one of ONNX; below, it is one of onnxruntime's.
        ("LayerNormalization", _FUSED),
        ("SimplifiedLayerNormalization", _FUSED),
        ("Affine", _RETIRED),
        ("Crop", _RETIRED),
        ("DynamicSlice", _RETIRED),
        ("GRUUnit", _RETIRED),
        ("GivenTensorFill", _RETIRED),
        ("ImageScaler", _RETIRED),
        ("ParametricSoftplus", _RETIRED),
        ("Scale", _RETIRED),
        ("ScaledTanh", _RETIRED),
    ],
)
"""What is known of each, a clause."""


def runtime_words(target: Target) -> str:
    """Return what messages call a target, with the release whose limits hold if it is another."""
    if target.is_known:
        return target.asked
    return f"{target.asked} (as known of {target.release.version})"


def lowering_command(target: Target) -> str:
    """Return the command that rewrites all that a release does not take, the same for all rules."""
    return f"`kvtool lower MODEL --target {target.release.runtime}@{target.release.version}`"


def has_operator(target: Target, name: str) -> bool:
    """Return whether the release has a newer operator, as `TensorScatter-24`."""
    return name in target.release.native


def limits_named(target: Target, *names: str) -> list[Limit]:
    """Return the limits of a release with these names, in the order of the data file."""
    return [limit for limit in target.release.limits if limit.name in names]


def limited(context: Context, target: Target) -> Iterator[tuple[Site, Limit]]:
    """Yield each node that a limit of the release applies to, with the limit.

    A limit applies if a fact is unknown. Other rules report nodes that their schemas do not allow.
    """
    from onnx_kvtool.analysis.conditions.table import CONDITIONS
    from onnx_kvtool.ops.view import MalformedNode

    by_operator: dict[str, list[Limit]] = {}
    for limit in target.release.limits:
        by_operator.setdefault(limit.operator, []).append(limit)
    for site in context.sites_of(*by_operator):
        if site.node.domain not in DEFAULT_DOMAINS or site.opset is None:
            continue
        for limit in by_operator[site.node.op_type]:
            if not limit.concerns(site.opset):
                continue
            try:
                applies = CONDITIONS[limit.when](site.node, site.opset, limit, context.folder)
            except MalformedNode:
                continue
            if applies:
                yield site, limit


def unknown_operators(context: Context, target: Target) -> Iterator[tuple[Location, str]]:
    """Yield each node whose operator is neither ONNX's nor known to the release, and why.

    Calls of the model's own functions do not count.
    """
    from onnx_kvtool.analysis.conditions.operators import stranger

    local = {key[:2] for key in context.model.functions}
    for site in context.sites:
        why = stranger(site.node, site.opset or 0, target.release, local)
        if why is not None:
            yield site.location(), why


def dtype_word(node: ir.Node) -> str | None:
    """Return the element type of a node's first input or output, as the data file writes it."""
    for value in (*node.inputs[:1], *node.outputs[:1]):
        if value is not None and value.dtype is not None and value.dtype.name != "UNDEFINED":
            return value.dtype.name.lower()
    return None
