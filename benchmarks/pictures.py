"""The two pictures that the README and the site open with: what an update does, what it is worth.

`python -m tests.pages` writes them to docs/images, from benchmarks/measured.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.growing_caches import CONTEXTS, SIZE
from benchmarks.store import Measured, load
from onnx_kvtool.core.words import binary_bytes

__all__ = ["FORMS", "Bar", "bars", "gains", "pictures", "row_bytes", "steps_svg", "update_svg"]

FORMS = (
    ("the growing model", "growing, as exported", "old"),
    ("`--attention auto`", "raised", "new"),
    ("`--attention auto`, lowered to 18", "raised, then lowered to opset 18", "lowered"),
)
"""Lines of the table of an export of PyTorch, what the plot calls them, and their colours."""

_STYLE = """\
  <style>
    .card { fill: #ffffff; stroke: #d1d9e0 }
    text { fill: #1f2328; font: 13px system-ui, -apple-system, "Segoe UI", sans-serif }
    .head { font-size: 15px; font-weight: 600 }
    .soft { fill: #59636e }
    .middle { text-anchor: middle }
    .end { text-anchor: end }
    .grid { stroke: #d1d9e0 }
    .old { fill: #c2561a }
    .new { fill: #0b62c4 }
    .lowered { fill: #5b9bd8 }
    .row { fill: #dbe3ea; stroke: #8c959f }
    .free { fill: none; stroke: #8c959f; stroke-dasharray: 3 3 }
    .arrow { stroke: #59636e; stroke-width: 1.5; fill: none }
    .tip { fill: #59636e }
    @media (prefers-color-scheme: dark) {
      .card { fill: #161b22; stroke: #30363d }
      text { fill: #e6edf3 }
      .soft { fill: #9198a1 }
      .grid { stroke: #30363d }
      .old { fill: #e8894f }
      .new { fill: #4f9bf5 }
      .lowered { fill: #9ccbff }
      .row { fill: #303a45; stroke: #6e7681 }
      .free { stroke: #6e7681 }
      .arrow { stroke: #9198a1 }
      .tip { fill: #9198a1 }
    }
  </style>
"""


def pictures() -> dict[str, str]:
    """Return both pictures, by the names of their files."""
    measured = load()
    return {"cache-update.svg": update_svg(measured), "decode-step.svg": steps_svg(measured)}


@dataclass(frozen=True, slots=True)
class Bar:
    """The step of a form behind so many tokens, in milliseconds."""

    form: str
    context: int
    milliseconds: float


def bars(measured: Measured) -> list[Bar]:
    """Return what the plot shows: the measured step of the source, and its ratios, in time."""
    lines = {line.case: line for line in measured.tables["growing_caches"][0]}
    source = [_number(cell.text) for cell in lines[FORMS[0][0]].cells[: len(CONTEXTS)]]
    found = []
    for case, *_ in FORMS:
        for place, context in enumerate(CONTEXTS):
            cell = lines[case].cells[place].text
            ratio = 1.0 if case == FORMS[0][0] else _number(cell)
            found.append(Bar(case, context, source[place] * ratio))
    return found


def _number(text: str) -> float:
    return float(text.removesuffix(" ms"))


def gains(loading: int, releases: int) -> str:
    """Return the table that the README and the site open with, as Markdown.

    Args:
        loading: How many of the releases load the source at opset 24 as it is.
        releases: How many releases run it after `lower`.
    """
    last = [bar for bar in bars(load()) if bar.context == CONTEXTS[-1]]
    before, raised, lowered = (f"{bar.milliseconds:.0f} ms" for bar in last)
    return (
        "| | before | after kvtool |\n| --- | --- | --- |\n"
        f"| one token behind {CONTEXTS[-1]:,} others, a decoder that PyTorch exported | {before} |"
        f" {raised} raised; {lowered} raised and lowered to opset 18 |\n"
        f"| releases of runtimes that run a Llama decoder of opset 24, of {releases} tried |"
        f" {loading} | {releases} |\n"
    )


def row_bytes() -> int:
    """Return the bytes of a new row in all caches of the decoder that is measured."""
    return SIZE.layers * 2 * SIZE.kv_heads * (SIZE.hidden // SIZE.heads) * 4


def steps_svg(measured: Measured) -> str:
    """Return the plot of a decode step: growing, raised, lowered."""
    width, height, left, bottom, top = 760, 340, 64, 270, 74
    shown = bars(measured)
    most = max(bar.milliseconds for bar in shown)
    step = 20
    full = (int(most / step) + 1) * step

    def y(milliseconds: float) -> float:
        return bottom - (bottom - top) * milliseconds / full

    parts = [_text(20, 30, "One decode step in onnxruntime", "head")]
    at = 20
    for _, name, color in FORMS:
        parts.append(f'<rect class="{color}" x="{at}" y="44" width="12" height="12" rx="2"/>')
        parts.append(_text(at + 18, 55, name))
        at += 46 + 7 * len(name)
    for tick in range(0, full + 1, step):
        parts.append(
            f'<line class="grid" x1="{left}" x2="{width - 20}" y1="{y(tick):.1f}"'
            f' y2="{y(tick):.1f}"/>'
        )
        parts.append(_text(left - 8, y(tick) + 4, f"{tick} ms", "soft end"))
    group = (width - 20 - left) / len(CONTEXTS)
    for number, context in enumerate(CONTEXTS):
        start = left + group * number + group / 2 - 105
        for place, (case, _, color) in enumerate(FORMS):
            (bar,) = (b for b in shown if (b.form, b.context) == (case, context))
            x, edge = start + 72 * place, y(bar.milliseconds)
            parts.append(
                f'<rect class="{color}" x="{x:.1f}" y="{edge:.1f}" width="66"'
                f' height="{bottom - edge:.1f}"/>'
            )
            parts.append(_text(x + 33, edge - 6, f"{bar.milliseconds:.1f}", "middle"))
        parts.append(_text(start + 105, bottom + 20, f"behind {context:,} tokens", "middle"))
    size = f"{SIZE.layers} layers, hidden size {SIZE.hidden}, {SIZE.heads} heads over"
    about = f"{size} {SIZE.kv_heads}, float32; processor time on one thread; a PyTorch export"
    parts.append(_text(20, height - 20, about, "soft"))
    alt = "A decode step takes less time with caches of fixed capacity: " + "; ".join(
        f"{name} {b.milliseconds:.1f} ms behind {b.context} tokens"
        for case, name, _ in FORMS
        for b in shown
        if b.form == case
    )
    return _svg(width, height, alt, parts)


def update_svg(measured: Measured) -> str:
    """Return the picture of an update: before, the cache grows; after, a row is written in it."""
    width, height = 760, 330
    tokens = CONTEXTS[-1]
    time = {b.form: b.milliseconds for b in bars(measured) if b.context == tokens}
    copied, new = binary_bytes(tokens * row_bytes()), binary_bytes(row_bytes())
    before = f"{copied} copied at each step behind {tokens:,} tokens; it takes "
    before += f"{time[FORMS[0][0]]:.1f} ms"
    after = f"{new} written at each step; with attention raised as well, it takes "
    after += f"{time[FORMS[1][0]]:.1f} ms"
    parts = [
        _text(20, 30, "Before: the cache grows by Concat", "head"),
        *_rows(20, 48, 8, "row"),
        _text(20, 92, "past", "soft"),
        *_rows(300, 48, 1, "old"),
        _text(300, 92, "new row", "soft"),
        _arrow(345, 61, 408),
        *_rows(420, 48, 9, "old"),
        _text(420, 92, "present: a new buffer, every row written", "soft"),
        _text(20, 126, before),
        f'<line class="grid" x1="20" x2="{width - 20}" y1="150" y2="150"/>',
        _text(20, 182, "After kvtool raise: TensorScatter into a cache of fixed capacity", "head"),
        *_rows(20, 200, 8, "row"),
        *_rows(20 + 8 * 30, 200, 1, "free"),
        *_rows(20 + 9 * 30, 200, 2, "free"),
        _text(20, 244, "past, with room", "soft"),
        _arrow(358, 213, 408),
        *_rows(420, 200, 8, "row"),
        *_rows(420 + 8 * 30, 200, 1, "new"),
        *_rows(420 + 9 * 30, 200, 1, "free"),
        _text(420, 244, "present: the same buffer, one row written", "soft"),
        _text(20, 278, after),
        _text(
            20,
            310,
            "kvtool lower writes the same update for older opsets and runtimes.",
            "soft",
        ),
    ]
    return _svg(width, height, f"{before}; {after}", parts)


def _rows(x: float, y: float, count: int, kind: str) -> Iterator[str]:
    for left in range(int(x), int(x) + 30 * count, 30):
        yield f'<rect class="{kind}" x="{left}" y="{y:g}" width="26" height="26" rx="3"/>'


def _arrow(x: float, y: float, end: float) -> str:
    return (
        f'<path class="arrow" d="M{x:g} {y:g}H{end - 6:g}"/>'
        f'<path class="tip" d="M{end:g} {y:g}l-9 -5v10z"/>'
    )


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f'<text{attribute} x="{x:.1f}" y="{y:.1f}">{text}</text>'


def _svg(width: int, height: int, alt: str, parts: Sequence[str]) -> str:
    body = "".join(f"  {part}\n" for part in parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
        f"  <title>{alt}</title>\n{_STYLE}"
        f'  <rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>\n'
        f"{body}</svg>\n"
    )
