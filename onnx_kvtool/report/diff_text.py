"""The result of `diff`: for a terminal, as Markdown for a pull request, as a page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple, TypeVar

from onnx_kvtool.analysis.inspection import NodeFacts
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.words import counted, escape, shape_text
from onnx_kvtool.report.blocks import (
    Block,
    Grid,
    Line,
    groups_alike,
    joined,
    named,
    shortened,
    without_numbers,
)
from onnx_kvtool.report.page import table, whole_page
from onnx_kvtool.report.page import text as escaped
from onnx_kvtool.review.report import (
    Change,
    DiffReport,
    NodeChange,
    Rename,
    Replacement,
    WeightChange,
)

# The result of `diff` in sections, each a line and perhaps a table, for every format.


ARROW = " -> "
_NUMBER = re.compile(r"\d+")
_SYMBOL = re.compile(r"[A-Za-z_]\w*")
_MOST_OPS, _MOST_NAMES = 24, 3
_ROWS_OF_A_SECTION = 10
"""Most rows where only changes that differ in numbers are alike; of more, those of one kind."""
_LONGEST = 120
"""Characters of a text, such as a stack trace, that are shown."""
_T = TypeVar("_T")


class Section(NamedTuple):
    """One kind of change.

    Attributes:
        label: Name of the changed part.
        text: How much of it changed.
        grid: The changes; None if the text says it all.
    """

    label: str
    text: str
    grid: Grid | None = None


def verdict(report: DiffReport) -> str:
    """Return the names of the compared models."""
    if report.file != "changed" and report.old == report.new:
        return named(report.new)
    return f"{named(report.old)} and {named(report.new)}"


def sections(report: DiffReport) -> Iterator[Section]:
    """Yield the changes; a change that repeats from layer to layer is one row.

    Unchanged parts are not mentioned, except caches: they are what the tool is about.
    """
    if report.file in ("added", "removed"):
        yield from _whole(report)
        return
    if report.opsets:
        yield Section("opsets", "; ".join(map(_opset, report.opsets)))
    yield from _facts("model", report.metadata, "graph, what", (0, 1))
    yield from _interface(report)
    yield from _caches(report)
    yield from _operators(f"{op} {a}{ARROW}{b}" for op, (a, b) in report.ops.items())
    yield from _replaced(report.replaced)
    yield from _nodes("removed", report.removed)
    yield from _nodes("added", report.added)
    yield from _changed(report.changed)
    yield from _weights(report)
    yield from _facts("functions", report.functions, "function, what", (0, 2))
    yield from _facts("values", report.values, "graph, value, what", (0, 1, 2))
    yield from _renamed(report.renamed)
    for moved in report.storage:
        old, new = (", ".join(names) or "none" for names in (moved.old, moved.new))
        yield Section("external data", f"{old}{ARROW}{new} (weights that are the same stay so)")
    for note in report.notes:
        yield Section("note", note)


def _whole(report: DiffReport) -> Iterator[Section]:
    """Yield the parts of a model that were added or removed as a whole."""
    has = [f"{change.name or 'opset'} {change.old or change.new}" for change in report.opsets]
    nodes = report.added or report.removed
    has += [counted(len(nodes), "node"), counted(len(report.weights), "weight")]
    yield Section("model", ", ".join(has))
    yield from _interface(report)
    yield from _caches(report)
    yield from _operators(f"{op} {a or b}" for op, (a, b) in report.ops.items())


def _operators(each: Iterable[str]) -> Iterator[Section]:
    shown = list(each)
    if shown:
        yield Section("operators", shortened(shown, _MOST_OPS))


def _opset(change: Change) -> str:
    where = f"{change.place}: " if change.place else ""
    name = change.name or "opset"
    return f"{where}{name} {_text(change.old)}{ARROW}{_text(change.new)}"


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return shape_text(value)
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."


def _interface(report: DiffReport) -> Iterator[Section]:
    return _facts("interface", report.interface, "side, name, what", (0, 1, 2))


def _facts(
    label: str, changes: Sequence[Change], titles: str, shown: tuple[int, ...]
) -> Iterator[Section]:
    """Yield changes of named things; a change of several layers is one row.

    Args:
        label: Name of the section.
        changes: The changes.
        titles: Titles of the columns before the old and the new value.
        shown: Which of place, name and property these columns show.
    """
    if label == "values":  # as many as nodes
        groups = _few(changes, lambda c: (c.what, _shape(c.old), _shape(c.new)), _was_declared)
    else:
        groups = groups_alike(changes, lambda c: _patterns(c.place, c.what, c.old, c.new, c.name))
    rows = []
    for group in groups:
        place = _name([c.place for c in group]) or "model"
        cells = place, _name([c.name for c in group]), group[0].what
        rows.append((*(cells[i] for i in shown), *_old_new(group)))
    if len(rows) == 1:
        *names, old, new = rows[0]
        about = " ".join(name for name in names if name not in ("", label))
        yield Section(label, f"{about}: {old}{ARROW}{new}")
    else:
        yield from _table(label, counted(len(changes), "change"), f"{titles}, old, new", rows)


def _shape(value: Any) -> str:
    """Return a shape or type; names that inference made up count as one."""
    return _SYMBOL.sub(lambda name: _NUMBER.sub("#", name[0]), str(value))


def _was_declared(change: Change) -> Hashable:
    if change.old is None or change.new is None:
        return change.what, change.old is None
    return change.what, _shape(change.old), _shape(change.new)


def _few(
    items: Sequence[_T], fine: Callable[[_T], Hashable], coarse: Callable[[_T], Hashable]
) -> list[list[_T]]:
    """Gather items that are alike; if these groups are too many, items of one kind."""
    groups = groups_alike(items, fine)
    return groups if len(groups) <= _ROWS_OF_A_SECTION else groups_alike(items, coarse)


def _place(location: Location) -> str:
    """Return the name of a node, with its path unless it is in the main graph."""
    label = location.node_label or ""
    if "::" in location.graph:  # a function
        return f"{location.graph}/{label}"
    _, _, path = location.graph.partition("/")
    return f"{path}/{label}" if path else label


def _old_new(group: Sequence[Change | NodeChange | WeightChange | Rename]) -> tuple[str, str]:
    return _common([c.old for c in group]), _common([c.new for c in group])


def _common(values: Sequence[Any]) -> str:
    """Return the common form of the values of several layers."""
    texts = list(dict.fromkeys(map(_text, values)))
    return texts[0] if len(texts) == 1 else joined(texts) or f"{texts[0]}, ..."


def _name(names: Sequence[str]) -> str:
    """Return a short text for names; names that differ in numbers are one: `layer.{0..29}.norm`."""
    distinct = list(dict.fromkeys(names))
    groups = groups_alike(distinct, _pattern)
    shown = [_braced(group) for group in groups[:_MOST_NAMES]]
    if len(groups) <= _MOST_NAMES and sum(map(len, shown)) <= _LONGEST:
        return ", ".join(shown)
    first = shown[0] if len(shown[0]) <= _LONGEST else distinct[0]
    others = len(distinct) - (len(groups[0]) if first == shown[0] else 1)
    return f"{first} and {counted(others, 'other')}" if others else first


def _braced(names: Sequence[str]) -> str:
    """Return names of one pattern as one; numbers that change together are each in braces."""
    columns = zip(*(re.split(r"(\d+)", name) for name in names), strict=True)
    shown = ("#" if (one := joined(column)) is None else one for column in columns)
    return joined(names) or "".join(shown)


def _pattern(value: Any) -> Hashable:
    return without_numbers(value) if isinstance(value, str) else str(value)


def _patterns(*values: Any) -> Hashable:
    return tuple(map(_pattern, values))


def _caches(report: DiffReport) -> Iterator[Section]:
    if not report.caches:
        if report.caches_same:
            yield Section("caches", f"{report.caches_same}, the same")
        return
    rows = []
    for group in groups_alike(report.caches, lambda c: (c.what, str(c.old), str(c.new))):
        name = _name([c.name for c in group])
        rows.append((name, str(len(group)), group[0].what, *_old_new(group)))
    changed = len({c.name for c in report.caches})
    text = f"{changed} changed, {report.caches_same} the same"
    yield from _table("caches", text, "cache, caches, what, old, new", rows)


def _replaced(found: Sequence[Replacement]) -> Iterator[Section]:
    rows = []
    groups = groups_alike(found, lambda r: (_ops(r.removed), _ops(r.added), r.is_shared))
    for group in sorted(groups, key=lambda g: (g[0].is_shared, -len(g))):
        first = group[0]
        at = "read by several of them"
        if not first.is_shared:
            at = _name([_place(r.removed[-1].location) for r in group])
        rows.append((_ops(first.removed) or "-", _ops(first.added) or "-", str(len(group)), at))
    removed = sum(len(r.removed) for r in found)
    text = f"{counted(removed, 'node')} by {sum(len(r.added) for r in found):,}"
    yield from _table("replaced", text, "nodes, by, times, at", rows)


def _table(label: str, text: str, titles: str, rows: Sequence[Sequence[str]]) -> Iterator[Section]:
    if rows:
        yield Section(label, text, Grid(titles, rows))


def _ops(nodes: Iterable[NodeFacts]) -> str:
    counts = Counter(node.location.op or "" for node in nodes)
    return ", ".join(f"{op} x{n}" if n > 1 else op for op, n in sorted(counts.items()))


def _nodes(label: str, nodes: Sequence[NodeFacts]) -> Iterator[Section]:
    rows = [
        (
            group[0].location.op or "",
            str(len(group)),
            _name([_place(n.location) for n in group]),
            _names_of_section([n.inputs for n in group]),
            _names_of_section([n.outputs for n in group]),
        )
        for group in _few(
            nodes,
            lambda n: (n.location.graph, n.location.op, _patterns(*n.inputs)),
            lambda n: (n.location.graph, n.location.op),
        )
    ]
    titles = "operator, nodes, name, reads, makes"
    yield from _table(label, counted(len(nodes), "node"), titles, rows)


def _names_of_section(lists: Sequence[tuple[str, ...]]) -> str:
    if len({len(names) for names in lists}) > 1:
        return f"{', '.join(lists[0])}, ..."
    return (
        ", ".join(_common([n or "-" for n in column]) for column in zip(*lists, strict=True)) or "-"
    )


def _changed(changes: Sequence[NodeChange]) -> Iterator[Section]:
    rows = []
    for group in _few(changes, _alike, lambda c: (c.location.op, c.what)):
        op, *others = dict.fromkeys(c.location.op or "" for c in group)
        if others:
            op += f" and {counted(len(others), 'other')}"
        name = _name([_place(c.location) for c in group])
        rows.append((op, str(len(group)), name, group[0].what, *_old_new(group)))
    count = counted(len({c.location for c in changes}), "node")
    yield from _table("changed", count, "operator, nodes, name, what, old, new", rows)


def _alike(change: NodeChange) -> Hashable:
    """Return a key that changes of several layers share; metadata counts as changed, only."""
    if change.what.startswith("metadata ") or change.what == "doc_string":
        return change.what, change.old is None, change.new is None
    return change.location.op, change.what, _patterns(change.old, change.new)


def _weights(report: DiffReport) -> Iterator[Section]:
    rows = []
    for group in _few(report.weights, _weight_key, _weight_kind):
        largest = _largest(w.max_abs_diff for w in group)
        touched = sum(w.changed or 0 for w in group)
        of = sum(w.elements or 0 for w in group)
        rows.append(
            (
                _name([w.name for w in group]),
                str(len(group)),
                group[0].what,
                *_old_new(group),
                largest,
                _largest(w.max_rel_diff for w in group),
                "-" if largest == "-" else f"{touched:,} of {of:,}",
            )
        )
    text = f"{report.weights_same:,} the same, {counted(len(report.weights), 'change')}"
    titles = "weight, weights, what, old, new, max difference, relative, elements"
    yield from _table("weights", text, titles, rows)


def _largest(differences: Iterable[float | None]) -> str:
    known = [difference for difference in differences if difference is not None]
    return f"{max(known):.3g}" if known else "-"


def _weight_key(change: WeightChange) -> Hashable:
    """Return a key that changes of several layers share; all new small constants share one."""
    if change.what in ("added", "removed") and "{" in (change.old or change.new or ""):
        return change.graph, change.what
    pattern = _pattern(change.name)
    if change.what == "values" and not (change.old or "").startswith("{"):
        return change.graph, change.what, pattern
    return change.graph, change.what, pattern, *(_type(t) for t in (change.old, change.new))


def _weight_kind(change: WeightChange) -> Hashable:
    """Return a key that weights share that were quantized, or stored in another type."""
    if change.what == "values":  # a review is about how much each kind of weight moved
        return _weight_key(change)
    dtypes = (_type(text).split("[")[0].split(" ")[0] for text in (change.old, change.new))
    return change.graph, change.what, *dtypes


def _type(text: str | None) -> str:
    """Return the text of a weight without the digest of its values."""
    return (text or "").partition(" sha256 ")[0]


def _renamed(renames: Sequence[Rename]) -> Iterator[Section]:
    groups = _few(renames, lambda r: _patterns(r.kind, r.graph, r.old, r.new), lambda r: r.kind)
    rows = [(group[0].kind, str(len(group)), *_old_new(group)) for group in groups]
    kinds = Counter(r.kind for r in renames)
    text = ", ".join(counted(n, kind) for kind, n in kinds.items())
    yield from _table("renamed", text, "kind, names, old, new", rows)


# The result of `diff` on a terminal, as Markdown for a pull request, and as a page.


_STYLES = {"same": "green", "different": "bold red"}
_ROWS_SHOWN = 60
"""Rows of a table of a job summary, which GitHub limits to a megabyte."""


def blocks(report: DiffReport) -> Iterator[Block]:
    """Yield the lines and tables that the command prints."""
    yield Line(report.outcome, verdict(report), _STYLES[report.status])
    for section in sections(report):
        yield Line(section.label, section.text, "yellow" if section.label == "note" else "bold")
        if section.grid is not None:
            yield section.grid


def to_markdown(report: DiffReport) -> str:
    """Return a report as Markdown of GitHub's kind: a heading, a list, and tables to unfold."""
    title = " and ".join(map(_code, _names_shown(report)))
    lines = [f"### {title}: {report.outcome}", ""]
    for section in sections(report):
        lines += _markdown(section)
    return "\n".join(lines).rstrip("\n")


def _names_shown(report: DiffReport) -> list[str]:
    """Return the names of the models for a heading; one if both are the same."""
    if report.old == report.new:  # one path in two versions, as git hands them over
        return [named(report.new)]
    return list(dict.fromkeys(PurePath(named(path)).name for path in (report.old, report.new)))


def _markdown(section: Section) -> Iterator[str]:
    summary = f"**{section.label}**: {_plain(section.text)}"
    if section.grid is None:
        yield f"- {summary}"
        return
    header, rows = section.grid.header, section.grid.rows
    yield from ("", "<details open>" if len(rows) <= 5 else "<details>")
    yield from (f"<summary><b>{section.label}</b>: {escaped(section.text)}</summary>", "")
    for row in (header, ["---"] * len(header), *(map(_code, row) for row in rows[:_ROWS_SHOWN])):
        yield f"| {' | '.join(row)} |"
    if len(rows) > _ROWS_SHOWN:
        yield from ("", f"and {len(rows) - _ROWS_SHOWN:,} more rows")
    yield from ("", "</details>", "")


def _code(text: str) -> str:
    r"""Return text of a model as code: nothing in it is Markdown or ends a cell of a table."""
    if not text or text == "-":
        return text
    shown = escape(text).replace("|", "\\|")
    fence = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    return f"{fence} {shown} {fence}" if "`" in shown else f"`{shown}`"


def _plain(text: str) -> str:
    """Return the text of a line as plain text; names in it cannot become Markdown or HTML."""
    shown = escaped(text.replace(ARROW, " → "))
    return "".join(f"\\{char}" if char in "\\`*_[]#|~!" else char for char in shown)


def to_html(report: DiffReport) -> str:
    """Return a report as one page that loads nothing."""
    title = " and ".join(_names_shown(report))
    status = f'<span class="status {report.status}">{report.outcome}</span>'
    body = [f"<h1>{escaped(title)}: {status}</h1>"]
    if verdict(report) != title:
        body.append(f'<p class="soft">{escaped(verdict(report))}</p>')
    for section in sections(report):
        unbroken = escaped(section.text).replace(escaped(ARROW), "&nbsp;&rarr;&nbsp;")
        body += f"<h2>{escaped(section.label)}</h2>", f"<p>{unbroken}</p>"
        if section.grid is not None:
            body.append(table(section.grid))
    return whole_page(f"{title} - kvtool diff", body)
