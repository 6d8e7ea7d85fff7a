"""An HTML page that loads nothing from elsewhere, and text of a model inside it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from onnx_kvtool import __version__
from onnx_kvtool.core.words import escape, escape_lines
from onnx_kvtool.report.blocks import Grid

# Text from a model inside HTML and SVG.


def text(raw: str) -> str:
    """Return `raw` for the inside of an element: no character of it is markup or invisible."""
    return html.escape(escape(raw), quote=False)


def attribute(raw: str, *, lines: bool = False) -> str:
    """Return `raw` for the inside of a quoted attribute; with `lines`, its line breaks stay."""
    return html.escape((escape_lines if lines else escape)(raw), quote=True)


def table(grid: Grid) -> str:
    """Return an HTML table; columns of numbers are set flush right.

    Each cell says the title of its column as well: where a page is too narrow for the columns, its
    style sets the cells of a row under one another.
    """
    titles = [text(title) for title in grid.header]
    columns = zip(*grid.rows, strict=True)
    kinds = [' class="number"' if _are_numbers(column) else "" for column in columns]
    kinds = kinds or [""] * len(titles)
    heads = "".join(f"<th{kind}>{title}</th>" for kind, title in zip(kinds, titles, strict=True))
    begins = [
        f'<td{kind} data-title="{attribute(title)}">'
        for kind, title in zip(kinds, grid.header, strict=True)
    ]
    body = "\n".join(
        "<tr>"
        + "".join(f"{begin}{_cell(cell)}</td>" for begin, cell in zip(begins, row, strict=True))
        + "</tr>"
        for row in grid.rows
    )
    width = "wide" if len(titles) > _FEW else "narrow"
    return (
        f'<div class="scroll"><table class="{width}">\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _cell(raw: str) -> str:
    """Return the inside of a cell; a line could end before a brace, which the style forbids."""
    return _WORD.sub(
        lambda word: f'<span class="whole">{word[0]}</span>' if "{" in word[0][1:] else word[0],
        text(raw),
    )


def _are_numbers(cells: Sequence[str]) -> bool:
    known = [cell for cell in cells if cell not in _NOTHING]
    return bool(known) and all(map(_NUMBER.fullmatch, known))


_FEW = 2
"""Columns that a telephone has room for."""

_WORD = re.compile(r"\S+")
_NOTHING = ("", "-", "none")
_NUMBER = re.compile(r"-?(\d[\d,.]*(e[+-]?\d+)?|inf|nan)( ([KMGTP]i)?B)?( of \d[\d,]*)?")
"""A count, a size or a share; names of a model are hardly ever such."""


# An HTML page that loads nothing from elsewhere: its frame, its style and its script.


def whole_page(title: str, body: Iterable[str], *, script: str = "") -> str:
    """Return a page that follows the light or dark setting of its reader, at any width.

    Args:
        title: Its title, plain text.
        body: What it shows, as markup.
        script: The script at its end; without one the page may not run any.
    """
    policy = f"default-src 'none'; style-src {_INLINE}"
    policy += f"; script-src {_INLINE}" if script else ""
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{attribute(policy)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{text(title)}</title>",
            f"<style>\n{STYLE}</style>",
            "</head>",
            "<body>",
            *body,
            f'<p class="soft end">Written by kvtool {text(__version__)}.</p>',
            *([f"<script>\n{script}</script>"] if script else []),
            "</body>",
            "</html>",
        )
    )


_INLINE = "'unsafe-inline'"

STYLE = """\
:root {
  color-scheme: light dark;
  --page: #ffffff; --panel: #f6f8fa; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0;
  --accent: #0b62c4; --accent-soft: #ddecfb; --no: #9a3412; --yes: #1a7f37;
  --b0: #85b7eb; --b1: #5093da; --b2: #1f6fbf; --b3: #0b4482;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0d1117; --panel: #161b22; --ink: #e6edf3; --soft: #9198a1; --line: #30363d;
    --accent: #6cb2ff; --accent-soft: #12304f; --no: #f0a070; --yes: #4ac26b;
    --b0: #2f6fae; --b1: #4f94d8; --b2: #83baf0; --b3: #c3defa;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 1240px; padding: 24px 20px 64px;
  background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
h1 { font-size: 24px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 8px; }
p { margin: 4px 0 12px; max-width: 46rem; overflow-wrap: anywhere; }
.soft, figcaption { color: var(--soft); }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0 0; padding: 0; }
.tile {
  flex: 1 1 150px; background: var(--panel); border: 1px solid var(--line);
  border-radius: 8px; padding: 10px 14px;
}
.tile b { display: block; font-size: 20px; font-weight: 600; }
.tile span { color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; margin: 2px 0 14px; }
.bar { display: flex; margin: 4px 0 14px; height: 24px; line-height: 24px; }
.bar span { overflow: hidden; padding-left: min(6px, 1%); color: #fff; white-space: nowrap; }
table { border-collapse: collapse; font-size: 13px; min-width: 60%; }
th, td {
  text-align: left; padding: 5px 18px 5px 0; border-bottom: 1px solid var(--line);
  vertical-align: top;
}
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 12px; }
.number { text-align: right; white-space: nowrap; }
.whole { white-space: nowrap; }
.end { margin: 28px 0 0; }
.status { color: var(--yes); }
.status.different { color: var(--no); }
@media (max-width: 640px) {
  .narrow { min-width: 100%; }
  td { overflow-wrap: anywhere; }
  .whole { white-space: normal; }
  .wide, .wide tbody, .wide tr { display: block; }
  .wide thead { display: none; }
  .wide tr {
    background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
    padding: 6px 12px; margin: 0 0 8px;
  }
  .wide td {
    display: block; position: relative; padding: 2px 0 2px 105px; border: 0; text-align: left;
    white-space: normal;
  }
  .wide td:empty { display: none; }
  .wide td::before {
    content: attr(data-title); position: absolute; left: 0; color: var(--soft);
    font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  }
}
details { margin: 8px 0; }
summary { cursor: pointer; color: var(--accent); }
figure { margin: 20px 0; }
figcaption { font-size: 13px; margin-bottom: 6px; overflow-wrap: anywhere; }
.frame {
  overflow-x: auto; background: var(--panel); border: 1px solid var(--line);
  border-radius: 8px; padding: 8px;
}
svg { display: block; }
.graph { font: 11px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; margin: 0 auto; }
.graph text { text-anchor: middle; fill: var(--ink); }
.graph .name { fill: var(--soft); }
.graph rect { fill: var(--page); stroke: var(--line); stroke-width: 1.2; }
.graph .update rect { fill: var(--accent-soft); stroke: var(--accent); stroke-width: 2; }
.graph .update .op { font-weight: 700; }
.graph .output rect { stroke: var(--accent); }
.graph .initializer rect { stroke-dasharray: 4 3; }
.graph .edge { fill: none; stroke: var(--soft); stroke-width: 1.2; }
.graph .edge.cache { stroke: var(--accent); stroke-width: 2.6; }
.graph .tip.edge { fill: var(--soft); stroke: none; }
.graph .tip.edge.cache { fill: var(--accent); }
.plot { width: 100%; height: auto; font: 12px system-ui, sans-serif; }
.plot text { fill: var(--ink); }
.plot .tick { fill: var(--soft); font-size: 11px; }
.plot .grid { stroke: var(--line); stroke-width: 1; }
.plot polyline { fill: none; stroke-width: 2; }
.plot .allocated { stroke-dasharray: 5 4; }
.plot .batch0 polyline { stroke: var(--b0); }
.plot .batch1 polyline { stroke: var(--b1); }
.plot .batch2 polyline { stroke: var(--b2); }
.plot .batch3 polyline { stroke: var(--b3); }
.plot .line polyline { stroke: var(--b1); stroke-width: 1.5; }
.plot .line text { fill: var(--soft); }
.plot .chosen polyline { stroke: var(--accent); stroke-width: 3; }
.plot .chosen text { fill: var(--ink); font-weight: 600; }
.plot circle { fill: var(--accent); stroke: var(--page); stroke-width: 2; }
.sliders {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(250px, 1fr)); gap: 10px 28px;
  align-items: center; margin: 10px 4px 4px;
}
.sliders[hidden] { display: none; }
.sliders label {
  color: var(--soft); font-size: 13px; display: flex; align-items: center; gap: 8px;
}
.sliders label span { flex: 0 0 4.5em; }
.sliders label output { flex: 0 0 4.6em; text-align: right; color: var(--ink); }
.sliders input { flex: 1 1 80px; min-width: 0; accent-color: var(--accent); }
.sliders select {
  flex: 1 1 80px; min-width: 0; font: inherit; color: var(--ink); background: var(--page);
  border: 1px solid var(--line); border-radius: 6px; padding: 3px 6px;
}
#cost { grid-column: 1 / -1; font-weight: 600; }
output { font-variant-numeric: tabular-nums; }
"""

SCRIPT = """\
(function () {
  // A picture that is wider than the page is shown from where the cache is updated.
  for (const box of document.querySelectorAll(".graph .update")) {
    const frame = box.closest(".frame"), place = box.getBoundingClientRect();
    const middle = (place.left + place.right) / 2 - frame.getBoundingClientRect().left;
    frame.scrollLeft = middle - frame.clientWidth / 2;
  }
  const frame = document.getElementById("memory");
  if (!frame) return;
  const cost = JSON.parse(frame.dataset.cost), svg = frame.querySelector("svg");
  const get = (id) => document.getElementById(id);
  const bytes = (n) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = 0;
    while (n >= 1023.95 && unit < units.length - 1) { n /= 1024; unit += 1; }
    return n.toFixed(1).replace(/\\.0$/, "") + " " + units[unit];
  };
  const count = (n) => n.toLocaleString("en");
  // What is asked: a batch, rows, an element type.
  const asked = () => {
    const capacity = cost.capacities[+get("capacity").value];
    const tokens = Math.round(capacity * get("tokens").value / 1000);
    return { batch: cost.batches[+get("batch").value], capacity, tokens, bits: +get("type").value };
  };
  const rows = (piece, a) => {
    if (piece.rows === null) return a.capacity;
    if (a.capacity === cost.capacity) return piece.rows;
    return piece.window ? Math.min(piece.rows, a.capacity) : a.capacity;
  };
  const sum = (a, batch, each) => batch * cost.pieces.reduce(
    (all, p) => all + p.size * (a.bits ? a.bits / p.bits : 1) * each(p), 0);
  const allocated = (a, batch, t) => sum(a, batch, (p) => p.grows ? t : rows(p, a));
  const filled = (a, batch, t) => sum(a, batch, (p) => p.grows ? t : Math.min(t, rows(p, a)));
  const ticks = (most, base) => {
    let step = 1;
    if (base > 1) while (step * base <= most) step *= base;
    while (most / step > 5) step *= 2;
    while (most / step < 2.5 && step > 1) step /= 2;
    return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => step * i);
  };
  const make = (name, attributes, text) => {
    const element = document.createElementNS(svg.namespaceURI, name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const draw = (a) => {
    const style = getComputedStyle(frame);
    const padding = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
    const width = frame.clientWidth - padding;
    const height = Math.max(230, Math.min(380, width * 0.4));
    const left = 70, right = width - 74, top = 14, bottom = height - 42;
    const batches = a.batch > 8
      ? [8, 4, 2, 1].map((part) => Math.round(a.batch / part))
      : [...new Set([1, 2, 4, 8, a.batch])].sort((one, other) => one - other);
    const most = allocated(a, batches[batches.length - 1], a.capacity);
    const x = (t) => left + (right - left) * t / a.capacity;
    const y = (n) => bottom - (bottom - top) * n / most;
    const parts = [svg.querySelector("title")];
    const tick = (cx, cy, anchor, text) => parts.push(
      make("text", { class: "tick", x: cx, y: cy, "text-anchor": anchor }, text));
    for (const n of ticks(most, 1024)) {
      parts.push(make("line", { class: "grid", x1: left, x2: right, y1: y(n), y2: y(n) }));
      tick(left - 8, y(n) + 4, "end", bytes(n));
    }
    const across = ticks(a.capacity, 1);
    across.forEach((t, i) => {
      if (width < 480 && i % 2) return;
      tick(x(t), bottom + 18, "middle", count(t));
    });
    tick((left + right) / 2, height - 4, "middle", "tokens of a sequence");
    const points = (places) => places.map(([t, n]) => x(t) + "," + y(n)).join(" ");
    const bends = [0, a.capacity, ...cost.pieces.filter((p) => !p.grows).map((p) => rows(p, a))]
      .filter((t) => t <= a.capacity).sort((one, other) => one - other);
    let above = Infinity;
    for (const batch of [...batches].reverse()) {
      const group = make("g", { class: batch === a.batch ? "line chosen" : "line" });
      if (cost.pieces.some((p) => !p.grows)) {
        const ends = [0, a.capacity].map((t) => [t, allocated(a, batch, t)]);
        group.append(make("polyline", { class: "allocated", points: points(ends) }));
      }
      const line = bends.map((t) => [t, filled(a, batch, t)]);
      group.append(make("polyline", { class: "filled", points: points(line) }));
      const end = y(allocated(a, batch, a.capacity));
      const label = Math.max(end + 4, above === Infinity ? 0 : above + 14);
      above = label;
      group.append(make("text", { x: right + 8, y: label }, "batch " + count(batch)));
      parts.push(group);
    }
    parts.push(make("circle", { r: 5, cx: x(a.tokens), cy: y(filled(a, a.batch, a.tokens)) }));
    svg.setAttribute("viewBox", "0 0 " + width + " " + height);
    svg.replaceChildren(...parts);
  };
  const show = () => {
    const a = asked();
    const all = allocated(a, a.batch, a.tokens), used = filled(a, a.batch, a.tokens);
    get("batch-value").textContent = count(a.batch);
    get("capacity-value").textContent = count(a.capacity);
    get("tokens-value").textContent = count(a.tokens);
    get("cost").textContent = bytes(all) + " allocated, " + bytes(used) + " filled, "
      + bytes(all + cost.weights) + " with the weights";
    draw(a);
  };
  for (const id of ["batch", "capacity", "tokens", "type"]) get(id).addEventListener("input", show);
  new ResizeObserver(show).observe(frame);
  frame.querySelector(".sliders").hidden = false;
  show();
})();
"""
