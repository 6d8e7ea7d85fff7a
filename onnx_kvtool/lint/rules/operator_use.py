"""Nodes that violate the schemas of their operators."""

from __future__ import annotations

from collections.abc import Iterator

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.storage import stored_tensor
from onnx_kvtool.guard.exhaustion import MOST_NODES, expanded_nodes
from onnx_kvtool.guard.weightless import weightless
from onnx_kvtool.lint.context import Context, Site
from onnx_kvtool.lint.facts.operands import declared
from onnx_kvtool.lint.finding import Findings, Found
from onnx_kvtool.lint.rule import RULES, check
from onnx_kvtool.ops.operators import scale_misfit
from onnx_kvtool.ops.schema import op_facts
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.shapes.annotations import importing_all
from onnx_kvtool.shapes.onnx_inference import CONSEQUENCE, DECLARED, complaints, unknown_nodes
from onnx_kvtool.symbolic.dimensions import dims_of


@check(*(f"ON{number}" for number in range(601, 613)))
def misused(code: str, context: Context) -> Findings:
    """Report the misuses of one kind; one walk over the nodes finds all kinds."""
    for misuse in context.misuses.get(RULES[code].name, ()):
        yield Found(misuse.location, misuse.text, help=misuse.help, severity=misuse.severity)


@check("ON615")
def shape_conflict(context: Context) -> Findings:
    """Report what onnx's strict inference says about nodes without another finding."""
    known = {misuse.location for found in context.misuses.values() for misuse in found}
    reported = {(place.graph, place.index) for place in known}
    for site, text in _contradictions(context):
        node = site.node
        if site.opset is None or (not node.domain and node.op_type == "TensorScatter"):
            continue
        facts = op_facts(node.op_type, site.opset, node.domain)
        if facts is None or (site.path, site.index) in reported:
            continue
        if CONSEQUENCE in text:
            continue
        shapes = ", ".join(
            f"`{value.name}` {declared(value)}" for value in node.inputs if value is not None
        )
        is_inner = DECLARED in text and not any(v.is_graph_output() for v in node.outputs)
        yield Found(
            site.location(),
            f"onnx's inference refuses `{node.op_type}`: {text}"
            + (f" (inputs {shapes})" if shapes else ""),
            help="correct the shape, or its declaration",
            severity="info" if is_inner else None,
        )


@check("ON616")
def scale_shape(site: Site, context: Context) -> Findings:
    """Compare the shapes with those that axis and block size require."""
    view = site.view(NodeView)
    if view is None or site.node.domain != "":
        return
    given = [*site.node.inputs, None][:3]
    try:
        axis, block = (
            view.integer(name) if name in view.facts.attributes else 0
            for name in ("axis", "block_size")
        )
    except MalformedNode:
        return
    x, scale, zero = map(dims_of, given)
    names = tuple(value.name or "" if value is not None else "" for value in given[1:])
    problem = scale_misfit(x, scale, zero, axis, block, (names[0], names[1]))
    if problem is not None:
        subject = {"scale": given[1], "zero_point": given[2]}.get(problem.subject)
        yield Found(site.location(subject), problem.text, help=problem.help)


@check("ON617")
def unbound_parameter(context: Context) -> Findings:
    """Look at the attributes of each node."""
    parameters = {id(f.graph): set(f.attributes) for f in context.model.functions.values()}
    for site in context.sites:
        for name, attribute in site.node.attributes.data.items():
            if not attribute.is_ref():
                continue
            known = parameters.get(id(site.root))
            referred = attribute.ref_attr_name
            if known is None:
                text = "and stands in no function"
            elif referred not in known:
                text = "which the function does not have"
            else:
                continue
            yield Found(
                site.location(),
                f"attribute `{name}` refers to the parameter `{referred}`, {text}",
                help="write the value"
                if known is None
                else "declare the parameter, or write the value",
            )


def _contradictions(context: Context) -> Iterator[tuple[Site, str]]:
    """Yield each node about which onnx's strict inference complains, with what it says.

    What `complaints` says of types and shapes as the file declares them.
    """
    model = context.model
    if model.functions and expanded_nodes(model) > MOST_NODES:
        return
    unknown = unknown_nodes(model)
    if context.inferred.agrees and not unknown:
        return
    # What inference wrote on values may follow from a wrong claim, but for constants.
    written = [(v, v.type, v.shape) for v, _, _ in context.inferred.added]
    try:
        for value, type_, shape in context.inferred.added:
            if stored_tensor(value) is None:
                value.type, value.shape = type_, shape
        message = importing_all(weightless(model))
    except KvtoolError:
        return
    finally:
        for value, type_, shape in written:
            value.type, value.shape = type_, shape
    sites = {site.node: site for site in context.sites}
    for node, text in complaints(model, message, unknown):
        yield sites[node], text
