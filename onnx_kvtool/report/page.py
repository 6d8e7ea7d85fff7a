"""The style and the script of an HTML page, which load nothing from elsewhere."""

from __future__ import annotations

__all__ = ["SCRIPT", "STYLE"]

STYLE = """\
:root {
  color-scheme: light dark;
  --page: #ffffff; --panel: #f6f8fa; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0;
  --accent: #0b62c4; --accent-soft: #ddecfb; --no: #9a3412;
  --b0: #85b7eb; --b1: #5093da; --b2: #1f6fbf; --b3: #0b4482;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0d1117; --panel: #161b22; --ink: #e6edf3; --soft: #9198a1; --line: #30363d;
    --accent: #6cb2ff; --accent-soft: #12304f; --no: #f0a070;
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
p { margin: 4px 0 12px; max-width: 46rem; }
.soft, figcaption { color: var(--soft); }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0 0; padding: 0; }
.tile {
  flex: 1 1 150px; background: var(--panel); border: 1px solid var(--line);
  border-radius: 8px; padding: 10px 14px;
}
.tile b { display: block; font-size: 20px; font-weight: 600; }
.tile span { color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; min-width: 60%; }
th, td {
  text-align: left; padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line);
  white-space: nowrap; vertical-align: top;
}
th { color: var(--soft); font-weight: 600; }
td { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 12px; }
td:last-child { white-space: normal; min-width: 16rem; }
.number { text-align: right; }
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
.plot { width: 100%; max-width: 760px; height: auto; font: 12px system-ui, sans-serif; }
.plot text { fill: var(--ink); }
.plot .tick { fill: var(--soft); font-size: 11px; }
.plot .grid { stroke: var(--line); stroke-width: 1; }
.plot polyline { fill: none; stroke-width: 2; }
.plot .allocated { stroke-dasharray: 5 4; }
.plot .batch0 polyline { stroke: var(--b0); }
.plot .batch1 polyline { stroke: var(--b1); }
.plot .batch2 polyline { stroke: var(--b2); }
.plot .batch3 polyline { stroke: var(--b3); }
.plot circle { fill: var(--accent); stroke: var(--page); stroke-width: 2; }
.sliders { display: flex; flex-wrap: wrap; gap: 8px 28px; align-items: center; margin: 8px 0; }
.sliders label { color: var(--soft); font-size: 13px; }
.sliders input { vertical-align: middle; width: 200px; accent-color: var(--accent); }
output { font-variant-numeric: tabular-nums; }
"""

SCRIPT = """\
(function () {
  const plot = document.getElementById("memory");
  if (!plot) return;
  const shares = JSON.parse(plot.dataset.shares), axes = JSON.parse(plot.dataset.axes);
  const batch = document.getElementById("batch"), tokens = document.getElementById("tokens");
  const bytes = (n) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = 0;
    while (n >= 1023.95 && unit < units.length - 1) { n /= 1024; unit += 1; }
    return n.toFixed(1).replace(/\\.0$/, "") + " " + units[unit];
  };
  const sum = (rows) => shares.reduce(
    (all, [size, capacity, fixed]) => all + size * rows(capacity) * (fixed || +batch.value), 0);
  const show = () => {
    const t = +tokens.value;
    const filled = sum((c) => c === null ? t : Math.min(t, c));
    const allocated = sum((c) => c === null ? t : c);
    document.getElementById("batch-value").textContent = batch.value;
    document.getElementById("tokens-value").textContent = t.toLocaleString("en");
    document.getElementById("cost").textContent =
      bytes(allocated) + " allocated, " + bytes(filled) + " filled";
    const marker = document.getElementById("marker");
    marker.setAttribute("cx", axes.x0 + (axes.x1 - axes.x0) * t / axes.tokens);
    marker.setAttribute("cy", axes.y0 + (axes.y1 - axes.y0) * Math.min(1, filled / axes.bytes));
  };
  batch.addEventListener("input", show);
  tokens.addEventListener("input", show);
  document.querySelector(".sliders").hidden = false;
  show();
})();
"""
