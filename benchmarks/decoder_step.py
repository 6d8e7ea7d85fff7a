"""A medium decoder, native beside lowered: a decode step and a prefill in onnxruntime.

4 layers, hidden size 512, 8 heads over 4 key/value heads, caches of 1024 rows, float32; past and
present of each cache are bound to one buffer. The sessions take turns step by step; the numbers
are medians over the steps of (time of the lowered model / time of the native model), where time is
that of the processor in the one thread there is, so that other work on the machine counts less.
"body" is the same lowering with Attention expanded by its schema's function body.

What remains far above 1 is a decode step over caches (B, S, KV * D) of unknown batch size, lowered
for no runtime in particular: a product needs the heads in front, so both caches are copied, 2 MB
per layer. Tried instead, in microseconds per layer and token, where native Attention takes 236 and
this form 365 (onnxruntime 1.31.1, one thread of an EPYC with 1 MB of L2): the copy as a Transpose
that moves nothing (257 for the copies alone) or as a Gather of rows (385 for them); all query heads
against the rows of all heads in one product (280 to 340), or laid out block by block in the query
(320), both KV times the arithmetic, which no prefill can hide; the rows read where they lie, as a
batch of one allows (214), and that in the branch of an If that asks for the batch size (250). The
last two are what kvtool writes where it may.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

import onnx_kvtool as kv
from benchmarks.decoders import decoder
from benchmarks.results import Cell, Line, Section, Table, ratio_cell
from benchmarks.session import session
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.lowering import attention

__all__ = ["DECODER_STEP"]

_HIDDEN, _HEADS, _KV_HEADS, _CAPACITY, _LAYERS = 512, 8, 4, 1024, 4
_DECODE, _PREFILL = 1, 128
_HELD = 18
"""Opset whose times are held against the targets."""


@dataclass(frozen=True)
class _Form:
    """One way to declare and lower the decoder.

    Attributes:
        name: What the table calls it.
        rank: Rank of the caches.
        batch: Batch size that the model declares; None for a name.
        target: Runtime that it is lowered for; None for no one in particular.
    """

    name: str
    rank: int
    batch: int | None
    target: str | None


_FORMS = (
    _Form("(B, KV, S, D)", 4, None, None),
    _Form("(1, S, KV * D)", 3, 1, None),
    _Form("(B, S, KV * D), --target onnxruntime", 3, None, "onnxruntime"),
    _Form("(B, S, KV * D)", 3, None, None),
)
_LIMITS = {_DECODE: 1.0, _PREFILL: 1.15}
"""By rows of a step, most that it may take, native being 1."""


class _Bound:
    """A session whose caches are updated in place, step by step."""

    def __init__(self, model: bytes, length: int, rank: int) -> None:
        self.session = session(model)
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
        """Write behind `start` and return the seconds that the processor worked on it."""
        positions = start + np.arange(self.length, dtype=np.int64)[None]
        self.values["position_ids"].update_inplace(positions)
        self.values["write_indices"].update_inplace(np.array([start], np.int64))
        self.values["nonpad_kv_seqlen"].update_inplace(np.array([start + self.length], np.int64))
        begin = time.thread_time()
        self.session.run_with_iobinding(self.binding)
        return time.thread_time() - begin


def _source(form: _Form) -> onnx.ModelProto:
    model = decoder(
        _LAYERS,
        hidden=_HIDDEN,
        heads=_HEADS,
        kv_heads=_KV_HEADS,
        capacity=_CAPACITY,
        rank=form.rank,
    )
    if form.batch is not None:
        for value in (*model.graph.input, *model.graph.output):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param == "batch":
                    dim.dim_value = form.batch
    return model


def _lowered(
    source: onnx.ModelProto, opset: int, target: str | None = None, *, body: bool = False
) -> bytes:
    forms = ("grouped_attention", "keep_with_mask") if body else ()
    with contextlib.ExitStack() as stack:
        for form in forms:  # without them Attention is left to its body
            stack.enter_context(mock.patch.object(attention, form, return_value=None))
        model, report = kv.lower(ir.from_proto(source), opset=opset, target=target, verify=False)
    if body and any(done.rule == "attention" for done in report.lowered):
        raise RuntimeError("Attention was lowered, expected the body of its schema")
    return serialize(model)


def measure(form: _Form, opset: int, length: int, steps: int) -> dict[str, float]:
    """Return the median ratios of `lowered` and `body` to the native model, and `native` in ms."""
    source = _source(form)
    models = {
        "native": source.SerializeToString(),
        "lowered": _lowered(source, opset, form.target),
        "body": _lowered(source, opset, body=True),
    }
    bound = {name: _Bound(model, length, form.rank) for name, model in models.items()}
    seconds: dict[str, list[float]] = {name: [] for name in bound}
    order = list(bound)
    for one in bound.values():  # the first steps allocate
        one.step(0), one.step(0)
    for step in range(steps):
        # How many rows are valid matters to none of them (onnxruntime 1.31.1).
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


_OPSETS = (23, 21, 18, 13)


def _case(form: _Form, length: int, opset: int) -> str:
    return (
        f"{'decode' if length == _DECODE else f'prefill of {length}'}, {form.name}, opset {opset}"
    )


def _lines(quick: bool) -> Iterator[Line]:
    for form, length, opset in _CASES:
        steps = (12 if quick else 150) if length == _DECODE else (6 if quick else 20)
        found = measure(form, opset, length, steps)
        yield Line(
            _case(form, length, opset),
            (
                Cell(f"{found['native']:.2f} ms"),
                ratio_cell(found["lowered"], _LIMITS[length] if opset == _HELD else None),
                ratio_cell(found["body"]),
                ratio_cell(found["lowered"] / found["body"], 1.0),
            ),
        )


_CASES = tuple(
    (form, length, opset) for form in _FORMS for length in (_DECODE, _PREFILL) for opset in _OPSETS
)

DECODER_STEP = Section(
    "decoder_step",
    "Lowered decoders",
    f"""\
A decoder of {_LAYERS} layers, hidden size {_HIDDEN}, {_HEADS} heads over {_KV_HEADS} key/value
heads and caches of {_CAPACITY} rows of float32, in onnxruntime on one thread; past and present of a
cache are one buffer, and almost full. The sessions take turns step by step, and a number is the
median of the ratios of their processor time. Each case says how the model declares its caches and,
where it is not for any runtime, what it is lowered for. The schema gives Attention a function body
of older operators, which is what a generic converter would write.""",
    (
        Table(
            "",
            "",
            (
                "step, caches",
                "native",
                "lowered / native",
                "with the function body of Attention / native",
                "lowered / function body",
            ),
            tuple(_case(*case) for case in _CASES),
            _lines,
        ),
    ),
)
"""The benchmark of a decoder."""
