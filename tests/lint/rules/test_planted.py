"""Defects planted into real decoders: the right code at the right node, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.model_io.model import deserialize
from tests.grids import part
from tests.lint.cases import lint

MODELS = Path(__file__).parents[3] / "fixtures" / "models"
DECODER = "native/llama_static"
HYBRID = "native/gemma4_hybrid_static"
BIAS = "native/mobius_block_bias_int64_2d"
INDEX_COPY = "torch_static/hand/index_copy_bhsd__dynamo_op18"
CIRCULAR = "torch_static/hand/circular_scatter_sharedB__dynamo_op18"

LAYER = "model/layers.1/self_attn"
KEYS, ATTENTION = f"{LAYER}/TensorScatter_node_38", f"{LAYER}/Attention_node_40"
ALL_CACHES = [
    "model/layers.0/self_attn/TensorScatter_node_12",
    "model/layers.0/self_attn/TensorScatter_node_13",
    KEYS,
    f"{LAYER}/TensorScatter_node_39",
]
GROUPS = ("KV0", "KV2", "ON6")

Graph = onnx.GraphProto
Model = onnx.ModelProto


def node(model: Model, name: str) -> onnx.NodeProto:
    (found,) = (n for n in model.graph.node if n.name == name)
    return found


def value(model: Model, name: str) -> onnx.ValueInfoProto:
    graph = model.graph
    (found,) = (v for v in (*graph.input, *graph.output, *graph.value_info) if v.name == name)
    return found


def resize(model: Model, name: str, *dims: int | str) -> None:
    shape = value(model, name).type.tensor_type.shape
    shape.CopyFrom(helper.make_tensor_type_proto(1, dims).tensor_type.shape)


def attribute(name: str, **given: object) -> Callable[[Model], None]:
    def edit(model: Model) -> None:
        target = node(model, name)
        kept = [a for a in target.attribute if a.name not in given]
        del target.attribute[:]
        target.attribute.extend(kept)
        made = [helper.make_attribute(k, v) for k, v in given.items() if v is not None]
        target.attribute.extend(made)

    return edit


def insert(
    before: str, index: int, op: str, *constants: np.ndarray, **given: object
) -> Callable[[Model], None]:
    """Put a node between another one and its input."""

    def edit(model: Model) -> None:
        target = node(model, before)
        names = [f"planted_{k}" for k in range(len(constants))]
        model.graph.initializer.extend(map(numpy_helper.from_array, constants, names))
        new = helper.make_node(op, [target.input[index], *names], ["planted"], "planted", **given)
        target.input[index] = "planted"
        model.graph.node.insert(list(model.graph.node).index(target), new)

    return edit


def fixed(**sizes: int) -> Callable[[Model], None]:
    """Give numbers to the named dimensions of the inputs, and forget what else is declared."""

    def edit(model: Model) -> None:
        del model.graph.value_info[:]
        for declared in (*model.graph.input, *model.graph.output):
            for dim in declared.type.tensor_type.shape.dim:
                if dim.dim_param in sizes:
                    dim.dim_value = sizes[dim.dim_param]

    return edit


def constant(name: str, array: np.ndarray) -> Callable[[Model], None]:
    """Turn an input of the model into an initializer."""

    def edit(model: Model) -> None:
        model.graph.input.remove(value(model, name))
        model.graph.initializer.append(numpy_helper.from_array(array, name))

    return edit


def reads(name: str, index: int, array: np.ndarray) -> Callable[[Model], None]:
    """Let a node read a constant."""

    def edit(model: Model) -> None:
        node(model, name).input[index] = "planted"
        model.graph.initializer.append(numpy_helper.from_array(array, "planted"))

    return edit


def both(*edits: Callable[[Model], object]) -> Callable[[Model], None]:
    def edit(model: Model) -> None:
        for one in edits:
            one(model)

    return edit


@dataclass(frozen=True)
class Planted:
    """A defect: into which model, how, and what must be found at error level."""

    name: str
    model: str
    edit: Callable[[Model], object]
    code: str
    nodes: list[str]
    says: str = ""


def starts_of(kind: int, *dims: int | str) -> Callable[[Model], None]:
    def edit(model: Model) -> None:
        type_ = helper.make_tensor_type_proto(kind, dims)
        value(model, "write_indices").type.CopyFrom(type_)

    return edit


PREFILL = fixed(batch=2, sequence_len=3)

PLANTED = [
    Planted("axis 0", DECODER, attribute(KEYS, axis=0), "KV001", [KEYS], "rank 3"),
    Planted("axis 3", DECODER, attribute(KEYS, axis=3), "KV002", [KEYS], "expected -3 to 2"),
    Planted("a ring", DECODER, attribute(KEYS, mode="ring"), "KV003", [KEYS], "`ring`"),
    Planted(
        "an update of four dimensions",
        DECODER,
        insert(KEYS, 1, "Unsqueeze", np.int64([1])),
        "KV004",
        [KEYS],
        "rank 4 [batch, 1, sequence_len, 32]",
    ),
    Planted(
        "heads that were not joined",
        DECODER,
        insert(KEYS, 1, "Slice", np.int64([0]), np.int64([16]), np.int64([2])),
        "KV005",
        [KEYS],
        "size 16 along dimension 2, not 32",
    ),
    Planted(
        "a half update", DECODER, insert(KEYS, 1, "Cast", to=10), "KV006", [KEYS], "is float16"
    ),
    Planted(
        "a prompt longer than the caches",
        DECODER,
        fixed(sequence_len=40),
        "KV007",
        ALL_CACHES,
        "40 rows along axis 1, `key_cache.0` has room for 32",
    ),
    Planted(
        "a start too far behind",
        DECODER,
        both(PREFILL, constant("write_indices", np.int64([4, 30]))),
        "KV008",
        ALL_CACHES,
        "writes rows 30 to 32 along axis 1 of `key_cache.0` (size 32): write_indices[1]=30",
    ),
    Planted(
        "a start before the cache",
        DECODER,
        both(PREFILL, constant("write_indices", np.int64([-1, 4]))),
        "KV009",
        ALL_CACHES,
        "write_indices[0]=-1",
    ),
    Planted("int32 starts", DECODER, starts_of(6, "batch"), "KV010", ALL_CACHES, "is int32"),
    Planted(
        "a column of starts", DECODER, starts_of(7, "batch", 1), "KV011", ALL_CACHES, "[batch, 1]"
    ),
    Planted(
        "the opset before",
        BIAS,
        lambda model: setattr(model.opset_import[0], "version", 23),
        "KV012",
        ["TensorScatter_node_22"],
        "opset 23",
    ),
    Planted(
        "one row more declared",
        DECODER,
        lambda model: resize(model, "updated_key_cache.1", "batch", 33, 32),
        "KV013",
        [KEYS],
        "declared float32[batch, 33, 32]",
    ),
    Planted(
        "an operator that does not exist",
        DECODER,
        lambda model: setattr(node(model, ATTENTION), "op_type", "Attentoin"),
        "ON601",
        [ATTENTION],
    ),
    Planted(
        "an attribute of a later opset",
        DECODER,
        attribute(ATTENTION, left_window_size=4),
        "ON602",
        [ATTENTION],
        "it came with opset 25",
    ),
    Planted("a float flag", DECODER, attribute(ATTENTION, is_causal=1.0), "ON603", [ATTENTION]),
    Planted(
        "a reduction that does not exist",
        CIRCULAR,
        attribute("node_scatter", reduction="mean"),
        "ON604",
        ["node_scatter"],
    ),
    Planted(
        "a fourth input",
        DECODER,
        lambda model: node(model, KEYS).input.append("write_indices"),
        "ON605",
        [KEYS],
    ),
    Planted(
        "no values",
        DECODER,
        lambda model: node(model, ATTENTION).input.__setitem__(2, ""),
        "ON606",
        [ATTENTION],
        "input 2, `V`",
    ),
    Planted(
        "boolean queries",
        DECODER,
        insert(ATTENTION, 0, "Cast", to=9),
        "ON607",
        [ATTENTION],
        "`planted` is tensor(bool)",
    ),
    Planted(
        "keys of another precision",
        DECODER,
        insert(ATTENTION, 1, "Cast", to=10),
        "ON611",
        [ATTENTION],
    ),
    Planted(
        "a Cast to nothing",
        HYBRID,
        attribute("model/Cast_node_18", to=None),
        "ON610",
        ["model/Cast_node_18"],
    ),
    Planted(
        "a projection that was not transposed",
        DECODER,
        insert("model/layers.0/self_attn/k_proj/MatMul_node_7", 1, "Transpose", perm=[1, 0]),
        "ON615",
        ["model/layers.0/self_attn/k_proj/MatMul_node_7"],
        "Incompatible dimensions",
    ),
    Planted(
        "updates that were not transposed with the data",
        INDEX_COPY,
        lambda model: node(model, "node_ScatterND_15").input.__setitem__(2, "val_12"),
        "KV201",
        [],
    ),
    Planted(
        "a slice that lost a dimension",
        INDEX_COPY,
        insert("node_ScatterND_15", 2, "ReduceMax", np.int64([3]), keepdims=0),
        "KV201",
        ["node_ScatterND_15"],
        "`updates` has rank 3, expected 4",
    ),
    Planted(
        "indices that were not expanded",
        CIRCULAR,
        both(
            lambda model: node(model, "node_scatter").input.__setitem__(1, "unsqueeze_3"),
            fixed(batch=2, seq=3),
        ),
        "KV202",
        ["node_scatter"],
        "dimension 1 of `updates` is 2, expected 1 as in `indices`",
    ),
    Planted(
        "one position twice",
        INDEX_COPY,
        constant("pos", np.int64([4, 5, 4])),
        "KV203",
        ["node_ScatterND_15"],
        "the index [4] twice, at tuples 0 and 2",
    ),
    Planted(
        "a position behind the cache",
        INDEX_COPY,
        constant("pos", np.int64([14, 15, 16])),
        "KV204",
        ["node_ScatterND_15"],
        "the index 16 along axis 0 of `val_12` (size 16)",
    ),
    Planted(
        "8-bit caches in a scatter",
        INDEX_COPY,
        both(
            lambda model: [
                setattr(declared.type.tensor_type, "elem_type", 17)
                for declared in (*model.graph.input, *model.graph.value_info, *model.graph.output)
                if declared.type.tensor_type.elem_type == 1
            ],
            lambda model: setattr(model.opset_import[0], "version", 21),
        ),
        "KV206",
        ["node_ScatterND_15"],
        "float8e4m3fn",
    ),
]


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{c.code} {c.name}") for c in PLANTED])
def test_a_planted_defect_is_found(case: Planted) -> None:
    message = onnx.load(MODELS / f"{case.model}.onnx")
    case.edit(message)
    model = deserialize(message.SerializeToString())
    rules = [rule for code, rule in RULES.items() if code.startswith(GROUPS)]
    found = [f for f in lint(model, rules) if f.severity == "error"]
    if not case.nodes:
        assert found == []
        return
    assert [f.location.node for f in found] == case.nodes, [str(f.diagnostic) for f in found]
    assert {f.code for f in found} == {case.code}
    assert case.says in found[0].diagnostic.message


VALID = sorted(p for p in MODELS.rglob("*.onnx") if not p.name.startswith("BROKEN"))


@pytest.mark.long
@part(4)
@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in VALID])
def test_a_valid_model_has_no_error_and_no_warning(path: Path) -> None:
    from onnx_kvtool.model_io.model import read

    rules = [rule for code, rule in RULES.items() if code.startswith(GROUPS)]
    found = [f for f in lint(read(path), rules) if f.severity != "info"]
    assert found == [], [str(f.diagnostic) for f in found]


@pytest.mark.long
def test_every_input_that_the_exporter_lost_is_named() -> None:
    from onnx_kvtool.model_io.model import read

    rules = [rule for code, rule in RULES.items() if code.startswith(GROUPS)]
    found = lint(read(MODELS / "native" / "BROKEN_gemma_static_raw_noopt.onnx"), rules)
    assert [(f.code, f.location.op) for f in found] == [
        ("ON606", "CumSum"),
        ("ON606", "Shape"),
        ("ON606", "Unsqueeze"),
    ]
