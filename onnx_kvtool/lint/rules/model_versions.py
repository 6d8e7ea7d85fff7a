"""IR version and opsets of a model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import onnx
import onnx.helper
import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import function_path
from onnx_kvtool.core.words import counted, enumerated
from onnx_kvtool.lint.context import Context
from onnx_kvtool.lint.finding import Findings, Fix, Found
from onnx_kvtool.lint.rule import check
from onnx_kvtool.ops.changes import FIRST_IR, FUNCTIONS, OVERLOADS
from onnx_kvtool.ops.schema import NEWEST, op_facts
from onnx_kvtool.ops.traits import dtype_name


@check("MD401")
def ir_too_old_for_opset(context: Context) -> Findings:
    """Look the opset up in onnx's own table of releases."""
    model = context.model
    opset = model.opset_imports.get("")
    wanted = onnx.helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", opset or 0))
    if wanted is not None and 0 < model.ir_version < wanted:
        yield Found(
            Location(),
            f"the IR version is {model.ir_version}, and opset {opset} came with IR version "
            f"{wanted}",
            help=f"raise the IR version to {wanted}",
            fix=Fix("safe", f"raise the IR version to {wanted}", partial(_raise, model, wanted)),
        )


def _raise(model: ir.Model, version: int) -> None:
    model.ir_version = max(version, model.ir_version or 0)


@check("MD408")
def unknown_version(context: Context) -> Findings:
    """Compare numbers with those of the installed onnx."""
    newest_ir = int(onnx.IR_VERSION)
    remedy = "correct the version, or install a newer onnx"
    if context.model.ir_version > newest_ir:
        yield Found(
            Location(),
            f"the IR version is {context.model.ir_version}, and onnx {onnx.__version__} knows "
            f"{newest_ir} at most",
            help=remedy,
        )
    for path, graph, imports in context.roots:
        for domain, version in imports.items():
            name = domain or "ai.onnx"
            if domain == "" and version > NEWEST:
                text = f"and onnx {onnx.__version__} knows {NEWEST} at most"
            elif version < 1:
                text = "and the lowest version is 1"
            else:
                continue
            place = context.place(path, graph)
            yield Found(place, f"imports `{name}` at version {version}, {text}", help=remedy)


@check("MD412")
def unused_opset_import(context: Context) -> Findings:
    """Compare the imports of the model and of each function with the domains of the nodes."""
    model = context.model
    used: dict[int, set[str]] = {}
    for site in context.sites:
        used.setdefault(id(site.root), {""}).add(site.node.domain)
    # A domain of functions of the model is one that its author writes for.
    own = {function.domain for function in model.functions.values()}
    for path, graph, imports in context.roots:
        spare = sorted(set(imports) - used.get(id(graph), {""}) - own)
        if spare:
            title = f"remove the import of {enumerated(spare)}"
            yield Found(
                context.place(path, graph),
                f"the {context.owner(graph)} imports {enumerated(spare)}, and no node of it is of "
                "that domain",
                help="remove the import",
                fix=Fix("safe", title, partial(_remove, imports, spare)),
            )


def _remove(imports: dict[str, int], domains: list[str]) -> None:
    for domain in domains:
        imports.pop(domain, None)


@check("ON613")
def ir_feature(context: Context) -> Findings:
    """Compare each feature with the IR version."""
    model, version = context.model, context.model.ir_version
    if version is None:
        return
    if version < 4:
        yield from _initializers(context)
    for function in model.functions.values():
        path = function_path(*function.identifier())
        for what, since in (("a function", FUNCTIONS), ("an overload", OVERLOADS)):
            if version < since and (since == FUNCTIONS or function.overload):
                yield _found(model, Location(path), f"is {what}, which", since)
                break
    if version >= max(FIRST_IR.values()):
        return
    seen = {dtype for dtype in ir.DataType if FIRST_IR.get(dtype, version) <= version}
    for place, dtype in _first_places(context, seen):
        since = FIRST_IR[dtype]
        yield _found(model, place, f"is of type {dtype_name(dtype)}, which", since)


def _found(model: ir.Model, place: Location, what: str, since: int) -> Found:
    name = f"`{place.value}` " if place.value else ""
    return Found(
        place,
        f"{name}{what} came with IR version {since}; the model states IR version "
        f"{model.ir_version}",
        help=f"raise `ir_version` to {since}",
        fix=_raised(model, since),
    )


def _initializers(context: Context) -> Findings:
    model = context.model
    for path, graph in context.graphs:
        others = [n for n, v in graph.initializers.items() if not v.is_graph_input()]
        if not others:
            continue
        more = f" and {counted(len(others) - 1, 'other')}" if len(others) > 1 else ""
        yield Found(
            Location(path, value=others[0]),
            f"initializer `{others[0]}`{more} of the graph: no input, as IR version "
            f"{model.ir_version} demands",
            help="raise `ir_version` to 4, or declare initializers as inputs",
            fix=_raised(model, 4),
        )


def _raised(model: ir.Model, least: int) -> Fix:
    return Fix("safe", f"raise `ir_version` to {least}", partial(_raise, model, least))


def _first_places(
    context: Context, seen: set[ir.DataType]
) -> Iterator[tuple[Location, ir.DataType]]:
    """Yield each element type of inputs, constants and results that is not in `seen`, once.

    With the first place of each, and in the order of these places.
    """
    for path, graph in context.graphs:
        for value in graph.inputs:
            if (dtype := value.dtype) is not None and dtype not in seen:
                seen.add(dtype)
                yield Location(path, value=value.name), dtype
    for place, tensor in context.tensors:
        if (dtype := tensor.dtype) not in seen:
            seen.add(dtype)
            yield place, dtype
    for site in context.sites:
        for value in site.node.outputs:
            if (dtype := value.dtype) is not None and dtype not in seen:
                seen.add(dtype)
                yield site.location(value), dtype


@check("ON614")
def function_opset(context: Context) -> Findings:
    """Compare the two versions of each operator."""
    model = context.model.opset_imports.get("")
    if model is None or not context.model.functions:
        return
    seen: set[tuple[int, str]] = set()
    for site in context.sites:
        node, here = site.node, site.opset
        if site.root is context.model.graph or node.domain or here in (None, model):
            continue
        if (id(site.root), node.op_type) in seen:
            continue
        assert here is not None
        one, other = op_facts(node.op_type, here), op_facts(node.op_type, model)
        if (one and one.since_version) == (other and other.since_version):
            continue
        seen.add((id(site.root), node.op_type))
        versions = [f"version {f.since_version}" if f else "no version" for f in (one, other)]
        yield Found(
            site.location(),
            f"`{node.op_type}` has {versions[0]} at opset {here} of the function and "
            f"{versions[1]} at opset {model} of the model",
            help="write the function for the opset of the model, or inline it and convert it",
        )
