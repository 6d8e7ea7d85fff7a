"""What `inspect` found, as one page that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Sequence
from pathlib import PurePath

from onnx_kvtool.analysis.caches.cache import Footprint, footprint
from onnx_kvtool.analysis.inspection import InspectReport
from onnx_kvtool.core.words import binary_bytes
from onnx_kvtool.report.blocks import Grid, Group, cache_groups, groups_alike, named
from onnx_kvtool.report.cache_graph import joined
from onnx_kvtool.report.inspect_text import (
    bytes_text,
    cache_table,
    group_table,
    model_lines,
    node_table,
    value_table,
    whatif_lines,
)
from onnx_kvtool.report.page import SCRIPT, attribute, table, text, whole_page
from onnx_kvtool.report.pictures import CostModel, cost_model, graph_svg, memory_svg

_MOST_PICTURES = 40
_TYPES = (
    ("float32", 32),
    ("float16 or bfloat16", 16),
    ("8 bits (float8, int8)", 8),
    ("4 bits (int4, float4)", 4),
)
"""Element types that caches are kept in, by the bits that count."""


def to_html(report: InspectReport) -> str:
    """Return a page with the summary, the cache table, a memory plot and pictures of the updates.

    The page loads nothing, follows the light or dark setting of its reader, and can be read without
    scripts, which draw the plot as wide as the page and for what its reader asks.
    """
    path = report.model.path
    title = named(path) if path in ("-", "") else PurePath(path).name
    cost = footprint(report.caches)
    sections = (
        _head(report, title, cost),
        *_caches(report, cost),
        *_memory(report),
        *_pictures(report),
        *_rest(report),
    )
    return whole_page(f"{title} - kvtool inspect", sections, script=SCRIPT)


def _head(report: InspectReport, title: str, cost: Footprint) -> str:
    tiles = (
        (f"{cost.count:,}", "cache" if cost.count == 1 else "caches"),
        (bytes_text(cost.bytes_per_token), "for a token of one sequence"),
        (bytes_text(cost.total_bytes), "for all caches"),
        (binary_bytes(report.model.weight_bytes), "of weights"),
        (f"{report.model.nodes:,}", "nodes"),
    )
    shown = "".join(
        f'<div class="tile"><b>{text(number)}</b><span>{text(label)}</span></div>'
        for number, label in tiles
    )
    lines = "<br>".join(f"{text(label)}: {text(line)}" for label, line in model_lines(report.model))
    return f'<h1>{text(title)}</h1>\n<p class="soft">{lines}</p>\n<div class="tiles">{shown}</div>'


def _caches(report: InspectReport, cost: Footprint) -> Iterator[str]:
    yield "<h2>Caches</h2>"
    for note in report.notes:
        yield f"<p>{text(note)}</p>"
    if not report.caches:
        yield "<p>No cache was found.</p>"
        return
    yield table(group_table(report.caches))
    every = table(cache_table(report.caches))
    yield f"<details><summary>Each cache by itself</summary>{every}</details>"
    for line in whatif_lines(report):
        yield f"<p><b>{text(line.label)}:</b> {text(line.text)}</p>"
    if cost.total_bytes is None:
        yield (
            '<p class="soft">A dash means unknown. <code>--dim NAME=INT</code> gives'
            " a dimension a value.</p>"
        )


def _memory(report: InspectReport) -> Iterator[str]:
    cost = cost_model(report.caches)
    if cost is None:
        return
    yield "<h2>Memory</h2>"
    yield (
        "<p>Solid: the rows that the tokens of a sequence fill."
        + (" Dashed: what is allocated from the first token on." if cost.has_allocation else "")
        + "</p>"
    )
    unknown = footprint(report.caches).unknown
    if unknown:
        yield f"<p>Not counted: {text(', '.join(unknown))}.</p>"
    given = json.dumps({**cost.to_json(), "weights": report.model.weight_bytes})
    yield (
        f'<div id="memory" class="frame" data-cost="{attribute(given)}">\n'
        f"{memory_svg(cost)}\n{_controls(cost)}</div>"
    )


def _controls(cost: CostModel) -> str:
    """Return what a reader can ask: sliders along the numbers that are offered, and a menu."""
    types = "".join(f'<option value="{bits}">{name}</option>' for name, bits in _TYPES)
    return (
        '<div class="sliders" hidden>'
        + _slider("batch", cost.offered_batches, cost.batch or 1)
        + _slider("capacity", cost.offered_capacities, cost.capacity)
        + '<label><span>tokens</span><input id="tokens" type="range" min="0" max="1000"'
        ' value="1000"><output id="tokens-value"></output></label>'
        '<label><span>elements</span><select id="type"><option value="">as they are</option>'
        f'{types}</select></label><output id="cost"></output></div>'
    )


def _slider(name: str, offered: Sequence[int], now: int) -> str:
    return (
        f'<label><span>{name}</span><input id="{name}" type="range" min="0"'
        f' max="{len(offered) - 1}" value="{offered.index(now)}">'
        f'<output id="{name}-value"></output></label>'
    )


def _pictures(report: InspectReport) -> Iterator[str]:
    if not report.neighbourhoods:
        return
    yield "<h2>Updates</h2>"
    yield (
        "<p>The graph around each update, one picture for caches of one kind. The thick line is the"
        " cache itself, the filled box the node that updates it; point at a box or a line for its"
        " whole name.</p>"
    )
    by_node = groups_alike(cache_groups(report.caches), _updating)
    for groups in by_node[:_MOST_PICTURES]:
        place = groups[0].caches[0].location
        caption = f"{place.op} node {place.node_label} in {place.graph} updates "
        caption += " and ".join(_name(group) for group in groups)
        graph = joined([report.neighbourhoods[group.places[0]] for group in groups])
        yield (
            f"<figure><figcaption>{text(caption)}</figcaption>"
            f'<div class="frame">\n{graph_svg(graph, caption)}\n</div></figure>'
        )
    if len(by_node) > _MOST_PICTURES:
        yield f"<p>{len(by_node) - _MOST_PICTURES} more are not drawn.</p>"


def _updating(group: Group) -> Hashable:
    return group.caches[0].calls, group.caches[0].node


def _name(group: Group) -> str:
    first = group.caches[0].past or group.caches[0].present or ""
    if len(group.caches) == 1:
        return first
    return f"{first} (one of {len(group.caches)}: {group.name})"


def _rest(report: InspectReport) -> Iterator[str]:
    yield "<h2>Inputs and outputs</h2>"
    for label, values in (("inputs", report.inputs), ("outputs", report.outputs)):
        yield f"<h3>{label}</h3>"
        yield table(value_table(values, fold=True))
        every = table(value_table(values))
        yield f"<details><summary>Each of {len(values)} {label}</summary>{every}</details>"
    yield "<h2>Operators</h2>"
    rows = ((name, f"{number:,}") for name, number in report.ops.items())
    yield table(Grid("operator, nodes", rows))
    if report.nodes is not None:
        yield "<h2>Nodes</h2>"
        yield table(node_table(report.nodes))
