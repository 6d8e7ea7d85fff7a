"""Lowered RotaryEmbedding against the definition."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto as T
from onnx import helper

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.runtime import reference
from onnx_kvtool.runtime.onnxruntime import Session
from tests.cache_models import model, value
from tests.grids import part

_B, _H, _L, _D = 2, 3, 5, 8


def _source(
    rank: int, rotated: int, positions: bool, symbolic: bool, dtype: int = T.FLOAT, **more: Any
) -> Any:
    attributes = {"rotary_embedding_dim": rotated, **more}
    if rank == 3:
        attributes["num_heads"] = _H
    width = (rotated or _D) // 2
    batch, length = ("B", "L") if symbolic else (_B, _L)
    shape = [batch, length, _H * _D] if rank == 3 else [batch, _H, length, _D]
    table = [11, width] if positions else [batch, length, width]
    inputs = [value("x", dtype, shape)]
    inputs += [value(name, dtype, table) for name in ("cos", "sin")]
    if positions:
        inputs.append(value("ids", T.INT64, [batch, length]))
    names = [v.name for v in inputs]
    node = helper.make_node("RotaryEmbedding", names, ["y"], name="rotary", **attributes)
    return model([node], inputs, [value("y", dtype, shape)], opset=23, ir_version=11)


def _expected(
    feeds: dict[str, np.ndarray], rank: int, rotated: int, interleaved: bool
) -> np.ndarray:
    x = feeds["x"]
    if rank == 3:
        x = x.reshape(_B, _L, _H, _D).transpose(0, 2, 1, 3)
    cos, sin = feeds["cos"], feeds["sin"]
    if "ids" in feeds:
        cos, sin = cos[feeds["ids"]], sin[feeds["ids"]]
    width = rotated or _D
    turned, rest = x[..., :width], x[..., width:]
    first, second = turned[..., : width // 2], turned[..., width // 2 :]
    if interleaved:
        first, second = turned[..., ::2], turned[..., 1::2]
    cos, sin = cos[:, None], sin[:, None]
    parts = [cos * first - sin * second, sin * first + cos * second]
    turned = np.stack(parts, -1).reshape(turned.shape) if interleaved else np.concatenate(parts, -1)
    y = np.concatenate([turned, rest], axis=-1)
    return y.transpose(0, 2, 1, 3).reshape(_B, _L, _H * _D) if rank == 3 else y


@part(4)
@pytest.mark.parametrize(
    ("dtype", "opset"),
    [
        *(pytest.param(T.FLOAT, opset, id=f"float, opset {opset}") for opset in (11, 13, 18, 22)),
        *(pytest.param(T.BFLOAT16, opset, id=f"bfloat16, opset {opset}") for opset in (13, 18)),
    ],
)
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("positions", [True, False], ids=["positions", "tables by row"])
@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "pairs"])
@pytest.mark.parametrize("rotated", [0, 4], ids=["whole head", "half a head"])
@pytest.mark.parametrize("rank", [3, 4])
def test_results(
    rank: int,
    rotated: int,
    interleaved: bool,
    positions: bool,
    symbolic: bool,
    dtype: int,
    opset: int,
) -> None:
    source = _source(rank, rotated, positions, symbolic, dtype, interleaved=int(interleaved))
    result, report = lower(ir.from_proto(source), opset=opset, verify=False)
    assert [done.rule for done in report.lowered] == ["rotary_embedding"]
    onnx.checker.check_model(ir.to_proto(result), full_check=True)
    rng = np.random.default_rng(6)
    width = (rotated or _D) // 2
    table = (11, width) if positions else (_B, _L, width)
    shape = (_B, _L, _H * _D) if rank == 3 else (_B, _H, _L, _D)
    kind = np.float32 if dtype == T.FLOAT else ml_dtypes.bfloat16
    feeds: dict[str, np.ndarray] = {
        name: rng.standard_normal(dims).astype(kind)
        for name, dims in (("x", shape), ("cos", table), ("sin", table))
    }
    if positions:
        feeds["ids"] = rng.integers(0, 11, (_B, _L))
    session = Session if dtype == T.FLOAT else reference.Session
    actual = session(serialize(result), "").run(feeds)["y"]
    assert actual.tobytes() == _expected(feeds, rank, rotated, interleaved).tobytes()


@pytest.mark.long
def test_a_head_of_unknown_size_takes_the_body_of_the_schema() -> None:
    source = _source(4, 0, True, False)
    del source.graph.input[0].type.tensor_type.shape.dim[3:]
    source.graph.input[0].type.tensor_type.shape.dim.add().dim_param = "D"
    _, report = lower(ir.from_proto(source), opset=18, verify=False)
    assert [done.rule for done in report.lowered] == ["function_body"]


def test_all_heads_and_layers_share_the_tables() -> None:
    source = _source(4, 0, True, True)
    again = onnx.NodeProto()
    again.CopyFrom(source.graph.node[0])
    again.name, again.output[0] = "rotary_2", "z"
    source.graph.node.append(again)
    source.graph.output.append(value("z", T.FLOAT, ["B", _H, "L", _D]))
    result, _ = lower(ir.from_proto(source), opset=18, verify=False)
    ops = [n.op_type for n in result.graph]
    assert (ops.count("Neg"), ops.count("Concat")) == (1, 2)
    assert ops.count("Gather") == 4  # two look up the tables, one exchanges the halves of each x
