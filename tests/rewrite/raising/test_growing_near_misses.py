"""Decoders that look like one another are raised to what is equal to each, whatever that is."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from tests.grids import part
from tests.rewrite.raising.brute_force import Arrays
from tests.rewrite.raising.growing_near_misses import NEAR_MISSES
from tests.rewrite.raising.growing_steps import PROMPT_STEPS_AND_CHUNK, ROWS, Decoder

CACHES = {"past_k": "present_k", "past_v": "present_v"}
BATCH = 3
STEPS = (2,) * 8
"""Steps of a fixed length, up to full caches."""


def source_of(name: str, *, fixed: bool) -> onnx.ModelProto:
    """Return the source, whose mask says that it is as long as the past and the new tokens."""
    text = NEAR_MISSES[name].text
    if fixed:
        text = text.replace("[B,", f"[{BATCH},").replace(",S", f",{STEPS[0]}")
    model = onnx.parser.parse_model(text)
    added = str(STEPS[0]) if fixed else "S"
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in ("M", "T"):
                dim.dim_param = f"P + {added}"
    onnx.checker.check_model(model, full_check=True)
    return model


def answers(model: onnx.ModelProto, plan: tuple[int, ...], batch: int) -> list[Arrays]:
    """Return the outputs of each step, and of caches the rows in use."""
    decoder = Decoder(model, CACHES, 2)
    for name in CACHES:
        shape = [batch, *decoder.inputs[name].shape[1:]]
        shape[2] = shape[2] if isinstance(shape[2], int) else 0
        decoder.caches[name] = np.zeros(shape, np.float32)
    rng, past, found = np.random.default_rng(3), 0, []
    for count in plan:
        total = past + count
        mask = np.ones((batch, total), np.int64)
        for row in range(batch):
            mask[row, :row] = 0  # on the left
        wide = (
            decoder.inputs["attention_mask"].shape[1] if "attention_mask" in decoder.inputs else 0
        )
        columns = wide if isinstance(wide, int) and wide else total
        positions = np.maximum(np.cumsum(mask, 1) - 1, 0)[:, past:]
        feeds: dict[str, Any] = {
            "attention_mask": np.pad(mask, ((0, 0), (0, columns - total)), constant_values=1),
            "position_ids": positions,
            "past_length": np.array([past]),
            "new_go": np.array(past % 2 == 0),
        }
        for name, rows in (("new_q", (4, 8)), ("new_k", (2, 8)), ("new_v", (2, 6))):
            shape = (batch, rows[0], count, rows[1])
            feeds[name] = rng.standard_normal(shape).astype(np.float32)
        step = decoder.step({k: v for k, v in feeds.items() if k in decoder.inputs})
        found.append({k: v[:, :, :total] if k in CACHES.values() else v for k, v in step.items()})
        past = total
    return found


def assert_equal(wanted: list[Arrays], got: list[Arrays]) -> None:
    """Compare all but the rows of padding, whose queries see no key."""
    first = 0
    for before, after in zip(wanted, got, strict=True):
        for name, expected in before.items():
            actual = after[name]
            assert actual.shape == expected.shape, name
            for row in range(len(expected) if name == "y" else 0):
                expected[row, :, : max(row - first, 0)] = 0
                actual[row, :, : max(row - first, 0)] = 0
            if name in CACHES.values():
                assert actual.tobytes() == expected.tobytes(), name
            else:
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5, err_msg=name)
        first += before["y"].shape[2]


@pytest.mark.long
@part(8)
@pytest.mark.parametrize("attention", ["auto", "full"])
@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_is_raised_is_equal(name: str, attention: str) -> None:
    miss, source = NEAR_MISSES[name], source_of(name, fixed=False)
    result, report = kv.raise_(
        source, capacity=ROWS, attention=attention, partial=True, verify=False
    )
    assert len(report.raised) == miss.raised
    assert sum(node.op_type == "Attention" for node in result.graph) == miss.fused
    for batch in (1, BATCH) if miss.raised or miss.fused else ():
        wanted, got = (
            answers(model, PROMPT_STEPS_AND_CHUNK, batch) for model in (source, ir.to_proto(result))
        )
        assert_equal(wanted, got)


@pytest.mark.long
@part(8)
@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_becomes_static_is_equal(name: str) -> None:
    miss, source = NEAR_MISSES[name], source_of(name, fixed=True)
    if not miss.static:
        with pytest.raises(kv.Refused):
            kv.raise_(source, capacity=ROWS, static=True, verify=False)
        return
    result, _ = kv.raise_(source, capacity=ROWS, static=True, verify=False)
    assert_equal(answers(source, STEPS, BATCH), answers(ir.to_proto(result), STEPS, BATCH))
