"""Defects that the reader of a file found."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import graphs
from onnx_kvtool.lint.context import Context
from onnx_kvtool.lint.finding import Findings, Fix, Found
from onnx_kvtool.lint.rule import RULES, check
from onnx_kvtool.model_io.model import settle
from onnx_kvtool.model_io.sorting import sort_nodes, unsortable

_REMEDIES = {
    "MD409": "import the version that the nodes were written for",
    "MD411": "export the model again, or set `ir_version` to that of its opset",
    "MD420": "restore the value, or connect the node to another one",
    "MD421": "name a value that the graph produces",
    "MD423": "rename one of them, or remove it",
    "MD424": "name the input, or remove it",
    "MD425": "keep the right value, and rename or remove the other",
    "MD426": "name the initializer, or remove it",
    "MD427": None,
    "MD428": "keep the declaration that is right",
    "MD429": "keep the right value",
    "MD430": "export the model again",
    "MD435": "leave the output out",
    "MD436": "keep the right value",
    "MD437": None,
    "MD438": "correct the name in the annotation, or remove it",
    "MD440": "keep one of them, or give each its own `overload`",
    "MD441": "write the repetition as a Loop",
    "MD442": "rename one of them",
    "MD444": "name it as its callers do, or remove it",
    "MD451": "export the model again",
    "MD453": "export the model again",
    "MD455": "export the model again",
    "MD457": "name the type as the domain that defines it does",
}
"""What to do about defects that do not say so themselves, by the rule about them."""


@check(*_REMEDIES)
def read_defects(code: str, context: Context) -> Findings:
    """Report the defects of one kind that reading the file found."""
    return _defects(RULES[code].name, context, _REMEDIES[code])


def _defects(name: str, context: Context, remedy: str | None = None) -> Findings:
    """Yield a finding for each defect with a name, that of the rule, with its own severity.

    The reader saw them in the protobuf message: what onnx_ir makes of it no longer shows them. A
    model that was made in memory has none.
    """
    for defect in context.origin.defects:
        if defect.code == name:
            yield Found(
                defect.location,
                defect.message,
                help=defect.help or remedy,
                severity=defect.severity,
            )


_IMPORTS = "duplicate-opset-import"


@check("MD402")
def duplicate_opset_import(context: Context) -> Findings:
    """Report the defect, with the fix."""
    for finding in _defects(_IMPORTS, context):
        # Reading has kept the last entry alone, so that writing is all there is to do.
        keep = partial(settle, context.model, _IMPORTS, [finding.location])
        yield replace(finding, fix=Fix("safe", "keep the last entry", keep))


@check("MD422")
def unsorted_nodes(context: Context) -> Findings:
    """Report the defect, with the fix if there is no cycle."""

    def sort() -> None:
        sort_nodes(context.model)

    fix = Fix("safe", "sort the nodes", sort)
    found = list(_defects("unsorted-nodes", context))
    circles = unsortable(context.model) if found else frozenset[str]()
    for finding in found:
        place = f"{finding.location.graph}/"
        in_circle = any(place.startswith(f"{path}/") for path in circles)
        yield finding if in_circle else replace(finding, fix=fix)


@check("MD450")
def bad_dims(context: Context) -> Findings:
    """Report the defects of tensors, then check what graphs declare."""
    yield from _defects("bad-dims", context, "export the model again")
    for path, graph in graphs(context.model):
        for value in dict.fromkeys((*graph.inputs, *graph.outputs)):
            for axis, dim in enumerate(value.shape or ()):
                if isinstance(dim, int) and dim < 0:
                    yield Found(
                        Location(path, value=value.name),
                        f"`{value.name}` declares the size {dim} on axis {axis}",
                        help="give the dimension a name, or leave its size out",
                        severity="warning",
                    )
