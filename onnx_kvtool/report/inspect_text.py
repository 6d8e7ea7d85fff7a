"""What `inspect` and `bench` found, in lines and tables for people."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from onnx_kvtool.analysis.caches import Cache
from onnx_kvtool.analysis.caches.cache import footprint, growing, growth_in_words
from onnx_kvtool.analysis.caches.whatif import Step, WhatIf
from onnx_kvtool.analysis.caches.writes import rolling, rolling_command, rolling_in_words
from onnx_kvtool.analysis.inspection import InspectReport, ModelFacts, NodeFacts, ValueFacts
from onnx_kvtool.core.words import binary_bytes, counted, shape_text
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.report.blocks import Block, Grid, Line, cache_groups, name_groups, named, shortened

if TYPE_CHECKING:
    from onnx_kvtool.decoding.profile import OperatorSeconds, Profile
    from onnx_kvtool.decoding.report import BenchReport, BenchRun


# What `inspect` found, in lines and tables for people.


_MOST_FILES = 4
_MOST_OPS = 12
_CACHE_TITLES = "cache, updated by, type, shape, axis, mode, rows, per token, per cache"
_SPARE = (
    "axis, update, mode, graph, write_indices, present, type, rows, node, per cache, updated by,"
    " per token, shape"
)
"""What a narrow terminal leaves out of the table of caches, the least important first."""


def inspect_blocks(report: InspectReport) -> Iterator[Block]:
    """Yield the report: the model, its caches, its inputs and outputs, and nodes if asked for.

    What differs in a number of its name alone, as the caches of layers do, has one row, unless the
    nodes are asked for.
    """
    for label, text in model_lines(report.model):
        yield Line(label, text)
    yield Line("caches", cost_text(report))
    if report.caches:
        yield (group_table if report.nodes is None else cache_table)(report.caches)
    if report.whatif is not None:
        yield from whatif_lines(report)
    path = report.model.path
    argument = "MODEL" if path in ("", "-") else shlex.quote(path)
    if caches := growing(report.caches):
        command = f"kvtool raise {argument} --capacity N"
        text = f"{growth_in_words(caches)}; `{command}` gives them N rows, written in place"
        yield Line("growing", text)
    if caches := rolling(report.caches):
        command = rolling_command(caches, argument)
        text = f"{rolling_in_words(caches)}; `{command}` makes circular caches of them"
        yield Line("windows", text)
    ops = [f"{name} {number}" for name, number in report.ops.items()]
    yield Line("operators", shortened(ops, _MOST_OPS) or "none")
    for label, values in (("inputs", report.inputs), ("outputs", report.outputs)):
        yield Line(label, str(len(values)))
        if values:
            yield value_table(values, fold=report.nodes is None)
    for note in report.notes:
        yield Line("note", note)
    if report.nodes is not None:
        yield Line("nodes", str(len(report.nodes)))
        yield node_table(report.nodes)


def model_lines(model: ModelFacts) -> Iterator[tuple[str, str]]:
    """Yield what there is to say of the model as a whole, each with its label."""
    path = named(model.path)
    imports = [
        f"{domain or 'opset'} {version}" for domain, version in sorted(model.opset_imports.items())
    ]
    text = ", ".join((path, f"IR version {model.ir_version}", *imports))
    yield "model", f"{text}, written by {model.producer}" if model.producer else text
    text = counted(model.nodes, "node")
    if model.functions:
        text += f", {counted(model.functions, 'model-local function')}"
    yield "graph", text
    text = f"{counted(model.initializers, 'initializer')}, {counted(model.parameters, 'parameter')}"
    text += f", {binary_bytes(model.weight_bytes)}"
    if model.external_files:
        text += f", in {', '.join(model.external_files[:_MOST_FILES])}"
        if (rest := len(model.external_files) - _MOST_FILES) > 0:
            text += f" and {counted(rest, 'other file')}"
    yield "weights", text


def cost_text(report: InspectReport) -> str:
    """Return how many caches there are and what they cost together."""
    if not report.caches:
        return "none found"
    cost = footprint(report.caches)
    parts = [str(cost.count)]
    if cost.bytes_per_token is not None:
        parts.append(f"{binary_bytes(cost.bytes_per_token)} for a token of one sequence")
    else:
        parts.append(f"cost of a token not known for {', '.join(cost.unknown)}")
    if cost.total_bytes is not None:
        parts.append(f"{binary_bytes(cost.total_bytes)} in all")
    elif names := _open_dims(report.caches):
        parts.append(f"`{' '.join(f'--dim {name}=N' for name in names)}` gives the total")
    return "; ".join(parts)


def whatif_lines(report: InspectReport) -> Iterator[Line]:
    """Yield what the caches would cost, how many sequences fit, and what a step moves."""
    found = report.whatif
    if found is None or not report.caches:
        return
    if found.bytes_per_sequence is None:
        need = "rows" if found.bytes_per_token is not None else "sizes"
        yield Line("what if", f"the {need} of a cache are unknown; {_REMEDY[need]}")
    else:
        yield Line("what if", _whatif_text(report, found))
    if found.memory is not None and found.sequences is not None:
        room, weights = binary_bytes(found.memory), binary_bytes(report.model.weight_bytes)
        fits = counted(found.sequences, "sequence")
        yield Line("fits", f"{fits} into {room} beside {weights} of weights")
    if found.step is not None:
        yield Line("step", _step_text(found.step))
    for note in found.notes:
        yield Line("note", note)


_REMEDY = {
    "rows": "`--capacity N` says how many each has",
    "sizes": "`--dim NAME=N` gives a dimension a value",
}


def _whatif_text(report: InspectReport, found: WhatIf) -> str:
    rows = "" if found.capacity is None else f"{found.capacity:,} rows"
    dtype = "" if found.dtype is None else f"of {found.dtype}"
    text = " ".join(filter(None, (rows, dtype))) or "as it is"
    text += f": {bytes_text(found.bytes_per_token)} for a token of one sequence"
    now = footprint(report.caches).bytes_per_token
    if now != found.bytes_per_token:
        text += f" ({bytes_text(now)} now)"
    text += f", {bytes_text(found.bytes_per_sequence)} for a sequence"
    if found.step is not None and found.total_bytes is not None:
        batch = counted(found.step.batch, "sequence")
        text += f", {binary_bytes(found.total_bytes)} for {batch}"
    return text


def _step_text(step: Step) -> str:
    """Return the bytes that a decode step moves, and the tokens per second that this allows."""
    text = (
        f"with all rows in use reads {binary_bytes(step.read)} of caches and"
        f" {binary_bytes(step.weights)} of weights, writes {binary_bytes(step.written)}"
    )
    if step.copied:
        text += f", and copies caches, {binary_bytes(step.copied)} more"
    if step.tokens_per_second is not None:
        text += f"; at most {_rounded(step.tokens_per_second)} tokens a second"
        if step.copied and step.tokens_per_second_in_place is not None:
            text += f", {_rounded(step.tokens_per_second_in_place)} in place"
    return text


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _open_dims(caches: Sequence[Cache]) -> list[str]:
    dims = (d for cache in caches for d in cache.shape or ())
    return list(dict.fromkeys(d for d in dims if isinstance(d, str) and d.isidentifier()))


def value_table(values: Sequence[ValueFacts], *, fold: bool = False) -> Grid:
    """Return inputs or outputs; with `fold`, one row for those that differ in a number alone."""
    names = [(v.name, (v.dtype, v.shape)) for v in values]
    groups = name_groups(names) if fold else [(v.name, [i]) for i, v in enumerate(values)]
    firsts = ((name, values[places[0]]) for name, places in groups)
    rows = ((name, first.dtype or "-", shape_text(first.shape)) for name, first in firsts)
    return Grid("name, type, shape", rows, "type")


def node_table(nodes: Sequence[NodeFacts]) -> Grid:
    """Return nodes, one in a row; `-` stands for an input or output left out."""
    rows = (
        (
            node.location.graph,
            node.location.node_label or "",
            node.location.op or "",
            ", ".join(name or "-" for name in node.inputs),
            ", ".join(name or "-" for name in node.outputs),
        )
        for node in nodes
    )
    return Grid("graph, node, operator, inputs, outputs", rows, "graph, inputs")


def bytes_text(number: float | None) -> str:
    """Return a number of bytes for people; `-` for an unknown one."""
    return "-" if number is None else binary_bytes(number)


def updated_by(cache: Cache) -> str:
    """Return the operator that updates a cache, without its domain."""
    return (cache.location.op or "").rpartition("::")[2]


def _facts(cache: Cache) -> tuple[str, ...]:
    rows = "-" if cache.capacity is None else str(cache.capacity)
    return (
        updated_by(cache),
        "-" if cache.dtype is None else dtype_name(cache.dtype),
        shape_text(cache.shape),
        "-" if cache.axis is None else str(cache.axis),
        "growing" if cache.is_growing else cache.mode or "-",
        rows,
        bytes_text(cache.bytes_per_token),
        bytes_text(cache.total_bytes),
    )


def _in_place(reason: str | None) -> str:
    return "yes" if reason is None else f"no: {reason}"


def group_table(caches: Sequence[Cache]) -> Grid:
    """Return caches that differ in their names alone in one row each."""
    groups = cache_groups(caches)
    rows = ((one.name, *_facts(one.caches[0]), _in_place(one.reason)) for one in groups)
    return Grid(f"{_CACHE_TITLES}, in place", rows, _SPARE)


def cache_table(caches: Sequence[Cache]) -> Grid:
    """Return every cache in a row of its own, with the names that are around it."""
    rows = (
        (
            cache.past or "-",
            *_facts(cache),
            cache.location.graph,
            cache.location.node_label or "-",
            cache.update or "-",
            cache.write_indices or "-",
            cache.present or "-",
            _in_place(cache.in_place.reason),
        )
        for cache in caches
    )
    titles = f"{_CACHE_TITLES}, graph, node, update, write_indices, present, in place"
    return Grid(titles, rows, _SPARE)


# What decoders took, in a table for people.


def bench_blocks(report: BenchReport) -> Iterator[Block]:
    """Yield the runs, the time of each model, and its ratio to the first one."""
    work = report.workload
    text = f"{report.runtime}, {counted(work.batch, 'sequence')}, prompt of {work.prompt} tokens"
    if work.context > work.prompt:
        text += f", steps behind {work.context} rows"
    text += f", {work.tokens} tokens, {counted(work.rounds, 'round')} in turns"
    threads = "a thread for each core" if work.threads is None else counted(work.threads, "thread")
    yield Line("ran", f"{text}, {threads}")
    titles = "model, form, in place, first token, step, least, most, tokens/s, peak"
    spare = "most, least, form, tokens/s, in place, peak"
    yield Grid(titles, map(_row, report.runs), spare)
    if len(report.runs) > 1:
        yield Line("to the first", "ratios of medians; less than 1 is less time or memory")
        ratios = ((named(r.model), r.step, r.first_token, r.peak) for r in report.ratios)
        rows = ((name, *("-" if x is None else f"{x:.2f}" for x in each)) for name, *each in ratios)
        yield Grid("model, step, first token, peak", rows)
        if [run.failure for run in report.runs].count(None) > 1:
            same = ("all the same", "green") if report.same_tokens else ("not the same", "yellow")
            yield Line("tokens", *same)
    if report.profile:
        yield from _profile_blocks(report.profile)
    for run in report.runs:
        if run.failure is not None:
            yield Line("failed", f"{named(run.model)}: {run.failure}", "bold red")


_MOST_OPERATORS = 12


def _profile_blocks(profiles: Sequence[Profile]) -> Iterator[Block]:
    """Yield where the steps of each model go, side by side."""
    models = [named(profile.model) for profile in profiles]
    yield Line("profile", "time of a step in operators, by onnxruntime's profile")
    shares = [[f"{_time(p.seconds)} ({p.share:.0%})" for p in each.parts] for each in profiles]
    parts = [part.part for part in profiles[0].parts]
    yield Grid(("part", *models), zip(parts, *shares, strict=True))
    by_op = [{one.op: one for one in profile.operators} for profile in profiles]
    longest = {op: max(k[op].seconds if op in k else 0 for k in by_op) for k in by_op for op in k}
    shown = sorted(longest, key=lambda op: -longest[op])[:_MOST_OPERATORS]
    rows = ((op, *(_operator(known.get(op)) for known in by_op)) for op in shown)
    yield Grid(("operator", *models), rows)
    if len(longest) > len(shown):
        yield Line("not shown", counted(len(longest) - len(shown), "other operator"))


def _operator(one: OperatorSeconds | None) -> str:
    return "-" if one is None else f"{_time(one.seconds)} ({one.count:g} nodes)"


def _row(run: BenchRun) -> tuple[str, ...]:
    step, speed = run.step_seconds, run.tokens_per_second
    return (
        named(run.model),
        run.form or "-",
        "yes" if run.in_place else "no",
        _time(run.first_token_seconds),
        _time(step.median),
        _time(step.min),
        _time(step.max),
        "-" if speed is None else f"{speed:,.1f}",
        bytes_text(run.peak_bytes),
    )


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"
