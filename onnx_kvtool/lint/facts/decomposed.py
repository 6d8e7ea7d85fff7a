"""Attention in many nodes that is proven to be what one Attention computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnx_kvtool.analysis.attention.fusing import Fusion, is_candidate
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.walk import values
from onnx_kvtool.shapes.attention import prove_each

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context, Site

__all__ = ["attentions"]


def attentions(context: Context) -> Sequence[tuple[Site, Fusion]]:
    """Return each Softmax of the main graph and its bodies that an Attention could stand for.

    Sizes are inferred once more, by kvtool's own inference, if there is a candidate at all; nothing
    stays on the values of the model.
    """
    model = context.model
    sites = [
        site
        for site in context.sites_of("Softmax")
        if site.root is model.graph and is_candidate(site.node)
    ]
    if not sites or "" not in model.opset_imports:
        return ()
    before = [(value, value.type) for value in values(model)]
    try:
        found = prove_each(model, [site.node for site in sites], "auto")
    except KvtoolError:  # of a model that contradicts itself nothing is known
        return ()
    finally:
        for value, type_ in before:
            value.type = type_
    pairs = zip(sites, found, strict=True)
    return tuple((site, one) for site, one in pairs if isinstance(one, Fusion))
