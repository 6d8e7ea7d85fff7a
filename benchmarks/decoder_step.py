"""A medium decoder, native beside lowered: a decode step and a prefill in onnxruntime.

Run it from the checkout:  python -m benchmarks.decoder_step [--opset N ...] [--steps N]

4 layers, hidden size 512, 8 heads over 4 key/value heads, caches of 1024 rows, float32; past and
present of each cache are bound to one buffer. The sessions take turns step by step; the numbers
are medians over the steps of (time of the lowered model / time of the native model). "body" is
the same lowering with Attention expanded by its schema's function body.
"""

from __future__ import annotations

import argparse
import platform
import time
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

import onnx_kvtool as kv
from benchmarks.decoders import decoder
from onnx_kvtool.rewrite import engine
from onnx_kvtool.rewrite.lowering.table import LOWERINGS

_HIDDEN, _HEADS, _KV_HEADS, _CAPACITY, _LAYERS = 512, 8, 4, 1024, 4
_LIMITS = {(4, 1): 1.1, (4, 128): 1.3, (3, 1): 1.3, (3, 128): 1.3}


class Bound:
    """A session whose caches are updated in place, step by step."""

    def __init__(self, model: bytes, length: int, rank: int, threads: int) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        self.length = length
        rng = np.random.default_rng(0)
        hidden = rng.standard_normal((1, length, _HIDDEN)).astype(np.float32)
        self.values: dict[str, Any] = {
            "hidden_states": ort.OrtValue.ortvalue_from_numpy(hidden),
            "position_ids": ort.OrtValue.ortvalue_from_numpy(np.zeros((1, length), np.int64)),
            "write_indices": ort.OrtValue.ortvalue_from_numpy(np.zeros(1, np.int64)),
            "nonpad_kv_seqlen": ort.OrtValue.ortvalue_from_numpy(np.zeros(1, np.int64)),
        }
        for name, value in self.values.items():
            self.binding.bind_ortvalue_input(name, value)
        size = _HIDDEN // _HEADS
        dims = (1, _CAPACITY, _KV_HEADS * size) if rank == 3 else (1, _KV_HEADS, _CAPACITY, size)
        for layer in range(_LAYERS):
            for kind in ("key", "value"):
                rows = rng.standard_normal(dims).astype(np.float32)
                cache = ort.OrtValue.ortvalue_from_numpy(rows)
                self.binding.bind_ortvalue_input(f"past.{layer}.{kind}", cache)
                self.binding.bind_ortvalue_output(f"present.{layer}.{kind}", cache)
        last = self.session.get_outputs()[-1].name
        self.output = ort.OrtValue.ortvalue_from_numpy(np.zeros((1, length, _HIDDEN), np.float32))
        self.binding.bind_ortvalue_output(last, self.output)

    def step(self, start: int) -> float:
        """Write behind `start` and return the seconds it took."""
        positions = start + np.arange(self.length, dtype=np.int64)[None]
        self.values["position_ids"].update_inplace(positions)
        self.values["write_indices"].update_inplace(np.array([start], np.int64))
        self.values["nonpad_kv_seqlen"].update_inplace(np.array([start + self.length], np.int64))
        begin = time.perf_counter()
        self.session.run_with_iobinding(self.binding)
        return time.perf_counter() - begin


def _lowered(source: onnx.ModelProto, opset: int, *, body: bool = False) -> bytes:
    table = {op: line for op, line in LOWERINGS.items() if not (body and op == "Attention")}
    with mock.patch.object(engine, "LOWERINGS", table):
        model, _ = kv.lower(ir.from_proto(source), opset=opset, verify=False)
    return ir.to_proto(model).SerializeToString()


def measure(
    opsets: list[int], length: int, rank: int, steps: int, threads: int
) -> dict[str, float]:
    """Return the median ratio to the native model of each lowering, and `native` in ms."""
    source = decoder(
        _LAYERS, hidden=_HIDDEN, heads=_HEADS, kv_heads=_KV_HEADS, capacity=_CAPACITY, rank=rank
    )
    models = {"native": source.SerializeToString()}
    for opset in opsets:
        models[f"{opset}"] = _lowered(source, opset)
        models[f"{opset} body"] = _lowered(source, opset, body=True)
    bound = {name: Bound(model, length, rank, threads) for name, model in models.items()}
    seconds: dict[str, list[float]] = {name: [] for name in bound}
    order = list(bound)
    for step in range(steps):
        # Caches are mostly full, as the native kernel looks at valid rows only.
        start = _CAPACITY - length * (1 + step % 4)
        for name in order:
            seconds[name].append(bound[name].step(start))
        order = order[1:] + order[:1]
    native = np.array(seconds["native"])
    outputs = {name: b.output.numpy() for name, b in bound.items()}
    for name, output in outputs.items():
        if np.max(np.abs(output - outputs["native"])) > 1e-3:
            raise SystemExit(f"{name} differs from the native model")
    ratios = {name: float(np.median(np.array(s) / native)) for name, s in seconds.items()}
    return {**ratios, "native": float(np.median(native)) * 1e3}


def main() -> None:
    """Print the table; exit 1 when a ratio at opset 18 is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--opset", type=int, nargs="*", default=[23, 21, 18, 13])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    print(f"onnxruntime {ort.__version__}, {arguments.threads} thread(s), {platform.machine()}")
    failed = False
    for (rank, length), limit in _LIMITS.items():
        steps = arguments.steps if length == 1 else max(12, arguments.steps // 4)
        found = measure(arguments.opset, length, rank, steps, arguments.threads)
        native = found.pop("native")
        ratios = ", ".join(f"{name}: {ratio:.2f}" for name, ratio in found.items())
        case = f"caches of rank {rank}, {length} token(s)"
        print(f"{case}: native {native:.2f} ms; {ratios} (limit at 18: {limit})")
        failed |= found.get("18", 0.0) > limit
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
