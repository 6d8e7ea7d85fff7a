"""Lowered Attention against an oracle that was written from the text of onnx 1.23.2."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import example, given
from onnx import TensorProto as T

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.runtime import onnxruntime, reference
from tests.attention_cases import Case, cases, expected_of, feeds_of, model_of
from tests.cache_models import value
from tests.grids import each, part, search
from tests.naive_attention import flat

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
    feeds = feeds_of(case)
    naive = expected_of(case, feeds)
    expected = naive.y
    if case.rank == 3:
        feeds |= {name: flat(feeds[name]) for name in "QKV"}
        expected = flat(expected)
    source = model_of(case, feeds)
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
        present = np.concatenate([feeds["past_key"], feeds_of(case)["K"]], axis=2)
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
    feeds = feeds_of(case)
    if case.rank == 3:
        feeds |= {name: flat(feeds[name]) for name in "QKV"}
    result, report = lower(
        ir.from_proto(model_of(case, feeds)), opset=opset, target=case.runtime, verify=False
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


@part(2)
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


@pytest.mark.long
@each(
    "options",
    {
        "opset 18": {"opset": 18},
        "a target that needs another Range": {"target": "tinygrad"},
    },
)
def test_all_layers_share_the_mask(options: dict[str, Any]) -> None:
    """Two more layers add two products, a softmax and what belongs to them, but no mask."""
    case = Case(**{**_BASE, "rank": 4})
    feeds = feeds_of(case)
    source = model_of(case, feeds)
    for layer in (1, 2):
        node = onnx.NodeProto()
        node.CopyFrom(source.graph.node[0])
        node.name, node.output[0] = f"attention_{layer}", f"Y_{layer}"
        source.graph.node.append(node)
        source.graph.output.append(value(f"Y_{layer}", T.FLOAT, [None] * 4))
    result, _ = lower(ir.from_proto(source), **options, verify=False)
    ops = [node.op_type for node in result.graph]
    assert ops.count("MatMul") == 6
    assert ops.count("Less") == 2  # which keys are seen, and which rows see none
    assert ops.count("Range") == 2


def test_attention_without_windows_goes_to_23_as_it_is() -> None:
    result, forms = _lowered(23, nonpad=None)
    (node,) = result.graph
    assert node.op_type == "Attention"
    assert forms == []
