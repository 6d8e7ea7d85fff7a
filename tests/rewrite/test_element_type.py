"""Another type in the place of bfloat16: where it stands, what it cannot hold, how it is proven."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.checker
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.commands.lower import lower, run
from onnx_kvtool.commands.requests import LowerRequest
from onnx_kvtool.core.choices import ElementType
from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.model_io.model import read, serialize
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.runtime.onnxruntime import Session
from onnx_kvtool.verification.subject import nearest_host, wide_host
from tests.grids import each, part, thinned
from tests.narrow_models import decoder, narrow
from tests.runtime.recorded import NATIVE

_HEAD = '<ir_version: 10, opset_import: ["": 21, "my": 1, "com.microsoft": 1]> '
_WIDE: dict[ElementType, Any] = {"float32": np.float32, "float16": np.float16}


def _model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(_HEAD + text)


def _constant(model: onnx.ModelProto, name: str, values: object) -> onnx.ModelProto:
    """Add a constant of bfloat16."""
    tensor = ir.tensor(np.array(values, ml_dtypes.bfloat16), name=name)
    model.graph.initializer.append(ir.serde.serialize_tensor(tensor))
    return model


def _mentions(model: ir.Model) -> bool:
    text = str(onnx.printer.to_text(ir.to_proto(model)))
    return "bfloat16" in text or "= 16>" in text


@pytest.mark.long
@pytest.mark.parametrize(
    ("to", "opset"),
    thinned(
        [
            pytest.param("float32", 11),
            pytest.param("float32", 18),
            pytest.param("float16", 12),
            pytest.param("float16", 11),
        ],
        2,
    ),
)
def test_a_decoder_is_equal_in_another_type(to: ElementType, opset: int) -> None:
    result, report = lower(decoder("bfloat16", std=0.05), opset=opset, element_type=to)
    assert report.verification.status == "equal", report.verification.detail
    assert not _mentions(result)
    assert any(note.startswith(f"bfloat16 became {to}") for note in report.notes)
    onnx.checker.check_model(ir.to_proto(result), full_check=True)
    caches = [value for value in result.graph.inputs if "cache" in (value.name or "")]
    assert {value.dtype for value in caches} == {ir.DataType(1 if to == "float32" else 10)}


def _genai() -> onnx.ModelProto:
    """Return a decoder of GroupQueryAttention whose hosts pad batches, in bfloat16."""
    message = onnx.load(NATIVE.parent / "genai" / "genai_llama_fp32_cpu.onnx")
    narrow(message, "bfloat16")
    return message


@pytest.mark.long
@pytest.mark.parametrize(
    ("to", "opset"),
    thinned(
        [pytest.param(t, n) for t, n in (("float32", 11), ("float16", 12), ("float16", 11))], 3
    ),
)
def test_a_padded_decoder_of_onnxruntime_is_equal_in_another_type(
    to: ElementType, opset: int
) -> None:
    """Its operators take the type, and rows of padding are left out of the proof."""
    result, report = lower(_genai(), opset=opset, element_type=to, contrib="standard")
    assert report.verification.status == "equal", report.verification.detail
    assert "rows of padding, as `attention_mask` says, skipped" in report.verification.detail
    assert not _mentions(result)
    assert {node.domain for node in result.graph} == {""}


@pytest.mark.long
def test_operators_of_onnxruntime_may_stay_in_another_type() -> None:
    result, report = lower(_genai(), opset=17, element_type="float32")
    assert report.verification.status == "equal", report.verification.detail
    assert "GroupQueryAttention" in {node.op_type for node in result.graph}
    Session(serialize(result), "")  # which has kernels of float32


@pytest.mark.long
def test_a_wrong_weight_shows_beside_padding() -> None:
    from onnx_kvtool.rewrite.verify import Verifier

    source = ir.from_proto(_genai())
    verifier = Verifier(source)
    result, _ = lower(source, opset=11, element_type="float32", contrib="standard", verify=False)
    weight = next(v for n, v in result.graph.initializers.items() if "mlp.up_proj" in n)
    assert weight.const_value is not None
    weight.const_value = ir.tensor(weight.const_value.numpy() * np.float32(1.05), name=weight.name)
    assert verifier.compare(result, widened=ir.DataType.FLOAT).status == "different"


@each(
    "text",
    [
        pytest.param("g (float[3] x) => (y) { t = Cast <to = 16> (x) y = Neg (t) }", id="Cast"),
        pytest.param(
            "g (bfloat16[3] x) => (y) { y = Softmax (x) z = EyeLike <dtype = 16> (w)"
            "  w = Unsqueeze (x, a) } ",
            id="dtype",
        ),
        pytest.param(
            "g (bool c, bfloat16[3] x) => (y) { y = If (c) <"
            "then_branch = a () => (bfloat16[3] t) { t = Neg (x) },"
            "else_branch = b () => (bfloat16[3] e) { k = Cast <to = 1> (x) e = Cast <to = 16> (k) }"
            "> }",
            id="a body",
        ),
        pytest.param(
            "g (seq(bfloat16[3]) s, int64 i) => (y) { y = SequenceAt (s, i) }", id="a sequence"
        ),
        pytest.param(
            "g (float[3] x) => (y) { y = my.narrow <dtype = 16> (x) }"
            '<domain: "my", opset_import: ["": 21]> narrow <dtype> (x) => (y)'
            "{ y = Cast <to: int = @dtype> (x) }",
            id="a function",
        ),
    ],
)
def test_every_place_of_the_type_is_found(text: str) -> None:
    model = _model(text)
    if "EyeLike" in text:
        nodes = sorted(model.graph.node, key=lambda n: "Softmax Unsqueeze EyeLike".find(n.op_type))
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "a"))
    result, report = lower(model, opset=21, element_type="float32", verify=False)
    assert not _mentions(result)
    assert not report.refused


def test_values_of_constants_stay() -> None:
    values = np.array([1.5, -3e38, np.inf, np.nan, 0.1, 1e-40], ml_dtypes.bfloat16)
    model = _model("g (bfloat16[6] x) => (y) { y = Mul (x, k) }")
    model.graph.node.add(op_type="Constant", output=["k"]).attribute.append(
        onnx.helper.make_attribute("value", ir.serde.serialize_tensor(ir.tensor(values)))
    )
    model.graph.node.insert(0, model.graph.node.pop())
    result, _ = lower(model, opset=11, element_type="float32", verify=False)
    (kept,) = [n.attributes["value"].as_tensor() for n in result.graph if n.op_type == "Constant"]
    assert kept.numpy().tobytes() == values.astype(np.float32).tobytes()


@each(
    ("text", "constant", "to", "expected"),
    [
        pytest.param(
            "g (bfloat16[1] x) => (y) { y = Mul (x, k) }",
            [-3e38],
            "float16",
            "`k` has 3.004e+38, and the largest number of float16 is 65504",
            id="a mask that float16 does not hold",
        ),
        pytest.param(
            "g (bfloat16[1] x) => (y) { y = Add (x, k) }",
            1e-12,
            "float16",
            "`k` is 1.002e-12, which float16 takes for 0",
            id="an epsilon that float16 takes for nothing",
        ),
        pytest.param(
            "g (bfloat16[1] x) => (y) { y = my.Odd (x) }",
            None,
            "float32",
            "nobody knows whether `my::Odd` takes float32",
            id="an operator of which nothing is known",
        ),
        pytest.param(
            "g (bfloat16[3] x, int8[3, 1] t, float[3, 1] s) => (y)"
            "{ y = com.microsoft.Odd (x, t, s) }",
            None,
            "float16",
            "nobody knows whether `com.microsoft::Odd` takes float16",
            id="an operator that onnxruntime may have",
        ),
    ],
)
def test_what_cannot_be_changed_is_refused(
    text: str, constant: object, to: ElementType, expected: str
) -> None:
    model = _model(text)
    if constant is not None:
        _constant(model, "k", constant)
    with pytest.raises(Refused) as refused:
        lower(model, opset=18, element_type=to)
    assert expected in [found.message for found in refused.value.report.refused]


def test_bits_of_bfloat16_are_refused() -> None:
    text = "g (int16[3] x) => (y) { t = BitCast <to = 16> (x) y = Neg (t) }"
    model = onnx.parser.parse_model(_HEAD.replace("21", "26") + text)
    with pytest.raises(Refused) as refused:
        lower(model, opset=18, element_type="float32")
    assert "BitCast reads the bits" in refused.value.report.refused[0].message


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("g (bfloat16[3] x) => (bfloat16[3] y) { y = Neg (x) }", id="at the border"),
        pytest.param(
            "g (float[3] x) => (float[3] y)"
            "{ t = Cast <to = 16> (x) u = Neg (t) y = Cast <to = 1> (u) }",
            id="inside",
        ),
    ],
)
def test_a_refusal_for_lack_of_the_type_names_the_flag(text: str) -> None:
    with pytest.raises(Refused) as refused:
        lower(_model(text), opset=12)
    for found in refused.value.report.refused:
        assert isinstance(found, Diagnostic)
        assert "--element-type float32" in (found.help or "")


def test_a_model_without_the_type_stays_as_it_is() -> None:
    model = _model("g (float[3] x) => (float[3] y) { y = Neg (x) }")
    _, report = lower(model, opset=18, element_type="float16")
    assert "the model has no bfloat16, so that no type is changed" in report.notes


@pytest.mark.long
def test_a_result_of_another_meaning_is_found() -> None:
    """The proof by running is not satisfied by types alone."""
    from onnx_kvtool.rewrite.verify import Verifier

    source = decoder("bfloat16", std=0.05)
    verifier = Verifier(source)
    result, _ = lower(source, opset=12, element_type="float32", verify=False)
    assert verifier.compare(result, widened=ir.DataType.FLOAT).status == "equal"
    weight = next(v for n, v in result.graph.initializers.items() if "mlp.up_proj" in n)
    assert weight.const_value is not None
    weight.const_value = ir.tensor(weight.const_value.numpy() * np.float32(1.01), name=weight.name)
    assert verifier.compare(result, widened=ir.DataType.FLOAT).status == "different"


def _external(directory: Path) -> Path:
    """Write the decoder with its weights in a data file."""
    path = directory / "model.onnx"
    ir.save(decoder("bfloat16", std=0.05), path, external_data="model.onnx.data")
    return path


@pytest.mark.long
@part(2)
@pytest.mark.parametrize("to", ["float32", "float16"])
@pytest.mark.parametrize("where", ["beside", "in place"])
def test_external_weights_are_converted_to_a_file(
    tmp_path: Path, to: ElementType, where: str
) -> None:
    path = _external(tmp_path)
    before = (tmp_path / "model.onnx.data").read_bytes()
    source = read(str(path))
    held = {n: v.const_value.numpy() for n, v in source.graph.initializers.items() if v.const_value}
    report = run(LowerRequest(str(path), opset=12, element_type=to, in_place=where == "in place"))
    assert report.verification.status == "equal"
    assert report.output is not None
    assert (tmp_path / "model.onnx.data").read_bytes() == before
    data = "model.onnx.1.data" if where == "in place" else "model.opset12.onnx.data"
    assert any(note.endswith(f"{data}`") for note in report.notes)
    result = read(report.output)
    kept = 0
    for name, value in result.graph.initializers.items():
        tensor = value.const_value
        if name in held and held[name].dtype == ml_dtypes.bfloat16 and held[name].size > 64:
            assert isinstance(tensor, ir.ExternalTensor)
            assert tensor.location == data
            expected = held[name].astype(_WIDE[to])
            assert np.array_equal(tensor.numpy(), expected)
            kept += 1
    assert kept > 10
    Session(Path(report.output).read_bytes(), str(tmp_path))


@pytest.mark.long
def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    path = _external(tmp_path)
    (tmp_path / "model.opset12.onnx").write_bytes(b"mine")
    with pytest.raises(kv.KvtoolError):
        run(LowerRequest(str(path), opset=12, element_type="float32", verify=False))
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "model.onnx", "model.onnx.data", "model.opset12.onnx",
    ]  # fmt: skip


@pytest.mark.long
def test_save_writes_converted_weights_and_leaves_the_model_as_it_is(tmp_path: Path) -> None:
    result, _ = lower(str(_external(tmp_path)), opset=12, element_type="float32", verify=False)
    before = serialize(result)
    kv.save(result, tmp_path / "saved.onnx")
    assert serialize(result) == before
    assert (tmp_path / "saved.onnx").stat().st_size < len(before) / 2
    assert serialize(read(str(tmp_path / "saved.onnx"))) != before
    again = read(str(tmp_path / "saved.onnx"))
    for name, value in result.graph.initializers.items():
        tensor = again.graph.initializers[name].const_value
        assert value.const_value is not None
        assert tensor is not None
        assert tensor.numpy().tobytes() == value.const_value.numpy().tobytes()


@pytest.mark.exhaustive
@pytest.mark.long
def test_large_models_are_verified_by_copies(tmp_path: Path) -> None:
    path = _external(tmp_path)
    report = run(LowerRequest(str(path), opset=12, element_type="float32", verify_budget="1MiB"))
    assert report.verification.status == "equal", report.verification.detail
    assert report.verification.shrunken


def test_both_models_are_fed_what_float16_holds_of_bfloat16() -> None:
    """All numbers, also those below 6e-5, where the steps of float16 are the coarser ones."""
    every = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    with np.errstate(over="ignore"):
        narrow = nearest_host(np.dtype(np.float16)).feeds({"x": every})["x"]
        wide = wide_host(np.dtype(np.float16), frozenset()).feeds({"x": every})["x"]
    assert (narrow.dtype, wide.dtype) == (ml_dtypes.bfloat16, np.float16)
    np.testing.assert_array_equal(narrow.astype(np.float64), wide.astype(np.float64))
