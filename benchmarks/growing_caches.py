"""Decoders with growing caches beside their forms with caches of fixed capacity, a decode step.

Run as `python -m benchmarks.growing_caches MODEL CONTEXT` it takes a few steps of one model, so
that its memory can be read off a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

import onnx_kvtool as kv
from benchmarks.growing_decoders import Pattern, Size, growing_decoder
from benchmarks.results import Cell, Line, Section, Table, ratio_cell
from benchmarks.session import session

__all__ = ["CONTEXTS", "GROWING_CACHES", "SIZE", "Stepping", "ratios", "saved"]

SIZE = Size(layers=6, hidden=1024, heads=16, kv_heads=4, positions=4352)
_CAPACITY = 4224
CONTEXTS = (256, 1024, 4096)
_LIMITS: Mapping[str, Mapping[int, float]] = {
    "`--attention auto`": {256: 0.95, 4096: 0.45},
    "`--attention full`": {4096: 0.40},
    "`--attention full`, lowered to 18": {4096: 0.35},
}
"""By form and context, the most that a step may take, that of the source being 1."""

_PROMPT, _BLOCK = 2048, 512
_PROMPTS: tuple[tuple[str, str, int, float | None], ...] = (
    ("GroupQueryAttention, all at once", "source", _PROMPT, None),
    (f"GroupQueryAttention, {_BLOCK} at a time", "source", _BLOCK, None),
    ("`--attention auto`, all at once", "`--attention auto`", _PROMPT, None),
    (f"`--attention auto`, {_BLOCK} at a time", "`--attention auto`", _BLOCK, 1.1),
    (f"`--static --phases prefill={_BLOCK}`, {_BLOCK} at a time", "static", _BLOCK, None),
)
"""What is measured of a prompt: the case, the form, tokens at a time, and the most it may take."""

_FORMS = (
    "`--attention keep`",
    "`--attention auto`",
    "`--attention full`",
    "`--attention auto`, lowered to 18",
    "`--attention full`, lowered to 18",
)
_CONTRIB = (
    "`--attention auto`",
    "`--attention full`",
    "`--attention auto`, lowered to 18",
    "`--attention full`, lowered to 18",
    "`--attention auto`, lowered to 13",
)


class Stepping:
    """A session that takes one token again and again, caches bound in place.

    Args:
        path: The model.
        fed: What its inputs are that are no caches, by name; some may be for other models.
        cache: Gives a cache before the step, from its number among the inputs and its shape.
        is_fixed: Whether the present of a cache goes into the buffer of the past.
    """

    def __init__(
        self,
        path: Path,
        fed: Mapping[str, np.ndarray],
        cache: Callable[[int, Sequence[int | str]], np.ndarray],
        is_fixed: Callable[[Sequence[int]], bool],
    ) -> None:
        self.session = session(str(path))
        self.binding = self.session.io_binding()
        self.buffers: dict[str, Any] = {}
        for number, value in enumerate(self.session.get_inputs()):
            array = fed[value.name] if value.name in fed else cache(number, value.shape)
            self.buffers[value.name] = ort.OrtValue.ortvalue_from_numpy(array)
            self.binding.bind_ortvalue_input(value.name, self.buffers[value.name])
        for value in self.session.get_outputs():
            past = self.buffers.get(value.name.replace("present", "past"))
            if value.name.startswith("present") and is_fixed(past.shape()):
                self.binding.bind_ortvalue_output(value.name, past)
            else:
                self.binding.bind_output(value.name)

    def step(self) -> float:
        """Take the token; return the seconds of processor time that it took."""
        begin = time.process_time()
        self.session.run_with_iobinding(self.binding)
        return time.process_time() - begin

    def result(self) -> np.ndarray:
        """Return what the last step gave."""
        return np.array(self.binding.get_outputs()[0].numpy())


def _stepping(path: Path, context: int) -> Stepping:
    """Return a session behind a context, as a host would drive it."""
    rng = np.random.default_rng(0)
    fed = {
        "hidden_states": rng.standard_normal((1, 1, SIZE.hidden)).astype(np.float32),
        "attention_mask": np.ones((1, context + 1), np.int64),
        "position_ids": np.full((1, 1), context, np.int64),
        "past_length": np.array([context], np.int64),
        "seqlens_k": np.array([context], np.int32),
        "total_sequence_length": np.array(context + 1, np.int32),
    }
    is_contrib = any(value.name == "seqlens_k" for value in session(str(path)).get_inputs())

    def cache(number: int, shape: Sequence[int | str]) -> np.ndarray:
        rows = _CAPACITY if is_contrib or isinstance(shape[2], int) else context
        array = np.zeros((1, SIZE.kv_heads, rows, SIZE.head), np.float32)
        in_use = 1, SIZE.kv_heads, context, SIZE.head
        drawn = np.random.default_rng(number)
        array[:, :, :context] = drawn.standard_normal(in_use).astype(np.float32)
        return array

    return Stepping(path, fed, cache, lambda shape: shape[2] == _CAPACITY)


def _written(directory: Path, pattern: Pattern, forms: tuple[str, ...]) -> dict[str, Path]:
    """Write a decoder and its forms."""
    source = growing_decoder(SIZE, pattern)
    found = {"source": saved(directory, "source", source)}
    for form in forms:
        attention, _, opset = form.replace("`", "").partition(", lowered to ")
        raised, report = kv.raise_(
            source, capacity=_CAPACITY, attention=attention.split()[1], verify=False
        )
        if report.refused:
            raise RuntimeError(f"not raised: {report.refused}")
        result = kv.lower(raised, opset=int(opset), verify=False)[0] if opset else raised
        found[form] = saved(directory, form, ir.to_proto(result))
    return found


def saved(directory: Path, form: str, model: onnx.ModelProto) -> Path:
    """Write a form of a model, and return where."""
    name = "".join(c if c.isalnum() else "_" for c in form)
    path = directory / f"{name}.onnx"
    onnx.save(model, path)
    return path


def ratios(
    sessions: Mapping[str, Stepping], rounds: int, where: str
) -> dict[str, tuple[float, float]]:
    """Return the median milliseconds of a step of each form, and the median ratio to the source.

    Args:
        sessions: The forms, `source` among them.
        rounds: How often each takes its turn.
        where: What is behind the step, for the error.

    Raises:
        RuntimeError: If a form computes something else.
    """
    times: dict[str, list[float]] = {form: [] for form in sessions}
    for number in range(rounds + 2):
        order = list(sessions) if number % 2 else list(reversed(sessions))
        for form in order:
            took = sessions[form].step()
            if number >= 2:
                times[form].append(took)
    expected = sessions["source"].result()
    for form, one in sessions.items():
        if not np.allclose(one.result(), expected, rtol=1e-3, atol=1e-3):
            raise RuntimeError(f"{form} computes something else behind {where}")
    source = np.array(times["source"])
    return {
        form: (float(np.median(took)) * 1e3, float(np.median(np.array(took) / source)))
        for form, took in times.items()
    }


def _ratios(paths: Mapping[str, Path], context: int, rounds: int) -> dict[str, tuple[float, float]]:
    sessions = {form: _stepping(path, context) for form, path in paths.items()}
    return ratios(sessions, rounds, f"{context} tokens")


def _memory(path: Path, context: int) -> float:
    """Return the peak memory of a process that takes a few steps, in MB."""
    command = [sys.executable, "-m", "benchmarks.growing_caches", str(path), str(context)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _table(
    paths: Mapping[str, Path],
    forms: tuple[str, ...],
    quick: bool,
    limits: Mapping[str, Mapping[int, float]],
) -> Iterator[Line]:
    rounds = 6 if quick else 40
    found = {context: _ratios(paths, context, rounds) for context in CONTEXTS}
    for form in ("source", *forms):
        cells = []
        for context in CONTEXTS:
            milliseconds, ratio = found[context][form]
            if form == "source":
                cells.append(Cell(f"{milliseconds:.1f} ms"))
            else:
                limit = limits.get(form, {}).get(context)
                what = f"a step behind {context} tokens, fixed / growing"
                cells.append(ratio_cell(ratio, limit, what=what))
        cells.append(Cell(f"{_memory(paths[form], CONTEXTS[-1]):.0f} MB"))
        yield Line(_case(form, forms), tuple(cells))


def _case(form: str, forms: tuple[str, ...]) -> str:
    if form != "source":
        return form
    return "the growing model" if forms is _FORMS else "GroupQueryAttention"


def _measured(
    pattern: Pattern, forms: tuple[str, ...], limits: Mapping[str, Mapping[int, float]]
) -> Callable[[bool], Iterator[Line]]:
    """Return what measures the forms of a decoder."""

    def measure(quick: bool) -> Iterator[Line]:
        with tempfile.TemporaryDirectory() as directory:
            yield from _table(_written(Path(directory), pattern, forms), forms, quick, limits)

    return measure


def _prompt(path: Path, block: int) -> tuple[float, np.ndarray]:
    """Return the processor seconds of a prompt that goes in block by block, and its last states."""
    run = session(str(path))
    states = np.random.default_rng(0).standard_normal((1, _PROMPT, SIZE.hidden), np.float32)
    binding = run.io_binding()
    for layer in range(SIZE.layers):
        for part in ("key", "value"):
            zeros = np.zeros((1, SIZE.kv_heads, _CAPACITY, SIZE.head), np.float32)
            cache = ort.OrtValue.ortvalue_from_numpy(zeros)
            binding.bind_ortvalue_input(f"past.{layer}.{part}", cache)
            binding.bind_ortvalue_output(f"present.{layer}.{part}", cache)
    binding.bind_output(run.get_outputs()[0].name)
    begin = time.process_time()
    for end in range(block, _PROMPT + 1, block):
        binding.bind_cpu_input("hidden_states", states[:, end - block : end])
        binding.bind_cpu_input("seqlens_k", np.array([end - 1], np.int32))
        binding.bind_cpu_input("total_sequence_length", np.array(end, np.int32))
        run.run_with_iobinding(binding)
    took = time.process_time() - begin
    return took, np.array(binding.get_outputs()[-1].numpy()[0, -1])


def _prompts(quick: bool) -> Iterator[Line]:
    """Measure a prompt of the decoder with GroupQueryAttention, and of its forms."""
    with tempfile.TemporaryDirectory() as directory:
        paths = _written(Path(directory), "contrib", ("`--attention auto`",))
        dims = {"batch_size": 1, "sequence_length": _BLOCK}
        static, _ = kv.raise_(
            paths["source"], capacity=_CAPACITY, static=True, dims=dims, verify=False
        )
        paths["static"] = saved(Path(directory), "static", ir.to_proto(static))
        times: dict[str, list[float]] = {case: [] for case, *_ in _PROMPTS}
        last: dict[str, np.ndarray] = {}
        for number in range(1 if quick else 7):
            for case, form, block, _ in _PROMPTS if number % 2 else reversed(_PROMPTS):
                took, last[case] = _prompt(paths[form], block)
                times[case].append(took)
        expected, source = last[_PROMPTS[0][0]], np.array(times[_PROMPTS[0][0]])
        for case, _, _, limit in _PROMPTS:
            if not np.allclose(last[case], expected, rtol=1e-3, atol=1e-3):
                raise RuntimeError(f"{case} computes something else")
            ratio = float(np.median(np.array(times[case]) / source))
            is_first = case == _PROMPTS[0][0]
            cell = Cell(f"{np.median(source):.2f} s") if is_first else ratio_cell(ratio, limit)
            yield Line(case, (cell,))


def main() -> None:
    """Take a few steps of one model, and print the peak memory of this process in MB."""
    stepping = _stepping(Path(sys.argv[1]), int(sys.argv[2]))
    for _ in range(4):
        stepping.step()
    # What getrusage says begins with the memory of the process that this one was forked from.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    print(int(peak.split()[1]) / 1024)


_COLUMNS = (*(f"{context} tokens" for context in CONTEXTS), "peak at 4096")

GROWING_CACHES = Section(
    "growing_caches",
    "Growing caches and fixed ones",
    f"""\
A decode step in onnxruntime on one thread, behind 256, 1024 and 4096 tokens: a decoder whose caches
grow by Concat and whose attention is decomposed, as exporters write it ({SIZE.layers} layers,
hidden size {SIZE.hidden}, {SIZE.heads} heads over {SIZE.kv_heads}, float32), and what
`kvtool raise --capacity {_CAPACITY}` makes of it. Caches of fixed capacity are bound in place;
grown ones are new at each step. All forms take turns; a number is the median of processor time over
that of the source in the same round. Peak memory is that of a process that takes four steps.""",
    (
        Table(
            "An export of PyTorch",
            "As PyTorch 2.13's exporter writes `scaled_dot_product_attention`, the default of"
            " transformers: the keys are turned as a tensor of rank 3, which onnxruntime does.",
            ("form", *_COLUMNS),
            ("the growing model", *_FORMS),
            _measured("pytorch", _FORMS, _LIMITS),
        ),
        Table(
            "An export of optimum",
            "As optimum 2.1 writes it: the keys are turned at rank 4, which onnxruntime leaves to"
            " the product, so that the growing model does less.",
            ("form", *_COLUMNS),
            ("the growing model", *_FORMS),
            _measured("optimum", _FORMS, {}),
        ),
        Table(
            "GroupQueryAttention",
            "The same decoder as onnxruntime-genai's model builder writes it, whose caches are"
            " written in place in the source as well.",
            ("form", *_COLUMNS),
            ("GroupQueryAttention", *_CONTRIB),
            _measured("contrib", _CONTRIB, {}),
        ),
        Table(
            f"A prompt of {_PROMPT:,} tokens",
            "The decoder with GroupQueryAttention again. Feed long prompts in blocks, as"
            " `kv.Decoder` does: an Attention computes the scores of all rows that its last token"
            " sees. GroupQueryAttention skips those that a token does not see. The static models of"
            " `--phases` are for compilers that need fixed sizes: each block reads all"
            f" {_CAPACITY:,} rows of the caches.",
            ("form", "the prompt"),
            tuple(case for case, *_ in _PROMPTS),
            _prompts,
        ),
    ),
)
"""The benchmark of raised growing caches."""

if __name__ == "__main__":
    main()
