"""The library as a user calls it: the names of the commands, and nothing but `KvtoolError`."""

from __future__ import annotations

import builtins
from pathlib import Path

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from tests.grids import each

MODEL = Path("fixtures/models/native/llama_static.onnx")

FLOAT8_CACHE = """
    <ir_version: 12, opset_import: ["": 24]>
    decoder (float8e4m3fn[2, 3, 7, 5] past, float8e4m3fn[2, 3, 1, 5] update, int64[2] start)
        => (float8e4m3fn[2, 3, 7, 5] present) {
        present = TensorScatter (past, update, start)
    }
"""


@pytest.fixture
def float8() -> ir.Model:
    """A model that opset 18, which has no float8, cannot hold."""
    return ir.from_proto(onnx.parser.parse_model(FLOAT8_CACHE))


@pytest.mark.long
def test_a_model_or_its_path_is_lowered_and_the_model_stays_as_it_was(root: Path) -> None:
    model = kv.load(root / MODEL)
    before = ir.to_proto(model).SerializeToString(deterministic=True)

    lowered, report = kv.lower(model, opset=18, verify=False)
    same, _ = kv.lower(root / MODEL, opset=18, verify=False)

    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    assert lowered.opset_imports[""] == 18
    assert ir.to_proto(lowered) == ir.to_proto(same)
    assert (report.source_opset, report.target_opset, report.output) == (24, 18, None)
    assert report.to_json()["verification"]["status"] == "skipped"


def test_a_refusal_is_raised_with_its_report(float8: ir.Model) -> None:
    with pytest.raises(kv.Refused, match="1 refusal") as caught:
        kv.lower(float8, opset=18)
    (refusal,) = caught.value.report.refused
    assert refusal.lowest_opset == 19


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        pytest.param({"model": "no-such-file.onnx"}, kv.UnreadableModel, id="no such file"),
        pytest.param({"model": __file__}, kv.UnreadableModel, id="no model"),
        pytest.param({"opset": 24}, kv.UsageError, id="an opset out of range"),
        pytest.param(
            {"opset": 18, "only": ["TensorScatter"]}, kv.UsageError, id="an opset that is kept"
        ),
        pytest.param({"only": ["TensorScattr"]}, kv.UsageError, id="an unknown operator"),
        pytest.param(
            {"via": "scatternd", "index_dtype": "int32"}, kv.UsageError, id="int32 for ScatterND"
        ),
        pytest.param({"opset": 18}, kv.Refused, id="a type that the target lacks"),
    ],
)
def test_bad_input_raises_a_kvtool_error(float8: ir.Model, arguments, error) -> None:
    with pytest.raises(error) as caught:
        kv.lower(**{"model": float8, **arguments})
    assert isinstance(caught.value, kv.KvtoolError)


CALLS = [
    pytest.param(kv.lower, {"via": "scatter"}, "`via` is `scatter`", id="a form that is none"),
    pytest.param(kv.lower, {"bounds": "none"}, "`bounds` is `none`", id="bounds that are none"),
    pytest.param(kv.lower, {"verify_steps": 0}, "`verify_steps` is 0", id="no step to verify"),
    pytest.param(kv.raise_, {"verify_steps": 0}, "`verify_steps` is 0", id="no step of a raise"),
    pytest.param(kv.lower, {"only": "TensorScatter"}, "`only` is the text", id="a text as a list"),
    pytest.param(kv.raise_, {"assume": "contiguous"}, "`assume` is the text", id="one assumption"),
    pytest.param(kv.check, {"select": "KV"}, "`select` is the text", id="one code"),
    pytest.param(kv.evaluate, {"fetch": "logits"}, "`fetch` is the text", id="one value"),
    *(
        pytest.param(
            function, {"dims": {"batch": size}}, "the size of `batch`", id=f"{name} at {size!r}"
        )
        for name, function in (
            ("lower", kv.lower),
            ("raise_", kv.raise_),
            ("check", kv.check),
            ("inspect", kv.inspect),
            ("infer", kv.infer),
            ("evaluate", kv.evaluate),
        )
        for size in (0, -1, 2.5, "2")
    ),
]


@pytest.mark.long
@each(("function", "arguments", "message"), CALLS)
def test_an_argument_that_the_command_line_cannot_give_is_wrong_usage(
    function, arguments, message, root: Path
) -> None:
    with pytest.raises(kv.UsageError, match=message):
        function(root / MODEL, **arguments)


NO_MODEL = [3, None, b"model", ["decoder.onnx"], onnx.GraphProto(), ir.Shape([2, 3])]
TAKE_A_MODEL = [
    kv.load, kv.lower, kv.raise_, kv.inspect, kv.infer, kv.evaluate,
    lambda model: kv.verify(MODEL, model), lambda model: kv.verify(model, MODEL),
    lambda model: kv.save(model, "never.onnx"),
]  # fmt: skip


@pytest.mark.long
@each("thing", NO_MODEL)
@each("function", TAKE_A_MODEL)
def test_what_is_no_model_is_wrong_usage(function, thing) -> None:
    with pytest.raises(kv.UsageError, match="a model is a path, an `onnx"):
        function(thing)


@each("thing", [3, None, ["decoder.onnx"], ir.Shape([2, 3])])
def test_what_is_no_part_of_a_model_either_is_wrong_usage(thing) -> None:
    with pytest.raises(kv.UsageError, match="a model is a path, an `onnx"):
        kv.ReferenceEvaluator(thing)


@each("thing", [3, None, b"model", [3], onnx.GraphProto()])
def test_what_is_neither_model_nor_paths_cannot_be_checked(thing) -> None:
    with pytest.raises(kv.UsageError, match="a model is a path, an `onnx"):
        kv.check(thing)


def test_the_package_shows_its_public_names_alone() -> None:
    assert dir(kv) == sorted([*kv.__all__, "print"])
    assert all(hasattr(kv, name) for name in dir(kv))


def test_no_builtin_is_hidden_by_importing_everything(root: Path) -> None:
    names: dict[str, object] = {}
    exec("from onnx_kvtool import *", names)
    assert names["lower"] is kv.lower
    assert not names.keys() & vars(builtins).keys()
    assert kv.print(root / MODEL).startswith("<")


def test_the_sizes_of_a_comparison_are_positive(root: Path) -> None:
    with pytest.raises(kv.UsageError, match="the size of `batch` is 0"):
        kv.verify(root / MODEL, root / MODEL, dims={"batch": 0})


def test_outputs_have_the_byte_order_of_the_machine(root: Path) -> None:
    outputs = kv.evaluate(root / MODEL, random=True)
    assert {array.dtype.byteorder for array in outputs.values()} == {"="}
