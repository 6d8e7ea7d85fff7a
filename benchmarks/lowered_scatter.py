"""Lowered TensorScatter beside the native kernel: 64 caches bound in place in onnxruntime.

The sessions take turns step by step, so that noise hits all alike, and each step writes behind
the last one, as a decode loop does. Before each step other memory is read, as a decoder reads its
weights, so that the rows to write are not in the processor's cache; with nothing between the steps
(`_BETWEEN` at 0) the bare kernels are measured, where a call of ScatterND costs about 0.2
microseconds more than one of TensorScatter whatever the index is (1.13 to 1.20 at the first shape).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

import onnx_kvtool as kv
from benchmarks.decoders import scatter_bank
from benchmarks.results import Cell, Line, Section, Table, ratio_cell
from benchmarks.session import session
from onnx_kvtool.model_io.model import serialize

__all__ = ["LOWERED_SCATTER"]

_CACHES = 64
_BETWEEN = 32 << 20
"""Bytes read before a step."""


@dataclass(frozen=True)
class _Bank:
    """Caches and an update, with the ratio that ScatterND must not exceed."""

    name: str
    shape: tuple[int, int, int, int]
    length: int
    symbolic: bool
    mode: str
    limit: float

    @property
    def case(self) -> str:
        """What the table calls it."""
        rows = "1 row" if self.length == 1 else f"{self.length} rows"
        return f"{self.name}, {self.mode}, {self.shape}, {rows}"


_BANKS = (
    _Bank("decode, static", (1, 8, 512, 128), 1, False, "linear", 1.15),
    _Bank("decode, static", (4, 8, 256, 128), 1, False, "linear", 1.15),
    _Bank("decode, static", (1, 8, 512, 128), 1, False, "circular", 1.15),
    _Bank("decode, symbolic", (1, 8, 512, 128), 1, True, "linear", 1.3),
    _Bank("decode, symbolic", (4, 8, 256, 128), 1, True, "linear", 1.3),
    _Bank("decode, symbolic", (1, 8, 512, 128), 1, True, "circular", 1.3),
    _Bank("prefill, static", (1, 8, 512, 128), 128, False, "linear", 1.6),
    _Bank("prefill, symbolic", (1, 8, 512, 128), 128, True, "linear", 1.6),
)


class _Bound:
    """A session whose caches are updated in place, step by step."""

    def __init__(self, model: bytes, bank: _Bank) -> None:
        self.session = session(model)
        self.binding = self.session.io_binding()
        batch, heads, _, size = bank.shape
        rng = np.random.default_rng(0)
        self.start = ort.OrtValue.ortvalue_from_numpy(np.zeros(batch, np.int64))
        self.binding.bind_ortvalue_input("write_indices", self.start)
        self.buffers: list[Any] = []
        for i in range(_CACHES):
            past = ort.OrtValue.ortvalue_from_numpy(np.zeros(bank.shape, np.float32))
            rows = rng.standard_normal((batch, heads, bank.length, size)).astype(np.float32)
            new = ort.OrtValue.ortvalue_from_numpy(rows)
            self.binding.bind_ortvalue_input(f"past.{i}", past)
            self.binding.bind_ortvalue_input(f"new.{i}", new)
            self.binding.bind_ortvalue_output(f"present.{i}", past)
            self.buffers += [past, new]

    def step(self, start: np.ndarray) -> float:
        """Write at `start` and return the seconds it took."""
        self.start.update_inplace(start)
        begin = time.perf_counter()
        self.session.run_with_iobinding(self.binding)
        return time.perf_counter() - begin

    def caches(self) -> bytes:
        """Return all caches as they are now."""
        return b"".join(b.numpy().tobytes() for b in self.buffers[::2])


def _lowered(source: onnx.ModelProto, via: Literal["scatternd", "scatterelements"]) -> bytes:
    model, _ = kv.lower(ir.from_proto(source), only=["TensorScatter"], via=via, verify=False)
    return serialize(model)


def _measure(bank: _Bank, steps: int) -> dict[str, float]:
    """Return the median ratio to the native model of each lowered form, and `native` in us.

    Raises:
        RuntimeError: If the caches differ after the last step.
    """
    source = scatter_bank(_CACHES, bank.shape, bank.length, symbolic=bank.symbolic, mode=bank.mode)
    models = {
        "native": source.SerializeToString(),
        "scatternd": _lowered(source, "scatternd"),
        "scatterelements": _lowered(source, "scatterelements"),
    }
    bound = {name: _Bound(model, bank) for name, model in models.items()}
    batch, _, capacity, _ = bank.shape
    seconds: dict[str, list[float]] = {name: [] for name in bound}
    order = list(bound)
    weights = np.ones(_BETWEEN // 8)
    for step in range(steps):
        start = np.full(batch, step * bank.length % (capacity - bank.length), np.int64)
        for name in order:
            weights.sum()
            seconds[name].append(bound[name].step(start))
        order = order[1:] + order[:1]
    caches = {name: b.caches() for name, b in bound.items()}
    if len(set(caches.values())) != 1:
        raise RuntimeError(f"the caches differ: {bank.case}")
    native = np.array(seconds["native"])
    ratios = {name: float(np.median(np.array(s) / native)) for name, s in seconds.items()}
    return {**ratios, "native": float(np.median(native)) * 1e6}


def _lines(quick: bool) -> Iterator[Line]:
    for bank in _BANKS:
        found = _measure(bank, max(20, (40 if quick else 400) // bank.length))
        yield Line(
            bank.case,
            (
                Cell(f"{found['native']:.0f} µs"),
                ratio_cell(found["scatternd"], bank.limit),
                ratio_cell(found["scatterelements"]),
            ),
        )


LOWERED_SCATTER = Section(
    "lowered_scatter",
    "Lowered cache updates",
    f"""\
{_CACHES} caches of float32, (B, H, S, D), each updated by one TensorScatter or by what kvtool
lowers it to, in onnxruntime on one thread; past and present of a cache are one buffer. The forms
take turns step by step, and other memory is read between, as a decoder reads its weights.
Numbers are medians of the time over that of the native model. `symbolic` leaves the batch and the
rows open. The caches are compared bit for bit.""",
    (
        Table(
            "",
            "",
            ("caches", "native", "ScatterND / native", "ScatterElements / native"),
            tuple(bank.case for bank in _BANKS),
            _lines,
        ),
    ),
)
"""The benchmark of TensorScatter alone."""
