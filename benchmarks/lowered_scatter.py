"""Lowered TensorScatter beside the native kernel: 64 caches bound in place in onnxruntime.

Run it from the checkout:  python -m benchmarks.lowered_scatter [--steps N]

The sessions take turns step by step, so that noise hits all alike, and each step writes behind
the last one, as a decode loop does. Before each step other memory is read, as a decoder reads its
weights, so that the rows to write are not in the processor's cache; `--between 0` leaves that out
and measures the bare kernels, where a call of ScatterND costs about 0.2 microseconds more than one
of TensorScatter whatever the index is (1.13 to 1.20 at the first shape). Past and present of each
cache are bound to one buffer. The numbers are medians over the steps of (time of the lowered model
/ time of the native model).
"""

from __future__ import annotations

import argparse
import platform
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

import onnx_kvtool as kv
from benchmarks.decoders import scatter_bank

_CACHES = 64


@dataclass(frozen=True)
class Line:
    """One line of the table, with the ratio that ScatterND must not exceed."""

    name: str
    shape: tuple[int, int, int, int]
    length: int
    symbolic: bool
    mode: str
    limit: float


_LINES = [
    Line("decode, static", (1, 8, 512, 128), 1, False, "linear", 1.15),
    Line("decode, static", (4, 8, 256, 128), 1, False, "linear", 1.15),
    Line("decode, static", (1, 8, 512, 128), 1, False, "circular", 1.15),
    Line("decode, symbolic", (1, 8, 512, 128), 1, True, "linear", 1.3),
    Line("decode, symbolic", (4, 8, 256, 128), 1, True, "linear", 1.3),
    Line("decode, symbolic", (1, 8, 512, 128), 1, True, "circular", 1.3),
    Line("prefill, static", (1, 8, 512, 128), 128, False, "linear", 1.6),
    Line("prefill, symbolic", (1, 8, 512, 128), 128, True, "linear", 1.6),
]


class Bound:
    """A session whose caches are updated in place, step by step."""

    def __init__(self, model: bytes, line: Line, threads: int) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        batch, heads, _, size = line.shape
        rng = np.random.default_rng(0)
        self.start = ort.OrtValue.ortvalue_from_numpy(np.zeros(batch, np.int64))
        self.binding.bind_ortvalue_input("write_indices", self.start)
        self.buffers: list[Any] = []
        for i in range(_CACHES):
            past = ort.OrtValue.ortvalue_from_numpy(np.zeros(line.shape, np.float32))
            rows = rng.standard_normal((batch, heads, line.length, size)).astype(np.float32)
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


def _lowered(source: onnx.ModelProto, via: str) -> bytes:
    model, _ = kv.lower(ir.from_proto(source), only=["TensorScatter"], via=via, verify=False)
    return ir.to_proto(model).SerializeToString()


def measure(line: Line, steps: int, threads: int, between: int) -> dict[str, float]:
    """Return the median ratio to the native model of each lowered form, and `native` in us."""
    source = scatter_bank(_CACHES, line.shape, line.length, symbolic=line.symbolic, mode=line.mode)
    models = {
        "native": source.SerializeToString(),
        "scatternd": _lowered(source, "scatternd"),
        "scatterelements": _lowered(source, "scatterelements"),
    }
    bound = {name: Bound(model, line, threads) for name, model in models.items()}
    batch, _, capacity, _ = line.shape
    seconds: dict[str, list[float]] = {name: [] for name in bound}
    order = list(bound)
    weights = np.ones(between // 8)
    for step in range(steps):
        start = np.full(batch, step * line.length % (capacity - line.length), np.int64)
        for name in order:
            weights.sum()
            seconds[name].append(bound[name].step(start))
        order = order[1:] + order[:1]
    caches = {name: b.caches() for name, b in bound.items()}
    if len(set(caches.values())) != 1:
        raise SystemExit(f"the caches differ: {line}")
    native = np.array(seconds["native"])
    ratios = {name: float(np.median(np.array(s) / native)) for name, s in seconds.items()}
    return {**ratios, "native": float(np.median(native)) * 1e6}


def main() -> None:
    """Print the table; exit 1 when a ratio of the ScatterND form is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--between", type=int, default=32 << 20, help="bytes read before a step")
    arguments = parser.parse_args()
    print(f"onnxruntime {ort.__version__}, {arguments.threads} thread(s), {platform.machine()}")
    print(f"{_CACHES} caches, float32, past and present in one buffer; lowered / native")
    row = "{:18} {:9} {:20} {:>5} {:>10} {:>10} {:>6} {:>16}"
    heads = ["case", "mode", "(B, H, S, D)", "L", "native us", "ScatterND", "limit"]
    print(row.format(*heads, "ScatterElements"))
    failed = False
    for line in _LINES:
        steps = max(20, arguments.steps // line.length)
        found = measure(line, steps, arguments.threads, arguments.between)
        failed |= found["scatternd"] > line.limit
        print(
            row.format(
                line.name,
                line.mode,
                str(line.shape),
                line.length,
                f"{found['native']:.0f}",
                f"{found['scatternd']:.2f}",
                f"{line.limit:.2f}",
                f"{found['scatterelements']:.1f}",
            ),
            flush=True,
        )
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
