"""Exports with a static cache, as they are and raised, decoding in place in onnxruntime.

Past and present of each cache are bound to one buffer, and the position goes up by one from step
to step. Both sessions take turns; a number is the median over the steps of (time of the export /
time of the raised model). The exports of `fixtures` have caches of 16 rows; below them stand their
cache updates alone, in the form that PyTorch's exporter writes, at the size of real decoders.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

import onnx_kvtool as kv
from benchmarks.results import Cell, Line, Section, Table, ratio_cell
from benchmarks.session import session
from onnx_kvtool.model_io.model import serialize

__all__ = ["RAISED_DECODER"]

_EXPORTS = Path(__file__).resolve().parents[1] / "fixtures" / "models" / "torch_static" / "hf"
_NAMES = ("llama_static__dynamo_op18", "llama_static__dynamo_op23", "llama_static__ts_op17")
_CACHES = 16
_SHAPES = ((1, 8, 512, 128), (1, 8, 2048, 128), (1, 4, 4096, 64))


def _exported_updates(shape: tuple[int, int, int, int]) -> onnx.ModelProto:
    """Return the updates of `_CACHES` caches (B, H, S, D), one row each, as they are exported."""
    batch, heads, capacity, size = shape
    cache, rows = (
        f"float[{batch}, {heads}, {capacity}, {size}]",
        f"float[{batch}, {heads}, 1, {size}]",
    )
    inputs = ["int64[1] cache_position"]
    outputs, nodes = (
        [],
        ["axis = Constant <value_ints = [-1]> () place = Unsqueeze (cache_position, axis)"],
    )
    for i in range(_CACHES):
        inputs += [f"{cache} past_{i}", f"{rows} new_{i}"]
        outputs.append(f"{cache} present_{i}")
        nodes.append(
            f"data_{i} = Transpose <perm = [2, 0, 1, 3]> (past_{i})"
            f"update_{i} = Transpose <perm = [2, 0, 1, 3]> (new_{i})"
            f"written_{i} = ScatterND (data_{i}, place, update_{i})"
            f"present_{i} = Transpose <perm = [1, 2, 0, 3]> (written_{i})"
        )
    text = f"updates ({', '.join(inputs)}) => ({', '.join(outputs)}) {{ {' '.join(nodes)} }}"
    return onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]>' + text)


class _Bound:
    """A session that decodes one token a step, with its caches updated in place."""

    def __init__(self, model: bytes) -> None:
        self.session = session(model)
        self.binding = self.session.io_binding()
        rng = np.random.default_rng(0)
        self.buffers: dict[str, Any] = {}
        for value in self.session.get_inputs():
            dims = [dim if isinstance(dim, int) else 1 for dim in value.shape]
            array = (
                np.zeros(dims, np.int64)
                if "int64" in value.type
                else rng.standard_normal(dims).astype(np.float32)
            )
            self.buffers[value.name] = ort.OrtValue.ortvalue_from_numpy(array)
            self.binding.bind_ortvalue_input(value.name, self.buffers[value.name])
        for value in self.session.get_outputs():
            past = value.name.removeprefix("updated_").replace("present", "past")
            if past in self.buffers:
                self.binding.bind_ortvalue_output(value.name, self.buffers[past])
            else:
                self.binding.bind_output(value.name)

    def step(self, position: int) -> float:
        """Decode one token; return the seconds it took."""
        self.buffers["cache_position"].update_inplace(np.array([position]))
        begin = time.perf_counter()
        self.session.run_with_iobinding(self.binding)
        return time.perf_counter() - begin

    def caches(self) -> dict[str, np.ndarray]:
        """Return what the caches hold."""
        return {n: v.numpy() for n, v in self.buffers.items() if "cache." in n or "past" in n}


_CASES = (*(f"`{name}`" for name in _NAMES), *(f"{_CACHES} updates of {s}" for s in _SHAPES))


def _models() -> Iterator[tuple[ir.Model, int]]:
    """Yield the model of each case, and the rows of its caches."""
    for name in _NAMES:
        yield kv.load(_EXPORTS / f"{name}.onnx"), 16
    for shape in _SHAPES:
        yield ir.from_proto(_exported_updates(shape)), shape[2]


def _ratio(model: ir.Model, capacity: int, steps: int) -> tuple[float, float]:
    """Return the median milliseconds of the raised model, and the median ratio.

    Raises:
        RuntimeError: If nothing was raised, or the caches differ after the last step.
    """
    raised, report = kv.raise_(model, assume=["contiguous"], verify=False)
    if not report.raised or report.refused:
        raise RuntimeError(f"not raised: {report.refused}")
    sessions = [_Bound(serialize(m)) for m in (model, raised)]
    times = []
    for step in range(steps + 3):
        order = sessions if step % 2 else sessions[::-1]
        took = {id(session): session.step(step % capacity) for session in order}
        times.append([took[id(session)] for session in sessions])
    first, second = (session.caches() for session in sessions)
    for name, cache in first.items():
        if not np.allclose(cache, second[name], rtol=1e-5, atol=1e-6):
            raise RuntimeError(f"the caches differ: {name}")
    measured = np.array(times[3:])
    return float(np.median(measured[:, 1])) * 1e3, float(np.median(measured[:, 0] / measured[:, 1]))


def _lines(quick: bool) -> Iterator[Line]:
    for case, (model, capacity) in zip(_CASES, _models(), strict=True):
        milliseconds, ratio = _ratio(model, capacity, 20 if quick else 100)
        yield Line(case, (Cell(f"{milliseconds:.3f} ms"), ratio_cell(ratio)))


RAISED_DECODER = Section(
    "raised_decoder",
    "Raised exports",
    f"""\
A decode step of exports with a static cache in onnxruntime on one thread, as they are and raised;
past and present of a cache are one buffer, and the position goes up by one from step to step. Both
take turns; a number is the median of the time of the export over that of the raised model, so that
more is better. The first are exports of `fixtures`, with caches of 16 rows; below them stand the
updates of {_CACHES} caches (B, H, S, D) alone, as PyTorch's exporter writes them, at the size of
real decoders.""",
    (Table("", "", ("model", "raised", "exported / raised"), _CASES, _lines),),
)
"""The benchmark of raised exports."""
