"""One Attention in every form that the specification allows, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto as T
from onnx import helper

from tests.cache_models import model, value
from tests.naive_attention import Naive, naive_attention

__all__ = ["Case", "cases", "expected_of", "feeds_of", "model_of"]


@dataclass(frozen=True)
class Case:
    """One Attention: sizes, what is given, how its dimensions are declared, and for whom.

    `keys_known` declares the number of keys also where other dimensions are symbolic; `runtime`
    names the release that is written for; `narrow` is bfloat16, for opsets from 13 on; `missing`
    is by how many keys the mask is shorter than there are; `scores` is the mode of the scores that
    are an output, None without; `source` is the opset, 23 where neither windows, `nonpad` nor a
    short mask ask for more.
    """

    rank: int
    batch: int
    kv_heads: int
    group: int
    length: int
    total: int
    past: int
    size: int
    value_size: int
    nonpad: tuple[int, ...] | None
    mask: str | None
    missing: int
    causal: bool
    scale: float | None
    softcap: float
    left: int
    right: int
    symbolic: bool
    keys_known: bool
    opset: int
    runtime: str | None
    narrow: bool
    scores: int | None
    source: int
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw an Attention that the specification allows."""
    batch, length, total = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 7))
    cache = draw(st.sampled_from(["none", "nonpad", "past"]))
    nonpad = tuple(draw(st.lists(st.integers(0, total), min_size=batch, max_size=batch)))
    windows = draw(st.booleans())
    narrow = draw(st.sampled_from([False, False, True]))
    return Case(
        rank=draw(st.sampled_from([3, 4])),
        batch=batch,
        kv_heads=draw(st.integers(1, 2)),
        group=draw(st.integers(1, 3)),
        length=length,
        total=total,
        past=draw(st.integers(0, 3)) if cache == "past" else 0,
        size=draw(st.sampled_from([2, 5])),
        value_size=draw(st.sampled_from([2, 3])),
        nonpad=nonpad if cache == "nonpad" else None,
        mask=draw(st.sampled_from([None, "bool 2", "float 2", "float 4", "bool 4 heads"])),
        missing=draw(st.integers(0, total - 1)) if draw(st.booleans()) else 0,
        causal=draw(st.booleans()),
        scale=draw(st.sampled_from([None, 0.5])),
        softcap=draw(st.sampled_from([0.0, 0.0, 2.0])),
        left=draw(st.integers(-1, 3)) if windows else -1,
        right=draw(st.integers(-1, 3)) if windows else -1,
        symbolic=draw(st.booleans()),
        keys_known=draw(st.booleans()),
        runtime=draw(st.sampled_from([None, "onnxruntime"])),
        opset=draw(st.sampled_from([13, 15, 18, 22, 23] + [11, 12, 17] * (not narrow))),
        narrow=narrow,
        scores=draw(st.sampled_from([None, None, 0, 1, 2, 3])),
        source=draw(st.sampled_from([23, 24, 25])),
        seed=draw(st.integers(0, 2**16)),
    )


def feeds_of(case: Case) -> dict[str, np.ndarray]:
    """Return all inputs in their four-dimensional form."""
    rng = np.random.default_rng(case.seed)
    heads, new = case.kv_heads * case.group, case.total
    total = case.past + new

    def normal(*dims: int) -> np.ndarray:
        return rng.standard_normal(dims).astype(ml_dtypes.bfloat16 if case.narrow else np.float32)

    feeds = {
        "Q": normal(case.batch, heads, case.length, case.size),
        "K": normal(case.batch, case.kv_heads, new, case.size),
        "V": normal(case.batch, case.kv_heads, new, case.value_size),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "bool 2": (case.length, total),
        "float 2": (case.length, total),
        "float 4": (case.batch, 1, case.length, total),
        "bool 4 heads": (case.batch, heads, case.length, total),
    }
    if case.mask:
        mask = normal(*shapes[case.mask])[..., : total - missing_of(case)]
        feeds["attn_mask"] = mask > -0.5 if case.mask.startswith("bool") else mask
    if case.past:
        feeds["past_key"] = normal(case.batch, case.kv_heads, case.past, case.size)
        feeds["past_value"] = normal(case.batch, case.kv_heads, case.past, case.value_size)
    if case.nonpad is not None:
        feeds["nonpad_kv_seqlen"] = np.array(case.nonpad, np.int64)
    return feeds


def source_opset_of(case: Case) -> int:
    if case.left >= 0 or case.right >= 0:
        return 25
    return max(case.source, 24) if case.nonpad is not None else case.source


def missing_of(case: Case) -> int:
    """Return by how many keys the mask is shorter, which it may be from Attention-24 on."""
    return case.missing if source_opset_of(case) >= 24 else 0


def expected_of(case: Case, feeds: dict[str, np.ndarray]) -> Naive:
    """Return Y as (B, H, L, E), float64, and the scores."""
    if missing_of(case) and "attn_mask" in feeds:
        mask = feeds["attn_mask"]
        hidden = np.array(False if mask.dtype == bool else -np.inf).astype(mask.dtype)
        pads = [(0, 0)] * (mask.ndim - 1) + [(0, missing_of(case))]
        feeds = feeds | {"attn_mask": np.pad(mask, pads, constant_values=hidden)}
    return naive_attention(
        {n: f.astype(np.float32) if f.dtype == ml_dtypes.bfloat16 else f for n, f in feeds.items()},
        causal=case.causal,
        scale=case.scale,
        softcap=case.softcap,
        left=case.left,
        right=case.right,
    )


_ORDER = ["Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"]
_NAMES = {"Q": "L", "K": "S", "V": "S"}


def model_of(case: Case, feeds: dict[str, np.ndarray]) -> onnx.ModelProto:
    attributes: dict[str, Any] = {"is_causal": int(case.causal), "softcap": case.softcap}
    if case.rank == 3:
        attributes["q_num_heads"] = case.kv_heads * case.group
        attributes["kv_num_heads"] = case.kv_heads
    if case.scale is not None:
        attributes["scale"] = case.scale
    windows = case.left >= 0 or case.right >= 0
    if windows:
        attributes |= {"left_window_size": case.left, "right_window_size": case.right}
    inputs = []
    for name in (n for n in _ORDER if n in feeds):
        dims: list[Any] = list(feeds[name].shape)
        if case.symbolic:
            if name != "attn_mask" or len(dims) == 4:
                dims[0] = "B"
            if name == "Q" or (name in _NAMES and not case.keys_known):
                dims[1 if case.rank == 3 else 2] = _NAMES[name]
            if name == "attn_mask":
                whole = "M" if missing_of(case) else "S"
                dims[-2:] = ["L", dims[-1] if case.keys_known else whole]
            if name.startswith("past"):
                dims[2] = "P"
        inputs.append(value(name, helper.np_dtype_to_tensor_dtype(feeds[name].dtype), dims))
    names = [name if name in feeds else "" for name in _ORDER]
    while not names[-1]:
        names.pop()
    outputs = ["Y", "present_key", "present_value"] if case.past else ["Y"]
    if case.scores is not None:
        attributes["qk_matmul_output_mode"] = case.scores
        outputs += [""] * (3 - len(outputs)) + ["qk"]
    node = helper.make_node("Attention", names, outputs, name="attention", **attributes)
    rank4 = [None] * 4
    dtype = T.BFLOAT16 if case.narrow else T.FLOAT
    declared = [value("Y", dtype, [None] * case.rank)]
    declared += [value(name, dtype, rank4) for name in outputs[1:] if name]
    return model([node], inputs, declared, opset=source_opset_of(case))
