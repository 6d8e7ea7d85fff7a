"""One operator as a model: its version, the types of literals, attributes, outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_kvtool.core.errors import UnreadableModel, UsageError
from onnx_kvtool.evaluation.operator import SingleOperator, single_operator
from onnx_kvtool.evaluation.spec import read_spec
from onnx_kvtool.ops.schema import NEWEST, op_facts, operators
from onnx_kvtool.runtime.engine.evaluator import Evaluator
from tests.grids import each


def single(
    op: str, inputs: str = "", attributes: str = "", fetch: str = "", opset: int | None = None
) -> SingleOperator:
    """Return an operator; inputs are `name=SPEC` parted by semicolons, attributes as well."""

    def pairs(text: str) -> list[tuple[str, str]]:
        parts = (part.strip().partition("=") for part in text.split(";") if part.strip())
        return [(name, value) for name, _, value in parts]

    given = [(name, read_spec(text)) for name, text in pairs(inputs)]
    return single_operator(op, opset, pairs(attributes), given, fetch.split())


def run(one: SingleOperator) -> list[np.ndarray]:
    onnx.shape_inference.infer_shapes(ir.to_proto(one.model), check_type=True, strict_mode=True)
    return list(Evaluator(one.model).run(one.inputs).values.values())


RUNS = [
    pytest.param("Add", "A=1; B=2", "", "", [3], "int64", id="integers by themselves"),
    pytest.param("Add", "A=1; B=2.5", "", "", [3.5], "float32", id="a fraction decides for both"),
    pytest.param("Add", "A=int8:1; B=2", "", "", [3], "int8", id="a type in front binds the other"),
    pytest.param("Add", "A=1; B=bfloat16:2", "", "", [3], "bfloat16", id="also an earlier one"),
    pytest.param(
        "Softmax", "input=[0, 0]", "", "", [[0.5, 0.5]], "float32", id="no integers: float32"
    ),
    pytest.param("Not", "X=[1, 0]", "", "", [[False, True]], "bool", id="the schema's only type"),
    pytest.param(
        "TensorScatter",
        "past_cache=[[0, 0, 0]]; update=[[7]]; write_indices=[2]",
        "mode=linear; axis=1",
        "",
        [[[0, 0, 7]]],
        "int64",
        id="attributes of two types",
    ),
    pytest.param(
        "TensorScatter",
        "past_cache=[[0]]; update=[[7]]",
        "axis=-1",
        "",
        [[[7]]],
        "int64",
        id="an optional input left out",
    ),
    pytest.param(
        "Clip", "input=[1, 5]; max=3", "", "", [[1, 3]], "int64", id="one left out in the middle"
    ),
    pytest.param(
        "Concat",
        "inputs=[1]; inputs=[2.5]",
        "axis=0",
        "",
        [[1, 2.5]],
        "float32",
        id="a variadic input, once for each value",
    ),
    pytest.param(
        "Split", "input=[1, 2, 3]", "num_outputs=2", "", [[1, 2], [3]], "int64", id="parts"
    ),
    pytest.param(
        "Split", "input=[1, 2, 3]; split=[1, 2]", "", "", [[1], [2, 3]], "int64", id="cuts"
    ),
    pytest.param(
        "Split", "input=[1, 2]", "num_outputs=2", "outputs_1", [[2]], "int64", id="a part"
    ),
    pytest.param("TopK", "X=[3, 1]; K=[1]", "", "Indices", [[0]], "int64", id="one of two outputs"),
    pytest.param("Dropout", "data=[2.5]", "", "", [[2.5]], "float32", id="no optional outputs"),
    pytest.param("Dropout", "data=[2.5]", "", "mask", [[True]], "bool", id="an optional output"),
    pytest.param("Cast", "input=[1.5]", "to=float16", "", [[1.5]], "float16", id="a type by name"),
    pytest.param("Cast", "input=[1.5]", "to=10", "", [[1.5]], "float16", id="a type by number"),
    pytest.param("Elu", "X=[-1e9]", "alpha=2", "", [[-2]], "float32", id="a float attribute"),
    pytest.param("Einsum", "Inputs=[1, 2]", "equation=i->", "", [3], "int64", id="text, as it is"),
    pytest.param(
        "Transpose", "data=[[1, 2]]", "perm=[1, 0]", "", [[[1], [2]]], "int64", id="a list"
    ),
    pytest.param("Constant", "", "value_floats=[1, 2.5]", "", [[1, 2.5]], "float32", id="floats"),
    pytest.param("Constant", "", 'value_strings=["a"]', "", [["a"]], "object", id="strings"),
    pytest.param("Constant", "", "value=uint8:[7]", "", [[7]], "uint8", id="a tensor"),
    pytest.param("StringConcat", 'X=["a"]; Y=["b"]', "", "", [["ab"]], "object", id="text"),
]


@each(("op", "inputs", "attributes", "fetch", "expected", "dtype"), RUNS)
def test_an_operator_runs(op, inputs, attributes, fetch, expected, dtype) -> None:
    found = run(single(op, inputs, attributes, fetch))
    assert [array.tolist() for array in found] == expected
    assert {array.dtype.name for array in found} == {dtype}


def test_the_newest_version_is_meant_in_the_opset_that_brought_it() -> None:
    assert single("Add", "A=1; B=2").opset == 14
    assert single("Upsample", "X=[1.0]; scales=[1.0]").opset == 9, "the last before it was dropped"
    assert single("Add", "A=1; B=2", opset=20).opset == 20


def test_an_older_version() -> None:
    one = single("Squeeze", "data=[[5]]", "axes=[0]", opset=11)
    assert [array.tolist() for array in run(one)] == [[5]]


@each("op", sorted(operators()))
def test_every_operator_can_be_named(op: str) -> None:
    """Without inputs an operator is told what it lacks, or it needs nothing at all."""
    facts = op_facts(op, NEWEST)
    assert facts is not None
    needed = [f for f in facts.inputs if not f.optional and not f.variadic]
    needed_attributes = [a for a in facts.attributes.values() if a.required]
    if needed or needed_attributes:
        with pytest.raises(UsageError, match=op):
            single(op)
    else:
        assert single(op).inputs == {}


@each(
    ("arguments", "message", "help"),
    [
        pytest.param({"op": "Adds"}, "no operator of the default", "did you mean `Add`?", id="op"),
        pytest.param({"op": "com.x::Add"}, "another domain", None, id="a domain"),
        pytest.param(
            {"op": "Add", "opset": 99}, "`--opset` is 99, expected 1 to", None, id="opset"
        ),
        pytest.param({"op": "Gelu", "opset": 19}, "opset 19 has no operator", None, id="too old"),
        pytest.param({"op": "Scatter", "opset": 11}, "opset 11 has no", None, id="deprecated"),
        pytest.param({"op": "If"}, "If has a body", "--node", id="a body"),
        pytest.param(
            {"op": "Add", "inputs": "A=1"}, "no value for `B` of Add", "--input B=SPEC", id="none"
        ),
        pytest.param(
            {"op": "Add", "inputs": "A=1; B=1; C=1"}, "no input `C`", "`A`, `B`", id="unknown input"
        ),
        pytest.param({"op": "Add", "inputs": "A=1; A=1; B=1"}, "given twice", None, id="twice"),
        pytest.param(
            {"op": "Add", "inputs": "A=1; B=true"}, "`B`: .* true, which int64", None, id="mixed"
        ),
        pytest.param(
            {"op": "Add", "inputs": "A=true; B=true"}, "`A` would be bool", "in front", id="bool"
        ),
        pytest.param(
            {"op": "Gather", "inputs": "data=[1]; indices=[0.5]"},
            "`indices` would be float32, expected int32 or int64",
            None,
            id="a type that the schema does not take",
        ),
        pytest.param(
            {
                "op": "TensorScatter",
                "inputs": "past_cache=[[0]]; update=[[1]]; write_indices=[0.5]",
            },
            "`write_indices`: the literal has 0.5",
            None,
            id="a fraction where the schema takes int64 alone",
        ),
        pytest.param(
            {"op": "Cast", "inputs": "input=1"}, "`to` of Cast is required", None, id="attribute"
        ),
        pytest.param(
            {"op": "Elu", "inputs": "X=1", "attributes": "alfa=1"},
            "no attribute `alfa`",
            "did you mean `alpha`?",
            id="an unknown attribute",
        ),
        pytest.param(
            {"op": "Elu", "inputs": "X=1", "attributes": "alpha=1; alpha=2"},
            "`alpha` is given twice",
            None,
            id="an attribute twice",
        ),
        pytest.param(
            {"op": "Elu", "inputs": "X=1", "attributes": "alpha=[1]"},
            "expected a single value",
            None,
            id="a list for a number",
        ),
        pytest.param(
            {"op": "Transpose", "inputs": "data=1", "attributes": "perm=1"},
            "expected a list",
            None,
            id="a number for a list",
        ),
        pytest.param(
            {"op": "Softmax", "inputs": "input=1", "attributes": "axis=float32"},
            "attribute `axis`: `float32` is no JSON",
            None,
            id="a type where no type is meant",
        ),
        pytest.param(
            {"op": "Constant", "attributes": "sparse_value=1"}, "cannot be given", None, id="sparse"
        ),
        pytest.param(
            {"op": "Add", "inputs": "A=1; B=1", "fetch": "D"}, "no output `D`", "`C`", id="output"
        ),
    ],
)
def test_wrong_usage(arguments, message, help) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        single(**arguments)
    assert help is None or help in (caught.value.help or "")


def test_a_tensor_attribute_may_be_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([3, 4], np.int16))
    found = run(single("Constant", "", f"value={tmp_path / 'x.npy'}"))
    assert [array.tolist() for array in found] == [[3, 4]]
    with pytest.raises(UnreadableModel, match="does not exist"):
        single("Constant", "", f"value={tmp_path / 'y.npy'}")


def test_raw_bytes_take_the_type_of_the_other_input(tmp_path: Path) -> None:
    bf16 = ir.DataType.BFLOAT16.numpy()
    np.save(tmp_path / "x.npy", np.array([[1.5, 2]], bf16))
    one = single("TensorScatter", f"past_cache={tmp_path}/x.npy; update=bfloat16:[[3]]", "axis=1")
    assert [array.tolist() for array in run(one)] == [[[3, 2]]]
    with pytest.raises(UsageError, match="raw elements of 2 bytes, expected float32"):
        single("TensorScatter", f"past_cache={tmp_path}/x.npy; update=[[3.5]]", "axis=1")
