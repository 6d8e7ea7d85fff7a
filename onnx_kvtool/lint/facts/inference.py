"""What onnx's strict inference holds against a model, where it stands."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.misdeclared import held
from onnx_kvtool.guard.nested_calls import MOST_NODES, expanded_nodes
from onnx_kvtool.guard.weightless import weightless
from onnx_kvtool.lint.context import Context, Site
from onnx_kvtool.shapes.complaints import complaints, unknown_nodes
from onnx_kvtool.shapes.infer import importing_all

__all__ = ["contradictions"]


def contradictions(context: Context) -> Iterator[tuple[Site, str]]:
    """Yield each node about which onnx's strict inference complains, with what it says.

    What `complaints` says of types and shapes as the file declares them.
    """
    model = context.model
    if model.functions and expanded_nodes(model) > MOST_NODES:
        return
    unknown = unknown_nodes(model)
    if context.inference_agrees and not unknown:
        return
    try:
        with _as_declared(context):
            message = importing_all(weightless(model))
    except KvtoolError:
        return
    sites = {site.node: site for site in context.sites}
    for node, text in complaints(model, message, unknown):
        yield sites[node], text


@contextlib.contextmanager
def _as_declared(context: Context) -> Iterator[None]:
    """Take away for a while what inference wrote on values, which may follow from a wrong claim.

    Constants keep the type and shape that they have.
    """
    written = [(v, v.type, v.shape) for v, _, _ in context.completed]
    for value, type_, shape in context.completed:
        if held(value) is None:
            value.type, value.shape = type_, shape
    try:
        yield
    finally:
        for value, type_, shape in written:
            value.type, value.shape = type_, shape
