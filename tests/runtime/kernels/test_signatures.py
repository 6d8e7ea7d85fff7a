"""Every kernel takes what the schemas of the versions it serves say."""

from __future__ import annotations

import functools
import inspect

import onnx.defs

from onnx_kvtool.ops.schema import OpFacts, op_facts
from onnx_kvtool.ops.traits import Trait, traits_of
from onnx_kvtool.runtime.kernels.kernel import KernelFunction
from onnx_kvtool.runtime.kernels.table import KERNELS, find_kernel
from tests.grids import each

_EXTRA = {"context", "in_place", "is_before_10", "is_before_11", "is_before_19"}
"""Keywords that are no attributes."""


@functools.cache
def served() -> dict[str, tuple[KernelFunction, OpFacts]]:
    """Return each version of each operator of the table that a kernel serves."""
    found = {}
    versions: dict[str, set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        # GroupNormalization-18 is deprecated and yet defined; models have it.
        if schema.domain == "" and (schema.inputs or not schema.deprecated):
            versions.setdefault(schema.name, set()).add(schema.since_version)
    for op_type, kernels in KERNELS.items():
        for version in sorted(versions[op_type]):
            kernel = find_kernel(op_type, version)
            facts = op_facts(op_type, version)
            if kernel is not None and facts is not None:
                found[f"{op_type}-{version}"] = (kernel, facts)
        assert kernels.keys() <= versions[op_type], op_type
    return found


@each(("kernel", "facts"), served())
def test_a_kernel_takes_what_its_schemas_say(kernel: KernelFunction, facts: OpFacts) -> None:
    parameters = inspect.signature(kernel).parameters
    positional = [
        p for p in parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
    ]
    keywords = {p.name: p for p in parameters.values() if p.kind is p.KEYWORD_ONLY}
    assert len(positional) + len(keywords) == len(parameters), "a kind that nobody passes"

    for formal, parameter in zip(facts.inputs, positional, strict=False):
        assert parameter.name == formal.name or formal.variadic
        assert (parameter.kind is parameter.VAR_POSITIONAL) == formal.variadic
        if formal.optional:
            assert parameter.default is None
    later = {p.name: p for p in positional[len(facts.inputs) :]}
    for name in later.keys() - facts.attributes.keys():
        assert later[name].default is None, f"{name} does not exist in this version"
    assert len(positional) >= len(facts.inputs)

    assert facts.attributes.keys() <= keywords.keys() | later.keys()
    for name in keywords.keys() - facts.attributes.keys() - _EXTRA:
        assert keywords[name].default is not inspect.Parameter.empty, (
            f"{name} does not exist in this version"
        )
    assert ("in_place" in keywords) == (Trait.UPDATES in traits_of(facts.op_type))


@each("op_type", KERNELS.keys())
def test_the_versions_of_an_operator_are_in_order(op_type: str) -> None:
    versions = [*KERNELS[op_type]]
    assert versions == sorted(versions)


@functools.cache
def names() -> dict[str, set[str]]:
    """Return what the attributes and inputs of each operator are called in any of its versions."""
    found: dict[str, set[str]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            given = (*schema.attributes, *(i.name for i in schema.inputs))
            found.setdefault(schema.name, set()).update(given)
    found["Scatter"] |= found["ScatterElements"]  # as it is called since opset 11
    return found


@each(("kernel", "facts"), served())
def test_a_keyword_beyond_one_version_stands_in_another(
    kernel: KernelFunction, facts: OpFacts
) -> None:
    given = inspect.signature(kernel).parameters
    taken = {n for n, p in given.items() if p.kind is not p.VAR_POSITIONAL}
    assert taken - _EXTRA <= names()[facts.op_type]
