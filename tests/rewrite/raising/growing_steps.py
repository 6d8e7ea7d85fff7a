"""A decoder whose caches grow beside its raised form, step by step, bit for bit.

Nothing of kvtool's own verification is used: onnxruntime runs both, without its optimiser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from tests.rewrite.raising.brute_force import Arrays, same_bits

PROMPT_STEPS_AND_CHUNK = (5, 1, 1, 1, 1, 1, 1, 1, 1, 3)
"""Tokens of each run: a prompt, eight steps, and a chunk in mid-sequence."""

ROWS = sum(PROMPT_STEPS_AND_CHUNK)

_CONTEXT = 7
"""Tokens of an encoder, for cross attention."""

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
}


@dataclass(slots=True)
class Decoder:
    """One of both models, with the caches that it was left with.

    Attributes:
        model: The model.
        pasts: Input and output of each cache that grows in the source.
        axis: The axis along which it does.
        caches: What it is fed next.
    """

    model: onnx.ModelProto
    pasts: Mapping[str, str]
    axis: int
    caches: Arrays = field(default_factory=dict)
    session: Any = None

    def __post_init__(self) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1  # others wait busily
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.session = ort.InferenceSession(
            self.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    @property
    def inputs(self) -> dict[str, Any]:
        """What onnxruntime says of each input."""
        return {value.name: value for value in self.session.get_inputs()}

    def begin(self, batch: int, rows: int) -> None:
        """Start with caches of zeros."""
        for name in self.pasts:
            value = self.inputs[name]
            shape = [batch if i == 0 else d for i, d in enumerate(value.shape)]
            shape[self.axis] = rows
            self.caches[name] = np.zeros(shape, _TYPES[value.type])

    def step(self, feeds: Arrays) -> Arrays:
        """Run one step and keep the caches."""
        names = [value.name for value in self.session.get_outputs()]
        fed = {k: v for k, v in {**feeds, **self.caches}.items() if k in self.inputs}
        options = ort.RunOptions()
        options.log_severity_level = 4
        found = dict(zip(names, self.session.run(names, fed, options), strict=True))
        self.caches.update({past: found[present] for past, present in self.pasts.items()})
        return found


def differences(
    source: onnx.ModelProto,
    raised: onnx.ModelProto,
    rows: int,
    batch: int,
    *,
    axis: int = 2,
    plan: Sequence[int] = PROMPT_STEPS_AND_CHUNK,
    seed: int = 0,
    tolerance: float = 0.0,
) -> list[str]:
    """Run both models over a prompt and steps, and return where they differ.

    Args:
        source: The model whose caches grow.
        raised: The same with caches of a fixed capacity.
        rows: That capacity.
        batch: Sequences; with several, each but the first has padding on the left.
        axis: The axis of the rows.
        plan: Tokens of each step.
        seed: Seed of what is drawn.
        tolerance: Largest difference of what is computed, for models that compute attention in
            another way; rows of padding, which see no key, are then left out. 0 for none.
    """
    pasts = pasts_of(source, raised, axis)
    growing, fixed = Decoder(source, pasts, axis), Decoder(raised, pasts, axis)
    growing.begin(batch, 0)
    fixed.begin(batch, rows)
    rng = np.random.default_rng(seed)
    context = _context(growing, rng, batch)
    padding = np.arange(batch) % 3
    found: list[str] = []
    past = 0
    for number, count in enumerate(plan):
        feeds = {**context, **_tokens(growing, rng, (batch, past, count), padding)}
        fixed_feeds = {**feeds, "past_length": np.asarray([past])}
        before, after = growing.step(feeds), fixed.step(fixed_feeds)
        past += count
        for name, expected in before.items():
            actual = after[name]
            if name in pasts.values():
                assert actual.shape[axis] == rows
                actual = np.ascontiguousarray(actual.take(range(past), axis))
            if tolerance:
                rows_at, first = (axis, 0) if name in pasts.values() else (1, past - count)
                same = _close(expected, actual, rows_at, padding - first, tolerance)
            else:
                same = same_bits(expected, actual)
            if not same:
                found.append(f"step {number}: `{name}`")
    return found


def _close(expected: Any, actual: Any, axis: int, padding: Sequence[int], tolerance: float) -> bool:
    """Compare rows along an axis but those of padding, which come first."""
    if len(expected) != len(padding):  # an output without sequences
        return same_bits(expected, actual)
    pairs = zip(np.moveaxis(expected, axis, 1), np.moveaxis(actual, axis, 1), padding, strict=True)
    return all(
        np.allclose(a[max(skip, 0) :], b[max(skip, 0) :], rtol=tolerance, atol=tolerance)
        for a, b, skip in pairs
    )


def pasts_of(source: onnx.ModelProto, raised: onnx.ModelProto, axis: int) -> dict[str, str]:
    """Return the caches whose size changes along the axis, each with its present."""

    def sizes(model: onnx.ModelProto) -> dict[str, Any]:
        values = [*model.graph.input, *model.graph.output]
        dims = {v.name: v.type.tensor_type.shape.dim for v in values}
        return {k: str(d[axis]) if len(d) > axis else "" for k, d in dims.items()}

    before, after = sizes(source), sizes(raised)
    changed = [name for name in before if before[name] != after[name]]
    inputs = [v.name for v in source.graph.input if v.name in changed]
    outputs = [v.name for v in source.graph.output if v.name in changed]
    assert inputs and len(inputs) == len(outputs)
    return dict(zip(inputs, outputs, strict=True))


def _context(decoder: Decoder, rng: np.random.Generator, batch: int) -> Arrays:
    """Return what an encoder gave: values that are the same in every step."""
    found: Arrays = {}
    for name, value in decoder.inputs.items():
        if "encoder" in name and name not in decoder.pasts:
            shape = [batch, *(_CONTEXT if isinstance(d, str) else d for d in value.shape[1:])]
            dtype = _TYPES[value.type]
            drawn = rng.standard_normal(shape) if dtype is np.float32 else np.ones(shape)
            found[name] = drawn.astype(dtype)
    return found


def _tokens(
    decoder: Decoder, rng: np.random.Generator, sizes: tuple[int, int, int], padding: Any
) -> Arrays:
    """Return what is new in a step: tokens or rows, a mask, positions, the branch to take."""
    batch, past, count = sizes
    mask = np.ones((batch, past + count), np.int64)
    for row, number in enumerate(padding):
        mask[row, :number] = 0
    positions = np.maximum(np.cumsum(mask, 1) - 1, 0)[:, past:]
    found: Arrays = {
        "input_ids": rng.integers(0, 60, (batch, count)),
        "attention_mask": mask,
        "position_ids": positions,
        "use_cache_branch": np.asarray([past > 0]),
    }
    for name, value in decoder.inputs.items():
        if name.startswith("new"):
            shape = [batch if d == "B" else count if d == "S" else d for d in value.shape]
            found[name] = rng.standard_normal(shape).astype(np.float32)
    return found
