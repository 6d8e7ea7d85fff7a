"""Decoders of operators that no exporter has written small, in other runtimes' forms."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.ops.contrib import is_contrib
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.symbolic.dimensions import dim_names
from tests.contrib_decoders import DECODERS, FOLDER, decoder
from tests.grids import part
from tests.runtime.kernels.contrib.node import needs_onnxruntime

pytestmark = needs_onnxruntime

SIZES = {
    "experts": {
        "batch_size": 2,
        "sequence_length": 1,
        "past_sequence_length": 5,
        "total_sequence_length": 6,
    },
    "sparse_attention": {"batch_size": 2, "sequence_length": 1, "total_sequence_length": 6},
}
FORMS: dict[str, dict[str, Any]] = {
    "opset 18": {"opset": 18, "contrib": "standard"},
    "opset 13": {"opset": 13, "contrib": "standard"},
    "openvino": {"target": "openvino"},
    "onnxruntime 1.17": {"target": "onnxruntime@1.17.3", "contrib": "standard"},
}


@pytest.mark.parametrize("name", DECODERS)
def test_a_fixture_is_what_its_script_writes(name: str) -> None:
    """But for the last bits of its numbers, which libraries of mathematics round as they like."""
    stored, made = onnx.load(FOLDER / f"{name}.onnx"), decoder(name)
    for model in (stored, made):
        for tensor in model.graph.initializer:
            if tensor.data_type == onnx.TensorProto.FLOAT:
                tensor.ClearField("raw_data")
    assert stored == made


@pytest.mark.long
@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@part(8)
def test_a_decoder_has_a_standard_form(name: str, form: str, static: bool) -> None:
    given = {"dims": SIZES[name], "static": True} if static else {}
    model, report = kv.lower(FOLDER / f"{name}.onnx", **FORMS[form], **given)
    assert report.verification.status == "equal", report.verification.detail
    kinds = {node.op_type for _, _, node in nodes(model)}
    assert not {"MoE", "QMoE", "SparseAttention", "GroupQueryAttention"} & kinds
    if "contrib" in FORMS[form]:
        source = model.opset_imports[""]
        assert not [node for _, _, node in nodes(model) if is_contrib(node, source)]
    if static:
        assert not dim_names(model)
        assert not [n for _, _, n in nodes(model) if Trait.GIVES_SIZES in traits(n)]
