"""Decoders whose caches keep a window, beside their forms with circular caches, a decode step."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

import onnx_kvtool as kv
from benchmarks.growing_caches import Stepping, ratios, saved
from benchmarks.growing_decoders import Size, growing_decoder
from benchmarks.results import Cell, Line, Section, Table, ratio_cell

__all__ = ["ROLLING_WINDOWS"]

_WINDOWS = (1024, 4096)
_BEHIND = 100
"""Tokens before the step that no window holds any more."""

_SIZE = Size(layers=6, hidden=1024, heads=16, kv_heads=4, positions=4352)

_FORMS = (
    "`--attention keep`",
    "`--attention auto`",
    "`--attention full`",
    "`--attention auto`, lowered to 18",
)


def _written(directory: Path, window: int) -> dict[str, Path]:
    """Write a decoder and its forms."""
    source = growing_decoder(_SIZE, "optimum", window)
    found = {"source": saved(directory, f"source {window}", source)}
    for form in _FORMS:
        attention, _, opset = form.replace("`", "").partition(", lowered to ")
        raised, report = kv.raise_(
            source,
            capacity=2 * window,
            attention=attention.split()[1],
            assume=["rotated-rows"],
            verify=False,
        )
        if report.refused:
            raise RuntimeError(f"not raised: {report.refused}")
        result = kv.lower(raised, opset=int(opset), verify=False)[0] if opset else raised
        found[form] = saved(directory, f"{form} {window}", ir.to_proto(result))
    return found


def _stepping(path: Path, window: int) -> Stepping:
    """Return a session behind a full window, as a host would drive it."""
    tokens, kept = window + _BEHIND, window - 1
    fed: dict[str, np.ndarray] = {
        "hidden_states": np.random.default_rng(0)
        .standard_normal((1, 1, _SIZE.hidden))
        .astype(np.float32),
        "position_ids": np.full((1, 1), tokens, np.int64),
        "past_length": np.array([tokens], np.int64),
    }

    def cache(number: int, shape: Sequence[int | str]) -> np.ndarray:
        dims = 1, _SIZE.kv_heads, kept, _SIZE.head
        rows = np.random.default_rng(number).standard_normal(dims).astype(np.float32)
        if not isinstance(shape[2], int):
            return rows
        array = np.zeros((1, _SIZE.kv_heads, window, _SIZE.head), np.float32)
        array[:, :, np.arange(tokens - kept, tokens) % window] = rows
        return array

    return Stepping(path, fed, cache, lambda shape: shape[2] == window)


def _measure(quick: bool) -> Iterator[Line]:
    found = {}
    for window in _WINDOWS:
        with tempfile.TemporaryDirectory() as directory:
            paths = _written(Path(directory), window)
            sessions = {form: _stepping(path, window) for form, path in paths.items()}
            found[window] = ratios(sessions, 6 if quick else 40, f"a window of {window}")
    for form in ("source", *_FORMS):
        cells = []
        for window in _WINDOWS:
            milliseconds, ratio = found[window][form]
            what = f"a step behind a window of {window} tokens, circular / rolling"
            is_source = form == "source"
            cells.append(
                Cell(f"{milliseconds:.1f} ms") if is_source else ratio_cell(ratio, what=what)
            )
        yield Line("the rolling model" if form == "source" else form, tuple(cells))


ROLLING_WINDOWS = Section(
    "rolling_windows",
    "Rolling windows and circular caches",
    f"""\
A decode step in onnxruntime on one thread, behind full windows: a decoder whose caches keep the
last rows of Concat, as transformers' sliding caches do ({_SIZE.layers} layers, hidden size
{_SIZE.hidden}, {_SIZE.heads} heads over {_SIZE.kv_heads}, float32), and what
`kvtool raise --capacity N --assume rotated-rows` makes of it. Circular caches are bound in place.
All forms take turns; a number is the median of processor time over that of the source in the same
round.""",
    (
        Table(
            "",
            "",
            ("form", *(f"{window} tokens" for window in _WINDOWS)),
            ("the rolling model", *_FORMS),
            _measure,
        ),
    ),
)
"""The benchmark of raised rolling windows."""
