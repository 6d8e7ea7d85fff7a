"""A hybrid decoder with operators of ONNX alone: prompts and steps, each feeding back its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.analysis.caches import find_caches
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.runtime.onnxruntime import Session
from tests.grids import part
from tests.hybrid_decoder import STATES, VOCABULARY, empty_states, hybrid_decoder
from tests.runtime.kernels.contrib.node import needs_onnxruntime

pytestmark = needs_onnxruntime

CHUNKS = (5, 1, 1)
RECURRENT = [name for name in STATES if name.startswith("past.")]
LIMITS = {np.float32: 1e-4, np.float16: 3e-2}


def lowered(dtype: Any, **options: Any) -> ir.Model:
    """Return the decoder with operators of ONNX alone, proven equal."""
    model, report = kv.lower(ir.from_proto(hybrid_decoder(dtype)), **options)
    assert report.verification.status == "equal", report.verification.detail
    assert {node.domain for node in model.graph.all_nodes()} == {""}
    onnx.checker.check_model(ir.to_proto(model))
    return model


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("opset", [18, 13])
@part(4)
def test_a_prompt_and_steps_are_equal(opset: int, dtype: Any) -> None:
    model = lowered(dtype, opset=opset, contrib="standard")
    assert model.opset_imports == {"": opset}
    talk(Session(serialize(model), ""), dtype)


def talk(result: Session, dtype: Any) -> None:
    """Demand the same answers and states as those of the decoder as it was, chunk by chunk."""
    source = Session(hybrid_decoder(dtype).SerializeToString(), "")
    rng = np.random.default_rng(5)
    for batch in (1, 2):
        held = [empty_states(batch, dtype) for _ in range(2)]
        total = 0
        for count in CHUNKS:
            total += count
            ids = rng.integers(0, VOCABULARY, (batch, count))
            mask = np.ones((batch, total), np.int64)
            for states, session in zip(held, (source, result), strict=True):
                found = session.run({"input_ids": ids, "attention_mask": mask, **states})
                for name in STATES:
                    after = name.replace("past_key_values", "present").replace("past", "present")
                    states[name] = found[after]
                states["logits"] = found["logits"]
            for name, value in held[0].items():
                other = held[1][name]
                assert (other.dtype, other.shape) == (value.dtype, value.shape), name
                assert np.allclose(other, value, LIMITS[dtype], LIMITS[dtype]), name
            for states in held:
                del states["logits"]


@pytest.mark.long
def test_states_are_no_caches_before_and_after() -> None:
    source = ir.from_proto(hybrid_decoder())
    assert {cache.past for cache in find_caches(source)} == STATES.keys() - set(RECURRENT)
    after = lowered(np.float32, opset=18, contrib="standard")
    assert not {cache.past for cache in find_caches(after)} & set(RECURRENT)


@pytest.mark.long
def test_its_cache_is_raised_and_its_states_stay() -> None:
    raised, report = kv.raise_(ir.from_proto(hybrid_decoder()), capacity=16)
    assert report.verification.status == "equal", report.verification.detail
    caches = {cache.past: cache.kind for cache in find_caches(raised)}
    assert caches == dict.fromkeys(STATES.keys() - set(RECURRENT), "tensor_scatter")
    names = [value.name for value in raised.graph.inputs]
    assert set(RECURRENT) <= set(names)


@pytest.mark.long
def test_a_step_of_one_token_needs_no_scan() -> None:
    dims = {"batch_size": 2, "sequence_length": 1}
    model, report = kv.lower(
        ir.from_proto(hybrid_decoder()), opset=18, contrib="standard", dims=dims
    )
    assert report.verification.status == "equal", report.verification.detail
    assert not [node for node in model.graph.all_nodes() if node.op_type in ("Scan", "Loop")]


@pytest.mark.long
def test_a_window_of_states_is_refused_by_its_name() -> None:
    source = ir.from_proto(hybrid_decoder(attributes={"state_window": 2}))
    with pytest.raises(kv.KvtoolError, match="`state_window`"):
        kv.lower(source, opset=18, contrib="standard", verify=False)
