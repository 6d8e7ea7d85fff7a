"""The single-operator cases of onnx: what is inferred never contradicts the recorded outputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from onnx_kvtool.ops.traits import having
from onnx_kvtool.shapes.inference import Inference, infer_model
from onnx_kvtool.symbolic.dimensions import read_size
from onnx_kvtool.symbolic.rules.table import shape_rule
from tests.conformance.corpus import Case, cases, few
from tests.shapes.agreement import bindings, disagreements, size_at

pytestmark = pytest.mark.long


Form = Literal["as it is", "distinct names", "equal names"]
FORMS: tuple[Form, ...] = ("as it is", "distinct names", "equal names")

_AT_LEAST: dict[Form, int] = {"as it is": 1310, "distinct names": 1150, "equal names": 1330}
"""Outputs that are fully known; fewer is a step back."""


_WHOLE = [
    pytest.param(form, True, id=f"{form}, all", marks=pytest.mark.exhaustive) for form in FORMS
]
_FEW = [pytest.param(form, False, id=f"{form}, two of each operator") for form in FORMS]
each_form = pytest.mark.parametrize(("form", "whole"), [*_FEW, *_WHOLE])


def named(case: Case, size_name: Callable[[str, int, int], str]) -> onnx.ModelProto:
    """Return the case with small integer inputs as constants and all other sizes as names."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    inputs = []
    for value in model.graph.input:
        array = case.feeds.get(value.name)
        kept = onnx.ValueInfoProto()
        kept.CopyFrom(value)
        is_array = isinstance(array, np.ndarray)
        if is_array and array.dtype in (np.int64, np.int32) and array.size <= 64 and inputs:
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
            continue
        inputs.append(kept)
        if is_array and kept.type.HasField("tensor_type"):
            for axis, dim in enumerate(kept.type.tensor_type.shape.dim):
                dim.dim_param = size_name(value.name, axis, array.shape[axis])
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    return model


@functools.cache
def inferred(form: Form, whole: bool) -> dict[str, tuple[Case, ir.Model, Inference]]:
    """Infer every case, or two of each operator, with nothing declared of its outputs."""
    found = {}
    for case in cases() if whole else few():
        if form == "distinct names":
            message = named(case, lambda name, axis, size: f"{name}_{axis}")
        elif form == "equal names":
            message = named(case, lambda name, axis, size: f"n{size}")
        else:
            message = onnx.ModelProto()
            message.CopyFrom(case.model)
        for output in message.graph.output:
            output.ClearField("type")
        model = ir.from_proto(message)
        found[case.name] = case, model, infer_model(model)
    return found


@pytest.mark.long
@each_form
def test_nothing_contradicts_the_recorded_outputs(form: Form, whole: bool) -> None:
    wrong = {}
    for name, (case, model, found) in inferred(form, whole).items():
        outputs = [value.name or "" for value in model.graph.outputs]
        computed = dict(zip(outputs, case.expected, strict=True))
        problems = list(disagreements(found, computed, bindings(model, case.feeds)))
        if problems:
            wrong[name] = problems
    assert wrong == {}


@each_form
def test_a_case_that_runs_has_no_conflict(form: Form, whole: bool) -> None:
    wrong = {
        name: [conflict.message for conflict in found.report.conflicts]
        for name, (_, _, found) in inferred(form, whole).items()
        if found.report.conflicts
    }
    assert wrong == {}


@each_form
def test_names_that_are_found_equal_are_equal(form: Form, whole: bool) -> None:
    for name, (case, model, found) in inferred(form, whole).items():
        sizes = bindings(model, case.feeds)
        for equality in found.report.equalities:
            one, other = (size_at(read_size(t), sizes) for t in (equality.name, equality.equals))
            assert one == other, (name, equality)


@pytest.mark.parametrize(("form", "whole"), _WHOLE)
def test_as_many_outputs_are_known_as_were(form: Form, whole: bool) -> None:
    known = 0
    for _, model, found in inferred(form, whole).values():
        unknown = {value.location.value for value in found.report.unknown}
        known += sum(value.name not in unknown for value in model.graph.outputs)
    assert known >= _AT_LEAST[form]


def test_every_unknown_has_a_reason() -> None:
    for name, (_, _, found) in inferred("as it is", whole=False).items():
        for unknown in found.report.unknown:
            assert unknown.lost.why and unknown.lost.code, name
            assert unknown.lost.location.value, name
            assert not unknown.lost.why.endswith("."), name


def test_every_rule_is_held_against_a_recorded_case() -> None:
    tried = {node.op_type for case in cases() for node in case.model.graph.node}
    ruled = {op for op in having() if shape_rule(op) is not None}
    assert ruled - tried <= {"RandomNormalLike", "RandomUniformLike", "Scatter"}
