"""Decoders as genai writes them: small copies are equal where the models are, and show faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from benchmarks.real_models.configuration import Configuration
from benchmarks.real_models.genai import write_genai
from benchmarks.real_models.genai_configuration import GENAI, Genai
from onnx_kvtool.core.choices import ElementType
from onnx_kvtool.model_io.model import clone, read
from onnx_kvtool.verification.affordable import Large, compare_shrunk
from onnx_kvtool.verification.report import Settings, VerifyReport
from tests.grids import part, rest

pytestmark = pytest.mark.long

_SIZES = Configuration(
    2, hidden=512, heads=6, kv_heads=2, head_size=32, intermediate=384, vocabulary=640,
    capacity=24, tied=False,
)  # fmt: skip


def kind(name: str) -> Genai:
    """Return a decoder of that kind with small sizes, all of which copies have less of."""
    model = GENAI[name]
    of = model.sizes
    sizes = replace(
        _SIZES, dtype=of.dtype, quantisation=of.quantisation, zero_points=of.zero_points
    )
    return replace(
        model,
        sizes=sizes,
        turned=model.turned and 16,
        window=model.window and 3,
        experts=min(model.experts, 10),
        chosen=3 if model.experts > 8 else 2,
    )


def written(name: str, directory: Path) -> ir.Model:
    return read(write_genai(kind(name), directory))


def compared(a: ir.Model, b: ir.Model) -> VerifyReport:
    return compare_shrunk(Large(a, "A"), Large(b, "B"), Settings())


def shrunken(report: VerifyReport) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for entry in report.shrunken:
        found.setdefault(entry.what, []).append(entry.before)
    return found


@part(12)
@pytest.mark.parametrize("opset", [21, 18, 13])
@pytest.mark.parametrize(
    "name",
    [
        "llama-1b-fp32",
        "llama-1b-int4",
        "llama-1b-int4-zero-points",
        "qwen3-0.6b-int4",
        "gemma2-2b-int4",
        "phi4-mini-fp16",
        "moe-8-fp16",
        "moe-8-int4",
        "moe-64-int4",
    ],
)
def test_a_standardised_decoder_is_equal_on_small_copies(
    name: str, opset: int, tmp_path: Path
) -> None:
    source = written(name, tmp_path)
    lowered, _ = kv.lower(source, opset=opset, contrib="standard", verify=False)
    found = compared(source, lowered)
    assert (found.status, found.shrunk) == ("equal", True), found.detail
    less = shrunken(found)
    assert less["tokens"] == [640]
    # The hidden size and the inner one; of codes their blocks of 32.
    widths, wanted = (
        (less["blocks of weights"], {512 // 32, 384 // 32})
        if GENAI[name].sizes.quantisation != "none"
        else (less["widths"], {512, 384})
    )
    # Bytes of zero points hold two.
    assert wanted & {*widths, *(2 * size for size in widths)} == wanted, less


def node(model: ir.Model, op_type: str) -> ir.Node:
    return next(n for n in model.graph if n.op_type == op_type and ".1." in (n.name or ""))


def setting(op_type: str, name: str, value: int | float) -> Callable[[ir.Model], None]:
    """Return what gives another value to an attribute of a node of the second layer."""

    def change(model: ir.Model) -> None:
        made = ir.AttrInt64(name, value) if isinstance(value, int) else ir.AttrFloat32(name, value)
        node(model, op_type).attributes[name] = made

    change.__name__ = f"{op_type} with {name} of {value}"
    return change


def without_input(op_type: str, index: int) -> Callable[[ir.Model], None]:
    def change(model: ir.Model) -> None:
        node(model, op_type).replace_input_with(index, None)

    change.__name__ = f"{op_type} without input {index}"
    return change


def swapped(op_type: str, one: int, other: int) -> Callable[[ir.Model], None]:
    def change(model: ir.Model) -> None:
        found = node(model, op_type)
        a, b = found.inputs[one], found.inputs[other]
        found.replace_input_with(one, b)
        found.replace_input_with(other, a)

    change.__name__ = f"{op_type} with inputs {one} and {other} swapped"
    return change


_FAULTS = [
    ("llama-1b-fp32", setting("GroupQueryAttention", "scale", 0.3)),
    ("llama-1b-fp32", swapped("GroupQueryAttention", 7, 8)),
    ("llama-1b-fp32", setting("GroupQueryAttention", "rotary_interleaved", 1)),
    ("gemma2-2b-int4", setting("GroupQueryAttention", "local_window_size", 2)),
    ("gemma2-2b-int4", setting("GroupQueryAttention", "softcap", 0.5)),
    ("phi4-mini-fp16", setting("GroupQueryAttention", "do_rotary", 0)),
    ("llama-1b-int4-zero-points", without_input("MatMulNBits", 3)),
    ("moe-8-fp16", setting("MoE", "k", 1)),
    ("moe-8-fp16", setting("MoE", "activation_alpha", 3.0)),
    ("moe-8-fp16", setting("MoE", "swiglu_fusion", 2)),
    ("moe-8-int4", setting("QMoE", "k", 1)),
    ("moe-8-int4", setting("QMoE", "activation_beta", 1.0)),
    ("moe-64-int4", setting("QMoE", "swiglu_fusion", 2)),
]


@part(8)
@pytest.mark.parametrize(
    ("name", "fault"), _FAULTS, ids=[f"{name}, {fault.__name__}" for name, fault in _FAULTS]
)
def test_a_fault_shows_in_small_copies(
    name: str, fault: Callable[[ir.Model], None], tmp_path: Path
) -> None:
    """A rewrite that takes an operator for another one is found out."""
    source = written(name, tmp_path)
    wrong = clone(source)
    fault(wrong)
    lowered, _ = kv.lower(wrong, opset=18, contrib="standard", verify=False)
    found = compared(source, lowered)
    missing = "is not in" in (found.detail or "")  # a weight without readers is removed
    assert found.status == "different" or missing, found.detail


def test_heads_that_are_not_known_to_shrink_keep_their_sizes(tmp_path: Path) -> None:
    """Query, key and value in one product, turned in part: what is around them shrinks."""
    source = written("phi4-mini-fp16", tmp_path)
    lowered, _ = kv.lower(source, opset=18, contrib="standard", verify=False)
    found = compared(source, lowered)
    assert found.status == "equal"
    assert "heads" not in shrunken(found)
    assert "elements of a head" not in shrunken(found)


@pytest.mark.parametrize("to", ["float32", *rest("float16")])
def test_what_flows_between_layers_is_compared_in_another_type(
    to: ElementType, tmp_path: Path
) -> None:
    model = kind("llama-1b-bf16")
    path = write_genai(replace(model, sizes=replace(model.sizes, layers=6)), tmp_path)
    _, report = kv.lower(
        path, opset=11, contrib="standard", element_type=to, verify_budget="24MiB,60s"
    )
    assert report.verification.status == "equal", report.verification.detail
    assert "blocks that are alike" in {entry.what for entry in report.verification.shrunken}
