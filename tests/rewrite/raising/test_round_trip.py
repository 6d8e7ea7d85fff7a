"""Lowered and raised again, a TensorScatter is what it was; raised and lowered, an update is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.ops.operators import TensorScatter
from tests.cache_models import tensor_scatter_oracle
from tests.grids import grid
from tests.rewrite.raising.brute_force import Arrays, Runtimes, dead_nodes, same_bits

MODELS = Path(__file__).resolve().parents[3] / "fixtures" / "models"

NATIVE = [
    "gemma4_hybrid_static",
    "llama_static",
    "llama_static_fp16",
    "mistral_sliding_bias_static",
    "mobius_block_bias_int64_2d",
]

OPSETS = [11, 13, 18, 23]

TOLERANCES = {"float32": 1e-4, "float16": 5e-3}
"""Largest difference of what is computed: Attention stays lowered, and rounds elsewhere."""

Via = Literal["scatternd", "scatterelements"]

VIAS = ["scatternd", "scatterelements"]
vias = pytest.mark.parametrize("via", VIAS)


def updates(model: ir.Model) -> list[tuple[object, ...]]:
    """Return what each TensorScatter of a model does, in their order."""
    found: list[tuple[object, ...]] = []
    for _, _, node in nodes(model):
        if node.op_type == "TensorScatter":
            view = TensorScatter(node, 24)
            rank = len(node.inputs[0].shape or ()) if node.inputs[0] is not None else 0
            starts = view.write_indices
            found.append(
                (
                    view.axis % rank,
                    view.mode,
                    view.past_cache.name,
                    None if starts is None else starts.name,
                    node.outputs[0].name,
                )
            )
    return found


def serialized(model: ir.Model) -> onnx.ModelProto:
    return onnx.load_from_string(serialize(model))


def scatters(model: onnx.ModelProto) -> int:
    """Return how many scatters by index a model has."""
    return sum(node.op_type in ("ScatterND", "ScatterElements") for node in model.graph.node)


def recorded(name: str) -> tuple[Arrays, Arrays]:
    with np.load(MODELS / f"{name}.npz") as arrays:
        inputs = {k[3:]: arrays[k] for k in arrays if k.startswith("in:")}
        outputs = {k[4:]: arrays[k] for k in arrays if k.startswith("out:")}
    return inputs, outputs


@pytest.mark.long
@grid(12, opset=OPSETS, via=VIAS, name=NATIVE)
def test_lowered_then_raised_is_what_it_was(name: str, via: Via, opset: int) -> None:
    source = kv.load(MODELS / "native" / f"{name}.onnx")
    lowered, _ = kv.lower(source, opset=opset, via=via, verify=False)
    assert not updates(lowered)

    model, report = kv.raise_(lowered, attention="keep", verify=False)

    assert updates(model) == updates(source)
    refused = [str(one) for one in report.refused if one.code != "growing-cache"]
    assert refused == []
    assert len(report.raised) == len(updates(source))
    result = serialized(model)
    onnx.checker.check_model(result, full_check=True)
    assert {*dead_nodes(result)} <= {*dead_nodes(serialized(lowered))}
    # Lowering other operators makes scatters too, which stay.
    assert scatters(result) == scatters(serialized(lowered)) - len(report.raised)

    inputs, outputs = recorded(f"native/{name}")
    found = Runtimes(result).run(inputs)
    assert set(found) == {"evaluator", "onnxruntime"}
    for actual in found.values():
        assert actual is not None and list(actual) == list(outputs)
        for output, expected in outputs.items():
            limit = TOLERANCES.get(expected.dtype.name, 0.0)
            assert np.allclose(actual[output], expected, rtol=0, atol=limit), output


@pytest.mark.long
@vias
def test_only_tensor_scatter_lowered_then_raised_is_the_model_again(via: Via) -> None:
    source = kv.load(MODELS / "native" / "llama_static.onnx")
    lowered, _ = kv.lower(source, only=["TensorScatter"], via=via, verify=False)
    model, _ = kv.raise_(lowered, attention="keep", verify=False)

    assert updates(model) == updates(source)
    inputs, _ = recorded("native/llama_static")
    before = Runtimes(onnx.load(MODELS / "native" / "llama_static.onnx")).run(inputs)
    after = Runtimes(serialized(model)).run(inputs)
    for runtime, outputs in before.items():
        actual = after[runtime]
        assert outputs is not None and actual is not None
        assert all(same_bits(outputs[output], actual[output]) for output in outputs)
    assert [node.op_type for _, _, node in nodes(model)] == [
        node.op_type for _, _, node in nodes(source)
    ]


SHAPES = {
    "rank 2": ((2, 5), (2, 3), 1),
    "rank 3": ((2, 5, 7), (2, 3, 7), 1),
    "rank 4, axis 2": ((2, 3, 5, 7), (2, 3, 4, 7), 2),
    "rank 4, axis 1": ((2, 5, 3, 7), (2, 4, 3, 7), 1),
    "rank 4, axis 3": ((2, 3, 7, 5), (2, 3, 7, 1), 3),
    "rank 5": ((2, 3, 1, 5, 7), (2, 3, 1, 4, 7), 3),
    "one sequence": ((1, 3, 5, 7), (1, 3, 2, 7), 2),
    "the whole cache": ((2, 3, 5, 7), (2, 3, 5, 7), 2),
    "no rows": ((2, 3, 5, 7), (2, 3, 0, 7), 2),
}


def one_update(
    sizes: tuple[tuple[int, ...], tuple[int, ...], int], mode: str, starts: bool, named: bool
) -> onnx.ModelProto:
    past, update, axis = sizes
    names = [f"d{n}" if named else size for n, size in enumerate(past)]
    rows = [*names[:axis], "L" if named else update[axis], *names[axis + 1 :]]
    inputs = f"float[{_text(names)}] past, float[{_text(rows)}] update"
    given = "past, update"
    if starts:
        inputs += f", int64[{names[0]}] w"
        given += ", w"
    return onnx.parser.parse_model(
        f'<ir_version: 11, opset_import: ["": 24]> g ({inputs}) => (float[{_text(names)}] present)'
        f' {{ present = TensorScatter <axis = {axis}, mode = "{mode}"> ({given}) }}'
    )


def _text(dims: Sequence[object]) -> str:
    return ", ".join(map(str, dims))


@grid(
    8,
    opset=[11, 18, 23],
    sizes=SHAPES,
    via=VIAS,
    mode=["linear", "circular"],
    starts={"from 0": False, "from write_indices": True},
    named={"fixed sizes": False, "names": True},
)
def test_one_update_comes_back(
    sizes: tuple[tuple[int, ...], tuple[int, ...], int],
    mode: str,
    starts: bool,
    named: bool,
    via: Via,
    opset: int,
) -> None:
    past, update, axis = sizes
    source = ir.from_proto(one_update(sizes, mode, starts, named))
    lowered, _ = kv.lower(source, opset=opset, via=via, verify=False)
    model, report = kv.raise_(lowered, attention="keep", verify=False)

    if not (update[axis] or named):
        assert not report.raised and not report.refused  # it became an Identity
        return
    (done,) = report.raised
    assert done.axis == axis
    assert done.write_indices == ("w" if starts else None)
    # Rows that fit from 0 on never wrap.
    assert done.mode == (mode if starts else "linear") or (named and done.mode == mode)
    rng = np.random.default_rng(0)
    feeds: Arrays = {
        "past": rng.random(past).astype(np.float32),
        "update": rng.random(update).astype(np.float32),
    }
    room = past[axis] if mode == "circular" else past[axis] - update[axis]
    if starts:
        feeds["w"] = np.asarray([room, room // 2][: past[0]], np.int64)
    expected = tensor_scatter_oracle(feeds["past"], feeds["update"], feeds.get("w"), axis, mode)
    for outputs in Runtimes(serialized(model)).run(feeds).values():
        assert outputs is not None
        assert same_bits(outputs["present"], expected)


EXPORTS = [
    "optimized/llama_static__ts_op17__onnxslim",
    "torch_static/hand/circular_scatter_sharedB__dynamo_op18",
    "torch_static/hand/perbatch_index_put_bhsd_sharedB__dynamo_op18",
    "torch_static/hand/slice_assign_const5__ts_op17",
    "torch_static/hand/slice_assign_item__dynamo_op18",
    "torch_static/hand/slice_cat__dynamo_op18",
    "torch_static/hf/llama_static__dynamo_op18",
    "torch_static/hf/llama_static__dynamo_op23",
    "torch_static/hf/llama_static__ts_op17",
]
"""Models that need no assumption."""


@pytest.mark.long
@grid(6, opset=[18, 21], via=VIAS, name=EXPORTS)
def test_raised_then_lowered_gives_what_was_recorded(name: str, via: Via, opset: int) -> None:
    raised, first = kv.raise_(MODELS / f"{name}.onnx", attention="keep", verify=False)
    lowered, _ = kv.lower(raised, opset=opset, via=via, verify=False)
    assert not updates(lowered)

    inputs, outputs = recorded(name)
    found = Runtimes(serialized(lowered)).run(inputs)
    assert set(found) == {"evaluator", "onnxruntime"}
    for actual in found.values():
        assert actual is not None
        for output, expected in outputs.items():
            limit = 0.0 if "/hand/" in name else TOLERANCES["float32"]
            assert np.allclose(actual[output], expected, rtol=0, atol=limit), output

    again, second = kv.raise_(lowered, attention="keep", verify=False)
    assert len(updates(again)) == len(updates(raised))
    assert [(d.axis, d.mode, d.past, d.present) for d in first.raised] == [
        (d.axis, d.mode, d.past, d.present) for d in second.raised
    ]
