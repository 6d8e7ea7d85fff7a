"""Lowered Attention against an oracle that was written from the text of onnx 1.23.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import TensorProto as T
from onnx import helper

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.core.model import serialize
from onnx_kvtool.runtime import onnxruntime, reference
from tests.cache_models import model, value
from tests.grids import search
from tests.naive_attention import Naive, flat, naive_attention


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


def _feeds(case: Case) -> dict[str, np.ndarray]:
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
        mask = normal(*shapes[case.mask])[..., : total - _missing(case)]
        feeds["attn_mask"] = mask > -0.5 if case.mask.startswith("bool") else mask
    if case.past:
        feeds["past_key"] = normal(case.batch, case.kv_heads, case.past, case.size)
        feeds["past_value"] = normal(case.batch, case.kv_heads, case.past, case.value_size)
    if case.nonpad is not None:
        feeds["nonpad_kv_seqlen"] = np.array(case.nonpad, np.int64)
    return feeds


def _source_opset(case: Case) -> int:
    if case.left >= 0 or case.right >= 0:
        return 25
    return max(case.source, 24) if case.nonpad is not None else case.source


def _missing(case: Case) -> int:
    """Return by how many keys the mask is shorter, which it may be from Attention-24 on."""
    return case.missing if _source_opset(case) >= 24 else 0


def _expected(case: Case, feeds: dict[str, np.ndarray]) -> Naive:
    """Return Y as (B, H, L, E), float64, and the scores."""
    if _missing(case) and "attn_mask" in feeds:
        mask = feeds["attn_mask"]
        hidden = np.array(False if mask.dtype == bool else -np.inf).astype(mask.dtype)
        pads = [(0, 0)] * (mask.ndim - 1) + [(0, _missing(case))]
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


def _model(case: Case, feeds: dict[str, np.ndarray]) -> onnx.ModelProto:
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
                whole = "M" if _missing(case) else "S"
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
    return model([node], inputs, declared, opset=_source_opset(case))


_NO_VALID_KEY_BEHIND_A_RIGHT_WINDOW = Case(
    rank=3,
    batch=1,
    kv_heads=1,
    group=1,
    length=1,
    total=1,
    past=0,
    size=2,
    value_size=2,
    nonpad=(0,),
    mask=None,
    missing=0,
    causal=False,
    scale=None,
    softcap=0.0,
    left=-1,
    right=1,
    symbolic=False,
    keys_known=True,
    opset=11,
    runtime=None,
    narrow=False,
    scores=None,
    source=24,
    seed=0,
)


@search(300)
@given(cases())
@example(_NO_VALID_KEY_BEHIND_A_RIGHT_WINDOW)
def test_every_attention_equals_the_text(case: Case) -> None:
    """Grouped heads, caches, masks, windows, softcap, both layouts, at every kind of target."""
    feeds = _feeds(case)
    naive = _expected(case, feeds)
    expected = naive.y
    if case.rank == 3:
        feeds |= {name: flat(feeds[name]) for name in "QKV"}
        expected = flat(expected)
    source = _model(case, feeds)
    result, report = lower(
        ir.from_proto(source), opset=case.opset, target=case.runtime, verify=False
    )
    assert not report.refused
    onnx.checker.check_model(ir.to_proto(result), full_check=True)
    # A node that stays an Attention is asked of the reference runtime: onnxruntime 1.31.1 lets a
    # single causal query see keys behind it where past and several new keys are given. Products of
    # bfloat16 it has none.
    kept = any(node.op_type == "Attention" for node in result.graph)
    runtime = reference if kept or case.narrow else onnxruntime
    actual = runtime.Session(serialize(result), "").run(feeds)
    assert actual["Y"].shape == expected.shape
    assert actual["Y"].dtype == feeds["Q"].dtype
    rtol, atol = (2**-5, 2**-5) if case.narrow else (1e-4, 1e-5)
    np.testing.assert_allclose(actual["Y"].astype(np.float32), expected, rtol=rtol, atol=atol)
    if case.scores is not None:
        scores = naive.scores[case.scores]
        assert actual["qk"].shape == scores.shape
        np.testing.assert_allclose(actual["qk"].astype(np.float32), scores, rtol=rtol, atol=atol)
    if case.past:
        present = np.concatenate([feeds["past_key"], _feeds(case)["K"]], axis=2)
        assert actual["present_key"].tobytes() == present.tobytes()


_BASE: dict[str, Any] = {
    "rank": 3,
    "batch": 2,
    "kv_heads": 2,
    "group": 3,
    "length": 4,
    "total": 7,
    "past": 0,
    "size": 5,
    "value_size": 3,
    "nonpad": (4, 7),
    "mask": None,
    "missing": 0,
    "causal": True,
    "scale": None,
    "softcap": 0.0,
    "left": -1,
    "right": -1,
    "symbolic": True,
    "keys_known": False,
    "opset": 18,
    "runtime": None,
    "narrow": False,
    "scores": None,
    "source": 24,
    "seed": 1,
}


def _lowered(opset: int = 18, **changes: Any) -> tuple[ir.Model, list[str | None]]:
    case = Case(**{**_BASE, **changes, "opset": opset})
    feeds = _feeds(case)
    if case.rank == 3:
        feeds |= {name: flat(feeds[name]) for name in "QKV"}
    result, report = lower(
        ir.from_proto(_model(case, feeds)), opset=opset, target=case.runtime, verify=False
    )
    return result, [done.via for done in report.lowered]


@pytest.mark.parametrize(
    ("opset", "changes", "via"),
    [
        (18, {}, "grouped"),
        (18, {"rank": 4}, "grouped"),
        (18, {"mask": "float 2"}, "grouped"),
        (18, {"mask": "float 2", "missing": 2}, "grouped"),
        (11, {"mask": "bool 4 heads", "group": 1, "missing": 2}, "grouped"),
        (18, {"mask": "bool 4 heads"}, "grouped"),
        (18, {"mask": "float 2", "nonpad": None, "source": 23}, "grouped"),
        (18, {"mask": "float 2", "nonpad": None, "past": 2}, "grouped"),
        (18, {"mask": "bool 4 heads", "nonpad": None, "past": 2, "missing": 3}, "grouped"),
        (18, {"left": 2, "right": 0, "nonpad": None, "past": 2}, "grouped"),
        *(
            (18, {"scores": mode, "softcap": 2.0, "mask": "float 4"}, "grouped")
            for mode in range(4)
        ),
        (18, {"mask": "bool 4 heads", "group": 1}, "grouped"),
        (18, {"nonpad": None, "past": 2}, "grouped"),
        (18, {"narrow": True}, "grouped"),
        (13, {"narrow": True}, "grouped"),
        (23, {}, "mask"),
        (23, {"mask": "bool 4 heads"}, "mask"),
        (23, {"left": 2, "nonpad": None}, "mask"),
        (23, {"left": 2, "nonpad": None, "past": 2}, "grouped"),
    ],
)
def test_form(opset: int, changes: dict[str, Any], via: str | None) -> None:
    """Which form is chosen; nothing that the text allows is left to the schema's function body."""
    _, forms = _lowered(opset, **changes)
    assert forms == [via]


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("opset", [11, 18])
def test_keys_and_values_are_never_repeated(rank: int, opset: int) -> None:
    result, _ = _lowered(opset, rank=rank)
    ops = [node.op_type for node in result.graph]
    assert "Expand" not in ops
    assert "Tile" not in ops
    assert ops.count("MatMul") == 2


def _turned_caches(graph: ir.Graph) -> list[int]:
    """Return which dimension each Transpose of a reshaped key or value moves to the rows."""
    found = []
    for node in graph:
        split = node.inputs[0].producer() if node.inputs[0] is not None else None
        cache = split.inputs[0] if split is not None else None
        if node.op_type == "Transpose" and cache is not None and cache.name in ("K", "V"):
            perm = node.attributes["perm"].as_ints()
            found.append(perm[-1] if cache.name == "K" else perm[-2])
    return found


_FLAT_ONE = {"batch": 1, "nonpad": (4,), "keys_known": True}


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        pytest.param(_FLAT_ONE | {"symbolic": False}, 0, id="a batch of one leaves rows in place"),
        pytest.param(_FLAT_ONE, 1, id="a batch of one that is not declared"),
        pytest.param({"symbolic": False, "keys_known": True}, 1, id="a batch of two"),
    ],
)
def test_rows_of_flat_caches(changes: dict[str, Any], moved: int, group: int) -> None:
    """The first dimension alone is moved where it counts the rows: onnxruntime absorbs that."""
    result, _ = _lowered(**changes, group=group)
    assert _turned_caches(result.graph) == [moved, moved]
    assert "If" not in [node.op_type for node in result.graph]


@pytest.mark.parametrize("group", [1, 3])
def test_an_unknown_batch_is_asked_for_at_run_time_in_onnxruntime(group: int) -> None:
    result, _ = _lowered(keys_known=True, runtime="onnxruntime", group=group)
    (choice,) = (node for node in result.graph if node.op_type == "If")
    bodies = [choice.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    assert [_turned_caches(body) for body in bodies] == [[0, 0], [1, 1]]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"keys_known": False}, id="keys of unknown number may be none"),
        pytest.param({"keys_known": True, "rank": 4}, id="heads are in front"),
        pytest.param({"keys_known": True, "symbolic": False}, id="the batch is known"),
    ],
)
def test_no_question_for_the_batch(changes: dict[str, Any]) -> None:
    result, _ = _lowered(**changes, runtime="onnxruntime")
    assert "If" not in [node.op_type for node in result.graph]


@pytest.mark.parametrize("runtime", [None, "onnxruntime"])
@pytest.mark.parametrize(("batch", "length"), [(0, 4), (1, 0), (2, 0), (0, 0)])
@pytest.mark.parametrize("group", [1, 3])
def test_empty_batches_and_queries(
    group: int, batch: int, length: int, runtime: str | None
) -> None:
    """onnxruntime 1.31.1 dies of an empty operand whose first dimension its product moves."""
    result, _ = _lowered(keys_known=True, runtime=runtime, group=group)
    heads = 2 * group
    feeds: dict[str, np.ndarray] = {
        "Q": np.zeros((batch, length, heads * 5), np.float32),
        "K": np.zeros((batch, 7, 2 * 5), np.float32),
        "V": np.zeros((batch, 7, 2 * 3), np.float32),
        "nonpad_kv_seqlen": np.zeros(batch, np.int64),
    }
    actual = onnxruntime.Session(serialize(result), "").run(feeds)
    assert actual["Y"].shape == (batch, length, heads * 3)


def test_all_layers_share_the_mask() -> None:
    """Two more layers add two products, a softmax and what belongs to them, but no mask."""
    case = Case(**{**_BASE, "rank": 4})
    feeds = _feeds(case)
    source = _model(case, feeds)
    for layer in (1, 2):
        node = onnx.NodeProto()
        node.CopyFrom(source.graph.node[0])
        node.name, node.output[0] = f"attention_{layer}", f"Y_{layer}"
        source.graph.node.append(node)
        source.graph.output.append(value(f"Y_{layer}", T.FLOAT, [None] * 4))
    result, _ = lower(ir.from_proto(source), opset=18, verify=False)
    ops = [node.op_type for node in result.graph]
    assert ops.count("MatMul") == 6
    assert ops.count("Less") == 2  # which keys are seen, and which rows see none
    assert ops.count("Range") == 2


def test_attention_without_windows_goes_to_23_as_it_is() -> None:
    result, forms = _lowered(23, nonpad=None)
    (node,) = result.graph
    assert node.op_type == "Attention"
    assert forms == []
