"""What is written down of operators that onnx lacks, against what onnxruntime registers."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import onnx
import pytest

from onnx_kvtool.ops.contrib_schema import CONTRIB_SCHEMAS, OperatorName
from onnx_kvtool.runtime.kernels.table import CONTRIB_KERNELS
from tests.grids import each
from tests.runtime.kernels.contrib.node import RELEASE, needs_onnxruntime

NAMES = [pytest.param(name, id="::".join(filter(None, name))) for name in CONTRIB_SCHEMAS]


WRITTEN_FROM = (1, 32)
"""The release of onnxruntime that the schemas were read off."""

SINCE = {
    ("com.microsoft", "GroupQueryAttention"): {"query_seqlens", "q_norm_epsilon", "k_norm_epsilon"},
    ("com.microsoft", "MoE"): {"swiglu_limit_after_activation"},
    ("com.microsoft", "QMoE"): {"swiglu_limit_after_activation"},
}
"""What came with that release: onnxruntime adds to an operator without a new version of it."""


@functools.cache
def registered() -> dict[OperatorName, Any]:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return {
        (schema.domain, schema.name): schema
        for schema in state.get_all_operator_schema()
        if schema.since_version == 1
    }


@needs_onnxruntime
@each("name", NAMES)
def test_a_schema_is_that_of_onnxruntime(name: OperatorName) -> None:
    if RELEASE < WRITTEN_FROM and name not in registered():
        pytest.skip("a later release brought it")
    facts, schema = CONTRIB_SCHEMAS[name], registered()[name]
    lacking = SINCE.get(name, set()) if RELEASE < WRITTEN_FROM else set()
    types = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}
    for formals, parameters in ((facts.inputs, schema.inputs), (facts.outputs, schema.outputs)):
        expected = [
            (p.name, p.option.name == "Optional", p.typeStr, types.get(p.typeStr, {p.typeStr}))
            for p in parameters
        ]
        written = [
            (f.name, f.optional, f.type_parameter, f.types)
            for f in formals
            if f.name not in lacking
        ]
        if RELEASE > WRITTEN_FROM:
            added = expected[len(written) :]
            assert all(is_optional for _, is_optional, *_ in added), added
            expected = expected[: len(written)]
        assert written == expected
    assert facts.min_outputs == schema.min_output
    given = facts.attributes.keys() - lacking
    if RELEASE > WRITTEN_FROM:
        assert given <= schema.attributes.keys()
    else:
        assert given == schema.attributes.keys()
    for attribute_name in sorted(given):
        attribute, other = facts.attributes[attribute_name], schema.attributes[attribute_name]
        assert attribute.type == onnx.AttributeProto.AttributeType.Value(other.type.name)
        assert attribute.required == other.required
        assert attribute.default == default_of(other)


def default_of(attribute: Any) -> Any:
    given = onnx.AttributeProto.FromString(attribute._default_value)
    if not given.name:
        return None
    value = onnx.helper.get_attribute_value(given)
    return value.decode() if isinstance(value, bytes) else value


def test_every_schema_has_a_kernel_and_every_kernel_a_schema() -> None:
    assert CONTRIB_KERNELS.keys() == CONTRIB_SCHEMAS.keys()


@each("name", sorted(CONTRIB_KERNELS))
def test_a_kernel_takes_what_its_schema_says(name: OperatorName) -> None:
    facts, kernel = CONTRIB_SCHEMAS[name], CONTRIB_KERNELS[name]
    parameters = inspect.signature(kernel.function).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
    assert [p.name for p in positional] == [formal.name for formal in facts.inputs]
    for index, (parameter, formal) in enumerate(zip(positional, facts.inputs, strict=True)):
        # Python wants no default before a parameter that has none.
        has_default = formal.optional and index >= facts.min_inputs
        assert (parameter.default is None) == has_default, formal.name
    keywords = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert keywords - {"context"} == facts.attributes.keys()
    assert kernel.since == facts.since_version
