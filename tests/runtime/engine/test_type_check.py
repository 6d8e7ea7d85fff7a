"""Inputs of a node that are absent, too many, or of types that its schema does not take."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnx_kvtool.ops.schema import op_facts, op_history, tensor_type
from onnx_kvtool.runtime.engine.borrowed import type_check
from onnx_kvtool.runtime.errors import KernelError, RunFailed
from onnx_kvtool.runtime.kernels.table import KERNELS, find_kernel
from tests.grids import each
from tests.runtime.text_models import run

F, N = np.zeros(2, np.float32), np.zeros(2, np.int64)

REFUSED = [
    pytest.param("Add", [F], "`B` is absent, and `Add` needs it", id="too few"),
    pytest.param("Add", [None, F], "`A` is absent", id="an empty name for a required input"),
    pytest.param("Add", [F, F, F], "there are 3 inputs, expected at most 2", id="too many"),
    pytest.param("Add", [F, N], r"`B` is tensor\(int64\), expected tensor\(float\)", id="mixed"),
    pytest.param("Gather", [F, F], r"`indices` is tensor\(float\), which version", id="no index"),
    pytest.param("Concat", [F, N], r"`inputs\[1\]` is tensor\(int64\)", id="mixed in a list"),
    pytest.param("Add", [F.astype("M8[s]"), F], "datetime64", id="no type of ONNX"),
]


@each(("op", "inputs", "message"), REFUSED)
def test_refused(op, inputs, message) -> None:
    facts = op_facts(op, 24)
    assert facts is not None
    with pytest.raises(KernelError, match=message):
        type_check(facts)(inputs)


@each(
    ("op", "inputs"),
    [
        pytest.param("Clip", [F, None, F], id="an optional input that is absent"),
        pytest.param("Clip", [F], id="optional inputs that are left out"),
        pytest.param("Concat", [F, F, F], id="a variadic input"),
        pytest.param("OptionalHasElement", [None], id="an optional that holds nothing"),
        pytest.param("SequenceAt", [[F], np.array(0)], id="a sequence"),
    ],
)
def test_accepted(op, inputs) -> None:
    facts = op_facts(op, 24)
    assert facts is not None
    check = type_check(facts)
    check(inputs)
    check(inputs)


def test_an_absent_input_after_one_that_was_there_is_seen() -> None:
    facts = op_facts("SequenceAt", 24)
    assert facts is not None
    check = type_check(facts)
    check([[F], np.array(0)])
    with pytest.raises(KernelError, match="`input_sequence` is absent"):
        check([None, np.array(0)])


def test_an_input_that_a_function_is_called_without_is_named_with_its_node() -> None:
    text = (
        "g (float[2] x) => (float[2] y) { y = local.F (x) }"
        '<domain: "local", opset_import: ["": 24]> F (a, b) => (c) { [sum] c = Add (a, b) }'
    )
    with pytest.raises(RunFailed, match=r"local::F, node `sum` \(Add\): `B` is absent"):
        run(text, x=F)


ARRAYS = {
    tensor_type(element): np.zeros(2, element.numpy())
    for element in (ir.DataType(n) for n in range(1, 17))
    if element != ir.DataType.STRING
}


SERVED = [
    (op, facts.since_version)
    for op in KERNELS
    for facts in op_history(op)
    if find_kernel(op, facts.since_version) is not None
]


@each(("op_type", "since"), SERVED)
def test_no_kernel_gets_other_types_than_its_schema_says(op_type: str, since: int) -> None:
    """Kernels look at no type that the schema fixes, nor whether two that it calls one are one."""
    facts = op_facts(op_type, since)
    assert facts is not None
    formals = [formal for formal in facts.inputs if not formal.variadic]
    allowed = [[t for t in ARRAYS if t in formal.types] for formal in formals]
    first = [ARRAYS[types[0]] if types else [] for types in allowed]  # the latter a sequence
    for place, formal in enumerate(formals):
        wrong = [t for t in ARRAYS if t not in formal.types][:1]
        if sum(f.type_parameter == formal.type_parameter for f in formals) > 1:
            wrong += allowed[place][1:2]
        for name in wrong:
            given = [*first[:place], ARRAYS[name], *first[place + 1 :]]
            with pytest.raises(KernelError, match=r"which version|expected tensor"):
                type_check(facts)(given)
